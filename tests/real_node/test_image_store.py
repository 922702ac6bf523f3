"""imageStoreLimit on a real containerd, which counts its snapshots every ten seconds; with `CRIO=` also on a CRI-O."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.nodes.real_node import GIB, RealNode
from tests.real_node.oci import Image, random_layer
from tests.real_node.test_relief import MIB, configure
from tests.reclaimd_process import Daemon, answer, came_true, reclaimd, reclaimd_here

STORE = "imagestore.available"
SIZE = 16 * MIB
SHARED = random_layer(99, 8 * MIB)


def filled(node: RealNode, count: int = 6) -> list[str]:
    """Unused images of 16 MiB that share a layer of 8; the first is the oldest."""
    images = [Image(f"reclaimd.test/old-{number}:1", (SHARED, random_layer(number, SIZE))) for number in range(count)]
    ids = node.import_images(images)
    time.sleep(1.1)  # old enough to go
    return ids


def look(file: str) -> dict[str, Any]:
    """The signal of the store as a new command sees it; empty where it is not known."""
    found = answer(reclaimd_here("check", "--config", file, "--standalone", "-o", "json"))
    return next((dict(one) for one in found["observations"] if one["signal"] == STORE), {})


def counted(path: Path, node: RealNode) -> int:
    """What the images take once it has been counted after the last import: two equal counts, ten seconds apart."""
    file, counts = configure(path, node, imageStoreLimit="1Gi"), [-1]

    def settled() -> bool:
        counts.append(GIB - int(look(file)["available"]))
        time.sleep(5.5)
        return len(counts) > 3 and len(set(counts[-3:])) == 1

    assert came_true(settled)
    return counts[-1]


def test_a_real_store_is_brought_below_its_limit_and_no_further(node: RealNode, tmp_path: Path) -> None:
    """20 MiB over: two images of 16 MiB go, the oldest, and the layer that all share stays. The disk is far from its
    mark, and no condition is reported."""
    images = filled(node)
    used = counted(tmp_path, node)
    assert used == pytest.approx(6 * SIZE + 8 * MIB, abs=8 * MIB), "the shared layer counts once"
    file = configure(tmp_path, node, imageStoreLimit=f"{used - 20 * MIB}e0", pollCeiling="2s")
    with Daemon("--config", file) as daemon:
        daemon.wait_for(lambda event: event.get("result") == "satisfied")
        records = daemon.passes
        assert daemon.stop() == 0
    gone = [one["id"] for record in records for one in record["removals"] if one["result"] == "removed"]
    assert gone == images[:2]
    assert {one["acted_on"]["signal"] for one in records} == {STORE}
    assert all(one["conditions"] == [] for one in records)
    assert set(images[2:]) <= node.cri.image_ids()
    assert came_true(lambda: int(look(file)["available"]) >= 0)


def test_a_request_for_the_signal_does_the_same_once(node: RealNode, tmp_path: Path) -> None:
    """`reclaim --signal imagestore.available` waits for the counts; asked again, the signal is clear."""
    images = filled(node)
    used = counted(tmp_path, node)
    file = configure(tmp_path, node, imageStoreLimit=f"{used - 10 * MIB}e0")
    record = answer(reclaimd("reclaim", "--config", file, "--standalone", "--signal", STORE, "--now", "-o", "json"))
    assert [one["id"] for one in record["removals"]] == images[:1]
    assert record["result"] == "satisfied"
    assert reclaimd_here("check", "--config", file, "--standalone").returncode == 0
