"""Right before its removal an image is checked against fresh lists, and against what begins."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from reclaim.function import Ready, Refused
from reclaim.functions.unused_images import UnusedImages
from reclaim.images.plan import ImageGCPolicy
from reclaim.images.records import ImageRecords
from reclaim.types import (
    Action,
    ContainerState,
    ImageRecord,
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
from tests.pure.memory_runtime import MemoryPods, MemoryRuntime
from tests.pure.values import SteppedClock, container, image, image_id, sandbox
from tests.rows import rows

UNUSED = Verdict(Kind.IMAGE, image_id(1), image_id(1), Action.REMOVE, Reason.UNUSED)
TOO_OLD_SECONDS = 0.3  # after which a list is not used any more
LISTS = ("list_images", "list_containers", "list_pod_sandboxes")


class Node:
    """A runtime in memory with ten unused images of one repository, of which the first is the
    oldest, and two pods that have run for an hour."""

    def __init__(self, **slow: float) -> None:
        self.clock = SteppedClock(at=50.0)
        self.runtime = MemoryRuntime(self.clock)
        self.pods = MemoryPods()
        self.made = 0
        for uid in ("uid-old", "uid-touched"):
            self.runs(uid, "init")
        self.clock.step(3600.0)
        self.runtime.hold(*(image(number, f"app.test/app:{number}") for number in range(1, 11)))
        self.runtime.slow |= slow
        seed = {image_id(number): ImageRecord(float(number)) for number in range(1, 11)}
        self.records = ImageRecords(seed=seed)

    def images(self, pod_start_seconds: float = 0.0, newest: int = 0) -> UnusedImages:
        """The stage over images, with the lists of this moment."""
        policy = ImageGCPolicy(
            pod_start_seconds=pod_start_seconds, keep_newest_per_repository=newest
        )
        context = context_of(
            self.runtime, self.clock, self.pods, images=policy, records=self.records
        )
        return images_stage(context)

    def runs(self, uid: str, name: str, number: int = 2) -> None:
        """The directories of a pod and of its container, and then a container of an image, are
        made."""
        self.pods.begun.setdefault(uid, self.clock.wall())
        self.pods.begun_containers[uid, name] = self.clock.wall()
        self.made += 1
        now_ns = int(self.clock.wall() * 1e9)
        made = container(
            f"c{self.made}",
            attempt=1,
            references=(f"app.test/app:{number}",),
            sandbox_id=f"of {uid}",
        )
        self.runtime.hold(made._replace(pod_uid=uid, name=name, created_at_ns=now_ns))
        if f"of {uid}" not in self.runtime.sandboxes:
            of_it = sandbox(f"of {uid}", state=PodSandboxState.READY)
            self.runtime.hold(of_it._replace(pod_uid=uid, created_at_ns=now_ns))

    def carried_out(self, stage: UnusedImages, *numbers: int) -> list[Outcome]:
        """How the removals of these images end."""
        verdicts = (UNUSED._replace(id=image_id(number)) for number in numbers)
        return carried_out(Plan(tuple(verdicts)), stage, self.clock)

    def results(self, stage: UnusedImages, *numbers: int) -> list[Result | None]:
        """The same in words."""
        return [outcome.result for outcome in self.carried_out(stage, *numbers)]

    def asked(self, call: str = "list_containers") -> int:
        """How often something was asked."""
        return self.runtime.calls.count(call)

    def on_status(self, number: int, do: Callable[[], object]) -> None:
        """Something happens while the status of this image is asked for."""
        self.runtime.on_call[f"image_status {image_id(number)}"] = do


IN_USE = Refused(Reason.IN_USE, Result.IN_USE)


@rows("""
    happens                                   | newest | answer               | what
    -                                         | 0      | ready                | nothing
    spec app.test/app:1                       | 0      | in_use               | a spec names it
    spec app.test/app:2                       | 0      | ready                | a spec names another
    runs 1                                    | 0      | in_use               | it is in use
    runs                                      | 0      | unresolved_image     | what is in use cannot be told
    gone 3 4 5 6 7 8                          | 2      | ready                | so many newer ones are there
    gone 2 3 4 5 6 7 8 9                      | 2      | newest_of_repository | a newer one has vanished
    tags 10 app.test/other:1                  | 9      | newest_of_repository | the name of a newer one has moved
    tags 1 app.test/app:1 app.test/promoted:1 | 1      | newest_of_repository | the newest of another
