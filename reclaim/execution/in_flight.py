"""Whether another removal may start while others are in flight.

* Removals run side by side up to a bound, but none is started that the ones in flight may make needless.
* The first one runs alone: it shows what a byte that the runtime promises is worth.
* An object without a size is expected to free what such objects have freed before it in the same execution.
* On a disk that is full within a minute the first does not run alone. A promised byte is then taken to free what it
  freed in earlier plans, or else `MOST_FREED_PER_PROMISED_BYTE`; and what is written while a removal goes on has to be
  freed as well.

Covers: what the removals in flight are expected to free. Does not cover: measuring whether that is enough (`executor`).
"""

from __future__ import annotations

from collections.abc import Collection

from reclaim.disk_need import Need
from reclaim.execution.freed_space import MOST_FREED_PER_PROMISED_BYTE, FreedRatio, FreedSpace
from reclaim.execution.order import RemovalOrder
from reclaim.types import Verdict


def promised_bytes(verdicts: Collection[Verdict]) -> int:
    """Bytes that the runtime promises for these; objects without a size promise none."""
    return sum(verdict.size_bytes or 0 for verdict in verdicts)


def expected_bytes(
    in_flight: Collection[Verdict], need: Need | None, freed: FreedSpace, order: RemovalOrder | None
) -> int | None:
    """Bytes that the removals in flight are expected to free, less what is written meanwhile; may be negative.

    Another removal may start if the disk is not relieved with so many bytes more. None: no other may start in any
    case. `freed`: what this execution has freed so far. `order`: what earlier plans have shown.
    """
    promised, ratio = promised_bytes(in_flight), freed.ratio
    if promised and not ratio.known and not (need is not None and need.full_within_a_minute):
        return None
    if need is not None and need.inodes and order is not None:
        expected_inodes = sum(order.expected_yield(verdict, inodes=True) for verdict in in_flight)
        if expected_inodes >= need.missing:
            return None
    # what shared layers kept back so far may come with the next: at least what was promised is on its way
    unsized = sum(1 for verdict in in_flight if not verdict.size_bytes) * freed.each(promising=False)
    return max(_freed_by(promised, ratio, order), promised) + int(unsized) - _written_meanwhile(need, order)


def _freed_by(promised: int, ratio: FreedRatio, order: RemovalOrder | None) -> int:
    """Bytes that what was promised will free: as in this plan, else as in earlier ones, else the most that can be."""
    if ratio.known:
        return ratio.of(promised)
    if order is not None and order.freed_per_promised_byte is not None:
        return int(promised * order.freed_per_promised_byte)
    return promised * MOST_FREED_PER_PROMISED_BYTE


def _written_meanwhile(need: Need | None, order: RemovalOrder | None) -> int:
    """Bytes that are written while one removal goes on, if the disk is full within a minute."""
    if need is None or not need.full_within_a_minute or order is None:
        return 0
    return int(need.fill_per_second * order.seconds_each)
