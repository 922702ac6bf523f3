"""The dialects: the same node with the rules of containerd 1.6, containerd 2 and CRI-O,
and relief on each of them.
"""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest

from eviction.drill.runtime.layer_store import LayerSpec
from eviction.drill.runtime.private_mounts import EmbeddedNodeError, unmount
from reclaim.cri import cri_pb2 as pb
from signals.types import FsLayout, Signal
from tests.nodes.bare_runtime import APP, NAME, BareRuntime
from tests.nodes.dialects import (
    CONTAINERD_2_0,
    CRI_O_1_28,
    CRI_O_1_31,
    CRI_O_1_36,
    DIALECTS,
    Dialect,
)
from tests.nodes.faults import Pretend
from tests.nodes.small_node import EVERYTHING, IMAGES, MIB, reason_of, relieve, result_of
from tests.reclaimd_process import came_true
from tests.sockets.conftest import SmallNodeFactory
from tests.sockets.cri_calls import run_container, run_pod
from tests.sockets.kubelet_server import KubeletServer, answer, pod_list
from tests.sockets.mounts import mounted_tmpfs

CRI_O = [CRI_O_1_28, CRI_O_1_31, CRI_O_1_36]
MODEL, SAME = "registry.example/model:1", "registry.example/model:2"
FULL = "no space left on device"


def named(dialect: Dialect) -> str:
    """For the ids of tests."""
    return f"{dialect.runtime_name}-{dialect.runtime_version}"


# ---- what the runtime does


@pytest.mark.parametrize("dialect", CRI_O, ids=named)
def test_cri_o_untags_and_removes_the_image_with_its_last_tag(
    tmp_path: Path, dialect: Dialect
) -> None:
    """The first removal by name untags; the second, by the last name, removes
    the image and its layers.
    """
    node = BareRuntime(tmp_path, dialect=dialect)
    stable = "registry.example/team/app:stable"
    node.call("RemoveImage", image={"image": NAME})
    (image,) = [each for each in node.images() if each.id == node.app_id]
    assert list(image.repo_tags) == [stable]
    assert node.has_layer(APP)
    assert not node.call("ImageStatus", image={"image": NAME}).HasField("image")
    node.call("RemoveImage", image={"image": stable})
    assert not node.has_layer(APP)
    node.close()


@pytest.mark.parametrize("dialect", CRI_O, ids=named)
def test_cri_o_removes_by_id_and_refuses_an_image_in_use(tmp_path: Path, dialect: Dialect) -> None:
    """By id an image with two names is removed; if a container was made from it,
    the call fails and names it.
    """
    node = BareRuntime(tmp_path, dialect=dialect)
    container_id = run_container(node.calls, run_pod(node.calls, "web"), "web", NAME)
    code, message = node.error("RemoveImage", image={"image": node.app_id})
    assert code is grpc.StatusCode.UNKNOWN
    assert container_id in message
    assert "image is in use by a container" in message
    node.call("RemoveContainer", container_id=container_id)
    node.call("RemoveImage", image={"image": node.app_id})
    assert not node.has_layer(APP)
    node.close()


@pytest.mark.parametrize("dialect", CRI_O, ids=named)
def test_cri_o_names_the_image_of_a_container_by_digest(tmp_path: Path, dialect: Dialect) -> None:
    """`image_ref` of the list is a repository digest, ids of images are bare, and only
    newer versions fill image_id.
    """
    node = BareRuntime(tmp_path, dialect=dialect)
    run_container(node.calls, run_pod(node.calls, "web"), "web", NAME)
    (container,) = node.containers()
    (image,) = [each for each in node.images() if NAME in each.repo_tags]
    assert container.image_ref == image.repo_digests[0]
    assert len(image.id) == 64
    assert container.image_id == (image.id if dialect.fills_image_id else "")
    node.close()


