"""What happens around the daemon, made from a seed before anything runs: a list that
can be cut and shortened.

Each entry says everything about itself, so that a run of fewer entries is a run like any other.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import yaml

from tests.simulation.machine import GIB, MIB

PATHS = ("/node", "/images", "/containers")
ODDS = yaml.safe_load(Path(__file__).with_name("odds.yaml").read_text(encoding="utf-8"))
RARE: dict[str, dict[str, Any]] = ODDS["mishaps"]
CHANGES: dict[str, dict[str, Any]] = ODDS["changes"]
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
    what: tuple[Any, ...] = ()

    def __str__(self) -> str:
        lasts = f" for {self.seconds:.3f} s" if self.seconds else ""
        return f"{self.at:10.3f} {self.kind}{lasts} {' '.join(map(str, self.what))}".rstrip()


@dataclass(frozen=True, slots=True)
class Node:
    """The node of a run, and how the daemon is configured at first."""

    layout: str
    capacity: int
    images: int
    fields: dict[str, object]
    others_at_start: float


def drawn(rng: Random, odds: Any) -> Any:
    """What a seed draws, as `odds.yaml` says."""
    match odds:
        case list():
            return rng.choice(odds)
        case {"chance": share}:
            return rng.random() < share
        case {"between": [first, end]}:
            return rng.randrange(first, end)
    return odds


def node_of(seed: int) -> Node:
    """What does not change in a run."""
    rng = Random(f"node {seed}")
    layout = rng.choice(("single", "single", "dedicated", "split"))
    fields = {name: drawn(rng, odds) for name, odds in ODDS["fields"].items()}
    if rng.random() < 0.3:
        fields |= ODDS["soft"]
    if Random(f"limits {seed}").random() < 0.3:  # only the guard keeps what the kubelet goes by
        fields["maximumDeadContainersPerContainer"] = 0
    capacity = rng.choice((40, 60, 100)) * GIB
    return Node(layout, capacity, rng.choice((20, 40, 60)), fields, rng.choice((0.3, 0.5, 0.6)))


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
    for kind, odds in RARE.items():
        an_hour = odds["an_hour"] * rng.choice(often.get(kind, (0.0, 1.0, 2.0, 4.0, 8.0)))
        if kind in favourites:
            an_hour = max(an_hour, FAVOURITES_AN_HOUR)
        if not an_hour:
            continue
        at = rng.expovariate(an_hour / 3600)
        while at < seconds:
            lasts = (
                drawn(rng, odds["seconds"]) * rng.uniform(0.5, 1.5) if "seconds" in odds else 0.0
            )
            what = tuple(drawn(rng, each) for each in odds.get("what", ()))
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
