"""What happens around the daemon, made from a seed before anything runs: a list that
can be cut and shortened.

Each entry says everything about itself, so that a run of fewer entries is a run like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from tests.simulation.machine import GIB, MIB
from tests.simulation.services import DONE_AND_ERROR, ERROR, NO_ANSWER, PRETENDS

PATHS = ("/node", "/images", "/containers")
FAVOURITES, FAVOURITES_AN_HOUR = 3, 40.0
BAD_SECONDS = 360.0


class Entry(NamedTuple):
    """One thing that happens, at so many seconds after the beginning. `seconds`: how long it
    lasts, if that matters. `number`: the seed of what it draws later, and what tells it from
    others. `what`: the rest."""

    at: float
    kind: str
    seconds: float = 0.0
    number: int = 0
    what: tuple[object, ...] = ()

    def __str__(self) -> str:
        lasts = f" for {self.seconds:.3f} s" if self.seconds else ""
        return f"{self.at:10.3f} {self.kind}{lasts} {' '.join(map(str, self.what))}".rstrip()


@dataclass(frozen=True, slots=True)
class Node:
    """The node of a run, and how the daemon is configured at first."""

    layout: str
    capacity: int
    images: int
    fields: tuple[tuple[str, object], ...]
    others_at_start: float
    dry_run: bool = False


def node_of(seed: int) -> Node:
    """What does not change in a run."""
    rng = Random(f"node {seed}")
    layout = rng.choice(("single", "single", "dedicated", "split"))
    fields: list[tuple[str, object]] = [
        ("parallelRemovals", rng.choice((1, 2, 2, 4))),
        ("removalPatience", rng.choice(("5s", "30s"))),
        ("extent", "enough"),
        ("imageMinimumGCAge", rng.choice(("0s", "30s", "2m"))),
        ("holdOffForNewPods", rng.choice(("0.5s", "1s"))),
        ("holdOffAfterStart", rng.choice(("0s", "1m"))),
        ("periodicGC", rng.random() < 0.3),
        ("pollFloor", "50ms"),
        ("pollCeiling", rng.choice(("10s", "30s"))),
        ("imageOrder", rng.choice(("lru", "cost"))),
        ("margin", rng.choice(("5%", "10%"))),
    ]
    if rng.random() < 0.3:
        fields += [
            ("evictionSoft", (("imagefs.available", "30%"), ("nodefs.available", "30%"))),
            ("evictionSoftGracePeriod", (("imagefs.available", "1m"), ("nodefs.available", "1m"))),
        ]
    if Random(f"limits {seed}").random() < 0.3:  # only the guard keeps what the kubelet goes by
        fields.append(("maximumDeadContainersPerContainer", 0))
    capacity = rng.choice((40, 60, 100)) * GIB
    return Node(
        layout, capacity, rng.choice((20, 40, 60)), tuple(fields), rng.choice((0.3, 0.5, 0.6))
    )


def _pods(rng: Random, seconds: float, images: int, most_written: int = 800 * MIB) -> list[Entry]:
    """Pods that begin: at a rate that is steady for so long, with a burst now and then."""
    a_minute = rng.choice((0.3, 1.0, 3.0, 10.0))
    found, at = list[Entry](), rng.expovariate(a_minute / 60)
    while at < seconds:
        for _ in range(rng.choice((1, 1, 1, 1, 5)) if a_minute < 10 else 1):
            containers = rng.choice((1, 1, 2, 3))
            tags = tuple(
                f"registry.example/app{n % 7}:{n}" for n in rng.choices(range(images), k=containers)
            )
            what: tuple[object, ...] = (
                tags,
                rng.randrange(containers),
                rng.choice((0, 0, 0, 1, 3)),
                rng.choice((0.05, 0.2, 0.2, 3.0)),
                rng.uniform(0.5, 15.0),
                rng.choice((0, 0, 40 * MIB, most_written)),
            )
            life = rng.choice(
                (rng.uniform(1.0, 30.0), rng.uniform(20.0, 300.0), rng.uniform(200.0, 2000.0))
            )
            life = min(life, 40 * 60 / a_minute)
            found.append(
                Entry(at + rng.uniform(0.0, 0.5), "pod", life, rng.randrange(1 << 30), what)
            )
        at += rng.expovariate(a_minute / 60)
    return found


Make = Callable[[Random], tuple[float, tuple[object, ...]]]
"""How long something lasts, and what it is."""


def _seconds(rng: Random, *choices: float) -> float:
    return rng.choice(choices) * rng.uniform(0.5, 1.5)


RARE: dict[str, tuple[float, Make]] = {
    # how often an hour, and what
    "fill": (
        4.0,
        lambda r: (
            _seconds(r, 5, 30, 120, 600),
            (r.choice(PATHS), r.choice((0.02, 0.1, 0.5, 1.5)) * GIB),
        ),
    ),
    "others free": (5.0, lambda r: (0.0, (r.choice(PATHS), r.choice((0.3, 0.7, 1.0))))),
    "slow": (2.0, lambda r: (_seconds(r, 10, 60, 300), (r.choice((5.0, 30.0, 300.0)),))),
    "errors": (1.5, lambda r: (_seconds(r, 5, 60, 300), (r.choice((0.05, 0.3, 1.0)),))),
    "away": (1.0, lambda r: (_seconds(r, 0.3, 3, 60), ())),
    "frozen": (0.7, lambda r: (_seconds(r, 3, 20, 120), ())),
    "removal hangs": (
        3.0,
        lambda r: (
            _seconds(r, 3, 20, 100, 700),
            (r.choice(("", ERROR, NO_ANSWER, DONE_AND_ERROR)),),
        ),
    ),
    "lie": (4.0, lambda r: (0.0, (r.choice((PRETENDS, ERROR, DONE_AND_ERROR, "no status")),))),
    "runtime restarts": (0.7, lambda r: (_seconds(r, 0.2, 2, 20), (r.randrange(3),))),
    "filesystem hangs": (1.0, lambda r: (_seconds(r, 1, 5, 60, 600), (r.choice(PATHS),))),
    "slow looks": (0.7, lambda r: (_seconds(r, 30, 300), (r.choice((0.01, 0.06, 1.1, 3.0)),))),
    "directories are others": (
        0.7,
        lambda r: (_seconds(r, 5, 60, 300), (r.choice(("empty", "missing")),)),
    ),
    "pause": (0.7, lambda r: (_seconds(r, 5, 60, 600), ())),
    "resume": (0.7, lambda r: (0.0, ())),
    "pause unknown": (0.3, lambda r: (_seconds(r, 5, 60), ())),
    "reload": (
        4.0,
        lambda r: (
            _seconds(r, 5, 60),
            (r.choice(("", "keep", "keep all", "dry run", "extent all", "order")),),
        ),
    ),
    "presses": (
        12.0,
        lambda r: (_seconds(r, 20, 60, 200), (r.choice(PATHS), r.choice((0.002, 0.01, 0.03)))),
    ),
    "use": (120.0, lambda r: (0.0, (r.random() < 0.8,))),
    "touch": (30.0, lambda r: (0.0, ())),
    "pod comes back": (8.0, lambda r: (0.0, ())),
    "said to have exited": (6.0, lambda r: (_seconds(r, 5, 60, 300), ())),
    "list hangs": (1.0, lambda r: (_seconds(r, 3, 30, 100, 300), ())),
    "look": (10.0, lambda r: (0.0, ())),
    "request": (1.5, lambda r: (0.0, (r.choice(("dry run", "enough", "now", "withdrawn")),))),
    "kill": (0.7, lambda r: (_seconds(r, 1, 10, 100), ())),
    "stop": (0.4, lambda r: (_seconds(r, 1, 10), ())),
    "clock is set": (0.3, lambda r: (0.0, (r.choice((-3600.0, -5.0, 5.0, 3600.0)),))),
    "mount": (0.5, lambda r: (_seconds(r, 20, 300, 1200), (r.choice(("/images", "/containers")),))),
    "preload": (2.0, lambda r: (0.0, (r.randrange(1000, 1008),))),
    "tag": (2.0, lambda r: (0.0, (r.randrange(60), r.randrange(60)))),
    "pin": (1.0, lambda r: (0.0, (r.randrange(60), r.random() < 0.5))),
    "image goes": (2.0, lambda r: (0.0, (r.randrange(60),))),
    "kubelet healthy": (2.0, lambda r: (0.0, ())),
    "frees late": (1.0, lambda r: (_seconds(r, 300, 1000), (r.choice((0.1, 0.5, 3.0)),))),
}


def timeline(seed: int, hours: float) -> list[Entry]:
    """Everything that happens, in order. The first minutes of each hour are bad; for the rest of it
    nothing happens but pods that begin and what the kubelet collects: others have left the disks,
    and what these pods use has room."""
    rng, seconds, images = Random(f"timeline {seed}"), hours * 3600, node_of(seed).images
    fit = node_of(seed).capacity // (2 * GIB)  # on half of it
    found, begins = list[Entry](), 0.0
    while begins < seconds:
        ends = min(begins + 3600, seconds)
        quiet = min(begins + BAD_SECONDS, ends)
        found += _later(_bad(rng, quiet - begins, images), begins)
        found += _later(_collects(rng, ends - begins), begins)
        if quiet < ends:
            found += (Entry(quiet, "others free", what=(path, 1.0)) for path in PATHS)
            found += _later(_pods(rng, ends - quiet, min(images, fit), most_written=0), quiet)
        begins = ends
    return sorted(found)


def _later(entries: list[Entry], seconds: float) -> Iterator[Entry]:
    return (entry._replace(at=entry.at + seconds) for entry in entries)


def _bad(rng: Random, seconds: float, images: int) -> list[Entry]:
    """They have a mood: which kinds happen often, which do not at all, and which
    three happen all the time.
    """
    often = {"fill": (2, 4), "others free": (2, 4), "presses": (0, 1, 4, 8)}
    found = _pods(rng, seconds, images)
    favourites = rng.sample(sorted(RARE), k=FAVOURITES)
    for kind, (an_hour, make) in RARE.items():
        an_hour *= rng.choice(often.get(kind, (0.0, 1.0, 2.0, 4.0, 8.0)))
        if kind in favourites:
            an_hour = max(an_hour, FAVOURITES_AN_HOUR)
        if not an_hour:
            continue
        at = rng.expovariate(an_hour / 3600)
        while at < seconds:
            lasts, what = make(rng)
            found.append(Entry(at, kind, lasts, rng.randrange(1 << 30), what))
            at += rng.expovariate(an_hour / 3600)
    return found


def _collects(rng: Random, seconds: float) -> list[Entry]:
    found, every = list[Entry](), rng.choice((60.0, 300.0, 300.0))
    at = every
    while at < seconds:
        found.append(Entry(at, "kubelet collects", 0.0, 0, (rng.choice((5, 1000)),)))
        at += every
    return found
