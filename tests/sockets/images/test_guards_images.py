"""Which images never go: the runtime removes an image in use without a question, so
every guard is the agent's.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eviction.records.state_file import Moment, current_machine_id, records_json
from reclaim.cri import cri_pb2 as pb
from reclaim.images.records import ImageRecords
from reclaim.types import ImageRecord
from signals.clock import SystemClock
from tests.nodes.faults import Hang
from tests.nodes.small_node import (
    EVERYTHING,
    IMAGES,
    MIB,
    SmallNode,
    outcome_of,
    reason_of,
    relieve,
    result_of,
)
from tests.sockets.conftest import SmallNodeFactory
from tests.sockets.dialect import Dialect

A_DAY = 86_400.0
# for so long at most one list of containers serves several removals
LONGEST_SHARED_LIST_SECONDS = 0.5

# How a container says which image it was made from: fields of the list, by the kind of runtime.
SAYINGS: dict[str, Callable[[Any], dict[str, str]]] = {
    "its id in image_id": lambda image: {"image_id": image.id},
    "its id in image_ref, image_id empty": lambda image: {"image_ref": image.id},
    "its bare id": lambda image: {"image_ref": image.id.removeprefix("sha256:")},
    "a shortened id": lambda image: {"image": image.id.removeprefix("sha256:")[:12]},
    "a repository digest": lambda image: {"image_ref": image.repo_digests[0]},
    "a repository digest under another name": lambda image: {
        "image_ref": "mirror.example/x@" + image.repo_digests[0].partition("@")[2]
    },
    "a tag": lambda image: {"image_ref": image.repo_tags[0]},
    "the other tag": lambda image: {"image": image.repo_tags[1]},
    "what was asked for": lambda image: {"user_specified_image": image.repo_tags[0]},
    "a short name": lambda image: {"image": "busybox"},
    "a name with tag and digest": lambda image: {
        "image": f"busybox:1@{image.repo_digests[0].partition('@')[2]}"
    },
}


@pytest.mark.parametrize("state", ["running", "exited"])
@pytest.mark.parametrize("says", SAYINGS)
def test_an_image_is_in_use_however_a_container_names_it(
    small_node: SmallNode, tmp_path: Path, says: str, state: str
) -> None:
    """Runtimes put the image of a container into different fields, as an id, a digest or
    a name; all of them count.
    """
    busybox = small_node.add_image("busybox", tags=("busybox", "registry.example/tools:1"))
    image = next(
        each
        for each in small_node.runtime.list_images(pb.ListImagesRequest()).images
        if each.id == busybox
    )
    pod = small_node.run_pod("web")
    container = small_node.run(pod, busybox)
    if state == "exited":
        small_node.runtime.exit_container(container)
    fields = SAYINGS[says](image)

    def reword(answer: Any) -> None:
        for item in answer.containers:
            item.image_id, item.image_ref = fields.get("image_id", ""), fields.get("image_ref", "")
            item.image.image = fields.get("image", "")
            item.image.user_specified_image = fields.get("user_specified_image", "")

    with Dialect(
        small_node.server.target, str(tmp_path / "d.sock"), {"ListContainers": reword}
    ) as dialect:
        record = relieve(small_node.node(containerRuntimeEndpoint=dialect.endpoint), EVERYTHING)
    assert busybox in small_node.images()
    assert reason_of(record, busybox) == "in_use"
    assert small_node.app_id in small_node.removed("image"), "and what is not in use goes"


@pytest.mark.parametrize("state", ["running", "exited"])
def test_an_image_that_is_mounted_as_a_volume_is_in_use(small_node: SmallNode, state: str) -> None:
    """An image volume uses an image that is no container's image; only the status
    of the container names it.
    """
    data = small_node.add_image("registry.example/data:1")
    pod = small_node.run_pod("web")
    mount = pb.Mount(container_path="/data", image=pb.ImageSpec(image="registry.example/data:1"))
    container = small_node.create(pod, mounts=[mount])
    small_node.start(container)
    if state == "exited":
        small_node.runtime.exit_container(container)
    record = relieve(small_node.node(), EVERYTHING)
    assert data in small_node.images()
    assert reason_of(record, data) == "in_use"


def test_a_container_of_which_nothing_says_its_image_stops_all_removal_of_images(
    small_node: SmallNode, tmp_path: Path
) -> None:
    """Nothing is assumed unused by guess: while one container's image is a
    riddle, every image stays.
    """
    old = small_node.add_images(2)
    small_node.run(small_node.run_pod("web"))

    def silence(answer: Any) -> None:
        for item in answer.containers:
            item.image_id = item.image_ref = item.image.image = ""

    with Dialect(
        small_node.server.target, str(tmp_path / "d.sock"), {"ListContainers": silence}
    ) as dialect:
        record = relieve(small_node.node(containerRuntimeEndpoint=dialect.endpoint), EVERYTHING)
    assert small_node.removed("image") == []
    assert {reason_of(record, each) for each in old} == {"unresolved_image"}


@pytest.mark.parametrize("method", ["ListImages", "ListContainers", "ListPodSandbox"])
def test_an_image_whose_pod_starts_while_the_lists_are_read_is_kept(
    small_node: SmallNode, method: str
) -> None:
    """Images are listed first and containers after them, so a container that
    starts in between is seen.
    """
    (image,) = small_node.add_images(1)
    node = small_node.node()
    node.locate()
    small_node.failpoints[method] = Hang(times=1)
    with small_node.relieving(node, IMAGES) as going:
        small_node.wait_for(method)
        running = small_node.run(small_node.run_pod("web"), image)
        small_node.failpoints.clear()
        record = going.result()
    assert image in small_node.images()
    assert small_node.state(running) == pb.CONTAINER_RUNNING
    assert reason_of(record, image) == "in_use"


def test_an_image_whose_pod_starts_before_its_removal_is_kept(small_node: SmallNode) -> None:
    """The containers are listed again right before each removal: a pod that started since
    the plan keeps its image.
    """
    first, second = small_node.add_images(2)
    small_node.run(small_node.run_pod("app"))
    small_node.failpoints["RemoveImage"] = Hang(times=1)
    with small_node.relieving(small_node.node(), IMAGES) as going:
        small_node.wait_for("RemoveImage")
        small_node.run(small_node.run_pod("web"), second)
        time.sleep(LONGEST_SHARED_LIST_SECONDS + 0.1)
        small_node.failpoints.clear()
        record = going.result()
    assert small_node.removed("image") == [first]
    assert reason_of(record, second) == "in_use"
    assert result_of(record, second) == "in_use"


@pytest.mark.parametrize("sees", ["the directory", "the sandbox"])
def test_images_wait_for_a_pod_that_is_being_made(small_node: SmallNode, sees: str) -> None:
    """Nothing shows yet which image it will use: none is removed until it has
    had time to use it.
    """
    used, unused = small_node.add_images(2)
    settled = small_node.run_pod("app")
    small_node.run(settled)
    small_node.runtime.age(settled.sandbox_id, 60.0)
    node = small_node.node(holdOffForNewPods="1s")
    pod = None
    if sees == "the directory":
        small_node.admit("uid-web")
    else:
        pod = small_node.run_pod("web")
    for uid in ("uid-app",) if sees == "the directory" else ("uid-app", "uid-web"):
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


def test_a_pod_made_before_its_image_is_removed_keeps_the_image_in_every_state(
    small_node: SmallNode,
) -> None:
    """A CREATED container uses its image just as a running one does, also when
    it was made since the plan.
    """
    first, second = small_node.add_images(2)
    small_node.run(small_node.run_pod("app"))
    small_node.failpoints["RemoveImage"] = Hang(times=1)
    with small_node.relieving(small_node.node(), IMAGES) as going:
        small_node.wait_for("RemoveImage")
        small_node.create(small_node.run_pod("web"), second)
        time.sleep(LONGEST_SHARED_LIST_SECONDS + 0.1)
        small_node.failpoints.clear()
        going.result()
    assert small_node.removed("image") == [first]


@pytest.mark.parametrize(
    ("pins", "reports", "ready_pod", "reason"),
    [
        (False, True, False, "sandbox_image"),
        (True, False, False, "pinned"),
        (True, True, True, "sandbox_image"),
        (False, False, True, "sandbox_image"),
        (False, False, False, "sandbox_image_unknown"),
    ],
    ids=[
        "configured, not pinned",
        "pinned, not configured",
        "all three",
        "only a pod",
        "no source",
    ],
)
def test_the_sandbox_image_is_kept_and_a_new_pod_starts_after_a_purge(
    make_small_node: SmallNodeFactory, pins: bool, reports: bool, ready_pod: bool, reason: str
) -> None:
    """Without the sandbox image no pod starts, so when nothing says which it
    is, no image goes at all.
    """
    small = make_small_node(pins_sandbox_image=pins, reports_sandbox_image=reports)
    old = small.add_images(2)
    if ready_pod:
        small.run(small.run_pod("web"))
    record = relieve(small.node(), EVERYTHING)
    assert reason_of(record, small.pause_id) == reason
    if reason == "sandbox_image_unknown":
        assert small.removed("image") == []
        assert {reason_of(record, each) for each in old} == {reason}
    else:
        assert set(old) <= set(small.removed("image"))
    new = small.run_pod("new")
    small.run(new, small.add_image("registry.example/new:1"))


def test_a_short_name_for_the_sandbox_image_protects_it(
    make_small_node: SmallNodeFactory, tmp_path: Path
) -> None:
    """A runtime may be configured with a name that its own image list spells in full."""
    small = make_small_node(pins_sandbox_image=False)
    pause = small.runtime.add_image(["pause:3"], [])

    def reword(answer: Any) -> None:
        answer.info["config"] = '{"sandboxImage": "pause:3"}'

    with Dialect(small.server.target, str(tmp_path / "d.sock"), {"Status": reword}) as dialect:
        record = relieve(small.node(containerRuntimeEndpoint=dialect.endpoint), IMAGES)
    assert reason_of(record, pause) == "sandbox_image"
    assert pause in small.images()


class AheadClock(SystemClock):
    """The machine's clock, so many seconds ahead."""

    ahead = 0.0

    def monotonic(self) -> float:
        """Later than it is."""
        return super().monotonic() + self.ahead


