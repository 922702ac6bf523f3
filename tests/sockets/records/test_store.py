"""The history file on real disks: full ones, foreign files, several writers, kills; its ring of
slots; and the recorder that writes it.
"""

from __future__ import annotations

import fcntl
import gzip
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eviction.records.history import MOST_WAITING, HistoryRecorder, documents_of, encoded
from eviction.records.passes import PassResult
from eviction.records.store import (
    LARGEST_RECORD_BYTES,
    SLOT_BYTES,
    HistoryStore,
    HistoryUnusable,
    NoHistoryYet,
    Ring,
    contents_of,
    why_unusable,
)
from reclaim.types import ReclaimResult, Result
from tests.faults.fuse import SilentFilesystem
from tests.full_disk import without_bytes_and_inodes
from tests.pure.records.documents import outcome, pass_of, periodic_pass
from tests.pure.values import MIB, SteppedClock
from tests.reclaimd_process import came_true
from tests.rows import rows
from tests.sockets.foreign import happens
from tests.sockets.mounts import tmpfs
from tests.thread_limit import no_thread_starts

SIZE_BYTES = MIB
SLOTS = SIZE_BYTES // SLOT_BYTES - 1
KILLS = 60


def append(path: Path, *records: bytes, size_bytes: int = SIZE_BYTES) -> HistoryStore:
    """Opens the file, and writes records to it; a next one opens it again if it was moved."""
    store = HistoryStore(str(path), size_bytes)
    store.open()
    for record in records:
        store.append(record)
    return store


def records_at(path: Path) -> list[bytes]:
    """The records of the file."""
    return contents_of(str(path)).records


def numbered(start: int, end: int) -> list[bytes]:
    """Records that begin with their number."""
    return [f"{number:08} ".encode().ljust(3000, b"x") for number in range(start, end)]


def number_of(record: bytes) -> int:
    """The number of such a record, which must be whole."""
    assert set(record[9:]) <= set(b"x")
    return int(record[:8])


def assert_newest_of(path: Path, end: int, count: int = SLOTS) -> None:
    """So many are left, up to this one, none half, missing or out of order."""
    assert list(map(number_of, records_at(path))) == list(range(end - count, end))


def test_records_survive_the_process_and_the_newest_ones_remain(tmp_path: Path) -> None:
    """1 MiB has 255 slots; the size never changes, nor does the inode. Reading makes none."""
    path = tmp_path / "deep" / "history"
    with pytest.raises(NoHistoryYet, match=r"there is no history .*/history yet"):
        records_at(path)
    assert os.listdir(tmp_path) == []
    append(path, b"first")
    found = path.stat()
    assert (found.st_size, oct(found.st_mode)) == (SIZE_BYTES, "0o100600")
    assert found.st_blocks * 512 == SIZE_BYTES
    assert records_at(path) == [b"first"]
    for start in range(0, 900, 100):
        append(path, *numbered(start, start + 100))
    assert_newest_of(path, 900)
    assert (path.stat().st_ino, path.stat().st_size) == (found.st_ino, SIZE_BYTES)
    assert os.listdir(path.parent) == ["history"]


# ---- what is at the path already


def seen(path: Path) -> tuple[object, ...]:
    """All that would change if it were written or replaced, or if something were made beside it."""
    found = path.lstat()
    content = path.read_bytes() if path.is_file() else b""
    return found.st_ino, found.st_mtime_ns, content, sorted(os.listdir(path.parent))


@rows("""
    what                         | changed
    a directory                  | rm history; mkdir history
    a fifo                       | rm history; mkfifo -m 600 history
    a symlink                    | mv history target; ln -s target history
    a dangling symlink           | rm history; ln -s target history
    another user's               | chown 12345 history
    writable by others           | chmod 666 history
    a text                       | seq 10000 >history
    empty                        | : >history
    zeros                        | head -c 1M /dev/zero >history
    of another form              | dd status=none if=/bin/sh of=history bs=1 count=1 conv=notrunc
    of a later version           | dd status=none if=/bin/sh of=history bs=1 count=1 conv=notrunc seek=16
    with other slots             | dd status=none if=/bin/sh of=history bs=1 count=1 conv=notrunc seek=18
    of another size than it says | dd status=none if=/bin/sh of=history bs=1 count=1 conv=notrunc seek=22
    with a damaged header        | dd status=none if=/bin/sh of=history bs=1 count=1 conv=notrunc seek=4095
""")
def test_what_is_not_ours_is_refused_by_name_and_left_alone(tmp_path: Path, changed: str) -> None:
    """Neither read nor written, changed or replaced; nothing is made beside it."""
    path = tmp_path / "history"
    append(path, b"record")
    happens(changed, tmp_path)
    before = seen(path)
    store = HistoryStore(str(path), SIZE_BYTES)
    for use in (store.open, lambda: store.append(b"record"), lambda: records_at(path)):
        with pytest.raises(HistoryUnusable, match=str(path)):
            use()
    assert seen(path) == before


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


