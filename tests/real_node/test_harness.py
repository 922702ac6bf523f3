"""Tests of this ring's own tools against a real containerd."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

import grpc
import pytest

from reclaim.cri import cri_pb2 as cri
from tests.nodes.crowded_node import CrowdedNode
from tests.nodes.real_node import RealNode, running_node
from tests.real_node.conftest import NodeFactory, what_is_missing
from tests.real_node.containerd import Containerd
from tests.real_node.crio import Crio, crio_program, crio_tools
from tests.real_node.fill import fill_bytes
from tests.real_node.loopfs import LoopFilesystem, holders_of, loop_devices_of, mounts_below
from tests.real_node.oci import (
    BASE,
    SLEEP_FOR_EVER,
    Image,
    many_files_layer,
    random_layer,
    write_image,
    write_images,
)
from tests.real_node.pods import PretendKubelet
from tests.real_node.runtime import SANDBOX_IMAGE
from tests.reclaimd_process import came_true

pytestmark = pytest.mark.house("tests/real_node")

MIB = 1 << 20
UID = "11111111-2222-3333-4444-555555555555"


def test_equal_layers_share_a_blob_and_images_still_differ(tmp_path: Path) -> None:
    """Two images of the same layers have equal layer digests and two ids."""
    one, other = (
        write_image(Image(f"reclaimd.test/{n}:1", (BASE, random_layer(7, MIB))), tmp_path)
        for n in "ab"
    )
    assert one.layer_digests == other.layer_digests
    assert one.image_id != other.image_id


def test_import_lists_each_image_with_its_reference(containerd_on_ext4: RealNode) -> None:
    """Three imported images appear in ListImages under their full references,
    and none of them is pinned.
    """
    node = containerd_on_ext4
    names = [f"reclaimd.test/import/{n}:1" for n in range(3)]
    ids = [
        node.import_image(Image(name, (random_layer(n, 2 * MIB),))) for n, name in enumerate(names)
    ]
    listed = {image.id: image for image in node.cri.list_images()}
    assert listed.keys() == {*ids, node.sandbox_image_id}
    assert [list(listed[image_id].repo_tags) for image_id in ids] == [[name] for name in names]
    assert not any(listed[image_id].pinned for image_id in ids)


def test_an_image_id_names_a_blob_as_old_as_the_import(containerd_on_ext4: RealNode) -> None:
    """The id of an image is the name of a blob in containerd's content store, changed
    at the time of the import.
    """
    before = time.time()
    image_id = containerd_on_ext4.import_image(
        Image("reclaimd.test/age:1", (random_layer(1, MIB),))
    )
    after = time.time()
    blob = os.stat(containerd_on_ext4.containerd.age_stamp(image_id))
    # the kernel stamps files with a clock that ticks every 4 ms
    assert before - 0.05 <= blob.st_ctime <= after + 0.05
    assert before - 0.05 <= blob.st_mtime <= after + 0.05


def test_removing_an_image_frees_bytes_that_statvfs_sees(containerd_on_ext4: RealNode) -> None:
    """When RemoveImage of a 40 MiB image answers, its blob and its unpacked layer are
    gone: about 80 MiB come back.
    """
    node = containerd_on_ext4
    image_id = node.import_image(Image("reclaimd.test/big:1", (random_layer(3, 40 * MIB),)))
    before = node.filesystem.available_bytes()
    node.cri.remove_image(image_id)
    freed = node.filesystem.available_bytes() - before
    assert 78 * MIB <= freed <= 84 * MIB
    assert image_id not in node.cri.image_ids()


def test_an_image_of_small_files_costs_inodes(containerd_on_ext4: RealNode) -> None:
    """An image of 1 000 files takes a thousand inodes and gives them back with RemoveImage."""
    node = containerd_on_ext4
    before = node.filesystem.inodes_free()
    image_id = node.import_image(Image("reclaimd.test/small:1", (many_files_layer(4, 1000),)))
    taken = before - node.filesystem.inodes_free()
    node.cri.remove_image(image_id)
    assert 1000 <= taken <= 1050
    assert before - node.filesystem.inodes_free() <= 5


def test_a_pod_runs_and_its_container_exits(containerd_on_ext4: RealNode) -> None:
    """A container runs in a pod, writes its log where the kubelet expects it,
    and exits with its own code.
    """
    node = containerd_on_ext4
    image = node.import_image(Image("reclaimd.test/app:1", (BASE, random_layer(5, MIB))))
    node.kubelet.admit_pod(UID)
    pod = node.kubelet.run_pod("web-0", UID)
    running = node.kubelet.run_container(pod, "web", image, SLEEP_FOR_EVER)
    exiting = node.kubelet.run_container(pod, "job", image, ("/bin/sh", "-c", "echo done; exit 3"))
    assert node.kubelet.wait_exited(exiting).exit_code == 3
    assert node.kubelet.state_of(running) == cri.CONTAINER_RUNNING
    assert "stdout F done" in (pod.log_directory / "job" / "0.log").read_text()
    assert {(c.id, c.state) for c in node.cri.list_containers()} == {
        (running, cri.CONTAINER_RUNNING),
        (exiting, cri.CONTAINER_EXITED),
    }


@pytest.mark.parametrize("fstype", ["xfs", "btrfs"])
def test_pods_run_on_other_filesystems(make_node: NodeFactory, fstype: str) -> None:
    """containerd keeps images and containers on xfs and btrfs as on ext4, by overlayfs."""
    node = make_node(512 * MIB, fstype=fstype)
    image = node.import_image(Image("reclaimd.test/app:1", (BASE, random_layer(5, MIB))))
    node.kubelet.admit_pod(UID)
    exiting = node.kubelet.run_container(
        node.kubelet.run_pod("web-0", UID), "job", image, ("/bin/true",)
    )
    assert node.kubelet.wait_exited(exiting).exit_code == 0


def test_a_pod_must_be_admitted_first(containerd_on_ext4: RealNode) -> None:
    """A sandbox without a pod directory is refused, as the kubelet never makes one."""
    with pytest.raises(ValueError, match="admit_pod"):
        containerd_on_ext4.kubelet.run_pod("early", UID)


def test_calls_to_a_paused_containerd_hang_until_it_is_resumed(
    containerd_on_ext4: RealNode,
) -> None:
    """A call with a deadline of 0.3 s fails while containerd is paused; after resume
    the same client is answered.
    """
    node = containerd_on_ext4
    node.containerd.pause()
    with pytest.raises(grpc.RpcError):
        node.cri.version(timeout_seconds=0.3)
    node.containerd.resume()
    assert node.cri.version().runtime_name == "containerd"


def test_a_killed_containerd_restarts_with_its_pods(containerd_on_ext4: RealNode) -> None:
    """A container outlives the SIGKILL of containerd, and the next start on the
    same root finds it running.
    """
    node = containerd_on_ext4
    node.kubelet.admit_pod(UID)
    pod = node.kubelet.run_pod("web-0", UID)
    container_id = node.kubelet.run_container(pod, "web", node.sandbox_image_id, SLEEP_FOR_EVER)
    node.containerd.kill()
    with pytest.raises(grpc.RpcError):
        node.cri.version(timeout_seconds=1)
    node.containerd.start()
    assert node.kubelet.state_of(container_id) == cri.CONTAINER_RUNNING


@pytest.mark.parametrize("how", ["stopped", "killed", "paused", "full"])
def test_nothing_is_left_behind(tmp_path: Path, how: str) -> None:
    """After a node with a running pod, no mount, loop device, shim, control group,
    socket or file of it remains.
    """
    with running_node(tmp_path / "node", 512 * MIB) as node:
        node.kubelet.admit_pod(UID)
        pod = node.kubelet.run_pod("web-0", UID)
        node.kubelet.run_container(pod, "web", node.sandbox_image_id, SLEEP_FOR_EVER)
        assert isinstance(node.containerd, Containerd)
        sockets = node.containerd.shim_sockets()
        assert len(node.containerd.monitors()) == 1
        assert all(path.exists() for path in sockets)
        assert len(sockets) >= 1
        if how == "killed":
            node.containerd.kill()
        elif how == "paused":
            node.containerd.pause()
        elif how == "full":
            fill_bytes(node.mountpoint / "fill", 0, fast=True).wait(60)
    assert node.containerd.monitors() == []
    assert node.containerd.cgroups() == []
    assert not any(path.exists() for path in sockets)
    assert not node.containerd.run_directory.exists()
    assert mounts_below(tmp_path) == []
    assert loop_devices_of(node.filesystem.image) == []
    assert list((tmp_path / "node").iterdir()) == []


def test_a_crio_keeps_order_and_pods_and_leaves_nothing_behind(tmp_path: Path) -> None:
    """Images come with their references, the first given the oldest; a pod outlives a
    SIGKILL; at last all is gone.
    """
    if sentence := what_is_missing(crio_tools()):
        pytest.skip(sentence)
    program = crio_program()
    assert program is not None
    disk = LoopFilesystem(tmp_path / "node", 512 * MIB)
    with disk, Crio(disk.mountpoint / "crio", program) as crio:
        names = [f"reclaimd.test/import:{number}" for number in range(5)]
        crio.import_image(write_image(Image(SANDBOX_IMAGE, (BASE,)), tmp_path))
        ids = crio.import_images(write_images([Image(name, (BASE,)) for name in names], tmp_path))
        listed = {image.id: list(image.repo_tags) for image in crio.cri.list_images()}
        assert [listed[image_id] for image_id in ids] == [[name] for name in names]
        assert sorted(ids, key=lambda image_id: crio.age_stamp(image_id).stat().st_ctime_ns) == ids
        kubelet = PretendKubelet(
            crio.cri,
            disk.mountpoint / "kubelet",
            disk.mountpoint / "log" / "pods",
            crio.cgroup_parent,
        )
        kubelet.admit_pod(UID)
        container_id = kubelet.run_container(
            kubelet.run_pod("web-0", UID), "web", names[0], SLEEP_FOR_EVER
        )
        crio.kill()
        crio.start()
        assert kubelet.state_of(container_id) == cri.CONTAINER_RUNNING
        assert len(crio.monitors()) == 1
        assert len(crio.processes()) == 1
    assert (crio.monitors(), crio.cgroups()) == ([], [])
    assert not crio.run_directory.exists()
    assert mounts_below(tmp_path) == []
    assert loop_devices_of(disk.image) == []


def test_processes_that_hold_a_filesystem_are_named(tmp_path: Path) -> None:
    """A process holds it by its directory, by an open file, or by a mount namespace of its own."""
    with LoopFilesystem(tmp_path, 32 * MIB) as filesystem:
        device = os.stat(filesystem.mountpoint).st_dev
        by_directory = subprocess.Popen(["sleep", "60"], cwd=filesystem.mountpoint)
        with open(filesystem.mountpoint / "file", "w") as file:
            by_file = subprocess.Popen(["sleep", "60"], stdout=file)
        try:
            begun = [Path(f"/proc/{process.pid}/cmdline") for process in (by_directory, by_file)]
            assert came_true(lambda: all(words.read_bytes() for words in begun)), (
                "each has become that program"
            )
            held = {line.partition(" ")[0]: line for line in holders_of(device)}
            assert held[str(by_directory.pid)].endswith("(sleep 60) by cwd, a mount")
            assert held[str(by_file.pid)].endswith("(sleep 60) by fd/1, a mount")
            assert "fd/" not in held[str(os.getpid())]
        finally:
            for process in (by_directory, by_file):
                process.kill()
                process.wait()


def test_a_failed_start_of_containerd_quotes_its_error(tmp_path: Path) -> None:
    """The error quotes containerd, and nothing is left behind."""
    root = tmp_path / "root"
    root.mkdir()
    (root / "io.containerd.metadata.v1.bolt").write_text("a file where a directory belongs")
    containerd = Containerd(root, ready_seconds=3)
    with pytest.raises(RuntimeError, match=r"io\.containerd\.metadata\.v1\.bolt"), containerd:
        pass
    assert not containerd.run_directory.exists()


def test_the_objects_of_the_crowded_node_have_the_states_of_their_roles(
    crowded_node: CrowdedNode,
) -> None:
    """Every id of the crowded node exists and is in the state that its role names."""
    crowd, client = crowded_node, crowded_node.node.cri
    containers = {container.id: container for container in client.list_containers()}
    running, exited = cri.CONTAINER_RUNNING, cri.CONTAINER_EXITED
    assert {container_id: container.state for container_id, container in containers.items()} == {
        **dict.fromkeys(crowd.running_containers, running),
        crowd.init_container: exited,
        crowd.crashed_older: exited,
        crowd.crashed_newest: exited,
        crowd.dead_container: exited,
    }
    assert [
        containers[c].metadata.attempt for c in (crowd.crashed_older, crowd.crashed_newest)
    ] == [0, 1]
    assert {sandbox.id: sandbox.state for sandbox in client.list_sandboxes()} == {
        **dict.fromkeys((*crowd.running_sandboxes, crowd.crashed_sandbox), cri.SANDBOX_READY),
        crowd.dead_sandbox: cri.SANDBOX_NOTREADY,
    }
    pods = set(os.listdir(crowd.node.kubelet.root_dir / "pods"))
    assert pods == {*crowd.running_uids, crowd.crashed_uid}
    images = {image.id: image for image in client.list_images()}
    assert images.keys() == {*crowd.unused_images, *crowd.protected_images()}
    assert len(images) == 23
    used = {container.image_ref for container in containers.values()}
    assert used == {crowd.app_image, crowd.init_image}


def test_the_sandbox_image_is_known(containerd_on_ext4: RealNode) -> None:
    """containerd 1.6 does not pin the sandbox image, and 2.x leaves it out of the configuration
    that it tells; either way its sandboxes name it."""
    node, client = containerd_on_ext4, containerd_on_ext4.cri
    node.kubelet.admit_pod(UID)
    pod = node.kubelet.run_pod("web-0", UID)
    image = client.image_status(node.sandbox_image_id)
    assert image is not None
    version = client.version().runtime_version.lstrip("v")
    assert image.pinned is not version.startswith("1.6.")
    assert client.runtime_config().get("sandboxImage") == (
        SANDBOX_IMAGE if version.startswith("1.") else None
    )
    info = json.loads(client.sandbox_status(pod.id).info["info"])
    assert info["image"] == SANDBOX_IMAGE
