"""Layers and images are those of the study that `tests.bench.regret.catalogue` names."""

from __future__ import annotations

import itertools
import statistics
from collections import Counter
from random import Random

from tests.bench.regret.catalogue import (
    LARGEST_LAYER,
    MB,
    Catalogue,
    Repositories,
    layer_count,
    layer_size,
    zipf,
)


def test_layers_have_the_studys_sizes() -> None:
    """Half below 4 MB, 90 % below 177 MB, 93 MB on average (167 TB in 1 792 609 layers)."""
    random = Random(1)
    sizes = sorted(layer_size(random) for _ in range(100_000))
    assert 3.5 * MB < statistics.median(sizes) < 4.5 * MB
    assert 150 * MB < sizes[len(sizes) * 9 // 10] < 200 * MB
    assert 80 * MB < statistics.fmean(sizes) < 106 * MB
    assert sizes[-1] <= LARGEST_LAYER


def test_images_have_the_studys_number_of_layers() -> None:
    """Half no more than 8, 90 % no more than 18."""
    random = Random(1)
    counts = sorted(layer_count(random) for _ in range(10_000))
    assert counts[5000] == 8
    assert 17 <= counts[9000] <= 19


def test_images_share_layers_as_the_studys_do() -> None:
    """Of the first versions of 300 repositories, about 90 % of the layers belong to one image, and
    without sharing all would take 1.8 times as much: the median of many catalogues, as single
    large layers decide one."""
    ratios, alone = [], []
    for seed in range(60):
        catalogue = Catalogue()
        makes = Repositories(catalogue, Random(seed))
        images = [catalogue.images[next(makes.repository())].layers for _ in range(300)]
        layers = list(itertools.chain.from_iterable(images))
        together = sum(catalogue.sizes[layer] for layer in layers)
        ratios.append(together / sum(catalogue.sizes[layer] for layer in set(layers)))
        counts = Counter(layers)
        alone.append(sum(count == 1 for count in counts.values()) / len(counts))
    assert 1.7 < statistics.median(ratios) < 1.9
    assert 0.88 < statistics.fmean(alone) < 0.96


def test_a_new_version_shares_what_is_below_the_instruction_that_changed() -> None:
    """The layers before it are the same, all others are new."""
    catalogue = Catalogue()
    versions = Repositories(catalogue, Random(1)).repository([10.0, 20.0, 30.0])
    for before, after in itertools.pairwise(itertools.islice(versions, 20)):
        old, new = catalogue.images[before].layers, catalogue.images[after].layers
        same = len(
            list(itertools.takewhile(lambda pair: pair[0] == pair[1], zip(old, new, strict=True)))
        )
        assert len(old) - 3 <= same < len(old)
        assert not set(old).intersection(new[same:])


def test_zipf_gives_each_rank_its_share() -> None:
    """1, 1/2, 1/3, cumulated."""
    assert zipf(3) == [1, 1.5, 1.5 + 1 / 3]
