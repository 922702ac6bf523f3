"""XFS reserves as much again behind a file that grows: the jump takes the images that
the mark needs, and no more.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.real_node.conftest import NodeFactory
from tests.real_node.oci import SLEEP_FOR_EVER, Image, random_layer
from tests.real_node.test_relief import MINIMUM_RECLAIM, available_after, configure, removed
from tests.reclaimd_process import Daemon, came_true

MIB = 1 << 20
# containerd keeps an image twice: its blobs and its layers
OLD, OLD_BYTES, LARGE_BYTES = 40, 2 * MIB, 40 * MIB
FIRST, MORE = 62, 6  # writes of 1 MiB: XFS takes 64 MiB at once when the file has 64
ABOVE = 32 * MIB  # what is available above the mark before that
PAUSE_SECONDS = 0.05


def grow(descriptor: int, count: int) -> list[int]:
    """So many writes of 1 MiB; by how much the bytes available fell with each."""
    falls, block = [], os.urandom(MIB)
    for _ in range(count):
        before = os.fstatvfs(descriptor)
        os.write(descriptor, block)
        after = os.fstatvfs(descriptor)
        falls.append((before.f_bavail - after.f_bavail) * after.f_frsize)
        time.sleep(PAUSE_SECONDS)
    return falls


@pytest.mark.regression
def test_a_file_that_grows_on_xfs_costs_the_images_that_the_mark_needs(
    make_node: NodeFactory, tmp_path: Path
) -> None:
    """One file on 512 MiB that grows from 62 to 68 MiB, and is never closed: the oldest images go,
    at most one more than the mark and its minimum reclaim need, and the large young one stays."""
    node = make_node(512 * MIB, fstype="xfs")
    node.kubelet.admit_pod("uid")
    sandbox = node.kubelet.run_pod("web-0", "uid")
    node.kubelet.run_container(sandbox, "web", node.sandbox_image_id, SLEEP_FOR_EVER)
    recipes = [
        Image(f"reclaimd.test/old/{number}:1", (random_layer(3000 + number, OLD_BYTES),))
        for number in range(OLD)
    ]
    old = node.import_images(recipes)
    large = node.import_image(Image("reclaimd.test/large:1", (random_layer(4000, LARGE_BYTES),)))
    time.sleep(1.2)  # then the youngest is old enough
    descriptor = os.open(node.mountpoint / "grows", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        grow(descriptor, FIRST)
        mark = node.filesystem.available_bytes() - ABOVE
        configuration = configure(
            tmp_path, node, evictionHard={"imagefs.available": str(mark)}, parallelRemovals=2
        )
        with Daemon("--config", configuration) as daemon:
            time.sleep(1.5)  # so that the disk was seen to stand still
            falls = grow(descriptor, MORE)
            assert came_true(lambda: bool(daemon.passes))
            assert daemon.stop() == 0
            records = daemon.passes
    finally:
        os.close(descriptor)  # gives back what is reserved
    assert max(falls) >= 32 * MIB, (
        "XFS reserves behind a file that grows, or there is nothing to be seen"
    )
    (record,) = records
    gone = removed(record, "image")
    freed = [
        outcome["freed"]["bytes"] for outcome in record["removals"] if outcome["kind"] == "image"
    ]
    assert record["result"] == "satisfied"
    assert gone == list(old[: len(gone)]), f"the oldest, and not {large}"
    beyond = available_after(record, "imagefs.available") - mark - MINIMUM_RECLAIM
    assert beyond < 2 * sum(freed) / len(gone), "two images less would not have been enough"
