"""The history on real filesystems without a free byte: what is allocated can be
written in place.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from eviction.records.store import HistoryStore, HistoryUnusable, contents_of
from tests.real_node.loopfs import LoopFilesystem

MIB = 1 << 20
LAPS = 900  # records of 3 000 bytes: three times around a ring of 1 MiB


def record(number: int) -> bytes:
    """One that begins with its number."""
    return f"{number:08} ".encode().ljust(3000, b"x")


def fill(path: Path) -> None:
    """Leaves no byte free."""
    with open(path, "wb", buffering=0) as file:
        for size in (MIB, 4096):
            try:
                while file.write(b"x" * size):
                    pass
            except OSError:
                continue
        os.fsync(file.fileno())


@pytest.mark.real_node
@pytest.mark.parametrize(("fstype", "size"), [("ext4", 64 * MIB), ("xfs", 320 * MIB)])
def test_every_record_is_written_without_a_free_byte(
    tmp_path: Path, fstype: str, size: int
) -> None:
    """Into space that was allocated and never written before, each record synced."""
    with LoopFilesystem(tmp_path / "fs", size, fstype) as filesystem:
        path = filesystem.mountpoint / "history"
        store = HistoryStore(str(path), MIB)
        store.open()
        fill(filesystem.mountpoint / "fill")
        assert filesystem.available_bytes() < 64 * 1024, (
            "but for some blocks that XFS keeps for itself"
        )
        for number in range(LAPS):
            store.append(record(number))
        store.close()
        left = contents_of(str(path)).records
        assert left == [record(number) for number in range(LAPS - len(left), LAPS)]
        assert len(left) == 255


@pytest.mark.real_node
def test_where_writing_copies_a_refusal_loses_nothing_that_was_written(tmp_path: Path) -> None:
    """btrfs may have no room for a copy: then that is said, the records before it stay,
    and later ones are written.
    """
    with LoopFilesystem(tmp_path / "fs", 256 * MIB, "btrfs") as filesystem:
        path = filesystem.mountpoint / "history"
        store = HistoryStore(str(path), MIB)
        written = list(range(20))
        for number in written:
            store.append(record(number))
        fill(filesystem.mountpoint / "fill")
        for number in range(20, 60):
            try:
                store.append(record(number))
                written.append(number)
            except HistoryUnusable as error:
                assert "No space left" in str(error)  # noqa: PT017 # it may also be written
        numbers = [int(each[:8]) for each in contents_of(str(path)).records]
        assert set(written) <= set(numbers)
        (filesystem.mountpoint / "fill").unlink()
        store.append(b"after")
        store.close()
        assert contents_of(str(path)).records[-1] == b"after"
