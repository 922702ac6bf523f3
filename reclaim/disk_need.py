"""What has to be freed and how long there is, and the order of removals that follows from it: values only.

Covers: amounts and times in one unit, bytes or inodes; how many removals may be in flight in that time. Does not cover:
choosing (`images.removal_order`), where the amounts come from (the caller).
"""

from __future__ import annotations

from dataclasses import dataclass

NEVER = float("inf")
URGENT_SECONDS = 60.0
URGENT_TIMES = 8  # so many times the configured number of removals, if the disk is full within `URGENT_SECONDS`
URGENT_MOST = 32


@dataclass(frozen=True, slots=True)
class Need:
    """What has to be freed, in the unit that is short.

    `missing`: until the disk counts as relieved. `left`: before nothing is free at all. `fill_per_second`: the steady
    fill rate of the last readings; 0 or less: nothing fills. `inodes`: whether inodes are short, and not bytes.
    `after_jump`: whether it is missing because so much went at once, and not by a fill.
    """

    missing: int
    left: int
    fill_per_second: float
    inodes: bool = False
    after_jump: bool = False

    @property
    def seconds_to_full(self) -> float:
        """How long the space that is left lasts at this fill rate."""
        return max(self.left, 0) / self.fill_per_second if self.fill_per_second > 0 else NEVER

    @property
    def full_within_a_minute(self) -> bool:
        """Whether the bytes run out within a minute at this fill rate. False for inodes: how many of them an image
        frees is not known before it is removed."""
        return not self.inodes and self.seconds_to_full < URGENT_SECONDS

    def max_in_flight(self, parallel: int) -> int:
        """How many removals may be in flight where `parallel` are configured.

        On a disk that is full within a minute eight times as many, but more than 32 only if so many are configured; 1
        stays 1: removals one after another. After a jump one: there is time, and what has jumped may come back.

        A runtime that collects garbage before it answers does so once for all removals that came meanwhile (containerd,
        `metadata/gc.go`): with 300 images of 5 MiB two side by side free 230 MiB/s of a disk that fills by 400 MiB/s,
        and eight about as much as it fills.
        """
        if self.full_within_a_minute:
            return most_in_flight(parallel)
        return 1 if self.after_jump else parallel


def most_in_flight(parallel: int) -> int:
    """How many removals may be in flight at most where `parallel` are configured: `Need.max_in_flight` in a hurry."""
    return 1 if parallel == 1 else max(parallel, min(URGENT_TIMES * parallel, URGENT_MOST))


@dataclass(frozen=True, slots=True)
class OrderDecision:
    """Which image is removed next, and why: the one of the largest yield, or the least recently used one.

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