""")
def test_an_image_that_is_wanted_by_now_is_kept(happens: str, newest: str, answer: str) -> None:
    """By a spec, by a container in any state, or as one of the newest of its repository: what has changed since
    the plan counts."""
    for state in ContainerState:
        node = Node()
        stage = node.images(newest=int(newest))
        node.clock.step(TOO_OLD_SECONDS)
        match happens.split():
            case ["spec", name]:
                node.pods.named = frozenset({name, "not-pulled-yet:1"})
            case ["runs", *numbers]:
                references = tuple(image_id(int(number)) for number in numbers)
                node.runtime.hold(container("c", state=state, references=references))
            case ["gone", *numbers]:
                for number in numbers:
                    del node.runtime.images[image_id(int(number))]
            case ["tags", number, *tags]:
                node.runtime.hold(image(int(number), *tags))
        found = stage.check(UNUSED)
        if answer == "ready":
            assert isinstance(found, Ready)
        else:
            assert found == (IN_USE if answer == "in_use" else Refused(Reason(answer)))


def test_an_image_that_has_got_the_name_in_a_spec_is_kept() -> None:
    """The kubelet pulls by a new name what is there already: only its status tells, the list is
    from before."""
    node = Node()
    node.pods.named = frozenset({"renamed:1"})
    stage = node.images()
    assert isinstance(stage.check(UNUSED), Ready)
    node.runtime.hold(image(1, "renamed:1"))
    assert stage.check(UNUSED) == Refused(Reason.IN_USE)


def test_a_pod_that_begins_while_the_lists_of_the_plan_still_serve_keeps_its_image() -> None:
    """Its directory is seen by the last look, which makes them worth nothing; then the kubelet
    tells what it names."""
    node = Node()
    stage = node.images()
    node.clock.step(0.1)
    ready = stage.check(UNUSED)
    assert isinstance(ready, Ready)
    assert (ready.checked_at, ready.holds(), node.asked()) == (3650.0, True, 1)
    node.pods.named = frozenset({"app.test/app:1"})
    node.pods.begun["uid-new"] = node.clock.wall()
    assert node.results(stage, 1) == [Result.IN_USE]
    assert image_id(1) in node.runtime.images


def test_an_image_is_removed_by_one_call_with_the_whole_id_and_is_absent_then() -> None:
    """Never by name: by name one runtime drops all tags and another only one. Without an answer of
    the runtime nothing is ready."""
    node = Node()
    stage = node.images()
    assert stage.present(UNUSED)
    stage.check(UNUSED)
    asked = len(node.runtime.calls)
    stage.remove(UNUSED)
    assert node.runtime.calls[asked:] == [f"remove_image {image_id(1)}"]
    assert not stage.present(UNUSED)
    node.runtime.away = True
    with pytest.raises(RuntimeUnavailable):
        stage.check(UNUSED._replace(id=image_id(2)))


# ---- slow lists, slow looks


def test_the_list_of_containers_is_at_most_a_quarter_of_a_second_old() -> None:
    """A list that took 0.05 s is used for 0.2 s more, then read anew."""
    node = Node()
    stage = node.images()
    node.runtime.call_seconds = 0.05
    stage.check(UNUSED)
    for seconds, lists in ((0.05, 0), (0.15, 1)):
        node.runtime.calls.clear()
        node.clock.step(seconds)
        stage.check(UNUSED)
        assert node.asked() == lists


@pytest.mark.regression
def test_one_list_of_containers_serves_the_plan_and_the_first_look() -> None:
    """Lists of 9.9 s: nothing is listed twice before the first removal, as long as the last look
    holds; nor before the second, which comes at once. A second later containers and sandboxes are
    listed, once for the next two."""
    node = Node(**dict.fromkeys(LISTS, 9.9))
    stage = node.images(pod_start_seconds=1.0)
    assert node.results(stage, 1, 3) == [Result.REMOVED] * 2
    node.clock.step(1.0)
    assert node.results(stage, 4, 5) == [Result.REMOVED] * 2
    calls = [call.split()[0] for call in node.runtime.calls if not call.startswith("image_status")]
    removals = ["remove_image"] * 2
    assert calls == [*LISTS, *removals, *LISTS[1:], *removals]


@pytest.mark.regression
@pytest.mark.parametrize("what", ["looks at directories", "calls", "unreadable directories"])
def test_what_is_slower_than_a_list_may_be_old_keeps_no_image(what: str) -> None:
    """1.1 s each, ImageStatus too: that does not make the list too old, as the last look covers all
    of it; where no directory can be read nothing does."""

    class Unreadable(MemoryPods):
        """Directories of which nothing is known."""

        def pod_directories(self, since: float | None = None) -> None:  # type: ignore[override]
            """Nothing."""

    node = Node()
    if what == "looks at directories":
        node.pods.on_look = lambda: node.clock.step(1.1)
    elif what == "calls":
        node.runtime.call_seconds = 1.1
    else:
        node.pods = Unreadable()
        node.runtime.slow["list_pod_sandboxes"] = 1.1
    readable = what != "unreadable directories"
    stage = node.images(pod_start_seconds=1.0)
    assert node.results(stage, 1, 3) == [Result.REMOVED if readable else Result.FAILED] * 2
    assert len(node.runtime.images) == (8 if readable else 10)


# ---- pods and containers that begin beside a removal


@pytest.mark.regression
@pytest.mark.parametrize("uid", ["uid-old", "uid-new"])
def test_a_container_that_begins_after_the_list_keeps_its_image(uid: str) -> None:
    """The next container of a pod that has run for an hour, as well as the first one of a new
    pod."""
    node = Node(list_containers=0.3)
    stage = node.images()
    node.on_status(1, lambda: node.runs(uid, "next", 1))
    assert node.results(stage, 1) == [Result.IN_USE]
    assert node.results(stage, 3) == [Result.REMOVED]


@pytest.mark.regression
def test_a_directory_that_is_touched_again_and_again_discards_no_list() -> None:
    """All of its containers are listed: it says nothing, and the list of the plan serves all."""
    node = Node()
    stage, lists = node.images(), node.asked()
    for number in range(3, 11):
        node.on_status(number, lambda: node.pods.begun.update({"uid-touched": node.clock.wall()}))
        assert node.results(stage, number) == [Result.REMOVED]
    assert node.asked() == lists


@pytest.mark.regression
@pytest.mark.parametrize("hold_off_seconds", [0.0, 1.0])
def test_where_containers_keep_beginning_images_go_by_a_list_of_their_own(
    hold_off_seconds: float,
) -> None:
    """One begins with every list, and is listed with the next: each image is stopped by the last
    look once."""
    node = Node(list_containers=0.3)
    stage, lists = node.images(hold_off_seconds), node.asked()
    node.runtime.on_call["list_containers"] = lambda: node.runs(f"uid-{node.asked()}", "app")
    outcomes = [node.carried_out(stage, number)[0] for number in range(3, 11)]
    assert {outcome.result for outcome in outcomes} == {Result.REMOVED}
    assert outcomes[0].duration_seconds < 5.0
    assert node.asked() - lists <= 4 * len(outcomes)


@pytest.mark.regression
def test_where_containers_keep_beginning_a_list_that_is_too_old_is_not_enough() -> None:
    """Sandboxes take 1.5 s after the containers: the last look has stopped the image often enough,
    and sees one more that begins meanwhile. It is that of the image."""
    node = Node(list_containers=0.3, list_pod_sandboxes=1.5)
    stage, asked = node.images(1.0), [0]

    def begins() -> None:
        asked[0] += 1
        node.runs(f"uid-{asked[0]}", "app", 3 if asked[0] == 4 else 2)

    node.runtime.on_call["list_pod_sandboxes"] = begins
    begins()
    assert node.results(stage, 3) != [Result.REMOVED]
    assert asked[0] >= 4
    assert image_id(3) in node.runtime.images


def test_what_cannot_be_checked_for_containers_that_begin_fails_alone() -> None:
    """Within the patience the last look stops an image twenty times; that ends no stage."""
    node = Node()
    stage = node.images()
    node.on_status(3, lambda: node.runs(f"uid-{node.made}", "app"))
    (outcome,) = node.carried_out(stage, 3)
    assert outcome.result is Result.FAILED
    assert "after the last container began" in outcome.error
    assert node.results(stage, 4) == [Result.REMOVED]
