"""Small programs on the disk, and what became of a run of one."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reclaim.function import PassFacts, Pressure, ReclaimContext
from reclaim.program.function import Program, ProgramStage, ProgramUser
from reclaim.types import Action, RemovalFailed, Verdict
from signals.clock import SystemClock

PRUNE = "prune"
LONG_SECONDS = 60.0
RUN = Verdict("program", PRUNE, PRUNE, Action.REMOVE, "in_table")


def script(directory: Path, text: str, name: str = "program", mode: int = 0o755) -> str:
    """A shell script; its path."""
    path = directory / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(mode)
    return str(path)


class QuickClock(SystemClock):
    """On which a second lasts a third: for what is waited for in vain."""

    def monotonic(self) -> float:
        return 3 * super().monotonic()


@dataclass
class Runs:
    """Runs programs as the product does, on the calling thread. `lines`: what was logged."""

    lines: list[str] = field(default_factory=list)
    pressure: Pressure = field(default_factory=Pressure)
    stopping: threading.Event = field(default_factory=threading.Event)
    clock: SystemClock = field(default_factory=SystemClock)

    def program(
        self,
        path: str,
        *arguments: str,
        timeout: float = LONG_SECONDS,
        user: ProgramUser | None = None,
    ) -> Program:
        """A program of the product."""
        return Program(PRUNE, (path, *arguments), timeout, self.lines.append, user)

    def stage(self, program: Program, *, dry_run: bool = False) -> ProgramStage:
        """The stage of one pass."""
        nothing = dict.fromkeys(ReclaimContext._fields)  # it uses no more than these
        used = {
            "clock": self.clock,
            "stopping": self.stopping,
            "facts": lambda: PassFacts(dry_run=dry_run, pressure=self.pressure),
        }
        return ProgramStage(program, ReclaimContext(**{**nothing, **used}))  # type: ignore[arg-type] # nothing of the rest

    def run(self, *argv: str, **options: Any) -> str:
        """Runs it; the sentence of its failure, empty if there was none."""
        return self.run_program(self.program(*argv, **options))

    def run_program(self, program: Program) -> str:
        """The same, of a program that may have run before."""
        try:
            self.stage(program).remove(RUN)
        except RemovalFailed as error:
            return str(error)
        return ""

    def plan(self, *argv: str, **options: Any) -> list[tuple[str, int | None]]:
        """What it says that it would remove, each with its reason, and the sizes;
        or that it does not say it.
        """
        plan = self.stage(self.program(*argv, **options), dry_run=True).plan()
        return [(verdict.name, verdict.size_bytes) for verdict in plan.remove]


def is_there(pid: int) -> bool:
    """Whether a process has this number; a zombie is one, unless its parent is
    another process than this.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    return fields[0] != "Z" or int(fields[1]) == os.getpid()


def children() -> set[int]:
    """The children of this process, zombies among them."""
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError):  # a thread that has just ended
            found |= set(map(int, (task / "children").read_text().split()))
    return found
