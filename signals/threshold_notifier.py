"""Glances at filesystems that are near their marks, between two looks: one thread for all of them, on one beat.

To hand a reading over to another thread costs ten times the reading, and to wake up thirty times a glance. So one
thread glances, as often as `interval` says, at all that are nearly due, and calls for a look when a mark is crossed or
a fill begins; who is called sleeps meanwhile.

A filesystem that does not answer holds the thread up, and with it the glances at the others. Whoever orders the next
glances, after each look and so within about a second, finds that out: the thread is left to wait, another one takes the
others over, and the silent filesystem is not glanced at before the first has come back.

Covers: when to call. Does not cover: the interval (`interval`), readings with a deadline (`statvfs`).
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass

from signals.clock import Clock
from signals.interval import HALF_LIFE_SECONDS, SHORTEST_SECONDS, Marks

SELDOM_SECONDS = 0.25  # who writes in bursts calls for no more looks than one in so long
HELD_UP_SECONDS = 0.25  # for a glance: a healthy filesystem answers within microseconds
NEARLY = 0.25  # of its pause: so much earlier a glance is made where the thread is awake anyway

Glancer = Callable[[str], tuple[int, int]]
"""Bytes available and inodes free of the filesystem that holds a path. May block; raises OSError."""


def glance_statvfs(path: str) -> tuple[int, int]:
    """Bytes available and inodes free, and nothing else: a fifth of what a whole reading costs. Raises OSError."""
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize, found.f_ffree


@dataclass(frozen=True, slots=True)
class _Watch:
    """What to glance at, until when, and whom to call then; without marks: not any more."""

    path: str
    marks: Marks | None
    look_due: Callable[[], None]


class Glances:
    """Who glances at the filesystems of a node. From any thread; no call waits for a filesystem."""

    def __init__(self, clock: Clock, glancer: Glancer, held_up_seconds: float = HELD_UP_SECONDS):
        self._clock = clock
        self._glancer = glancer
        self._held_up_seconds = held_up_seconds
        self._lock = threading.Lock()  # held for moments only
        self._wanted: dict[str, _Watch] = {}  # what was ordered and goes on
        self._at_work: _Thread | None = None
        self._held_up: list[_Thread] = []
        self._closed = False

    def watch(self, path: str, marks: Marks | None, look_due: Callable[[], None]) -> None:
        """Glances from now on until a look is due, and then calls `look_due` once, on the thread that glances: a mark
        is crossed, a fill begins on a disk that stood still, or it cannot be read. Returns at once.

        Other marks replace these, and the same ones change nothing; None ends the glances.
        """
        watch = _Watch(path, marks, look_due)
        with self._lock:
            if self._closed:
                return
            self._relieve()
            if watch == self._wanted.get(path):  # nobody is woken for it
                return
            if marks is None:
                if self._wanted.pop(path, None) is None:
                    return
            elif any(thread.at == path for thread in self._held_up):
                return
            else:
                self._wanted[path] = watch
            self._order(watch)

    def keep_only(self, paths: set[str]) -> None:
        """Ends the glances at all others."""
        with self._lock:
            others = self._wanted.keys() - paths
        for path in others:
            self.watch(path, None, _nobody)

    def close(self) -> None:
        """Lets the thread end. One that is held up ends when it has come back, or with the process."""
        with self._lock:
            self._closed = True
            self._wanted.clear()
            if self._at_work is not None:
                self._at_work.orders.put(None)

    def _order(self, watch: _Watch) -> None:
        if self._at_work is None:
            self._at_work = _Thread(self._clock, self._glancer, self._ended)
        self._at_work.orders.put(watch)

    def _relieve(self) -> None:
        """Lets another thread go on where the one at work is held up."""
        self._held_up = [thread for thread in self._held_up if thread.at is not None]
        thread = self._at_work
        if thread is None or not thread.is_held_up(self._clock.monotonic(), self._held_up_seconds):
            return
        thread.orders.put(None)
        self._held_up.append(thread)
        self._at_work = None
        self._wanted = {path: watch for path, watch in self._wanted.items() if path != thread.at}
        for watch in self._wanted.values():
            self._order(watch)

    def _ended(self, thread: _Thread, watch: _Watch) -> None:
        """A look is due; who is called may order the same again. A thread that was relieved calls nobody."""
        with self._lock:
            if thread is not self._at_work or self._wanted.get(watch.path) is not watch:
                return
            del self._wanted[watch.path]
        watch.look_due()


class _Thread:
    """One thread that glances at what it is told to. `at`: the path of the glance that goes on, else None."""

    def __init__(self, clock: Clock, glancer: Glancer, ended: Callable[[_Thread, _Watch], None]):
        self.orders: queue.SimpleQueue[_Watch | None] = queue.SimpleQueue()  # None: to end
        self.at: str | None = None
        self._since = 0.0
        self._clock = clock
        self._glancer = glancer
        self._ended = ended
        self._glances: dict[str, _Since] = {}
        # daemon: a thread stuck in the kernel must not hold up the end of the process
        threading.Thread(target=self._serve, name="glances", daemon=True).start()

    def is_held_up(self, now: float, seconds: float) -> bool:
        """Whether the glance that goes on has taken longer."""
        return self.at is not None and now - self._since > seconds

    def _serve(self) -> None:
        pause: float | None = None
        while True:
            try:
                order = self.orders.get(timeout=pause)
            except queue.Empty:
                pause = self._beat()
                continue
            if order is None:
                return
            if order.marks is None:
                self._glances.pop(order.path, None)
            else:
                self._glances[order.path] = _Since(order, order.marks)
            pause = 0.0

    def _beat(self) -> float | None:
        """Glances at all that are nearly due. Seconds until the next one is due; None: none ever is."""
        now = self._clock.monotonic()
        over, next_at = [], float("inf")
        for path, glances in self._glances.items():
            if glances.nearly_at <= now and not self._glance(path, glances, now):
                over.append(path)
            elif glances.due_at < next_at:
                next_at = glances.due_at
        for path in over:
            self._ended(self, self._glances.pop(path).watch)
        return None if not self._glances else max(next_at - now, 0.0)

    def _glance(self, path: str, glances: _Since, now: float) -> bool:
        """Whether there is another one after it."""
        self._since, self.at = now, path
        try:
            return glances.go_on(*self._glancer(path), now)
        except Exception:  # noqa: BLE001 # what cannot be read is for a look to say
            return False
        finally:
            self.at = None


class _Since:
    """What the glances at one filesystem have shown since its marks were set. The first is due at once.

    Plain numbers and no values: this runs up to a hundred times a second while nothing happens.
    """

    __slots__ = (
        "_at_rest",
        "_available",
        "_bytes_fill",
        "_inodes",
        "_inodes_fill",
        "_marks",
        "_since",
        "_still",
        "_time",
        "due_at",
        "nearly_at",
        "watch",
    )

    def __init__(self, watch: _Watch, marks: Marks):
        self.watch = watch
        self.nearly_at = float("-inf")
        self.due_at = float("-inf")
        self._marks = marks
        self._available, self._inodes, self._time, self._since = 0, 0, float("inf"), float("inf")
        self._bytes_fill, self._inodes_fill, self._still = 0.0, 0.0, False
        self._at_rest: float | None = None  # the pause for as long as nothing at all changes

    def go_on(self, available_bytes: int, inodes_free: int, now: float) -> bool:
        """Whether no mark is crossed and no fill begins; then the next glance is due at `due_at`, and where
        somebody is awake anyway at `nearly_at`; monotonic seconds."""
        if self._at_rest is not None and available_bytes == self._available and inodes_free == self._inodes:
            self._time = now
            self._next_after(now, self._at_rest)
            return True
        if self._marks.crossed(available_bytes, inodes_free):
            return False
        elapsed, was_still, self._since = now - self._time, self._still, min(self._since, now)
        if elapsed >= SHORTEST_SECONDS:  # closer ones say nothing of a rate
            bytes_fill = (self._available - available_bytes) / elapsed
            inodes_fill = (self._inodes - inodes_free) / elapsed
            left = 0.5 ** (elapsed / HALF_LIFE_SECONDS)
            self._bytes_fill = max(self._bytes_fill * left, bytes_fill)
            self._inodes_fill = max(self._inodes_fill * left, inodes_fill)
            self._still = self._marks.still(bytes_fill, inodes_fill)
        self._available, self._inodes, self._time = available_bytes, inodes_free, now
        pause = self._marks.next_glance(
            available_bytes, inodes_free, self._bytes_fill, self._inodes_fill, still=self._still
        )
        self._next_after(now, pause)
        slow = self._bytes_fill <= self._marks.bytes_per_second and self._inodes_fill <= self._marks.inodes_per_second
        self._at_rest = pause if self._still and slow else None
        return self._still or not was_still or now - self._since < SELDOM_SECONDS

    def _next_after(self, now: float, pause: float) -> None:
        self.due_at, self.nearly_at = now + pause, now + pause * (1 - NEARLY)


def _nobody() -> None:
    """Nobody is called for glances that were ended."""
