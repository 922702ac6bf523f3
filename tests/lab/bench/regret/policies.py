"""Who removes images, and in which order.

* `Policy`: the kubelet, without anybody else.
* `Prune`: `crictl rmi --prune` once a day: every image that no container uses.
* `Docuum`: the order of https://github.com/stepchowfun/docuum (`src/run.rs`, `vacuum`). Least
  recently used first; an image counts as used when an image that was built on it is; of two used at
  the same time, the one with more ancestors goes first. It acts when something happens to a
  container or image, removes one image at a time, and stops as soon as images are within its limit.
  Docker knows parents of images that were built on the node; here every image whose layers begin
  with those of another is built on it. Its limit is on images alone; here it is our mark, so that
  all protect the same part of the disk.
* `Reclaimd`: ours, by `imageOrder: lru` or `cost` (`reclaim.images.order`), from our mark until
  relieved. What the kubelet did not pull goes last.
* `Library`: GDSF and LHD of libCacheSim (https://github.com/1a1a11a/libCacheSim), at our mark.
  They know nothing of layers: an object is an image of its full size, and each start of a
  container is a request. Where they name an image that is in use or too young, the next one is
  asked for, and that one is put back as if it were new. Neither is made for bytes: both count
  hits, and so prefer small objects.
* `Offline`: knows the future, as MIN does (L. Belady, A study of replacement algorithms for a
  virtual-storage computer, IBM Systems Journal 5(2), 1966): that image goes first whose own layers
  are needed latest, by bytes. For pages of one size MIN is best; for files of many sizes the best
  is NP-hard to find, and images share layers. So this is no bound, but a heuristic to compare with.
  `bound.least_bytes_again` is a bound.
"""

from __future__ import annotations

import bisect
import heapq
import importlib
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from reclaim.images.order import Candidate, by_cost
from tests.lab.bench.regret.node import MARK, Node, Policy
from tests.lab.bench.regret.workloads import DAY, Trace

LIBRARY = "libcachesim"


class Prune(Policy):
    """`crictl rmi --prune` by a timer."""

    every_seconds = DAY


class Docuum(Policy):
    """docuum's order."""

    acts_after_events = True
    relieved = MARK

    def order(self, node: Node, images: list[int], need_bytes: int) -> Iterable[int]:
        """By last use of an image or of one that was built on it."""
        by_layers = {node.trace.catalogue.images[image].layers: image for image in node.present}
        last_used = {image: _used_at(node, image) for image in node.present}
        ancestors = dict.fromkeys(node.present, 0)
        for layers, image in by_layers.items():
            for count in range(1, len(layers)):
                if (parent := by_layers.get(layers[:count])) is not None:
                    last_used[parent] = max(last_used[parent], last_used[image])
                    ancestors[image] += 1
        return sorted(images, key=lambda image: (last_used[image], -ancestors[image], image))


class Reclaimd(Policy):
    """Ours, by last use."""

    acts_in_fills = True

    def order(self, node: Node, images: list[int], need_bytes: int) -> Iterable[int]:
        """What was pulled, then what was not."""
        pulled = [image for image in images if node.trace.catalogue.images[image].pulled]
        yield from self.of_one_kind(node, pulled, need_bytes)
        others = set(images).difference(pulled)
        if others:
            yield from self.of_one_kind(node, list(others), need_bytes)

    def of_one_kind(self, node: Node, images: list[int], need_bytes: int) -> Iterable[int]:
        """Least recently used first: `reclaim.images.plan` sorts as the kubelet does."""
        return node.least_recently_used(images)


