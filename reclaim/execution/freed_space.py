"""What removals have freed, against what the runtime had promised; and how long to wait for space that comes late.

A runtime's sizes are rough: containerd frees about twice its figure, and an image that shares its layers frees less.
So the first removals of a plan show what a promised byte is worth.

Space may come after the answer. Where the filesystem shows less than half of what was promised, it is worth waiting for
a moment before the next object; after `FRUITLESS_WAITS` waits in a row that brought nothing the runtime is taken to
free before it answers. Space that came early, with the answer of another removal (containerd frees for several in one
pass), is not waited for again.

An object without a size (a container) promises nothing: what comes with its answer, beyond the most that those in
flight can free, is what it has freed. Where such objects go beside others their space may also come with the answer of
one of those (containerd frees the layers of removed containers when it collects garbage for an image): what is more
than that one can have freed is theirs.

Covers: the arithmetic of one plan. Does not cover: the waiting itself (`executor`).
"""

from __future__ import annotations

from dataclasses import dataclass

LATE_QUIET_SECONDS = 0.02  # no rise for so long: nothing more is coming for now
LATE_LIMIT_SECONDS = 0.5  # at most so long between two removals
STILL_SECONDS = 0.25  # how long a disk that nobody writes to is watched
FRUITLESS_WAITS = 2
MOST_FREED_PER_PROMISED_BYTE = 4  # a compressed layer, and what was unpacked from it


@dataclass(slots=True)
class FreedRatio:
    """How many bytes a promised byte has freed so far in one plan."""

    promised: int = 0
    freed: int = 0

    @property
    def known(self) -> bool:
        """Whether anything was promised yet."""
        return self.promised > 0

    def record(self, promised: int, freed: int) -> None:
        """One removal has ended."""
        self.promised += promised
        self.freed += max(freed, 0)

    def of(self, promised: int) -> int:
        """Bytes that so many promised ones free; before the first removal as many as promised."""
        return promised * self.freed // self.promised if self.known else promised


@dataclass(frozen=True, slots=True)
class LateWait:
    """How to wait for late space: until nothing rose for `quiet_seconds`; with `while_still` only as long as nobody
    writes."""

    quiet_seconds: float
    while_still: bool


class FreedSpace:
    """What the removals of one execution have freed. All amounts in bytes."""

    def __init__(self) -> None:
        self.ratio = FreedRatio()
        self._freed_early = 0  # came with an earlier answer, and belongs to removals in flight
        self._waits_without_gain = 0
        self._promising = 0  # removals that promised something
        self._unsized = 0  # and those that did not
        self._freed_by_unsized = 0

    def each(self, *, promising: bool) -> float:
        """What one removal has freed, of those that promised something, or of the others; 0 before the first one."""
        if promising:
            return self.ratio.freed / self._promising if self._promising else 0.0
        return self._freed_by_unsized / self._unsized if self._unsized else 0.0

    def late_wait(self, promised: int, gained: int) -> LateWait | None:
        """How to wait after a removal that has gained less than it promised; None: do not wait."""
        if not promised or self._waits_without_gain >= FRUITLESS_WAITS:
            return None
        if (gained + self._freed_early) * 2 >= promised:
            return None
        if gained > 0:
            return LateWait(LATE_QUIET_SECONDS, while_still=False)
        # not a byte yet: a runtime that frees after its answer (containerd 2.0.0 to 2.0.4)
        return LateWait(STILL_SECONDS, while_still=True)

    def waited(self, missing: int, late: int) -> None:
        """A wait has ended: so many bytes were missing before it, and so many came."""
        self._waits_without_gain = self._waits_without_gain + 1 if late * 4 < missing else 0

    def record(self, promised: int, gained: int, promised_in_flight: int) -> int:
        """One removal has ended: the bytes that it has freed itself.

        What came beyond its share belongs to those in flight, up to what they will free; and what is more than it can
        have freed to the objects without a size that were removed before.
        """
        available = self._freed_early + max(gained, 0)
        if not promised:
            self._freed_early = min(available, promised_in_flight * MOST_FREED_PER_PROMISED_BYTE)
            self._unsized += 1
            self._freed_by_unsized += available - self._freed_early
            return available - self._freed_early
        self._freed_early = min(max(available - self.ratio.of(promised), 0), self.ratio.of(promised_in_flight))
        own = available - self._freed_early
        if self._unsized:
            most = promised * MOST_FREED_PER_PROMISED_BYTE
            self._freed_by_unsized += max(own - most, 0)
            own = min(own, most)
        self._promising += 1
        self.ratio.record(promised, own)
        return own
