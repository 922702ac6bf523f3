"""One file that grows on each type of filesystem: how long until the first removal, what
was lost, how low it came.

On the embedded node, by the drill's own observer.
"""

from __future__ import annotations

import json
import tempfile
from collections import defaultdict

from eviction.drill.scenario import library
from tests.bench.effort import Effort
from tests.bench.measure import MIB, Row
from tests.drill.loop_drill import loop_drill
from tests.reclaimd_process import reclaimd

SCENARIO = "growing-file"
KINDS = ("tmpfs", "ext4", "xfs")


def filesystems(effort: Effort) -> list[Row]:
    """The kinds in turns."""
    values: dict[tuple[str, str], list[float]] = defaultdict(list)
    for _ in range(effort.crossings):
        for kind in KINDS:
            for what, unit, value in _run(kind):
                values[f"one file of 300 MiB at 100 MiB/s, {kind}: {what}", unit].append(value)
    return [Row(what, unit, found) for (what, unit), found in values.items()]


def _run(fstype: str) -> list[tuple[str, str, float]]:
    """One drill."""
    file = library()[SCENARIO]
    if fstype == "tmpfs":
        with tempfile.TemporaryDirectory() as directory:
            found = json.loads(reclaimd("drill", file, "-o", "json", "--report", directory).stdout)
    else:
        found = loop_drill(file, fstype)
    return [
        ("crossing to first removal", "ms", found["from_crossing_to_first_removal_seconds"] * 1000),
        ("lowest", "MiB", found["lowest"]["nodefs.available"] / MIB),
        ("images removed", "", sum(removal["kind"] == "image" for removal in found["removals"])),
    ]
