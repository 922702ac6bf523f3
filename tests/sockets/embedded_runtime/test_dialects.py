"""The dialects: the same node with the rules of containerd 1.6, containerd 2 and CRI-O, and relief on each of them."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest

from eviction.drill.runtime.dialects import CONTAINERD_2_0, CRI_O_1_28, CRI_O_1_31, DIALECTS, Dialect
from eviction.drill.runtime.layer_store import LayerSpec
from eviction.drill.runtime.private_mounts import EmbeddedNodeError
from signals.types import FsLayout, Signal
from tests.nodes.bare_runtime import APP, NAME, BareRuntime
from tests.nodes.small_node import EVERYTHING, IMAGES, MIB, reason_of, relieve, result_of
from tests.reclaimd_process import came_true
from tests.sockets.conftest import SmallNodeFactory
from tests.sockets.cri_calls import run_container, run_pod
from tests.sockets.mounts import mounted_tmpfs, unmount

CRI_O = [CRI_O_1_28, CRI_O_1_31]
FULL = "no space left on device"


def named(dialect: Dialect) -> str:
    """For the ids of tests."""
    return f"{dialect.runtime_name}-{dialect.runtime_version}"


# ---- what the runtime does


@pytest.mark.parametrize("dialect", CRI_O, ids=named)
def test_cri_o_untags_and_removes_the_image_with_its_last_tag(tmp_path: Path, dialect: Dialect) -> None:
    """The first removal by name untags; the second, by the last name, removes the image and its layers."""
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
    """By id an image with two names is removed; if a container was made from it, the call fails and names it."""
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
    """`image_ref` of the list is a repository digest, ids of images are bare, and only newer versions fill image_id."""
    node = BareRuntime(tmp_path, dialect=dialect)
    run_container(node.calls, run_pod(node.calls, "web"), "web", NAME)
    (container,) = node.containers()
    (image,) = [each for each in node.images() if NAME in each.repo_tags]
    assert container.image_ref == image.repo_digests[0]
    assert len(image.id) == 64
    assert container.image_id == (image.id if dialect.fills_image_id else "")
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
    assert node.runtime.dialect.refuses_image_in_use
    node.close()
    with pytest.raises(TypeError, match="runtime_colour"):
        BareRuntime(tmp_path / "other", runtime_colour="red")


def test_a_tag_moves_to_another_image(node: BareRuntime) -> None:
    """The image that had the tag loses it; an unknown id is refused."""
    other = node.runtime.add_image(["registry.example/other:1"], [LayerSpec("other", 4096)])
    node.runtime.tag_image(other, NAME)
    assert node.call("ImageStatus", image={"image": NAME}).image.id == other
    with pytest.raises(EmbeddedNodeError, match="no image"):
        node.runtime.tag_image("sha256:00", NAME)


# ---- what the product does about it


@pytest.mark.parametrize("name", DIALECTS)
@pytest.mark.parametrize("state", ["running", "exited"])
def test_in_every_dialect_only_unused_images_are_removed(
    make_small_node: SmallNodeFactory, name: str, state: str
) -> None:
    """The images of a container, of its volume and of sandboxes stay; two others are removed by id."""
    small = make_small_node(dialect=DIALECTS[name])
    used = small.add_image("registry.example/used:1", tags=("registry.example/used:1", "registry.example/used:2"))
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
def test_cri_o_with_split_filesystems_is_relieved_by_row(make_small_node: SmallNodeFactory, dialect: Dialect) -> None:
    """Writable layers on the kubelet's filesystem, images on another: pressure there removes images only."""
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
    """The space of the first image is freed 0.1 s after the answer; no second image is removed for it."""
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
