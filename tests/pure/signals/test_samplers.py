"""A filesystem is read and polled on a thread of its own: one that hangs costs that thread, and
delays nobody."""

from __future__ import annotations

import queue
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from signals.clock import SystemClock
from signals.filesystems import Reading, read_statvfs
from signals.interval import WatchedLevels
from signals.samplers import MOST_ORDERS, Sample, Samplers
from tests.pure.values import on_new_thread, stats
from tests.thread_limit import no_thread_starts

SOON = 60.0  # seconds in which something happens that must; alone it takes milliseconds
A_WHILE = 0.05  # seconds in which many polls would happen
HANGING, SOUND, GONE = "/hanging", "/sound", "/gone"
CLOSED = ": is no longer observed"


class Node:
    """Samplers of filesystems that say what the test wants, each reading counted; `/hanging` does
    not answer while it is held."""

    def __init__(self) -> None:
        self.available: dict[str, int | Exception] = {}
        self.read: dict[str, threading.Semaphore] = defaultdict(partial(threading.Semaphore, 0))
        self.threads: dict[str, set[threading.Thread]] = defaultdict(set)
        self.answering = threading.Event()
        self.answering.set()
        self.answers = queue.SimpleQueue[Sample]()
        self.samplers = Samplers(SystemClock(), self.reading, on_new_thread)

    def reading(self, path: str, now: float) -> Reading:
        """100 bytes available, unless the test says otherwise. Raises what it says."""
        self.threads[path].add(threading.current_thread())
        self.read[path].release()
        if path == HANGING:
            assert self.answering.wait(SOON)
        found = self.available.get(path, 100)
        if isinstance(found, Exception):
            raise found
        return Reading(stats(available_bytes=found, time=now), 7)

    def ask(self, path: str) -> Sample:
        """What is answered next."""
        self.samplers.ask([path], self.answers.put)
        return self.answers.get(timeout=SOON)

    def hold(self, *paths: str) -> None:
        """Reads these once, and lets the hanging one hang from then on."""
        for path in paths:
            self.ask(path)
        self.forget(*paths)
        self.answering.clear()

    def begins(self, path: str) -> bool:
        """Whether a reading of it begins."""
        return self.read[path].acquire(timeout=SOON)

    def is_quiet(self, path: str) -> bool:
        """Whether it is left alone for a while."""
        return not self.read[path].acquire(timeout=A_WHILE)

    def watch(
        self, path: str, level: int, notify: Callable[[], None], every: float = 0.001
    ) -> None:
        """Polls that often, whatever is available."""
        levels = WatchedLevels((level, None), (1e12, 1e12), every, every)
        self.samplers.watch(path, levels, notify)

    def forget(self, *paths: str) -> None:
        """Counts from here on."""
        for path in paths:
            while self.read[path].acquire(blocking=False):
                pass

    def has_ended(self, path: str) -> bool:
        """Whether the threads that read it end."""
        for thread in self.threads[path]:
            thread.join(SOON)
        return not any(thread.is_alive() for thread in self.threads[path])


@pytest.fixture
def node() -> Iterator[Node]:
    made = Node()
    yield made
    made.answering.set()
    made.samplers.close()
    assert all(map(made.has_ended, list(made.threads)))


class Notified(threading.Semaphore):
    """Counts notifications."""

    def __init__(self) -> None:
        super().__init__(0)

    def __call__(self) -> None:
        self.release()


@pytest.fixture
def notified() -> Notified:
    """Released by each notification."""
    return Notified()


# ---- readings


@pytest.mark.regression
def test_a_filesystem_that_hangs_costs_one_thread_and_delays_nobody(node: Node) -> None:
    """Whoever asks goes on, and so do the others, up to so many of them; when it answers at last, a
    reading that begins then serves all who have asked meanwhile: it does not get the late answer."""
    node.answering.clear()
    node.samplers.ask([HANGING], node.answers.put)
    assert node.begins(HANGING)
    for _ in range(MOST_ORDERS):
        node.samplers.ask([HANGING], node.answers.put)
    late = node.ask(HANGING)
    assert late.problem == "/hanging: the filesystem has not answered an earlier statvfs yet"
    assert node.ask(SOUND).reading is not None
    assert node.is_quiet(HANGING)
    node.answering.set()
    first, *others = (node.answers.get(timeout=SOON) for _ in range(MOST_ORDERS + 1))
    assert {each.reading is not None and each.begun_at > first.begun_at for each in others} == {
        True
    }
    assert node.begins(HANGING)
    assert len(node.threads[HANGING]) == 1


