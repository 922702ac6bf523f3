"""A bound: what no order, with all knowledge of the future, can pull again less than.

FOO (D. Berger, N. Beckmann, M. Harchol-Balter, Practical Bounds on Optimal Caching with Variable
Object Sizes, https://arxiv.org/abs/1711.03709), for layers, as a linear program. Between two uses a
layer is kept, in whole or in part, or pulled again. What is kept takes at each moment no more than
the disk has above the kubelet's mark, without other data and what is in use. A node has to respect
more: images go as wholes. Times are those of the trace, without the seconds that a container waits
for its pull.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections import defaultdict
from operator import itemgetter

from tests.lab.bench.regret.node import KUBELET_MARK
from tests.lab.bench.regret.workloads import GIB, Trace

Uses = list[tuple[int, list[tuple[float, float]]]]
"""By layer: its bytes, and from when to when containers use it."""
MOMENTS = 4000
"""At so many starts of containers, evenly chosen, the disk is looked at: fewer make it a lower
bound, and a faster one."""


def least_bytes_again(trace: Trace) -> int:
    """Bytes that are pulled again in this trace at least, if the kubelet never sees its mark."""
    from scipy.optimize import linprog  # takes a second, which few tests have to
    from scipy.sparse import csr_array

    uses = _uses(trace)
    gaps: dict[tuple[float, float], float] = defaultdict(float)  # between uses, in GiB
    for size, spells in uses:
        for (_, begin), (end, _) in itertools.pairwise(spells):
            gaps[begin, end] += size / GIB
    if not gaps:
        return 0
    moments = _moments(trace)
    looks: list[int] = []
    held: list[int] = []
    sizes: list[float] = []
    for number, ((begin, end), gib) in enumerate(gaps.items()):
        seen = range(bisect_right(moments, begin), bisect_left(moments, end))
        looks += seen
        held += [number] * len(seen)
        sizes += [gib] * len(seen)
    found = linprog(  # the part of each that is kept, so that the most is
        [-gib for gib in gaps.values()],
        A_ub=csr_array((sizes, (looks, held)), shape=(len(moments), len(gaps))),
        b_ub=_room(trace, uses, moments),
        bounds=(0, 1),
        method="highs",
    )
    if not found.success:
        raise ArithmeticError(f"no bound: {found.message}")
    return round((sum(gaps.values()) + float(found.fun)) * GIB)


def _uses(trace: Trace) -> Uses:
    """Images that cannot be pulled need no room here, as they may be lost for nothing."""
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


def _moments(trace: Trace) -> list[float]:
    """Times of starts, in order."""
    times = sorted({start.at for start in trace.starts})
    count = min(MOMENTS, len(times))
    return [times[number * len(times) // count] for number in range(count)]


def _room(trace: Trace, uses: Uses, moments: list[float]) -> list[float]:
    """GiB for what is not in use, at each moment."""
    changes = [(at, size) for size, spells in uses for at, _ in spells]
    changes += [(until, -size) for size, spells in uses for _, until in spells]
    for start in trace.starts:
        changes += [(start.at, start.writes), (start.at + start.seconds, -start.writes)]
    changes.sort(key=itemgetter(0))
    times = [time for time, _ in changes]
    taken = [0.0, *itertools.accumulate(by for _, by in changes)]
    disk = trace.disk_bytes * (1 - KUBELET_MARK) - trace.other_bytes
    return [max(disk - taken[bisect_right(times, at)], 0.0) / GIB for at in moments]
