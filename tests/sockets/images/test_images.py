"""Which images never go: the runtime removes an image in use without a question, so every guard is
the agent's.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from eviction.drill.embedded_node import age_directories
from eviction.drill.runtime import Image
from eviction.engine.node import Node
from reclaim.cri import cri_pb2 as pb
from reclaim.images.records import ImageRecords
from reclaim.types import ImageRecord
from signals.types import Signal
from tests.nodes.dialects import CONTAINERD_1_6, CONTAINERD_2, CRI_O_1_28
from tests.nodes.dialects import Dialect as Rules
from tests.nodes.faults import Delay, Hang
from tests.nodes.full_runtime import FullRuntime
from tests.nodes.interrupting_server import BetweenReadings, InterruptingServer
from tests.nodes.later import Ahead
from tests.nodes.small_node import (
    AN_HOUR,
    EVERYTHING,
    IMAGES,
    LONGEST_SECONDS,
    MIB,
    Pod,
    SmallNode,
    reason_of,
    relieve,
    result_of,
)
from tests.rows import rows
from tests.sockets.conftest import SmallNodeFactory
from tests.sockets.kubelet_server import KubeletServer, answer, pod_list
from tests.sockets.passes import fault, interrupted, reworded

OLD, MODEL, LATER, KEPT = (
    f"registry.example/{name}:1" for name in ("old", "model", "later", "kept")
)
# a digest that nobody has, behind a tag that has moved to another image
LOST = "registry.example/team/app:1@sha256:" + "e" * 64


def listed(small: SmallNode, image_id: str) -> Any:
    """An image as the runtime lists it."""
    images = small.runtime.answer(pb.ListImagesRequest()).images
    return next(each for each in images if image_id.endswith(each.id))


def saying(**fields: str) -> Callable[[Any], None]:
    """A list that says no more of any container's image than this."""

    def reword(answer: Any) -> None:
        for item in answer.containers:
            item.image_id, item.image_ref = fields.get("image_id", ""), fields.get("image_ref", "")
            item.image.image = fields.get("image", "")
            item.image.user_specified_image = fields.get("user_specified_image", "")

    return reword


# ---- in use


@rows("""
    field                | says                               | what
    image_id             | {id}                               | an id
    image_ref            | {id}                               | where image_id is empty
    image_ref            | {bare}                             | without its algorithm
    image                | {bare:.12}                         | shortened
    image_ref            | docker.io/library/busybox@{digest} | a repository digest
    image_ref            | mirror.example/x@{digest}          | under another name
    image_ref            | busybox                            | a tag
    image                | registry.example/tools:1           | the other tag
    user_specified_image | busybox                            | what was asked for
    image                | busybox:1@{digest}                 | with tag and digest
""")
def test_an_image_is_in_use_however_a_container_names_it(
    small_node: SmallNode, field: str, says: str
) -> None:
    """Runtimes put the image of a container, running or exited, into different fields, as an id, a
    digest or a name; all of them count."""
    busybox = small_node.add_image("busybox", tags=("busybox", "registry.example/tools:1"))
    pod = small_node.run_pod("web")
    (small_node.run if len(says) % 2 else small_node.exited)(pod, busybox)
    digest = listed(small_node, busybox).repo_digests[0].partition("@")[2]
    reference = says.format(id=busybox, bare=busybox.removeprefix("sha256:"), digest=digest)
    record = reworded(small_node, EVERYTHING, ListContainers=saying(**{field: reference}))
    assert busybox in small_node.images()
    assert reason_of(record, busybox) == "in_use"
    assert small_node.app_id in small_node.removed("image"), "and what is not in use goes"


def mounting(small: SmallNode, image: str, pod: Pod | None = None, *, starts: bool = True) -> str:
    """A container that mounts an image as a volume: only its status names it. Without a call over
    the socket."""
    mount = pb.Mount(container_path="/data", image=pb.ImageSpec(image=image))
    container = small.create(pod or small.run_pod("app"), mounts=[mount])
    if starts:
        small.start(container)
    return container


