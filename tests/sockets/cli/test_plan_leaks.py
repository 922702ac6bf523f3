"""`reclaimd plan --leaks` behind real sockets: exit codes, and what is known without a runtime's store."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.reclaimd_process import answer, reclaimd_here
from tests.sockets.cli.test_printed_json import PlainNode, plain_node
from tests.sockets.kubelet_server import KubeletServer, pod_list
from tests.sockets.kubelet_server import answer as of_kubelet

__all__ = ["plain_node"]  # a fixture
WEB = {"metadata": {"uid": "uid-web", "annotations": {"kubernetes.io/config.source": "api"}}}


def test_of_a_runtime_with_another_store_only_the_pods_are_known(plain_node: PlainNode, tmp_path: Path) -> None:
    """And the volume that a pod left behind is too young. Exit 0."""
    volume = tmp_path / "kubelet" / "pods" / "uid-left" / "volumes" / "kubernetes.io~empty-dir" / "cache"
    volume.mkdir(parents=True)
    (volume / "data").write_bytes(b"x" * 8192)
    with KubeletServer(of_kubelet(pod_list(WEB))) as kubelet:
        file = plain_node.configuration(kubeletEndpoint=kubelet.url)
        done = reclaimd_here("plan", "--leaks", "--config", file, "-o", "json")
    document = answer(done)
    assert (done.returncode, document["leaks"]) == (0, [])
    young, store = document["not_known"]
    assert young.startswith("1 object of ")
    assert "do not show what the runtime lists" in store
    assert (volume / "data").exists()


def test_if_nothing_is_known_it_exits_with_4(plain_node: PlainNode) -> None:
    """Without the kubelet's list, pods are not known either; the table says both."""
    done = reclaimd_here("plan", "--leaks", "--config", plain_node.configuration(kubeletEndpoint=""))
    assert done.returncode == 4
    lines = done.stdout.splitlines()
    assert lines[0] == "belongs to nobody: 0 objects, 0B; nothing is removed"
    assert any("only the kubelet knows which pods are gone" in line for line in lines[1:])


def test_without_a_runtime_it_exits_with_3(plain_node: PlainNode) -> None:
    """Nothing is read."""
    file = plain_node.configuration()
    plain_node.close()
    done = reclaimd_here("plan", "--leaks", "--config", file)
    assert (done.returncode, done.stdout) == (3, "")
    assert "the container runtime cannot be reached" in done.stderr


@pytest.mark.parametrize("option", [("--signal", "nodefs.available"), ("--all",), ("--until", "5%")])
def test_options_of_a_plan_are_refused(plain_node: PlainNode, option: tuple[str, ...]) -> None:
    """There is nothing that they could mean. Exit 2."""
    done = reclaimd_here("plan", "--leaks", *option, "--config", plain_node.configuration())
    assert (done.returncode, done.stdout) == (2, "")
    assert "--leaks" in done.stderr
