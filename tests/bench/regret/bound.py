"""A bound: what no order, with all knowledge of the future, can pull again less than.

PFOO-L (D. Berger, N. Beckmann, M. Harchol-Balter, Practical Bounds on Optimal Caching with Variable
Object Sizes, ACM SIGMETRICS 2018), for layers. Between two uses of a layer it is either kept, which
takes its bytes for so long, or pulled again. What all layers that are kept take, in byte-seconds,
is at most what the disk has above the kubelet's mark, without other data and without layers that
are in use. Of all choices that respect no more than this sum, the one that keeps the shortest gaps
pulls least. A node has to respect more: the disk at each moment, images as wholes.

The sum lends quiet times to busy ones. So the trace is also cut into windows of the same length,
each with a sum of its own and only with gaps inside it; the largest of these bounds counts. Times
are those of the trace, without the seconds that a container waits for its pull.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections import defaultdict
from collections.abc import Iterable
from operator import itemgetter

from tests.bench.regret.node import KUBELET_MARK
from tests.bench.regret.workloads import Trace

WINDOWS = (1, 2, 4, 8, 16, 32, 64)


def least_bytes_again(trace: Trace) -> int:
    """Bytes that are pulled again in this trace at least, if the kubelet never sees its mark."""
    periods = _needed(trace)
    end = max((start.at + start.seconds for start in trace.starts), default=0.0)
    steps = [(at, size) for size, spells in periods for at, _ in spells]
    steps += [(until, -size) for size, spells in periods for _, until in spells]
    for start in trace.starts:
        steps += [(start.at, start.writes), (start.at + start.seconds, -start.writes)]
    taken = _Area(steps)
    gaps = sorted(
        (after[0] - before[1], size, before[1], after[0])
        for size, spells in periods
        for before, after in itertools.pairwise(spells)
    )
    room = trace.disk_bytes * (1 - KUBELET_MARK) - trace.other_bytes
    return max(_in_windows(gaps, taken, room, end / count, count) for count in WINDOWS)


def _needed(trace: Trace) -> list[tuple[int, list[tuple[float, float]]]]:
    """By layer: its bytes, and when containers use it. Images that cannot be pulled need no room
    here, as they may be lost for nothing."""
    found: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for start in trace.starts:
        image = trace.catalogue.images[start.image]
        for layer in image.layers if image.pulled else ():
            spells = found[layer]
            if spells and start.at <= spells[-1][1]:
                spells[-1] = spells[-1][0], max(spells[-1][1], start.at + start.seconds)
            else:
                spells.append((start.at, start.at + start.seconds))
    return [(trace.catalogue.sizes[layer], spells) for layer, spells in found.items()]


def _in_windows(
    gaps: Iterable[tuple[float, int, float, float]],
    taken: _Area,
    room: float,
    length: float,
    count: int,
) -> int:
    """The bound with this many windows of this length, in seconds. `gaps`: shortest first."""
    left = [room * length - taken.between(at * length, (at + 1) * length) for at in range(count)]
    again = 0.0
    for seconds, size, begin, end in gaps:
        window = min(int(begin / length), count - 1)
        if end > (window + 1) * length * (1 + 1e-12):
            continue
        kept = min(max(left[window], 0.0) / (seconds * size), 1.0) if seconds else 1.0
        left[window] -= seconds * size * kept
        again += size * (1 - kept)
    return math.floor(again)


class _Area:
    """The integral of a sum of steps: bytes that are added at a time, in seconds."""

    def __init__(self, steps: Iterable[tuple[float, int]]):
        self._times, self._areas, self._levels = [0.0], [0.0], [0.0]
        for time, by in sorted(steps, key=itemgetter(0)):
            self._areas.append(self.until(time))
            self._times.append(time)
            self._levels.append(self._levels[-1] + by)

    def between(self, begin: float, end: float) -> float:
        """Byte-seconds."""
        return self.until(end) - self.until(begin)

    def until(self, time: float) -> float:
        """Byte-seconds from 0 on."""
        place = bisect.bisect_right(self._times, time) - 1
        return self._areas[place] + self._levels[place] * (time - self._times[place])
