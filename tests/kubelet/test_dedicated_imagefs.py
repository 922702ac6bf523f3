"""A filesystem of its own for containerd: the kubelet and reclaimd read the same, and what is full is relieved."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.kubelet import manifests
from tests.kubelet.access import service_account
from tests.kubelet.api import Api
from tests.kubelet.conftest import NodeMaker
from tests.kubelet.every_kind import MIB
from tests.kubelet.manifests import APP
from tests.kubelet.node import GIB, KubeletNode
from tests.real_node.fill import fill_bytes
from tests.real_node.loopfs import LoopFilesystem
from tests.real_node.oci import BASE, Image, random_layer
from tests.reclaimd_process import answer, reclaimd, write_configuration

MARKS = {"nodefs.available": "10%", "imagefs.available": "15%"}
OWN_MARK_PERCENT = {"nodefs.available": 15, "imagefs.available": 20}  # with the margin that is the default
FILLED = {"nodefs.available": 300 * MIB, "imagefs.available": 100 * MIB}
WRITTEN_MEANWHILE = MIB  # at most, by the logs of the kubelet's node and by containerd's database
UNUSED = [
    Image(f"reclaimd.test/unused:{number}", (BASE, random_layer(number, 20 * MIB))) for number in range(4)
]  # containerd holds each twice: as a blob, and as a snapshot


@pytest.fixture
def node(make_node: NodeMaker) -> KubeletNode:
    """A node with a running pod and images that nobody uses; both filesystems are of different sizes."""
    made = make_node(MARKS, image_size_bytes=GIB)
    made.import_removable([Image(APP, (BASE,)), *UNUSED])
    made.create(manifests.running("serves", APP))
    made.wait_for_phase("serves", "Running")
    return made


@pytest.fixture
def configuration(node: KubeletNode) -> Path:
    """reclaimd as it is by default."""
    return write_configuration(node.disk.parent / "reclaimd.yaml", **node.reclaimd_fields())


def filesystem_of(node: KubeletNode, signal: str) -> LoopFilesystem:
    """The filesystem behind a signal."""
    assert node.image_filesystem is not None
    return node.filesystem if signal.startswith("nodefs") else node.image_filesystem


def by_reclaimd(configuration: Path) -> tuple[dict[str, tuple[int, int]], str]:
    """Available and capacity of each signal, and the layout."""
    check = answer(reclaimd("check", "--config", str(configuration), "-o", "json"))
    found = {each["signal"]: (each["available"], each["capacity"]) for each in check["observations"]}
    return found, check["layout"]


def asking_the_kubelet(node: KubeletNode) -> Api:
    """A client of the kubelet itself, which the API server does not reach for others on loopback."""
    return Api(node.kubelet.endpoint, node.plane.authority.certificate, service_account(node, "nodes/stats"))


def by_the_kubelet(kubelet: Api) -> dict[str, tuple[int, int]]:
    """The same of its summary; on this layout containerfs is the imagefs."""
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
    """Whether all capacities are equal, and what is available is but for what was written between the readings."""
    assert {signal: capacity for signal, (_, capacity) in ours.items()} == {
        signal: kubelets[signal][1] for signal in ours
    }
    return all(abs(available - kubelets[signal][0]) <= WRITTEN_MEANWHILE for signal, (available, _) in ours.items())


def test_the_kubelets_summary_and_our_observations_are_the_same(node: KubeletNode, configuration: Path) -> None:
    """Bytes and inodes, also after each filesystem was filled by an amount of its own."""
    kubelet, first = asking_the_kubelet(node), by_reclaimd(configuration)
    assert first[1] == "dedicated-imagefs"
    node.api.wait("they agree", lambda: agree(by_reclaimd(configuration)[0], by_the_kubelet(kubelet)), 60.0)
    for signal, amount in FILLED.items():
        filesystem = filesystem_of(node, signal)
        fill_bytes(filesystem.mountpoint / "fill", filesystem.available_bytes() - amount, fast=True).wait(60.0)
    ours: dict[str, tuple[int, int]] = {}

    def agree_now() -> bool:
        ours.update(by_reclaimd(configuration)[0])
        return agree(ours, by_the_kubelet(kubelet))

    node.api.wait("they agree after the fill", agree_now, 60.0)
    for signal, amount in FILLED.items():
        assert abs(first[0][signal][0] - amount - ours[signal][0]) <= WRITTEN_MEANWHILE


def press(node: KubeletNode, signal: str) -> None:
    """Fills the filesystem of a signal to below our mark, above the kubelet's."""
    filesystem = filesystem_of(node, signal)
    figures = os.statvfs(filesystem.mountpoint)
    until = figures.f_blocks * figures.f_frsize * OWN_MARK_PERCENT[signal] // 100 - 10 * MIB
    fill_bytes(filesystem.mountpoint / "fill", until, fast=True).wait(60.0)


def relief(configuration: Path) -> Any:
    """The record of a pass, and its exit code."""
    done = reclaimd("reclaim", "--config", str(configuration), "--now", "-o", "json")
    return answer(done), done.returncode


def test_pressure_on_the_imagefs_alone_relieves_it(node: KubeletNode, configuration: Path) -> None:
    """Only some images go, nothing of the nodefs is needed, and the kubelet never sees pressure."""
    press(node, "imagefs.available")
    record, code = relief(configuration)
    assert code == 0, record["reason"]
    assert record["acted_on"]["signal"] == "imagefs.available"
    removed = {each["name"] for each in record["removals"]}
    assert removed < {image.reference for image in UNUSED}
    assert removed
    assert not node.conditions()["DiskPressure"]
    assert node.phase("serves") == "Running"


def test_pressure_on_the_nodefs_alone_takes_no_image(node: KubeletNode, configuration: Path) -> None:
    """Nothing that may be removed is there; the kubelet would remove no image either."""
    images = node.containerd.cri.image_ids()
    press(node, "nodefs.available")
    record, code = relief(configuration)
    assert code == 1
    assert record["acted_on"]["signal"] == "nodefs.available"
    assert record["removals"] == []
    assert node.containerd.cri.image_ids() == images
