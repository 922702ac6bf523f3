"""One thread glances at all filesystems near a mark, and one that does not answer holds the others up for a moment."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise

from signals.clock import SystemClock
from signals.interval import Marks
from signals.threshold_notifier import SELDOM_SECONDS, Glances
from tests.pure.values import MIB

SOON = 5.0  # seconds in which something happens that must; alone it takes milliseconds
MANY_INODES = 10**6


class Falling:
    """A filesystem that has so many bytes at each glance, the last one for ever; or a failure."""

    def __init__(self, *available: int | OSError):
        self.available = list(available)
        self.times: list[float] = []

    def __call__(self, path: str) -> tuple[int, int]:
        """The next one."""
        self.times.append(time.monotonic())
        found = self.available.pop(0) if len(self.available) > 1 else self.available[0]
        if isinstance(found, OSError):
            raise found
        return found, MANY_INODES


def marks(available_bytes: int, every_seconds: float = 0.001) -> Marks:
    """Glances so often, whatever is available; half as often while it stands still."""
    return Marks(available_bytes, None, 1e12, 1e12, every_seconds, every_seconds)


@contextmanager
def glancing(glancer: Callable[[str], tuple[int, int]], held_up_seconds: float = 60.0) -> Iterator[Glances]:
    """Who glances, until the end of the test."""
    glances = Glances(SystemClock(), glancer, held_up_seconds)
    try:
        yield glances
    finally:
        glances.close()


def test_who_glances_calls_once_when_a_mark_is_crossed() -> None:
    """By itself, at the third glance; and then rests until it is told to watch again."""
    filesystem, crossed = Falling(100, 50, 49), threading.Semaphore(0)
    with glancing(filesystem) as glances:
        glances.watch("/x", marks(50), crossed.release)
        assert crossed.acquire(timeout=SOON)
        assert not crossed.acquire(timeout=0.05)
        assert len(filesystem.times) == 3
        glances.watch("/x", marks(50), crossed.release)
        assert crossed.acquire(timeout=SOON)


def test_a_fill_that_begins_calls_before_the_mark_is_crossed() -> None:
    """The disk stands still for a while and begins to fall then: a look is due, so that its rate is known when the mark
    comes. While it goes on falling nothing is called for."""
    filesystem, called = Falling(64 * MIB), threading.Semaphore(0)
    often = Marks(0, None, 1.0 * MIB, 1e12, 0.005, 0.005)
    with glancing(filesystem) as glances:
        glances.watch("/x", often, called.release)
        assert not called.acquire(timeout=2 * SELDOM_SECONDS)
        filesystem.available = [(63 - fallen) * MIB for fallen in range(60)]
        assert called.acquire(timeout=SOON)
        glances.watch("/x", often, called.release)
        assert not called.acquire(timeout=0.02)


def test_who_writes_in_bursts_calls_for_no_more_than_four_looks_a_second() -> None:
    """A write, and stillness after it, at every second glance; who is called orders the same glances again."""
    filesystem, calls = Falling(*(4096 * MIB - fallen // 2 * MIB for fallen in range(4000))), list[float]()
    often, enough = Marks(0, None, 1.0 * MIB, 1e12, 0.002, 0.002), threading.Event()
    with glancing(filesystem) as glances:

        def called() -> None:
            calls.append(time.monotonic())
            if len(calls) == 3:
                enough.set()
            glances.watch("/x", often, called)

        glances.watch("/x", often, called)
        assert enough.wait(2 * SOON)
    assert all(later - earlier >= SELDOM_SECONDS for earlier, later in pairwise(calls))


def test_the_same_marks_again_wake_nobody_and_other_ones_are_looked_at_at_once() -> None:
    """A glance that is due in 10 s stays due then."""
    filesystem, glanced = Falling(100), threading.Semaphore(0)

    def glance(path: str) -> tuple[int, int]:
        glanced.release()
        return filesystem(path)

    with glancing(glance) as glances:
        for _ in range(3):
            glances.watch("/x", marks(50, 10.0), glanced.release)
        assert glanced.acquire(timeout=SOON)
        assert not glanced.acquire(timeout=0.05)
        glances.watch("/x", marks(51, 10.0), glanced.release)
        assert glanced.acquire(timeout=SOON)
        assert not glanced.acquire(timeout=0.05)


def test_a_glance_that_fails_calls_too() -> None:
    """What cannot be read is for a look to say."""
    crossed = threading.Event()
    with glancing(Falling(100, OSError(5, "Input/output error"))) as glances:
        glances.watch("/x", marks(50), crossed.set)
        assert crossed.wait(SOON)


def test_without_marks_the_glances_end_and_the_others_go_on() -> None:
    """None takes the marks away, and so does a path that is not looked at any more."""
    crossed, filesystems = threading.Event(), {name: Falling(100) for name in ("/x", "/y", "/z")}
    with glancing(lambda path: filesystems[path](path)) as glances:
        for path in filesystems:
            glances.watch(path, marks(50), crossed.set)
        glances.watch("/y", None, crossed.set)
        glances.keep_only({"/x"})
        time.sleep(0.05)  # the thread has seen all of it by now
        ended = {path: len(filesystem.times) for path, filesystem in filesystems.items()}
        time.sleep(0.05)
        after = {path: len(filesystem.times) for path, filesystem in filesystems.items()}
    assert not crossed.is_set()
    assert after["/x"] > ended["/x"]
    assert (after["/y"], after["/z"]) == (ended["/y"], ended["/z"])


def test_two_filesystems_cost_one_wake_up() -> None:
    """Ordered at different moments, they are soon glanced at one right after the other, on one thread."""
    filesystems, threads = {"/x": Falling(100), "/y": Falling(100)}, set[int]()

    def glance(path: str) -> tuple[int, int]:
        threads.add(threading.get_ident())
        return filesystems[path](path)

    with glancing(glance) as glances:
        glances.watch("/x", marks(50, 0.02), lambda: None)
        time.sleep(0.03)
        glances.watch("/y", marks(50, 0.022), lambda: None)
        time.sleep(1.0)
    assert len(threads) == 1
    late = [min(abs(y - x) for x in filesystems["/x"].times) for y in filesystems["/y"].times[-10:]]
    assert sorted(late)[len(late) // 2] < 0.005, "half of their pause is 20 ms"


def become(count: int) -> bool:
    """Whether so many threads that glance are there soon."""
    until = time.monotonic() + SOON
    while (found := sum(thread.name == "glances" for thread in threading.enumerate())) != count:
        if time.monotonic() > until:
            print(f"{found} threads")
            return False
        time.sleep(0.001)
    return True


class Hanging:
    """Two filesystems, of which `/hangs` does not answer before it is let go."""

    def __init__(self) -> None:
        self.let_go = threading.Event()
        self.asked = threading.Semaphore(0)
        self.available = {"/hangs": 100, "/sound": 100}

    def __call__(self, path: str) -> tuple[int, int]:
        """What is available, sooner or later."""
        if path == "/hangs":
            self.asked.release()
            self.let_go.wait(60.0)
        return self.available[path], MANY_INODES


def test_a_filesystem_that_hangs_holds_the_others_up_until_the_next_order_only() -> None:
    """The order of the next look finds the thread held up: another one takes over, and a mark that was crossed
    meanwhile is told. The silent one is asked by no second thread; when it answers, its thread calls nobody, and ends.
    """
    filesystems, crossed, of_the_silent = Hanging(), threading.Semaphore(0), threading.Event()
    assert become(0)
    with glancing(filesystems, held_up_seconds=0.05) as glances:
        glances.watch("/sound", marks(50), crossed.release)
        glances.watch("/hangs", marks(50), of_the_silent.set)
        assert filesystems.asked.acquire(timeout=SOON)
        filesystems.available["/sound"] = 10
        assert not crossed.acquire(timeout=0.1), "its thread is held up"
        glances.watch("/sound", marks(50), crossed.release)  # the same order as before
        assert crossed.acquire(timeout=SOON)
        for _ in range(3):
            glances.watch("/hangs", marks(50), of_the_silent.set)
            glances.watch("/sound", marks(50), crossed.release)
            assert crossed.acquire(timeout=SOON)
        assert not filesystems.asked.acquire(timeout=0.05)
        assert become(2)
        filesystems.available["/hangs"] = 10
        filesystems.let_go.set()
        assert become(1)
        assert not of_the_silent.is_set()
        glances.watch("/hangs", marks(50), of_the_silent.set)
        assert of_the_silent.wait(SOON), "it is glanced at again"


def test_closing_waits_for_no_filesystem() -> None:
    """A thread that is held up ends when it has come back; nothing can be ordered any more."""
    filesystems, called = Hanging(), threading.Event()
    with glancing(filesystems) as glances:
        glances.watch("/hangs", marks(50), called.set)
        assert filesystems.asked.acquire(timeout=SOON)
    glances.watch("/sound", marks(500), called.set)
    filesystems.let_go.set()
    assert become(0)
    assert not called.is_set()
