"""Pods of the embedded runtime, differences between runtimes, and changes without a CRI call."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from eviction.drill.runtime.private_mounts import EmbeddedNodeError
from eviction.drill.runtime.runtime import EmbeddedRuntime
from reclaim.cri import cri_pb2
from tests.nodes.bare_runtime import APP, BASE, NAME, NOON, TOOL, BareRuntime
from tests.sockets.cri_calls import run_container, run_pod

# ---- containers and sandboxes


def test_a_sandbox_is_removed_with_all_its_containers(node: BareRuntime) -> None:
    """RemovePodSandbox removes the running ones too, and none of another pod."""
    first, second = run_pod(node.calls, "first"), run_pod(node.calls, "second")
    for name in ("a", "b"):
        run_container(node.calls, first, name, NAME)
    kept = run_container(node.calls, second, "c", NAME)
    node.call("RemovePodSandbox", pod_sandbox_id=first)
    assert [each.id for each in node.containers()] == [kept]
    assert [each.id for each in node.sandboxes()] == [second]
    assert [each.kind for each in node.runtime.removals] == ["container", "container", "sandbox"]


def test_stopping_a_sandbox_ends_its_containers(node: BareRuntime) -> None:
    """StopPodSandbox: NOTREADY, and every container EXITED with 137 (128 + SIGKILL)."""
    sandbox_id = run_pod(node.calls, "web")
    container_id = run_container(node.calls, sandbox_id, "web", NAME)
    node.call("StopPodSandbox", pod_sandbox_id=sandbox_id)
    assert (
        node.call("PodSandboxStatus", pod_sandbox_id=sandbox_id).status.state
        == cri_pb2.SANDBOX_NOTREADY
    )
    status = node.status(container_id)
    assert (status.state, status.exit_code) == (cri_pb2.CONTAINER_EXITED, 137)


def test_a_container_status_has_all_that_a_kubelet_needs(node: BareRuntime) -> None:
    """Times, exit code, labels, annotations, the absolute log path, and the
    image of an image volume.
    """
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
    assert (status.metadata.name, status.state, status.exit_code) == (
        "web",
        cri_pb2.CONTAINER_EXITED,
        3,
    )
    assert (status.created_at, status.started_at) == (round(NOON * 1e9), round(NOON * 1e9))
    assert status.finished_at == round((NOON + 5) * 1e9)
    assert status.log_path == "/var/log/pods/default_web_uid-web/web/0.log"
    assert dict(status.labels) == {"io.kubernetes.container.name": "web"}
    assert dict(status.annotations) == {"io.kubernetes.container.restartCount": "0"}
    assert [mount.image.image for mount in status.mounts] == [data]
    node.call("RemoveImage", image={"image": data})
    assert node.has_layer(TOOL)  # an image volume stands on its layers as a container does


def test_lists_honour_their_filters(node: BareRuntime) -> None:
    """Sandbox and labels must match; nothing of ours asks for more."""
    first, second = (
        run_pod(node.calls, "first", labels={"tier": "web"}),
        run_pod(node.calls, "second"),
    )
    running = run_container(node.calls, first, "a", NAME, labels={"app": "a", "tier": "web"})
    exited = run_container(node.calls, second, "b", NAME, labels={"app": "b"})
    node.runtime.exit_container(exited)

    def ids(found: list[Any]) -> list[str]:
        return [each.id for each in found]

    assert ids(node.containers()) == [running, exited]
    assert ids(node.containers(pod_sandbox_id=first)) == [running]
    assert ids(node.containers(pod_sandbox_id="absent")) == []
    assert ids(node.containers(label_selector={"app": "a", "tier": "web"})) == [running]
    assert ids(node.containers(label_selector={"app": "a", "tier": "db"})) == []


# ---- differences between runtimes


@pytest.mark.parametrize("fills", [True, False], ids=["containerd 2.3", "containerd 1.6"])
def test_which_fields_have_the_image_id(tmp_path: Path, fills: bool) -> None:
    """image_id is empty before containerd 2.3; image_ref is the id in the list
    and a digest in the status.
    """
    node = BareRuntime(tmp_path, fills_image_id=fills)
    container_id = run_container(node.calls, run_pod(node.calls, "web"), "web", NAME)
    (listed,), status = node.containers(), node.status(container_id)
    digest = node.call("ImageStatus", image={"image": NAME}).image.repo_digests[0]
    assert (listed.image_ref, listed.image_id) == (node.app_id, node.app_id if fills else "")
    assert (status.image_ref, status.image_id) == (digest, node.app_id if fills else "")
    node.call("RemoveImage", image={"image": NAME})
    assert node.status(container_id).image_ref == node.app_id
    node.close()


@pytest.mark.parametrize("reports", [True, False])
def test_whether_a_runtime_reports_its_sandbox_image(tmp_path: Path, reports: bool) -> None:
    """Pinned in the list and named in Status, or neither; PodSandboxStatus always names it."""
    node = BareRuntime(tmp_path, pins_sandbox_image=reports, reports_sandbox_image=reports)
    sandbox_id = run_pod(node.calls, "web")
    config = json.loads(node.call("Status", verbose=True).info["config"])
    info = json.loads(
        node.call("PodSandboxStatus", pod_sandbox_id=sandbox_id, verbose=True).info["info"]
    )
    name = "registry.k8s.io/pause:3.10"
    assert (config.get("sandboxImage"), info["image"]) == (name if reports else None, name)
    assert {each.id: each.pinned for each in node.images()} == {
        node.pause_id: reports,
        node.app_id: False,
    }
    node.close()


# ---- the world


def test_a_reboot_leaves_every_sandbox_not_ready_and_every_container_exited(
    node: BareRuntime,
) -> None:
    """Nothing is removed, and containers that had exited before keep their exit code."""
    sandbox_id = run_pod(node.calls, "web")
    done, running = (
        run_container(node.calls, sandbox_id, name, NAME) for name in ("done", "running")
    )
    node.runtime.exit_container(done, 0)
    node.runtime.reboot()
    assert [each.state for each in node.sandboxes()] == [cri_pb2.SANDBOX_NOTREADY]
    assert {each.id: each.state for each in node.containers()} == dict.fromkeys(
        (done, running), cri_pb2.CONTAINER_EXITED
    )
    assert (node.status(done).exit_code, node.status(running).exit_code) == (0, 255)


def test_a_running_container_may_be_in_a_dead_sandbox(node: BareRuntime) -> None:
    """kill_sandbox changes the sandbox only; a lost shim leaves an UNKNOWN container."""
    sandbox_id = run_pod(node.calls, "web")
    running, lost = (
        run_container(node.calls, sandbox_id, name, NAME) for name in ("running", "lost")
    )
    node.runtime.kill_sandbox(sandbox_id)
    node.runtime.lose_container(lost)
    states = {each.id: each.state for each in node.containers()}
    assert states == {running: cri_pb2.CONTAINER_RUNNING, lost: cri_pb2.CONTAINER_UNKNOWN}


def test_age_moves_times_into_the_past(node: BareRuntime) -> None:
    """An hour older is 3 600 000 000 000 ns less; a time that was never set stays 0."""
    sandbox_id = run_pod(node.calls, "web")
    container_id = run_container(node.calls, sandbox_id, "web", NAME)
    node.runtime.age(container_id, 3600)
    node.runtime.age(sandbox_id, 60)
    status = node.status(container_id)
    assert (status.created_at, status.started_at, status.finished_at) == (
        *[round((NOON - 3600) * 1e9)] * 2,
        0,
    )
    assert node.sandboxes()[0].created_at == round((NOON - 60) * 1e9)


def test_removals_records_what_was_really_removed(node: BareRuntime) -> None:
    """Kind, full id and wall time, in order; a second removal of the same object is not in it."""
    sandbox_id = run_pod(node.calls, "web")
    for second in (1, 2):
        node.now = NOON + second
        node.call("RemovePodSandbox", pod_sandbox_id=sandbox_id)
    assert node.runtime.removals == ((NOON + 1, "sandbox", sandbox_id),)


def test_an_image_that_is_pulled_again_has_the_same_id(node: BareRuntime) -> None:
    """The same tags and layers have the same id, whether the image still exists or not."""
    again = [NAME, "registry.example/team/app:stable"]
    assert node.runtime.add_image(again, [BASE, APP]) == node.app_id
    node.call("RemoveImage", image={"image": NAME})
    assert not node.has_layer(APP)
    assert node.runtime.add_image(again, [BASE, APP]) == node.app_id
    assert node.has_layer(APP)


def test_changes_without_a_call_refuse_a_mistyped_id(node: BareRuntime) -> None:
    """Unlike CRI calls, these methods raise for an unknown one."""
    container_id = run_container(node.calls, run_pod(node.calls, "web"), "web", NAME)
    node.runtime.exit_container(container_id)
    with pytest.raises(EmbeddedNodeError, match="no process"):
        node.runtime.exit_container(container_id)
    with pytest.raises(EmbeddedNodeError, match="sandbox 'absent': not found"):
        node.runtime.kill_sandbox("absent")


def test_two_nodes_cannot_share_a_directory(node: BareRuntime) -> None:
    """Files of another node would neither be counted nor deleted, so the second node is refused."""
    with pytest.raises(FileExistsError):
        EmbeddedRuntime(str(node.root), sandbox_image=NAME)
