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

from reclaim.types import Kind
from tests.faults.matrix.injectors import INJECTORS
from tests.faults.matrix.node import (
    MARK_BYTES,
    Answer,
    Cycle,
    MatrixNode,
    Pressure,
    Probe,
    Program,
)
from tests.faults.matrix.table import (
    HELD_SECONDS,
    PROMISED_EXIT_SECONDS,
    SLACK_SECONDS,
    Fault,
    Row,
    When,
)
from tests.faults.populated import KINDS
from tests.ports import free_port
from tests.reclaimd_process import came_true, write_configuration

RELIEFS_BEFORE = 2
RELIEFS_UNDER = 2
START_SECONDS = 60.0  # the limit of a wait, which ends as soon as it can
LIVEZ_SECONDS = 1.0  # a probe of Kubernetes waits so long by default (timeoutSeconds)


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
        self.pressure = Pressure(self.node)
        self.program: Program

    def configuration(self, fields: dict[str, Any]) -> str:
        """The path of the configuration file, with an injector's own fields."""
        given = self.node.fields(
            evictionHard={"nodefs.available": str(MARK_BYTES), **fields.pop("evictionHard", {})},
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
            **fields,
        )
        return str(write_configuration(self.directory / "reclaimd.yaml", **given))


def run_row(row: Row, directory: Path) -> Run:
    """Runs one row on a node of its own below `directory`, which is empty."""
    bench, run = Bench(row, directory), Run(row)
    node, pressure = bench.node, bench.pressure

    def under() -> bool:
        cycles = [cycle for cycle in pressure.cycles if cycle.crossed >= run.began]
        return len(cycles) >= RELIEFS_UNDER

    def gone(kind: Kind) -> bool:
        return any(at > run.began for at in node.removed_at(kind))

    def hold() -> None:
        """At least so long; then until what must go on has been seen, or its time is over."""
        time.sleep(max(run.began + HELD_SECONDS[row.fault] - time.time(), 0.0))
        waits: list[tuple[float, Callable[[], bool]]] = []
        if row.relief is When.GOES_ON:
            waits.append((RELIEFS_UNDER * row.within_seconds, under))
        for kind in row.meanwhile:
            waits.append((row.meanwhile_seconds, partial(gone, kind)))
        start = START_SECONDS / 4 if row.fault is Fault.ABSENT_AT_START else 0.0
        for patience, seen in waits:
            came_true(seen, max(run.began + start + patience + SLACK_SECONDS - time.time(), 0.0))

    try:
        with INJECTORS[row.resource](bench) as injector:
            at_start = row.fault is Fault.ABSENT_AT_START or injector.from_the_start
            file = bench.configuration(dict(injector.fields))
            bench.program = program = Program(file, directory / "daemon.log", restarts=row.restarts)
            injector.prepare(program)

            def begin() -> None:
                injector.begin()
                run.began = time.time()

            try:
                if at_start:
                    begin()
                with pressure:
                    program.start()
                    with Probe(bench.port, LIVEZ_SECONDS + SLACK_SECONDS) as probe:
                        if not at_start:
                            run.was_healthy = came_true(
                                lambda: (
                                    len(pressure.cycles) >= RELIEFS_BEFORE
                                    or bool(program.ended_by_itself)
                                ),
                                START_SECONDS,
                            )
                            begin()
                        hold()
                        if row.fault not in (Fault.HANGS, Fault.SLOW):
                            injector.end()
                            ended = run.ended = time.time()
                            if row.relief is not When.NOT_EXPECTED:
                                came_true(
                                    lambda: any(each.relieved > ended for each in pressure.cycles),
                                    row.within_seconds + SLACK_SECONDS,
                                )
                        run.problems += injector.problems()
                        run.terminated = time.time()
                    run.answers = probe.answers
                    run.exit_code = program.terminate(PROMISED_EXIT_SECONDS + SLACK_SECONDS)
            finally:
                injector.release()
                program.kill()
        run.cycles, run.lost = pressure.cycles, node.lost()
        run.removed_at = {kind: node.removed_at(kind) for kind in KINDS}
        run.ended_by_itself, run.log = program.ended_by_itself, program.last_words()
        return run
    finally:
        node.close()
