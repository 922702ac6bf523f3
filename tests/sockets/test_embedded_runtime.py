"""The embedded runtime over its socket: containerd's rules, each as a call that a careless client would make."""

from __future__ import annotations

import json
import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from reclaim.cri import cri_pb2
from reclaim.embedded.filesystem import EmbeddedNodeError
from reclaim.embedded.runtime import EmbeddedRuntime
from reclaim.embedded.server import METHODS, EmbeddedServer
from reclaim.embedded.store import LayerSpec

from .cri_calls import CriCalls, came_true, run_container, run_pod

BASE = LayerSpec("base", 64 << 10, files=3)
APP = LayerSpec("app", 32 << 10, files=300)
TOOL = LayerSpec("tool", 16 << 10)
NAME = "registry.example/team/app:1"
NOON = 1_700_000_000.0


class Node:
    """A runtime with its socket, a client, the sandbox image and one application image."""

    def __init__(self, directory: Path, **options: Any) -> None:
        self.root = directory / "images"
        self.now = NOON
        self.runtime = EmbeddedRuntime(str(self.root), wall_clock=lambda: self.now, **options)
        self.pause_id = self.runtime.add_image([self.runtime.sandbox_image], [LayerSpec("pause", 4096)])
        self.app_id = self.runtime.add_image([NAME, "registry.example/team/app:stable"], [BASE, APP])
        self.server = EmbeddedServer(self.runtime, str(directory / "cri.sock"))
        self.server.start()
        self.calls = CriCalls(self.server.target)
        self.call = self.calls.call
        self.error = self.calls.error

    def close(self) -> None:
        """Hang up, and stop serving."""
        self.calls.__exit__(None, None, None)
        self.server.close()

    def containers(self, **wanted: Any) -> list[Any]:
        """What ListContainers says under a filter."""
        return list(self.call("ListContainers", filter=wanted).containers)

    def sandboxes(self, **wanted: Any) -> list[Any]:
        """What ListPodSandbox says under a filter."""
        return list(self.call("ListPodSandbox", filter=wanted).items)

    def images(self) -> list[Any]:
        """What ListImages says."""
        return list(self.call("ListImages").images)

    def status(self, container_id: str) -> Any:
        """What ContainerStatus says."""
        return self.call("ContainerStatus", container_id=container_id).status

    def has_layer(self, layer: LayerSpec) -> bool:
        """Whether the layer's directory is there."""
        return (self.root / "layers" / layer.digest.removeprefix("sha256:")).exists()

    def writable(self, container_id: str) -> Path:
        """The container's writable layer, there or not."""
        return self.root / "containers" / container_id


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path)
    yield made
    made.close()


def test_every_call_of_the_proto_has_a_row_in_the_table() -> None:
    """The table serves each method that has a request message, with the message of its own name."""
    requests = {name for name in cri_pb2.DESCRIPTOR.message_types_by_name if name.endswith("Request")}
    assert {f"{method.name}Request" for method in METHODS} == requests
    assert all(method.request.DESCRIPTOR.name == f"{method.name}Request" for method in METHODS)


def test_it_says_who_it_is_and_that_it_is_ready(tmp_path: Path) -> None:
    """Version carries the name given; Status has both conditions true, and no details unless asked."""
    node = Node(tmp_path, runtime_name="containerd", runtime_version="1.6.20")
    version = node.call("Version")
    assert (version.runtime_name, version.runtime_version, version.runtime_api_version) == (
        "containerd",
        "1.6.20",
        "v1",
    )
    status = node.call("Status")
    assert {each.type: each.status for each in status.status.conditions} == {"RuntimeReady": True, "NetworkReady": True}
    assert dict(status.info) == {}
    node.close()


def test_a_method_that_is_not_served_is_unimplemented(node: Node) -> None:
    """What the table does not have is answered as by a runtime without that method."""
    channel = grpc.insecure_channel(node.server.target, options=[("grpc.default_authority", "localhost")])
    stream: Any = channel.unary_unary("/runtime.v1.RuntimeService/StreamContainers")
    with channel, pytest.raises(grpc.RpcError) as caught:
        stream(b"", timeout=5)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


# ---- what is protected: nothing


