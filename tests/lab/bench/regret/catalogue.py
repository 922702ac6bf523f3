"""Images that share layers as public ones do.

Sizes, number and sharing of layers follow N. Zhao et al., Large-Scale Analysis of the Docker Hub
Dataset, IEEE CLUSTER 2019 (https://doi.org/10.1109/CLUSTER.2019.8891000), a study of 355 319
images with 1 792 609 layers:

* Half of the layers are smaller than 4 MB, 90 % smaller than 177 MB (uncompressed; 167
  TB in all, so 93 MB on average): a log-normal distribution with these quantiles, cut
  off at 5 GB, has that average.
* Half of the images have no more than 8 layers, 90 % no more than 18: log-normal, too.
* About 90 % of the layers belong to one image, and without sharing all would take 1.8 times as
  much. Here images stand on few bases and families of them: 94 % and 1.8 for 300 repositories.

The study says nothing of versions. Here a new version of a repository has new layers from some
instruction of its Dockerfile on, as a build makes them; the layers before that one stay.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random

MB = 10**6
LAYER_MEDIAN, LAYER_90TH, LARGEST_LAYER = 4 * MB, 177 * MB, 5000 * MB
LAYERS_MEDIAN, LAYERS_90TH, MOST_LAYERS = 8, 18, 120
SHARED_PART = 0.5
"""Which part of an image's layers are its base's."""
BASES, FAMILIES = 12, 48
NINTH_DECILE = 1.2816  # of the standard normal distribution


def log_normal(random: Random, median: float, ninetieth: float) -> float:
    """A value of the log-normal distribution with these quantiles."""
    return median * math.exp(random.gauss(0, math.log(ninetieth / median) / NINTH_DECILE))


def log_uniform(random: Random, least: float, most: float) -> float:
    """A value between both, each power of ten as likely."""
    return math.exp(random.uniform(math.log(least), math.log(most)))


def zipf(count: int, exponent: float = 1.0) -> list[float]:
    """Cumulative weights of the ranks from 1, for `random.choices`."""
    return list(itertools.accumulate(rank**-exponent for rank in range(1, count + 1)))


@dataclass(frozen=True, slots=True)
class Image:
    """`layers`: from the base on, by their number. `repository`: by its number; its versions share
    it. `pulled`: if a registry has it; what was imported by hand cannot be pulled again."""

    layers: tuple[int, ...]
    repository: int
    pulled: bool = True


@dataclass
class Catalogue:
    """All layers and images of a trace, each by its number. `sizes`: of the layers, in bytes."""

    sizes: list[int] = field(default_factory=list)
    images: list[Image] = field(default_factory=list)
    repositories: int = 0

    def layer(self, size: float) -> int:
        """A new layer, of at least one byte."""
        self.sizes.append(max(int(size), 1))
        return len(self.sizes) - 1

    def repository(self) -> int:
        """A new repository."""
        self.repositories += 1
        return self.repositories

    def image(
        self, layers: Sequence[int], repository: int | None = None, *, pulled: bool = True
    ) -> int:
        """A new image, by default in a repository of its own."""
        self.images.append(
            Image(tuple(layers), self.repository() if repository is None else repository, pulled)
        )
        return len(self.images) - 1

    def bytes_of(self, image: int) -> int:
        """What the layers of an image take, shared ones included."""
        return sum(self.sizes[layer] for layer in self.images[image].layers)


def layer_size(random: Random) -> float:
    """A size in bytes, as the study found them."""
    while (size := log_normal(random, LAYER_MEDIAN, LAYER_90TH)) > LARGEST_LAYER:
        pass
    return size


def layer_count(random: Random) -> int:
    """How many layers an image has, as the study found it."""
    return min(max(round(log_normal(random, LAYERS_MEDIAN, LAYERS_90TH)), 2), MOST_LAYERS)


class Repositories:
    """Makes repositories on common bases, and versions of them."""

    def __init__(self, catalogue: Catalogue, random: Random):
        self._catalogue, self._random = catalogue, random
        self._bases = [
            self._new_layers(max(round(layer_count(random) * SHARED_PART), 1)) for _ in range(BASES)
        ]
        family = random.choices(self._bases, cum_weights=zipf(BASES), k=FAMILIES)
        self._families = [base + self._new_layers(random.randint(0, 2)) for base in family]
        self.bases = [catalogue.image(base) for base in self._bases]

    def repository(self, own: Sequence[float] = ()) -> Iterator[int]:
        """The versions of a new repository, each a new image, without end. `own`: the sizes of the
        layers above its base; as the study found them by default."""
        random, catalogue = self._random, self._catalogue
        (base,) = random.choices(self._families, cum_weights=zipf(FAMILIES, 0.5))
        repository = catalogue.repository()
        sizes = list(own) or [
            layer_size(random) for _ in range(max(layer_count(random) - len(base), 1))
        ]
        layers = [catalogue.layer(size) for size in sizes]
        while True:
            yield catalogue.image((*base, *layers), repository)
            changed = random.randrange(len(layers))
            layers[changed:] = [
                catalogue.layer(size * random.uniform(0.9, 1.1)) for size in sizes[changed:]
            ]

    def _new_layers(self, count: int) -> list[int]:
        return [self._catalogue.layer(layer_size(self._random)) for _ in range(count)]
