"""One node: its disk, its images by layers, its kubelet, and a policy that removes images.

The kubelet (by its defaults: `pkg/kubelet/eviction`, `pkg/kubelet/images`) looks every 10 s.
Below 15 % available it reports DiskPressure and removes every unused image at once; if that
is not enough, it evicts a pod, here the one that has written most. Every 5 minutes, from 85
% usage on, it removes the least recently used images down to 80 %. It is beside every
policy, and alone under `Alone`.

Pulls come one after another (`serializeImagePulls`) and, like what containers write, fill
the disk at `RATE`. A policy that acts in the middle of a fill does so without delay:
removals take milliseconds, and here orders are compared. A pull brings the layers that are
not on the disk; a removal frees those that no other image holds. Bytes are those on the
disk: what goes over the network is about a third (2.6 in the median of the study that
`catalogue` names), of every policy alike.

Does not model: the taint while DiskPressure is reported, pulls that fail,
garbage of interrupted pulls.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.lab.bench.regret.workloads import MIB, Start, Trace

RATE = 150 * MIB
"""Bytes a second that a pull or a container writes."""
MIN_AGE_SECONDS = 120.0
KUBELET_MARK, GC_TARGET = 0.15, 0.20
KUBELET_EVERY, GC_EVERY, GC_PHASE = 10.0, 300.0, 5.0
PRESSURE_SECONDS = 300.0
"""How long the kubelet reports DiskPressure after it is over: what begins sooner is the same."""
MARK, RELIEVED = 0.20, 0.22
"""Of reclaimd by default, in parts of the disk that are available:

