"""Runs the daemon under the fault of one row, and returns everything that is needed to judge it.

1. A node is made with everything that must stay. Where the fault is one at
   the start, it begins now.
2. Pressure begins, and the daemon is started as a process. Otherwise the fault
   begins after the second relief.
3. The fault lasts its time; then until what must go on under it has been seen, at most
   the promised time and slack.
4. Where the fault ends, its end is noted, and the relief after it waited for.
5. SIGTERM. After that whatever hangs is released.

Covers: the order of things, and times. Does not cover: how a fault is made
(`injectors`), the judgement (`judge`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tests.faults.matrix.injectors.injector import Injector
from tests.faults.matrix.injectors.registry import INJECTORS
from tests.faults.matrix.node import MARK_BYTES, MatrixNode
from tests.faults.matrix.pressure import Cycle, Pressure
from tests.faults.matrix.program import Answer, Probe, Program
from tests.faults.matrix.rows import HELD_SECONDS, SLACK_SECONDS, Fault, Kind, Row, When
from tests.ports import free_port
from tests.reclaimd_process import came_true, write_configuration

RELIEFS_BEFORE = 2
RELIEFS_UNDER = 2
START_SECONDS = 60.0  # the limit of a wait, which ends as soon as it can
LIVEZ_SECONDS = 1.0  # a probe of Kubernetes waits so long by default (timeoutSeconds)
ENDLESS = (Fault.HANGS, Fault.SLOW)


@dataclass(slots=True)
class Run:
    """What happened. Times are wall seconds; `began` and `ended` of the fault, `ended`
    None where it did not end.

    `lost`: what is gone and had to stay. `removed_at`: when objects of each kind went. `problems`:
    what the injector found afterwards.
    """

    row: Row
    began: float = 0.0
    ended: float | None = None
    terminated: float = 0.0
    cycles: list[Cycle] = field(default_factory=list)
    removed_at: dict[Kind, list[float]] = field(default_factory=dict)
    answers: list[Answer] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    ended_by_itself: list[int] = field(default_factory=list)
    exit_code: int | None = None
    exit_seconds: float = 0.0
    was_healthy: bool = True
    log: str = ""


class Bench:
    """What an injector can reach: the node, the program, the pressure, the port of
    `/livez`, an empty directory.
    """

    def __init__(self, row: Row, directory: Path) -> None:
        self.row = row
        self.directory = directory
        self.port = free_port()
        self.node = MatrixNode(directory)
        self.pressure = Pressure(self.node, MARK_BYTES)
        self.program: Program

    @property
    def mark_text(self) -> str:
        """The mark, as the configuration has it."""
        return str(MARK_BYTES)

    @property
    def pid(self) -> int:
        """The daemon's."""
        return self.program.process.pid

    def configuration(self, fields: dict[str, Any]) -> str:
        """The path of the configuration file, with an injector's own fields."""
        given = self.node.fields(
            evictionHard={"nodefs.available": self.mark_text},
            imageMinimumGCAge="0s",
            parallelRemovals=2,
            removalPatience="1s",
            keepImages=["registry.example/kept/*"],
            controlSocket=str(self.directory / "control" / "control.sock"),
            stateFile=str(self.directory / "state" / "images.json"),
            historyFile=str(self.directory / "history" / "history"),
            historySize="1Mi",
            metricsAddress=f"127.0.0.1:{self.port}",
            evictionPressureTransitionPeriod="0s",
        )
        marks = {**given["evictionHard"], **fields.pop("evictionHard", {})}
        given = {**given, **fields, "evictionHard": marks}
        given["evictionMinimumReclaim"] = {"nodefs.available": "0", "imagefs.available": "0"}
        return str(write_configuration(self.directory / "reclaimd.yaml", **given))


def run_row(row: Row, directory: Path) -> Run:
    """Runs one row on a node of its own below `directory`, which is empty."""
    bench = Bench(row, directory)
    try:
        with INJECTORS[row.resource](bench) as injector:
            return _Timeline(bench, injector).run()
    finally:
        bench.node.close()


class _Timeline:
    """One row, from the start to SIGTERM."""

    def __init__(self, bench: Bench, injector: Injector) -> None:
        self._bench = bench
        self._row = bench.row
        self._injector = injector
        self._run = Run(bench.row)
        bench.program = Program(
            bench.configuration(dict(injector.fields)),
            bench.directory / "daemon.log",
            restarts=bench.row.restarts,
        )

    def run(self) -> Run:
        bench, run, program = self._bench, self._run, self._bench.program
        self._injector.prepare(program)
        at_start = self._row.fault is Fault.ABSENT_AT_START or self._injector.from_the_start
        try:
            if at_start:
                self._begin()
            with bench.pressure:
                program.start()
                with Probe(bench.port, LIVEZ_SECONDS + SLACK_SECONDS) as probe:
                    if not at_start:
                        run.was_healthy = came_true(
                            lambda: (
                                len(bench.pressure.cycles) >= RELIEFS_BEFORE
                                or bool(program.ended_by_itself)
                            ),
                            START_SECONDS,
                        )
                        self._begin()
                    self._hold(HELD_SECONDS[self._row.fault])
                    if self._row.fault not in ENDLESS:
                        self._end()
                    run.problems += self._injector.problems()
                    run.terminated = time.time()
                run.answers = probe.answers
                run.exit_code, run.exit_seconds = program.terminate(
                    self._row.exit_seconds + SLACK_SECONDS
                )
        finally:
            self._injector.release()
            program.kill()
        run.cycles = bench.pressure.cycles
        run.removed_at = {kind: bench.node.removed_at(kind) for kind in Kind}
        run.lost = bench.node.lost()
        run.ended_by_itself = list(program.ended_by_itself)
        run.log = program.last_words()
        return run

    def _begin(self) -> None:
        self._injector.begin()
        self._run.began = time.time()

    def _hold(self, seconds: float) -> None:
        """At least so long; then until what must go on has been seen, or its time is over."""
        relief, began = self._row.relief, self._run.began
        time.sleep(max(began + seconds - time.time(), 0.0))
        waits: list[tuple[float, Callable[[], bool]]] = []
        if relief.when is When.GOES_ON:
            waits.append(
                (RELIEFS_UNDER * relief.within_seconds, lambda: len(self._under()) >= RELIEFS_UNDER)
            )
        for kind in relief.meanwhile:
            waits.append((relief.meanwhile_seconds, partial(self._gone_since, kind, began)))
        for patience, seen in waits:
            since = (
                began if self._row.fault is not Fault.ABSENT_AT_START else began + START_SECONDS / 4
            )
            came_true(seen, max(since + patience + SLACK_SECONDS - time.time(), 0.0))

    def _under(self) -> list[Cycle]:
        return [cycle for cycle in self._bench.pressure.cycles if cycle.crossed >= self._run.began]

    def _gone_since(self, kind: Kind, since: float) -> bool:
        return bool(self._removed_since(kind, since))

    def _removed_since(self, kind: Kind, since: float) -> list[float]:
        return [at for at in self._bench.node.removed_at(kind) if at > since]

    def _end(self) -> None:
        self._injector.end()
        ended = self._run.ended = time.time()
        if self._row.relief.when is not When.NOT_EXPECTED:
            patience = self._row.relief.within_seconds + SLACK_SECONDS
            came_true(
                lambda: any(cycle.relieved > ended for cycle in self._bench.pressure.cycles),
                patience,
            )