def test_an_image_is_as_old_as_it_has_been_seen(small_node: SmallNode) -> None:
    """Just pulled is not unused: an image goes only when it has been known for
    the minimum age, 2 minutes.
    """
    (image,) = small_node.add_images(1)
    clock = AheadClock()
    node = small_node.node(clock=clock, records=ImageRecords())
    node.detection.images()
    clock.ahead = 119
    record = relieve(node, IMAGES)
    assert small_node.removed() == []
    assert reason_of(record, image) == "too_young"
    wait = outcome_of(record, image).verdict.eligible_in_seconds
    assert wait is not None
    assert wait <= 1
    clock.ahead = 121
    relieve(node, IMAGES)
    assert image in small_node.removed("image")


def test_an_image_that_comes_again_starts_a_new_age(small_node: SmallNode) -> None:
    """Removed and pulled again it has the same id, and must not inherit the age of the old one."""
    (image,) = small_node.add_images(1)
    node = small_node.node()
    node.detection.images()
    small_node.runtime.remove_image(pb.RemoveImageRequest(image=pb.ImageSpec(image=image)))
    node.detection.images()
    assert small_node.add_images(1) == [image]
    record = relieve(node, IMAGES)
    assert image in small_node.images()
    assert reason_of(record, image) == "too_young"


