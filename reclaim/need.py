"""What has to come free and how long there is, and the order of removals that follows from it: values only.

Covers: amounts and times in one unit, bytes or inodes. Does not cover: choosing (`yield_order`), where the amounts come
from (the caller).
"""

from __future__ import annotations

from dataclasses import dataclass

NEVER = float("inf")


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