@pytest.mark.parametrize("lie", ["", "Pretend", "Fail NOT_FOUND gone"])
def test_an_image_that_is_mounted_as_a_volume_is_in_use(small_node: SmallNode, lie: str) -> None:
    """Of a container in any state. A status that says nothing unmounts nothing, and is not
    remembered."""
    volume, exited = small_node.add_image(MODEL), small_node.add_image(LATER)
    mounting(small_node, volume, starts=False)
    small_node.runtime.exit_container(mounting(small_node, exited, small_node.run_pod("over")))
    node = small_node.node()
    if lie:
        small_node.failpoints["ContainerStatus"] = fault(lie, times=1)
    relieve(node, IMAGES)
    record = relieve(node, EVERYTHING)
    assert {volume, exited} <= small_node.images()
    assert reason_of(record, volume) == reason_of(record, exited) == "in_use"


def test_an_answer_by_tag_to_a_question_for_a_digest_is_no_answer(small_node: SmallNode) -> None:
    """A runtime that strips the digest and finds the tag has not said which image the container
    uses: none goes."""
    newer, own = (
        small_node.add_image(f"registry.example/{name}:1") for name in ("team/app", "own")
    )
    small_node.run(small_node.run_pod("web"), own)
    by_tag = listed(small_node, newer)

    def answer_by_tag(answer: Any) -> None:
        if not answer.HasField("image"):
            answer.image.CopyFrom(by_tag)

    names = saying(image_ref=LOST)
    changes = {"ListContainers": names, "ImageStatus": answer_by_tag}
    record = reworded(small_node, IMAGES, **changes)
    assert small_node.removed("image") == []
    assert reason_of(record, own) == "unresolved_image"


@pytest.mark.parametrize("rules", [CONTAINERD_1_6, CRI_O_1_28], ids=["containerd", "cri-o"])
def test_an_image_of_which_only_the_list_lost_the_digest_is_asked_for(
    make_small_node: SmallNodeFactory, rules: Rules
) -> None:
    """Its tag is on another image by now, and no list names it by a digest; asked for that, the
    runtime finds it."""
    small = make_small_node(dialect=rules)
    own, newer = (small.add_image(f"registry.example/{name}:1") for name in ("team/app", "newer"))
    (digest,) = listed(small, own).repo_digests
    small.run(small.run_pod("web"), own)
    small.runtime.tag_image(newer, "registry.example/team/app:1")

    def unlist(answer: Any) -> None:
        for each in answer.images:
            if own.endswith(each.id):
                del each.repo_digests[:]

    reworded(small, IMAGES, ListContainers=saying(image_ref=digest), ListImages=unlist)
    assert own in small.images()
    assert newer in small.removed("image")


# ---- what happens beside a pass


@rows("""
    happens          | reason        | what
    run              | in_use        | a pod runs it
    create           | in_use        | a container is made of it
    tag as kept      | keep_list     | it is on the keep list
    pin              | pinned        | it is pinned
    tag as sandboxes | sandbox_image | it is the sandbox image
""")
def test_an_image_whose_pod_starts_before_its_removal_is_kept(
    make_small_node: SmallNodeFactory, happens: str, reason: str
) -> None:
    """The containers are listed again right before each removal, and the image is asked for: what
    has happened since the plan, while another removal took its time, counts."""
    small = make_small_node(pins_sandbox_image=reason != "sandbox_image")
    first, second = small.add_images(2)
    small.run(small.run_pod("app"))
    clock = Ahead()

    def meanwhile() -> None:
        match happens:
            case "run":
                small.run(small.run_pod("web"), second)
            case "create":
                small.create(small.run_pod("web"), second)
            case "pin":
                small.add_image("registry.example/old/1:1", pinned=True)
            case _:
                name = KEPT if happens == "tag as kept" else small.runtime.sandbox_image
                small.runtime.tag_image(second, name)
        clock.step(5.0)

    node = small.node(keepImages=[KEPT], clock=clock)
    record = interrupted(small, node, IMAGES, "RemoveImage", meanwhile)
    assert small.removed("image") == [first]
    assert reason_of(record, second) == reason


