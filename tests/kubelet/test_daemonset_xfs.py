"""The component `xfs` on a real node: the helper in a container of its own has the node's disk give space back."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubelet.conftest import NodeMaker
from tests.kubelet.daemonset import NAME, DaemonSet
from tests.kubelet.node import KubeletNode
from tests.kubelet.program_image import ProgramImage
from tests.real_node.fill import fill_bytes

MIB = 1 << 20
THRESHOLDS = {"nodefs.available": "10%", "imagefs.available": "15%"}
MARK_PERCENT = 20  # the kubelet's 15 and reclaimd's margin of 5
ABOVE_BYTES = 160 * MIB  # more than the file is to have, less than that and what is allocated ahead of it
FILE_BYTES = 140 * MIB  # XFS allocates 128 MiB ahead at 128 MiB


@pytest.fixture
def daemonset(make_node: NodeMaker, image: ProgramImage, tmp_path: Path) -> Iterator[tuple[KubeletNode, DaemonSet]]:
    """The DaemonSet with that component on a node whose disk is XFS."""
    node = make_node(THRESHOLDS, fstype="xfs")
    made = DaemonSet(node, tmp_path / "daemonset", image, xfs=True)
    try:
        made.apply()
        yield node, made
    finally:
        made.remove()


def test_the_helper_in_its_container_relieves_a_node_of_what_nobody_uses(
    daemonset: tuple[KubeletNode, DaemonSet],
) -> None:
    """The daemon has no capability, the helper that one. One file grows, and the mark is crossed by what XFS allocates
    ahead of it; the file stays open. That is given back, and no object goes."""
    node, applied = daemonset
    applied.create_pod()
    applied.wait_until_ready()
    figures = os.statvfs(node.disk)
    mark = figures.f_blocks * figures.f_frsize * MARK_PERCENT // 100
    fill_bytes(node.disk / "ballast", mark + ABOVE_BYTES, fast=True).wait(60.0)
    lowest = mark
    with open(node.disk / "grows", "wb", buffering=0) as file:
        for _ in range(FILE_BYTES // MIB):
            file.write(b"\1" * MIB)
            lowest = min(lowest, node.filesystem.available_bytes())
        node.api.wait("XFS has given back", lambda: node.filesystem.available_bytes() >= mark, 60.0)
    assert lowest < mark, "what was allocated ahead crosses the mark"
    seen = json.loads(applied.exec(NAME, "status", "-o", "json"))
    assert seen["xfs_helper"]["problem"] is None
    assert seen["xfs_helper"]["calls"]["released"] >= 1
    assert seen["passes"], "it was under pressure"
    assert [outcome["name"] for record in seen["passes"] for outcome in record["removals"]] == []
    assert not node.conditions()["DiskPressure"]