def test_an_image_in_use_is_removed_and_its_layers_go_with_the_last_container(node: Node) -> None:
    """RemoveImage succeeds at once, the running container goes on, and the space comes when it is removed."""
    container_id = run_container(node.calls, run_pod(node.calls, "web"), "web", NAME)
    node.call("RemoveImage", image={"image": node.app_id})
    assert node.call("ImageStatus", image={"image": NAME}).HasField("image") is False
    assert node.status(container_id).state == cri_pb2.CONTAINER_RUNNING
    assert node.has_layer(APP)
    node.call("RemoveContainer", container_id=container_id)
    assert not node.has_layer(APP)


def test_a_running_container_is_removed_without_a_question(node: Node) -> None:
    """RemoveContainer kills: the container is gone, its writable layer too."""
    container_id = run_container(node.calls, run_pod(node.calls, "web"), "web", NAME)
    node.runtime.write_to_container(container_id, 10_000)
    assert sum(file.stat().st_size for file in node.writable(container_id).iterdir()) == 10_000
    node.call("RemoveContainer", container_id=container_id)
    assert node.containers() == []
    assert not node.writable(container_id).exists()


def test_the_sandbox_image_is_removed_even_if_pinned_and_then_no_pod_starts(node: Node) -> None:
    """Pinning is advice to clients; without the image RunPodSandbox is NOT_FOUND."""
    assert node.call("ImageStatus", image={"image": node.pause_id}).image.pinned
    node.call("RemoveImage", image={"image": node.pause_id})
    code, message = node.error("RunPodSandbox", config={"metadata": {"name": "web"}})
    assert code is grpc.StatusCode.NOT_FOUND
    assert message == "image 'registry.k8s.io/pause:3.10' not found"


# ---- names


@pytest.mark.parametrize("digits", [6, 64])
def test_a_prefix_is_as_good_as_an_id(node: Node, digits: int) -> None:
    """Six characters find, and remove, a container, a sandbox and an image."""
    sandbox_id = run_pod(node.calls, "web")
    container_id = run_container(node.calls, sandbox_id, "web", NAME)
    image_id = node.app_id.removeprefix("sha256:")
    assert node.status(container_id[:digits]).id == container_id
    assert [each.id for each in node.containers(pod_sandbox_id=sandbox_id[:digits])] == [container_id]
    assert node.call("ImageStatus", image={"image": image_id[:digits]}).image.id == node.app_id
    assert node.call("ImageStatus", image={"image": f"sha256:{image_id[:digits]}"}).image.id == node.app_id
    node.call("RemoveContainer", container_id=container_id[:digits])
    node.call("RemovePodSandbox", pod_sandbox_id=sandbox_id[:digits])
    node.call("RemoveImage", image={"image": image_id[:digits]})
    assert [each.id for each in node.runtime.removals] == [container_id, sandbox_id, node.app_id]


def test_an_empty_name_and_a_prefix_of_several_are_errors(node: Node) -> None:
    """Of 17 ids two begin alike: that character names nothing, and neither does an empty string."""
    sandbox_id = run_pod(node.calls, "web")
    ids = [run_container(node.calls, sandbox_id, f"c{number}", NAME) for number in range(17)]
    firsts = [each[0] for each in ids]
    shared = next(first for first in firsts if firsts.count(first) > 1)
    for name in (shared, ""):
        assert node.error("RemoveContainer", container_id=name)[0] is grpc.StatusCode.UNKNOWN
    assert node.error("RemoveImage", image={"image": ""})[0] is grpc.StatusCode.UNKNOWN
    assert len(node.containers()) == 17


@pytest.mark.parametrize("by", ["tag", "other tag", "repository digest", "id"])
def test_removing_an_image_by_any_name_drops_all_its_names(node: Node, by: str) -> None:
    """By name containerd does not untag: the image goes with every tag, and its layers with it."""
    image = node.call("ImageStatus", image={"image": node.app_id}).image
    names = {
        "tag": image.repo_tags[0],
        "other tag": image.repo_tags[1],
        "repository digest": image.repo_digests[0],
        "id": image.id,
    }
    node.call("RemoveImage", image={"image": names[by]})
    assert [each.id for each in node.images()] == [node.pause_id]
    assert not node.has_layer(APP)


def test_a_short_name_means_the_docker_hub_and_latest(node: Node) -> None:
    """References are normalized as the distribution library does it."""
    image_id = node.runtime.add_image(["busybox"], [TOOL])
    assert node.call("ImageStatus", image={"image": "docker.io/library/busybox:latest"}).image.id == image_id
    assert node.call("ImageStatus", image={"image": "busybox"}).image.repo_tags == ["docker.io/library/busybox:latest"]


