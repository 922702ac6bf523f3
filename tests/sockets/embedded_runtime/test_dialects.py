"""The dialects: the same node with the rules of containerd 1.6, containerd 2 and CRI-O,
and relief on each of them.
"""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest

from eviction.drill.runtime import LayerSpec
from reclaim.cri import cri_pb2 as pb
from signals.types import Signal
from tests.nodes.bare_runtime import APP, NAME, BareRuntime
from tests.nodes.dialects import CONTAINERD_2_0, CRI_O_1_31, CRI_O_1_36, DIALECTS
from tests.nodes.faults import Pretend
from tests.nodes.small_node import EVERYTHING, IMAGES, MIB, reason_of, relieve, result_of
from tests.sockets.conftest import SmallNodeFactory
from tests.sockets.cri_calls import run_container, run_pod
from tests.sockets.kubelet_server import KubeletServer, answer, pod_list

CRI_O = [name for name, dialect in DIALECTS.items() if dialect.is_cri_o]
MODEL, SAME = "registry.example/model:1", "registry.example/model:2"
FULL = "no space left on device"


# ---- what the runtime does


@pytest.mark.parametrize("name", CRI_O)
def test_what_cri_o_does_otherwise(tmp_path: Path, name: str) -> None:
    """`image_ref` of the list is a repository digest, ids are bare, and only newer versions fill
    image_id. A name is removed alone, an image by its last name or its id; one in use by a
    container is refused, and what is no full name fails."""
    node = BareRuntime(tmp_path, dialect=DIALECTS[name])
    web = run_container(node.calls, run_pod(node.calls, "web"), "web", NAME)
    (container,) = node.containers()
    image = node.call("ImageStatus", image={"image": NAME}).image
    assert container.image_ref == image.repo_digests[0]
    assert container.image_id == (image.id if DIALECTS[name].fills_image_id else "")
    assert len(image.id) == 64
    code, message = node.error("RemoveImage", image={"image": node.app_id})
    assert code is grpc.StatusCode.UNKNOWN
    assert f"image used by {web}: image is in use by a container" in message
    node.call("RemoveImage", image={"image": NAME})
    assert not node.call("ImageStatus", image={"image": NAME}).HasField("image")
    assert node.has_layer(APP)
    node.call("RemoveContainer", container_id=web)
    node.call("RemoveImage", image={"image": "registry.example/team/app:stable"})
    assert not node.has_layer(APP)
    code, message = node.error("ImageStatus", image={"image": "busybox:1"})
    assert (code, "short-name" in message) == (grpc.StatusCode.UNKNOWN, True)
    node.close()


# ---- what the product does about it


@pytest.mark.parametrize("name", DIALECTS)
@pytest.mark.parametrize("state", ["running", "exited"])
def test_in_every_dialect_only_unused_images_are_removed(
    make_small_node: SmallNodeFactory, name: str, state: str
) -> None:
    """The images of a container, of its volume and of sandboxes stay; two
    others are removed by id.
    """
    small = make_small_node(dialect=DIALECTS[name])
    tags = ("registry.example/used:1", "registry.example/used:2")
    used = small.add_image(tags[0], tags=tags)
    old = small.add_images(2)
    container = small.run(small.run_pod("web"), tags[1])
    if state == "exited":
        small.runtime.exit_container(container)
    record = relieve(small.node(), EVERYTHING)
    assert {used, small.pause_id} <= small.images()
    assert reason_of(record, used) == "in_use"
    assert {result_of(record, each) for each in old} == {"removed"}
    small.run_pod("new")


def test_cri_o_on_a_full_disk_can_delete_nothing(make_small_node: SmallNodeFactory) -> None:
    """Before a deletion it writes a new list, which needs a free block and a free inode."""
    small = make_small_node(dialect=CRI_O_1_31)
    (image,) = small.add_images(1)
    dead = small.gone_pod("gone")
    for size_bytes, inodes, file in (
        (small.available(), 0, "grown"),
        (0, small.inodes_free(), "grown-0"),
    ):
        small.fill(size_bytes, inodes)
        record = relieve(small.node(), EVERYTHING)
        assert small.removed() == []
        assert {result_of(record, each) for each in (image, dead)} == {"failed"}
        assert all(FULL in outcome.error for outcome in record.removals)
        (small.disk / file).unlink()
    relieve(small.node(), EVERYTHING)
    assert {image, dead} <= set(small.removed())


