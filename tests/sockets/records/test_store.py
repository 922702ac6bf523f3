"""The history file on real disks: full ones, foreign files, several writers,
kills, readers beside a writer.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eviction.drill.runtime.private_mounts import unmount
from eviction.records.store import (
    HEADER,
    SLOT_BYTES,
    HistoryStore,
    HistoryUnusable,
    NoHistoryYet,
    contents_of,
)
from tests.pure.values import KIB, MIB
from tests.sockets.mounts import mounted_tmpfs

SIZE_BYTES = MIB
SLOTS = SIZE_BYTES // SLOT_BYTES - 1
KILLS = 200


def store_at(path: Path, size_bytes: int = SIZE_BYTES) -> HistoryStore:
    """A store that is open."""
    store = HistoryStore(str(path), size_bytes)
    store.open()
    return store


def append(path: Path, *records: bytes, size_bytes: int = SIZE_BYTES) -> HistoryStore:
    """Writes records, and closes the file."""
    store = store_at(path, size_bytes)
    for record in records:
        store.append(record)
    store.close()
    return store


def records_at(path: Path) -> list[bytes]:
    """The records of the file."""
    return contents_of(str(path)).records


def numbered(start: int, end: int, size_bytes: int = 3000) -> list[bytes]:
    """Records that begin with their number."""
    return [f"{number:08} ".encode().ljust(size_bytes, b"x") for number in range(start, end)]


def number_of(record: bytes) -> int:
    """The number of such a record, which must be whole."""
    assert set(record[9:]) <= set(b"x")
    return int(record[:8])


def test_records_survive_the_process_and_the_newest_ones_remain(tmp_path: Path) -> None:
    """1 MiB has 255 slots; the size never changes, nor does the inode."""
    path = tmp_path / "deep" / "history"
    append(path, b"first")
    found = path.stat()
    assert (found.st_size, found.st_mode & 0o777, found.st_blocks * 512) == (
        SIZE_BYTES,
        0o600,
        SIZE_BYTES,
    )
    assert records_at(path) == [b"first"]
    for start in range(0, 900, 100):
        append(path, *numbered(start, start + 100))
    left = [number_of(record) for record in records_at(path)]
    assert left == list(range(900 - len(left), 900))
    assert len(left) == SLOTS
    assert (path.stat().st_ino, path.stat().st_size) == (found.st_ino, SIZE_BYTES)
    assert os.listdir(path.parent) == ["history"]


def test_there_is_no_history_yet(tmp_path: Path) -> None:
    """A sentence, and nothing is made by reading."""
    with pytest.raises(NoHistoryYet, match=r"there is no history .*/history yet"):
        records_at(tmp_path / "history")
    assert os.listdir(tmp_path) == []


# ---- what is at the path already


def a_text(path: Path) -> None:
    path.write_text("precious\n" * 1000)


def an_empty_file(path: Path) -> None:
    path.touch(0o600)


def zeros(path: Path) -> None:
    path.write_bytes(bytes(SIZE_BYTES))


def a_directory(path: Path) -> None:
    path.mkdir()


def a_fifo(path: Path) -> None:
    os.mkfifo(path)


def a_symlink(path: Path) -> None:
    append(path.with_name("elsewhere"), b"record")
    path.symlink_to(path.with_name("elsewhere"))


def a_dangling_symlink(path: Path) -> None:
    path.symlink_to(path.with_name("nowhere"))


def of_another_user(path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    append(path, b"record")
    os.chown(path, 12345, 12345)


def writable_by_others(path: Path) -> None:
    append(path, b"record")
    path.chmod(0o666)


@pytest.mark.parametrize(
    "put",
    [
        a_text,
        an_empty_file,
        zeros,
        a_directory,
        a_fifo,
        a_symlink,
        a_dangling_symlink,
        of_another_user,
        writable_by_others,
    ],
)
def test_what_is_not_ours_is_refused_by_name_and_left_alone(
    tmp_path: Path, put: Callable[[Path], None]
) -> None:
    """Neither read nor written, changed or replaced; nothing is made beside it."""
    path = tmp_path / "history"
    put(path)
    before = (
        path.lstat(),
        path.read_bytes() if path.is_file() else b"",
        sorted(os.listdir(tmp_path)),
    )
    store = HistoryStore(str(path), SIZE_BYTES)
    for use in (store.open, lambda: store.append(b"record"), lambda: records_at(path)):
        with pytest.raises(HistoryUnusable, match=str(path)):
            use()
    after = path.lstat(), path.read_bytes() if path.is_file() else b"", sorted(os.listdir(tmp_path))
    assert before[0].st_ino == after[0].st_ino
    assert before[0].st_mtime_ns == after[0].st_mtime_ns
    assert before[1:] == after[1:]


def test_a_file_that_was_cut_is_read_as_far_as_it_goes_and_mended(tmp_path: Path) -> None:
    """The records that are left are taken into a new file."""
    path = tmp_path / "history"
    append(path, *numbered(0, 500))
    os.truncate(path, SIZE_BYTES * 3 // 4 + 100)
    left = records_at(path)
    assert len(left) == SLOTS * 3 // 4
    append(path, b"after")
    assert records_at(path) == [*left, b"after"]
    assert path.stat().st_size == SIZE_BYTES


@pytest.mark.parametrize("place", [0, 16, 18, 22, SLOT_BYTES - 1])
def test_a_file_with_another_header_is_left_alone(tmp_path: Path, place: int) -> None:
    """Damaged, of a later version, with other slots; or nothing but a header is left."""
    path = tmp_path / "history"
    append(path, b"record")
    with open(path, "r+b") as file:
        file.seek(place)
        file.write(bytes([HEADER[place] + 2]))
    damaged = path.read_bytes()
    for use in (lambda: records_at(path), lambda: append(path, b"another")):
        with pytest.raises(HistoryUnusable, match="is left alone: it is not a history of this"):
            use()
    assert (path.read_bytes(), os.listdir(tmp_path)) == (damaged, ["history"])
    path.write_bytes(HEADER)
    with pytest.raises(HistoryUnusable, match="is left alone"):
        records_at(path)


# ---- another size


def test_another_size_takes_the_records_along_as_far_as_they_fit(tmp_path: Path) -> None:
    """Larger, then smaller, then as before: the newest stay, in their order;
    mode and name are the same.
    """
    path = tmp_path / "history"
    append(path, *numbered(0, 200))
    append(path, b"larger", size_bytes=2 * MIB)
    assert records_at(path) == [*numbered(0, 200), b"larger"]
    append(path, *numbered(200, 500), size_bytes=2 * MIB)
    append(path, b"smaller", size_bytes=SIZE_BYTES)
    *numbers, smaller = records_at(path)
    assert smaller == b"smaller"
    left = [number_of(record) for record in numbers]
    assert left == list(range(500 - len(left), 500))
    assert len(left) == SLOTS - 1
    assert (path.stat().st_size, path.stat().st_mode & 0o777) == (SIZE_BYTES, 0o600)
    assert os.listdir(tmp_path) == ["history"]


def test_a_writer_follows_to_the_file_that_another_has_made(tmp_path: Path) -> None:
    """With its next try; also when somebody has removed the file: then there is a new one."""
    path = tmp_path / "history"
    daemon = store_at(path)
    daemon.append(b"one")
    append(path, b"two", size_bytes=2 * MIB)
    with pytest.raises(HistoryUnusable, match="another process has just made, moved or removed"):
        daemon.append(b"three")
    daemon.append(b"three")
    assert records_at(path) == [b"one", b"two", b"three"]
    path.unlink()
    with pytest.raises(HistoryUnusable, match="another process has just made, moved or removed"):
        daemon.append(b"four")
    daemon.append(b"four")
    assert records_at(path) == [b"four"]


# ---- several writers


def test_two_writers_lose_nothing_of_each_other(tmp_path: Path) -> None:
    """By turns, over the end of the ring."""
    path = tmp_path / "history"
    stores = store_at(path), store_at(path)
    records = numbered(0, 400)
    for number, record in enumerate(records):
        stores[number // 3 % 2].append(record)
    left = records_at(path)
    assert left == records[len(records) - len(left) :]
    assert len(left) == SLOTS


def test_a_lock_that_is_held_is_a_refusal_and_not_a_wait(tmp_path: Path) -> None:
    """A process that was stopped in the middle of a record may hold it for ever."""
    path = tmp_path / "history"
    store = store_at(path)
    with open(path, "r+b") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(HistoryUnusable, match="another process holds the lock"):
            store.append(b"record")
        assert records_at(path) == []
    store.append(b"record")
    assert records_at(path) == [b"record"]


# ---- full disks


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A filesystem of 4 MiB and 16 inodes."""
    directory = tmp_path / "disk"
    mounted_tmpfs(str(directory), 4 * MIB, 16)
    yield directory
    unmount(str(directory))