def test_a_tag_that_is_pulled_again_moves(node: Node) -> None:
    """The image that had the tag stays, with its digest: an image that nobody names but that takes its space."""
    newer = node.runtime.add_image([NAME], [BASE, TOOL])
    older = node.call("ImageStatus", image={"image": node.app_id}).image
    assert node.call("ImageStatus", image={"image": NAME}).image.id == newer
    assert (list(older.repo_tags), len(older.repo_digests)) == (["registry.example/team/app:stable"], 1)


def test_an_image_may_have_neither_tags_nor_digests(node: Node) -> None:
    """Such a stranded record is listed, and removed by id."""
    stranded = node.runtime.add_image([], [TOOL])
    image = node.call("ImageStatus", image={"image": stranded}).image
    assert (list(image.repo_tags), list(image.repo_digests)) == ([], [])
    node.call("RemoveImage", image={"image": stranded})
    assert not node.has_layer(TOOL)


# ---- what is not there


def test_removing_what_is_absent_is_success_and_changes_nothing(node: Node) -> None:
    """RemoveImage, RemoveContainer and the Stop and Remove calls of a sandbox are idempotent."""
    for method, fields in (
        ("StopContainer", {"container_id": "absent"}),
        ("RemoveContainer", {"container_id": "absent"}),
        ("StopPodSandbox", {"pod_sandbox_id": "absent"}),
        ("RemovePodSandbox", {"pod_sandbox_id": "absent"}),
        ("RemoveImage", {"image": {"image": "registry.example/absent:1"}}),
    ):
        node.call(method, **fields)
    assert node.runtime.removals == ()


def test_the_status_of_what_is_absent(node: Node) -> None:
    """Of a container and a sandbox it is NOT_FOUND; of an image an answer without an image."""
    assert node.error("ContainerStatus", container_id="absent")[0] is grpc.StatusCode.NOT_FOUND
    assert node.error("PodSandboxStatus", pod_sandbox_id="absent")[0] is grpc.StatusCode.NOT_FOUND
    assert not node.call("ImageStatus", image={"image": "absent"}).HasField("image")


def test_a_container_needs_its_sandbox_its_image_and_its_volumes(node: Node) -> None:
    """CreateContainer names what is missing, and leaves no writable layer."""
    sandbox_id = run_pod(node.calls, "web")
    absent = {"image": "registry.example/absent:1"}
    volume = {"container_path": "/data", "image": absent}
    for sandbox, config in (
        ("absent", {"image": {"image": NAME}}),
        (sandbox_id, {"image": absent}),
        (sandbox_id, {"image": {"image": NAME}, "mounts": [volume]}),
    ):
        code, message = node.error("CreateContainer", pod_sandbox_id=sandbox, config=config)
        assert code is grpc.StatusCode.NOT_FOUND
        assert "absent" in message
    assert list((node.root / "containers").iterdir()) == []


def test_a_container_starts_once_and_only_in_a_ready_sandbox(node: Node) -> None:
    """StartContainer fails for a container that runs, and for one whose sandbox has died."""
    sandbox_id = run_pod(node.calls, "web")
    container_id = run_container(node.calls, sandbox_id, "web", NAME)
    assert "CONTAINER_RUNNING state" in node.error("StartContainer", container_id=container_id)[1]
    config = {"metadata": {"name": "late"}, "image": {"image": NAME}}
    late = node.call("CreateContainer", pod_sandbox_id=sandbox_id, config=config).container_id
    node.runtime.kill_sandbox(sandbox_id)
    assert "is not running" in node.error("StartContainer", container_id=late)[1]


# ---- containers and sandboxes


def test_a_sandbox_is_removed_with_all_its_containers(node: Node) -> None:
    """RemovePodSandbox takes the running ones too, and no other pod's."""
    first, second = run_pod(node.calls, "first"), run_pod(node.calls, "second")
    for name in ("a", "b"):
        run_container(node.calls, first, name, NAME)
    kept = run_container(node.calls, second, "c", NAME)
    node.call("RemovePodSandbox", pod_sandbox_id=first)
    assert [each.id for each in node.containers()] == [kept]
    assert [each.id for each in node.sandboxes()] == [second]
    assert [each.kind for each in node.runtime.removals] == ["container", "container", "sandbox"]