def test_late_space_of_images_is_waited_for(make_small_node: SmallNodeFactory) -> None:
    """The space of the first image is freed 0.1 s after the answer; no
    second image is removed for it.
    """
    small = make_small_node(dialect=CONTAINERD_2_0)
    first, *others = small.add_images(3)
    small.run(small.run_pod("web"))
    record = relieve(small.node(Signal.NODEFS_AVAILABLE, above=3 * MIB))
    assert small.removed("image") == [first]
    assert {reason_of(record, each) for each in others} == {"relieved"}
    assert str(record.result) == "satisfied"


def test_cri_os_artifacts_are_removed_with_all_their_names(
    make_small_node: SmallNodeFactory,
) -> None:
    """One of two names, one that a container has mounted, and one that is
    pinned; beside an image.
    """
    small = make_small_node(dialect=CRI_O_1_36)
    layers = [LayerSpec("model", MIB)]
    model, _ = [small.runtime.add_image([name], layers, is_artifact=True) for name in (MODEL, SAME)]
    small.first_detected[model] = small.first_detected[small.app_id]
    mounted = small.add_image("registry.example/mounted:1", is_artifact=True)
    pinned = small.add_image("registry.example/pinned:1", is_artifact=True, pinned=True)
    (old,) = small.add_images(1)
    small.create(small.run_pod("web"), mounts=[pb.Mount(image=pb.ImageSpec(image=mounted))])
    record = relieve(small.node(), EVERYTHING)
    assert {result_of(record, each) for each in (model, old)} == {"removed"}
    assert not {model, old} & small.images()
    assert {mounted, pinned} <= small.images()
    assert [reason_of(record, each) for each in (mounted, pinned)] == ["in_use", "pinned"]


def test_an_image_whose_removal_did_nothing_counts_nothing_and_holds_up_nothing(
    make_small_node: SmallNodeFactory,
) -> None:
    """One of three images is removed with success and still there: the others go, and it
    is not tried again at once.
    """
    small = make_small_node(dialect=CRI_O_1_36)
    images = set(small.add_images(3))
    node = small.node(imageMinimumGCAge="2m")
    small.failpoints["RemoveImage"] = Pretend(times=1)
    record = relieve(node, IMAGES)
    (vain,) = [outcome for outcome in record.removals if str(outcome.result) == "failed"]
    assert ("still has it" in vain.error, vain.freed.bytes) == (True, 0)
    assert images - {vain.verdict.id} <= set(small.removed("image"))
    assert reason_of(relieve(node, IMAGES), vain.verdict.id) == "too_young"


@pytest.mark.parametrize("name", ["NoSuchName", "busybox:1"])
def test_a_pod_whose_image_is_no_full_name_stops_nothing(
    make_small_node: SmallNodeFactory, name: str
) -> None:
    """CRI-O fails when it is asked what that is. An image that the name could mean stays."""
    small = make_small_node(dialect=CRI_O_1_36)
    busybox, old = map(small.add_image, ("localhost/busybox:1", "registry.example/old:1"))
    small.run(small.run_pod("web"))
    pod = {
        "metadata": {"uid": "uid-new", "annotations": {"kubernetes.io/config.source": "api"}},
        "spec": {"containers": [{"image": name}, {"image": "registry.example/later:1"}]},
        "status": {"phase": "Pending"},
    }
    with KubeletServer(answer(pod_list(pod))) as kubelet:
        relieve(small.node(kubeletEndpoint=kubelet.url), IMAGES)
    assert old in small.removed("image")
    assert (busybox in small.images()) is (name == "busybox:1")