def test_after_a_restart_everything_is_young_and_nothing_is_purged(small_node: SmallNode) -> None:
    """Records that are lost make images young, never ancient."""
    old = small_node.add_images(3)
    record = relieve(small_node.node(records=ImageRecords()), IMAGES)
    assert small_node.removed() == []
    assert {reason_of(record, each) for each in (*old, small_node.app_id)} == {"too_young"}


@pytest.mark.regression
@pytest.mark.parametrize(
    "machine_id", ["another machine", current_machine_id()], ids=["another", "this"]
)
def test_a_node_with_the_state_file_of_another_machine_purges_nothing(
    small_node: SmallNode, tmp_path: Path, machine_id: str
) -> None:
    """Both were cloned from one disk image, and in the file every image is a day old.

    That of this machine counts.
    """
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


def test_a_record_of_use_puts_an_image_at_the_end(small_node: SmallNode) -> None:
    """The image whose last use is longest ago goes first, and one never used goes before all."""
    used_first, used_last, never = (
        small_node.add_image(f"registry.example/{n}:1") for n in ("a", "b", "c")
    )
    node = small_node.node()
    for image in (used_first, used_last):
        pod = small_node.run_pod(image[-8:])
        container = small_node.run(pod, image)
        node.detection.images()
        small_node.runtime.remove_container(pb.RemoveContainerRequest(container_id=container))
    relieve(node, IMAGES)
    assert small_node.removed("image") == [small_node.app_id, never, used_first, used_last]


def test_an_image_without_a_name_is_removed_by_its_id(small_node: SmallNode) -> None:
    """An interrupted removal strands a record that has neither tag nor digest
    and pins its bytes for ever.
    """
    stranded = small_node.add_image("stranded", MIB, tags=())
    before = small_node.available()
    relieve(small_node.node(), IMAGES)
    assert stranded in small_node.removed("image")
    assert small_node.available() >= before + MIB
