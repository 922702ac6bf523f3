"""Ballast on the filesystems of nodes: its bytes are really taken, and come back on a
disk without a free byte.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from eviction.engine.ballast import create_ballast, read_ballast
from reclaim.functions.ballast import BallastRefused, BallastRelease, BallastSettings
from signals.clock import SystemClock
from tests.full_disk import full
from tests.real_node.loopfs import MIB, LoopFilesystem, find_tool
from tests.reclaimd_process import came_true

SIZES = {"ext4": 128 * MIB, "xfs": 300 * MIB, "btrfs": 256 * MIB}
SIZE = 16 * MIB
COMMIT_SECONDS = 60.0  # btrfs frees at its next commit, xfs in the background


@contextmanager
def small_disk(directory: Path, kind: str, *mount_options: str) -> Iterator[BallastSettings]:
    """A small filesystem of a type, and where a ballast of 16 MiB is to be on it."""
    if find_tool(f"mkfs.{kind}") is None:
        pytest.skip(f"no mkfs.{kind}")
    with LoopFilesystem(directory, SIZES[kind], kind, mount_options=mount_options) as filesystem:
        yield BallastSettings(str(filesystem.mountpoint / "ballast"), SIZE)


def free_bytes(settings: BallastSettings) -> int:
    """What is free on the disk of the ballast, after what is pending was written."""
    subprocess.run(["sync", "-f", settings.directory], check=True)
    found = os.statvfs(settings.directory)
    return found.f_bfree * found.f_frsize


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_its_bytes_are_taken_and_read_back(tmp_path: Path, kind: str) -> None:
    """Blocks for all of it, and that much less is free."""
    with small_disk(tmp_path, kind) as settings:
        before = free_bytes(settings)
        ballast, _ = create_ballast(settings)
        assert (ballast.problem, ballast.whole) == ("", True)
        assert SIZE <= before - free_bytes(settings) < SIZE + 2 * MIB


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_it_comes_back_on_a_disk_without_a_free_byte(tmp_path: Path, kind: str) -> None:
    """Planned and unlinked at 0 bytes."""
    with small_disk(tmp_path, kind) as settings:
        create_ballast(settings)
        with full(Path(settings.directory), inodes=False):
            before = free_bytes(settings)
            stage = BallastRelease(settings, SystemClock())
            plan = stage.plan()
            assert plan is not None
            assert stage.remove(plan.remove[0]) is True
            assert came_true(
                lambda: free_bytes(settings) - before >= SIZE - MIB,
                COMMIT_SECONDS,
                every_seconds=0.5,
            )


def test_where_blocks_prove_nothing_it_is_refused_and_a_file_of_its_name_is_not_it(
    tmp_path: Path,
) -> None:
    """On btrfs: zeros that are compressed away have all their blocks; nothing is left behind."""
    with small_disk(tmp_path, "btrfs", "compress-force=zstd") as settings:
        why = (
            "the blocks of a file on btrfs do not show what unlinking it frees: use another"
            " filesystem"
        )
        with pytest.raises(BallastRefused, match=f"is not made: {why}$"):
            create_ballast(settings)
        assert os.listdir(settings.directory) == []
        with open(
            settings.path, "wb", opener=lambda path, flags: os.open(path, flags, 0o600)
        ) as file:
            file.write(bytes(SIZE))
            os.fsync(file.fileno())
        assert os.stat(settings.path).st_blocks * 512 == SIZE
        ballast = read_ballast(settings)
        assert ballast is not None
        assert (ballast.whole, ballast.problem) == (False, why)
        with pytest.raises(BallastRefused, match=f"is not the ballast: {why}$"):
            create_ballast(settings)
