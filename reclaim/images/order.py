"""The order `imageOrder: cost`: images whose removal will cost the fewest bytes pulled again for each byte freed go
first.

**The model** is GreedyDual-Size-Frequency (L. Cherkasova, Improving WWW Proxies Performance with
Greedy-Dual-Size-Frequency Caching Policy, HPL-98-69R1, 1998), an instance of Landlord (N. Young, On-line file caching,
SODA 1998 and Algorithmica 33, 2002): each object has a credit of its cost by its frequency; room is made where credit
for each byte is lowest; and credit that is not renewed by use runs out. Those keep one number for each object and
lower all of them at each removal. A node starts and stops, and remembers times, so here the credit runs out with time
unused: an image that was used every `gap` and is unused for `unused` is expected back at a rate of
1 / (`gap` + `unused`), and one of few uses only perhaps.

**Layers.** A removal frees the layers that no other image holds, and a pull brings only those that are missing. So
both are counted by layers where the runtime tells them, anew after each image that goes before: the last holder of a
layer frees it.

Covers: the order, and what each removal frees. Does not cover: which images may go (`plan`), where layers are known
from (`reclaim.containerd`, `storage`).
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

OVERHEAD_BYTES = 4 * 1024**2
"""What each pull costs beyond its bytes: asking the registry, unpacking, a pod that waits."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """An image that may go.

    `size_bytes`: as the runtime reports it; counts where `layers`, the bytes on the disk by layer, are not known
    (None). `unused_seconds`: since the last use, or since it was first detected. `known_seconds`: since it was first
    detected. `uses`: spells of use seen. `returned`: how often it came back after a removal.
    """

    id: str
    size_bytes: int
    unused_seconds: float
    known_seconds: float
    uses: int = 0
    returned: int = 0
    layers: Mapping[str, int] | None = None

    @property
    def expected_per_second(self) -> float:
        """At what rate it is expected to be needed again, above 0."""
        needed = self.uses + self.returned
        gap = max(self.known_seconds - self.unused_seconds, 0.0) / max(needed, 1)
        return (needed + 1) / (needed + 4) / max(gap + self.unused_seconds, 1.0)


class Ranked(NamedTuple):
    """An image in its place in the order. `frees_bytes`: what its removal frees once all before it are gone."""

    id: str
    frees_bytes: int


def by_cost(images: Iterable[Candidate], held: Collection[str] = (), need_bytes: int = 0) -> tuple[Ranked, ...]:
    """All images in the order in which they go. `held`: layers of images that stay. `need_bytes`: how much has to be
    freed, 0 if that is not known: images that it does not need go after all that it does."""
    by_id = {image.id: image for image in images}
    layers = {each.id: each.layers if each.layers is not None else {f"image {each.id}": each.size_bytes}
              for each in by_id.values()}
    holders = Counter(layer for own in layers.values() for layer in own)
    holders.update(held)
    order: list[Ranked] = []

    def entry(image_id: str) -> tuple[float, float, str, int]:
        frees = sum(size for layer, size in layers[image_id].items() if holders[layer] == 1)
        image = by_id[image_id]
        credit = image.expected_per_second * (frees + OVERHEAD_BYTES) / max(frees, 1)
        return credit, -image.unused_seconds, image_id, frees

    queue = [entry(image_id) for image_id in by_id]
    heapq.heapify(queue)
    left = dict(by_id)
    while queue:
        _, _, image_id, frees = heapq.heappop(queue)
        if image_id not in left:
            continue
        del left[image_id]
        order.append(Ranked(image_id, frees))
        freed = {layer for layer in layers[image_id] if holders[layer] == 2}
        holders.subtract(layers[image_id].keys())
        for each in left if freed else ():
            if not freed.isdisjoint(layers[each]):
                heapq.heappush(queue, entry(each))
    return tuple(order)
