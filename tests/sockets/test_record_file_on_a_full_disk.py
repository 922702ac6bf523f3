"""Records on a disk that is full: saving is a warning, and what was saved before stays whole.

Each story has a small filesystem of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reclaim.record_file import RecordFile
from reclaim.types import ImageRecord
from tests.pure.values import KIB, MIB, SteppedClock, image_id
from tests.sockets.mounts import mounted_tmpfs, unmount

RECORDS = {image_id(number): ImageRecord(100.0, 900.0) for number in range(400)}  # some 70 KiB of text


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
def test_a_full_disk_is_a_warning_and_the_old_file_stays_whole(disk: Path, fill: Callable[[Path], None]) -> None:
    """With 0 bytes or 0 inodes free; nothing half-written stays behind, and loading still works."""
    path = disk / "images.json"
    file = RecordFile(str(path), SteppedClock(), "boot-1")
    assert file.save(RECORDS) == ""
    before = path.read_bytes()
    fill(disk)
    warning = file.save(RECORDS | {image_id(1000): ImageRecord(1.0)})
    assert f"the state file {path} cannot be saved: No space left on device" in warning
    assert path.read_bytes() == before
    assert ".images.json.new" not in os.listdir(disk)
    assert RecordFile(str(path), SteppedClock(), "boot-1").load().records.keys() == RECORDS.keys()


def test_once_there_is_room_again_the_next_save_saves(disk: Path) -> None:
    """The failed one left nothing that stands in its way."""
    fill_bytes(disk)
    file = RecordFile(str(disk / "images.json"), SteppedClock(), "boot-1")
    assert "No space left" in file.save(RECORDS)
    (disk / "fill").unlink()
    assert file.save(RECORDS) == ""
    assert RecordFile(str(disk / "images.json"), SteppedClock(), "boot-1").load().records.keys() == RECORDS.keys()


def test_a_directory_that_cannot_be_made_is_a_warning(disk: Path) -> None:
    """The first save on a disk without inodes."""
    fill_inodes(disk)
    file = RecordFile(str(disk / "reclaimd" / "images.json"), SteppedClock(), "boot-1")
    assert "No space left" in file.save(RECORDS)
