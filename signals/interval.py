"""When to look again (pure).

A reading costs microseconds, so the next look is due when the filesystem *could* have reached the mark: headroom
divided by the fastest fill seen lately, halved, between a floor and a ceiling. Far from the mark the daemon
sleeps; near it, it looks a hundred times a second. (earlyoom sleeps by headroom too.)

The fastest fill is never taken to be less than a configured rate, and a fill that was seen decays by half every
minute, so that one burst keeps the daemon watchful for some minutes, not for ever.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

HALF_LIFE_SECONDS = 60.0
LATELY_SECONDS = 0.25  # the half-life of what counts as lately
WATCHED_SECONDS = 0.04  # before so much of it was seen, one write of somebody says nothing of a rate
SHORTEST_SECONDS = 0.001  # closer readings say nothing of a rate
ASSUMED_INODES_PER_SECOND = 20_000.0  # about half of what an ext4 creates on one core
STILL_FLOORS = 3  # the pause between two glances at what stands still is at least so many floors
STILL_SHARE = 1 / 64  # of the assumed rates: what falls more slowly stands still


@dataclass(frozen=True, slots=True)
class Fill:
    """What is known of one amount that falls: the last reading and the fastest fall, units a second.

    `fallen`: what fell lately, in the `watched_seconds`; of both half is forgotten every quarter of a second.
    """

    available: int
    time: float
    fastest: float = 0.0
    fallen: float = 0.0
    watched_seconds: float = 0.0

    @property
    def lately(self) -> float:
        """The mean fall of the last third of a second or so, or since the reading before where that is longer ago;
        units a second, 0 as long as too little was seen to tell."""
        return self.fallen / self.watched_seconds if self.watched_seconds >= WATCHED_SECONDS else 0.0


def next_fill(previous: Fill | None, available: int, now: float) -> Fill:
    """The fill after a reading of `available` at `now` (monotonic seconds). Rising amounts count as a fall of 0.

    A reading less than 1 ms after the previous one changes nothing.
    """
    if previous is None:
        return Fill(available, now)
    if now - previous.time < SHORTEST_SECONDS:
        return previous
    elapsed = now - previous.time
    fall = max(previous.available - available, 0) / elapsed
    decayed = previous.fastest * 0.5 ** (elapsed / HALF_LIFE_SECONDS)
    left = 0.5 ** (elapsed / LATELY_SECONDS)
    seen = (1 - left) * LATELY_SECONDS / math.log(2)  # what is left by now of the seconds in between
    return Fill(
        available, now, max(decayed, fall), previous.fallen * left + fall * seen, previous.watched_seconds * left + seen
    )


def next_interval(headrooms: Iterable[tuple[int, float]], floor_seconds: float, ceiling_seconds: float) -> float:
    """Seconds until the next look, in [floor, ceiling].

    `headrooms`: per watched amount its distance above the mark (units; below 0 counts as 0) and the fastest fill
    assumed to be possible (units a second, above 0). The nearest one decides.
    """
    soonest = min((max(headroom, 0) / fastest for headroom, fastest in headrooms), default=ceiling_seconds * 2)
    return min(max(soonest / 2, floor_seconds), ceiling_seconds)


def stands_still(fill: float, assumed: float) -> bool:
    """Whether this fill is next to nothing beside the one that is assumed to be possible; both in units a second."""
    return fill < assumed * STILL_SHARE


@dataclass(frozen=True, slots=True)
class Marks:
    """What one filesystem is watched for between two looks.

    `available_bytes`, `inodes_free`: the highest mark below the present amount; None: none. The rates are the fastest
    fills assumed to be possible, units a second, above 0. The glances are at least `floor_seconds` apart.
    """

    available_bytes: int | None
    inodes_free: int | None
    bytes_per_second: float
    inodes_per_second: float
    floor_seconds: float
    ceiling_seconds: float

    def crossed(self, available_bytes: int, inodes_free: int) -> bool:
        """Whether an amount is below its mark; equal is not."""
        return (self.available_bytes is not None and available_bytes < self.available_bytes) or (
            self.inodes_free is not None and inodes_free < self.inodes_free
        )

    def still(self, bytes_fill: float, inodes_fill: float) -> bool:
        """Whether fills of this rate, units a second, are next to nothing beside those that are assumed."""
        return stands_still(bytes_fill, self.bytes_per_second) and stands_still(inodes_fill, self.inodes_per_second)

    def next_glance(
        self,
        available_bytes: int,
        inodes_free: int,
        bytes_fill: float = 0.0,
        inodes_fill: float = 0.0,
        *,
        still: bool = False,
    ) -> float:
        """`next_interval` after these amounts. The fills are those seen since the marks were set, units a second.

        Twice that on a filesystem that stands still: nothing that begins now can reach the mark before. Close to a mark
        the floor is three times as long then: a wake-up costs thirty times what a glance does, and is most of
        what is spent at rest.
        """
        soonest = self.ceiling_seconds * 2
        if self.available_bytes is not None:
            headroom = max(available_bytes - self.available_bytes, 0)
            soonest = min(soonest, headroom / max(self.bytes_per_second, bytes_fill))
        if self.inodes_free is not None:
            headroom = max(inodes_free - self.inodes_free, 0)
            soonest = min(soonest, headroom / max(self.inodes_per_second, inodes_fill))
        if still:
            return min(max(soonest, self.floor_seconds * STILL_FLOORS), self.ceiling_seconds)
        return min(max(soonest / 2, self.floor_seconds), self.ceiling_seconds)
