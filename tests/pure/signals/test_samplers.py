"""A filesystem is read and polled on a thread of its own: one that hangs costs that
thread, and delays nobody.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from signals.clock import Clock, SystemClock
from signals.filesystems import Reading, read_statvfs
from signals.interval import WatchedLevels
from signals.samplers import MOST_ORDERS, Sample, Sampler, Samplers
from tests.pure.values import SteppedClock, on_new_thread, stats
from tests.reclaimd_process import came_true
from tests.thread_limit import no_thread_starts

SOON = 60.0  # seconds in which something happens that must; alone it takes milliseconds
A_WHILE = 0.05  # seconds in which many polls would happen
HANGING, SOUND = "/hanging", "/sound"


class Filesystems:
    """Filesystems that say what the test wants, each reading counted; `/hanging` does
    not answer while it is held.
    """

    def __init__(self) -> None:
        self.available: dict[str, int | Exception] = {}
        self.read: dict[str, threading.Semaphore] = {
            HANGING: threading.Semaphore(0),
            SOUND: threading.Semaphore(0),
        }
        self.threads: dict[str, set[threading.Thread]] = {}
        self.answering = threading.Event()
        self.answering.set()

    def __call__(self, path: str, now: float) -> Reading:
        """100 bytes available, unless the test says otherwise. Raises what it says."""
        self.threads.setdefault(path, set()).add(threading.current_thread())
        self.read.setdefault(path, threading.Semaphore(0)).release()
        if path == HANGING:
            assert self.answering.wait(SOON)
        found = self.available.get(path, 100)
        if isinstance(found, Exception):
            raise found
        return Reading(stats(available_bytes=found, time=now), 7)

    def forget(self, path: str) -> None:
        """Counts from here on."""
        while self.read[path].acquire(blocking=False):
            pass


class Node:
    """Samplers of such filesystems, and what they have answered."""

    def __init__(self, clock: Clock, filesystems: Filesystems | None = None):
        self.filesystems = filesystems or Filesystems()
        self.samplers = Samplers(clock, self.filesystems, on_new_thread)
        self.answers = queue.SimpleQueue[Sample]()

    def ask(self, path: str) -> Sample:
        """What is answered next."""
        self.samplers.ask([path], self.answers.put)
        return self.answers.get(timeout=SOON)

    def available(self, path: str) -> int:
        """As read now."""
        reading = self.ask(path).reading
        assert reading is not None
        return reading.stats.available_bytes

    def watch(
        self, path: str, available: int, notify: Callable[[], None], every_seconds: float = 0.001
    ) -> None:
        """Polls that often, whatever is available."""
        levels = WatchedLevels((available, None), (1e12, 1e12), every_seconds, every_seconds)
        self.samplers.watch(path, levels, notify)

    def threads(self, path: str) -> list[threading.Thread]:
        """Those that read or poll a path."""
        return [thread for thread in threading.enumerate() if thread.name == f"statvfs {path}"]


@pytest.fixture
def node() -> Iterator[Node]:
    made = Node(SystemClock())
    yield made
    made.filesystems.answering.set()
    made.samplers.close()
    for threads in made.filesystems.threads.values():
        for thread in threads:
            thread.join(SOON)


# ---- readings


def test_an_answer_has_the_reading_and_when_it_began() -> None:
    """With the filesystem that was read."""
    node = Node(SteppedClock(at=12.0))
    sample = node.ask(SOUND)
    assert (sample.path, sample.begun_at, sample.problem) == (SOUND, 12.0, "")
    assert sample.reading == Reading(stats(available_bytes=100, time=12.0), 7)
    assert sample.identity is not None
    assert (sample.identity.path, sample.identity.device_id) == (SOUND, 7)
    node.samplers.close()


@pytest.mark.regression
def test_a_filesystem_that_hangs_costs_one_thread_and_delays_nobody(node: Node) -> None:
    """Whoever asks goes on, and so do the others; when it answers at last, a reading that begins
    then serves all who have asked meanwhile."""
    node.filesystems.answering.clear()
    for _ in range(5):
        node.samplers.ask([HANGING], node.answers.put)
    assert node.filesystems.read[HANGING].acquire(timeout=SOON)
    assert node.available(SOUND) == 100
    assert not node.filesystems.read[HANGING].acquire(timeout=A_WHILE)
    assert len(node.threads(HANGING)) == 1
    node.filesystems.answering.set()
    assert {node.answers.get(timeout=SOON).path for _ in range(5)} == {HANGING}
    assert len(node.filesystems.threads[HANGING]) == 1


@pytest.mark.usefixtures("hasty")
def test_those_who_ask_first_at_the_same_time_share_one_thread(node: Node) -> None:
    """All are answered, and the threads of those that came too late end."""
    together = threading.Barrier(8)

    def ask() -> None:
        together.wait(SOON)
        node.samplers.ask([SOUND], node.answers.put)

    for thread in (asking := [threading.Thread(target=ask) for _ in range(8)]):
        thread.start()
    assert [node.answers.get(timeout=SOON).problem for _ in asking] == [""] * len(asking)
    assert came_true(lambda: len(node.threads(SOUND)) == 1)
    assert len(node.filesystems.threads[SOUND]) == 1


def test_what_was_asked_while_a_reading_hung_is_read_anew(node: Node) -> None:
    """It does not get the late answer of that one, but one more reading."""
    node.filesystems.answering.clear()
    node.samplers.ask([HANGING], node.answers.put)
    assert node.filesystems.read[HANGING].acquire(timeout=SOON)
    node.samplers.ask([HANGING], node.answers.put)
    node.filesystems.answering.set()
    first, second = node.answers.get(timeout=SOON), node.answers.get(timeout=SOON)
    assert first.begun_at < second.begun_at
    assert node.filesystems.read[HANGING].acquire(timeout=SOON)


def test_of_a_filesystem_that_hangs_only_so_much_is_asked(node: Node) -> None:
    """Then whoever asks is told at once that it does not answer."""
    node.filesystems.answering.clear()
    node.samplers.ask([HANGING], node.answers.put)
    assert node.filesystems.read[HANGING].acquire(timeout=SOON)
    for _ in range(MOST_ORDERS):
        node.samplers.ask([HANGING], node.answers.put)
    assert (
        node.ask(HANGING).problem
        == "/hanging: the filesystem has not answered an earlier statvfs yet"
    )


def test_a_filesystem_that_fails_says_why_and_is_read_again(node: Node) -> None:
    """An error of the operating system becomes a sentence, whatever a reader raises;
    its thread goes on serving.
    """
    failures: list[tuple[Exception, str]] = [
        (OSError(13, "Permission denied"), "/sound: cannot be read: Permission denied"),
        (OSError(), "/sound: cannot be read: OSError"),
        (ValueError("embedded null"), "/sound: cannot be read: ValueError: embedded null"),
    ]
    for error, problem in failures:
        node.filesystems.available[SOUND] = error
        sample = node.ask(SOUND)
        assert (sample.problem, sample.reading) == (problem, None)
    node.filesystems.available[SOUND] = 50
    assert node.available(SOUND) == 50
    assert len(node.filesystems.threads[SOUND]) == 1


def test_statvfs_reads_a_real_directory(tmp_path: Path) -> None:
    """Available is at most free, and free is at most the capacity."""
    reading = read_statvfs(str(tmp_path), 1.5)
    assert (
        0
        <= reading.stats.available_bytes
        <= reading.stats.free_bytes
        <= reading.stats.capacity_bytes
    )
    assert 0 <= reading.stats.inodes_free <= reading.stats.inodes_total
    assert reading.device_id == tmp_path.stat().st_dev
    assert reading.stats.time == 1.5


@pytest.mark.parametrize(
    ("path", "problem"), [("missing", "No such file or directory"), ("a\0b", "null")]
)
def test_what_no_filesystem_has_is_no_reading_of_0_bytes(
    tmp_path: Path, path: str, problem: str
) -> None:
    """The runtime names paths; now and at the next reading."""
    answers = queue.SimpleQueue[Sample]()
    samplers = Samplers(SteppedClock(), read_statvfs, on_new_thread)
    for _ in range(2):
        samplers.ask([str(tmp_path / path)], answers.put)
        sample = answers.get(timeout=SOON)
        assert sample.reading is None
        assert problem in sample.problem
    samplers.close()


@pytest.mark.regression
def test_a_filesystem_without_a_thread_is_not_readable_until_there_is_one(tmp_path: Path) -> None:
    """A sentence in place of a defect, and the next reading tries again; threads
    that were prepared are there.
    """
    answers = queue.SimpleQueue[Sample]()
    samplers = Samplers(SystemClock(), read_statvfs, on_new_thread)
    with no_thread_starts():
        samplers.ask([str(tmp_path)], answers.put)
        assert "there is no thread to read it on" in answers.get(timeout=SOON).problem
        with pytest.raises(RuntimeError):
            samplers.prepare([str(tmp_path)])
    samplers.prepare([str(tmp_path)])
    with no_thread_starts():
        samplers.ask([str(tmp_path)], answers.put)
        assert answers.get(timeout=SOON).reading is not None
    samplers.close()


# ---- what is no longer observed


def test_a_path_that_is_no_longer_observed_loses_its_thread(node: Node) -> None:
    """The others keep theirs."""
    node.ask("/gone")
    node.ask(SOUND)
    (thread,) = node.filesystems.threads["/gone"]
    node.samplers.keep_only({SOUND})
    thread.join(SOON)
    assert not thread.is_alive()
    assert node.available(SOUND) == 100
    assert len(node.filesystems.threads[SOUND]) == 1


def test_whoever_asks_a_closed_sampler_is_told_at_once() -> None:
    """Whether it was started or not."""
    for started in (False, True):
        answers = queue.SimpleQueue[Sample]()
        sampler = Sampler(SOUND, Filesystems(), SteppedClock())
        if started:
            on_new_thread(sampler.serve)
            sampler.ask(answers.put)
            assert answers.get(timeout=SOON).reading is not None
        sampler.close()
        sampler.ask(answers.put)
        assert answers.get(timeout=SOON).problem == "/sound: is no longer observed"


def test_a_sampler_that_is_closed_while_it_reads_answers_all(node: Node) -> None:
    """Who has asked gets what was read; who asked after that, the sentence; and the thread ends."""
    node.filesystems.answering.clear()
    node.samplers.ask([HANGING], node.answers.put)
    assert node.filesystems.read[HANGING].acquire(timeout=SOON)
    node.samplers.ask([HANGING], node.answers.put)
    node.samplers.close()
    node.filesystems.answering.set()
    assert node.answers.get(timeout=SOON).reading is not None
    assert node.answers.get(timeout=SOON).problem == "/hanging: is no longer observed"
    (thread,) = node.filesystems.threads[HANGING]
    thread.join(SOON)
    assert not thread.is_alive()


# ---- polls


def test_a_crossing_notifies_once_and_ends_the_polls(node: Node) -> None:
    """By itself, and again only when levels are set again."""
    notified = threading.Semaphore(0)
    node.ask(SOUND)
    node.watch(SOUND, 50, notified.release)
    for _ in range(3):
        assert node.filesystems.read[SOUND].acquire(timeout=SOON)
    assert not notified.acquire(timeout=A_WHILE)
    node.filesystems.available[SOUND] = 49
    assert notified.acquire(timeout=SOON)
    node.filesystems.forget(SOUND)
    assert not node.filesystems.read[SOUND].acquire(timeout=A_WHILE)
    assert not notified.acquire(blocking=False)
    node.watch(SOUND, 50, notified.release)
    assert notified.acquire(timeout=SOON)


def test_levels_may_be_set_again_in_the_notification(node: Node) -> None:
    """On the thread that polls, which holds no lock then."""
    notified = threading.Semaphore(0)
    node.ask(SOUND)

    def notify() -> None:
        notified.release()
        node.watch(SOUND, 500, notify)

    node.watch(SOUND, 500, notify)
    for _ in range(3):
        assert notified.acquire(timeout=SOON)


def test_the_same_levels_again_wake_nobody_and_others_are_polled_at_once(node: Node) -> None:
    """A poll that is due in 10 s stays due then."""
    notified = threading.Semaphore(0)
    node.ask(SOUND)
    node.filesystems.forget(SOUND)
    for _ in range(3):
        node.watch(SOUND, 50, notified.release, 10.0)
    assert node.filesystems.read[SOUND].acquire(timeout=SOON)
    node.watch(SOUND, 50, notified.release, 10.0)
    assert not node.filesystems.read[SOUND].acquire(timeout=A_WHILE)
    node.watch(SOUND, 51, notified.release, 10.0)
    assert node.filesystems.read[SOUND].acquire(timeout=SOON)
    assert not node.filesystems.read[SOUND].acquire(timeout=A_WHILE)
    assert not notified.acquire(blocking=False)


@pytest.mark.regression
def test_every_reading_carries_what_was_polled_last(node: Node) -> None:
    """The last ones, in their order. Whoever reads first takes nothing from the others."""
    notified = threading.Event()
    node.ask(SOUND)
    node.watch(SOUND, 50, notified.set)
    for available in (100, 90, 49):
        node.filesystems.available[SOUND] = available
        node.filesystems.forget(SOUND)
        # one that has begun may still read the amount before
        for _ in range(4 if available >= 50 else 1):
            assert node.filesystems.read[SOUND].acquire(timeout=SOON)
    assert notified.wait(SOON)
    reading = node.ask(SOUND).reading
    assert reading is not None
    amounts = [poll.available_bytes for poll in reading.polls]
    assert amounts == sorted(amounts, reverse=True)
    assert amounts[-2:] == [90, 49]
    assert sorted(reading.polls) == list(reading.polls)
    again = node.ask(SOUND).reading
    assert again is not None
    assert again.polls == reading.polls


def test_a_reading_neither_ends_nor_hastens_the_polls(node: Node) -> None:
    """The thread serves it while a poll is due in 10 s, and polls nothing; with a poll
    every millisecond they go on.
    """
    node.ask(SOUND)
    node.filesystems.forget(SOUND)
    for every_seconds, goes_on in ((10.0, False), (0.001, True)):
        node.watch(SOUND, 50, lambda: None, every_seconds)
        assert node.filesystems.read[SOUND].acquire(timeout=SOON)
        node.ask(SOUND)
        assert node.filesystems.read[SOUND].acquire(timeout=SOON), "the reading itself"
        assert node.filesystems.read[SOUND].acquire(timeout=SOON if goes_on else A_WHILE) is goes_on
    assert len(node.filesystems.threads[SOUND]) == 1


@pytest.mark.parametrize("failure", [OSError(5, "Input/output error"), OSError()])
def test_a_poll_that_fails_notifies(node: Node, failure: OSError) -> None:
    """The observation that follows says why the filesystem cannot be read."""
    notified = threading.Event()
    node.ask(SOUND)
    node.filesystems.available[SOUND] = failure
    node.watch(SOUND, 50, notified.set)
    assert notified.wait(SOON)


def test_only_what_is_observed_is_polled(node: Node) -> None:
    """Not what was never read, nor what is no longer observed; the others go on."""
    notified = threading.Event()
    for path in (SOUND, "/gone"):
        node.ask(path)
    for path in (SOUND, "/gone", "/never-read"):
        node.watch(path, 50, notified.set)
    (thread,) = node.filesystems.threads["/gone"]
    node.samplers.keep_only({SOUND})
    thread.join(SOON)
    for path in (SOUND, "/gone"):
        node.filesystems.forget(path)
    assert node.filesystems.read[SOUND].acquire(timeout=SOON)
    node.watch("/gone", 500, notified.set)
    assert not node.filesystems.read["/gone"].acquire(timeout=A_WHILE)
    assert "/never-read" not in node.filesystems.read
    assert not notified.is_set()


def test_a_poll_that_hangs_delays_no_other_filesystem(node: Node) -> None:
    """Each crossing of the other one is notified. The one that hangs is asked by no second thread;
    when it answers at last, its crossing is notified once, for the levels that were set last, and
    it is read again on the same thread."""
    notified, of_the_hanging = threading.Semaphore(0), threading.Semaphore(0)
    for path in (HANGING, SOUND):
        node.ask(path)
        node.filesystems.forget(path)
    node.filesystems.answering.clear()
    node.watch(HANGING, 50, of_the_hanging.release)
    assert node.filesystems.read[HANGING].acquire(timeout=SOON)
    node.filesystems.available[SOUND] = 10
    for changed in range(3):
        node.watch(SOUND, 50, notified.release)
        assert notified.acquire(timeout=SOON)
        node.watch(HANGING, 50 + changed, of_the_hanging.release)
    assert not node.filesystems.read[HANGING].acquire(timeout=A_WHILE)
    node.filesystems.available[HANGING] = 10
    node.filesystems.answering.set()
    assert of_the_hanging.acquire(timeout=SOON)
    assert node.available(HANGING) == 10
    assert len(node.filesystems.threads[HANGING]) == 1
    assert not of_the_hanging.acquire(blocking=False)


def test_closing_waits_for_no_filesystem(node: Node) -> None:
    """A thread that hangs ends when the filesystem answers, and sends no notification;
    nothing is polled any more.
    """
    notified = threading.Event()
    for path in (HANGING, SOUND):
        node.ask(path)
        node.filesystems.forget(path)
    node.filesystems.answering.clear()
    node.watch(HANGING, 50, notified.set)
    assert node.filesystems.read[HANGING].acquire(timeout=SOON)
    stuck = node.threads(HANGING) + node.threads(SOUND)
    assert len(stuck) == 2
    node.samplers.close()
    node.watch(SOUND, 500, notified.set)
    node.filesystems.available[HANGING] = 10
    node.filesystems.answering.set()
    for thread in stuck:
        thread.join(SOON)
        assert not thread.is_alive()
    assert not notified.is_set()
