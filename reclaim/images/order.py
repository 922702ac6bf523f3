"""`imageOrder: cost`: images whose removal is expected to cost the least for each
byte that it frees go first.

**The model** is GreedyDual-Size-Frequency (L. Cherkasova, Improving WWW Proxies Performance with
Greedy-Dual-Size-Frequency Caching Policy, HPL-98-69R1, 1998), an instance of Landlord (N. Young,
On-Line File Caching, SODA 1998; Algorithmica 33, 2002): each object has a credit, which its use
renews: what it costs to bring it again, times how often it was used. What has the least credit for
each of its bytes goes, and whenever something goes, the credit of all others falls by as much. What
is one growing number there is the time without use here, which outlives a restart: an image is
expected to be needed again after as long as it took from one need to the next, and the later the
longer it was not; and much later if images of its repository, newer versions as a rule, have been
used since. The weights below are from simulations (`tests/lab/bench/regret`).

**Layers.** A removal frees only layers that no other image holds, and a pull brings only those that
are missing. So the bytes are counted by layer where they are known. Layers of images that stay
count for nothing, and those that several images hold count for each with its share; but only the
last of them to go frees them.

**The need.** Of what goes first, whatever the need can do without goes later, the most costly
first: one large image may make room enough without the small ones that would go before it.

Covers: the order, and what each removal frees. Does not cover: which images may go (`plan`); where
the layers are known from (`reclaim.functions.containerd_garbage`, `storage`).
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

PULL_BYTES = 4 * 1024**2
"""What a pull costs beyond its bytes, in bytes: asking the registry, and a pod that waits."""

PRIOR_SECONDS = 86400.0
PRIOR_NEEDS = 0.5
"""What is assumed of every image before anything was seen: half a need in a day."""

UNUSED_WEIGHT = 0.3
"""How much the time without use delays the next need, for each need that was seen."""

SUPERSEDED_POWER = 4
"""Of two images, the one before the other version of it is expected this power of two later."""


class Candidate(NamedTuple):
    """An image that may go.

    `size_bytes`: as the runtime reports it. `unused_seconds`: since its last use, or since it was
    first detected. `uses`: spells of use that were seen. `returned`: how often it came back after a
    removal. `layers`: bytes on the disk by layer; None: not known, so its size counts.
    `superseded`: how many images of its repository that are on the node were used, or first
    detected, later. `counted_seconds`: since when uses are counted, before removals too.
    """

    id: str
    size_bytes: int
    unused_seconds: float
    uses: int
    returned: int
    layers: Mapping[str, int] | None = None
    superseded: int = 0
    counted_seconds: float = 0.0

    @property
    def needed_in_seconds(self) -> float:
        """How long until it is expected to be needed again. It came because it was needed."""
        needs = max(self.uses, 1 + self.returned)
        seen = (
            max(self.counted_seconds, self.unused_seconds)
            + UNUSED_WEIGHT * needs * self.unused_seconds
        )
        later = float((1 + self.superseded) ** SUPERSEDED_POWER)
        return (PRIOR_SECONDS + seen) / (PRIOR_NEEDS + needs) * later


class Holders:
    """How many images hold each layer. `held`: layers of images that stay."""

    def __init__(self, images: Iterable[Candidate], held: Collection[str]):
        self._layers = {
            image.id: {image.id: image.size_bytes}
            if image.layers is None
            else {layer: size for layer, size in image.layers.items() if layer not in held}
            for image in images
        }
        self._count = Counter(layer for own in self._layers.values() for layer in own)

    def share_of(self, image_id: str) -> float:
        """Its bytes, each divided by the number of images that hold it."""
        return sum(size / self._count[layer] for layer, size in self._layers[image_id].items())

    def remove(self, image_id: str) -> int:
        """The image goes. Returns the bytes that this frees."""
        self._count.subtract(self._layers[image_id].keys())
        return self._unheld(image_id)

    def restore(self, image_id: str) -> int:
        """The image stays after all. Returns the bytes that this takes."""
        takes = self._unheld(image_id)
        self._count.update(self._layers[image_id].keys())
        return takes

    def _unheld(self, image_id: str) -> int:
        return sum(
            size for layer, size in self._layers[image_id].items() if self._count[layer] == 0
        )


def freed_along(images: Sequence[Candidate], held: Collection[str]) -> list[int]:
    """The bytes that each image frees if they go in this order.

    `held`: layers of images that stay.
    """
    holders = Holders(images, held)
    return [holders.remove(image.id) for image in images]


def by_cost(images: Iterable[Candidate], held: Collection[str], need_bytes: int) -> list[Candidate]:
    """All of these images in the order in which they go, whatever order they are given in. `held`:
    layers of images that stay. `need_bytes`: how much has to be freed; 0: not known."""
    given = tuple(images)
    holders = Holders(given, held)
    order = sorted(
        given,
        key=lambda image: (
            (1 + PULL_BYTES / max(holders.share_of(image.id), 1.0)) / image.needed_in_seconds,
            -image.unused_seconds,
            image.id,
        ),
    )
    needed = 0
    spare = -need_bytes
    while spare < 0 and needed < len(order):
        spare += holders.remove(order[needed].id)
        needed += 1
    first = list[Candidate]()
    later = order[needed:]
    for image in reversed(order[:needed]):
        takes = holders.restore(image.id)
        if takes <= spare:
            spare -= takes
            later.insert(0, image)
        else:
            holders.remove(image.id)
            first.insert(0, image)
    return first + later
