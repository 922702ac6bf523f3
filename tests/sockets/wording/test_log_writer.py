"""The log of the daemon over real pipes: never waited for, in order, whole lines, and
what is dropped is counted.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from eviction.records.json_shapes import timestamp
from eviction.wording.log import Log
from reclaim.workers import NoThread
from tests.reclaimd_process import came_true
from tests.sockets.mounts import tmpfs
from tests.thread_limit import no_thread_starts

WALL = 1_800_000_000.25


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """Both ends of a pipe."""
    ends = os.pipe()
    yield ends
    for end in ends:
        try:
            os.close(end)
        except OSError:  # the test has closed it
            pass


def log_to(descriptor: int) -> Log:
    """A log whose lines are the sentences alone."""
    log = Log(lambda: WALL, journal=True)
    log.write_on_a_thread(descriptor)
    return log


def lines_of(descriptor: int, until: bytes) -> list[bytes]:
    """The lines up to one that begins so."""
    data = b""
    while not data.rpartition(b"\n")[0].rpartition(b"\n")[2].startswith(until):
        data += os.read(descriptor, 65536)
    return data.splitlines()


def test_what_nobody_reads_is_dropped_counted_and_told(pipe: tuple[int, int]) -> None:
    """No call waits; once it is read again: the oldest lines, whole and in their order, then one line
    with the number of the dropped, then new ones."""
    os.set_blocking(pipe[1], False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(pipe[1], b"full\n")
    os.set_blocking(pipe[1], True)
    log = log_to(pipe[1])
    for number in range(5000):
        log.info(f"{number} " + "x" * 1000)
    dropped = log.dropped
    assert dropped > 500
    *lines, last = lines_of(pipe[0], b"<4>lines dropped")
    kept = [line for line in lines if line != b"full"]
    assert kept == [b"<6>%d " % number + b"x" * 1000 for number in range(5000 - dropped)]
    told = f"<4>lines dropped since {timestamp(WALL)}: {dropped}"
    assert last.decode() == f"{told}; the log was not read, or could not be written"
    log.info("new")
    assert os.read(pipe[0], 100) == b"<6>new\n"


def test_the_end_waits_a_bounded_time_for_a_reader(pipe: tuple[int, int]) -> None:
    """A pipe that is full: `finish` comes back without all lines. A reader that has gone is no
    failure: the lines are counted as dropped, and nothing is raised."""
    log, finished = log_to(pipe[1]), threading.Event()
    for _ in range(2000):
        log.info("x" * 100)

    def finish() -> None:
        log.finish()
        finished.set()

    threading.Thread(target=finish, daemon=True).start()
    assert finished.wait(30.0)
    reading, writing = os.pipe()
    os.close(reading)
    log = log_to(writing)
    for _ in range(10):
        log.info("x")
    assert came_true(lambda: log.dropped == 10)
    log.finish()
    os.close(writing)


def test_a_file_on_a_full_disk_has_only_whole_lines_when_there_is_room_again(
    tmp_path: Path,
) -> None:
    """ENOSPC in the middle of a line: the next one that can be written begins a line of its own,
    and how many were dropped comes after it."""
    with tmpfs(tmp_path / "disk", 64 << 10, 100) as disk:
        ballast = disk / "ballast"
        ballast.write_bytes(b"x" * (40 << 10))
        descriptor = os.open(disk / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        log = log_to(descriptor)
        for number in range(100):
            log.info(f"{number:03} " + "x" * 1000)
        assert came_true(lambda: log.dropped > 0 and not log._bytes)
        dropped = log.dropped
        ballast.unlink()
        log.info("new")
        told = f"<4>lines dropped since {timestamp(WALL)}: {dropped}; "
        assert came_true(lambda: told in (disk / "log").read_text())
        log.finish()
        os.close(descriptor)
        lines = (disk / "log").read_text().splitlines()
        whole = [line for line in lines if len(line) == 1007]
        torn = [line for line in lines if line not in whole]
        assert torn[-2] == "<6>new"
        assert torn[-1].startswith(told)
        assert len(whole) == 100 - dropped
        assert len(torn) <= 3


def test_a_log_without_its_thread_is_refused(pipe: tuple[int, int]) -> None:
    """The daemon ends with that: its passes would get none either."""
    with no_thread_starts(), pytest.raises(NoThread, match="no thread can be started for the log"):
        Log(lambda: WALL).write_on_a_thread(pipe[1])