def test_a_filesystem_that_fails_says_why_and_is_read_again(node: Node) -> None:
    """An error of the operating system becomes a sentence, whatever a reader raises; its thread
    goes on serving. An answer has the reading, its filesystem, and when it began."""
    failures = {
        OSError(13, "Permission denied"): "/sound: cannot be read: Permission denied",
        OSError(): "/sound: cannot be read: OSError",
        ValueError("embedded null"): "/sound: cannot be read: ValueError: embedded null",
    }
    for error, problem in failures.items():
        node.available[SOUND] = error
        sample = node.ask(SOUND)
        assert (sample.problem, sample.reading) == (problem, None)
    node.available[SOUND] = 50
    sample = node.ask(SOUND)
    assert sample.reading == Reading(stats(available_bytes=50, time=sample.begun_at), 7)
    assert sample.identity is not None
    assert (sample.identity.path, sample.identity.device_id) == (SOUND, 7)
    assert len(node.threads[SOUND]) == 1


@pytest.mark.regression
def test_a_filesystem_without_a_thread_is_not_readable_until_there_is_one(tmp_path: Path) -> None:
    """A sentence in place of a defect, and the next reading tries again; threads that were prepared
    are there. What no filesystem has is no reading of 0 bytes."""
    answers = queue.SimpleQueue[Sample]()
    samplers = Samplers(SystemClock(), read_statvfs, on_new_thread)

    def told(path: str) -> Sample:
        samplers.ask([path], answers.put)
        return answers.get(timeout=SOON)

    with no_thread_starts():
        assert "there is no thread to read it on" in told(str(tmp_path)).problem
        with pytest.raises(RuntimeError):
            samplers.prepare([str(tmp_path)])
    samplers.prepare([str(tmp_path)])
    with no_thread_starts():
        reading = told(str(tmp_path)).reading
    assert reading is not None
    assert reading.device_id == tmp_path.stat().st_dev
    found = reading.stats
    assert 0 <= found.available_bytes <= found.free_bytes <= found.capacity_bytes
    assert 0 <= found.inodes_free <= found.inodes_total
    for path, problem in (("missing", "No such file or directory"), ("a\0b", "null")):
        sample = told(str(tmp_path / path))
        assert problem in sample.problem
        assert sample.reading is None
    samplers.close()


# ---- what is no longer observed


def test_only_what_is_observed_is_read_and_polled(node: Node, notified: Notified) -> None:
    """What is no longer observed loses its thread; the others keep theirs. What was never read is
    not polled."""
    node.hold(SOUND, GONE)
    for path in (SOUND, GONE, "/never-read"):
        node.watch(path, 50, notified)
    node.samplers.keep_only({SOUND})
    assert node.has_ended(GONE)
    node.forget(SOUND, GONE)
    node.watch(GONE, 500, notified)
    assert node.begins(SOUND)
    assert node.is_quiet(GONE)
    assert "/never-read" not in node.read
    assert not notified.acquire(blocking=False)
    assert len(node.threads[SOUND]) == 1


def test_closing_waits_for_no_filesystem(node: Node, notified: Notified) -> None:
    """A thread that hangs ends when the filesystem answers, and sends no notification: who has asked
    gets what was read, who asked after that the sentence. Nothing is polled any more."""
    node.hold(HANGING, SOUND)
    node.samplers.ask([HANGING], node.answers.put)
    assert node.begins(HANGING)
    node.watch(HANGING, 500, notified)
    node.samplers.ask([HANGING], node.answers.put)
    node.samplers.close()
    node.watch(SOUND, 500, notified)
    node.answering.set()
    assert [node.answers.get(timeout=SOON).problem for _ in range(2)] == ["", HANGING + CLOSED]
    assert node.has_ended(HANGING)
    assert node.has_ended(SOUND)
    assert not notified.acquire(blocking=False)


