"""A program of the user's own as a reclaim function.

A pass runs the program once. A program is no object that could be asked for afterwards: *removed* means that it ran and
exited with 0. What came of it is what the filesystem has gained, which is measured as after any removal.

A dry run starts it with `plan` as its last argument instead, and shows what it says; one that does not answer that is
shown as one object. A pass never asks for the plan, so a broken one keeps nobody from running the program. A plan is
JSON lines, read strictly and within bounds. One line is one object: `{"name": "…", "size": 1048576, "reason": "…"}`.
`size` is in bytes and may be missing or null, `reason` may be missing; other keys are ignored, so that there may be
more of them one day. An empty object, `{}`, says only that the question is known: a program that would remove nothing
prints it, as one that prints nothing does not know the question.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

from reclaim.execution.remover import STATUS_FRESH_SECONDS, Ready
from reclaim.function import Pressure, ReclaimContext, ReclaimFunction
from reclaim.programs.process import LEFT_BEHIND_SECONDS, Output, ProgramRun
from reclaim.programs.program_file import ProgramUser, examine, opened_program
from reclaim.services import Clock
from reclaim.types import Action, Plan, RemovalFailed, Rule, Verdict

PROGRAM: Final = "program"
PROGRAM_OBJECT: Final = "program_object"
KINDS: Final = (PROGRAM, PROGRAM_OBJECT)
REASONS: Final = ("in_table", "listed_by_program")
"""Why a program is run, or why it would remove what it names."""

PLAN = "plan"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
LONGEST_PLAN_SECONDS = 10.0
MOST_PLAN_BYTES = 1 << 20
MOST_PLAN_LINES = 10_000
LONGEST_PLAN_LINE = 4096  # bytes
LONGEST_WORDS = 200  # characters of a name, a reason or a last line that are shown
LARGEST_SIZE = 1 << 60

KEPT_BYTES = 64 * 1024  # of what one run prints; what comes after them is read, counted and dropped
MOST_LINES = 100  # of one run
LONGEST_LINE = 1024  # bytes; a longer one is cut

LogLine = Callable[[str, str], None]
"""Takes a line that a program has printed: the name of the function, and the line, which may hold control characters.
Has to return at once."""


@dataclass(frozen=True, slots=True)
class ProgramSettings:
    """One program of the user's own.

    `argv`: the program, an absolute path, and its arguments. `timeout_seconds`: how long one run may take, above 0.
    `user`: whom it runs as; None: as this process. `asks_plan`: whether a dry run starts it with `plan` as a further
    argument; False for a program that does its work whatever its arguments are.
    """

    argv: tuple[str, ...]
    timeout_seconds: float
    user: ProgramUser | None = None
    asks_plan: bool = True


class NoPlan(Exception):
    """What was printed is no plan. The message is the end of a sentence that begins with the program."""


def program_function(name: str, settings: ProgramSettings, frees: str, *, log: LogLine) -> ReclaimFunction:
    """The entry of the table for this program. What it is told of the pressure is that of the pass, right before each
    start.

    `frees`: the filesystem on which it frees space. `log`: takes each line that it prints.
    """
    program = Program(name, settings, log)

    def stages(context: ReclaimContext) -> tuple[ProgramStage, ...]:
        executor = context.executor
        return (ProgramStage(program, context.pressure, context.clock, executor.stopping, dry_run=executor.dry_run),)

    return ReclaimFunction(name, frees, KINDS, stages)


class Program:
    """The program of one function, of which one run goes on at a time."""

    def __init__(self, name: str, settings: ProgramSettings, log: LogLine):
        self.name = name
        self.settings = settings
        self.path = settings.argv[0]
        self._log = log
        self._lock = threading.Lock()
        self._unended: ProgramRun | None = None

    @contextmanager
    def one_at_a_time(self) -> Iterator[None]:
        """Raises RemovalFailed while an earlier run has not ended."""
        if not self._lock.acquire(blocking=False):
            raise RemovalFailed(f"the program {self.path} runs already")
        try:
            if self._unended is not None:
                self._unended.look()
                if self._unended.status is None:
                    raise RemovalFailed(f"the program {self.path} still runs: process {self._unended.pid} does not end")
                self._unended.close()
                self._unended = None
            yield
        finally:
            self._lock.release()

    def could_not_be_ended(self, run: ProgramRun) -> None:
        """It is not started again before this run has ended."""
        self._unended = run

    def log_line(self, line: str) -> None:
        """Logs a line as one of this program."""
        self._log(self.name, line)


class ProgramStage:
    """The stage: one run of the program. In a dry run `plan` asks the program, where it may be asked."""

    fresh_seconds = STATUS_FRESH_SECONDS
    frees_late = True  # it may have asked somebody who goes on

    def __init__(
        self,
        program: Program,
        pressure: Callable[[], Pressure],
        clock: Clock,
        stopping: threading.Event,
        *,
        dry_run: bool,
    ):
        self.patience_seconds: float | None = program.settings.timeout_seconds + LEFT_BEHIND_SECONDS
        self._program = program
        self._pressure = pressure
        self._clock = clock
        self._stopping = stopping
        self._dry_run = dry_run
        self._has_run = False

    def plan(self) -> Plan:
        """The run as one object without a size; in a dry run what the program says.

        In a dry run raises ProgramRefused, and RemovalFailed if it could not be started; in a pass its removal fails.
        """
        shown, settings = self._program.path, self._program.settings
        if self._dry_run and settings.asks_plan:
            try:
                return self._asked()
            except NoPlan as error:
                remark = f"asked for its plan it {error}"
                self._program.log_line(f"[{remark}]")
                shown = f"{shown} ({remark})"
        elif self._dry_run:
            examine(shown, settings.user)
        return Plan((Verdict(PROGRAM, self._program.name, shown, Action.REMOVE, "in_table", rule=Rule.GUARD),))

    def check(self, _: Verdict) -> Ready:
        """Whether it may be started is checked at its start, with what is started then."""
        return Ready(self._clock.monotonic())

    def remove(self, _: Verdict) -> bool:
        """Runs it to its end. Raises ProgramRefused, and RemovalFailed if it did not exit with 0 in its time."""
        lines = LoggedLines(self._program.log_line)
        run = self._run((), partial(lines.take, 0), lines, self._program.settings.timeout_seconds)
        if run.left_behind:
            self._program.log_line(f"[processes that it had left behind and that were killed: {run.left_behind}]")
        if run.problem:
            last = f"; its last line: {lines.last_line}" if lines.last_line else ""
            raise RemovalFailed(f"the program {self._program.path} {run.problem}{last}")
        self._has_run = True
        return True

    def present(self, _: Verdict) -> bool:
        """Whether it has not run to a good end."""
        return not self._has_run

    def _asked(self) -> Plan:
        """What it says it would remove. Raises NoPlan, ProgramRefused, RemovalFailed."""
        printed = bytearray()

        def take(more: bytes) -> str:
            printed.extend(more[: MOST_PLAN_BYTES + 1 - len(printed)])
            return f"printed more than {MOST_PLAN_BYTES} bytes" if len(printed) > MOST_PLAN_BYTES else ""

        lines = LoggedLines(self._program.log_line)
        seconds = min(self._program.settings.timeout_seconds, LONGEST_PLAN_SECONDS)
        run = self._run((PLAN,), take, lines, seconds)
        if run.problem:
            raise NoPlan(run.problem)
        return plan_of(self._program.name, bytes(printed))

    def _run(self, arguments: tuple[str, ...], output: Output, lines: LoggedLines, seconds: float) -> ProgramRun:
        """One run, to its end. `output`: for what it prints; `lines`: for its errors. Raises ProgramRefused, and
        RemovalFailed if it could not be started."""
        program, settings = self._program, self._program.settings
        outputs = output, partial(lines.take, 1)
        with program.one_at_a_time():
            told = environment(self._pressure(), seconds, self._clock.wall(), dry_run=self._dry_run)
            with opened_program(program.path) as file:
                run = ProgramRun(file, (*settings.argv, *arguments), told, settings.user, outputs)
            try:
                run.watch(seconds, self._clock, self._stopping)
            finally:
                lines.end()
            if run.status is None:
                program.could_not_be_ended(run)
        return run


def environment(pressure: Pressure, seconds: float, wall: float, *, dry_run: bool) -> dict[str, str]:
    """The whole environment of a program that is started now, at `wall` (seconds since the epoch), with so many seconds
    to run. What is not known is an empty value."""
    deadline = datetime.fromtimestamp(wall, UTC) + timedelta(seconds=seconds)
    return {
        "PATH": PATH,
        "LANG": "C.UTF-8",
        "RECLAIMD_SIGNAL": pressure.signal,
        "RECLAIMD_FILESYSTEM": pressure.filesystem,
        "RECLAIMD_AVAILABLE": "" if pressure.available is None else str(pressure.available),
        "RECLAIMD_MARK": "" if pressure.mark is None else str(pressure.mark),
        "RECLAIMD_MISSING_BYTES": str(pressure.missing_bytes),
        "RECLAIMD_MISSING_INODES": str(pressure.missing_inodes),
        "RECLAIMD_DEADLINE_SECONDS": f"{seconds:g}",
        "RECLAIMD_DEADLINE": deadline.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "RECLAIMD_PASS_ID": pressure.pass_id,
        "RECLAIMD_DRY_RUN": "true" if dry_run else "false",
        "RECLAIMD_RUN_ID": os.urandom(16).hex(),
    }


# ---- what it prints


class LoggedLines:
    """What one run prints to its two outputs, 0 and 1 (its errors), of which each line is handed to `log`: bounded for
    both together, whatever it prints."""

    def __init__(self, log: Callable[[str], None]):
        self._log = log
        self._bytes = KEPT_BYTES
        self._lines = MOST_LINES
        self._dropped_bytes = 0
        self._begun = [b"", b""]
        self._tails = [b"", b""]

    def take(self, output: int, printed: bytes) -> str:
        """Takes all there is: it is never too much."""
        self._tails[output] = (self._tails[output] + printed[-LONGEST_LINE:])[-LONGEST_LINE:]
        kept = printed[: self._bytes]
        self._bytes -= len(kept)
        self._dropped_bytes += len(printed) - len(kept)
        *lines, begun = (self._begun[output] + kept).split(b"\n")
        for line in lines:
            self._log_line(line)
        self._begun[output] = begun[: LONGEST_LINE + 1]
        return ""

    def end(self) -> None:
        """Nothing more comes: logs lines that have no end, and how much was not logged."""
        for line in self._begun:
            self._log_line(line)
        if self._dropped_bytes:
            self._log(f"[{self._dropped_bytes} bytes more that it has printed are not logged]")

    @property
    def last_line(self) -> str:
        """The last line of its errors, else of its other output; empty if nothing was printed."""
        lines = [line for tail in self._tails for line in tail.splitlines() if line.strip()]
        return _text_of(lines[-1])[:LONGEST_WORDS] if lines else ""

    def _log_line(self, line: bytes) -> None:
        if not line.strip():
            return
        if not self._lines:
            self._dropped_bytes += len(line) + 1
            return
        self._lines -= 1
        cut = " …" if len(line) > LONGEST_LINE else ""
        self._log(_text_of(line[:LONGEST_LINE]) + cut)


def _text_of(line: bytes) -> str:
    """A line as text; what is not UTF-8 is shown as escapes. Control characters stay: the log escapes them."""
    return line.decode(errors="backslashreplace").rstrip("\r")


def plan_of(function: str, printed: bytes) -> Plan:
    """What a program has said it would remove, each with its own reason behind its name, in its order. For dry runs:
    nothing removes these objects one by one. Raises NoPlan."""
    lines = [line for line in printed.split(b"\n") if line.strip()]
    if not lines:
        raise NoPlan("printed nothing")
    if len(lines) > MOST_PLAN_LINES:
        raise NoPlan(f"printed {len(lines)} lines; allowed are {MOST_PLAN_LINES}")
    objects = [(number, line) for number, line in enumerate(lines, 1) if line.strip() != b"{}"]
    return Plan(tuple(_verdict(f"{function}/{at}", *each) for at, each in enumerate(objects, 1)))


def _verdict(verdict_id: str, number: int, line: bytes) -> Verdict:
    """The object of one line of the plan. Raises NoPlan."""
    if len(line) > LONGEST_PLAN_LINE:
        raise NoPlan(f"printed a line {number} of {len(line)} bytes; allowed are {LONGEST_PLAN_LINE}")
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise NoPlan(f"printed a line {number} that is no JSON object")
    name, size, reason = value.get("name"), value.get("size"), value.get("reason", "")
    if not isinstance(name, str) or not name:
        raise NoPlan(f"printed a line {number} whose name is {_shown(name)}; allowed is a string")
    if size is not None and (not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= LARGEST_SIZE):
        raise NoPlan(f"printed a line {number} whose size is {_shown(size)}; allowed is a whole number of bytes")
    if not isinstance(reason, str):
        raise NoPlan(f"printed a line {number} whose reason is {_shown(reason)}; allowed is a string")
    shown = f"{_cut(name)} ({_cut(reason)})" if reason else _cut(name)
    return Verdict(
        PROGRAM_OBJECT, verdict_id, shown, Action.REMOVE, "listed_by_program", size_bytes=size, rule=Rule.GUARD
    )


def _cut(words: str) -> str:
    """Without lone surrogates, which JSON can say and no output can print."""
    return words[:LONGEST_WORDS].encode(errors="backslashreplace").decode()


def _shown(value: Any) -> str:
    return _cut("missing" if value is None else json.dumps(value))