# ---- a file that reclaimd 0.1.0 wrote, whose records span several blocks of 512 bytes

EARLIER = gzip.decompress((Path(__file__).parent / "history_0_1.gz").read_bytes())


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """The file, with the mode that it had."""
    path = tmp_path / "history"
    path.write_bytes(EARLIER)
    path.chmod(0o600)
    return path


def test_an_old_file_is_kept_aside_and_a_new_one_begins(old: Path) -> None:
    """For who reads it, it is no history; where the daemon keeps it, a sentence tells. The file
    that is kept is the same, byte for byte."""
    told = (
        f"{old} was written by an earlier version of reclaimd, which can read it; where the daemon"
        f" finds such a file, it keeps it as {old}.old and begins a new one"
    )
    with pytest.raises(HistoryUnusable) as refused:
        records_at(old)
    assert str(refused.value) == why_unusable(str(old)) == told
    assert (old.read_bytes(), os.listdir(old.parent)) == (EARLIER, ["history"])
    store = HistoryStore(str(old), SIZE_BYTES)
    store.append(b"first")
    assert store.note == (
        f"{old} is of an earlier version of reclaimd: it is kept as {old}.old, and a new history"
        " begins"
    )
    assert contents_of(str(old)) == ([b"first"], 0)
    assert old.with_name("history.old").read_bytes() == EARLIER
    assert sorted(os.listdir(old.parent)) == ["history", "history.old"]
    assert append(old).note == ""


def test_a_file_that_is_kept_is_never_overwritten(old: Path) -> None:
    """Then there is no history, until somebody has moved one of the two away."""
    kept = old.with_name("history.old")
    kept.write_text("precious")
    store = HistoryStore(str(old), SIZE_BYTES)
    for _ in range(2):
        with pytest.raises(HistoryUnusable, match=r"\.old, where .* is there already"):
            store.append(b"record")
    assert (old.read_bytes(), kept.read_text()) == (EARLIER, "precious")
    kept.unlink()
    store.append(b"record")
    assert records_at(old) == [b"record"]


# ---- another size


def test_another_size_takes_the_records_along_as_far_as_they_fit(tmp_path: Path) -> None:
    """Larger, then smaller, then as before: the newest stay, in their order;
    mode and name are the same.
    """
    path = tmp_path / "history"
    append(path, *numbered(0, 200))
    append(path, *numbered(200, 500), size_bytes=2 * MIB)
    assert_newest_of(path, 500, 500)
    append(path, *numbered(500, 501))
    assert_newest_of(path, 501)
    assert (path.stat().st_size, oct(path.stat().st_mode)) == (SIZE_BYTES, "0o100600")
    assert os.listdir(tmp_path) == ["history"]


def test_a_writer_follows_to_the_file_that_another_has_made(tmp_path: Path) -> None:
    """With its next try; also when somebody has removed the file: then there is a new one."""
    path = tmp_path / "history"
    daemon = append(path, b"one")
    for record, moves, left in (
        (b"three", lambda: append(path, b"two", size_bytes=2 * MIB), [b"one", b"two", b"three"]),
        (b"four", path.unlink, [b"four"]),
    ):
        moves()
        with pytest.raises(HistoryUnusable, match="another process has just made, moved or rem"):
            daemon.append(record)
        daemon.append(record)
        assert records_at(path) == left


# ---- several writers


