"""While a pod is being made no image goes, and no longer than that."""

from __future__ import annotations

import pytest

from reclaim.pods.starts import AGAIN_HOLD_OFFS, PATIENCE_HOLD_OFFS, UNFINISHED_HOLD_OFFS, PartAges, PodStarts
from reclaim.types import PodSandboxState
from tests.pure.memory_runtime import MemoryPods, MemoryRuntime
from tests.pure.values import NOW_NS, SteppedClock, container, sandbox

NOW = NOW_NS / 1e9
HOLD_OFF = 1.0
DAY = 86_400.0


class Node:
    """A runtime with one sandbox that is not ready, and a clock that stands at NOW."""

    def __init__(self, hold_off_seconds: float = HOLD_OFF) -> None:
        self.clock = SteppedClock(at=50.0, wall_at=NOW)
        self.runtime = MemoryRuntime(self.clock)
        self.runtime.hold(sandbox("dead", state=PodSandboxState.NOTREADY, age_seconds=0.1))
        self.pods = MemoryPods("uid-1")
        self.part_ages = PartAges(self.clock)
        self._hold_off_seconds = hold_off_seconds
        self.next_pass()

    def next_pass(self) -> None:
        """Another pass begins, with what the last one has seen."""
        self.starts = PodStarts(
            self.runtime.list_pod_sandboxes, self.pods, self.clock, self._hold_off_seconds, self.part_ages
        )

    def sandbox_comes_up(self, sandbox_id: str, age_seconds: float, *, occupied: bool = True) -> None:
        """A ready sandbox that was made so long before now, with a container that is not in its first run."""
        age_seconds -= self.clock.wall() - NOW
        self.runtime.hold(sandbox(sandbox_id, state=PodSandboxState.READY, age_seconds=age_seconds))
        if occupied:
            self.runtime.hold(container(f"in {sandbox_id}", sandbox_id=sandbox_id, attempt=1))

    def wait_seconds(self) -> float:
        """As asked before a removal, with the containers of this moment."""
        return self.starts.wait_seconds(tuple(self.runtime.containers.values()))


def test_no_pod_is_waited_for_on_a_node_where_none_is_being_made() -> None:
    """An old ready sandbox and an old directory hold nothing, nor does a young sandbox that is not ready."""
    node = Node()
    node.sandbox_comes_up("old", 3600.0)
    node.pods.begun["uid-1"] = NOW - 60.0
    assert node.wait_seconds() == 0.0


def test_the_rest_of_the_hold_off_is_waited_for_a_sandbox_that_has_just_come_up() -> None:
    """It was made 0.25 s ago: in 0.75 s its pod has taken its image, and that wait is over then."""
    node = Node()
    node.sandbox_comes_up("new", 0.25)
    assert node.wait_seconds() == pytest.approx(0.75)
    node.clock.step(0.76)
    assert node.wait_seconds() == 0.0


def test_a_directory_that_has_just_been_made_is_a_pod_that_begins() -> None:
    """The kubelet makes it before the sandbox; the younger of both counts."""
    node = Node()
    node.sandbox_comes_up("new", 0.75)
    node.pods.begun["uid-1"] = NOW - 0.25
    assert node.wait_seconds() == pytest.approx(0.75)


def test_what_is_dated_in_the_future_is_waited_for_once() -> None:
    """The clock was set back, or is wrong: its age counts from its first sight, and no pass is held up after that."""
    node = Node()
    node.sandbox_comes_up("future", -30.0)
    node.pods.begun["uid-1"] = NOW + 30.0
    assert node.wait_seconds() == pytest.approx(HOLD_OFF)
    node.clock.step(1.01)
    assert node.wait_seconds() == 0.0
    node.next_pass()
    assert node.wait_seconds() == 0.0


@pytest.mark.regression
@pytest.mark.parametrize("step_seconds", [-DAY, -3600.0, -2.0, 2.0, 3600.0, DAY])
@pytest.mark.parametrize("part", ["directory", "sandbox", "container"])
def test_a_step_of_the_wall_clock_hides_no_pod_and_makes_none_new_for_ever(step_seconds: float, part: str) -> None:
    """A part is made, the clock is set, and then comes a pass: it waits for the new pod, and for none of the old ones
    after that."""
    node = Node()
    for number in range(5):
        node.sandbox_comes_up(f"old-{number}", 3600.0 + step_seconds * (number % 2))
    node.pods.begun["uid-1"] = NOW - 7200.0
    node.wait_seconds()
    node.clock.step(60.0)
    node.next_pass()
    assert node.wait_seconds() == 0.0, "all of them are old by now, whatever they are dated with"
    node.clock.step(10.0)
    match part:
        case "directory":
            node.pods.begun["uid-new"] = node.clock.wall()
        case "sandbox":
            node.sandbox_comes_up("new", 0.0)
        case "container":
            node.runtime.hold(container("new", sandbox_id="old-0", attempt=0, age_seconds=NOW - node.clock.wall()))
    node.clock.step_wall(step_seconds)
    node.clock.step(0.25)
    node.next_pass()
    wait = node.wait_seconds()
    assert 0.75 <= wait <= HOLD_OFF, "it was made 0.25 s ago"
    node.clock.step(wait + 0.01)
    assert node.wait_seconds() <= AGAIN_HOLD_OFFS * HOLD_OFF
    node.clock.step(UNFINISHED_HOLD_OFFS * HOLD_OFF)
    node.next_pass()
    assert node.wait_seconds() == 0.0