def test_stopping_a_sandbox_ends_its_containers(node: Node) -> None:
    """StopPodSandbox: NOTREADY, and every container EXITED with 137 (128 + SIGKILL)."""
    sandbox_id = run_pod(node.calls, "web")
    container_id = run_container(node.calls, sandbox_id, "web", NAME)
    node.call("StopPodSandbox", pod_sandbox_id=sandbox_id)
    assert node.call("PodSandboxStatus", pod_sandbox_id=sandbox_id).status.state == cri_pb2.SANDBOX_NOTREADY
    status = node.status(container_id)
    assert (status.state, status.exit_code) == (cri_pb2.CONTAINER_EXITED, 137)


def test_a_container_status_tells_all_that_a_kubelet_needs(node: Node) -> None:
    """Times, exit code, labels, annotations, the absolute log path, and the image of an image volume."""
    data = node.runtime.add_image(["registry.example/data:1"], [TOOL])
    sandbox_id = run_pod(node.calls, "web", log_directory="/var/log/pods/default_web_uid-web")
    container_id = run_container(
        node.calls,
        sandbox_id,
        "web",
        NAME,
        labels={"io.kubernetes.container.name": "web"},
        annotations={"io.kubernetes.container.restartCount": "0"},
        log_path="web/0.log",
        mounts=[{"container_path": "/data", "readonly": True, "image": {"image": data}}],
    )
    node.now += 5
    node.runtime.exit_container(container_id, 3)
    status = node.status(container_id)
    assert (status.metadata.name, status.state, status.exit_code) == ("web", cri_pb2.CONTAINER_EXITED, 3)
    assert (status.created_at, status.started_at) == (round(NOON * 1e9), round(NOON * 1e9))
    assert status.finished_at == round((NOON + 5) * 1e9)
    assert status.log_path == "/var/log/pods/default_web_uid-web/web/0.log"
    assert dict(status.labels) == {"io.kubernetes.container.name": "web"}
    assert dict(status.annotations) == {"io.kubernetes.container.restartCount": "0"}
    assert [mount.image.image for mount in status.mounts] == [data]
    node.call("RemoveImage", image={"image": data})
    assert node.has_layer(TOOL)  # an image volume stands on its layers as a container does


def test_lists_honour_their_filters(node: Node) -> None:
    """Id, state, sandbox and labels must all match; a filter that names nothing selects nothing."""
    first, second = run_pod(node.calls, "first", labels={"tier": "web"}), run_pod(node.calls, "second")
    running = run_container(node.calls, first, "a", NAME, labels={"app": "a", "tier": "web"})
    exited = run_container(node.calls, second, "b", NAME, labels={"app": "b"})
    node.runtime.exit_container(exited)
    node.runtime.kill_sandbox(second)

    def ids(found: list[Any]) -> list[str]:
        return [each.id for each in found]

    assert ids(node.containers()) == [running, exited]
    assert ids(node.containers(state={"state": cri_pb2.CONTAINER_EXITED})) == [exited]
    assert ids(node.containers(state={"state": cri_pb2.CONTAINER_CREATED})) == []
    assert ids(node.containers(pod_sandbox_id=first)) == [running]
    assert ids(node.containers(id=exited[:12])) == [exited]
    assert ids(node.containers(label_selector={"app": "a", "tier": "web"})) == [running]
    assert ids(node.containers(label_selector={"app": "a", "tier": "db"})) == []
    assert ids(node.containers(id="absent")) == []
    assert ids(node.sandboxes(state={"state": cri_pb2.SANDBOX_READY})) == [first]
    assert ids(node.sandboxes(label_selector={"tier": "web"})) == [first]
    assert ids(node.sandboxes(id=second[:12])) == [second]
    images = node.call("ListImages", filter={"image": {"image": NAME}}).images
    assert [each.id for each in images] == [node.app_id]


# ---- differences between runtimes


