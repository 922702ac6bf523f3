"""Bugs that were found once: each has the test that found it."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import grpc
import pytest

from eviction.configuration.effective import Extent
from eviction.decision.reclaim_table import DELETE_ALL_UNUSED_CONTAINERS, DELETE_UNUSED_IMAGES
from eviction.drill.runtime.distortions import Distortion
from eviction.drill.runtime.failpoints import ActThenFail, Delay, Distort, Fail, Failpoint, Fault, Hang, Pretend, When
from eviction.node.responder import Request
from reclaim.cri import cri_pb2 as pb
from reclaim.functions import FUNCTIONS
from signals.types import FsLayout, Signal
from tests.nodes.small_node import MIB, SmallNode, outcome_of, reason_of, relieve, result_of
from tests.reclaimd_process import Daemon, answer, came_true, reclaimd
from tests.sockets.conftest import SmallNodeFactory
from tests.sockets.dialect import Dialect
from tests.sockets.mounts import dead_filesystem

EVERYTHING = Request(row=tuple(FUNCTIONS), extent=Extent.ALL)
IMAGES = Request(row=(DELETE_UNUSED_IMAGES,), extent=Extent.ALL)
CONTAINERS = Request(row=(DELETE_ALL_UNUSED_CONTAINERS,), extent=Extent.ALL)


def test_a_pin_on_another_image_does_not_name_the_sandbox_image(make_small_node: SmallNodeFactory) -> None:
    """With nothing that names the sandbox image none goes, whatever else is pinned; and a new pod starts."""
    small = make_small_node(pins_sandbox_image=False, reports_sandbox_image=False)
    small.add_image("registry.example/preloaded:1", pinned=True)
    small.run(small.run_pod("web"))
    relieve(small.node(), EVERYTHING)
    assert small.pause_id in small.images()
    small.run_pod("new")


def test_a_container_known_by_a_tag_that_means_nothing_stops_images(small_node: SmallNode, tmp_path: Path) -> None:
    """A tag that the runtime no longer resolves says nothing of which image the container uses."""
    image = small_node.add_image("registry.example/old:1")
    small_node.run(small_node.run_pod("web"), image)

    def tag_only(answer: Any) -> None:
        for item in answer.containers:
            item.image_id, item.image_ref = "", "registry.example/renamed:1"
            item.image.image = "registry.example/renamed:1"

    with Dialect(small_node.server.target, str(tmp_path / "d.sock"), {"ListContainers": tag_only}) as d:
        relieve(small_node.node(containerRuntimeEndpoint=d.endpoint), IMAGES)
    assert image in small_node.images()


def test_late_container_space_costs_no_image(make_small_node: SmallNodeFactory) -> None:
    """Space that comes 0.03 s late is waited for on a disk that stands still."""
    small = make_small_node(container_space_delay_seconds=0.03)
    small.add_images(2)
    small.run(small.run_pod("web"))
    dead = small.gone_pod("gone", writes=8 * MIB)
    record = relieve(small.node(Signal.NODEFS_AVAILABLE, above=6 * MIB))
    assert small.removed("container") == [dead]
    assert str(record.result) == "satisfied"
    assert small.removed("image") == []


def test_split_nodefs_does_not_starve_imagefs(make_small_node: SmallNodeFactory) -> None:
    """Pressure that freed nothing makes room for another row, which can be relieved."""
    small = make_small_node(FsLayout.SPLIT)
    small.add_images(4)
    small.run(small.run_pod("web"))
    conf = small.configuration(Signal.IMAGEFS_AVAILABLE, above=MIB, evictionHard={"nodefs.available": str(62 * MIB)})
    small.fill(30 * MIB)
    with Daemon("--config", conf):
        assert came_true(lambda: bool(small.removed("image")))


def test_pod_directory_appears_while_the_status_is_slow(small_node: SmallNode) -> None:
    """The directory is looked at after the slow answer, not before it."""
    small_node.gone_pod("web")
    small_node.failpoints["ContainerStatus"] = Hang(times=1)
    with small_node.relieving(small_node.node(), CONTAINERS) as going:
        small_node.wait_for("ContainerStatus")
        small_node.admit("uid-web")
        time.sleep(1)
        small_node.failpoints.clear()
        going.result()
    assert small_node.removed() == []


def test_newer_copy_vanishes_while_the_status_is_slow(small_node: SmallNode) -> None:
    """The copy that must stay is looked for after the slow answer; the older one is then the newest."""
    pod = small_node.run_pod("web")
    older, newer = small_node.exited(pod), small_node.exited(pod, attempt=1)
    small_node.failpoints["ContainerStatus"] = Delay(0.5)
    with small_node.relieving(small_node.node(), CONTAINERS) as going:
        small_node.wait_for("ContainerStatus")
        small_node.runtime.remove_container(pb.RemoveContainerRequest(container_id=newer))
        going.result()
    assert older in small_node.containers()


def test_image_gone_by_somebody_else_is_already_gone(small_node: SmallNode) -> None:
    """What somebody else removed is not counted as ours, nor are its bytes."""
    _, second = small_node.add_images(2)
    small_node.run(small_node.run_pod("app"))
    small_node.failpoints["RemoveImage"] = Hang(times=1)
    with small_node.relieving(small_node.node(), IMAGES) as going:
        small_node.wait_for("RemoveImage")
        small_node.runtime.remove_image(pb.RemoveImageRequest(image=pb.ImageSpec(image=second)))
        small_node.failpoints.clear()
        record = going.result()
    assert result_of(record, second) == "already_gone"
    assert record.nominal_bytes == 4 * MIB


@pytest.mark.parametrize("method", ["RemoveImage", "RemoveContainer"])
def test_not_found_is_already_gone_with_0_bytes(small_node: SmallNode, method: str) -> None:
    """The answer NOT_FOUND is success with 0 bytes of ours."""
    images = small_node.add_images(1)
    small_node.run(small_node.run_pod("app"))
    dead = small_node.gone_pod("gone", writes=MIB)
    small_node.failpoints[method] = ActThenFail(grpc.StatusCode.NOT_FOUND, "gone", times=1)
    record = relieve(small_node.node(), EVERYTHING)
    it = images[0] if method == "RemoveImage" else dead
    assert result_of(record, it) == "already_gone"
    assert outcome_of(record, it).freed_bytes == 0


def test_already_gone_container_bytes_are_not_ours(small_node: SmallNode) -> None:
    """Bytes that somebody else freed meanwhile are not ours."""
    small_node.run(small_node.run_pod("app"))
    dead = small_node.gone_pod("gone", writes=4 * MIB)
    small_node.failpoints["ContainerStatus"] = Hang(times=1)
    with small_node.relieving(small_node.node(), CONTAINERS) as going:
        small_node.wait_for("ContainerStatus")
        small_node.runtime.remove_container(pb.RemoveContainerRequest(container_id=dead))
        small_node.failpoints.clear()
        record = going.result()
    assert outcome_of(record, dead).freed_bytes == 0


def test_age_zero_without_a_witness(small_node: SmallNode) -> None:
    """With a minimum age of 0 s an image may go at first sight."""
    small_node.add_images(1)
    small_node.run(small_node.run_pod("app"))
    conf = small_node.configuration(Signal.NODEFS_AVAILABLE, above=2 * MIB)
    shutil.rmtree(small_node.disk / "io.containerd.content.v1.content")
    p = reclaimd("reclaim", "--config", conf, "-o", "json")
    assert p.returncode == 0, answer(p)["kept_by_reason"]


def test_an_asked_for_row_whose_lists_fail_is_no_success(small_node: SmallNode) -> None:
    """Nothing is met, but nothing was done either: that is a failure, and says why."""
    small_node.add_images(1)
    small_node.failpoints["ListImages"] = Fail(message="the metadata store is closed", code=grpc.StatusCode.INTERNAL)
    p = reclaimd("reclaim", "--config", small_node.configuration(), "--signal", "imagefs.available")
    assert "metadata store" in p.stdout + p.stderr
    assert p.returncode != 0


def test_reclaim_with_unreadable_nodefs_is_4(small_node: SmallNode) -> None:
    """A threshold that cannot be judged is not clear."""
    small_node.add_images(1)
    conf = small_node.configuration(rootDirectory="/nowhere", evictionHard={"nodefs.available": "10%"})
    p = reclaimd("reclaim", "--config", conf)
    assert p.returncode == 4, p.stdout


def test_deadline_sentence_of_a_removal(small_node: SmallNode) -> None:
    """A removal has no deadline of ours; the runtime's own words are told."""
    (image,) = small_node.add_images(1)
    small_node.run(small_node.run_pod("app"))
    small_node.failpoints["RemoveImage"] = Fail(grpc.StatusCode.DEADLINE_EXCEEDED, "context deadline exceeded", times=1)
    record = relieve(small_node.node(), IMAGES)
    assert "10 s" not in outcome_of(record, image).error