@pytest.mark.parametrize("sees", ["the directory", "the sandbox", "3 seconds of nothing"])
def test_images_wait_for_a_pod_that_is_being_made(small_node: SmallNode, sees: str) -> None:
    """Nothing shows yet which image it will use: none is removed until it has had time to use it.
    When its sandbox takes 3 s, the patience of a pass is used up; with minutes left nothing is given
    up."""
    used, unused = small_node.add_images(2)
    settled = small_node.run_pod("app")
    small_node.run(settled)
    small_node.runtime.age(settled.sandbox_id, 60.0)
    node = small_node.node(holdOffForNewPods="1s")
    pod = small_node.run_pod("web") if sees == "the sandbox" else None
    if sees == "3 seconds of nothing":
        small_node.failpoints["RunPodSandbox"] = Delay(3.0, times=1)
    small_node.admit("uid-web")
    for uid in ("uid-app",) if pod is None else ("uid-app", "uid-web"):
        os.utime(small_node.root_directory / "pods" / uid, (0, 0))
    asked = small_node.failpoints.calls["ListPodSandbox"]
    with small_node.relieving(node, IMAGES) as going:
        # of the plan, and right before the first removal
        small_node.wait_for("ListPodSandbox", asked + 2)
        running = small_node.run(pod or small_node.run_pod("web"), used)
        record = going.result()
    assert small_node.state(running) == pb.CONTAINER_RUNNING
    assert small_node.removed("image") == [unused]
    assert result_of(record, used) == "in_use"


def test_the_kubelet_is_asked_again_before_a_removal(small_node: SmallNode) -> None:
    """The pod is listed while the first of two removals hangs for longer than a list is fresh: the
    second stays, which is an image volume of a pod whose own container is not made."""
    first, second = small_node.add_image(OLD), small_node.add_image(MODEL)
    small_node.run(small_node.run_pod("app"))
    clock, volumes = Ahead(), [{"name": "model", "image": {"reference": MODEL}}]
    annotations = {"kubernetes.io/config.source": "api"}
    pod = {
        "metadata": {"uid": "uid-new", "annotations": annotations},
        "spec": {"containers": [{"image": LATER}], "volumes": volumes},
        "status": {"phase": "Pending"},
    }
    with KubeletServer(answer(pod_list())) as kubelet:

        def lists_another() -> None:
            kubelet.script = [answer(pod_list(pod))]
            clock.step(5.0)

        node = small_node.node(kubeletEndpoint=kubelet.url, clock=clock)
        record = interrupted(small_node, node, IMAGES, "RemoveImage", lists_another)
    assert small_node.removed("image") == [first]
    assert reason_of(record, second) == "in_use"


# ---- the sandbox image


@rows("""
    known            | reason                | what
    reports          | sandbox_image         | configured, not pinned
    pins             | pinned                | pinned, not configured
    pins reports pod | sandbox_image         | all three
    pod              | sandbox_image         | only a pod
    -                | sandbox_image_unknown | no source
""")
def test_the_sandbox_image_is_kept_and_a_new_pod_starts_after_a_purge(
    make_small_node: SmallNodeFactory, known: str, reason: str
) -> None:
    """Without the sandbox image no pod starts, so when nothing says which it is, no image goes at
    all; a pin on another image does not."""
    small = make_small_node(
        pins_sandbox_image="pins" in known, reports_sandbox_image="reports" in known
    )
    old = small.add_images(2)
    small.add_image("registry.example/preloaded:1", pinned=True)
    if "pod" in known:
        small.run(small.run_pod("web"))
    record = relieve(small.node(), EVERYTHING)
    assert reason_of(record, small.pause_id) == reason
    assert set(old) & set(small.removed("image")) == (set() if known == "-" else set(old))
    assert known != "-" or {reason_of(record, each) for each in old} == {reason}
    small.run(small.run_pod("new"), small.add_image("registry.example/new:1"))


def test_the_sandbox_image_is_known_by_what_its_status_says(
    make_small_node: SmallNodeFactory,
) -> None:
    """A runtime may be configured with a name that its own image list spells in full."""
    small = make_small_node(pins_sandbox_image=False)
    pause = small.runtime.add_image(["pause:3"], [])

    def reword(answer: Any) -> None:
        answer.info["config"] = '{"sandboxImage": "pause:3"}'

    record = reworded(small, IMAGES, Status=reword)
    assert reason_of(record, pause) == "sandbox_image"