5 % above the kubelet's, and 2 % above its own.
"""


@dataclass
class Figures:
    """What came of one trace under one policy. `pulled_bytes`: of layers new to the node, or
    imported by hand; `again_bytes`: of layers that were removed before. `pressures`: times of
    DiskPressure. `lost`: removals of images that cannot be pulled; `missed`: how often such an
    image was needed after that. `evicted`: pods."""

    starts: int = 0
    pulls: int = 0
    pulled_bytes: int = 0
    again_bytes: int = 0
    freed_bytes: int = 0
    removed: int = 0
    pressures: int = 0
    lost: int = 0
    missed: int = 0
    evicted: int = 0

    @property
    def again_per_byte(self) -> float:
        """Bytes pulled again for each byte freed."""
        return self.again_bytes / self.freed_bytes if self.freed_bytes else 0.0


@dataclass(slots=True)
class Record:
    """What is remembered of an image, also while it is gone. Times in seconds; `last_used`: when
    its last use ended; `counted_since`: since when uses are counted, before removals too."""

    detected: float = 0.0
    last_used: float = -math.inf
    uses: int = 0
    returned: int = 0
    counted_since: float = 0.0
    running: int = 0


class Policy:
    """Decides which images go. This one leaves that to the kubelet; others derive from it. Acts
    `acts_in_fills`: as soon as the disk is below `mark`; else after each event of the node
    (`acts_after_events`); `every_seconds`: by a timer, whatever the disk; 0: not. Acts until
    `relieved` is available (parts of the disk). One object serves one trace."""

    acts_in_fills = False
    acts_after_events = False
    every_seconds = 0.0
    mark = MARK
    relieved = RELIEVED

    def used(self, node: Node, image: int) -> None:
        """A container has started from the image, which is on the disk. The node has records, so
        most need remember nothing."""

    def order(self, node: Node, images: list[int], need_bytes: int) -> Iterable[int]:
        """The images, all of which may go, in the order in which they do; the kubelet's here. Is
        asked for the next one after the one before is gone, and no further than is needed."""
        return node.least_recently_used(images)


@dataclass
class Node:
    """A node that has run no container yet, and its images by number."""

    trace: Trace
    policy: Policy
    now: float = 0.0
    used: int = 0
    figures: Figures = field(default_factory=Figures)
    records: dict[int, Record] = field(default_factory=dict)
    present: dict[int, Record] = field(default_factory=dict)
    holding: set[int] = field(default_factory=set)
    """The images that are present or being pulled."""
    holders: dict[int, set[int]] = field(default_factory=dict)
    """By layer on the disk: the images that hold it."""
    _been: set[int] = field(default_factory=set)
    # when it ends, its number, image, bytes
    _pods: list[tuple[float, int, int, int]] = field(default_factory=list)
    _evicted: set[int] = field(default_factory=set)
    _pressure_until: float = -math.inf
    _futile_at: tuple[float, int] = (-1.0, 0)

    def __post_init__(self) -> None:
        disk, self.used = self.trace.disk_bytes, self.trace.other_bytes
        self.mark, self._goal, self._kubelet_mark, self._gc_goal = (
            disk - math.ceil(disk * part)
            for part in (self.policy.mark, self.policy.relieved, KUBELET_MARK, GC_TARGET)
        )
        self._next_timer = self.policy.every_seconds or math.inf
        for image in self.trace.imported:
            self.used += self._hold(image)
            self.present[image] = self.records.setdefault(image, Record())
        self.figures = Figures()

    def run(self) -> Figures:
        """Replays the whole trace."""
        for start in self.trace.starts:
            self.advance(start.at)
            self.start(start)
        return self.figures

    def unused(self, min_age_seconds: float = MIN_AGE_SECONDS) -> list[int]:
        """The images that may go: no container uses them, and they have been
        there for long enough.
        """
        latest = self.now - min_age_seconds
        return [
            image
            for image, each in self.present.items()
            if not each.running and each.detected <= latest
        ]

    def sole_holder(self, layer: int) -> set[int]:
        """The image that is the only one to hold this layer, if there is one."""
        holders = self.holders.get(layer, set())
        return holders if len(holders) == 1 else set()

    # ---- what happens on the node

    def start(self, start: Start) -> None:
        """A container starts, once its image is there."""
        self.figures.starts += 1
        record = self.present.get(start.image)
        if record is None:
            record = self._pull(start.image)
        if not record.running:
            record.uses += 1
        record.running += 1
        self.policy.used(self, start.image)
        heapq.heappush(
            self._pods, (self.now + start.seconds, self.figures.starts, start.image, start.writes)
        )
        self._fill(start.writes)
        if self.policy.acts_after_events:
            self._relieve()

    def advance(self, until: float) -> None:
        """Time passes: containers end, the kubelet looks, the timer comes."""
        while True:
            end = self._pods[0][0] if self._pods else math.inf
            look = self._next_look() if self.used > self._kubelet_mark else math.inf
            upcoming = min(end, look, self._next_timer)
            if upcoming > until:
                self.now = max(self.now, until)
                return
            self.now = max(self.now, upcoming)
            if upcoming == end:
                self._end()
            elif upcoming == look:
                self._kubelet_looks()
            else:
                self._next_timer += self.policy.every_seconds
                self._remove_all(self.policy.order(self, self.unused(0), 0))

    def remove(self, image: int) -> None:
        """An image goes, and the layers that only it holds."""
        del self.present[image]
        self.figures.removed += 1
        self.figures.lost += not self.trace.catalogue.images[image].pulled
        freed = 0
        for layer in self.trace.catalogue.images[image].layers:
            holders = self.holders[layer]
            holders.discard(image)
            if not holders:
                del self.holders[layer]
                freed += self.trace.catalogue.sizes[layer]
        self.holding.discard(image)
        self.used -= freed
        self.figures.freed_bytes += freed

    def _pull(self, image: int) -> Record:
        known = image in self.records
        record = self.records.setdefault(image, Record())
        missing = self._hold(image)
        if self.trace.catalogue.images[image].pulled:
            self.figures.pulls += 1
        else:
            self.figures.missed += 1
        self._fill(missing)
        record.detected, record.last_used = self.now, -math.inf
        if not record.uses:
            record.counted_since = self.now
        record.returned += known
        self.present[image] = record
        return record

    def _hold(self, image: int) -> int:
        """The image holds its layers from now on.

        Returns the bytes of those that were not on the disk.
        """
        missing = again = 0
        sizes, pulled = self.trace.catalogue.sizes, self.trace.catalogue.images[image].pulled
        for layer in self.trace.catalogue.images[image].layers:
            if layer not in self.holders:
                self.holders[layer] = set()
                missing += sizes[layer]
                again += sizes[layer] if pulled and layer in self._been else 0
                self._been.add(layer)
            self.holders[layer].add(image)
        self.holding.add(image)
        self.figures.again_bytes += again
        self.figures.pulled_bytes += missing - again
        return missing

    def _end(self) -> None:
        _, number, image, writes = heapq.heappop(self._pods)
        if number in self._evicted:
            self._evicted.discard(number)
            return
        self.used -= writes
        self._stops(image)
        if self.policy.acts_after_events:
            self._relieve()

    def _stops(self, image: int) -> None:
        record = self.records[image]
        record.running -= 1
        record.last_used = self.now

    # ---- how the disk fills, and who acts

    def _fill(self, size: int) -> None:
        """So many bytes are written. Whoever acts in the meantime, does."""
        while size > 0:
            step, then = size, None
            if self.policy.acts_in_fills and self.used + size > self.mark and not self._is_futile():
                step, then = max(min(size, self.mark - self.used + 1), 0), self._relieve
            if self.used + step > self._kubelet_mark:
                above = max(self._kubelet_mark - self.used, 0)
                look = self._next_look(self.now + above / RATE)
                until_look = math.ceil((look - self.now) * RATE)
                if until_look <= step:
                    step, then = until_look, self._kubelet_looks
            self.used += step
            self.now += step / RATE
            size -= step
            if then is not None:
                then()

    def _is_futile(self) -> bool:
        """Whether nothing that may go is left, since the last attempt a second ago or less."""
        return self.now - self._futile_at[0] <= 1 and len(self.present) == self._futile_at[1]

    def _relieve(self) -> None:
        """The policy acts, if the disk is below its mark."""
        if self.used <= self.mark:
            return
        for image in self.policy.order(self, self.unused(), self.used - self._goal):
            self.remove(image)
            if self.used <= self._goal:
                return
        self._futile_at = self.now, len(self.present)

    def _next_look(self, after: float | None = None) -> float:
        """When the kubelet looks next, for pressure or to collect garbage."""
        after = self.now if after is None else after
        collects = (math.floor((after - GC_PHASE) / GC_EVERY) + 1) * GC_EVERY + GC_PHASE
        return min((math.floor(after / KUBELET_EVERY) + 1) * KUBELET_EVERY, collects)

    def _kubelet_looks(self) -> None:
        if self.used <= self._kubelet_mark:
            return
        if round(self.now - GC_PHASE) % round(GC_EVERY) == 0:
            for image in self.least_recently_used(self.unused()):
                self.remove(image)
                if self.used <= self._gc_goal:
                    return
            return
        self.figures.pressures += self.now > self._pressure_until
        self._remove_all(self.least_recently_used(self.unused()))
        if self.used > self._kubelet_mark:
            self._evict()
        self._pressure_until = self.now + PRESSURE_SECONDS

    def _evict(self) -> None:
        there = [
            (writes, number, image)
            for _, number, image, writes in self._pods
            if number not in self._evicted
        ]
        if there:
            writes, number, image = max(there)
            self._evicted.add(number)
            self.figures.evicted += 1
            self.used -= writes
            self._stops(image)

    def _remove_all(self, images: Iterable[int]) -> None:
        for image in list(images):
            self.remove(image)

    def least_recently_used(self, images: list[int]) -> list[int]:
        """The kubelet's order: never used before all others, then by last
        use, then by first detection.
        """
        return sorted(
            images,
            key=lambda image: (self.present[image].last_used, self.present[image].detected, image),
        )