@dataclass
class ByCost(Reclaimd):
    """Ours, by what a removal will cost."""

    _layers: dict[int, dict[str, int]] = field(default_factory=dict)

    def of_one_kind(self, node: Node, images: list[int], need_bytes: int) -> Iterable[int]:
        """The product's own order, of what its records and the runtime say."""
        may_go, catalogue = set(images), node.trace.catalogue
        # by repository: when its images on the node were used last
        used: dict[int, list[float]] = defaultdict(list)
        for image in node.present:
            bisect.insort(used[catalogue.images[image].repository], _used_at(node, image))
        candidates = [
            self._candidate(node, image, used[catalogue.images[image].repository])
            for image in images
        ]
        held = [
            layer
            for image in node.holding
            if image not in may_go
            for layer in self._of(node, image)
        ]
        return (int(ranked.id) for ranked in by_cost(candidates, held, need_bytes))

    def _candidate(self, node: Node, image: int, used: list[float]) -> Candidate:
        """As `reclaim.images.plan` makes it of records and names."""
        record, layers, at = node.present[image], self._of(node, image), _used_at(node, image)
        return Candidate(
            id=str(image),
            size_bytes=sum(layers.values()),
            unused_seconds=node.now - at,
            uses=record.uses,
            returned=record.returned,
            layers=layers,
            superseded=len(used) - bisect.bisect_right(used, at),
            counted_seconds=node.now - record.counted_since,
        )

    def _of(self, node: Node, image: int) -> dict[str, int]:
        """The layers of an image by their name. Made once: an image keeps its layers."""
        found = self._layers.get(image)
        if found is None:
            sizes = node.trace.catalogue.sizes
            found = {
                str(layer): sizes[layer] for layer in node.trace.catalogue.images[image].layers
            }
            self._layers[image] = found
        return found


def _used_at(node: Node, image: int) -> float:
    """When it was used last, or came if it never was."""
    record = node.present[image]
    return node.now if record.running else max(record.last_used, record.detected)


class Library(Policy):
    """An algorithm of libCacheSim. ImportError if that is not installed."""

    acts_in_fills = True

    def __init__(self, algorithm: str):
        self._library: Any = importlib.import_module(LIBRARY)
        self._cache = getattr(self._library, algorithm)(cache_size=1 << 60, hashpower=16)
        self._nothing = self._library.Request(obj_id=0, obj_size=1)

    def used(self, node: Node, image: int) -> None:
        """A request. Object numbers begin with 1."""
        size = node.trace.catalogue.bytes_of(image)
        self._cache.get(self._library.Request(obj_id=image + 1, obj_size=size))

    def order(self, node: Node, images: list[int], need_bytes: int) -> Iterator[int]:
        """What the algorithm evicts, without what may not go."""
        may_go, back = set(images), []
        try:
            while may_go and self._cache.get_n_obj():
                image = self._cache.to_evict(self._nothing).obj_id - 1
                if image in may_go:
                    self._cache.evict(self._nothing)  # the one that was named
                    may_go.discard(image)
                    yield image
                else:
                    self._cache.remove(image + 1)
                    back += [image] * (image in node.present)
        finally:
            for image in back:
                self.used(node, image)


class Offline(Policy):
    """Knows all starts to come."""

    acts_in_fills = True

    def __init__(self, trace: Trace):
        self._uses: dict[int, list[float]] = {}
        for start in trace.starts:
            for layer in trace.catalogue.images[start.image].layers:
                self._uses.setdefault(layer, []).append(start.at)

    def order(self, node: Node, images: list[int], need_bytes: int) -> Iterator[int]:
        """By what the layers that go will cost for each byte: those needed soon are
        dear, those never needed free.
        """
        values = {image: self._value(node, image) for image in images}
        queue = [(value, image) for image, value in values.items()]
        heapq.heapify(queue)
        while queue:
            value, image = heapq.heappop(queue)
            if values.get(image) != value:
                continue
            del values[image]
            layers = node.trace.catalogue.images[image].layers
            yield image
            for owner in {
                owner for layer in layers for owner in node.sole_holder(layer)
            }.intersection(values):
                values[owner] = self._value(node, owner)
                heapq.heappush(queue, (values[owner], owner))

    def _value(self, node: Node, image: int) -> float:
        catalogue, own, value = node.trace.catalogue, 0, 0.0
        for layer in catalogue.images[image].layers:
            if node.sole_holder(layer):
                own += catalogue.sizes[layer]
                value += catalogue.sizes[layer] / (self._next(layer, node.now) - node.now)
        return value / own if own and catalogue.images[image].pulled else math.inf

    def _next(self, layer: int, now: float) -> float:
        uses = self._uses.get(layer, [])
        place = bisect.bisect_right(uses, now)
        return uses[place] if place < len(uses) else math.inf


POLICIES: dict[str, Callable[[Trace], Policy]] = {
    "kubelet": lambda _: Policy(),
    "prune": lambda _: Prune(),
    "docuum": lambda _: Docuum(),
    "lru": lambda _: Reclaimd(),
    "cost": lambda _: ByCost(),
    "GDSF": lambda _: Library("GDSF"),
    "LHD": lambda _: Library("LHD"),
    "offline": Offline,
}
