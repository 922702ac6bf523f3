"""Pressure that nothing relieves, for 8 minutes: the daemon's loop on a stepped clock, everything else as it is."""

from __future__ import annotations

import io
import itertools
import json
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import grpc

from eviction.daemon.manager import Manager
from eviction.drill.runtime.failpoints import Fail, Failpoint
from eviction.reporting.log import Log
from eviction.reporting.pass_record import Pass
from reclaim.images.records import ImageRecords
from signals.types import Signal
from tests.nodes.small_node import MIB, SmallNode
from tests.pure.values import SteppedClock, SteppedEvent

EIGHT_MINUTES = 480.0
REAL_SECONDS = 0.2  # a pass here takes some milliseconds; one that ended just before the wait wakes nobody
FLOOR_SECONDS = 0.01  # pollFloor


class LoopEvent(SteppedEvent):
    """What the loop waits on: a step of the clock, but the machine's time while `busy` says that a pass runs."""

    def __init__(self, clock: SteppedClock) -> None:
        super().__init__(clock)
        self.busy: Callable[[], bool] = lambda: False

    def wait(self, timeout: float | None = None) -> bool:
        """Waits for the end of the pass that runs (not where the loop only keeps its floor); without one the time
        steps."""
        if self.busy():
            return threading.Event.wait(self, REAL_SECONDS if timeout is None or timeout > FLOOR_SECONDS else timeout)
        return super().wait(timeout)


@dataclass(frozen=True, slots=True)
class Told:
    """What became of it: calls by method, the passes, and the lines of the log with their second."""

    calls: Counter[str]
    passes: list[Pass]
    lines: list[tuple[float, dict[str, Any]]]


def under_pressure(small: SmallNode, failpoints: dict[str, Failpoint], seconds: float = EIGHT_MINUTES) -> Told:
    """The loop, for so long of its own time, 10 MiB below a mark that nothing can reach."""
    clock = SteppedClock()
    stopping = SteppedEvent(clock)
    waits = [LoopEvent(clock), LoopEvent(clock)]
    unused = iter(waits)
    began = clock.monotonic()
    written: list[tuple[float, dict[str, Any]]] = []

    class Lines(io.StringIO):
        def write(self, text: str) -> int:
            written.append((clock.monotonic() - began, json.loads(text)))
            return len(text)

    node = small.node(
        Signal.NODEFS_AVAILABLE,
        above=40 * MIB,
        clock=clock,
        stopping=stopping,
        records=ImageRecords(),
        imageMinimumGCAge="0s",
    )
    passes: list[Pass] = []
    manager = Manager(
        node,
        Log(clock.wall, as_json=True, stream=Lines()),
        on_pass=passes.append,
        on_observation=lambda *_: manager.stop() if clock.monotonic() - began >= seconds else None,
        event=lambda: next(unused),
    )
    for wait in waits:
        wait.busy = lambda: manager.doing() is not None
    for method, action in failpoints.items():
        small.failpoints[method] = action
    before = small.failpoints.calls
    manager.run()
    return Told(small.failpoints.calls - before, passes, written)


def most_within_a_minute(lines: list[tuple[float, dict[str, Any]]]) -> int:
    """The most lines that any 60 s have."""
    times = [at for at, _ in lines]
    return max(sum(at <= other < at + 60.0 for other in times) for at in times)


def test_eight_minutes_with_nothing_to_remove(small_node: SmallNode) -> None:
    """Everything is in use: passes come a minute apart at last, each says what holds the bytes, and lines are few."""
    small_node.run(small_node.run_pod("web"), writes=8 * MIB)
    told = under_pressure(small_node, {})
    assert small_node.removed() == []
    assert 10 <= len(told.passes) <= 16, "1, 2, 4 … 60 s apart"
    assert told.calls["ListImages"] == len(told.passes)
    pauses = [later.started_wall - sooner.started_wall for sooner, later in itertools.pairwise(told.passes)]
    assert 55.0 <= pauses[-1] <= 65.0
    after_the_start = [line for line in told.lines if line[0] > 60.0]
    assert most_within_a_minute(after_the_start) == 1, after_the_start
    for record in told.passes:
        assert record.reason.endswith("everything else is in use or protected")
    _, last = told.lines[-1]
    assert last["record"]["kept_by_reason"] == {"in_use": 1, "ready": 1, "running": 1, "sandbox_image": 1}


def test_eight_minutes_of_removals_that_fail(small_node: SmallNode) -> None:
    """A runtime that refuses to remove is asked less and less often, and its refusal is told once a minute."""
    small_node.add_images(2)
    small_node.run(small_node.run_pod("web"))
    refusal = Fail(grpc.StatusCode.UNKNOWN, "read-only file system")
    told = under_pressure(small_node, {"RemoveImage": refusal})
    assert small_node.removed() == []
    assert told.calls["RemoveImage"] == 2 * len(told.passes) <= 32
    assert most_within_a_minute([line for line in told.lines if line[0] > 60.0]) == 1
    assert "2 removals failed" in told.passes[-1].reason
    assert "read-only file system" in json.dumps(told.lines[-1][1]["record"]["removals"])
