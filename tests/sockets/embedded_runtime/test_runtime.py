"""The embedded runtime over its socket: containerd's rules, each as the call of
a careless client.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import pytest

from reclaim.cri import cri_pb2
from tests.nodes.bare_runtime import APP, BASE, NAME, TOOL, BareRuntime
from tests.nodes.full_server import METHODS
from tests.sockets.cri_calls import run_container, run_pod


def test_every_call_of_the_proto_has_a_row_in_the_table() -> None:
    """The table serves each method that has a request message, with the message of its own name."""
    requests = {
        name for name in cri_pb2.DESCRIPTOR.message_types_by_name if name.endswith("Request")
    }
    assert {f"{method.name}Request" for method in METHODS} == requests
    assert all(method.request.DESCRIPTOR.name == f"{method.name}Request" for method in METHODS)


def test_it_reports_its_version_and_that_it_is_ready(tmp_path: Path) -> None:
    """Version has the name of the dialect; Status has both conditions true,
    and details only if verbose.
    """
    node = BareRuntime(tmp_path, runtime_name="containerd", runtime_version="1.6.20")
    version = node.call("Version")
    assert (version.runtime_name, version.runtime_version, version.runtime_api_version) == (
        "containerd",
        "1.6.20",
        "v1",
    )
    status = node.call("Status")
    assert {each.type: each.status for each in status.status.conditions} == {
        "RuntimeReady": True,
        "NetworkReady": True,
    }
    assert dict(status.info) == {}
    node.close()


def test_a_method_that_is_not_served_is_unimplemented(node: BareRuntime) -> None:
    """A method that is not in the table is answered as by a runtime without it."""
    channel = grpc.insecure_channel(
        node.server.target, options=[("grpc.default_authority", "localhost")]
    )
    stream: Any = channel.unary_unary("/runtime.v1.RuntimeService/StreamContainers")
    with channel, pytest.raises(grpc.RpcError) as caught:
        stream(b"", timeout=60.0)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


# ---- what is protected: nothing


def test_an_image_in_use_is_removed_and_its_layers_with_the_last_container(
    node: BareRuntime,
) -> None:
    """RemoveImage succeeds, the container keeps running, and the space is freed when
    the container is removed.
    """
    container_id = run_container(node.calls, run_pod(node.calls, "web"), "web", NAME)
    node.call("RemoveImage", image={"image": node.app_id})
    assert node.call("ImageStatus", image={"image": NAME}).HasField("image") is False
    assert node.status(container_id).state == cri_pb2.CONTAINER_RUNNING
    assert node.has_layer(APP)
    node.call("RemoveContainer", container_id=container_id)
    assert not node.has_layer(APP)


def test_a_running_container_is_removed(node: BareRuntime) -> None:
    """RemoveContainer kills it, and deletes its writable layer."""
    container_id = run_container(node.calls, run_pod(node.calls, "web"), "web", NAME)
    node.runtime.write_to_container(container_id, 10_000)
    assert sum(file.stat().st_size for file in node.writable(container_id).iterdir()) == 10_000
    node.call("RemoveContainer", container_id=container_id)
    assert node.containers() == []
    assert not node.writable(container_id).exists()


def test_the_sandbox_image_is_removed_even_if_pinned_and_then_no_pod_starts(
    node: BareRuntime,
) -> None:
    """Only clients respect `pinned`; without the image RunPodSandbox is NOT_FOUND."""
    assert node.call("ImageStatus", image={"image": node.pause_id}).image.pinned
    node.call("RemoveImage", image={"image": node.pause_id})
    code, message = node.error("RunPodSandbox", config={"metadata": {"name": "web"}})
    assert code is grpc.StatusCode.NOT_FOUND
    assert message.endswith("image 'registry.k8s.io/pause:3.10': not found")


# ---- names


@pytest.mark.parametrize("digits", [6, 64])
def test_a_prefix_is_accepted_in_place_of_an_id(node: BareRuntime, digits: int) -> None:
    """Six characters find, and remove, a container, a sandbox and an image."""
    sandbox_id = run_pod(node.calls, "web")
    container_id = run_container(node.calls, sandbox_id, "web", NAME)
    image_id = node.app_id.removeprefix("sha256:")
    assert node.status(container_id[:digits]).id == container_id
    assert node.call("ImageStatus", image={"image": image_id[:digits]}).image.id == node.app_id
    assert (
        node.call("ImageStatus", image={"image": f"sha256:{image_id[:digits]}"}).image.id
        == node.app_id
    )
    node.call("RemoveContainer", container_id=container_id[:digits])
    node.call("RemovePodSandbox", pod_sandbox_id=sandbox_id[:digits])
    node.call("RemoveImage", image={"image": image_id[:digits]})
    assert [each.id for each in node.runtime.removals] == [container_id, sandbox_id, node.app_id]


def test_an_empty_name_and_a_prefix_of_several_are_errors(node: BareRuntime) -> None:
    """Of 17 ids two begin with the same character: that prefix is refused, and
    so is an empty one.
    """
    sandbox_id = run_pod(node.calls, "web")
    ids = [run_container(node.calls, sandbox_id, f"c{number}", NAME) for number in range(17)]
    firsts = [each[0] for each in ids]
    shared = next(first for first in firsts if firsts.count(first) > 1)
    for name in (shared, ""):
        assert node.error("RemoveContainer", container_id=name)[0] is grpc.StatusCode.UNKNOWN
    assert node.error("RemoveImage", image={"image": ""})[0] is grpc.StatusCode.UNKNOWN
    assert len(node.containers()) == 17


@pytest.mark.parametrize("by", ["tag", "other tag", "repository digest", "id"])
def test_removing_an_image_by_any_name_drops_all_its_names(node: BareRuntime, by: str) -> None:
    """containerd does not untag: a removal by name removes the image with
    every tag, and its layers.
    """
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


def test_a_short_name_means_the_docker_hub_and_latest(node: BareRuntime) -> None:
    """References are normalized as the distribution library does it."""
    image_id = node.runtime.add_image(["busybox"], [TOOL])
    assert (
        node.call("ImageStatus", image={"image": "docker.io/library/busybox:latest"}).image.id
        == image_id
    )
    assert node.call("ImageStatus", image={"image": "busybox"}).image.repo_tags == [
        "docker.io/library/busybox:latest"
    ]


def test_a_tag_that_is_pulled_again_moves(node: BareRuntime) -> None:
    """The image that had the tag stays, with its digest only, and keeps its space."""
    newer = node.runtime.add_image([NAME], [BASE, TOOL])
    older = node.call("ImageStatus", image={"image": node.app_id}).image
    assert node.call("ImageStatus", image={"image": NAME}).image.id == newer
    assert (list(older.repo_tags), len(older.repo_digests)) == (
        ["registry.example/team/app:stable"],
        1,
    )


def test_an_image_may_have_neither_tags_nor_digests(node: BareRuntime) -> None:
    """Such a stranded record is listed, and removed by id."""
    stranded = node.runtime.add_image([], [TOOL])
    image = node.call("ImageStatus", image={"image": stranded}).image
    assert (list(image.repo_tags), list(image.repo_digests)) == ([], [])
    node.call("RemoveImage", image={"image": stranded})
    assert not node.has_layer(TOOL)


# ---- what is not there


def test_removing_an_absent_object_succeeds(node: BareRuntime) -> None:
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


def test_the_status_of_an_absent_object(node: BareRuntime) -> None:
    """Of a container and a sandbox it is NOT_FOUND; of an image an answer without an image."""
    assert node.error("ContainerStatus", container_id="absent")[0] is grpc.StatusCode.NOT_FOUND
    assert node.error("PodSandboxStatus", pod_sandbox_id="absent")[0] is grpc.StatusCode.NOT_FOUND
    assert not node.call("ImageStatus", image={"image": "absent"}).HasField("image")


def test_a_container_needs_its_sandbox_its_image_and_its_volumes(node: BareRuntime) -> None:
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


def test_a_container_starts_once_and_only_in_a_ready_sandbox(node: BareRuntime) -> None:
    """StartContainer fails for a container that runs, and for one whose sandbox has died."""
    sandbox_id = run_pod(node.calls, "web")
    container_id = run_container(node.calls, sandbox_id, "web", NAME)
    assert "CONTAINER_RUNNING state" in node.error("StartContainer", container_id=container_id)[1]
    config = {"metadata": {"name": "late"}, "image": {"image": NAME}}
    late = node.call("CreateContainer", pod_sandbox_id=sandbox_id, config=config).container_id
    node.runtime.kill_sandbox(sandbox_id)
    assert "is not running" in node.error("StartContainer", container_id=late)[1]
