"""Right before its removal an image is checked against a fresh list of containers."""

from __future__ import annotations

import pytest

from reclaim.function import Ready, Refused, Wait
from reclaim.functions.unused_images import UnusedImages
from reclaim.images.plan import ImageGCPolicy
from reclaim.types import (
    Action,
    ContainerState,
    Kind,
    Outcome,
    Plan,
    PodSandboxState,
    Reason,
    Result,
    RuntimeUnavailable,
    Verdict,
)
from tests.pure.contexts import carried_out, context_of, images_stage
from tests.pure.memory_runtime import MemoryPods, MemoryRuntime, SlowPods
from tests.pure.values import SteppedClock, container, image, image_id, sandbox

UNUSED = Verdict(Kind.IMAGE, image_id(1), image_id(1), Action.REMOVE, Reason.UNUSED)


OLD = 0.3  # seconds after which a list is not used any more


class Node:
    """A runtime in memory with two images and a dead sandbox."""

    def __init__(self) -> None:
        self.clock = SteppedClock(at=50.0)
        self.runtime = MemoryRuntime(self.clock)
        self.pods = MemoryPods()
        self.runtime.hold(sandbox("s"), image(1, "app:1"), image(2, "other:1"))

    def images(self, pod_start_seconds: float = 0.0) -> UnusedImages:
        """The stage over images, with the lists of this moment."""
        policy = ImageGCPolicy(pod_start_seconds=pod_start_seconds)
        return images_stage(context_of(self.runtime, self.clock, self.pods, images=policy))


def test_an_image_that_nothing_uses_may_go() -> None:
    """As of a list of containers that was asked for at 50 s."""
    ready = Node().images().check(UNUSED)
    assert isinstance(ready, Ready)
    assert (ready.checked_at, ready.holds()) == (50.0, True)


def test_an_image_that_the_spec_of_a_new_pod_names_is_kept() -> None:
    """The pod came between plan and removal, and has no container yet; of
    another image nothing is known.
    """
    node = Node()
    remover = node.images()
    node.clock.step(OLD)
    node.pods.named = frozenset({"app:1", "not-pulled-yet:1"})
    assert remover.check(UNUSED) == Refused(Reason.IN_USE, Result.IN_USE)
    assert isinstance(remover.check(UNUSED._replace(id=image_id(2))), Ready)


def test_a_pod_that_begins_while_the_lists_of_the_plan_still_serve_keeps_its_image() -> None:
    """Its directory is seen by the last look, which makes them worth nothing; then the
    kubelet tells what it names.
    """
    node = Node()
    remover = node.images()
    node.clock.step(0.1)
    assert isinstance(remover.check(UNUSED), Ready)
    assert node.runtime.calls.count("list_containers") == 1, "that of the plan"
    node.pods.named = frozenset({"app:1"})
    node.pods.begun["uid-new"] = node.clock.wall()
    (outcome,) = carried_out(Plan((UNUSED,)), remover, node.clock)
    assert (outcome.result, outcome.verdict.reason) == (Result.IN_USE, Reason.IN_USE)
    assert image_id(1) in node.runtime.images


def test_an_image_that_has_got_the_name_in_a_spec_is_kept() -> None:
    """The kubelet pulls by a new name what is there already: only its status
    tells, the list is from before.
    """
    node = Node()
    node.pods.named = frozenset({"renamed:1"})
    remover = node.images()
    assert isinstance(remover.check(UNUSED), Ready)
    node.runtime.hold(image(1, "app:1", "renamed:1"))
    assert remover.check(UNUSED) == Refused(Reason.IN_USE)


@pytest.mark.parametrize("state", ContainerState)
def test_an_image_that_a_new_container_uses_is_kept(state: ContainerState) -> None:
    """The container started between plan and removal."""
    node = Node()
    remover = node.images()
    node.clock.step(OLD)
    node.runtime.hold(container("c", state=state, references=("app:1",)))
    assert remover.check(UNUSED) == Refused(Reason.IN_USE, Result.IN_USE)


def test_a_new_container_whose_image_cannot_be_told_stops_every_image() -> None:
    """It says nothing about its image at all."""
    node = Node()
    remover = node.images()
    node.clock.step(OLD)
    node.runtime.hold(container("c"))
    assert remover.check(UNUSED) == Refused(Reason.UNRESOLVED_IMAGE)


def test_no_image_may_go_while_a_pod_is_being_made() -> None:
    """Its sandbox came up 0.25 s ago; what it is about to use cannot be known.

    When that is over it may go.
    """
    node = Node()
    node.runtime.containers.clear()
    remover = node.images(pod_start_seconds=1.0)
    began_ns = int((node.clock.wall() - 0.25) * 1e9)
    node.runtime.hold(sandbox("new", state=PodSandboxState.READY)._replace(created_at_ns=began_ns))
    answer = remover.check(UNUSED)
    assert isinstance(answer, Wait)
    assert answer.seconds == pytest.approx(0.75, abs=1e-3)
    node.clock.step(answer.seconds + 1e-3)
    assert isinstance(remover.check(UNUSED), Wait), "the sandbox has no container yet"
    node.runtime.hold(container("app", sandbox_id="new", attempt=1, references=(image_id(2),)))
    node.clock.step(0.2)
    assert isinstance(remover.check(UNUSED), Ready)