# ---- polls


def test_a_crossing_notifies_once_and_ends_the_polls(node: Node, notified: Notified) -> None:
    """By itself, and again only when levels are set again, which the notification may do."""
    node.hold(SOUND)
    node.watch(SOUND, 50, notified)
    assert all(node.begins(SOUND) for _ in range(3))
    assert not notified.acquire(timeout=A_WHILE)
    node.available[SOUND] = 49
    assert notified.acquire(timeout=SOON)
    node.forget(SOUND)
    assert node.is_quiet(SOUND)
    assert not notified.acquire(blocking=False)

    def again() -> None:
        notified.release()
        node.watch(SOUND, 50, again)

    again()
    assert all(notified.acquire(timeout=SOON) for _ in range(4))
    node.available[SOUND] = 100


def test_neither_a_reading_nor_the_same_levels_end_or_hasten_the_polls(
    node: Node, notified: Notified
) -> None:
    """A poll that is due in 10 s stays due then; other levels are polled at once."""
    node.hold(SOUND)
    for level, polled in ((50, True), (50, False), (51, True)):
        node.watch(SOUND, level, notified, 10.0)
        assert not polled or node.begins(SOUND)
        assert node.is_quiet(SOUND)
    node.ask(SOUND)
    assert node.begins(SOUND), "the reading itself"
    assert node.is_quiet(SOUND)
    node.watch(SOUND, 52, notified)
    node.ask(SOUND)
    assert all(node.begins(SOUND) for _ in range(4))
    assert not notified.acquire(blocking=False)


@pytest.mark.regression
def test_every_reading_carries_what_was_polled_last(node: Node, notified: Notified) -> None:
    """The last ones, in their order. Whoever reads first takes nothing from the others."""
    node.hold(SOUND)
    node.watch(SOUND, 50, notified)
    for available in (100, 90, 49):
        node.available[SOUND] = available
        node.forget(SOUND)
        # one that has begun may still read the amount before
        assert all(node.begins(SOUND) for _ in range(4 if available >= 50 else 1))
    assert notified.acquire(timeout=SOON)
    first, second = (node.ask(SOUND).reading for _ in range(2))
    assert first is not None
    assert second is not None
    amounts = [poll.available_bytes for poll in first.polls]
    assert amounts == sorted(amounts, reverse=True)
    assert amounts[-2:] == [90, 49]
    times = [poll.time for poll in first.polls]
    assert times == sorted(times)
    assert second.polls == first.polls


def test_a_poll_that_fails_notifies(node: Node, notified: Notified) -> None:
    """The observation that follows says why the filesystem cannot be read."""
    node.hold(SOUND)
    node.available[SOUND] = OSError(5, "Input/output error")
    node.watch(SOUND, 50, notified)
    assert notified.acquire(timeout=SOON)


def test_a_poll_that_hangs_delays_no_other_filesystem(node: Node, notified: Notified) -> None:
    """Each crossing of the other one is notified. The one that hangs is asked by no second thread;
    when it answers at last, its crossing is notified once, for the levels that were set last, and
    it is read again on the same thread."""
    of_the_hanging = Notified()
    node.hold(HANGING, SOUND)
    node.watch(HANGING, 50, of_the_hanging)
    assert node.begins(HANGING)
    node.available |= {SOUND: 10, HANGING: 51}
    for changed in range(3):
        node.watch(SOUND, 50, notified)
        assert notified.acquire(timeout=SOON)
        node.watch(HANGING, 50 + changed, of_the_hanging)
    assert node.is_quiet(HANGING)
    node.answering.set()
    assert of_the_hanging.acquire(timeout=SOON)
    assert node.ask(HANGING).reading is not None
    assert len(node.threads[HANGING]) == 1
    assert not of_the_hanging.acquire(blocking=False)
