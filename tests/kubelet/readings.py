"""What the kubelet and reclaimd read of the same filesystems."""

from __future__ import annotations

from pathlib import Path

from tests.kubelet.access import service_account
from tests.kubelet.api import Api
from tests.kubelet.every_kind import MIB
from tests.kubelet.node import KubeletNode
from tests.real_node.loopfs import LoopFilesystem
from tests.reclaimd_process import answer, reclaimd

WRITTEN_MEANWHILE = MIB  # at most, by the logs of the kubelet's node and by the runtime's database


def filesystem_of(node: KubeletNode, signal: str) -> LoopFilesystem:
    """The filesystem behind a signal."""
    assert node.image_filesystem is not None
    return node.filesystem if signal.startswith("nodefs") else node.image_filesystem


def by_reclaimd(configuration: Path) -> tuple[dict[str, tuple[int, int]], str]:
    """Available and capacity of each signal, and the layout."""
    check = answer(reclaimd("check", "--config", str(configuration), "-o", "json"))
    found = {
        each["signal"]: (each["available"], each["capacity"]) for each in check["observations"]
    }
    return found, check["layout"]


def asking_the_kubelet(node: KubeletNode) -> Api:
    """A client of the kubelet itself, which the API server does not reach for
    others on loopback.
    """
    return Api(
        node.kubelet.endpoint,
        node.plane.authority.certificate,
        service_account(node, "nodes/stats"),
    )


def by_the_kubelet(kubelet: Api) -> dict[str, tuple[int, int]]:
    """The same of its summary."""
    summary = kubelet.get("/stats/summary")["node"]
    blocks = {
        "nodefs": summary["fs"],
        "imagefs": summary["runtime"]["imageFs"],
        "containerfs": summary["runtime"]["containerFs"],
    }
    found = {}
    for name, block in blocks.items():
        found[f"{name}.available"] = (block["availableBytes"], block["capacityBytes"])
        found[f"{name}.inodesFree"] = (block["inodesFree"], block["inodes"])
    return found


def agree(ours: dict[str, tuple[int, int]], kubelets: dict[str, tuple[int, int]]) -> bool:
    """Whether all capacities are equal, and what is available is but for what was
    written between the readings.
    """
    assert {signal: capacity for signal, (_, capacity) in ours.items()} == {
        signal: kubelets[signal][1] for signal in ours
    }
    return all(
        abs(available - kubelets[signal][0]) <= WRITTEN_MEANWHILE
        for signal, (available, _) in ours.items()
    )
