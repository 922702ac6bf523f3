"""A build cache beside containerd, on the same ext4: a program of the user's relieves the
disk before an image goes.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from tests.nodes.crowded_node import build_crowded_node
from tests.nodes.real_node import GIB
from tests.real_node.conftest import NodeFactory
from tests.real_node.fill import fill_bytes
from tests.real_node.test_relief import available_after, configure
from tests.reclaimd_process import Daemon, answer, came_true, reclaimd

MIB, KIB = 1 << 20, 1 << 10
FILES, FILE_BYTES = 2000, 160 * KIB
PROGRAM = """\
#!/bin/sh
# removes the oldest files of the cache until what is missing is free, and 32 MiB for what is written meanwhile
find {cache} -type f -printf '%T@ %s %p\\n' | sort -n |
    awk -v missing="$((RECLAIMD_MISSING_BYTES + 33554432))" 'missing > 0 {{ print $3; missing -= $2 }}' | xargs -r rm --
"""


def make_cache(directory: Path) -> None:
    """2 000 files of 160 KiB, each a second younger than the one before."""
    directory.mkdir()
    block, now = os.urandom(FILE_BYTES), time.time()
    for number in range(FILES):
        path = directory / f"{number:04}"
        path.write_bytes(block)
        modified = now - FILES + number
        os.utime(path, (modified, modified))


def test_a_build_cache_is_pruned_before_an_image_goes(
    make_node: NodeFactory, tmp_path: Path
) -> None:
    """A fill of 25 MiB/s is relieved from the cache, the oldest files first; what a pass
    measured is what statvfs says."""
    crowded = build_crowded_node(make_node(GIB), image_bytes=12 * MIB)
    node, cache, program = crowded.node, crowded.node.mountpoint / "cache", tmp_path / "prune"
    make_cache(cache)
    program.write_text(PROGRAM.format(cache=cache))
    program.chmod(0o700)
    images = node.cri.image_ids()
    os.sync()
    mark = node.filesystem.available_bytes() - 60 * MIB
    configuration = configure(
        tmp_path,
        node,
        controlSocket=str(tmp_path / "control.sock"),
        evictionHard={"imagefs.available": str(mark)},
        reclaimFunctions=[
            {"name": "prune", "exec": [str(program)], "frees": "imagefs", "plan": False}
        ],
        reclaimTable={"imagefs.available": ["prune", "DeleteUnusedImages"]},
    )
    with Daemon("--config", configuration) as daemon:
        fill = fill_bytes(
            node.mountpoint / "fill", MIB, rate_bytes_per_second=25 * MIB, most_bytes=200 * MIB
        )
        assert fill.wait(60.0) >= 200 * MIB
        assert came_true(lambda: node.filesystem.available_bytes() >= mark)
        assert came_true(lambda: bool(daemon.passes) and daemon.passes[-1]["result"] == "satisfied")
        records = daemon.passes
        assert daemon.stop() == 0
    assert node.cri.image_ids() == images, "no image has gone"
    assert {
        function["name"]
        for record in records
        for function in record["functions"]
        if function["removed"]
    } == {"prune"}
    left = sorted(path.name for path in cache.iterdir())
    assert left == [f"{number:04}" for number in range(FILES - len(left), FILES)], (
        "the oldest files have gone"
    )
    assert available_after(records[-1], "imagefs.available") >= mark
    os.sync()
    before = node.filesystem.available_bytes()
    asked = ("--signal", "imagefs.available", "--until", str(before + 50 * MIB))
    done = reclaimd("reclaim", "--standalone", "--config", configuration, *asked, "-o", "json")
    os.sync()
    gained = node.filesystem.available_bytes() - before
    measured = answer(done)["functions"][0]["measured"]["bytes"]
    assert (done.returncode, node.cri.image_ids()) == (0, images)
    assert abs(measured - gained) <= MIB, "but for what containerd writes meanwhile"
    assert gained >= 50 * MIB
    gone = FILES - len(left)
    print(
        f"\nbuild cache: {len(records)} passes, {gone} of {FILES} files; measured {measured},"
        f" statvfs {gained}"
    )
