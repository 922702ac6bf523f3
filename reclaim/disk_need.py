"""What has to come free and how long there is, and the order of removals that follows from it: values only.

Covers: amounts and times in one unit, bytes or inodes; how much may go on at once in that time. Does not cover:
choosing (`yield_order`), where the amounts come from (the caller).
"""

from __future__ import annotations

from dataclasses import dataclass

NEVER = float("inf")
HURRY_SECONDS = 60.0  # a disk that is full within a minute is in a hurry
HURRY_TIMES = 8
HURRY_MOST = 32


@dataclass(frozen=True, slots=True)
class Need:
    """What has to come free, in the unit that is short.

    `missing`: until what was to be relieved is relieved. `left`: before nothing is free at all. `fill_per_second`: the
    fill seen lately; 0 or less: nothing fills. `inodes`: whether inodes are short, and not bytes.
    """

    missing: int
    left: int
    fill_per_second: float
    inodes: bool = False

    @property
    def seconds_to_full(self) -> float:
        """How long the room that is left lasts at this fill."""
        return max(self.left, 0) / self.fill_per_second if self.fill_per_second > 0 else NEVER

    @property
    def hurry(self) -> bool:
        """Whether the bytes are gone within a minute at this fill. Inodes are no reason: nobody knows before what an
        image brings of them."""
        return not self.inodes and self.seconds_to_full < HURRY_SECONDS

    def side_by_side(self, parallel: int) -> int:
        """How many removals may be in flight where it is `parallel` with time: in a hurry eight times as many, but more
        than 32 only if so many are configured. One stays one: who wants them one after another gets that.

        A runtime that collects garbage before it answers does so once for all that came meanwhile (containerd,
        `metadata/gc.go`): with 300 images of 5 MiB two side by side free 230 MiB/s of a disk that fills by 400 MiB/s,
        and eight about as much as it fills.
        """
        if not self.hurry or parallel == 1:
            return parallel
        return max(parallel, min(HURRY_TIMES * parallel, HURRY_MOST))


@dataclass(frozen=True, slots=True)
class ChosenOrder:
    """Which image goes next, and why: the largest yield, or the one whose last use is longest ago.

    Seconds are infinite where it never would be. `inodes`: the unit of the yield.
    """

    by_yield: bool
    inodes: bool
    seconds_to_full: float
    seconds_by_last_use: float

    @property
    def sentence(self) -> str:
        """Why the largest yield goes first; empty where the last use decides."""
        if not self.by_yield:
            return ""
        would_take = "never free enough"
        if self.seconds_by_last_use < NEVER:
            would_take = f"take {self.seconds_by_last_use:.1f} s"
        unit = "inodes" if self.inodes else "bytes"
        return (
            f"largest yield of {unit} first: the disk is full in {self.seconds_to_full:.1f} s, "
            f"and least recently used first would {would_take}"
        )
