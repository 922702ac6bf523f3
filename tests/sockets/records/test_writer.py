"""The writer of the history: nobody waits for it, and what it cannot write is
kept, or dropped and counted.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eviction.drill.runtime.private_mounts import unmount
from eviction.records.history import MOST_WAITING, HistoryRecorder, documents_of, encoded
from eviction.records.passes import PassResult
from eviction.records.store import LARGEST_RECORD_BYTES, HistoryStore, NoHistoryYet, contents_of
from reclaim.types import ReclaimResult, Result
from tests.pure.records.documents import outcome, pass_of, periodic_pass
from tests.pure.values import MIB, SteppedClock
from tests.reclaimd_process import came_true
from tests.sockets.mounts import dead_filesystem, mounted_tmpfs
from tests.thread_limit import no_thread_starts


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


def test_what_happens_on_a_full_disk_is_recorded_once_there_is_room(tmp_path: Path) -> None:
    """The first start of all is on a disk without a byte: what made the room is in the history."""
    disk = tmp_path / "disk"
    mounted_tmpfs(str(disk), 4 * MIB, 16)
    try:
        (disk / "fill").write_bytes(b"x" * 4 * MIB)
        desk = Desk(disk / "reclaimd" / "history")
        desk.recorder.write(of(7))
        assert came_true(lambda: bool(desk.told))
        assert not desk.path.exists()
        (disk / "fill").unlink()
        assert came_true(lambda: desk.records() == [7])
        assert len(desk.told) == 1
        assert "the history is not written: " in desk.told[0]
        assert desk.recorder.finish(30.0)
    finally:
        unmount(str(disk))


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
    with dead_filesystem(str(disk)):
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


def test_which_passes_are_recorded(tmp_path: Path) -> None:
    """Each with a removal; one without, once a minute for each result; of the
    periodic loops those that acted.
    """
    clock, path = SteppedClock(), tmp_path / "history"
    recorder = HistoryRecorder(str(path), MIB, clock, warn=pytest.fail)
    planned, failed = (outcome(1, result=result) for result in (Result.PLANNED, Result.FAILED))
    for _ in range(3):
        recorder.passed(pass_of(result=PassResult.NOT_ENOUGH))
        recorder.passed(pass_of([failed], PassResult.NOT_ENOUGH))
        recorder.passed(pass_of([planned], PassResult.DRY_RUN))
        recorder.collected(periodic_pass(ReclaimResult("container GC")))
        recorder.collected(periodic_pass(ReclaimResult("image GC", error="the runtime is away")))
        recorder.collected(periodic_pass(ReclaimResult("image GC", (outcome(2),))))
        recorder.parked_ended(outcome(3))
        clock.step(31.0)
    recorder.daemon("stopped")
    assert recorder.finish()
    found = recorded(path)
    assert Counter(
        (each["kind"], each.get("result"), bool(each.get("removals"))) for each in found
    ) == {
        ("pass", "not_enough", False): 2,
        ("pass", "failed", False): 2,
        ("pass", "not_enough", True): 3,
        ("pass", "dry_run", True): 3,
        ("pass", "satisfied", True): 3,
        ("parked_ended", None, True): 3,
        ("stopped", None, False): 1,
    }
    assert (recorder.records, recorder.dropped) == (len(found), 0)
