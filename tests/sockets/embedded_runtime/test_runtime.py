"""What the embedded runtime answers: containerd's rules, each as the call of a careless client.

Nothing is protected by it. Its disk is real, and so is its socket.
"""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from eviction.drill.embedded import FaultSchedule, failpoint_of
from eviction.drill.private_mounts import EmbeddedNodeError
from eviction.drill.runtime import EmbeddedServer
from eviction.drill.scenario import Fault
from tests.nodes.bare_runtime import APP, BASE, NAME, TOOL, BareRuntime
from tests.nodes.faults import Delay, Fail, Failpoint, Hang
from tests.nodes.full_server import METHODS
from tests.reclaimd_process import came_true
from tests.sockets.cri_calls import CriCalls, run_container, run_pod

NOT_FOUND, UNKNOWN = grpc.StatusCode.NOT_FOUND, grpc.StatusCode.UNKNOWN
LATE = grpc.StatusCode.DEADLINE_EXCEEDED
STABLE = "registry.example/team/app:stable"
ABSENT = {"image": "registry.example/absent:1"}


class Crowd:
    """A runtime with two pods: `web` has a container that runs and one that has exited."""

    def __init__(self, node: BareRuntime) -> None:
        self.node = node
        self.web, self.other = (run_pod(node.calls, name) for name in ("web", "other"))
        self.running, self.exited = (
            run_container(node.calls, self.web, name, NAME) for name in ("running", "exited")
        )
        node.runtime.exit_container(self.exited)


@pytest.fixture
def crowd(node: BareRuntime) -> Crowd:
    """Such a runtime."""
    return Crowd(node)


def removed(crowd: Crowd) -> list[str]:
    """The names of what is gone, in order."""
    names = {value: name for name, value in vars(crowd).items() if isinstance(value, str)}
    return [names.get(each.id, each.kind) for each in crowd.node.runtime.removals]


def digest(crowd: Crowd) -> str:
    """The repository digest of the application image."""
    found: str = crowd.node.call("ImageStatus", image={"image": NAME}).image.repo_digests[0]
    return found


REMOVALS: dict[str, tuple[str, Callable[[Crowd], str], list[str]]] = {
    "a container that runs": ("RemoveContainer", lambda c: c.running, ["running"]),
    "a container by a prefix": ("RemoveContainer", lambda c: c.exited[:6], ["exited"]),
    "a sandbox with its containers": (
        "RemovePodSandbox",
        lambda c: c.web,
        ["running", "exited", "web"],
    ),
    "a sandbox by a prefix": ("RemovePodSandbox", lambda c: c.other[:6], ["other"]),
    "an image in use by a name": ("RemoveImage", lambda _: NAME, ["image"]),
    "by another name": ("RemoveImage", lambda _: STABLE, ["image"]),
    "by its digest": ("RemoveImage", digest, ["image"]),
    "by its id": ("RemoveImage", lambda c: c.node.app_id, ["image"]),
    "by a prefix": ("RemoveImage", lambda c: c.node.app_id[7:13], ["image"]),
    "by a prefix with its algorithm": ("RemoveImage", lambda c: c.node.app_id[:13], ["image"]),
    "the sandbox image, which is pinned": ("RemoveImage", lambda c: c.node.pause_id, ["image"]),
    "no container": ("RemoveContainer", lambda _: "absent", []),
    "no sandbox": ("RemovePodSandbox", lambda _: "absent", []),
    "no image": ("RemoveImage", lambda _: ABSENT["image"], []),
    "stopping no container": ("StopContainer", lambda _: "absent", []),
    "stopping no sandbox": ("StopPodSandbox", lambda _: "absent", []),
}
FIELDS = {"Container": "container_id", "Sandbox": "pod_sandbox_id"}


@pytest.mark.parametrize("what", REMOVALS)
def test_a_removal_removes_whatever_is_named(crowd: Crowd, what: str) -> None:
    """With all of its names; one that is done twice succeeds and does nothing."""
    method, name, gone = REMOVALS[what]
    wanted = name(crowd)
    kind = next((kind for kind in FIELDS if method.endswith(kind)), "")
    fields: dict[str, Any] = {FIELDS[kind]: wanted} if kind else {"image": {"image": wanted}}
    for _ in range(2):
        crowd.node.call(method, **fields)
        assert removed(crowd) == gone
    if method == "RemoveImage" and gone:
        assert len(crowd.node.images()) == 1
        assert crowd.node.has_layer(APP), "its containers stand on its layers"