def test_the_list_of_containers_is_at_most_a_quarter_of_a_second_old() -> None:
    """A list that took 0.05 s is used for 0.2 s more, then read anew."""
    node = Node()
    remover = node.images()
    node.runtime.call_seconds = 0.05
    remover.check(UNUSED)
    node.runtime.calls.clear()
    for seconds, lists in ((0.05, 0), (0.15, 1)):
        node.clock.step(seconds)
        remover.check(UNUSED)
        assert node.runtime.calls.count("list_containers") == lists


def test_an_image_is_removed_by_one_call_with_the_whole_id_and_is_absent_then() -> None:
    """Never by name: by name one runtime drops all tags and another only one."""
    node = Node()
    images = node.images()
    assert images.present(UNUSED)
    images.check(UNUSED)
    node.runtime.calls.clear()
    images.remove(UNUSED)
    assert node.runtime.calls == [f"remove_image {image_id(1)}"]
    assert not images.present(UNUSED)


def test_without_an_answer_of_the_runtime_no_image_is_ready() -> None:
    """A check that could not be made permits nothing."""
    node = Node()
    images = node.images()
    node.runtime.away = True
    with pytest.raises(RuntimeUnavailable):
        images.check(UNUSED)


# ---- slow lists, slow looks


class SlowNode(Node):
    """A node with four unused images and a pod, on which each list, and each look at the
    directories of pods, takes so long."""

    def __init__(self, list_seconds: float = 0.0, look_seconds: float = 0.0) -> None:
        super().__init__()
        self.pods = SlowPods(self.clock, look_seconds)
        self.pods.begun["uid-old"] = self.clock.wall() - 3600.0
        self.runtime.hold(
            sandbox("of uid-old", pod_uid="uid-old"), image(3, "third:1"), image(4, "fourth:1")
        )
        self.runtime.slow |= dict.fromkeys(
            ("list_images", "list_containers", "list_pod_sandboxes"), list_seconds
        )

    def removed(self, stage: UnusedImages, *numbers: int) -> list[Result | None]:
        """How the removals of these images end."""
        plan = Plan(tuple(UNUSED._replace(id=image_id(number)) for number in numbers))
        return [outcome.result for outcome in carried_out(plan, stage, self.clock)]


@pytest.mark.regression
def test_one_list_of_containers_serves_the_plan_and_the_first_look() -> None:
    """Lists of 9.9 s: nothing is listed twice before the first removal, as long as the last look
    holds; nor before the second, which comes at once. A second later containers and sandboxes are
    listed, once for the next two."""
    node = SlowNode(list_seconds=9.9)
    stage = node.images(pod_start_seconds=1.0)
    assert node.removed(stage, 1, 2) == [Result.REMOVED] * 2
    node.clock.step(1.0)
    assert node.removed(stage, 3, 4) == [Result.REMOVED] * 2
    calls = [call.split()[0] for call in node.runtime.calls if not call.startswith("image_status")]
    assert calls[:5] == [
        "list_images",
        "list_containers",
        "list_pod_sandboxes",
        "remove_image",
        "remove_image",
    ]
    assert calls[5:] == ["list_containers", "list_pod_sandboxes", "remove_image", "remove_image"]


@pytest.mark.regression
@pytest.mark.parametrize("what", ["looks at directories", "calls of the runtime"])
def test_what_is_slower_than_a_list_may_be_old_keeps_no_image(what: str) -> None:
    """1.1 s each, ImageStatus too: that does not make the list too old, as the
    last look covers all of it.
    """
    node = SlowNode(look_seconds=1.1) if what == "looks at directories" else SlowNode()
    if what == "calls of the runtime":
        node.runtime.call_seconds = 1.1
    assert node.removed(node.images(pod_start_seconds=1.0), 1, 2) == [Result.REMOVED] * 2


def test_where_no_directory_can_be_read_slow_sandboxes_make_the_list_too_old() -> None:
    """Nothing then covers what has begun meanwhile."""
    node = SlowNode()
    node.runtime.slow["list_pod_sandboxes"] = 1.1

    class Unreadable(MemoryPods):
        """Directories of which nothing is known."""

        def pod_directories(self, since: float | None = None) -> None:  # type: ignore[override]
            """Nothing."""

    node.pods = Unreadable()
    assert node.removed(node.images(pod_start_seconds=1.0), 1, 2) == [Result.FAILED] * 2
    assert not any(call.startswith("remove_image") for call in node.runtime.calls)


# ---- pods and containers that begin beside a removal