@pytest.mark.parametrize("fills", [True, False], ids=["containerd 2", "containerd 1.6"])
def test_where_a_runtime_puts_the_image_id(tmp_path: Path, fills: bool) -> None:
    """image_id is empty on containerd 1.6; image_ref is the id in the list and a repository digest in the status."""
    node = Node(tmp_path, fills_image_id=fills)
    container_id = run_container(node.calls, run_pod(node.calls, "web"), "web", NAME)
    (listed,), status = node.containers(), node.status(container_id)
    digest = node.call("ImageStatus", image={"image": NAME}).image.repo_digests[0]
    assert (listed.image_ref, listed.image_id) == (node.app_id, node.app_id if fills else "")
    assert (status.image_ref, status.image_id) == (digest, node.app_id if fills else "")
    node.call("RemoveImage", image={"image": NAME})
    assert node.status(container_id).image_ref == node.app_id
    node.close()


@pytest.mark.parametrize("tells", [True, False])
def test_whether_a_runtime_tells_of_its_sandbox_image(tmp_path: Path, tells: bool) -> None:
    """Pinned in the list, named in Status and in PodSandboxStatus; or none of the three."""
    node = Node(tmp_path, pins_sandbox_image=tells, reports_sandbox_image=tells)
    sandbox_id = run_pod(node.calls, "web")
    config = json.loads(node.call("Status", verbose=True).info["config"])
    info = json.loads(node.call("PodSandboxStatus", pod_sandbox_id=sandbox_id, verbose=True).info["info"])
    expected = "registry.k8s.io/pause:3.10" if tells else None
    assert (config.get("sandboxImage"), info.get("image")) == (expected, expected)
    assert {each.id: each.pinned for each in node.images()} == {node.pause_id: tells, node.app_id: False}
    node.close()


# ---- space


def test_layers_are_shared_and_the_last_image_takes_them_along(node: Node) -> None:
    """Two images on one base: each says its full size, and the base stays until the second one goes."""
    other = node.runtime.add_image(["registry.example/team/tool:1"], [BASE, TOOL])
    sizes = {each.id: each.size for each in node.images()}
    assert (sizes[node.app_id], sizes[other]) == (96 << 10, 80 << 10)
    node.call("RemoveImage", image={"image": node.app_id})
    assert (node.has_layer(BASE), node.has_layer(APP), node.has_layer(TOOL)) == (True, False, True)
    node.call("RemoveImage", image={"image": other})
    assert (node.has_layer(BASE), node.has_layer(TOOL)) == (False, False)


def test_layer_content_is_real(node: Node) -> None:
    """Every file is there with its bytes, none is sparse, and none is zeros."""
    root = node.root / "layers" / BASE.digest.removeprefix("sha256:")
    files = [file for file in root.rglob("*") if file.is_file()]
    assert (len(files), sum(file.stat().st_size for file in files)) == (3, 64 << 10)
    assert all(file.stat().st_blocks * 512 >= file.stat().st_size for file in files)
    assert all(len(set(file.read_bytes())) > 200 for file in files)


def test_a_layer_takes_as_many_inodes_as_it_says(node: Node) -> None:
    """300 files in 2 directories in 1 directory: 303."""
    root = node.root / "layers" / APP.digest.removeprefix("sha256:")
    assert len(list(root.rglob("*"))) + 1 == APP.inodes == 303


