"""Records on a disk that is full, or saved by a process that is killed: what was
saved before stays whole.

A full disk is a small filesystem of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eviction.drill.runtime.private_mounts import unmount
from eviction.records.state_file import RecordFile
from reclaim.types import ImageRecord
from tests.pure.values import KIB, MIB, SteppedClock, image_id
from tests.sockets.mounts import mounted_tmpfs

# some 70 KiB of text
RECORDS = {image_id(number): ImageRecord(100.0, 900.0) for number in range(400)}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A filesystem of 1 MiB and 16 inodes."""
    directory = tmp_path / "disk"
    mounted_tmpfs(str(directory), MIB, 16)
    yield directory
    unmount(str(directory))


def fill_bytes(disk: Path) -> None:
    """Leaves no byte free."""
    with open(disk / "fill", "wb", buffering=0) as file:
        try:
            while file.write(b"x" * KIB):
                pass
        except OSError:
            pass
    assert os.statvfs(disk).f_bavail == 0


def fill_inodes(disk: Path) -> None:
    """Leaves no inode free."""
    for number in range(16):
        try:
            (disk / f"fill-{number}").touch()
        except OSError:
            break
    assert os.statvfs(disk).f_favail == 0


@pytest.mark.parametrize("fill", [fill_bytes, fill_inodes])
def test_a_full_disk_is_a_warning_and_the_old_file_is_kept_whole(
    disk: Path, fill: Callable[[Path], None]
) -> None:
    """With 0 bytes or 0 inodes free; nothing half-written stays behind, and loading still works."""
    path = disk / "images.json"
    file = RecordFile(str(path), SteppedClock(), "boot-1")
    assert file.save(RECORDS, {}) == ""
    before = path.read_bytes()
    fill(disk)
    warning = file.save(RECORDS | {image_id(1000): ImageRecord(1.0)}, {})
    assert f"the state file {path} cannot be saved: No space left on device" in warning
    assert path.read_bytes() == before
    assert ".images.json.new" not in os.listdir(disk)
    assert RecordFile(str(path), SteppedClock(), "boot-1").load().records.keys() == RECORDS.keys()


def test_once_there_is_room_again_the_next_save_saves(disk: Path) -> None:
    """The failed one left nothing that stands in its way."""
    fill_bytes(disk)
    file = RecordFile(str(disk / "images.json"), SteppedClock(), "boot-1")
    assert "No space left" in file.save(RECORDS, {})
    (disk / "fill").unlink()
    assert file.save(RECORDS, {}) == ""
    assert (
        RecordFile(str(disk / "images.json"), SteppedClock(), "boot-1").load().records.keys()
        == RECORDS.keys()
    )


def test_a_directory_that_cannot_be_made_is_a_warning(disk: Path) -> None:
    """The first save on a disk without inodes."""
    fill_inodes(disk)
    file = RecordFile(str(disk / "reclaimd" / "images.json"), SteppedClock(), "boot-1")
    assert "No space left" in file.save(RECORDS, {})


SAVER = """
import itertools, sys
from eviction.records.state_file import RecordFile
from reclaim.types import ImageRecord
from tests.pure.values import SteppedClock, image_id
file = RecordFile(sys.argv[1], SteppedClock(), "boot-1")
for turn in itertools.count():
    assert file.save({image_id(number): ImageRecord(float(turn % 900)) for number in range(400)}, {}) == ""
    print(turn, flush=True)
"""


def test_a_kill_at_any_point_leaves_a_whole_file(tmp_path: Path) -> None:
    """Ten savers that are killed at different moments: the next process reads
    all 400 records each time.
    """
    path = tmp_path / "images.json"
    for turn in range(10):
        with subprocess.Popen(
            [sys.executable, "-c", SAVER, str(path)], stdout=subprocess.PIPE
        ) as saver:
            assert saver.stdout is not None
            saver.stdout.readline()
            time.sleep(turn * 0.0007)
            saver.kill()
        loaded = RecordFile(str(path), SteppedClock(), "boot-1").load()
        assert (loaded.problem, len(loaded.records)) == ("", 400)
    assert set(os.listdir(tmp_path)) <= {"images.json", ".images.json.new"}