def test_held_off_said_once(small_node: SmallNode) -> None:
    """The countdown in the sentence does not make it news every second."""
    small_node.add_images(1)
    conf = small_node.configuration(Signal.NODEFS_AVAILABLE, above=MIB, holdOffAfterStart="5m")
    with Daemon("--config", conf) as daemon:
        daemon.wait_for(lambda e: e["message"].startswith("held off"))
        time.sleep(4)
        assert sum(e["message"].startswith("held off") for e in daemon.events) == 1


def test_sigterm_beside_dead_fs_with_watching(make_small_node: SmallNodeFactory) -> None:
    """A watch that the kernel never answers holds neither the loop nor the end."""
    small = make_small_node(FsLayout.DEDICATED_IMAGEFS)
    conf = small.configuration(evictionHard={"nodefs.available": "20Mi"}, pollCeiling="200ms")
    with Daemon("--config", conf) as daemon:
        time.sleep(0.5)
        with dead_filesystem(str(small.images_root)):
            daemon.wait_for(lambda e: "did not answer statvfs" in e["message"])
            time.sleep(6)
            try:
                assert daemon.stop() == 0
            finally:
                daemon.process.kill()


def test_a_name_of_the_keep_list_that_an_image_got_after_the_list(small_node: SmallNode) -> None:
    """The stateful model found it: the keep-list is asked right before the removal, with the names of that moment."""
    _, second = small_node.add_images(2)
    small_node.run(small_node.run_pod("app"))
    small_node.failpoints["RemoveImage"] = Hang(times=1)
    with small_node.relieving(small_node.node(keepImages=["registry.example/kept:*"]), IMAGES) as going:
        small_node.wait_for("RemoveImage")
        small_node.runtime.tag_image(second, "registry.example/kept:1")
        small_node.failpoints.clear()
        record = going.result()
    assert second in small_node.images()
    assert reason_of(record, second) == "keep_list"