def test_cri_o_removes_an_artifact_by_name_and_digest_only(tmp_path: Path) -> None:
    """By its id: success, and nothing goes. Each of its names is listed and removed on its own;
    with two names its id finds nothing."""
    node = BareRuntime(tmp_path, dialect=CRI_O_1_36)
    layer = LayerSpec("model", 4096)
    model, _ = [node.runtime.add_image([name], [layer], is_artifact=True) for name in (MODEL, SAME)]
    by_digest = f"registry.example/model@sha256:{model}"
    entries = [each for each in node.images() if each.id == model]
    assert [(list(each.repo_tags), list(each.repo_digests)) for each in entries] == [
        ([MODEL], [by_digest]),
        ([SAME], [by_digest]),
    ]
    node.call("RemoveImage", image={"image": model})
    assert not node.call("ImageStatus", image={"image": model}).HasField("image")
    assert node.call("ImageStatus", image={"image": by_digest}).image.id == model
    node.call("RemoveImage", image={"image": by_digest})
    assert [list(each.repo_tags) for each in node.images() if each.id == model] == [[SAME]]
    assert node.call("ImageStatus", image={"image": model}).image.id == model
    node.call("RemoveImage", image={"image": model})
    assert node.has_layer(layer)
    node.call("RemoveImage", image={"image": by_digest})
    assert not node.has_layer(layer)
    node.close()


@pytest.mark.parametrize(
    "reference", ["busybox:1", "team/busybox:1", "NoSuchName", "a@b@c", "registry.example/UP:1"]
)
def test_cri_o_fails_for_what_is_no_full_name(tmp_path: Path, reference: str) -> None:
    """Without a registry to search, or with several: neither an image nor that there is none."""
    node = BareRuntime(tmp_path, dialect=CRI_O_1_36)
    for method in ("ImageStatus", "RemoveImage"):
        code, message = node.error(method, image={"image": reference})
        assert (code, "short-name" in message) == (grpc.StatusCode.UNKNOWN, True)
    assert not node.call("ImageStatus", image={"image": "registry.example/none:1"}).HasField(
        "image"
    )
    node.close()


def test_cri_o_names_the_directory_of_its_images(tmp_path: Path) -> None:
    """The layers are beside it, and not counted."""
    node = BareRuntime(tmp_path, dialect=CRI_O_1_36)
    (reported,) = node.call("ImageFsInfo").image_filesystems
    directory = Path(reported.fs_id.mountpoint)
    assert directory == node.root / "overlay-images"
    assert (directory.is_dir(), reported.used_bytes.value) == (True, 0)
    node.close()


def test_cri_o_on_a_full_disk_can_delete_nothing(make_small_node: SmallNodeFactory) -> None:
    """Before a deletion it writes a new list, which needs a free block and a free inode."""
    small = make_small_node(dialect=CRI_O_1_31)
    (image,) = small.add_images(1)
    dead = small.gone_pod("gone")
    small.fill(small.available())
    record = relieve(small.node(), EVERYTHING)
    assert small.removed() == []
    assert {result_of(record, each) for each in (image, dead)} == {"failed"}
    assert all(FULL in outcome.error for outcome in record.removals)
    (small.disk / "grown").unlink()
    small.fill(inodes=small.inodes_free())
    assert FULL in relieve(small.node(), IMAGES).removals[0].error
    (small.disk / "grown-0").unlink()
    relieve(small.node(), EVERYTHING)
    assert {image, dead} <= set(small.removed())


def test_containerd_2_0_answers_before_the_space_is_free(tmp_path: Path) -> None:
    """The layers still exist when RemoveImage has answered, and are deleted a moment later."""
    node = BareRuntime(tmp_path, dialect=CONTAINERD_2_0)
    node.call("RemoveImage", image={"image": node.app_id})
    assert node.has_layer(APP)
    assert came_true(lambda: not node.has_layer(APP))
    node.close()


def test_an_image_that_is_pulled_again_before_its_space_was_freed_is_kept(tmp_path: Path) -> None:
    """The late garbage collection deletes only layers without references."""
    node = BareRuntime(tmp_path, dialect=CONTAINERD_2_0)
    layer = LayerSpec("late", 4096)
    again = node.runtime.add_image(["registry.example/late:1"], [layer])
    node.call("RemoveImage", image={"image": again})
    assert node.runtime.add_image(["registry.example/late:1"], [layer]) == again
    node.runtime.force_gc()
    assert node.has_layer(layer)
    node.close()