@rows("""
    silence                  | times | pinned | asked | what
    Hang                     |       | yes    | 1     | its shim hangs, and the runtime waits for it
    Fail UNKNOWN no metadata | 1     | yes    | 3     | an error
    Hang                     |       |        | 1     | nothing else says which image sandboxes need
""")
def test_a_sandbox_that_does_not_answer_does_not_keep_all_images(
    small_node: SmallNode, silence: str, times: int | None, pinned: bool, asked: int
) -> None:
    """Where the sandbox image is pinned: unused images go, and the silent sandbox is not asked again
    before each removal, nor do the questions about others end."""
    images = small_node.add_images(3)
    for number in range(3):
        small_node.run(small_node.run_pod(f"web-{number}"))
    rules = small_node.runtime.dialect
    small_node.runtime.dialect = replace(rules, pins_sandbox_image=pinned)
    small_node.failpoints["PodSandboxStatus"] = fault(silence, times)
    record = relieve(small_node.node(read_deadline_seconds=2.0), IMAGES)
    assert small_node.removed() == (images if pinned else [])
    assert small_node.failpoints.calls["PodSandboxStatus"] == asked
    failed = "PodSandboxStatus failed with DEADLINE_EXCEEDED"
    assert any(failed in error for error in record.errors) is not pinned


# ---- ages


@pytest.mark.parametrize("seen", ["by a detection", "by no answer", "when verified", "when parked"])
def test_an_image_that_comes_again_starts_a_new_age(small_node: SmallNode, seen: str) -> None:
    """Removed and pulled again it has the same id, and must not inherit the age of the old one:
    whether something else removed it; or the question after its removal was not answered, found it
    there again, or came late, when lists in between had seen it once more."""
    image = small_node.add_image(OLD)
    small_node.run(small_node.run_pod("app"))
    node = small_node.node(removalPatience="500ms" if seen == "when parked" else "1m")
    node.detection.images()
    began = node.clock.monotonic()
    match seen:
        case "by a detection":
            small_node.runtime.answer(pb.RemoveImageRequest(image=pb.ImageSpec(image=image)))
            node.detection.images()
        case "by no answer":
            error = fault("Fail INTERNAL", times=1)
            small_node.failpoints.begin("ImageStatus", error, from_call=2)
            assert result_of(relieve(node, IMAGES), image) == "failed"
        case "when verified":
            again = partial(small_node.add_image, OLD)
            interrupted(small_node, node, IMAGES, "ImageStatus", again, call=2)
        case _:
            small_node.failpoints["RemoveImage"] = Hang(times=1)
            assert result_of(relieve(node, IMAGES), image) == "parked"
            relieve(node, IMAGES)
            del small_node.failpoints["RemoveImage"]
            assert node.owner.drained(LONGEST_SECONDS)
    small_node.add_image(OLD)
    assert small_node.removed("image") == [image]
    assert reason_of(relieve(node, IMAGES), image) == "too_young"
    assert node.records.records[image].first_detected >= began


def test_after_a_restart_everything_is_young_and_nothing_is_purged(small_node: SmallNode) -> None:
    """Records that are lost make images young, never ancient; with a minimum age of 0 s one may go
    at first sight, though the runtime dates it in the future."""
    old = small_node.add_images(3)
    record = relieve(small_node.node(records=ImageRecords()), IMAGES)
    assert small_node.removed() == []
    assert {reason_of(record, each) for each in (*old, small_node.app_id)} == {"too_young"}
    for each in old:
        small_node.runtime.age(each, -3600.0)
    relieve(small_node.node(records=ImageRecords(), imageMinimumGCAge="0s"), IMAGES)
    assert set(small_node.removed()) == {*old, small_node.app_id}


# ---- what the kubelet did not pull

WENT = "; nothing else was enough, so 1 image went that the kubelet had not pulled"


def node_with(small: SmallNode, side_loaded: str, above: int, **options: object) -> Node:
    """Relieved when so many MiB more are free. The side-loaded image was used longest ago."""
    known = {each: ImageRecord(first, first + 2.0) for each, first in small.first_detected.items()}
    known[side_loaded] = replace(
        known[side_loaded], last_used=time.monotonic() - 3700.0, pulled=False
    )
    records = ImageRecords(seed=known)
    return small.node(Signal.NODEFS_AVAILABLE, above=above * MIB, records=records, **options)