class BusyNode(Node):
    """A node with ten unused images, whose clock shows the time that its pods are dated with.

    Lists take 0.3 s.
    """

    def __init__(self) -> None:
        super().__init__()
        self.runtime.hold(*(image(number, f"app-{number}:1") for number in range(1, 11)))
        self.runtime.slow["list_containers"] = 0.3
        self.made = 0
        for uid in ("uid-old", "uid-touched"):
            self.runs(uid, "init")
        self.clock.step(3600.0)

    def runs(self, uid: str, name: str, number: int = 2) -> None:
        """The directories of a pod and of its container, and then a
        container of an image, are made.
        """
        self.pods.begun.setdefault(uid, self.clock.wall())
        self.pods.begun_containers[uid, name] = self.clock.wall()
        self.made += 1
        now_ns = int(self.clock.wall() * 1e9)
        made = container(
            f"c{self.made}", attempt=1, references=(f"app-{number}:1",), sandbox_id=f"of {uid}"
        )
        self.runtime.hold(made._replace(pod_uid=uid, name=name, created_at_ns=now_ns))
        if f"of {uid}" not in self.runtime.sandboxes:
            of_it = sandbox(f"of {uid}", state=PodSandboxState.READY)
            self.runtime.hold(of_it._replace(pod_uid=uid, created_at_ns=now_ns))

    def removed(self, stage: UnusedImages, number: int) -> Outcome:
        """How the removal of one image ends."""
        verdict = UNUSED._replace(id=image_id(number))
        (outcome,) = carried_out(Plan((verdict,)), stage, self.clock)
        return outcome

    @property
    def lists(self) -> int:
        """How often containers were listed."""
        return self.runtime.calls.count("list_containers")


@pytest.mark.regression
@pytest.mark.parametrize("uid", ["uid-old", "uid-new"])
def test_a_container_that_begins_after_the_list_keeps_its_image(uid: str) -> None:
    """The next container of a pod that has run for an hour, as well as the
    first one of a new pod.
    """
    node = BusyNode()
    stage = node.images()
    node.runtime.on_call[f"image_status {image_id(1)}"] = lambda: node.runs(uid, "next", 1)
    assert node.removed(stage, 1).result is Result.IN_USE
    assert node.removed(stage, 3).result is Result.REMOVED


@pytest.mark.regression
def test_a_directory_that_is_touched_again_and_again_discards_no_list() -> None:
    """All of its containers are listed: it says nothing."""
    node = BusyNode()
    node.runtime.slow.clear()
    stage = node.images()
    lists = node.lists
    for number in range(3, 11):
        node.runtime.on_call[f"image_status {image_id(number)}"] = lambda: node.pods.begun.update(
            {"uid-touched": node.clock.wall()}
        )
        assert node.removed(stage, number).result is Result.REMOVED
    assert node.lists == lists, "that of the plan has served all"


@pytest.mark.regression
@pytest.mark.parametrize("hold_off_seconds", [0.0, 1.0])
def test_where_containers_keep_beginning_images_go_by_a_list_of_their_own(
    hold_off_seconds: float,
) -> None:
    """One begins with every list, and is listed with the next: each image is
    stopped by the last look once.
    """
    node = BusyNode()
    stage = node.images(hold_off_seconds)
    node.runtime.on_call["list_containers"] = lambda: node.runs(f"uid-{node.lists}", "app")
    numbers, lists = range(3, 11), node.lists
    first = node.removed(stage, 3)
    assert first.result is Result.REMOVED
    assert first.duration_seconds < 5.0
    results = [node.removed(stage, number).result for number in numbers[1:]]
    assert set(results) == {Result.REMOVED}
    assert node.lists - lists <= 4 * len(numbers)


@pytest.mark.regression
def test_where_containers_keep_beginning_a_list_that_is_too_old_is_not_enough() -> None:
    """Sandboxes take 1.5 s after the containers: the last look has stopped the image often enough,
    and sees one more that begins meanwhile. It is that of the image."""
    node = BusyNode()
    node.runtime.slow["list_pod_sandboxes"] = 1.5
    stage, asked = node.images(1.0), [0]

    def begins() -> None:
        asked[0] += 1
        node.runs(f"uid-{asked[0]}", "app", 3 if asked[0] == 4 else 2)

    node.runtime.on_call["list_pod_sandboxes"] = begins
    begins()
    outcome = node.removed(stage, 3)
    assert asked[0] >= 4
    assert outcome.result is not Result.REMOVED
    assert image_id(3) in node.runtime.images


def test_what_cannot_be_checked_for_containers_that_begin_fails_alone() -> None:
    """Within the patience the last look stops an image twenty times; that ends no stage."""
    node = BusyNode()
    node.runtime.slow.clear()
    stage = node.images()
    node.runtime.on_call[f"image_status {image_id(3)}"] = lambda: node.runs(
        f"uid-{node.made}", "app"
    )
    outcome = node.removed(stage, 3)
    assert outcome.result is Result.FAILED
    assert "after the last container began" in outcome.error
    assert node.removed(stage, 4).result is Result.REMOVED
