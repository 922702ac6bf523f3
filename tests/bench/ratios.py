"""Ratios within one run: the times of each responder as multiples of the floor's."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from tests.bench.measure import Row

FLOOR = "the floor"
OTHERS = (
    "reclaimd polling",
    "reclaimd watching",
    "everything at once",
    "the kubelet's way",
    "a pruner each minute",
)


def ratios(rows: Sequence[Row]) -> list[Row]:
    """For each rate, each responder's medians in multiples of the floor's."""
    medians = {
        row.what: statistics.median(row.values) for row in rows if row.unit == "ms" and row.values
    }
    found = []
    for name, floor in medians.items():
        if f": {FLOOR}, " not in name or floor <= 0:
            continue
        for other in OTHERS:
            median = medians.get(name.replace(FLOOR, other))
            if median is not None:
                found.append(
                    Row(f"{name.replace(FLOOR, other)}, in times the floor", "x", [median / floor])
                )
    return found
