"""How much is measured: the whole run, or a short one that shows that everything
runs from beginning to end.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from tests.bench.measure import MIB


@dataclass(frozen=True)
class Population:
    """What is on the node: unused images of `image_bytes` each (twice that on the disk), and
    containers that are never removed. `relief_bytes`: the minimum reclaim."""

    images: int
    image_bytes: int
    containers: int
    relief_bytes: int

    @property
    def name(self) -> str:
        """The name in the table."""
        return f"{self.images} images, {self.containers} containers"


@dataclass(frozen=True)
class Effort:
    """Numbers of runs, seconds and sizes; `dead`: containers that may be removed."""

    short: bool = False
    hooks: int = 12
    rest_seconds: float = 5.0
    stretches: int = 2
    memory_seconds: float = 10.0
    rates: tuple[int, ...] = (20, 100, 400)
    crossings: int = 6  # with and without inotify, at each rate
    first_bytes: int = 10
    spins: int = 2
    all_at_once: int = 4
    kubelets: tuple[int, ...] = (100, 400)  # the rate of each run
    pruners: tuple[int, ...] = (100,)
    pruner_seconds: float = 60.0
    small: Population = Population(40, 10 * MIB, 60, 64 * MIB)
    large: Population = Population(300, 5 * MIB, 500, 16 * MIB)
    dead: int = 500


SHORT = Effort(
    short=True,
    hooks=2,
    rest_seconds=1.0,
    stretches=1,
    memory_seconds=0.5,
    rates=(100,),
    crossings=1,
    first_bytes=1,
    spins=1,
    all_at_once=1,
    kubelets=(100,),
    pruners=(100,),
    pruner_seconds=4.0,
    small=Population(12, 10 * MIB, 6, 64 * MIB),
    large=Population(24, 5 * MIB, 20, 16 * MIB),
    dead=50,
)


def effort_of(environment: Mapping[str, str] = os.environ) -> Effort:
    """The whole run, unless `RECLAIMD_BENCH=short`."""
    return SHORT if environment.get("RECLAIMD_BENCH") == "short" else Effort()
