"""Which images never go: the runtime removes an image in use without a question, so every guard is
the agent's.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from eviction.drill.private_mounts import unmount
from eviction.engine.effects import Request
from eviction.engine.node import Node
from eviction.records.state_file import Moment, RecordFile, current_machine_id, records_json
from eviction.types import Extent
from reclaim.cri import cri_pb2 as pb
from reclaim.images.records import ImageRecords
from reclaim.types import ImageRecord
from signals.clock import SystemClock
from signals.types import Signal
from tests.nodes.dialects import CONTAINERD_1_6, CONTAINERD_2, CRI_O_1_28, CRI_O_1_31
from tests.nodes.dialects import Dialect as Rules
from tests.nodes.distortions import Distort, Distortion
from tests.nodes.faults import Fail, Failpoint, Hang, Pretend
from tests.nodes.later import Ahead
from tests.nodes.method_faults import MethodFault, When, arm
from tests.nodes.small_node import (
    EVERYTHING,
    IMAGES,
    LONGEST_SECONDS,
    MIB,
    Pod,
    SmallNode,
    outcome_of,
    reason_of,
    relieve,
    result_of,
)
from tests.pure.values import KIB, SteppedClock, image_id
from tests.reclaimd_process import Daemon, came_true
from tests.rows import rows
from tests.sockets.conftest import SmallNodeFactory
from tests.sockets.kubelet_server import KubeletServer, answer, pod_list
from tests.sockets.mounts import mounted_tmpfs
from tests.sockets.passes import interrupted, reworded

A_DAY = 86_400.0
OLD, MODEL, LATER, KEPT = (
    f"registry.example/{name}:1" for name in ("old", "model", "later", "kept")
)
# a digest that nobody has, behind a tag that has moved to another image
LOST = "registry.example/team/app@sha256:" + "e" * 64


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
    small_node: SmallNode, tmp_path: Path, field: str, says: str
) -> None:
    """Runtimes put the image of a container, running or exited, into different fields, as an id, a
    digest or a name; all of them count."""
    busybox = small_node.add_image("busybox", tags=("busybox", "registry.example/tools:1"))
    pod = small_node.run_pod("web")
    (small_node.run if len(says) % 2 else small_node.exited)(pod, busybox)
    digest = listed(small_node, busybox).repo_digests[0].partition("@")[2]
    reference = says.format(id=busybox, bare=busybox.removeprefix("sha256:"), digest=digest)
    record = reworded(small_node, tmp_path, EVERYTHING, ListContainers=saying(**{field: reference}))
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


@pytest.mark.regression
@pytest.mark.parametrize(
    "lie",
    [None, Pretend(times=1), Fail(grpc.StatusCode.NOT_FOUND, "gone", times=1)],
    ids=["told", "nothing is told", "gone is told"],
)
def test_an_image_that_is_mounted_as_a_volume_is_in_use(
    small_node: SmallNode, lie: Failpoint | None
) -> None:
    """Of a container in any state. A status that says nothing unmounts nothing, and is not
    remembered."""
    volume, exited = small_node.add_image(MODEL), small_node.add_image(LATER)
    mounting(small_node, volume, starts=False)
    small_node.runtime.exit_container(mounting(small_node, exited, small_node.run_pod("over")))
    node = small_node.node()
    if lie:
        small_node.failpoints["ContainerStatus"] = lie
    relieve(node, IMAGES)
    record = relieve(node, EVERYTHING)
    assert {volume, exited} <= small_node.images()
    assert reason_of(record, volume) == reason_of(record, exited) == "in_use"


@pytest.mark.regression
@pytest.mark.parametrize("said", ["", "registry.example/renamed:1"])
def test_a_container_of_which_nothing_says_its_image_stops_all_removal_of_images(
    small_node: SmallNode, tmp_path: Path, said: str
) -> None:
    """Nothing is assumed unused by guess: while one container's image is a riddle, as is a tag that
    the runtime no longer resolves, every image stays."""
    old = small_node.add_images(2)
    small_node.run(small_node.run_pod("web"))
    silence = saying(image_ref=said, image=said)
    record = reworded(small_node, tmp_path, EVERYTHING, ListContainers=silence)
    assert small_node.removed("image") == []
    assert {reason_of(record, each) for each in old} == {"unresolved_image"}


@pytest.mark.regression
@pytest.mark.parametrize("reference", [LOST, LOST.replace("@", ":1@")])
def test_an_image_without_a_name_stays_while_a_container_names_a_digest_that_nobody_knows(
    make_small_node: SmallNodeFactory, tmp_path: Path, reference: str
) -> None:
    """The tag has moved to a newer image, and the container's own has lost every name: it must not
    go by the tag, and a runtime that refuses is no guard."""
    small = make_small_node(dialect=CRI_O_1_28)
    own = small.add_image("stranded", MIB, tags=())
    tag = LOST.replace("@", ":1@").partition("@")[0]
    newer = small.add_image(tag, tags=(tag, tag[:-2]))
    small.run(small.run_pod("web"), own)
    record = reworded(small, tmp_path, IMAGES, ListContainers=saying(image_ref=reference))
    assert own in small.images()
    assert reason_of(record, own) == "in_use"
    assert newer in small.removed("image"), "it has a digest of its own, which is another"
    assert small.failpoints.calls["RemoveImage"] == len(small.removed("image"))


@pytest.mark.regression
def test_an_answer_by_tag_to_a_question_for_a_digest_is_no_answer(
    small_node: SmallNode, tmp_path: Path
) -> None:
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

    record = reworded(
        small_node,
        tmp_path,
        IMAGES,
        ListContainers=saying(image_ref=LOST.replace("@", ":1@")),
        ImageStatus=answer_by_tag,
    )
    assert small_node.removed("image") == []
    assert reason_of(record, own) == "unresolved_image"


@pytest.mark.regression
@pytest.mark.parametrize("rules", [CONTAINERD_1_6, CRI_O_1_28], ids=["containerd", "cri-o"])
def test_an_image_of_which_only_the_list_lost_the_digest_is_asked_for(
    make_small_node: SmallNodeFactory, tmp_path: Path, rules: Rules
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

    reworded(small, tmp_path, IMAGES, ListContainers=saying(image_ref=digest), ListImages=unlist)
    assert own in small.images()
    assert newer in small.removed("image")


@pytest.mark.regression
def test_what_is_used_or_new_for_one_runtime_handler_stays_for_all(small_node: SmallNode) -> None:
    """The kubelet's RemoveImage carries the id only (getImageTuple), so it takes every entry. One
    image is used, one was just pulled for `kata`; another that is listed twice goes, by one
    call."""
    both, young = small_node.add_image(OLD), small_node.add_image(LATER)
    small_node.run(small_node.run_pod("web"))
    for each in (small_node.app_id, both, young):
        small_node.runtime.runtime_handlers[each] = ["kata"]
    seed = {
        each: ImageRecord(first, handlers=("",) if each == young else ("", "kata"))
        for each, first in small_node.first_detected.items()
    }
    record = relieve(small_node.node(records=ImageRecords(seed=seed)), IMAGES)
    assert small_node.removed("image") == [both]
    assert small_node.failpoints.calls["RemoveImage"] == 1
    assert (reason_of(record, small_node.app_id), reason_of(record, young)) == (
        "in_use",
        "too_young",
    )
    assert record.nominal_bytes >= 8 * MIB, "the size of each entry counts"


# ---- what happens beside a pass

Happens = Callable[[SmallNode, str], object]
BY_THEN: dict[str, tuple[Happens, str]] = {
    "a pod runs it": (lambda small, it: small.run(small.run_pod("web"), it), "in_use"),
    "a container is made of it": (
        lambda small, it: small.create(small.run_pod("web"), it),
        "in_use",
    ),
    "it is on the keep list": (lambda small, it: small.runtime.tag_image(it, KEPT), "keep_list"),
    "it is pinned": (
        lambda small, _: small.add_image("registry.example/old/1:1", pinned=True),
        "pinned",
    ),
    "it is the sandbox image": (
        lambda small, it: small.runtime.tag_image(it, small.runtime.sandbox_image),
        "sandbox_image",
    ),
}


@pytest.mark.regression
@pytest.mark.parametrize("what", BY_THEN)
def test_an_image_whose_pod_starts_before_its_removal_is_kept(
    make_small_node: SmallNodeFactory, what: str
) -> None:
    """The containers are listed again right before each removal, and the image is asked for: what
    has happened since the plan, while another removal took its time, counts."""
    happens, reason = BY_THEN[what]
    small = make_small_node(pins_sandbox_image=reason != "sandbox_image")
    first, second = small.add_images(2)
    small.run(small.run_pod("app"))
    clock = Ahead()

    def meanwhile() -> None:
        happens(small, second)
        clock.step(5.0)

    node = small.node(keepImages=[KEPT], clock=clock)
    record = interrupted(small, node, IMAGES, "RemoveImage", meanwhile)
    assert small.removed("image") == [first]
    assert reason_of(record, second) == reason


@pytest.mark.parametrize("method", ["ListImages", "ListContainers", "ListPodSandbox"])
def test_an_image_whose_pod_starts_while_the_lists_are_read_is_kept(
    small_node: SmallNode, method: str
) -> None:
    """Images are listed first and containers after them, so a container that starts in between is
    seen."""
    (image,) = small_node.add_images(1)
    node = small_node.node()
    node.locate()

    def starts() -> None:
        small_node.run(small_node.run_pod("web"), image)

    record = interrupted(small_node, node, IMAGES, method, starts)
    assert image in small_node.images()
    assert reason_of(record, image) == "in_use"


@pytest.mark.parametrize("sees", ["the directory", "the sandbox"])
def test_images_wait_for_a_pod_that_is_being_made(small_node: SmallNode, sees: str) -> None:
    """Nothing shows yet which image it will use: none is removed until it has had time to use it."""
    used, unused = small_node.add_images(2)
    settled = small_node.run_pod("app")
    small_node.run(settled)
    small_node.runtime.age(settled.sandbox_id, 60.0)
    node = small_node.node(holdOffForNewPods="1s")
    pod = small_node.run_pod("web") if sees == "the sandbox" else None
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


def told(uid: str, phase: str = "Pending") -> dict[str, Any]:
    """A pod whose init container runs: its image volume is pulled, its own container is not made."""
    return {
        "metadata": {"uid": uid, "annotations": {"kubernetes.io/config.source": "api"}},
        "spec": {
            "containers": [{"image": LATER}],
            "volumes": [{"name": "model", "image": {"reference": MODEL}}],
        },
        "status": {"phase": phase},
    }


@pytest.mark.regression
@pytest.mark.parametrize(
    ("phase", "goes"), [("Pending", False), ("Running", False), ("Succeeded", True)]
)
def test_images_of_a_pod_that_has_not_terminated_stay(
    small_node: SmallNode, phase: str, goes: bool
) -> None:
    """Beside a kubelet that tells its pods: the image volume, and the image of a container that is
    still to start."""
    needed = {small_node.add_image(name) for name in (MODEL, LATER)}
    old = small_node.add_image(OLD)
    init = small_node.run_pod("job")
    small_node.run(init)
    with KubeletServer(answer(pod_list(told(init.uid, phase)))) as kubelet:
        record = relieve(small_node.node(kubeletEndpoint=kubelet.url), IMAGES)
    assert old not in small_node.images()
    assert needed & small_node.images() == (set() if goes else needed)
    assert goes or {reason_of(record, each) for each in needed} == {"in_use"}


@pytest.mark.regression
def test_the_kubelet_is_asked_again_before_a_removal(small_node: SmallNode) -> None:
    """The pod is listed while the first of two removals hangs for longer than a list is fresh: the
    second stays."""
    first, second = small_node.add_image(OLD), small_node.add_image(MODEL)
    small_node.run(small_node.run_pod("app"))
    clock = Ahead()
    with KubeletServer(answer(pod_list())) as kubelet:

        def lists_another() -> None:
            kubelet.script = [answer(pod_list(told("uid-new")))]
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


@pytest.mark.regression
def test_the_sandbox_image_is_known_by_what_its_status_says(
    make_small_node: SmallNodeFactory, tmp_path: Path
) -> None:
    """A runtime may be configured with a name that its own image list spells in full; and a list
    that gives its name to another id is not believed, as the status of an image is asked by id
    right before its removal."""
    small = make_small_node(pins_sandbox_image=False)
    pause = small.runtime.add_image(["pause:3"], [])

    def reword(answer: Any) -> None:
        answer.info["config"] = '{"sandboxImage": "pause:3"}'

    record = reworded(small, tmp_path, IMAGES, Status=reword)
    assert reason_of(record, pause) == "sandbox_image"
    small = make_small_node()
    small.add_images(2)
    small.run(small.run_pod("web"))
    small.failpoints["ListImages"] = Distort(Distortion.ROTATED_IDS)
    relieve(small.node(), EVERYTHING)
    small.failpoints.clear()
    assert small.pause_id in small.images()
    small.run_pod("new")


@pytest.mark.regression
@pytest.mark.parametrize(
    ("silence", "pinned", "asked"),
    [
        pytest.param(Hang(), True, 1, id="its shim hangs, and the runtime waits for it"),
        pytest.param(Fail(grpc.StatusCode.UNKNOWN, "no metadata", times=1), True, 3, id="an error"),
        pytest.param(Hang(), False, 1, id="nothing else says which image sandboxes need"),
    ],
)
def test_a_sandbox_that_does_not_answer_does_not_keep_all_images(
    small_node: SmallNode, silence: Failpoint, pinned: bool, asked: int
) -> None:
    """Where the sandbox image is pinned: unused images go, and the silent sandbox is not asked again
    before each removal, nor do the questions about others end."""
    images = small_node.add_images(3)
    for number in range(3):
        small_node.run(small_node.run_pod(f"web-{number}"))
    rules = small_node.runtime.dialect
    small_node.runtime.dialect = replace(rules, pins_sandbox_image=pinned)
    small_node.failpoints["PodSandboxStatus"] = silence
    record = relieve(small_node.node(read_deadline_seconds=0.3), IMAGES)
    assert small_node.removed() == (images if pinned else [])
    assert small_node.failpoints.calls["PodSandboxStatus"] == asked
    failed = "PodSandboxStatus failed with DEADLINE_EXCEEDED"
    assert any(failed in error for error in record.errors) is not pinned


# ---- ages


def test_an_image_is_as_old_as_it_has_been_seen(small_node: SmallNode) -> None:
    """Just pulled is not unused: an image goes only when it has been known for the minimum age, 2
    minutes."""
    (image,) = small_node.add_images(1)
    clock = Ahead()
    node = small_node.node(clock=clock, records=ImageRecords())
    node.detection.images()
    clock.step(119.0)
    record = relieve(node, IMAGES)
    assert small_node.removed() == []
    assert reason_of(record, image) == "too_young"
    assert 0 < (outcome_of(record, image).verdict.eligible_in_seconds or 0) <= 1
    clock.step(2.0)
    relieve(node, IMAGES)
    assert image in small_node.removed("image")


def detected_between(small: SmallNode, node: Node, image: str) -> None:
    """Something else removes it, and a detection sees that."""
    small.runtime.answer(pb.RemoveImageRequest(image=pb.ImageSpec(image=image)))
    node.detection.images()
    small.add_image(OLD)


def unanswered(small: SmallNode, node: Node, image: str) -> None:
    """Its removal ends with a question that is not answered."""
    fault = Fail(grpc.StatusCode.INTERNAL, times=1)
    arm(small.failpoints, MethodFault("ImageStatus", fault, When(from_call=2)))
    assert result_of(relieve(node, IMAGES), image) == "failed"
    small.add_image(OLD)


def before_it_is_verified(small: SmallNode, node: Node, image: str) -> None:
    """It is there again when it is asked for after its removal."""
    interrupted(small, node, IMAGES, "ImageStatus", lambda: small.add_image(OLD), call=2)


def parked(small: SmallNode, node: Node, image: str) -> None:
    """Its removal is parked, and ends later; a list in between has seen it once more."""
    small.failpoints["RemoveImage"] = Hang(times=1)
    assert result_of(relieve(node, IMAGES), image) == "parked"
    relieve(node, IMAGES)
    del small.failpoints["RemoveImage"]
    assert node.owner.drained(LONGEST_SECONDS)
    small.add_image(OLD)


@pytest.mark.regression
@pytest.mark.parametrize("goes", [detected_between, unanswered, before_it_is_verified, parked])
def test_an_image_that_comes_again_starts_a_new_age(
    small_node: SmallNode, goes: Callable[[SmallNode, Node, str], None]
) -> None:
    """Removed and pulled again it has the same id, and must not inherit the age of the old one."""
    image = small_node.add_image(OLD)
    small_node.run(small_node.run_pod("app"))
    node = small_node.node(removalPatience="500ms")
    node.detection.images()
    began = node.clock.monotonic()
    goes(small_node, node, image)
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


@pytest.mark.regression
@pytest.mark.parametrize(
    "machine_id", ["another machine", current_machine_id()], ids=["other", "this"]
)
def test_a_node_with_the_state_file_of_another_machine_purges_nothing(
    small_node: SmallNode, tmp_path: Path, machine_id: str
) -> None:
    """Both were cloned from one disk image, and in the file every image is a day old. That of this
    machine counts."""
    old, path = small_node.add_images(3), tmp_path / "images.json"
    clock = SystemClock()
    then = Moment(clock.monotonic(), clock.wall(), "another boot", machine_id)
    records = dict.fromkeys((*old, small_node.app_id), ImageRecord(then.monotonic - A_DAY))
    path.write_bytes(records_json(records, then, {}))
    path.chmod(0o600)
    node = small_node.node(stateFile=str(path), records=ImageRecords(), clock=clock)
    problem = node.restore_image_records()
    relieve(node, IMAGES)
    assert bool(problem) is (small_node.removed() == []) is (machine_id == "another machine")


def test_an_image_without_a_name_is_removed_by_its_id(small_node: SmallNode) -> None:
    """An interrupted removal strands a record that has neither tag nor digest and pins its bytes for
    ever."""
    stranded = small_node.add_image("stranded", MIB, tags=())
    before = small_node.available()
    relieve(small_node.node(), IMAGES)
    assert stranded in small_node.removed("image")
    assert small_node.available() >= before + MIB


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


FAULTS: dict[str, Failpoint] = {
    "away": Fail(grpc.StatusCode.UNAVAILABLE, "restarting", times=1),
    "busy": Fail(grpc.StatusCode.UNKNOWN, "the snapshot is busy", times=1),
    "hangs": Hang(times=1),
}


@rows("""
    above | keep  | fault             | goes            | what
    7     | auto  | -                 | first last      | something else is enough
    10    | auto  | -                 | first last side | nothing else is
    1     | true  | -                 | first last      | never
    1     | false | -                 | side first last | like others
    10    | auto  | ImageStatus away  | -               | the runtime was away for a moment
    10    | auto  | ImageStatus busy  | last            | a check failed
    10    | auto  | RemoveImage busy  | last            | a removal failed
    10    | auto  | RemoveImage hangs | last            | a removal is not answered
