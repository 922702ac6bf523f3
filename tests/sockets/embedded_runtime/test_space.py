"""The embedded runtime as a server on a disk: space that is freed, large lists, a socket that
is closed and reopened."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import grpc
import pytest

from eviction.drill.runtime.private_mounts import EmbeddedNodeError
from eviction.drill.runtime.server import EmbeddedServer
from reclaim.cri import cri_pb2
from tests.nodes.bare_runtime import APP, BASE, NAME, TOOL, BareRuntime
from tests.reclaimd_process import came_true
from tests.sockets.cri_calls import CriCalls, run_container, run_pod

# ---- space


def test_a_shared_layer_is_deleted_with_its_last_image(node: BareRuntime) -> None:
    """Two images with one base: each reports its full size, and the base stays
    until the second is removed.
    """
    other = node.runtime.add_image(["registry.example/team/tool:1"], [BASE, TOOL])
    sizes = {each.id: each.size for each in node.images()}
    assert (sizes[node.app_id], sizes[other]) == (96 << 10, 80 << 10)
    node.call("RemoveImage", image={"image": node.app_id})
    assert (node.has_layer(BASE), node.has_layer(APP), node.has_layer(TOOL)) == (True, False, True)
    node.call("RemoveImage", image={"image": other})
    assert (node.has_layer(BASE), node.has_layer(TOOL)) == (False, False)


def test_layer_content_is_real(node: BareRuntime) -> None:
    """Every file has its bytes; none is sparse, and none is all zeros."""
    root = node.root / "layers" / BASE.digest.removeprefix("sha256:")
    files = [file for file in root.rglob("*") if file.is_file()]
    assert (len(files), sum(file.stat().st_size for file in files)) == (3, 64 << 10)
    assert all(file.stat().st_blocks * 512 >= file.stat().st_size for file in files)
    assert all(len(set(file.read_bytes())) > 200 for file in files)


def test_a_layer_takes_the_inodes_of_its_spec(node: BareRuntime) -> None:
    """300 files in 1 directory: 301."""
    root = node.root / "layers" / APP.digest.removeprefix("sha256:")
    assert len(list(root.rglob("*"))) + 1 == APP.files + 1 == 301


def test_image_fs_info_names_the_directory_and_counts_what_is_in_it(node: BareRuntime) -> None:
    """One filesystem with layers and writable layers; its mountpoint is a
    directory, and need not be a mount.
    """
    container_id = run_container(node.calls, run_pod(node.calls, "web"), "web", NAME)
    for _ in range(2):
        node.runtime.write_to_container(container_id, 5_000)
    info = node.call("ImageFsInfo")
    (images,), (containers,) = info.image_filesystems, info.container_filesystems
    assert images == containers
    assert images.fs_id.mountpoint == str(node.root)
    assert not node.root.is_mount()
    everything = [each for top in ("layers", "containers") for each in (node.root / top).rglob("*")]
    assert images.inodes_used.value == len(everything)
    assert images.used_bytes.value == sum(each.stat().st_blocks * 512 for each in everything)


def test_a_split_layout_has_its_writable_layers_elsewhere(tmp_path: Path) -> None:
    """With a containers root of its own, ImageFsInfo has two mountpoints and two figures."""
    node = BareRuntime(tmp_path, containers_root=str(tmp_path / "writable"))
    container_id = run_container(node.calls, run_pod(node.calls, "web"), "web", NAME)
    node.runtime.write_to_container(container_id, 1)
    info = node.call("ImageFsInfo")
    assert info.image_filesystems[0].fs_id.mountpoint == str(node.root)
    assert info.container_filesystems[0].fs_id.mountpoint == str(tmp_path / "writable")
    assert info.container_filesystems[0].inodes_used.value == 2
    assert (tmp_path / "writable" / "containers" / container_id).is_dir()
    node.close()


def test_the_space_of_a_container_is_freed_later(tmp_path: Path) -> None:
    """The call is answered, the container is no longer listed, and 2 s later its bytes are free."""
    node = BareRuntime(tmp_path, container_space_delay_seconds=2.0)
    container_id = run_container(node.calls, run_pod(node.calls, "web"), "web", NAME)
    node.call("RemoveContainer", container_id=container_id)
    assert node.containers() == []
    assert node.writable(container_id).exists()
    assert came_true(lambda: not node.writable(container_id).exists())
    node.close()


def test_the_space_of_a_container_is_freed_with_the_next_image_at_the_latest(
    tmp_path: Path,
) -> None:
    """RemoveImage waits for the runtime's garbage collection, which also
    frees the space of containers.
    """
    node = BareRuntime(tmp_path, container_space_delay_seconds=60)
    container_id = run_container(node.calls, run_pod(node.calls, "web"), "web", NAME)
    node.call("RemoveContainer", container_id=container_id)
    node.call("RemoveImage", image={"image": "registry.example/absent:1"})
    assert node.writable(container_id).exists()
    node.call("RemoveImage", image={"image": node.app_id})
    assert not node.writable(container_id).exists()
    assert not node.has_layer(APP)
    node.close()


# ---- the server


def test_a_list_of_more_than_4_mib_arrives(node: BareRuntime) -> None:
    """3 000 containers with 2 KiB of annotations each are 6 MiB in one answer."""
    sandbox_id = run_pod(node.calls, "web")
    config = cri_pb2.ContainerConfig(
        image=cri_pb2.ImageSpec(image=NAME), annotations={"text": "x" * 2048}
    )
    request = cri_pb2.CreateContainerRequest(pod_sandbox_id=sandbox_id, config=config)
    for _ in range(3000):
        node.runtime.create_container(request)
    answer = node.call("ListContainers")
    assert len(answer.containers) == 3000
    assert answer.ByteSize() > 6 << 20


def test_a_restart_keeps_the_path_and_the_state(node: BareRuntime) -> None:
    """The client loses its connection, reaches the same socket again and finds
    the same containers.
    """
    container_id = run_container(node.calls, run_pod(node.calls, "web"), "web", NAME)
    node.server.stop()
    node.server.start()
    with CriCalls(node.server.target) as calls:
        assert [each.id for each in calls.call("ListContainers").containers] == [container_id]


def test_stop_removes_the_socket_and_only_its_owner_may_connect(node: BareRuntime) -> None:
    """A socket with mode 0600 while it serves; nothing at the path afterwards;
    both calls are idempotent.
    """
    node.server.start()
    mode = os.stat(node.server.socket_path).st_mode
    assert (stat.S_ISSOCK(mode), stat.S_IMODE(mode)) == (True, 0o600)
    node.server.stop()
    node.server.stop()
    assert not os.path.lexists(node.server.socket_path)
    assert node.error("Version")[0] is grpc.StatusCode.UNAVAILABLE


def test_an_impossible_socket_path_is_refused(node: BareRuntime, tmp_path: Path) -> None:
    """Too long for sun_path, or in a directory that does not exist."""
    with pytest.raises(EmbeddedNodeError, match="cannot listen"):
        EmbeddedServer(node.runtime, "/" + "x" * 107).start()
    with pytest.raises(EmbeddedNodeError, match="cannot listen"):
        EmbeddedServer(node.runtime, str(tmp_path / "absent" / "s")).start()


def test_no_thread_is_left_behind(tmp_path: Path) -> None:
    """After close neither a worker, nor the server's own thread, nor the one that
    frees space later is alive.
    """
    before = set(threading.enumerate())
    node = BareRuntime(tmp_path, container_space_delay_seconds=60)
    container_id = run_container(node.calls, run_pod(node.calls, "web"), "web", NAME)
    node.call("RemoveContainer", container_id=container_id)
    assert set(threading.enumerate()) - before
    node.close()
    assert not node.writable(container_id).exists()
    # well before the delay: a timer that was cancelled ends at once
    assert came_true(lambda: not set(threading.enumerate()) - before, within_seconds=30.0)
