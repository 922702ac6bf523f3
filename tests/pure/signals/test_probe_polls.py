"""The polls of a filesystem near its thresholds: on its own thread, so that one that hangs delays no other one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from signals.clock import SystemClock
from signals.filesystems import Reading
from signals.interval import WatchedLevels
from signals.probe import Probes
from signals.types import ReadingUnavailable
from tests.pure.values import on_new_thread, stats

SOON = 5.0  # seconds in which something happens that must; alone it takes milliseconds
A_WHILE = 0.05  # seconds in which many polls would happen


class Filesystems:
    """Filesystems that say what the test wants, each poll recorded; `/hangs` does not answer while it is held."""

    def __init__(self) -> None:
        self.available: dict[str, int | OSError] = {}
        self.polled: dict[str, threading.Semaphore] = {}
        self.threads: dict[str, set[int]] = {}
        self.answering = threading.Event()
        self.answering.set()

    def __call__(self, path: str, now: float) -> Reading:
        """100 bytes available, unless the test says otherwise. Raises what it says."""
        self.threads.setdefault(path, set()).add(threading.get_ident())
        self.polled.setdefault(path, threading.Semaphore(0)).release()
        if path == "/hangs":
            self.answering.wait(60.0)
        found = self.available.get(path, 100)
        if isinstance(found, OSError):
            raise found
        return Reading(stats(available_bytes=found, time=now), 7)

    def forget_polls(self, path: str) -> None:
        """Counts from here on."""
        while self.polled[path].acquire(blocking=False):
            pass


def levels(available_bytes: int, every_seconds: float = 0.001) -> WatchedLevels:
    """Levels that are polled that often, whatever is available."""
    return WatchedLevels((available_bytes, None), (1e12, 1e12), every_seconds, every_seconds)


@contextmanager
def probes_of(filesystems: Filesystems, *paths: str, limit_seconds: float = 60.0) -> Iterator[Probes]:
    """Probes that have read each path once; their threads have ended when the block is left."""
    probes = Probes(SystemClock(), filesystems, on_new_thread, limit_seconds)
    try:
        for path in paths:
            probes.read(path)
            filesystems.forget_polls(path)
        yield probes
    finally:
        filesystems.answering.set()
        probes.close()
        for thread in [each for path in paths for each in threads_of(path)]:
            thread.join(SOON)


def threads_of(path: str) -> list[threading.Thread]:
    """The threads of this process that read or poll a path."""
    return [thread for thread in threading.enumerate() if thread.name == f"statvfs {path}"]


def test_a_crossing_notifies_once_and_ends_the_polls() -> None:
    """By itself, and again only when levels are set again."""
    filesystems, notified = Filesystems(), threading.Semaphore(0)
    with probes_of(filesystems, "/x") as probes:
        probes.watch("/x", levels(50), notified.release)
        for _ in range(3):
            assert filesystems.polled["/x"].acquire(timeout=SOON)
        assert not notified.acquire(timeout=A_WHILE)
        filesystems.available["/x"] = 49
        assert notified.acquire(timeout=SOON)
        filesystems.forget_polls("/x")
        assert not filesystems.polled["/x"].acquire(timeout=A_WHILE)
        assert not notified.acquire(blocking=False)
        probes.watch("/x", levels(50), notified.release)
        assert notified.acquire(timeout=SOON)


def test_levels_may_be_set_again_in_the_notification() -> None:
    """On the thread that polls, which holds no lock then."""
    filesystems, notified = Filesystems(), threading.Semaphore(0)
    with probes_of(filesystems, "/x") as probes:

        def notify() -> None:
            notified.release()
            probes.watch("/x", levels(500), notify)

        probes.watch("/x", levels(500), notify)
        for _ in range(3):
            assert notified.acquire(timeout=SOON)


def test_the_thread_that_polls_is_the_one_that_reads() -> None:
    """No thread is started when levels are set, nor between a crossing and the reading that follows it."""
    filesystems, notified = Filesystems(), threading.Event()
    with probes_of(filesystems, "/x") as probes:
        (before,) = threads_of("/x")
        probes.watch("/x", levels(500), notified.set)
        assert notified.wait(SOON)
        probes.read("/x")
        assert threads_of("/x") == [before]
        assert filesystems.threads["/x"] == {before.ident}


def test_the_same_levels_again_wake_nobody_and_others_are_polled_at_once() -> None:
    """A poll that is due in 10 s stays due then."""
    filesystems, notified = Filesystems(), threading.Semaphore(0)
    with probes_of(filesystems, "/x") as probes:
        for _ in range(3):
            probes.watch("/x", levels(50, 10.0), notified.release)
        assert filesystems.polled["/x"].acquire(timeout=SOON)
        probes.watch("/x", levels(50, 10.0), notified.release)
        assert not filesystems.polled["/x"].acquire(timeout=A_WHILE)
        probes.watch("/x", levels(51, 10.0), notified.release)
        assert filesystems.polled["/x"].acquire(timeout=SOON)
        assert not filesystems.polled["/x"].acquire(timeout=A_WHILE)
    assert not notified.acquire(blocking=False)


@pytest.mark.regression
def test_every_reading_carries_what_was_polled_last() -> None:
    """The last ones, in their order. Whoever reads first takes nothing from the others."""
    filesystems, notified = Filesystems(), threading.Event()
    with probes_of(filesystems, "/x") as probes:
        probes.watch("/x", levels(50), notified.set)
        for available in (100, 90, 49):
            filesystems.available["/x"] = available
            filesystems.forget_polls("/x")
            for _ in range(4 if available >= 50 else 1):  # one that has begun may still read the amount before
                assert filesystems.polled["/x"].acquire(timeout=SOON)
        assert notified.wait(SOON)
        polls = probes.read("/x").polls
        amounts = [poll.available_bytes for poll in polls]
        assert amounts == sorted(amounts, reverse=True)
        assert amounts[-2:] == [90, 49]
        assert sorted(polls) == list(polls)
        assert probes.read("/x").polls == polls


def test_a_reading_neither_ends_nor_hastens_the_polls() -> None:
    """The thread serves it while a poll is due in 10 s, and polls nothing; with a poll every millisecond they go on."""
    filesystems = Filesystems()
    with probes_of(filesystems, "/x") as probes:
        for every_seconds, goes_on in ((10.0, False), (0.001, True)):
            probes.watch("/x", levels(50, every_seconds), lambda: None)
            assert filesystems.polled["/x"].acquire(timeout=SOON)
            probes.read("/x")
            assert filesystems.polled["/x"].acquire(timeout=SOON), "the reading itself"
            assert filesystems.polled["/x"].acquire(timeout=SOON if goes_on else A_WHILE) is goes_on


@pytest.mark.parametrize("failure", [OSError(5, "Input/output error"), OSError()])
def test_a_poll_that_fails_notifies(failure: OSError) -> None:
    """The observation that follows says why the filesystem cannot be read."""
    filesystems, notified = Filesystems(), threading.Event()
    with probes_of(filesystems, "/x") as probes:
        filesystems.available["/x"] = failure
        probes.watch("/x", levels(50), notified.set)
        assert notified.wait(SOON)


def test_the_polls_of_a_path_that_is_no_longer_observed_end_and_those_of_others_go_on() -> None:
    """And one that was never read is not polled."""
    filesystems, notified = Filesystems(), threading.Event()
    with probes_of(filesystems, "/x", "/z") as probes:
        for path in ("/x", "/z", "/never-read"):
            probes.watch(path, levels(50), notified.set)
        threads = threads_of("/z")
        probes.keep_only({"/x"})
        for thread in threads:
            thread.join(SOON)
        for path in ("/x", "/z"):
            filesystems.forget_polls(path)
        assert filesystems.polled["/x"].acquire(timeout=SOON)
        assert not filesystems.polled["/z"].acquire(blocking=False)
        probes.watch("/z", levels(500), notified.set)
        assert not filesystems.polled["/z"].acquire(timeout=A_WHILE)
    assert "/never-read" not in filesystems.polled
    assert not notified.is_set()


def test_a_filesystem_that_hangs_delays_no_other_one() -> None:
    """While the poll of one hangs, each crossing of the other one is notified. The one that hangs is asked by no second
    thread; when it answers at last, its crossing is notified and it is polled and read again, on the same thread."""
    filesystems, notified, of_the_hanging = Filesystems(), threading.Semaphore(0), threading.Semaphore(0)
    with probes_of(filesystems, "/hangs", "/sound", limit_seconds=SOON) as probes:
        filesystems.answering.clear()
        probes.watch("/hangs", levels(50), of_the_hanging.release)
        assert filesystems.polled["/hangs"].acquire(timeout=SOON)
        filesystems.available["/sound"] = 10
        for changed in range(3):
            probes.watch("/sound", levels(50), notified.release)
            assert notified.acquire(timeout=SOON)
            probes.watch("/hangs", levels(50 + changed), of_the_hanging.release)
        assert not filesystems.polled["/hangs"].acquire(timeout=A_WHILE)
        assert len(threads_of("/hangs")) == 1
        filesystems.available["/hangs"] = 10
        filesystems.answering.set()
        assert of_the_hanging.acquire(timeout=SOON)
        assert probes.read("/hangs").stats.available_bytes == 10
        assert len(filesystems.threads["/hangs"]) == 1
    assert not of_the_hanging.acquire(blocking=False), "once, for the levels that were set last"


def test_a_poll_that_hangs_fails_the_reading_within_its_limit() -> None:
    """The caller waits 50 ms once, as for a reading that hangs, and after that not at all."""
    filesystems, notified = Filesystems(), threading.Event()
    with probes_of(filesystems, "/hangs", "/sound", limit_seconds=0.05) as probes:
        filesystems.answering.clear()
        probes.watch("/hangs", levels(50), notified.set)
        assert filesystems.polled["/hangs"].acquire(timeout=SOON)
        with pytest.raises(ReadingUnavailable, match="did not answer statvfs within"):
            probes.read("/hangs")
        with pytest.raises(ReadingUnavailable, match="has not answered an earlier statvfs yet"):
            probes.read("/hangs")
        assert not notified.is_set()


def test_closing_waits_for_no_filesystem() -> None:
    """A thread that hangs ends when the filesystem answers, and sends no notification; nothing is polled any more."""
    filesystems, notified = Filesystems(), threading.Event()
    with probes_of(filesystems, "/hangs", "/sound") as probes:
        filesystems.answering.clear()
        probes.watch("/hangs", levels(50), notified.set)
        assert filesystems.polled["/hangs"].acquire(timeout=SOON)
        stuck = threads_of("/hangs") + threads_of("/sound")
        assert len(stuck) == 2
        probes.close()
        probes.watch("/sound", levels(500), notified.set)
        filesystems.available["/hangs"] = 10
        filesystems.answering.set()
        for thread in stuck:
            thread.join(SOON)
            assert not thread.is_alive()
    assert not notified.is_set()
