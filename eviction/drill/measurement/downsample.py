"""Fewer samples of the same run. The lowest sample of every filesystem is always kept."""

from __future__ import annotations

from collections.abc import Sequence

from eviction.drill.measurement.measurements import Sample


def downsample(samples: Sequence[Sample], limit: int) -> list[Sample]:
    """At most `limit` samples, in their order. `limit` must be at least two for each filesystem.

    The samples are divided into stretches of equal length. Of each stretch the samples with the lowest bytes and the
    lowest inodes of each filesystem are kept, so that the lowest point of every line is among them.
    """
    if len(samples) <= limit:
        return list(samples)
    lines = max(len(samples[0].available), 1) * 2
    step = -(-len(samples) // max(limit // lines, 1))
    kept: list[Sample] = []
    for start in range(0, len(samples), step):
        stretch = range(start, min(start + step, len(samples)))
        lowest = {
            min(stretch, key=lambda at: (samples[at].available[filesystem][unit], at))
            for filesystem in range(len(samples[0].available))
            for unit in (0, 1)
        }
        kept += [samples[at] for at in sorted(lowest)]
    return kept