""")
def test_when_an_image_goes_that_the_kubelet_did_not_pull(
    small_node: SmallNode, above: str, keep: str, fault: str, goes: str
) -> None:
    """After everything else of the row, although it was used longest ago, and only where that is
    not enough: not while another image may still go, is there and is not used. Or, as
    `keepImagesNotPulled` says, never, even on request, or like others."""
    images = dict(zip(("first", "side", "last"), small_node.add_images(3), strict=True))
    side = images["side"]
    small_node.run(small_node.run_pod("web"))
    method, _, how = fault.partition(" ")
    if how:
        small_node.failpoints[method] = FAULTS[how]
    keeps = {"true": True, "false": False}.get(keep, "auto")
    node = node_with(small_node, side, int(above), keepImagesNotPulled=keeps, removalPatience="1s")
    with small_node.relieving(node, EVERYTHING if above == "1" else None) as going:
        record = going.result()
        removed = [images[name] for name in goes.split() if name != "-"]
        assert small_node.removed() == removed
    assert reason_of(record, side) == ("unused" if keep == "false" else "not_pulled")
    assert record.reason.endswith(WENT) is (goes == "first last side")
    ids = [outcome.verdict.id for outcome in (*record.removals, *record.kept)]
    assert len(ids) == len(set(ids))


def test_it_goes_after_the_functions_that_follow_in_the_row(small_node: SmallNode) -> None:
    """A ballast is given up before it."""
    (side,) = small_node.add_images(1)
    small_node.run(small_node.run_pod("web"))
    ballast = small_node.disk / "ballast"
    ballast.write_bytes(b"x" * 8 * MIB)
    node = node_with(
        small_node,
        side,
        6,
        reclaimFunctions=[{"name": "ReleaseBallast", "file": str(ballast), "size": "8Mi"}],
        reclaimTable={"nodefs.available": ["DeleteUnusedImages", "ReleaseBallast"]},
    )
    record = relieve(node)
    assert (small_node.removed(), ballast.exists()) == ([], False)
    assert str(record.result) == "satisfied"


def test_a_dry_run_plans_it_last_and_forgets_no_age(small_node: SmallNode) -> None:
    """What it has planned to remove is listed once more for it, and is still there."""
    first, side, last = small_node.add_images(3)
    small_node.run(small_node.run_pod("web"))
    node = node_with(small_node, side, 10, dry_run=True)
    ages = [node.records.records[each].first_detected for each in (first, side, last)]
    record = relieve(node, Request(extent=Extent.ALL))
    assert [outcome.verdict.id for outcome in record.removals] == [first, last, side]
    assert [node.records.records[each].first_detected for each in (first, side, last)] == ages
    assert (small_node.removed(), node.records.gone) == ([], {})


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


@pytest.mark.regression
@pytest.mark.parametrize(
    ("old", "new", "asked"),
    [("1.6", "2.1", True), ("1.7", "2.1", True), ("2.0", "2.1", True), ("2.1", "1.7", True), ("2.1", "2.0", False)],
)  # fmt: skip
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


@pytest.mark.regression
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


@pytest.mark.regression
def test_a_running_daemon_keeps_an_image_volume_of_the_runtime_that_replaced_another(
    make_small_node: SmallNodeFactory, tmp_path: Path
) -> None:
    """The same in a daemon that has asked the old runtime, and relieves pressure on the new one."""
    small = make_small_node(dialect=VERSIONS["1.7"])
    data, old = small.add_image(MODEL), small.add_image(OLD)
    pod = small.run_pod("web")
    small.run(pod)
    records = tmp_path / "images.json"
    configuration = small.configuration(
        Signal.NODEFS_AVAILABLE, above=-8 * MIB, extent="all", stateFile=str(records)
    )
    with Daemon("--config", configuration) as daemon:
        assert came_true(records.exists), "it has listed the images of the old runtime"
        swap(small, "2.1")
        mounting(small, MODEL, pod)
        small.fill(9 * MIB)
        daemon.wait_for(lambda event: event.get("result") in ("satisfied", "not_enough"))
        assert daemon.stop() == 0
    assert old in small.removed("image")
    assert data in small.images()


def test_what_another_runtime_did_not_say_is_asked_again(make_small_node: SmallNodeFactory) -> None:
    """That a container mounts nothing is remembered of the runtime that has said it."""
    small = make_small_node(dialect=CRI_O_1_31)
    small.run(small.run_pod("web"))
    node = small.node()
    asked = []
    for version in ("", "", "2.1"):
        if version:
            swap(small, version)
        node.detection.images()
        asked.append(small.failpoints.calls["ContainerStatus"])
    assert asked == [asked[0], asked[0], asked[0] + 1]


# ---- the file of records

RECORDS = {image_id(number): ImageRecord(100.0, 900.0) for number in range(400)}  # some 70 KiB


def record_file(path: Path) -> RecordFile:
    """Of this boot."""
    return RecordFile(str(path), SteppedClock(), "boot-1")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A filesystem of 1 MiB and 16 inodes."""
    directory = tmp_path / "disk"
    mounted_tmpfs(str(directory), MIB, 16)
    yield directory
    unmount(str(directory))


