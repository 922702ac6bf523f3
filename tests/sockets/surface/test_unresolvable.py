"""Pressure that nothing relieves, for 8 minutes: the daemon's loop on a stepped clock,
everything else as it is.
"""

from __future__ import annotations

import io
import itertools
import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

import grpc
import pytest

from eviction.records.listener import Listener
from eviction.records.passes import Pass
from eviction.surface.daemon import Daemon
from eviction.wording.log import Log
from reclaim.images.records import ImageRecords
from reclaim.types import EventReason, GCEvent
from signals.types import FsLayout, Signal
from tests.nodes.faults import Fail, Failpoint
from tests.nodes.small_node import MIB, SmallNode
from tests.nodes.stepped import turn
from tests.pure.values import SteppedClock
from tests.reclaimd_process import PATIENCE_SECONDS
from tests.sockets.conftest import SmallNodeFactory

EIGHT_MINUTES = 480.0


@dataclass(frozen=True, slots=True)
class Run:
    """What a run of the loop did: calls by method, the passes, the log lines with
    their second, and the events.
    """

    calls: Counter[str]
    passes: list[Pass]
    lines: list[tuple[float, dict[str, Any]]]
    events: list[GCEvent]


class Events(Listener):
    """A sink that keeps every event."""

    def __init__(self) -> None:
        self.all: list[GCEvent] = []

    def warned(self, event: GCEvent) -> None:
        """Keeps it."""
        self.all.append(event)


def under_pressure(
    small: SmallNode, failpoints: dict[str, Failpoint], seconds: float = EIGHT_MINUTES
) -> Run:
    """Runs the loop for `seconds` of its own clock, below a mark that nothing can reach."""
    clock = SteppedClock()
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
        records=ImageRecords(),
        imageMinimumGCAge="0s",
    )
    passes: list[Pass] = []
    log, events = Log(clock.wall, as_json=True, stream=Lines()), Events()
    daemon = Daemon(node, log)
    node.listeners.add(events)

    class Passes(Listener):
        def passed(self, record: Pass) -> None:
            passes.append(record)

    node.listeners.add(Passes())
    for method, action in failpoints.items():
        small.failpoints[method] = action
    before = small.failpoints.calls
    while clock.monotonic() < began + seconds:
        turn(node, clock, began + seconds)
        assert node.listeners.done(PATIENCE_SECONDS)  # so that each line has its time
    daemon.stop()
    daemon.run()
    return Run(small.failpoints.calls - before, passes, written, events.all)


def most_within_a_minute(lines: list[tuple[float, dict[str, Any]]]) -> int:
    """The largest number of lines within any 60 s."""
    times = [at for at, _ in lines]
    return max(sum(at <= other < at + 60.0 for other in times) for at in times)


def test_eight_minutes_with_nothing_to_remove(small_node: SmallNode) -> None:
    """Everything is in use: passes end up a minute apart, each names what holds the
    bytes, and log lines are few.
    """
    small_node.run(small_node.run_pod("web"), writes=8 * MIB)
    run = under_pressure(small_node, {})
    assert small_node.removed() == []
    assert 10 <= len(run.passes) <= 16, "1, 2, 4 … 60 s apart"
    assert run.calls["ListImages"] == len(run.passes)
    pauses = [
        later.started_wall - sooner.started_wall for sooner, later in itertools.pairwise(run.passes)
    ]
    assert 55.0 <= pauses[-1] <= 65.0
    after_the_start = [line for line in run.lines if line[0] > 60.0]
    assert most_within_a_minute(after_the_start) == 1, after_the_start
    for record in run.passes:
        assert record.reason.endswith("everything else is in use or protected")
    _, last = run.lines[-1]
    assert last["record"]["kept_by_reason"] == {
        "in_use": 1,
        "ready": 1,
        "running": 1,
        "sandbox_image": 1,
    }


def test_eight_minutes_of_removals_that_fail(small_node: SmallNode) -> None:
    """A runtime that refuses to remove is called less and less often, and its
    refusal is logged once a minute.
    """
    small_node.add_images(2)
    small_node.run(small_node.run_pod("web"))
    refusal = Fail(grpc.StatusCode.UNKNOWN, "read-only file system")
    run = under_pressure(small_node, {"RemoveImage": refusal})
    assert small_node.removed() == []
    assert run.calls["RemoveImage"] == 2 * len(run.passes) <= 32
    assert most_within_a_minute([line for line in run.lines if line[0] > 60.0]) == 1
    assert "2 removals failed" in run.passes[-1].reason
    assert "read-only file system" in json.dumps(run.lines[-1][1]["record"]["removals"])


def reclaiming(run: Run) -> list[tuple[EventReason, str]]:
    """The events that announce a pass."""
    return [(event.reason, event.message) for event in run.events]


MET = (
    EventReason.EVICTION_THRESHOLD_MET,
    "Attempting to reclaim ephemeral-storage (ReclaimPressure: below reclaimd's own mark)",
)


@pytest.mark.regression
def test_every_pass_sends_the_kubelets_event(small_node: SmallNode) -> None:
    """One each, which the API server's object counts; the log has the first of them
    only, as the pressure lasts.
    """
    small_node.run(small_node.run_pod("web"), writes=8 * MIB)
    run = under_pressure(small_node, {})
    assert len(run.passes) >= 10
    assert reclaiming(run) == [MET] * len(run.passes)
    assert [line["message"] for _, line in run.lines].count(MET[1]) == 1


@pytest.mark.regression
def test_an_empty_row_sends_the_event_as_often_as_the_kubelet(
    make_small_node: SmallNodeFactory,
) -> None:
    """Nothing relieves the kubelet's own filesystem beside a dedicated imagefs: no pass runs, and
    every 10 s, which is the kubelet's interval, the event is sent."""
    run = under_pressure(make_small_node(FsLayout.DEDICATED_IMAGEFS), {})
    assert run.passes == []
    assert set(reclaiming(run)) == {MET}
    assert 44 <= len(run.events) <= 49
    assert [line["message"] for _, line in run.lines].count(MET[1]) == 1
