"""Decides between two observations, poll by poll, when a filesystem near a threshold must be observed again.

An observation reads everything and is followed by a decision; that is too expensive to do a hundred times a second.
A poll reads the bytes available and the inodes free of one filesystem and compares them with two numbers. The
thread of each filesystem (`probe`) polls as often as is said here, and notifies the daemon's loop when an
observation is due. The name is the kubelet's, whose ThresholdNotifier does this for memory
(`pkg/kubelet/eviction/types.go`).

Covers: when to notify, when to poll next. Does not cover: the length of the interval (`interval`), reading and threads
(`probe`).
"""

from __future__ import annotations

from collections.abc import Callable

from signals.interval import HALF_LIFE_SECONDS, SHORTEST_SECONDS, WatchedLevels

MIN_NOTIFY_SECONDS = 0.25  # whoever writes in bursts causes at most one observation in this time

Notify = Callable[[], None]
"""Says that an observation is due. Called on the thread of the filesystem: it must return at once and raise nothing."""


class ThresholdNotifier:
    """Watches one filesystem until an observation is due. Not thread-safe: one thread polls.

    `due_at`: when the next poll is due, monotonic seconds; the first one is due at once. Plain numbers, no value
    objects: `update` runs up to a hundred times a second while nothing happens.
    """

    __slots__ = (
        "_available_bytes",
        "_bytes_rate",
        "_first_poll",
        "_idle",
        "_inodes_free",
        "_inodes_rate",
        "_interval_at_rest",
        "_last_poll",
        "due_at",
        "levels",
        "notify",
    )

    def __init__(self, levels: WatchedLevels, notify: Notify):
        self.levels = levels
        self.notify = notify
        self.due_at = float("-inf")
        self._available_bytes, self._inodes_free = 0, 0
        self._first_poll, self._last_poll = float("inf"), float("inf")
        self._bytes_rate, self._inodes_rate = 0.0, 0.0  # the fastest fills so far, halved every minute
        self._idle = False
        self._interval_at_rest: float | None = None  # as long as no number changes; None: has to be computed

    def update(self, available_bytes: int, inodes_free: int, now: float) -> bool:
        """Takes in one poll, made at `now` (monotonic seconds). True when an observation is due.

        It is due when an amount is below its level, and when a fill begins on a filesystem that was idle, so that its
        rate is known before it comes to the level; the second at the earliest 0.25 s after the first poll. Otherwise
        polling continues at `due_at`.
        """
        if (
            self._interval_at_rest is not None
            and available_bytes == self._available_bytes
            and inodes_free == self._inodes_free
        ):
            self._last_poll = now
            self.due_at = now + self._interval_at_rest
            return False
        if self.levels.crossed(available_bytes, inodes_free):
            return True
        was_idle, self._first_poll = self._idle, min(self._first_poll, now)
        self._update_rates(available_bytes, inodes_free, now - self._last_poll)
        self._available_bytes, self._inodes_free, self._last_poll = available_bytes, inodes_free, now
        interval = self.levels.poll_interval(
            available_bytes, inodes_free, self._bytes_rate, self._inodes_rate, idle=self._idle
        )
        self.due_at = now + interval
        as_assumed = (
            self._bytes_rate <= self.levels.bytes_per_second and self._inodes_rate <= self.levels.inodes_per_second
        )  # then the rates do not shorten the interval, and it stays the same while they decay
        self._interval_at_rest = interval if self._idle and as_assumed else None
        return was_idle and not self._idle and now - self._first_poll >= MIN_NOTIFY_SECONDS

    def _update_rates(self, available_bytes: int, inodes_free: int, elapsed: float) -> None:
        if elapsed < SHORTEST_SECONDS:  # the first poll, or one that is too close to the last
            return
        bytes_rate = (self._available_bytes - available_bytes) / elapsed
        inodes_rate = (self._inodes_free - inodes_free) / elapsed
        kept = 0.5 ** (elapsed / HALF_LIFE_SECONDS)
        self._bytes_rate = max(self._bytes_rate * kept, bytes_rate)
        self._inodes_rate = max(self._inodes_rate * kept, inodes_rate)
        self._idle = self.levels.is_idle(bytes_rate, inodes_rate)