@rows("""
    above | keep  | asked   | goes            | what
    7     | auto  |         | first last      | something else is enough
    10    | auto  |         | first last side | nothing else is
    1     | true  | all     | first last      | never
    1     | false | all     | side first last | like others
    10    | auto  | dry-run | first last side | it is planned, and no age is forgotten
""")
def test_when_an_image_goes_that_the_kubelet_did_not_pull(
    small_node: SmallNode, above: int, keep: str, asked: str, goes: str
) -> None:
    """After everything else of the row, although it was used longest ago, and only where that is
    not enough. Or, as `keepImagesNotPulled` says, never, even on request, or like others."""
    images = dict(zip(("first", "side", "last"), small_node.add_images(3), strict=True))
    side, dry_run = images["side"], asked == "dry-run"
    small_node.run(small_node.run_pod("web"))
    keeps = {"true": True, "false": False}.get(keep, "auto")
    node = node_with(small_node, side, above, keepImagesNotPulled=keeps, dry_run=dry_run)
    records = node.records
    ages = [records.records[each].first_detected for each in images.values()]
    record = relieve(node, EVERYTHING if asked == "all" else None)
    planned = [each.verdict.id for each in record.removals]
    assert planned == [images[name] for name in goes.split()]
    assert small_node.removed() == ([] if dry_run else planned)
    if dry_run:
        assert [records.records[each].first_detected for each in images.values()] == ages
        assert records.gone == {}
    assert reason_of(record, side) == ("unused" if keep == "false" else "not_pulled")
    assert record.reason.endswith(WENT) is (goes == "first last side")
    ids = [outcome.verdict.id for outcome in (*record.removals, *record.kept)]
    assert len(ids) == len(set(ids))


# ---- a runtime that is replaced by another version while the agent runs

# containerd has image volumes since 2.1, and only the status of a container names such an image;
# containers survive the replacement of their runtime, and so does the agent
VERSIONS = {
    "1.6": CONTAINERD_1_6,
    "1.7": replace(CONTAINERD_2, runtime_version="1.7.27"),
    "2.0": replace(CONTAINERD_2, runtime_version="2.0.4"),
    "2.1": CONTAINERD_2,
}


def swap(small: SmallNode, version: str) -> None:
    """Another version, which has the same objects and the same socket."""
    small.server.stop()
    small.runtime.dialect = VERSIONS[version]
    small.server.start()


@rows("""
    old | new | asked
    1.6 | 2.1 | yes
    1.7 | 2.1 | yes
    2.0 | 2.1 | yes
    2.1 | 1.7 | yes
    2.1 | 2.0 |
""")
def test_an_image_volume_is_kept_when_the_runtime_was_replaced(
    make_small_node: SmallNodeFactory, old: str, new: str, asked: bool
) -> None:
    """What a runtime can do is not remembered beyond its connection; taken back to a version
    without volumes, what is known of a container that runs on stays. 2.0 mounts no images, but it
    knows the field, so even a cold start sees what 2.1 has made."""
    small = make_small_node(dialect=VERSIONS[old])
    data = small.add_image(MODEL)
    pod = small.run_pod("web")
    small.run(pod)
    node = small.node()
    if old == "2.1":
        mounting(small, MODEL, pod)
    if asked:
        node.detection.images()
    swap(small, new)
    if new == "2.1":
        mounting(small, MODEL, pod)
    record = relieve(node, IMAGES)
    assert data in small.images()
    assert reason_of(record, data) == "in_use"