def test_two_writers_lose_nothing_of_each_other(tmp_path: Path) -> None:
    """By turns, over the end of the ring."""
    path = tmp_path / "history"
    stores = append(path), append(path)
    for number, record in enumerate(numbered(0, 400)):
        stores[number // 3 % 2].append(record)
    assert_newest_of(path, 400)


def test_a_lock_that_is_held_is_a_refusal_and_not_a_wait(tmp_path: Path) -> None:
    """A process that was stopped in the middle of a record may hold it for ever."""
    path = tmp_path / "history"
    store = append(path)
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
    with tmpfs(tmp_path / "disk", 4 * MIB, 16) as made:
        yield made


def test_at_0_bytes_and_0_inodes_every_record_is_written(disk: Path) -> None:
    """Three times around the ring, also by a process that starts then; without room for another
    size the old file goes on, which is noted."""
    path = disk / "history"
    store = append(path)
    with without_bytes_and_inodes(disk):
        for record in numbered(0, 600):
            store.append(record)
        append(path, *numbered(600, 900))
        assert_newest_of(path, 900)
        store = append(path, *numbered(900, 901), size_bytes=2 * MIB)
        assert_newest_of(path, 901)
        assert store.note.startswith(
            f"the history {path} stays as it is (1.0MiB): no new one can be made: "
        )
        assert ".history.new" not in os.listdir(disk)


def test_on_a_full_disk_none_is_made_and_nothing_of_it_is_left(disk: Path) -> None:
    """Nor with less free than twice its size; once there is room it is. An old file is not moved
    away where no new one can be made."""
    path = disk / "history"
    store = HistoryStore(str(path), SIZE_BYTES)
    path.write_bytes(EARLIER)
    path.chmod(0o600)
    for old in (True, False):
        with without_bytes_and_inodes(disk), pytest.raises(HistoryUnusable, match="No space left"):
            store.append(b"record")
        if old:
            assert (path.read_bytes(), os.listdir(disk)) == (EARLIER, ["history"])
            path.unlink()
    (disk / "fill").write_bytes(bytes(4 * MIB - 3 * SIZE_BYTES // 2))
    with pytest.raises(HistoryUnusable, match=r"more than half of the 1\.5MiB free"):
        store.append(b"record")
    assert os.listdir(disk) == ["fill"]
    (disk / "fill").unlink()
    store.append(b"record")
    assert records_at(path) == [b"record"]


# ---- kills

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
    """60 writers, each killed after some milliseconds, also while a file of
    another size is being made.
    """
    command = [sys.executable, "-c", KILLED, str(tmp_path / "history"), str(KILLS)]
    process = subprocess.run(command, capture_output=True, text=True, check=False, timeout=150.0)
    assert process.returncode == 0, process.stderr
    assert int(process.stdout) > KILLS // 2, "most of them had written something"
    assert set(os.listdir(tmp_path)) <= {"history", ".history.new"}


# ---- the ring of slots

RING = 5
RECORD = st.builds(
    lambda size, byte: bytes(byte + at % 7 for at in range(size)),
    st.integers(1, 40) | st.integers(4000, LARGEST_RECORD_BYTES),
    st.integers(0, 240),
)
RECORDS = st.lists(RECORD, max_size=14)


@contextmanager
def ring(*records: bytes) -> Iterator[Ring]:
    """A file in memory with a ring of 5 slots and these records."""
    descriptor = os.memfd_create("ring")
    os.ftruncate(descriptor, (1 + RING) * SLOT_BYTES)
    made = Ring(descriptor)
    try:
        for record in records:
            made.write(record)
        yield made
    finally:
        made.close()


@given(RECORDS, RECORD, st.tuples(*[st.integers(0, SLOT_BYTES)] * 2))
def test_a_write_of_which_any_part_is_missing_costs_no_other_record(
    records: list[bytes], last: bytes, written: tuple[int, int]
) -> None:
    """The newest records are there whole and in their order, as many as there are slots. If only a
    part of the last slot was written its record is whole, the one before it in this place is, or it
    is counted as torn; so it is after the next process has written another one."""
    with ring(*records) as made:
        assert made.contents() == (records[-RING:], 0)
        place = (1 + made.next % RING) * SLOT_BYTES
        old = os.pread(made.descriptor, SLOT_BYTES, place)
        made.write(last)
        new = os.pread(made.descriptor, SLOT_BYTES, place)
        start, end = sorted(written)
        os.pwrite(made.descriptor, old[:start] + new[start:end] + old[end:], place)
        before, others = records[-RING:], records[-RING + 1 :]
        found, torn = made.contents()
        assert found in ((others,) if torn else (before, [*others, last]))
        made.next = 1 + max((slot.sequence for slot in made.slots()), default=-1)
        made.write(b"after")
        *rest, after = made.contents().records
        assert after == b"after"
        assert set(rest) <= {*records, last}


def test_a_byte_that_is_wrong_leaves_one_record_out_and_is_counted() -> None:
    """Wherever it is in the slot."""
    with ring(b"one", b"two" * 100, b"three") as made:
        for place in range(2 * SLOT_BYTES, 3 * SLOT_BYTES):
            right = os.pread(made.descriptor, 1, place)
            os.pwrite(made.descriptor, bytes([right[0] ^ 0x20]), place)
            assert made.contents() == ([b"one", b"three"], 1)
            os.pwrite(made.descriptor, right, place)
        assert len(made.contents().records) == 3


# ---- the writer: nobody waits for it, and what it cannot write is kept, or dropped and counted


class Desk:
    """A recorder that is put records by hand, and what it has told."""

    def __init__(self, path: Path, size_bytes: int = MIB):
        self.told: list[str] = []
        self.path = path
        self.recorder = HistoryRecorder(
            str(path), size_bytes, SteppedClock(), warn=self.told.append, retry_seconds=0.05
        )

    def records(self) -> list[int]:
        """The pids in the file; of a record that says how many were dropped minus their number."""
        try:
            found = recorded(self.path)
        except NoHistoryYet:
            return []
        return [each["pid"] if each["kind"] == "started" else -each["records"] for each in found]


def recorded(path: Path) -> list[dict[str, Any]]:
    """The documents of the file."""
    return list(documents_of(contents_of(str(path)).records))


def of(pid: int) -> bytes:
    """A record that has this number."""
    (record,) = encoded({"kind": "started", "time": "", "pid": pid})
    return record


def test_what_does_not_fit_is_dropped_counted_and_recorded(tmp_path: Path) -> None:
    """Another process holds the lock: no call waits, the reason is told once, the oldest records
    are kept; afterwards they are written, then how many were dropped, then new ones."""
    path, size_bytes = tmp_path / "history", 2 * MIB
    HistoryStore(str(path), size_bytes).open()
    with open(path, "r+b") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        desk = Desk(path, size_bytes)
        desk.recorder.write(of(0))
        assert came_true(lambda: bool(desk.told))
        for number in range(1, MOST_WAITING + 11):
            desk.recorder.write(of(number))
        assert desk.recorder.dropped == 10
        assert desk.records() == []
    assert came_true(lambda: desk.records()[-1:] == [-10])
    desk.recorder.write(of(1000))
    assert desk.recorder.finish(30.0)
    assert desk.records() == [*range(MOST_WAITING + 1), -10, 1000]
    assert desk.told == [
        f"the history is not written: another process holds the lock of {desk.path}"
    ]
    assert (desk.recorder.records, desk.recorder.dropped) == (MOST_WAITING + 3, 10)


def test_a_record_that_fits_no_slot_is_dropped_and_the_next_one_is_written(tmp_path: Path) -> None:
    """Nothing waits behind it."""
    desk = Desk(tmp_path / "history")
    desk.recorder.write(b"x" * (LARGEST_RECORD_BYTES + 1))
    desk.recorder.write(of(1))
    assert desk.recorder.finish(30.0)
    assert desk.records() == [1, -1]
    assert (desk.recorder.records, desk.recorder.dropped) == (2, 1)


def in_time(do: Callable[[], object]) -> bool:
    """Whether it comes back within 30 s."""
    done = threading.Event()

    def run() -> None:
        do()
        done.set()

    threading.Thread(target=run, daemon=True).start()
    return done.wait(30.0)


def test_a_disk_that_never_answers_holds_up_nobody(tmp_path: Path) -> None:
    """A dead filesystem: records wait, then are dropped; the end waits its limit and no longer."""
    disk = tmp_path / "disk"
    disk.mkdir()
    with SilentFilesystem(str(disk), stopped=True):
        desk = Desk(disk / "history")

        def put() -> None:
            for _ in range(MOST_WAITING + 10):
                desk.recorder.write(of(1))

        assert in_time(put)
        assert desk.recorder.dropped in (10, 11)  # the thread may have taken its first task
        assert in_time(lambda: desk.recorder.finish(0.2))
        assert desk.recorder.records == 0


@pytest.mark.parametrize(
    ("name", "told"),
    [("history", ["the history is not written: no thread can be started for it"]), ("", [])],
)
def test_without_a_thread_or_a_path_there_is_no_history(
    tmp_path: Path, name: str, told: list[str]
) -> None:
    """At the limit of processes the daemon starts all the same, and it is said; without a path
    there is no thread."""
    said: list[str] = []
    path = str(tmp_path / name) if name else ""
    with no_thread_starts():
        recorder = HistoryRecorder(path, MIB, SteppedClock(), warn=said.append)
    recorder.daemon("started")
    recorder.passed(pass_of([outcome(1)]))
    assert recorder.finish()
    assert (said, recorder.records) == (told, 0)
    assert os.listdir(tmp_path) == []


def test_a_pass_without_a_removal_is_recorded_once_a_minute_for_each_result(tmp_path: Path) -> None:
    """Each with a removal is; of the periodic loops those that acted. Other kinds of records are in
    the stories of `tests/sockets/cli`."""
    clock, path = SteppedClock(), tmp_path / "history"
    recorder = HistoryRecorder(str(path), MIB, clock, warn=pytest.fail)
    failed = outcome(1, result=Result.FAILED)
    for _ in range(3):
        recorder.passed(pass_of(result=PassResult.NOT_ENOUGH))
        recorder.passed(pass_of([failed], PassResult.NOT_ENOUGH))
        recorder.collected(periodic_pass(ReclaimResult("container GC")))
        recorder.collected(periodic_pass(ReclaimResult("image GC", error="the runtime is away")))
        clock.step(31.0)
    assert recorder.finish()
    found = recorded(path)
    assert Counter((each["result"], bool(each["removals"])) for each in found) == {
        ("not_enough", False): 2,
        ("failed", False): 2,
        ("not_enough", True): 3,
    }
    assert (recorder.records, recorder.dropped) == (len(found), 0)
