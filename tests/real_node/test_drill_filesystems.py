"""Drills on ext4, XFS and btrfs, which loop devices mount; the same on tmpfs are
with the rest of the library.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from eviction.drill.scenario import library
from tests.drill.loop_drill import loop_drill

# On btrfs a crossing is seen when what was written is committed, which the speed of the disk
# decides: only what is held there also when it comes late.
RUNS = [
    ("growing-file", "xfs"),
    ("small-files", "ext4"),
    ("small-files", "btrfs"),
    *(
        pytest.param(name, fstype, marks=pytest.mark.soak)
        for name, fstype in (
            ("deleted-file", "xfs"),
            ("two-filesystems", "xfs"),
            ("growing-file", "ext4"),
        )
    ),
]
# Full of what was freed and is not committed yet, a btrfs of 512 MiB now and then has no space for
# that commit: the kernel ends the transaction (-28), and the filesystem is read-only. With 128 MiB
# more, no less has to be freed.
ROOMY = {("small-files", "btrfs"): {"size": "640Mi", "evictionHard": {"nodefs.available": "32%"}}}
CLOSED: dict[str, Any] = {
    "name": "closed-file",
    "why": (
        "A file ends above the mark; what XFS allocated ahead of it is below: images go for that."
    ),
    "node": {
        "size": "512Mi",
        "inodes": 8000,
        "images": [
            {"name": "registry.k8s.io/pause", "size": "64Ki"},
            {"name": "registry.example/old", "count": 8, "size": "24Mi", "age": "2h"},
        ],
        "evictionHard": {"nodefs.available": "15%"},
    },
    "pressure": {"grows": "bytes", "rate": "100Mi", "amount": "170Mi", "holds": "500ms"},
    "expect": {"relievedWithin": "30s", "goes": ["image registry.example/old-01:1"]},
}

# now and then XFS allocates less ahead: where something else on the machine made it write back
# early
MOST_RUNS = 5


@pytest.mark.parametrize(("name", "fstype"), RUNS)
def test_a_drill_on_a_loop_device_holds(name: str, fstype: str, tmp_path: Path) -> None:
    """The filesystem is what was asked for, and everything that the scenario says holds."""
    scenario = yaml.safe_load(Path(library()[name]).read_text())
    scenario["node"] |= ROOMY.get((name, fstype), {})
    (tmp_path / f"{name}.yaml").write_text(json.dumps(scenario))
    found = loop_drill(str(tmp_path / f"{name}.yaml"), fstype)
    assert fstype in found["filesystem"]
    assert found["held"], found["checks"]


def test_what_xfs_allocates_ahead_counts_as_used(tmp_path: Path) -> None:
    """It takes as much again as the file has, until that is closed: below the mark, so
    images go, and relief holds.
    """
    scenario = tmp_path / "closed-file.yaml"
    scenario.write_text(json.dumps(CLOSED))
    runs = (loop_drill(str(scenario), "xfs") for _ in range(MOST_RUNS))
    found = next((run for run in runs if run["crossed_seconds"] is not None), None)
    assert found is not None, f"the mark was not crossed in {MOST_RUNS} runs"
    assert found["held"], found["checks"]