@pytest.mark.regression
def test_a_clock_that_is_set_back_makes_no_known_part_new_again() -> None:
    """Set so that all of them seem to have been made just now: their ages are known already."""
    node = Node()
    node.sandbox_comes_up("old", 3600.0)
    node.pods.begun["uid-1"] = NOW - 3600.0
    assert node.wait_seconds() == 0.0
    node.clock.step_wall(-3599.9)
    node.next_pass()
    assert node.wait_seconds() == 0.0


def test_removals_side_by_side_wait_for_the_same_pod_once() -> None:
    """The second one waits what is left, and that costs no patience."""
    node = Node()
    node.sandbox_comes_up("new", 0.0)
    assert node.wait_seconds() == pytest.approx(1.0)
    node.clock.step(0.25)
    listings = len(node.runtime.calls)
    assert node.wait_seconds() == pytest.approx(0.75)
    assert len(node.runtime.calls) == listings, "the runtime is not asked again for that"


def test_where_pods_come_all_the_time_relief_comes_first() -> None:
    """In all no pass waits longer than twice the hold-off."""
    node = Node()
    waited = 0.0
    for number in range(10):
        node.sandbox_comes_up(f"new-{number}", 0.0)
        wait = node.wait_seconds()
        waited += wait
        node.clock.step(wait or 0.1)
    assert waited == pytest.approx(PATIENCE_HOLD_OFFS * HOLD_OFF)
    assert node.wait_seconds() == 0.0
    assert node.starts.under_way, "which images they need cannot be known yet"


def test_without_a_hold_off_no_pod_is_searched() -> None:
    """No list is read."""
    node = Node(hold_off_seconds=0.0)
    node.sandbox_comes_up("new", 0.0)
    assert node.wait_seconds() == 0.0
    assert node.runtime.calls == []


def test_a_ready_sandbox_without_a_container_is_a_pod_that_is_being_made() -> None:
    """A sandbox that took seconds to come up is old when the kubelet checks for the image. With a container it is done;
    after half a minute it is no longer waited for."""
    node = Node()
    node.sandbox_comes_up("slow", 5.0, occupied=False)
    assert node.wait_seconds() == pytest.approx(AGAIN_HOLD_OFFS * HOLD_OFF)
    node.clock.step(0.11)
    node.runtime.hold(container("app", sandbox_id="slow", attempt=1))
    assert node.wait_seconds() == 0.0
    stuck = Node()
    stuck.sandbox_comes_up("stuck", UNFINISHED_HOLD_OFFS * HOLD_OFF, occupied=False)
    assert stuck.wait_seconds() == 0.0


def test_a_directory_without_a_sandbox_is_a_pod_that_is_being_made() -> None:
    """Its sandbox may be there in the next moment. An old one is that of a pod which waits for its volumes, say."""
    node = Node()
    node.pods.begun["uid-new"] = NOW - 5.0
    assert node.wait_seconds() == pytest.approx(AGAIN_HOLD_OFFS * HOLD_OFF)
    old = Node()
    old.pods.begun["uid-old"] = NOW - UNFINISHED_HOLD_OFFS * HOLD_OFF
    assert old.wait_seconds() == 0.0


def test_a_pod_whose_spec_the_kubelet_has_told_is_not_waited_for() -> None:
    """What it needs is known, whichever part of it is new."""
    node = Node()
    node.pods.named = frozenset({"app:1"})
    (uid,) = node.pods.named_images()
    node.pods.begun[uid] = NOW
    node.sandbox_comes_up("new", 0.0, occupied=False)
    node.runtime.sandboxes["new"] = node.runtime.sandboxes["new"]._replace(pod_uid=uid)
    node.runtime.hold(container("first", sandbox_id="new", attempt=0, age_seconds=0.0)._replace(pod_uid=uid))
    assert node.wait_seconds() == 0.0
    assert not node.starts.under_way
    node.pods.named = frozenset()
    assert node.wait_seconds() == pytest.approx(HOLD_OFF)


@pytest.mark.parametrize(("attempt", "wait"), [(0, 0.75), (1, 0.0)])
def test_the_next_container_comes_right_after_the_first_run_of_one(attempt: int, wait: float) -> None:
    """The sandbox is old, and its first container is new: there may be a second. A restart says nothing of that."""
    node = Node()
    node.sandbox_comes_up("old", 60.0)
    node.runtime.hold(container("first", sandbox_id="old", attempt=attempt, age_seconds=0.25))
    assert node.wait_seconds() == pytest.approx(wait)
