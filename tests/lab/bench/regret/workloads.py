"""Four nodes, as traces: which container starts when, what it needs and writes.

Everything follows from the seed. Rates and shares are assumptions, not measurements; each is a
number here. Disks have usual sizes, at which the kubelet alone reports DiskPressure every few days
(on the CI runner once a day).
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from tests.lab.bench.regret.catalogue import Catalogue, Repositories, log_normal, log_uniform, zipf

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
MIB, GIB = 1024**2, 1024**3
FOREVER = math.inf


class Start(NamedTuple):
    """A container starts: `at` in seconds, with the image of this number; it runs for `seconds`,
    and what it has written (`writes`, in bytes, right after its start) is gone when it ends."""

    at: float
    image: int
    seconds: float
    writes: int = 0


@dataclass(frozen=True)
class Trace:
    """`disk_bytes`: of the filesystem, of which `other_bytes` are neither images nor
    containers. `imported`: the images that are there from the beginning and that no registry
    has. `starts`: by time."""

    disk_bytes: int
    other_bytes: int
    catalogue: Catalogue
    starts: list[Start]
    imported: tuple[int, ...] = ()


def poisson(random: Random, mean_seconds: float, end: float, begin: float = 0.0) -> Iterator[float]:
    """Times at random, on average this far apart."""
    at = begin
    while (at := at + random.expovariate(1 / mean_seconds)) < end:
        yield at


def written(random: Random, median: float, ninetieth: float, most: float) -> int:
    """Bytes that a container writes: with these quantiles, and never more than `most`."""
    return int(min(log_normal(random, median, ninetieth), most))


def ci_fleet(seed: int, days: float = 14) -> Trace:
    """A CI runner with a disk of 200 GiB: a job a minute from 300 repositories by Zipf's law,
    most for minutes, with a new version of each every ten days; 15 % are first to run an image of
    one of 100 applications that was just built, which runs in the next two hours and never again;
    5 % run a base itself."""
    random, catalogue = Random(f"ci {seed}"), Catalogue()
    makes = Repositories(catalogue, random)
    versions, applications = ([makes.repository() for _ in range(count)] for count in (300, 100))
    current = [next(each) for each in versions]
    weights, starts = zipf(len(current)), []
    renewed = poisson(random, 10 * DAY / len(current), FOREVER)
    renewal = next(renewed)
    for at in poisson(random, MINUTE, days * DAY):
        while renewal < at:
            place = random.randrange(len(current))
            current[place] = next(versions[place])
            renewal = next(renewed)
        (place,) = random.choices(range(len(current)), cum_weights=weights)
        kind = random.random()
        seconds = log_normal(random, 4 * MINUTE, 20 * MINUTE)
        writes = written(random, 300 * MIB, 3 * GIB, 8 * GIB)
        if kind < 0.15:
            built = next(random.choice(applications))
            stages = [at] + [
                at + random.uniform(5 * MINUTE, 2 * HOUR) for _ in range(random.randint(0, 4))
            ]
            starts += [Start(when, built, seconds, writes) for when in stages]
        else:
            image = random.choice(makes.bases) if kind > 0.95 else current[place]
            starts.append(Start(at, image, seconds, writes))
    return Trace(200 * GIB, 12 * GIB, catalogue, sorted(starts))


def service_node(seed: int) -> Trace:
    """A node of 100 GiB with 60 services, each away for days now and then, rolled out between twice
    a day and once a month, one rollout in twelve rolled back within two days; 25 CronJobs that run
    between each quarter of an hour and once a day, with a new version each month; and a debugging
    image every other day."""
    random, catalogue, end = Random(f"service {seed}"), Catalogue(), 90 * DAY
    makes = Repositories(catalogue, random)
    starts: list[Start] = []
    for _ in range(60):
        starts += _service(random, makes.repository(), end)
    for _ in range(25):
        versions, every = makes.repository(), log_uniform(random, 15 * MINUTE, DAY)
        image, renewal = next(versions), random.expovariate(1 / (30 * DAY))
        at = random.uniform(0, every)
        while at < end:
            if at > renewal:
                image, renewal = next(versions), at + random.expovariate(1 / (30 * DAY))
            starts.append(Start(at, image, 2 * MINUTE, written(random, 20 * MIB, GIB, 4 * GIB)))
            at += every
    for at in poisson(random, 2 * DAY, end):
        starts.append(Start(at, next(makes.repository()), HOUR))
    return Trace(100 * GIB, 15 * GIB, catalogue, sorted(starts))


def _service(random: Random, versions: Iterator[int], end: float) -> Iterator[Start]:
    """One service on this node: there and away, version by version."""
    every = log_uniform(random, DAY / 2, 30 * DAY)
    here, until = random.random() < 0.6, 0.0
    moves = [0.0, *poisson(random, 4 * DAY, end), end]
    rollouts = [(at, False) for at in poisson(random, every, end)]
    backs = [
        (at + random.uniform(10 * MINUTE, 2 * DAY), True)
        for at, _ in rollouts
        if random.random() < 1 / 12
    ]
    changes = list(heapq.merge(rollouts, sorted(backs)))
    before = image = next(versions)
    for begin, until in itertools.pairwise(moves):
        here = not here
        while changes and changes[0][0] < begin:
            before, image = image, before if changes.pop(0)[1] else next(versions)
        at = begin
        while at < until:
            after = min(changes[0][0] if changes else until, until)
            if here:
                writes = written(random, 50 * MIB, GIB, 4 * GIB)
                yield Start(at, image, after - at + MINUTE, writes)
            if after < until:
                before, image = image, before if changes.pop(0)[1] else next(versions)
            at = after


def ml_node(seed: int) -> Trace:
    """A GPU node of 500 GiB: 40 jobs a day from 30 models of 5 to 40 GB by Zipf's law, in images on
    two frameworks of some 8 GB. Every two weeks a model has a new version; half of the models are a
    layer below the code, and stay."""
    random, catalogue = Random(f"ml {seed}"), Catalogue()
    frameworks = [
        [catalogue.layer(size * 1e9) for size in (0.1, 1.5, random.uniform(4, 8))] for _ in range(2)
    ]
    weights, kept, models = zipf(30, 0.9), [], []
    repositories = [catalogue.repository() for _ in range(30)]
    for number in range(30):
        model = log_uniform(random, 5e9, 40e9)
        kept.append([catalogue.layer(model)] if number % 2 else [])
        models.append((random.choice(frameworks), [] if number % 2 else [model]))

    def version(number: int) -> int:
        framework, renewed = models[number]
        code = [catalogue.layer(size) for size in (*renewed, random.uniform(50, 400) * MIB)]
        return catalogue.image((*framework, *kept[number], *code), repositories[number])

    current, starts = [version(number) for number in range(30)], []
    for at in poisson(random, DAY / 40, 90 * DAY):
        for number in range(30):
            if random.random() < 1 / (14 * 40):
                current[number] = version(number)
        (number,) = random.choices(range(30), cum_weights=weights)
        writes = written(random, 2 * GIB, 20 * GIB, 60 * GIB)
        starts.append(Start(at, current[number], log_normal(random, HOUR / 2, 3 * HOUR), writes))
    return Trace(500 * GIB, 30 * GIB, catalogue, starts)


def edge_node(seed: int) -> Trace:
    """A gateway of 64 GiB: 15 side-loaded images, half of which run once a day to once a
    quarter and the others in reserve; 12 pulled applications, half of them always there and
    half twice a day, with an update every two weeks; and recordings of up to 8 GiB that stay
    until they are uploaded."""
    random, catalogue, end = Random(f"edge {seed}"), Catalogue(), 180 * DAY
    makes = Repositories(catalogue, random)
    starts: list[Start] = []
    imported = []
    for _ in range(15):
        own = [random.uniform(50, 400) * MIB, random.uniform(1, 40) * MIB]
        layers = catalogue.images[next(makes.repository(own))].layers
        image = catalogue.image(layers, pulled=False)
        imported.append(image)
        every = log_uniform(random, DAY, 90 * DAY)
        starts += [Start(at, image, 10 * MINUTE, 20 * MIB) for at in poisson(random, every, end)]
    for _ in range(12):
        versions = makes.repository()
        image, updates = next(versions), [*poisson(random, 14 * DAY, end), end]
        begin, runs_always = 0.0, random.random() < 0.5
        for until in updates:
            if runs_always:
                starts.append(Start(begin, image, until - begin + MINUTE, 200 * MIB))
            else:
                starts += [
                    Start(at, image, HOUR, 200 * MIB)
                    for at in poisson(random, DAY / 2, until, begin)
                ]
            image, begin = next(versions), until
    recorder = catalogue.image([catalogue.layer(200 * MIB)])
    for at in poisson(random, 6 * HOUR, end):
        seconds = log_normal(random, 3 * HOUR, 12 * HOUR)
        starts.append(Start(at, recorder, seconds, int(random.uniform(0.2, 8) * GIB)))
    return Trace(64 * GIB, 8 * GIB, catalogue, sorted(starts), tuple(imported))


WORKLOADS: dict[str, Callable[[int], Trace]] = {
    "ci": ci_fleet,
    "service": service_node,
    "ml": ml_node,
    "edge": edge_node,
}
