"""The largest yield first, where the least recently used first would come too late.

Images go least recently used first, as in the kubelet. On a disk that fills faster than small old images make room
that order loses the race: then the image that brings most goes next, in the unit that is short (bytes or inodes). It
is chosen anew before each removal by comparing two times, and both are told; as soon as there is time again the least
recently used one goes.

A runtime says nothing of inodes and counts shared layers several times, so what an image brings is estimated from what
earlier removals brought for each byte that the runtime had promised: those of its own repository, else all of them.

Covers: which of a plan's images goes next. Does not cover: what is in the plan (`image_gc`), when to stop (`executor`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from reclaim.disk_need import NEVER, ChosenOrder, Need
from reclaim.types import Kind, Outcome, Result, Verdict

FADING = 0.9  # what each further removal leaves of what was known: the last ten or so count
MOST_REPOSITORIES = 256  # of which the last removals are remembered

Yield = tuple[float, float]
"""Bytes and inodes that came free for each byte that the runtime had promised."""


@dataclass(frozen=True, slots=True)
class Experience:
    """What removals of images have brought, and how long they took.

    Before the first one: as much as one removal of 1 MiB that brought what was promised, an inode for each 16 KiB
    (mkfs.ext4's default ratio), and took 20 ms. So no estimate is ever 0.
    """

    promised_bytes: float = 1048576.0
    freed_bytes: float = 1048576.0
    freed_inodes: float = 64.0
    removals: float = 1.0
    seconds: float = 0.02
    by_repository: Mapping[str, Yield] = field(default_factory=dict)

    @property
    def known(self) -> bool:
        """Whether there was a removal at all."""
        return bool(self.by_repository)

    @property
    def worth(self) -> float:
        """Bytes that came free for each byte that the runtime had promised."""
        return self.freed_bytes / self.promised_bytes

    @property
    def seconds_each(self) -> float:
        """How long one removal takes."""
        return self.seconds / self.removals

    def brings(self, verdict: Verdict, *, inodes: bool) -> float:
        """What the removal of this image is expected to bring, in bytes or inodes; 0 where its size is not known."""
        overall = (self.worth, self.freed_inodes / self.promised_bytes)
        of_bytes, of_inodes = self.by_repository.get(repository(verdict.name), overall)
        return (verdict.size_bytes or 0) * (of_inodes if inodes else of_bytes)


def learn(outcome: Outcome, before: Experience = Experience()) -> Experience:  # frozen
    """What is known after this removal; what was known before, where no image of a known size went."""
    size = outcome.verdict.size_bytes
    if outcome.result is not Result.REMOVED or outcome.verdict.kind is not Kind.IMAGE or not size:
        return before
    name = repository(outcome.verdict.name)
    known = {other: seen for other, seen in before.by_repository.items() if other != name}
    known[name] = (outcome.freed_bytes / size, outcome.freed_inodes / size)
    return Experience(
        before.promised_bytes * FADING + size,
        before.freed_bytes * FADING + outcome.freed_bytes,
        before.freed_inodes * FADING + outcome.freed_inodes,
        before.removals * FADING + 1,
        before.seconds * FADING + outcome.duration_seconds,
        dict(list(known.items())[-MOST_REPOSITORIES:]),
    )


@lru_cache(maxsize=4096)  # asked for every image that is left, before each removal
def repository(name: str) -> str:
    """A name without its tag or digest; an id is its own."""
    if name.startswith("sha256:"):
        return name
    head, slash, last = name.partition("@")[0].rpartition("/")
    return f"{head}{slash}{last.partition(':')[0]}"


def choose(remove: Sequence[Verdict], experience: Experience, need: Need, *, parallel: int = 1) -> ChosenOrder:
    """The order of these images, least recently used first, unless that is too late.

    `parallel`: removals side by side, at least 1, which divide the time: the best case of the order by last use.
    """
    to_full = need.seconds_to_full
    by_last_use = seconds_needed(remove, experience, need, parallel=parallel)
    # where all of them are not enough, all of them go, and there is a hurry only if the disk is full before that
    ends = min(by_last_use, len(remove) * experience.seconds_each / max(parallel, 1))
    return ChosenOrder(need.missing > 0 and to_full < ends, need.inodes, to_full, by_last_use)


def seconds_needed(remove: Sequence[Verdict], experience: Experience, need: Need, *, parallel: int = 1) -> float:
    """How long removals in this order take until enough is free, while the disk goes on filling; infinite if all of
    them are not enough."""
    each = experience.seconds_each / max(parallel, 1)
    filled = max(need.fill_per_second, 0.0) * each
    missing, seconds = float(need.missing), 0.0
    for verdict in remove:
        if missing <= 0:
            break
        seconds += each
        missing -= experience.brings(verdict, inodes=need.inodes) - filled
    return seconds if missing <= 0 else NEVER


class YieldOrder:
    """Says which image goes next while a plan is carried out, and learns from each that went.

    `chosen` is the first choice of the largest yield, else the first choice of all; None before the first.
    """

    def __init__(self, experience: Experience, parallel: int):
        self.experience = experience
        self.chosen: ChosenOrder | None = None
        self._parallel = parallel

    def next_of(self, pending: Sequence[Verdict], need: Need | None) -> int:
        """The place of the next one to go; `pending` is not empty, and in the order of the last use."""
        if need is None or (need.seconds_to_full == NEVER and self.chosen is not None):
            return 0
        choice = choose(pending, self.experience, need, parallel=need.side_by_side(self._parallel))
        if self.chosen is None or (choice.by_yield and not self.chosen.by_yield):
            self.chosen = choice
        if not choice.by_yield:
            return 0
        return max(range(len(pending)), key=lambda place: self.experience.brings(pending[place], inodes=need.inodes))

    def learn(self, outcome: Outcome) -> None:
        """One removal has ended."""
        self.experience = learn(outcome, self.experience)
