"""A filesystem of its own for the runtime: the kubelet and reclaimd read the same, and
what is full is relieved.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.kubelet import manifests
from tests.kubelet.conftest import NodeMaker
from tests.kubelet.every_kind import MIB
from tests.kubelet.manifests import APP
from tests.kubelet.node import GIB, KubeletNode
from tests.kubelet.readings import (
    WRITTEN_MEANWHILE,
    agree,
    asking_the_kubelet,
    by_reclaimd,
    by_the_kubelet,
    filesystem_of,
)
from tests.real_node.fill import fill_bytes
from tests.real_node.oci import BASE, Image, random_layer
from tests.reclaimd_process import answer, reclaimd, write_configuration

MARKS = {"nodefs.available": "10%", "imagefs.available": "15%"}
# with the margin that is the default
OWN_MARK_PERCENT = {"nodefs.available": 15, "imagefs.available": 20}
FILLED = {"nodefs.available": 300 * MIB, "imagefs.available": 100 * MIB}
UNUSED = [
    Image(f"reclaimd.test/unused:{number}", (BASE, random_layer(number, 20 * MIB)))
    for number in range(4)
]  # containerd holds each twice: as a blob, and as a snapshot


@pytest.fixture
def node(make_node: NodeMaker) -> KubeletNode:
    """A node with a running pod and images that nobody uses; both
    filesystems are of different sizes.
    """
    made = make_node(MARKS, image_size_bytes=GIB)
    made.import_removable([Image(APP, (BASE,)), *UNUSED])
    made.create(manifests.running("serves", APP))
    made.wait_for_phase("serves", "Running")
    return made


@pytest.fixture
def configuration(node: KubeletNode) -> Path:
    """reclaimd as it is by default."""
    return write_configuration(node.disk.parent / "reclaimd.yaml", **node.reclaimd_fields())


def test_the_kubelets_summary_and_our_observations_are_the_same(
    node: KubeletNode, configuration: Path
) -> None:
    """Bytes and inodes, also after each filesystem was filled by an amount of its own."""
    kubelet, first = asking_the_kubelet(node), by_reclaimd(configuration)
    assert first[1] == "dedicated-imagefs"
    node.api.wait(
        "they agree", lambda: agree(by_reclaimd(configuration)[0], by_the_kubelet(kubelet)), 60.0
    )
    for signal, amount in FILLED.items():
        filesystem = filesystem_of(node, signal)
        fill_bytes(
            filesystem.mountpoint / "fill", filesystem.available_bytes() - amount, fast=True
        ).wait(60.0)
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


def test_pressure_on_the_nodefs_alone_takes_no_image(
    node: KubeletNode, configuration: Path
) -> None:
    """Nothing that may be removed is there; the kubelet would remove no image either."""
    images = node.runtime.cri.image_ids()
    press(node, "nodefs.available")
    record, code = relief(configuration)
    assert code == 1
    assert record["acted_on"]["signal"] == "nodefs.available"
    assert record["removals"] == []
    assert node.runtime.cri.image_ids() == images
