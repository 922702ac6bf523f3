"""While a pod is being made no image goes, and no longer than that."""

from __future__ import annotations

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
from reclaim.types import PodSandboxState
from tests.pure.memory_runtime import MemoryPods, MemoryRuntime
from tests.pure.values import NOW_NS, SteppedClock, container, sandbox
from tests.rows import rows

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


AGAIN = AGAIN_HOLD_OFFS * HOLD_OFF
UNFINISHED = UNFINISHED_HOLD_OFFS * HOLD_OFF


def holds(node: Node, parts: str, uid: str = "uid-1") -> None:
    """Parts of a pod, each with how many seconds ago it was made: a sandbox, one without a
    container, the directory of the pod, that of a new pod, a container in its first run, one that
    was restarted; or a pod that has run for an hour, with the directory of its next container, or
    a file for the next attempt of its first."""
    for part in parts.split():
        what, _, ago = part.partition("@")
        seconds = float(ago or 0)
        if what in ("sandbox", "empty"):
            node.sandbox_comes_up("s", seconds, uid=uid, occupied=what == "sandbox")
        elif what in ("directory", "new"):
            node.directory(uid if what == "directory" else "uid-new", seconds)
        elif what in ("first", "restarted"):
            attempt = int(what == "restarted")
            node.lists("c", attempt=attempt, ago=seconds, sandbox_id="s", pod_uid=uid)
        elif what == "old":
            node.old_pod(uid)
        else:
            name = "next" if what == "next" else "app"
            node.pods.begun_containers[uid, name] = NOW - seconds


@rows("""
    parts                       | wait | what
    sandbox@3600 directory@60   | 0    | all is old, or not ready
    sandbox@0.25                | 0.75 | a sandbox has come up
    sandbox@0.75 directory@0.25 | 0.75 | the younger of both counts
    sandbox@-30 directory@-30   | 1    | it is dated in the future
    empty@5                     | 0.1  | a sandbox without a container
    empty@30                    | 0    | for half a minute
    new@5                       | 0.1  | a directory without a sandbox
    new@30                      | 0    | it waits for its volumes
    sandbox@60 first@0.25       | 0.75 | a second container may come
    sandbox@60 restarted@0.25   | 0    | a restart says nothing of that
    old next@0                  | 0.1  | a container is being made
    old next@30                 | 0    | it is stuck
    old attempt@-0.5            | 0    | clocks may differ by a second
    old attempt@-1.5            | 0.1  | another attempt
""")
def test_how_long_an_image_waits(parts: str, wait: str) -> None:
    """For a pod that begins: the rest of the hold-off, until it has taken its image; for one that
    lacks its next part a moment, again and again."""
    node, expected = Node(), float(wait)
    holds(node, parts)
    assert node.wait_seconds() == pytest.approx(expected)
    assert node.starts.under_way is (expected > 0)
    if expected > AGAIN:
        node.clock.step(expected + 0.01)
        assert node.wait_seconds() <= AGAIN, "that wait is over then"


def test_a_pod_whose_spec_the_kubelet_has_told_is_not_waited_for() -> None:
    """What it needs is known, whichever part of it is new."""
    node = Node()
    node.pods.named = frozenset({"app:1"})
    (uid,) = node.pods.named_images()
    holds(node, "old directory@0 next@0 empty@0 first@0", uid)
    assert (node.wait_seconds(), node.starts.under_way) == (0.0, False)
    node.pods.named = frozenset()
    assert node.wait_seconds() == pytest.approx(HOLD_OFF)


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


@pytest.mark.parametrize(("ago", "wait"), [(0.25, 0.75), (59.0, 0.0), (3600.0, HOLD_OFF)])
def test_what_was_missing_in_the_look_before_is_no_older_than_that(ago: float, wait: float) -> None:
    """As old as its date says, if that can be true; else from its first sight."""
    node = Node()
    node.wait_seconds()
    node.clock.step(60.0)
    node.next_pass()
    node.sandbox_comes_up("new", ago)
    assert node.wait_seconds() == pytest.approx(wait)


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
    holds(node, "sandbox@3600 directory@3600")
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


@rows("""
    change      | holds | what
    -           | yes   | nothing has changed
    uid-new     | no    | a pod has begun
    uid-1/next  | no    | a container has begun
    uid-1/app   | no    | another attempt has begun
    uid-1       | yes   | a pod's directory was touched
    uid-empty   | no    | one without containers was touched
    uid-making  | no    | one with an unlisted container was touched
    !uid-1      | yes   | a pod has gone
    !uid-2/init | yes   | a container's directory has gone
""")
def test_the_last_look_discards_what_is_older_than_a_pod_or_a_container(
    change: str, holds: str
) -> None:
    """And nothing for a change that says nothing of either."""
    node = Node()
    for each in ("uid-1", "uid-2"):
        node.old_pod(each)
    node.runs("uid-2", "init")
    node.directory("uid-empty", 3600.0)
    node.begins("uid-making")
    before = node.pods.pod_directories()
    listed = tuple(node.runtime.containers.values())
    node.clock.step(2.0)
    uid, _, name = change.removeprefix("!").partition("/")
    if change.startswith("!"):
        del node.pods.begun_containers[uid, name or "app"]
        if not name:
            del node.pods.begun[uid]
    elif name:
        node.begins(uid, name)
    elif uid != "-":
        node.directory(uid, 0.0)
    assert nothing_has_begun(before, node.pods.pod_directories(), listed) is (holds == "yes")


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