def test_a_field_of_the_dialect_can_be_changed(tmp_path: Path) -> None:
    """One field is changed; an unknown field is refused."""
    node = BareRuntime(tmp_path, dialect=CRI_O_1_31, runtime_version="1.31.7")
    assert node.call("Version").runtime_version == "1.31.7"
    assert node.runtime.dialect.is_cri_o
    node.close()
    with pytest.raises(TypeError, match="runtime_colour"):
        BareRuntime(tmp_path / "other", runtime_colour="red")


def test_a_tag_moves_to_another_image(node: BareRuntime) -> None:
    """The image that had the tag loses it; an unknown id is refused."""
    other = node.runtime.add_image(["registry.example/other:1"], [LayerSpec("other", 4096)])
    node.runtime.tag_image(other, NAME)
    assert node.call("ImageStatus", image={"image": NAME}).image.id == other
    with pytest.raises(EmbeddedNodeError, match="not found"):
        node.runtime.tag_image("sha256:00", NAME)


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
    used = small.add_image(
        "registry.example/used:1", tags=("registry.example/used:1", "registry.example/used:2")
    )
    old = small.add_images(2)
    container = small.run(small.run_pod("web"), "registry.example/used:2")
    if state == "exited":
        small.runtime.exit_container(container)
    record = relieve(small.node(), EVERYTHING)
    assert {used, small.pause_id} <= small.images()
    assert set(old) <= set(small.removed("image"))
    assert reason_of(record, used) == "in_use"
    assert {result_of(record, each) for each in old} == {"removed"}
    small.run_pod("new")


@pytest.mark.parametrize("dialect", CRI_O, ids=named)
def test_cri_o_with_split_filesystems_is_relieved_by_row(
    make_small_node: SmallNodeFactory, dialect: Dialect
) -> None:
    """Writable layers on the kubelet's filesystem, images on another: pressure
    there removes images only.
    """
    small = make_small_node(FsLayout.SPLIT, dialect=dialect)
    images = small.add_images(3)
    small.gone_pod("gone", writes=MIB)
    node = small.node(Signal.IMAGEFS_AVAILABLE, above=6 * MIB)
    record = relieve(node)
    assert record.decision.layout is FsLayout.SPLIT
    assert small.removed("image") == images[:2]
    assert small.removed("container") == []
    assert str(record.result) == "satisfied"


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


def test_a_disk_that_counts_no_inodes_has_room_to_delete(make_small_node: SmallNodeFactory) -> None:
    """A filesystem with 0 of 0 inodes free has no lack of inodes."""
    small = make_small_node(dialect=CRI_O_1_31)
    (image,) = small.add_images(1)
    mounted_tmpfs(str(small.images_root / "unused"), MIB, 16)
    try:
        relieve(small.node(), IMAGES)
    finally:
        unmount(str(small.images_root / "unused"))
    assert image in small.removed("image")


@pytest.mark.regression
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


@pytest.mark.regression
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
    again = relieve(node, IMAGES)
    assert reason_of(again, vain.verdict.id) == "too_young"


@pytest.mark.regression
@pytest.mark.parametrize("name", ["NoSuchName", "busybox:1"])
def test_a_pod_whose_image_is_no_full_name_stops_nothing(
    make_small_node: SmallNodeFactory, name: str
) -> None:
    """CRI-O fails when it is asked what that is. An image that the name could mean stays."""
    small = make_small_node(dialect=CRI_O_1_36)
    images = {
        each: small.add_image(each) for each in ("localhost/busybox:1", "registry.example/old:1")
    }
    small.run(small.run_pod("web"))
    pod = {
        "metadata": {"uid": "uid-new", "annotations": {"kubernetes.io/config.source": "api"}},
        "spec": {"containers": [{"image": name}, {"image": "registry.example/later:1"}]},
        "status": {"phase": "Pending"},
    }
    with KubeletServer(answer(pod_list(pod))) as kubelet:
        relieve(small.node(kubeletEndpoint=kubelet.url), IMAGES)
    assert images["registry.example/old:1"] in small.removed("image")
    assert (images["localhost/busybox:1"] in small.images()) is (name == "busybox:1")