@rows("""
    method         | call | changes           | what
    ListImages     | 1    | the version       | lists are read
    ListContainers | 1    | the version       | they are read half
    ListPodSandbox | 1    | the version       | the last of them is read
    ImageStatus    | 1    | the version       | an image is looked at
    ListPodSandbox | 2    | the version       | right before the first removal
    ListPodSandbox | 2    | the sandbox image | which image new pods need
""")
def test_a_runtime_that_is_replaced_during_a_pass_ends_its_removal_of_images(
    make_small_node: SmallNodeFactory, method: str, call: str, changes: str
) -> None:
    """What was asked before does not hold for what is listed after: whose image is mounted, and
    which one new pods need. The next pass goes by the new runtime alone."""
    small = make_small_node(
        dialect=VERSIONS["1.7"], pins_sandbox_image=False, reports_sandbox_image=True
    )
    data = small.add_image(MODEL)
    pod = small.run_pod("web")
    if call == "1":  # else it has no container yet, and removals wait
        small.run(pod)
    node = small.node(holdOffForNewPods="1s" if call == "2" else "0s")
    node.detection.images()

    def replaced() -> None:
        small.server.stop()
        if changes == "the version":
            small.runtime.dialect = CONTAINERD_2
            mounting(small, MODEL, pod)
        else:
            small.runtime.sandbox_image = MODEL
        small.server.start()

    interrupted(small, node, IMAGES, method, replaced, call=int(call))
    assert data in small.images()
    small.run(pod, name="next")
    reason = "in_use" if changes == "the version" else "sandbox_image"
    assert reason_of(relieve(node, IMAGES), data) == reason


# ---- between two calls of a pass

UNUSED = 4
FIRST_CHECK, CALLS = 9, 16  # of the calls that only ask: that of the first image, and all of a pass


class JudgingRuntime(FullRuntime):
    """A runtime that knows which images were removed while a container used them: `harmed`."""

    def __init__(self, images_root: str, **options: Any) -> None:
        super().__init__(images_root, **options)
        self.harmed: list[str] = []

    def _drop_image(self, image: Image) -> None:
        users = [each for each in self._containers.values() if each.image_id == image.id]
        if users:
            self.harmed.append(f"{list(image.repo_tags)}, which {len(users)} containers used")
        super()._drop_image(image)


def old_pod(small: SmallNode, name: str) -> Pod:
    """A pod that has run for an hour, with a container that has ended."""
    pod = small.run_pod(name)
    container = small.exited(pod, name="init")
    for made in (pod.sandbox_id, container):
        small.runtime.age(made, AN_HOUR)
    then = time.time() - 2 * AN_HOUR
    age_directories(str(small.root_directory / "pods" / pod.uid), then)
    return pod


def harmed(small: SmallNode) -> list[str]:
    """What has gone although a container used it."""
    assert isinstance(small.runtime, JudgingRuntime)
    return small.runtime.harmed


class Begins:
    """What begins, of the image that would go next.

    `image`: which it was; empty: nothing has begun.
    """

    def __init__(self, small: SmallNode, *, old: bool) -> None:
        self._small = small
        self._old = old_pod(small, "old") if old else None
        old_pod(small, "standing")
        self._unused = small.add_images(UNUSED, MIB // 4)
        self.image = ""

    def __call__(self) -> None:
        there = self._small.images()
        number = next((number for number, each in enumerate(self._unused) if each in there), 0)
        name = f"registry.example/old/{number}:1"
        if self._unused[number] not in there:
            self._small.add_image(name, MIB // 4)
        pod = self._old or self._small.run_pod("new")
        self._small.run(pod, name, "next")
        self.image = self._unused[number]


@pytest.mark.parametrize("call", range(1, CALLS + 1))
@pytest.mark.parametrize("begin", ["a new pod", "an old pod", "a call of 30 s"])
def test_what_begins_between_two_calls_of_a_pass_keeps_its_image(
    make_small_node: SmallNodeFactory, call: int, begin: str
) -> None:
    """Only the last look tells; of an old pod, only the directory of that container. Or the pod
    begins in the middle of a pass, and that call takes 30 s: no image goes by an old list, and
    others go."""
    small = make_small_node(runtime=JudgingRuntime, server=InterruptingServer)
    clock, begins = Ahead(), Begins(small, old=begin == "an old pod")
    slow = begin == "a call of 30 s"
    steps: dict[int, Callable[[], object]] = {call: begins}
    if slow:

        def takes_long() -> None:
            clock.step(30.0)
            if call == FIRST_CHECK:
                begins()

        steps = {FIRST_CHECK: begins, call: takes_long}
    node = small.node(clock=clock)
    assert isinstance(small.server, InterruptingServer)
    small.server.before = between = BetweenReadings(steps)
    relieve(node, IMAGES)
    assert begins.image in small.images()
    assert harmed(small) == []
    assert slow or between.asked >= CALLS
    assert not slow or small.removed("image")