@pytest.mark.parametrize("what", ["bytes", "inodes"])
def test_a_full_disk_is_a_warning_and_the_old_file_is_kept_whole(disk: Path, what: str) -> None:
    """With 0 bytes or 0 inodes free; nothing half-written stays behind, and loading still works.
    Once there is room again the next save saves."""
    path = disk / "images.json"
    file = record_file(path)
    assert file.save(RECORDS, {}) == ""
    before = path.read_bytes()
    with suppress(OSError), open(disk / "fill", "wb", buffering=0) as filling:
        for number in range(MIB):
            if what == "bytes":
                filling.write(b"x" * KIB)
            else:
                (disk / f"fill-{number}").touch()
    full = os.statvfs(disk)
    assert (full.f_bavail if what == "bytes" else full.f_favail) == 0
    warning = file.save(RECORDS | {image_id(1000): ImageRecord(1.0)}, {})
    assert f"the state file {path} cannot be saved: No space left on device" in warning
    assert path.read_bytes() == before
    assert ".images.json.new" not in os.listdir(disk)
    if what == "inodes":
        assert "No space left" in record_file(disk / "new" / "images.json").save(RECORDS, {})
    assert record_file(path).load().records.keys() == RECORDS.keys()
    for each in disk.glob("fill*"):
        each.unlink()
    assert file.save({}, {}) == ""
    assert record_file(path).load().records == {}


SAVER = """
import itertools, sys
from eviction.records.state_file import RecordFile
from reclaim.types import ImageRecord
from tests.pure.values import SteppedClock, image_id
file = RecordFile(sys.argv[1], SteppedClock(), "boot-1")
for turn in itertools.count():
    assert file.save({image_id(number): ImageRecord(float(turn)) for number in range(400)}, {}) == ""
    print(turn, flush=True)
"""


def test_a_kill_at_any_point_leaves_a_whole_file(tmp_path: Path) -> None:
    """Four savers that are killed at different moments: the next process reads all 400 records each
    time."""
    path = tmp_path / "images.json"
    for turn in range(4):
        with subprocess.Popen(
            [sys.executable, "-c", SAVER, str(path)], stdout=subprocess.PIPE
        ) as saver:
            assert saver.stdout is not None
            saver.stdout.readline()
            time.sleep(turn * 0.0015)
            saver.kill()
        loaded = record_file(path).load()
        assert (loaded.problem, len(loaded.records)) == ("", 400)
    assert set(os.listdir(tmp_path)) <= {"images.json", ".images.json.new"}
