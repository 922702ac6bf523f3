"""While a pod is being made no image goes, and no longer than that."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from reclaim.evidence.starts import (
    AGAIN_HOLD_OFFS,
    LONGEST_SECONDS,
    PATIENCE_HOLD_OFFS,
    UNFINISHED_HOLD_OFFS,
    PartAges,
    PodStarts,
    nothing_has_begun,
)
from reclaim.types import Container, PodSandboxState
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
        self.urgent = False
        self._hold_off_seconds = hold_off_seconds
        self.next_pass()

    def next_pass(self) -> None:
        """Another pass begins, with what the last one has seen."""
        self.starts = PodStarts(
            self.runtime.list_pod_sandboxes,
            self.pods,
            self.clock,
            self._hold_off_seconds,
            self.part_ages,
            lambda: self.urgent,
        )

    def sandbox_comes_up(
        self, sandbox_id: str, ago: float, *, occupied: bool = True, uid: str = "uid-1"
    ) -> None:
        """A ready sandbox that was made so long ago, with a container that is not in its first
        run."""
        age_seconds = NOW - self.clock.wall() + ago
        self.runtime.hold(
            sandbox(sandbox_id, state=PodSandboxState.READY, pod_uid=uid, age_seconds=age_seconds)
        )
        if occupied:
            self.lists(f"in {sandbox_id}", sandbox_id=sandbox_id, ago=3600.0)

    def directory(self, uid: str, ago: float) -> None:
        """The directory of a pod that was made so long ago."""
        self.pods.begun[uid] = self.clock.wall() - ago

    def wait_seconds(self, image: str = "image") -> float:
        """As asked before the removal of an image, with the containers of this moment."""
        return self.starts.wait_seconds(tuple(self.runtime.containers.values()), image)

    def lists(self, container_id: str, *, attempt: int = 1, ago: float = 0.0, **of: str) -> None:
        """The runtime lists a container that was made so long ago."""
        age_seconds = NOW - self.clock.wall() + ago
        made = container(container_id, attempt=attempt, age_seconds=age_seconds)
        self.runtime.hold(made._replace(**of))  # type: ignore[arg-type] # fields as they come

    def runs(self, uid: str, name: str = "app", attempt: int = 1) -> None:
        """A container of this pod is made and listed, right after the kubelet
        made its directory.
        """
        self.begins(uid, name)
        self.lists(
            f"{uid} {name} {attempt}",
            attempt=attempt,
            pod_uid=uid,
            name=name,
            sandbox_id=f"of {uid}",
        )

    def begins(self, uid: str, name: str = "app") -> None:
        """The kubelet makes the directory of a container, or a file in it: it is
        about to make the container.
        """
        self.pods.begun.setdefault(uid, self.clock.wall())
        self.pods.begun_containers[uid, name] = self.clock.wall()

    def old_pod(self, uid: str) -> None:
        """A pod that has run for an hour, with one container."""
        self.sandbox_comes_up(f"of {uid}", 3600.0, uid=uid, occupied=False)
        self.runs(uid)
        self.pods.begun[uid] = self.pods.begun_containers[uid, "app"] = NOW - 3600.0

    def use_up_the_patience(self) -> None:
        """Pods keep beginning, and finish."""
        while not self.starts.patience_used_up:
            self.sandbox_comes_up(f"one at {self.clock.wall()}", 0.0)
            self.clock.step(self.wait_seconds("another image"))
        self.clock.step(HOLD_OFF)


def known(node: Node) -> None:
    """The kubelet has told what a pod needs, whichever part of it is new."""
    node.pods.named = frozenset({"app:1"})
    (uid,) = node.pods.named_images()
    node.old_pod(uid)
    node.directory(uid, 0.0)
    node.begins(uid, "next")
    node.sandbox_comes_up("new", 0.0, uid=uid, occupied=False)
    node.lists("first", attempt=0, pod_uid=uid, sandbox_id="new")


def another_attempt(node: Node, later_seconds: float) -> None:
    """A file for the next attempt makes the directory younger than the container."""
    node.old_pod("uid-1")
    node.runs("uid-1")
    node.clock.step(later_seconds)
    node.begins("uid-1")


def being_made(node: Node, ago: float) -> None:
    """A pod has run for an hour; only the directory of its next container tells."""
    node.old_pod("uid-1")
    node.pods.begun_containers["uid-1", "next"] = NOW - ago


def first_run(node: Node, attempt: int) -> None:
    """The sandbox is old, and a container of it was made 0.25 s ago."""
    node.sandbox_comes_up("old", 60.0)
    node.lists("first", attempt=attempt, sandbox_id="old", ago=0.25)


def both(node: Node, sandbox_ago: float, directory_ago: float) -> None:
    """A sandbox and a directory of a pod."""
    node.sandbox_comes_up("s", sandbox_ago)
    node.directory("uid-1", directory_ago)


AGAIN = AGAIN_HOLD_OFFS * HOLD_OFF
UNFINISHED = UNFINISHED_HOLD_OFFS * HOLD_OFF
NODES: dict[str, tuple[Callable[[Node], object], float]] = {
    "all is old, or not ready": (lambda node: both(node, 3600.0, 60.0), 0.0),
    "a sandbox has come up": (lambda node: node.sandbox_comes_up("new", 0.25), 0.75),
    "the younger of both counts": (lambda node: both(node, 0.75, 0.25), 0.75),
    "in the future": (lambda node: both(node, -30.0, -30.0), HOLD_OFF),
    "a sandbox without a container": (
        lambda node: node.sandbox_comes_up("slow", 5.0, occupied=False),
        AGAIN,
    ),
    "for half a minute": (
        lambda node: node.sandbox_comes_up("stuck", UNFINISHED, occupied=False),
        0.0,
    ),
    "a directory without a sandbox": (lambda node: node.directory("uid-new", 5.0), AGAIN),
    "it waits for volumes": (lambda node: node.directory("uid-new", UNFINISHED), 0.0),
    "what it needs is known": (known, 0.0),
    "a second container may come": (lambda node: first_run(node, 0), 0.75),
    "a restart says nothing of that": (lambda node: first_run(node, 1), 0.0),
    "a container is being made": (lambda node: being_made(node, 0.0), AGAIN),
    "it is stuck": (lambda node: being_made(node, UNFINISHED), 0.0),
    "listed since": (lambda node: another_attempt(node, 0.5), 0.0),
    "another attempt": (lambda node: another_attempt(node, 1.5), AGAIN),
}


@pytest.mark.parametrize("what", NODES)
def test_how_long_an_image_waits(what: str) -> None:
    """For a pod that begins: the rest of the hold-off, until it has taken its image; for one that
    lacks its next part a moment, again and again. Clocks may differ by a second."""
    makes, expected = NODES[what]
    node = Node()
    makes(node)
    assert node.wait_seconds() == pytest.approx(expected)
    assert node.starts.under_way is (expected > 0)
    if expected > AGAIN:
        node.clock.step(expected + 0.01)
        assert node.wait_seconds() <= AGAIN, "that wait is over then"


def test_a_container_that_is_being_made_is_waited_for_until_it_is_listed() -> None:
    """As is a sandbox until it has a container."""
    node = Node()
    node.old_pod("uid-1")
    assert node.wait_seconds() == 0.0
    node.begins("uid-1", "next")
    for _ in range(3):
        assert node.wait_seconds() == pytest.approx(AGAIN)
        node.clock.step(0.11)
    node.runs("uid-1", "next")
    assert node.wait_seconds() == 0.0
    node = Node()
    node.sandbox_comes_up("slow", 5.0, occupied=False)
    assert node.wait_seconds() == pytest.approx(AGAIN)
    node.clock.step(0.11)
    node.lists("app", sandbox_id="slow")
    assert node.wait_seconds() == 0.0


@pytest.mark.regression
@pytest.mark.parametrize("step_seconds", [-DAY, -3600.0, -2.0, 2.0, 3600.0, DAY])
@pytest.mark.parametrize("part", ["directory", "sandbox", "container"])
def test_a_step_of_the_wall_clock_hides_no_pod_and_makes_none_new_for_ever(
    step_seconds: float, part: str
) -> None:
    """A part is made, the clock is set, and then comes a pass: it waits for the new pod, and for
    none of the old ones after that."""
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
            node.lists("new", sandbox_id="old-0", attempt=0)
    node.clock.step_wall(step_seconds)
    node.clock.step(0.25)
    node.next_pass()
    wait = node.wait_seconds()
    assert 0.75 <= wait <= HOLD_OFF, "it was made 0.25 s ago"
    node.clock.step(wait + 0.01)
    assert node.wait_seconds() <= AGAIN
    node.clock.step(UNFINISHED)
    node.next_pass()
    assert node.wait_seconds() == 0.0


@pytest.mark.regression
def test_a_clock_that_is_set_back_makes_no_known_part_new_again() -> None:
    """Set so that all of them seem to have been made just now: their ages are known already."""
    node = Node()
    both(node, 3600.0, 3600.0)
    assert node.wait_seconds() == 0.0
    node.clock.step_wall(-3599.9)
    node.next_pass()
    assert node.wait_seconds() == 0.0


def test_removals_side_by_side_wait_for_the_same_pod_once() -> None:
    """The second one waits what is left, without another list; that costs no patience. Where
    pods come all the time relief comes first: in all no pass waits longer than twice the hold-off.
    Without a hold-off no pod is searched."""
    node = Node()
    node.sandbox_comes_up("new", 0.0)
    assert node.wait_seconds() == pytest.approx(1.0)
    node.clock.step(0.25)
    listings = len(node.runtime.calls)
    assert node.wait_seconds() == pytest.approx(0.75)
    assert len(node.runtime.calls) == listings
    waited = 0.25
    for number in range(10):
        wait = node.wait_seconds()
        waited += wait
        node.clock.step(wait or 0.1)
        node.sandbox_comes_up(f"new-{number}", 0.0)
    assert waited == pytest.approx(PATIENCE_HOLD_OFFS * HOLD_OFF)
    assert node.wait_seconds() == 0.0
    assert node.starts.patience_used_up
    assert node.starts.under_way, "which images they need cannot be known yet"
    never = Node(hold_off_seconds=0.0)
    never.sandbox_comes_up("new", 0.0)
    assert (never.wait_seconds(), never.runtime.calls) == (0.0, [])


# ---- what the last look says

LOOKS: dict[str, tuple[Callable[[Node], object], bool]] = {
    "nothing has changed": (lambda node: None, True),
    "a pod has begun": (lambda node: node.pods.begun.update({"uid-new": NOW}), False),
    "a container has begun": (lambda node: node.begins("uid-1", "next"), False),
    "another attempt has begun": (lambda node: node.begins("uid-1"), False),
    "a pod's directory was touched": (lambda node: node.pods.begun.update({"uid-1": NOW}), True),
    "one without containers was touched": (
        lambda node: node.pods.begun.update({"uid-empty": NOW}),
        False,
    ),
    "one with an unlisted container was touched": (
        lambda node: node.pods.begun.update({"uid-making": NOW + 1.0}),
        False,
    ),
    "a pod has gone": (lambda node: node.pods.begun.pop("uid-1"), True),
    "a container's directory has gone": (
        lambda node: node.pods.begun_containers.pop(("uid-2", "init")),
        True,
    ),
}


@pytest.mark.parametrize("what", LOOKS)
def test_the_last_look_discards_what_is_older_than_a_pod_or_a_container(what: str) -> None:
    """And nothing for a change that says nothing of either."""
    node = Node()
    for uid in ("uid-1", "uid-2"):
        node.old_pod(uid)
    node.runs("uid-2", "init")
    node.pods.begun["uid-empty"] = NOW - 3600.0
    node.begins("uid-making")
    before = node.pods.pod_directories()
    listed: tuple[Container, ...] = tuple(node.runtime.containers.values())
    node.clock.step(2.0)
    happens, holds = LOOKS[what]
    happens(node)
    assert before is not None
    assert nothing_has_begun(before, node.pods.pod_directories(), listed) == holds


# ---- when the patience is used up


def slow_sandbox(node: Node, uid: str = "uid-slow") -> None:
    """A pod has its directory and no sandbox yet, and is older than the hold-off."""
    node.directory(uid, 2 * HOLD_OFF)


@pytest.mark.parametrize("urgent", [False, True])
def test_with_minutes_left_an_image_waits_for_the_pods_that_were_unfinished(
    *, urgent: bool
) -> None:
    """A network that takes 3 s to set up costs no image then.

    If it is urgent, relief comes first, but for a moment.
    """
    node = Node()
    node.use_up_the_patience()
    node.urgent = urgent
    slow_sandbox(node)
    waited = 0.0
    while waited < 3.0 and (wait := node.wait_seconds()):
        assert wait == pytest.approx(AGAIN)
        node.clock.step(wait)
        waited += wait
    assert waited == pytest.approx(AGAIN if urgent else 3.0)
    assert node.starts.under_way
    node.sandbox_comes_up("slow", 0.0, uid="uid-slow", occupied=False)
    assert (node.wait_seconds() > 0) != urgent, "it has a sandbox and no container"
    node.clock.step(0.11)
    node.begins("uid-slow")
    assert (node.wait_seconds() > 0) != urgent, "its container is being made"
    node.clock.step(0.11)
    node.lists("made", sandbox_id="slow", pod_uid="uid-slow", attempt=0)
    assert node.wait_seconds() == 0.0


def test_no_image_waits_for_pods_that_begin_after_it_was_asked_about() -> None:
    """However many: a stream of pods delays each image by as long as the pods
    of its first moment take.
    """
    node = Node()
    node.use_up_the_patience()
    slow_sandbox(node, "uid-0")
    for number in range(1, 5):
        assert node.wait_seconds() > 0
        node.clock.step(0.11)
        slow_sandbox(node, f"uid-{number}")
    node.pods.begun.pop("uid-0")
    assert node.wait_seconds() == 0.0
    assert node.wait_seconds("a later image") > 0


def test_an_image_waits_for_a_pod_that_began_while_there_was_patience() -> None:
    """One that began a moment after the image was first asked about is not forgotten
    when the patience is used up.
    """
    node = Node()
    assert node.wait_seconds() == 0.0
    slow_sandbox(node)
    for _ in range(30):
        wait = node.wait_seconds()
        assert wait > 0
        node.clock.step(wait)
    assert node.wait_seconds("another image") > 0


def test_an_image_waits_half_a_minute_at_most() -> None:
    """Each part of a slow pod is young when it comes; the image does not wait as
    long for every one of them.
    """
    node = Node()
    node.use_up_the_patience()
    slow_sandbox(node)
    began = node.clock.monotonic()
    while wait := node.wait_seconds():
        node.clock.step(wait)
        slow_sandbox(node)
    assert node.clock.monotonic() - began == pytest.approx(LONGEST_SECONDS, abs=2 * AGAIN)


def test_the_lists_that_are_read_after_a_wait_are_part_of_it() -> None:
    """They take 0.3 s: so much less is left for the next wait."""
    node = Node()
    node.sandbox_comes_up("new", 0.0)
    node.clock.step(node.wait_seconds() + 0.3)
    node.sandbox_comes_up("newer", 0.0)
    assert node.wait_seconds() == pytest.approx(PATIENCE_HOLD_OFFS * HOLD_OFF - 1.3)


def test_what_is_lost_to_lists_that_were_too_old_costs_patience() -> None:
    """Without a hold-off, two seconds of it."""
    node = Node()
    node.sandbox_comes_up("new", 0.0)
    node.starts.lost(1.75)
    assert node.wait_seconds() == pytest.approx(0.25)
    none = Node(hold_off_seconds=0.0)
    assert not none.starts.patience_used_up
    none.starts.lost(1.9)
    assert not none.starts.patience_used_up
    none.starts.lost(0.1)
    assert none.starts.patience_used_up
