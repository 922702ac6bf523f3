"""Failpoints over the socket: what a client sees when a runtime fails, is late,
hangs, or acts and then fails.
"""

from __future__ import annotations

import time

import grpc
import pytest

from eviction.drill.run.embedded import FaultSchedule, failpoint_of
from eviction.drill.scenario import Fault
from tests.nodes.bare_runtime import NAME, BareRuntime
from tests.nodes.faults import ActThenFail, Cut, Delay, Fail, Failpoint, Hang, Pretend
from tests.reclaimd_process import came_true
from tests.sockets.cri_calls import CriCalls

INTERNAL, LATE = grpc.StatusCode.INTERNAL, grpc.StatusCode.DEADLINE_EXCEEDED
IMAGE = {"image": NAME}


def removed(node: BareRuntime) -> list[str]:
    """The kinds of the objects that were really removed so far."""
    return [each.kind for each in node.runtime.removals]


@pytest.mark.parametrize(
    ("fault", "code", "gone"),
    [
        (Fail(INTERNAL, "lost the lease", times=1), INTERNAL, []),
        (Fail(INTERNAL), INTERNAL, []),
        (ActThenFail(times=1), LATE, ["image"]),
        (Cut(INTERNAL, "cut", times=1), INTERNAL, ["image"]),
        (Pretend(times=1), None, []),
        (Hang(), LATE, []),
    ],
    ids=["fails once", "fails always", "acts and fails", "is cut", "pretends", "hangs"],
)
def test_what_a_client_sees_of_a_removal(
    node: BareRuntime, fault: Failpoint, code: grpc.StatusCode | None, gone: list[str]
) -> None:
    """With a deadline of a second. A fault of one call is over with it; once one that lasts is
    cleared, a call that hung acts, although its client has left."""
    node.server.failpoints["RemoveImage"] = fault
    if code is None:
        node.call("RemoveImage", image=IMAGE)
    else:
        assert node.error("RemoveImage", 1.0, image=IMAGE)[0] is code
    assert (removed(node), len(node.images())) == (gone, 2 - len(gone))
    if not fault.times:
        assert node.error("RemoveImage", 1.0, image=IMAGE)[0] is code
        node.server.failpoints.clear()
    if isinstance(fault, Hang):
        assert came_true(lambda: removed(node) == ["image"])
    node.call("RemoveImage", image=IMAGE)
    assert removed(node) == ["image"]


@pytest.mark.parametrize("fault", [Delay(3600), Hang()])
def test_a_call_that_is_late_goes_on_once_its_failpoint_is_deleted(
    node: BareRuntime, fault: Failpoint
) -> None:
    """Other calls are answered meanwhile."""
    node.server.failpoints["ListImages"] = fault
    hanging = node.calls.begin("ListImages")
    assert node.server.failpoints.wait_for_calls("ListImages", 1, timeout_seconds=60)
    node.call("Version")
    assert not hanging.done()
    del node.server.failpoints["ListImages"]
    assert len(hanging.result().images) == 2


def test_a_stop_drops_the_calls_that_hang(node: BareRuntime) -> None:
    """They do nothing; after the restart the failpoint is still set."""
    node.server.failpoints["RemoveImage"] = Hang()
    hanging = node.calls.begin("RemoveImage", image=IMAGE)
    assert node.server.failpoints.wait_for_calls("RemoveImage", 1, timeout_seconds=60)
    node.server.stop()
    node.server.start()
    assert hanging.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
    with CriCalls(node.server.target) as again:
        assert again.error("RemoveImage", timeout_seconds=1.0, image=IMAGE)[0] is LATE
    assert removed(node) == []


def test_a_fault_of_a_scenario_does_not_end_a_later_one_of_its_method(node: BareRuntime) -> None:
    """The first ends while the second, which has replaced it, lasts on."""
    first = {"action": "hang", "method": "ListImages", "at": "0s", "lasts": "200ms"}
    second = Fault.model_validate({"action": "fail", "method": "ListImages", "at": "100ms"})
    schedule = FaultSchedule((Fault.model_validate(first), second), node.server, [])
    schedule.start(time.monotonic())
    assert came_true(lambda: not schedule.running)
    assert node.server.failpoints["ListImages"] == failpoint_of(second)
    schedule.stop()


def test_a_mistyped_method_is_refused(node: BareRuntime) -> None:
    """A failpoint that is never reached would make its test pass without testing anything."""
    with pytest.raises(KeyError, match="RemoveImages"):
        node.server.failpoints["RemoveImages"] = Fail()