def fill(disk: Path) -> None:
    """Leaves no byte and no inode free."""
    with open(disk / "fill", "wb", buffering=0) as file:
        try:
            while file.write(b"x" * KIB):
                pass
        except OSError:
            pass
    for number in range(16):
        try:
            (disk / f"fill-{number}").touch()
        except OSError:
            break
    found = os.statvfs(disk)
    assert (found.f_bavail, found.f_favail) == (0, 0)


def test_at_0_bytes_and_0_inodes_every_record_is_written(disk: Path) -> None:
    """Three times around the ring, also by a process that starts then."""
    path = disk / "history"
    store = store_at(path)
    fill(disk)
    for record in numbered(0, 600):
        store.append(record)
    append(path, *numbered(600, 900))
    left = [number_of(record) for record in records_at(path)]
    assert left == list(range(900 - len(left), 900))
    assert len(left) == SLOTS


def test_on_a_full_disk_none_is_made_and_nothing_of_it_is_left(disk: Path) -> None:
    """Nor with less free than twice its size; once there is room it is."""
    fill(disk)
    path = disk / "history"
    store = HistoryStore(str(path), SIZE_BYTES)
    with pytest.raises(HistoryUnusable, match="No space left"):
        store.append(b"record")
    for number in range(16):
        (disk / f"fill-{number}").unlink(missing_ok=True)
    os.truncate(disk / "fill", 4 * MIB - 3 * SIZE_BYTES // 2)
    with pytest.raises(HistoryUnusable, match=r"more than half of the 1\.5MiB free"):
        store.append(b"record")
    assert os.listdir(disk) == ["fill"]
    (disk / "fill").unlink()
    store.append(b"record")
    assert records_at(path) == [b"record"]


def test_without_room_for_another_size_the_old_file_goes_on(disk: Path) -> None:
    """Which is noted; the records are there."""
    path = disk / "history"
    append(path, b"one")
    fill(disk)
    store = append(path, b"two", size_bytes=2 * MIB)
    assert store.note.startswith(
        f"the history {path} stays as it is (1.0MiB): no new one can be made: "
    )
    assert records_at(path) == [b"one", b"two"]
    assert ".history.new" not in os.listdir(disk)


# ---- kills, and readers beside a writer

KILLED = """
import json, mmap, os, random, signal, sys, time
from eviction.records.store import HistoryStore, contents_of
path, kills, size_bytes = sys.argv[1], int(sys.argv[2]), 1 << 20
chance = random.Random(11)
done = mmap.mmap(-1, 8)  # the number of the last record that was written, shared with the children
seen = 0
for kill in range(kills):
    first = (kill + 1) * 100_000
    child = os.fork()
    if child == 0:
        store = HistoryStore(path, size_bytes if kill % 20 else (2 << 20) - size_bytes * (kill // 20 % 2))
        number = first
        while True:
            store.append(json.dumps([number, "x" * (number * 7919 % 4000)]).encode())
            done[:] = number.to_bytes(8, "little")
            number += 1
    latest = time.monotonic() + (20.0 if kill % 4 else 0.010)  # one of four is killed while it opens or makes the file
    while int.from_bytes(done, "little") < first and time.monotonic() < latest:
        time.sleep(0.001)
    time.sleep(chance.uniform(0.0, 0.004))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    written = int.from_bytes(done, "little")
    try:
        records = [json.loads(record) for record in contents_of(path).records]
    except Exception as error:
        assert kill == 0 and not os.path.exists(path), (kill, error)
        continue
    numbers = [number for number, _ in records]
    assert all(fill == "x" * (number * 7919 % 4000) for number, fill in records)
    assert numbers == sorted(set(numbers))
    if written >= first:
        assert set(range(max(first, numbers[0]), written + 1)) <= set(numbers), (kill, first, written, numbers[-5:])
        seen += 1
print(seen)
"""


def test_a_kill_at_any_moment_loses_at_most_the_record_that_is_being_written(
    tmp_path: Path,
) -> None:
    """200 writers, each killed after some milliseconds, also while a file of
    another size is being made.
    """
    command = [sys.executable, "-c", KILLED, str(tmp_path / "history"), str(KILLS)]
    process = subprocess.run(command, capture_output=True, text=True, check=False, timeout=150.0)
    assert process.returncode == 0, process.stderr
    assert int(process.stdout) > KILLS // 2, "most of them had written something"
    assert set(os.listdir(tmp_path)) <= {"history", ".history.new"}


WRITER = """
import sys
from eviction.records.store import HistoryStore
store = HistoryStore(sys.argv[1], 1 << 20)
number = 0
while True:
    store.append(f"{number:08} ".encode().ljust(100 + number % 3 * 900, b"x"))
    number += 1
    if number == 2000:
        print("laps", flush=True)
"""


def test_readers_beside_a_writer_see_whole_records_in_their_order(tmp_path: Path) -> None:
    """Two readers, each 30 times, while the ring is overwritten thousands of times faster than a
    daemon does it: then some are missing, but none is half, comes twice or out of order."""
    path = tmp_path / "history"
    failures: list[str] = []

    def read() -> None:
        for _ in range(30):
            numbers = [number_of(record) for record in contents_of(str(path)).records]
            if numbers != sorted(set(numbers)):
                failures.append(str(numbers))

    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE
    ) as writer:
        try:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"laps\n"
            readers = [threading.Thread(target=read) for _ in range(2)]
            for reader in readers:
                reader.start()
            for reader in readers:
                reader.join(100.0)
                assert not reader.is_alive()
            assert writer.poll() is None
        finally:
            writer.kill()
    assert failures == []
    numbers = [number_of(record) for record in records_at(path)]
    assert numbers == list(range(numbers[0], numbers[-1] + 1)), "once nobody writes none is missing"
    assert len(numbers) == SLOTS