ERRORS: dict[str, tuple[str, dict[str, Any], grpc.StatusCode]] = {
    "the status of no container": ("ContainerStatus", {"container_id": "absent"}, NOT_FOUND),
    "the status of no sandbox": ("PodSandboxStatus", {"pod_sandbox_id": "absent"}, NOT_FOUND),
    "an empty id": ("RemoveContainer", {"container_id": ""}, UNKNOWN),
    "an empty name": ("RemoveImage", {"image": {"image": ""}}, UNKNOWN),
}


@pytest.mark.parametrize("what", ERRORS)
def test_what_cannot_be_done_is_an_error(crowd: Crowd, what: str) -> None:
    """NOT_FOUND, or UNKNOWN."""
    method, fields, code = ERRORS[what]
    assert crowd.node.error(method, **fields)[0] is code
    assert crowd.node.runtime.removals == ()


# ---- what is told of the objects


# ---- names and layers of images


def test_a_layer_is_deleted_with_the_last_that_stands_on_it(node: BareRuntime) -> None:
    """Images with one base report their full sizes; a container, and an image volume of it, keep
    the layers of an image that has gone."""
    other = node.runtime.add_image(["registry.example/team/tool:1"], [BASE, TOOL])
    sizes = {each.id: each.size for each in node.images()}
    assert (sizes[node.app_id], sizes[other]) == (96 << 10, 80 << 10)
    volume = {"container_path": "/data", "image": {"image": other}}
    web = run_container(node.calls, run_pod(node.calls, "web"), "web", NAME, mounts=[volume])
    assert [
        mount.image.image for mount in node.call("ContainerStatus", container_id=web).status.mounts
    ] == [other]
    for image_id in (node.app_id, other):
        node.call("RemoveImage", image={"image": image_id})
        assert all(map(node.has_layer, (BASE, APP, TOOL)))
    node.call("RemoveContainer", container_id=web)
    assert not any(map(node.has_layer, (BASE, APP, TOOL)))


# ---- the disk


def test_what_the_disk_holds_is_real_and_counted(node: BareRuntime) -> None:
    """Layers have their bytes and inodes, none sparse and none all zeros; a writable layer what was
    written. ImageFsInfo names the directory, and counts all of it."""
    web = run_container(node.calls, run_pod(node.calls, "web"), "web", NAME)
    for _ in range(2):
        node.runtime.write_to_container(web, 5_000)
    layers = node.root / "layers"
    base, app = (layers / layer.digits for layer in (BASE, APP))
    contents = [file.read_bytes() for file in base.rglob("*") if file.is_file()]
    assert (len(contents), sum(map(len, contents))) == (3, 64 << 10)
    assert all(len(set(content)) > 200 for content in contents)
    assert len(list(app.rglob("*"))) + 1 == 301
    assert sum(file.stat().st_size for file in node.writable(web).iterdir()) == 10_000
    info = node.call("ImageFsInfo")
    (images,), (containers,) = info.image_filesystems, info.container_filesystems
    everything = [each for top in ("layers", "containers") for each in (node.root / top).rglob("*")]
    for found in (images, containers):
        assert found.fs_id.mountpoint == str(node.root)
        assert found.inodes_used.value == len(everything)
        assert found.used_bytes.value == sum(each.stat().st_blocks * 512 for each in everything)


@pytest.mark.parametrize("by", ["time", "the next image", "the end"])
def test_the_space_of_a_container_is_freed_later(tmp_path: Path, by: str) -> None:
    """With the next image that is removed at the latest, as its removal waits for the runtime's
    garbage collection; and no thread is left behind."""
    before = set(threading.enumerate())
    node = BareRuntime(tmp_path, container_space_delay_seconds=0.5 if by == "time" else 60.0)
    web = run_container(node.calls, run_pod(node.calls, "web"), "web", NAME)
    node.call("RemoveContainer", container_id=web)
    node.call("RemoveImage", image=ABSENT)
    assert node.containers() == []
    if by == "the next image":
        assert node.writable(web).exists()
        node.call("RemoveImage", image={"image": node.app_id})
        assert not node.writable(web).exists()
    elif by == "time":
        assert came_true(lambda: not node.writable(web).exists())
    node.close()
    assert not node.writable(web).exists()
    assert came_true(lambda: not set(threading.enumerate()) - before, within_seconds=30.0)


