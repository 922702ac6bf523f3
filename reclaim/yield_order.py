"""The largest yield first, where the least recently used first would come too late (pure).

Images go least recently used first, as in the kubelet. On a disk that fills faster than small old images make room
that order loses the race: then the images that bring most go first, in the unit that is short (bytes or inodes). The
choice is a comparison of two times, and both are told.

A runtime says nothing of inodes and counts shared layers several times, so what an image brings is estimated from what
earlier removals brought for each byte that the runtime had promised, and how long they took.

Covers: the order of a plan. Does not cover: what is in the plan (`image_gc`), when to stop (`executor`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from reclaim.types import Kind, Outcome, Plan, Result, Verdict

NEVER = float("inf")


@dataclass(frozen=True, slots=True)
class Yield:
    """What the removal of one image brings, in the unit that is short, and the seconds that it takes; both at
    least 0."""

    amount: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Need:
    """What has to come free, in the unit that is short.

    `missing`: until what was to be relieved is relieved. `left`: before nothing is free at all. `fill_per_second`: the
    fill seen lately; 0 or less: nothing fills.
    """

    missing: int
    left: int
    fill_per_second: float

    @property
    def seconds_to_full(self) -> float:
        """How long the room that is left lasts at this fill."""
        return max(self.left, 0) / self.fill_per_second if self.fill_per_second > 0 else NEVER


@dataclass(frozen=True, slots=True)
class Experience:
    """What removals have brought for each byte that the runtime had promised, and how long one took.

    Before the first one: the promise itself, one inode for each 16 KiB (mkfs.ext4's default ratio), and 20 ms.
    """

    bytes_per_byte: float = 1.0
    inodes_per_byte: float = 1 / 16384
    seconds_each: float = 0.02


@dataclass(frozen=True, slots=True)
class Ordered:
    """A plan in the order in which it is to be carried out, and why. Seconds; infinite where it never would be."""

    plan: Plan
    by_yield: bool
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
        return (
            f"largest yield first: the disk is full in {self.seconds_to_full:.1f} s, "
            f"and least recently used first would {would_take}"
        )


def learn(outcomes: Iterable[Outcome], before: Experience = Experience()) -> Experience:  # frozen
    """What these removals say; what was known before, where no image of a known size went."""
    gone = [o for o in outcomes if o.result is Result.REMOVED and o.verdict.kind is Kind.IMAGE and o.verdict.size_bytes]
    promised = sum(outcome.verdict.size_bytes or 0 for outcome in gone)
    if not promised:
        return before
    return Experience(
        bytes_per_byte=sum(outcome.freed_bytes for outcome in gone) / promised,
        inodes_per_byte=sum(outcome.freed_inodes for outcome in gone) / promised,
        seconds_each=sum(outcome.duration_seconds for outcome in gone) / len(gone),
    )


def estimated_yields(plan: Plan, experience: Experience, *, inodes: bool) -> dict[str, Yield]:
    """What each removal of a plan would bring, by id, in bytes or inodes."""
    worth = experience.inodes_per_byte if inodes else experience.bytes_per_byte
    return {verdict.id: Yield((verdict.size_bytes or 0) * worth, experience.seconds_each) for verdict in plan.remove}


def ordered(plan: Plan, yields: Mapping[str, Yield], need: Need, *, parallel: int = 1) -> Ordered:
    """The plan in its own order if that is in time, else the largest yield first; equal yields keep their order.

    An image without a yield is taken to bring nothing. `parallel`: removals side by side, at least 1, which divide the
    time: the best case of the plan's own order. The verdicts themselves do not change.
    """
    to_full = need.seconds_to_full
    by_last_use = seconds_needed(plan.remove, yields, need) / max(parallel, 1)
    if need.missing <= 0 or by_last_use <= to_full:
        return Ordered(plan, False, to_full, by_last_use)
    largest_first = sorted(plan.remove, key=lambda verdict: -_yield_of(verdict, yields).amount)
    return Ordered(replace(plan, remove=tuple(largest_first)), True, to_full, by_last_use)


def seconds_needed(remove: Sequence[Verdict], yields: Mapping[str, Yield], need: Need) -> float:
    """How long removals in this order take until enough is free, while the disk goes on filling; infinite if all of
    them are not enough."""
    missing, seconds = float(need.missing), 0.0
    for verdict in remove:
        if missing <= 0:
            break
        brings = _yield_of(verdict, yields)
        seconds += brings.seconds
        missing -= brings.amount - max(need.fill_per_second, 0.0) * brings.seconds
    return seconds if missing <= 0 else NEVER


def _yield_of(verdict: Verdict, yields: Mapping[str, Yield]) -> Yield:
    return yields.get(verdict.id, Yield(0.0, 0.0))
