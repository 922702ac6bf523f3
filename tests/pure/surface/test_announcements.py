"""What the daemon says about a kubelet that it cannot ask, and about a dry run."""

from __future__ import annotations

from io import StringIO

import pytest

from eviction.configuration.effective import load
from eviction.engine.node import Node
from eviction.records.passes import Pass, PassResult, Trigger
from eviction.surface.announcements import Announcements
from eviction.types import Decision
from eviction.wording.log import Log
from reclaim.types import Action, Kind, Outcome, Reason, ReclaimResult, Result, Verdict
from tests.pure.values import SteppedClock, observations_of

PROBLEM = "kubeletEndpoint auto found no way"


def test_another_problem_and_its_end_are_said_too() -> None:
    """Each once: there may never be a way. A file that appears changes the sentence; then a list
    again, and the next problem is new."""
    clock, out = SteppedClock(), StringIO()
    node = Node(load(None, {}, {"kubeletConfig": "", "kubeletEndpoint": "auto"}), clock=clock)
    log = Log(clock.wall, stream=out)
    announcements = Announcements(node, log)
    for problem in (None, PROBLEM, PROBLEM, "403", None, None, PROBLEM):
        announcements.runtime_asked(None, problem)
    said = [line.partition(" ")[2] for line in out.getvalue().splitlines()]
    assert [PROBLEM in line for line in said] == [True, False, False, True]
    assert "the kubelet lists its pods again" in said[2]


def test_the_log_of_a_dry_run_names_what_would_go() -> None:
    """With each line of a pass, which repeats at most once a minute; JSON
    has the names in the record.
    """
    verdicts = [
        Verdict(Kind.IMAGE, name, f"registry.example/{name}:1", Action.REMOVE, Reason.UNUSED)
        for name in "ab"
    ]
    planned = ReclaimResult(
        "DeleteUnusedImages", tuple(Outcome(verdict, Result.PLANNED) for verdict in verdicts)
    )
    record = Pass(
        "1",
        0.0,
        Trigger.INTERVAL,
        observations_of(),
        Decision(frozenset(), (), None, (), None),
        functions=(planned,),
        result=PassResult.DRY_RUN,
        reason="would remove 2 objects",
    )
    names = "would remove image registry.example/a:1, image registry.example/b:1"
    for as_json, times in ((False, 2), (True, 0)):
        clock, out = SteppedClock(), StringIO()
        node = Node(load(None, {}, {"kubeletConfig": ""}), clock=clock)
        log = Log(clock.wall, as_json=as_json, stream=out)
        announcements = Announcements(node, log)
        for _ in range(3):
            announcements.passed(record)
            clock.step(31.0)
        assert out.getvalue().count("request: would remove 2 objects; took ") == 2
        assert out.getvalue().count(names) == times


@pytest.mark.regression
def test_of_what_takes_long_only_what_is_known_is_said() -> None:
    """Not that the runtime has not answered, as it may be a program; once a minute."""
    clock, out = SteppedClock(), StringIO()
    node = Node(load(None, {}, {"kubeletConfig": ""}), clock=clock)
    log = Log(clock.wall, stream=out)
    announcements = Announcements(node, log)
    for seconds in (12.0, 13.0):
        announcements.takes_long("relieving nodefs.available", seconds)
    (line,) = out.getvalue().splitlines()
    assert line.endswith(
        "relieving nodefs.available: no call was answered and nothing has ended for 12s"
    )


def test_what_listeners_lose_is_said_once_a_minute() -> None:
    """Which one has failed and how, and how much nobody was told of."""
    clock, out = SteppedClock(), StringIO()
    node = Node(load(None, {}, {"kubeletConfig": ""}), clock=clock)
    log = Log(clock.wall, stream=out)
    announcements = Announcements(node, log)
    for number in (1, 2):
        announcements.listener_failed("Metrics", KeyError("kind"))
        announcements.events_dropped(number)
    failed, dropped = out.getvalue().splitlines()
    assert failed.endswith("Metrics has lost an event: KeyError: 'kind'")
    assert dropped.endswith("1 event since the start went unnoticed, as too many waited to be told")
