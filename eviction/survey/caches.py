"""Directories that declare themselves caches, whether a function removes from them or not.

Only names are looked at until a tag is found; what a cache takes is counted as all trees are
(`trees`). Everything has a time limit: what was not reached is not told.
"""

import os
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

from eviction.survey.trees import InTime, TimeLimit, Tree, count_trees
from reclaim.functions.caches import layers_of_containers, tagged_below
from reclaim.pod_logs.directories import opened
from signals.quantity import format_bytes

SMALLEST_CACHE_BYTES = 64 << 20  # less is not worth a word
MOST_CACHES = 5
USUAL_PLACES = ("/root", "/home", "/srv", "/opt", "/data", "/mnt", "/var/cache")
_POD = re.compile(r"/pods/([^/]+)/volumes/")


class Cache(NamedTuple):
    """A tagged directory. `at_least`: whether `bytes` is a lower bound."""

    path: str
    bytes: int
    device_id: int | None
    at_least: bool = False

    @property
    def sentence(self) -> str:
        """What it takes, and whose it is, for people."""
        pod = _POD.search(self.path)
        whose = f" of pod {pod[1]}" if pod else ""
        least = "at least " if self.at_least else ""
        return (
            f"{least}{format_bytes(self.bytes)} are in a cache{whose} that no function removes from"
            f" (CACHEDIR.TAG in {self.path})"
        )


def caches_below(
    places: Iterable[str], named: Sequence[str], limit: TimeLimit
) -> tuple[Cache, ...]:
    """The largest caches below these directories that lie below none of `named`, the largest
    first. Never raises OSError."""
    found: list[str] = []

    def look(in_time: InTime) -> None:
        layers = layers_of_containers()
        for place in places:
            with suppress(OSError), opened(place) as directory:
                for names in tagged_below(directory, layers):
                    if not in_time():
                        return
                    found.append(os.path.join(place, *map(os.fsdecode, names)))

    limit.run(look)
    roots = [root.rstrip("/") + "/" for root in named]
    paths = [path for path in found if not f"{path}/".startswith(tuple(roots))]
    usages = count_trees([Tree(path) for path in paths], limit)
    caches = [
        Cache(path, usage.total_bytes, usage.device_id, usage.partial)
        for path, usage in zip(paths, usages, strict=True)
        if usage.total_bytes >= SMALLEST_CACHE_BYTES
    ]
    return tuple(sorted(caches, key=lambda cache: -cache.bytes)[:MOST_CACHES])
