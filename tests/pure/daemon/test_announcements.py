"""What the daemon says about a kubelet that it cannot ask."""

from __future__ import annotations

from io import StringIO

import pytest

from eviction.configuration.effective import load
from eviction.daemon.announcements import Announcements
from eviction.node.node import Node
from eviction.reporting.log import Log
from eviction.telemetry.events import LogSink
from tests.pure.values import SteppedClock

PROBLEM = "kubeletEndpoint auto found no way"


@pytest.mark.parametrize(("endpoint", "times"), [("auto", 1), ("http://127.0.0.1:10255", 3)])
def test_a_node_without_a_way_to_its_kubelet_says_so_once(endpoint: str, times: int) -> None:
    """Such a node may be as it should be; an endpoint that was written is warned of at most once a minute."""
    clock, out = SteppedClock(), StringIO()
    node = Node(load(None, {}, {"kubeletConfig": "", "kubeletEndpoint": endpoint}), clock=clock)
    log = Log(clock.wall, stream=out)
    announcements = Announcements(node, log, LogSink(log))
    for _ in range(3):
        announcements.runtime_asked(None, PROBLEM)
        clock.step(60.0)
    assert out.getvalue().count(PROBLEM) == times


def test_another_problem_and_its_end_are_said_too() -> None:
    """A file that appears changes the sentence; then a list again, and the next problem is new."""
    clock, out = SteppedClock(), StringIO()
    node = Node(load(None, {}, {"kubeletConfig": "", "kubeletEndpoint": "auto"}), clock=clock)
    log = Log(clock.wall, stream=out)
    announcements = Announcements(node, log, LogSink(log))
    for problem in (None, PROBLEM, PROBLEM, "403", None, None, PROBLEM):
        announcements.runtime_asked(None, problem)
    said = [line.partition(" ")[2] for line in out.getvalue().splitlines()]
    assert [PROBLEM in line for line in said] == [True, False, False, True]
    assert "the kubelet lists its pods again" in said[2]