# ---- the server


def test_which_methods_are_served(node: BareRuntime) -> None:
    """Each that has a request message; of others it is said that they are not."""
    for method in METHODS:
        assert node.server.service(SimpleNamespace(method=f"/any/{method}")) is not None
    with grpc.insecure_channel(node.server.target) as channel:
        stream: Any = channel.unary_unary("/runtime.v1.RuntimeService/StreamContainers")
        with pytest.raises(grpc.RpcError) as caught:
            stream(b"", timeout=60.0)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_a_restart_keeps_the_path_and_the_state(crowd: Crowd) -> None:
    """A socket with mode 0600 while it serves; nothing at the path while it does not."""
    server = crowd.node.server
    mode = os.stat(server.socket_path).st_mode
    assert (stat.S_ISSOCK(mode), stat.S_IMODE(mode)) == (True, 0o600)
    for _ in range(2):
        server.stop()
    assert not os.path.lexists(server.socket_path)
    assert crowd.node.error("Version")[0] is grpc.StatusCode.UNAVAILABLE
    server.start()
    with CriCalls(server.target) as calls:
        listed = calls.call("ListContainers").containers
    assert [each.id for each in listed] == [crowd.running, crowd.exited]


def test_an_impossible_socket_path_is_refused(node: BareRuntime, tmp_path: Path) -> None:
    """Too long for sun_path, or in a directory that does not exist."""
    for path in ("/" + "x" * 107, str(tmp_path / "absent" / "s")):
        with pytest.raises(EmbeddedNodeError, match="cannot listen"):
            EmbeddedServer(node.runtime, path).start()


# ---- its failpoints


@pytest.mark.parametrize("fault", [Delay(3600), Hang()])
def test_a_call_that_is_late_goes_on_once_its_failpoint_is_deleted(
    node: BareRuntime, fault: Failpoint
) -> None:
    """Other calls are answered meanwhile."""
    node.server.failpoints["ListImages"] = fault
    hanging = node.calls.begin("ListImages")
    assert node.server.failpoints.wait_for_calls("ListImages", 1, timeout_seconds=60)
    node.call("Version")
    assert not hanging.done()
    del node.server.failpoints["ListImages"]
    assert len(hanging.result().images) == 2


def test_a_stop_drops_the_calls_that_hang(node: BareRuntime) -> None:
    """They do nothing; after the restart the failpoint is still set."""
    node.server.failpoints["RemoveImage"] = Hang()
    hanging = node.calls.begin("RemoveImage", image={"image": NAME})
    assert node.server.failpoints.wait_for_calls("RemoveImage", 1, timeout_seconds=60)
    node.server.stop()
    node.server.start()
    assert hanging.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
    with CriCalls(node.server.target) as again:
        assert again.error("RemoveImage", timeout_seconds=1.0, image={"image": NAME})[0] is LATE
    assert node.runtime.removals == ()


def test_a_fault_of_a_scenario_does_not_end_a_later_one_of_its_method(node: BareRuntime) -> None:
    """The first ends while the second, which has replaced it, lasts on."""
    first = {"action": "hang", "method": "ListImages", "at": "0s", "lasts": "200ms"}
    second = Fault.model_validate({"action": "fail", "method": "ListImages", "at": "100ms"})
    schedule = FaultSchedule((Fault.model_validate(first), second), node.server, [])
    schedule.start(time.monotonic())
    assert came_true(lambda: not schedule.running)
    assert node.server.failpoints["ListImages"] == failpoint_of(second)
    schedule.stop()


def test_a_mistyped_method_is_refused(node: BareRuntime) -> None:
    """A failpoint that is never reached would make its test pass without testing anything."""
    with pytest.raises(KeyError, match="RemoveImages"):
        node.server.failpoints["RemoveImages"] = Fail()