@pytest.mark.parametrize("lie", [Pretend(times=1), Fail(grpc.StatusCode.NOT_FOUND, "gone", times=1)], ids=repr)
def test_a_status_that_says_nothing_does_not_unmount_an_image(small_node: SmallNode, lie: Failpoint) -> None:
    """What a container mounts was taken for nothing, and that was remembered for ever."""
    volume = small_node.add_image("registry.example/volume:1")
    small_node.create(small_node.run_pod("app"), mounts=[pb.Mount(image=pb.ImageSpec(image=volume))])
    node = small_node.node()
    small_node.failpoints["ContainerStatus"] = lie
    relieve(node, IMAGES)
    relieve(node, IMAGES)
    assert volume in small_node.images()


def test_a_list_that_gives_a_container_the_id_of_another(small_node: SmallNode) -> None:
    """The newest dead copy of a live pod, listed as that of a pod that is gone, stays: its status says whose it is."""
    pod = small_node.run_pod("web")
    crashed = small_node.exited(pod)
    small_node.gone_pod("gone")
    small_node.failpoints["ListContainers"] = Distort(Distortion.ROTATED_IDS)
    relieve(small_node.node(), CONTAINERS)
    assert crashed in small_node.containers()


def test_a_list_that_gives_a_sandbox_the_id_of_another(small_node: SmallNode) -> None:
    """The only sandbox of a live pod, listed as that of a pod that is gone, stays: its status says whose it is."""
    rebooted = small_node.run_pod("rebooted")
    small_node.runtime.kill_sandbox(rebooted.sandbox_id)
    small_node.vanish(small_node.run_pod("gone"))
    small_node.failpoints["ListPodSandbox"] = Distort(Distortion.ROTATED_IDS)
    relieve(small_node.node(), CONTAINERS)
    assert rebooted.sandbox_id not in small_node.removed("sandbox")


def test_an_image_pulled_again_after_an_unanswered_question_is_new(small_node: SmallNode) -> None:
    """Removed, but nobody could say so, and pulled again at once it had its old age."""
    (image,) = small_node.add_images(1)
    small_node.run(small_node.run_pod("app"))
    node = small_node.node()
    small_node.failpoints.add(Fault("ImageStatus", Fail(grpc.StatusCode.INTERNAL, times=1), When(from_call=2)))
    record = relieve(node, IMAGES)
    assert result_of(record, image) == "unanswered"
    assert small_node.removed("image") == [image]
    small_node.add_image("registry.example/old/0:1")
    record = relieve(node, IMAGES)
    assert reason_of(record, image) == "too_young"


def test_an_image_pulled_again_before_its_removal_is_verified_is_new(small_node: SmallNode) -> None:
    """It was removed, and is there when it is asked for: that is another pull, not a failure of which nothing came."""
    (image,) = small_node.add_images(1)
    small_node.run(small_node.run_pod("app"))
    node = small_node.node()
    small_node.failpoints.add(Fault("ImageStatus", Hang(times=1), When(from_call=2)))
    with small_node.relieving(node, IMAGES) as going:
        small_node.wait_for("ImageStatus", 2)
        small_node.add_image("registry.example/old/0:1")
        small_node.failpoints.clear()
        going.result()
    record = relieve(node, IMAGES)
    assert reason_of(record, image) == "too_young"