def test_image_fs_info_names_the_directory_and_counts_what_is_in_it(node: Node) -> None:
    """One filesystem with layers and writable layers; its mountpoint is a directory, and need not be a mount."""
    container_id = run_container(node.calls, run_pod(node.calls, "web"), "web", NAME)
    node.runtime.write_to_container(container_id, 10_000, files=2)
    info = node.call("ImageFsInfo")
    (images,), (containers,) = info.image_filesystems, info.container_filesystems
    assert images == containers
    assert images.fs_id.mountpoint == str(node.root)
    assert not node.root.is_mount()
    everything = [each for top in ("layers", "containers") for each in (node.root / top).rglob("*")]
    assert images.inodes_used.value == len(everything)
    block = os.statvfs(node.root).f_frsize
    files = [each.stat().st_size for each in everything if each.is_file()]
    assert images.used_bytes.value == sum(-(-size // block) * block for size in files)


def test_a_split_layout_has_its_writable_layers_elsewhere(tmp_path: Path) -> None:
    """With a containers root of their own, the two filesystems have two names and two numbers."""
    node = Node(tmp_path, containers_root=str(tmp_path / "writable"))
    container_id = run_container(node.calls, run_pod(node.calls, "web"), "web", NAME)
    node.runtime.write_to_container(container_id, 1)
    info = node.call("ImageFsInfo")
    assert info.image_filesystems[0].fs_id.mountpoint == str(node.root)
    assert info.container_filesystems[0].fs_id.mountpoint == str(tmp_path / "writable")
    assert info.container_filesystems[0].inodes_used.value == 2
    assert (tmp_path / "writable" / "containers" / container_id).is_dir()
    node.close()


def test_space_of_a_container_comes_later_by_itself(tmp_path: Path) -> None:
    """The call answers, the container is no longer listed, and 0.1 s later its bytes are free."""
    node = Node(tmp_path, container_space_delay_seconds=0.1)
    container_id = run_container(node.calls, run_pod(node.calls, "web"), "web", NAME)
    node.call("RemoveContainer", container_id=container_id)
    assert node.containers() == []
    assert node.writable(container_id).exists()
    assert came_true(lambda: not node.writable(container_id).exists())
    node.close()


def test_space_of_a_container_comes_with_the_next_image_at_the_latest(tmp_path: Path) -> None:
    """RemoveImage waits for the runtime's collection: what containers left goes with it."""
    node = Node(tmp_path, container_space_delay_seconds=60)
    container_id = run_container(node.calls, run_pod(node.calls, "web"), "web", NAME)
    node.call("RemoveContainer", container_id=container_id)
    node.call("RemoveImage", image={"image": "registry.example/absent:1"})
    assert node.writable(container_id).exists()
    node.call("RemoveImage", image={"image": node.app_id})
    assert not node.writable(container_id).exists()
    assert not node.has_layer(APP)
    node.close()


# ---- the world


def test_a_reboot_leaves_every_sandbox_not_ready_and_every_container_exited(node: Node) -> None:
    """Nothing is removed by it, and what had exited before keeps its exit code."""
    sandbox_id = run_pod(node.calls, "web")
    done, running = (run_container(node.calls, sandbox_id, name, NAME) for name in ("done", "running"))
    node.runtime.exit_container(done, 0)
    node.runtime.reboot()
    assert [each.state for each in node.sandboxes()] == [cri_pb2.SANDBOX_NOTREADY]
    assert {each.id: each.state for each in node.containers()} == dict.fromkeys(
        (done, running), cri_pb2.CONTAINER_EXITED
    )
    assert (node.status(done).exit_code, node.status(running).exit_code) == (0, 255)


def test_a_running_container_may_sit_in_a_dead_sandbox(node: Node) -> None:
    """kill_sandbox touches the sandbox alone; an UNKNOWN container is what a lost shim leaves."""
    sandbox_id = run_pod(node.calls, "web")
    running, lost = (run_container(node.calls, sandbox_id, name, NAME) for name in ("running", "lost"))
    node.runtime.kill_sandbox(sandbox_id)
    node.runtime.lose_container(lost)
    states = {each.id: each.state for each in node.containers()}
    assert states == {running: cri_pb2.CONTAINER_RUNNING, lost: cri_pb2.CONTAINER_UNKNOWN}


def test_age_moves_times_into_the_past(node: Node) -> None:
    """An hour older is 3 600 000 000 000 ns less; a time that was never set stays 0."""
    sandbox_id = run_pod(node.calls, "web")
    container_id = run_container(node.calls, sandbox_id, "web", NAME)
    node.runtime.age(container_id, 3600)
    node.runtime.age(sandbox_id, 60)
    status = node.status(container_id)
    assert (status.created_at, status.started_at, status.finished_at) == (*[round((NOON - 3600) * 1e9)] * 2, 0)
    assert node.sandboxes()[0].created_at == round((NOON - 60) * 1e9)


def test_removals_remember_what_really_happened(node: Node) -> None:
    """Kind, full id and wall time, in order; a second removal of the same thing is not in it."""
    sandbox_id = run_pod(node.calls, "web")
    for second in (1, 2):
        node.now = NOON + second
        node.call("RemovePodSandbox", pod_sandbox_id=sandbox_id)
    assert node.runtime.removals == ((NOON + 1, "sandbox", sandbox_id),)


def test_an_image_that_comes_again_has_the_same_id(node: Node) -> None:
    """The same tags on the same layers are the same image, whether it is there already or not."""
    again = [NAME, "registry.example/team/app:stable"]
    assert node.runtime.add_image(again, [BASE, APP]) == node.app_id
    node.call("RemoveImage", image={"image": NAME})
    assert not node.has_layer(APP)
    assert node.runtime.add_image(again, [BASE, APP]) == node.app_id
    assert node.has_layer(APP)


def test_the_world_does_not_take_a_mistyped_id_for_success(node: Node) -> None:
    """Unlike the protocol, the scenario's side takes full ids only and says what it does not know."""
    container_id = run_container(node.calls, run_pod(node.calls, "web"), "web", NAME)
    with pytest.raises(EmbeddedNodeError, match="no container with the full id"):
        node.runtime.exit_container(container_id[:12])
    node.runtime.exit_container(container_id)
    with pytest.raises(EmbeddedNodeError, match="no process"):
        node.runtime.exit_container(container_id)
    with pytest.raises(EmbeddedNodeError, match="no sandbox with the full id"):
        node.runtime.kill_sandbox("absent")


def test_two_nodes_cannot_share_a_directory(node: Node) -> None:
    """Files of another node would be neither counted nor deleted, so the second node is refused."""
    with pytest.raises(EmbeddedNodeError, match="cannot be the root of a new node"):
        EmbeddedRuntime(str(node.root))


@pytest.mark.parametrize("wrong", [("a", -1, 1), ("a", 1, 0), ("sha256:../../etc", 0, 0)])
def test_a_layer_that_cannot_be_is_refused(wrong: tuple[str, int, int]) -> None:
    """Negative bytes, bytes without a file, and a digest that would be a path."""
    with pytest.raises(ValueError, match="layer"):
        LayerSpec(*wrong)


# ---- the server


def test_a_list_of_more_than_4_mib_arrives(node: Node) -> None:
    """3 000 containers with 2 KiB of annotations each are 6 MiB in one answer."""
    sandbox_id = run_pod(node.calls, "web")
    config = cri_pb2.ContainerConfig(image=cri_pb2.ImageSpec(image=NAME), annotations={"text": "x" * 2048})
    request = cri_pb2.CreateContainerRequest(pod_sandbox_id=sandbox_id, config=config)
    for _ in range(3000):
        node.runtime.create_container(request)
    answer = node.call("ListContainers")
    assert len(answer.containers) == 3000
    assert answer.ByteSize() > 6 << 20


def test_a_restart_keeps_the_path_and_the_state(node: Node) -> None:
    """The client loses its connection, reaches the same socket again and finds the same containers."""
    container_id = run_container(node.calls, run_pod(node.calls, "web"), "web", NAME)
    node.server.restart()
    with CriCalls(node.server.target) as calls:
        assert [each.id for each in calls.call("ListContainers").containers] == [container_id]


def test_stop_removes_the_socket_and_only_its_owner_may_connect(node: Node) -> None:
    """A socket while it serves, mode 0600; nothing at the path afterwards; both calls may come twice."""
    node.server.start()
    mode = os.stat(node.server.socket_path).st_mode
    assert (stat.S_ISSOCK(mode), stat.S_IMODE(mode)) == (True, 0o600)
    node.server.stop()
    node.server.stop()
    assert not os.path.lexists(node.server.socket_path)
    assert node.error("Version")[0] is grpc.StatusCode.UNAVAILABLE


def test_a_socket_path_that_cannot_be_is_refused(node: Node, tmp_path: Path) -> None:
    """Too long for sun_path, or in a directory that does not exist."""
    with pytest.raises(EmbeddedNodeError, match="107 bytes at most"):
        EmbeddedServer(node.runtime, "/" + "x" * 107).start()
    with pytest.raises(EmbeddedNodeError, match="cannot listen"):
        EmbeddedServer(node.runtime, str(tmp_path / "absent" / "s")).start()


def test_no_thread_is_left_behind(tmp_path: Path) -> None:
    """After close neither a worker, nor the server's own thread, nor the one that frees space later is alive."""
    before = set(threading.enumerate())
    node = Node(tmp_path, container_space_delay_seconds=60)
    container_id = run_container(node.calls, run_pod(node.calls, "web"), "web", NAME)
    node.call("RemoveContainer", container_id=container_id)
    assert set(threading.enumerate()) - before
    node.close()
    assert not node.writable(container_id).exists()
    assert not any(isinstance(thread, threading.Timer) for thread in threading.enumerate())
    assert came_true(lambda: not set(threading.enumerate()) - before)
