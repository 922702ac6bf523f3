"""Fewer samples of the same run: what is left out is never a lowest point of any filesystem."""

from __future__ import annotations

from collections.abc import Sequence

from eviction.drill.measurement.measurements import Sample


def thinned(samples: Sequence[Sample], most: int) -> list[Sample]:
    """At most `most` samples, in their order.

    Of each stretch those stay that are the lowest of a filesystem, in bytes or in inodes, so that the lowest point of
    every line is among them. `most` is at least two for each filesystem.
    """
    if len(samples) <= most:
        return list(samples)
    lines = max(len(samples[0].rooms), 1) * 2
    step = -(-len(samples) // max(most // lines, 1))
    kept: list[Sample] = []
    for start in range(0, len(samples), step):
        stretch = range(start, min(start + step, len(samples)))
        lowest = {
            min(stretch, key=lambda at: (samples[at].rooms[place][unit], at))
            for place in range(len(samples[0].rooms))
            for unit in (0, 1)
        }
        kept += [samples[at] for at in sorted(lowest)]
    return kept
