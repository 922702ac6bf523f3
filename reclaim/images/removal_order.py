"""Which image is removed next: least recently used first, or the largest yield where that would come too late.

The kubelet removes images least recently used first. On a disk that fills faster than small old images make room, that
order loses the race. Then the image that is expected to free most is removed next, in the unit that is short (bytes or
inodes). The order is chosen anew before each removal by comparing two times, and both are reported; as soon as there is
time again the least recently used image is next.

A runtime says nothing of inodes and counts shared layers several times, so the yield of an image is estimated from what
earlier removals freed for each byte that the runtime had promised: those of its own repository, else all of them.

Covers: which of a plan's images is next. Does not cover: what is in the plan (`plan`), when to stop
(`execution.executor`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from reclaim.disk_need import NEVER, Need, OrderDecision
from reclaim.types import Kind, Outcome, Result, Verdict

FADING = 0.9  # what each further removal leaves of what was known: the last ten or so count
MOST_REPOSITORIES = 256  # of which the last removals are remembered

Yield = tuple[float, float]
"""Bytes and inodes that were freed for each byte that the runtime had promised."""


@dataclass(frozen=True, slots=True)
class RemovalHistory:
    """What removals of images have freed, and how long they took.

    Before the first one: as much as one removal of 1 MiB that freed what was promised, an inode for each 16 KiB
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
    def freed_per_promised_byte(self) -> float:
        """Bytes that were freed for each byte that the runtime had promised."""
        return self.freed_bytes / self.promised_bytes

    @property
    def seconds_each(self) -> float:
        """How long one removal takes."""
        return self.seconds / self.removals

    def expected_yield(self, verdict: Verdict, *, inodes: bool) -> float:
        """Bytes or inodes that removing this image is expected to free; 0 if its size is not known."""
        overall = (self.freed_per_promised_byte, self.freed_inodes / self.promised_bytes)
        of_bytes, of_inodes = self.by_repository.get(repository(verdict.name), overall)
        return (verdict.size_bytes or 0) * (of_inodes if inodes else of_bytes)


def record_removal(outcome: Outcome, before: RemovalHistory = RemovalHistory()) -> RemovalHistory:  # frozen
    """The history after this removal; unchanged unless an image of a known size was removed."""
    size = outcome.verdict.size_bytes
    if outcome.result is not Result.REMOVED or outcome.verdict.kind is not Kind.IMAGE or not size:
        return before
    name = repository(outcome.verdict.name)
    known = {other: seen for other, seen in before.by_repository.items() if other != name}
    known[name] = (outcome.freed_bytes / size, outcome.freed_inodes / size)
    return RemovalHistory(
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


def choose(remove: Sequence[Verdict], history: RemovalHistory, need: Need, *, parallel: int = 1) -> OrderDecision:
    """The order of these images: least recently used first, unless that is too late.

    `parallel`: removals side by side, at least 1, which divide the time: the best case of the order by last use.
    """
    to_full = need.seconds_to_full
    by_last_use = seconds_needed(remove, history, need, parallel=parallel)
    # where all of them are not enough, all of them are removed: it is urgent only if the disk is full before the last
    ends = min(by_last_use, len(remove) * history.seconds_each / max(parallel, 1))
    return OrderDecision(need.missing > 0 and to_full < ends, need.inodes, to_full, by_last_use)


def seconds_needed(remove: Sequence[Verdict], history: RemovalHistory, need: Need, *, parallel: int = 1) -> float:
    """How long removals in this order take until enough is free, while the disk is still being filled; infinite if all
    of them are not enough."""
    each = history.seconds_each / max(parallel, 1)
    filled = max(need.fill_per_second, 0.0) * each
    missing, seconds = float(need.missing), 0.0
    for verdict in remove:
        if missing <= 0:
            break
        seconds += each
        missing -= history.expected_yield(verdict, inodes=need.inodes) - filled
    return seconds if missing <= 0 else NEVER


class ImageRemovalOrder:
    """A `RemovalOrder`: chooses the next image while a plan is executed, and learns from each removal.

    `decision` is the first choice of the largest yield, else the first choice of all; None before the first.
    """

    def __init__(self, history: RemovalHistory, parallel: int):
        self.history = history
        self.decision: OrderDecision | None = None
        self._parallel = parallel

    def start_pass(self, parallel: int) -> None:
        """Another pass starts: nothing is chosen yet, and the history is kept."""
        self.decision = None
        self._parallel = parallel

    @property
    def freed_per_promised_byte(self) -> float | None:
        """Bytes that were freed for each promised byte; None before the first removal."""
        return self.history.freed_per_promised_byte if self.history.known else None

    @property
    def seconds_each(self) -> float:
        """How long one removal takes."""
        return self.history.seconds_each

    def next_index(self, pending: Sequence[Verdict], need: Need | None) -> int:
        """The index of the image to remove next; `pending` is least recently used first, and not empty."""
        if need is None or (need.seconds_to_full == NEVER and self.decision is not None):
            return 0
        choice = choose(pending, self.history, need, parallel=need.max_in_flight(self._parallel))
        if self.decision is None or (choice.by_yield and not self.decision.by_yield):
            self.decision = choice
        if not choice.by_yield:
            return 0
        expected = self.history.expected_yield
        return max(range(len(pending)), key=lambda index: expected(pending[index], inodes=need.inodes))

    def expected_yield(self, verdict: Verdict, *, inodes: bool) -> float:
        """Bytes or inodes that removing this image is expected to free; 0 if its size is not known."""
        return self.history.expected_yield(verdict, inodes=inodes)

    def record_removal(self, outcome: Outcome) -> None:
        """One removal has ended."""
        self.history = record_removal(outcome, self.history)
