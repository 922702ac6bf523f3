"""What real filesystems will take and do not show yet, as the daemon reads it."""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path

import pytest

from reclaim.removals import write_back
from signals.filesystems import KubeletsReader
from signals.types import FsStats
from tests.real_node.loopfs import MIB, LoopFilesystem, run_tool, unmount
from tests.reclaimd_process import came_true

BLOCK = os.urandom(MIB)


def read(reader: KubeletsReader, path: Path) -> FsStats:
    """One reading."""
    return reader(str(path), time.monotonic()).stats


def write(file: Path, count: int) -> int:
    """Appends so many MiB, and leaves the file open."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for _ in range(count):
        os.write(descriptor, BLOCK)
    return descriptor


def test_btrfs_tells_what_it_has_promised_to_a_write(tmp_path: Path) -> None:
    """What is written counts at once, before and after it is written back; less than half of it is
    shown before."""
    with LoopFilesystem(tmp_path / "fs", 512 * MIB, "btrfs") as disk:
        reader = KubeletsReader()
        before = read(reader, disk.mountpoint)
        descriptor = write(disk.mountpoint / "file", 64)
        try:
            after = read(reader, disk.mountpoint)
            shown = after.available_bytes + after.promised_bytes
            assert after.promised_bytes >= 60 * MIB
            assert before.available_bytes - shown < 32 * MIB
            assert before.available_bytes - after.available_bytes >= 64 * MIB
            run_tool("sync", "--file-system", disk.mountpoint)
            written = read(reader, disk.mountpoint)
            assert written.promised_bytes < 4 * MIB
            assert before.available_bytes - written.available_bytes >= 64 * MIB
        finally:
            os.close(descriptor)


@pytest.mark.parametrize("through", ["the disk", "an overlay"])
def test_the_next_step_of_a_file_on_xfs_is_known(tmp_path: Path, through: str) -> None:
    """A file of 40 MiB has taken 64; when that is used up, it takes what was foretold, at once. A
    container writes through an overlay. A file that is closed has no next step."""
    with LoopFilesystem(tmp_path / "fs", 1024 * MIB, "xfs") as disk:
        root = disk.mountpoint
        reader = KubeletsReader()
        if through == "an overlay":
            layers = [root / name for name in ("lower", "upper", "work", "merged")]
            for layer in layers:
                layer.mkdir()
            lower, upper, work, root = layers
            options = f"lowerdir={lower},upperdir={upper},workdir={work}"
            run_tool("mount", "-t", "overlay", "overlay", "-o", options, root)
        try:
            read(reader, disk.mountpoint)
            descriptor = write(root / "grows", 40)
            try:
                foreseen = partial(read, reader, disk.mountpoint)
                assert came_true(lambda: foreseen().step_bytes > 0)
                ahead = foreseen()
                assert 0 < ahead.preallocated_bytes <= 24 * MIB
                for _ in range(24 + 1):
                    os.write(descriptor, BLOCK)
                after = foreseen()
                fallen = ahead.available_bytes - after.available_bytes
                assert abs(fallen - ahead.step_bytes) < MIB
                assert abs(ahead.unwritten_bytes - after.unwritten_bytes - 25 * MIB) < 2 * MIB
            finally:
                os.close(descriptor)
            assert foreseen().step_bytes == 0
        finally:
            if root != disk.mountpoint:
                unmount(root)


def test_what_waits_is_written_back_where_the_kernel_would_soon_do_so(tmp_path: Path) -> None:
    """Not before: what ext4 has not allocated yet, no removal waits for."""
    vmstat = tmp_path / "vmstat"
    vmstat.write_text("nr_dirty 1000\nnr_dirty_background_threshold 2000\n")
    with LoopFilesystem(tmp_path / "fs", 256 * MIB, "ext4") as disk:
        file = disk.mountpoint / "file"
        os.close(write(file, 16))

        def waits() -> bool:
            return "delalloc" in run_tool("filefrag", "-v", file)

        write_back(str(disk.mountpoint), 0, str(vmstat))
        assert waits()
        write_back(str(disk.mountpoint), 8 * MIB, str(vmstat))
        assert not waits()
