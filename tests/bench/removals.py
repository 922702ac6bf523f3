"""The effect of parallel removals: everything unused on a real containerd,
with 1, 2, 4 and 8 in flight.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from tests.bench.effort import Effort
from tests.bench.measure import Row
from tests.nodes.real_node import GIB, RealNode, running_node
from tests.real_node.oci import Image, many_files_layer, random_layer
from tests.real_node.test_relief import configure
from tests.reclaimd_process import answer, reclaimd

MIB = 1 << 20
IMAGES = 12
SIDE_BY_SIDE = (1, 2, 4, 8)


def removals(effort: Effort) -> list[Row]:
    """The time of the removals of one pass over the whole row; images of one file, and of many."""
    rows = []
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as directory,
        running_node(Path(directory), 4 * GIB) as node,
    ):
        for what, files in (("20 MiB in one file", 1), ("1000 small files", 1000)):
            taken: dict[int, list[float]] = {parallel: [] for parallel in SIDE_BY_SIDE}
            for _ in range(effort.removal_runs):
                for parallel in SIDE_BY_SIDE:  # in turn, so that a noisy minute falls on all
                    taken[parallel].append(_everything(node, Path(directory), parallel, files))
            rows += [
                Row(
                    f"containerd, {IMAGES} images of {what}: {parallel} side by side",
                    "ms",
                    taken[parallel],
                )
                for parallel in SIDE_BY_SIDE
            ]
    return rows


def _everything(node: RealNode, directory: Path, parallel: int, files: int) -> float:
    for number in range(IMAGES):
        layer = random_layer(number, 20 * MIB) if files == 1 else many_files_layer(number, files)
        node.import_image(Image(f"reclaimd.test/removals/{number}:1", (layer,)))
    time.sleep(1.1)
    configuration = configure(directory, node, parallelRemovals=parallel)
    arguments = [
        "--config",
        configuration,
        "--standalone",
        "--now",
        "--all",
        "--signal",
        "imagefs.available",
    ]
    record = answer(reclaimd("reclaim", *arguments, "-o", "json"))
    gone = [outcome for outcome in record["removals"] if outcome["result"] == "removed"]
    if len(gone) != IMAGES:
        raise RuntimeError(f"{len(gone)} of {IMAGES} images were removed: {record['reason']}")
    return float(record["timings"]["remove_seconds"]) * 1000
