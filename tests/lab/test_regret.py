"""The simulator of what removals cost: when the kubelet and a policy act, and what goes; that what it
calls ours is what ships; its bound, below which no order comes; that images share layers as those of
the study do that `tests.lab.bench.regret.catalogue` names; and that file and page say what it finds."""

from __future__ import annotations

import itertools
import json
import re
import statistics
from collections import Counter
from dataclasses import asdict
from operator import ge
from random import Random

import pytest

from reclaim.evidence.references import ImagesInUse
from reclaim.images.plan import ImageGCPolicy, plan_image_gc
from reclaim.types import Image, ImageOrder, ImageRecord, Layers, Listing
from tests.lab.bench.regret.bound import least_bytes_again
from tests.lab.bench.regret.catalogue import Catalogue, Repositories
from tests.lab.bench.regret.compare import FIRST_SEED, MEASURED, PAGE, SHOWN, table
from tests.lab.bench.regret.node import Node, Policy
from tests.lab.bench.regret.policies import POLICIES, ByCost, Reclaimd
from tests.lab.bench.regret.workloads import GIB, WORKLOADS, Start, Trace, ci_fleet
from tests.rows import rows

pytestmark = pytest.mark.house("tests/README.md", "tests/lab/bench", "reclaim/images")
LIBRARY = ("GDSF", "LHD")
PUBLISHED = json.loads(MEASURED.read_text())
TURNS = " ".join(f"{number * 1000}:{number % 2}" for number in range(100))


def trace(images: str, starts: str = "") -> Trace:
    """A node with a disk of 10 GiB, of which 8.5 are above the kubelet's mark. Images: their layers,
    each a letter and GiB; behind `!`: side-loaded. Starts: when, which image, for how many seconds
    (60), and how many GiB it writes; `turns`: a hundred times the first or the second image."""
    found, layers, imported = Catalogue(), dict[str, int](), list[int]()
    for number, image in enumerate(images.split()):
        of = image.removeprefix("!").split("+")
        for name in of:
            if name not in layers:
                layers[name] = found.layer(int(float(name[1:]) * GIB))
        found.image([layers[name] for name in of], pulled="!" not in image)
        imported += [number] * ("!" in image)
    made = list[Start]()
    for start in starts.replace("turns", TURNS).split():
        at, which, *rest = map(float, start.split(":"))
        seconds, writes = [*rest, *[60.0, 0.0][len(rest) :]]
        made.append(Start(at, int(which), seconds, int(writes * GIB)))
    return Trace(10 * GIB, 0, found, sorted(made), tuple(imported))


def replayed(images: str, starts: str, order: str, until: float | None = None) -> Node:
    """The node after all its starts, or at a time after them."""
    of = trace(images, starts)
    node = Node(of, POLICIES[order](of))
    node.run()
    if until is not None:
        node.advance(until)
    return node


# ---- the kubelet and the others


@rows("""
    images       | starts                                | order   | until | left    | figures                   | what
    x2 y2 z2 w3  | 0:0 600:1 1200:2 1800:3               | kubelet | 4000  | 3       | {pressures: 1, removed: 3} | the kubelet removes everything unused at its next look
    x2 y2 z2 w3  | 0:0:inf 1000:2:10 1900:1:1 1930:3:5   | kubelet | 1990  | 0 1 3   | {}                        | it keeps what is in use or younger than two minutes
    x1           | 0:0:inf:8                             | kubelet | 3600  | 0       | {evicted: 1, pressures: 1} | a pod is evicted only if no image is left
    x.4 y.4 z7.2 w.6 | 0:0:10 300:1:10 540.85:2:1 600.5:3:1 | kubelet | 700 | 2 3   | {pressures: 0}            | every five minutes from 85 % on images go down to 80 %
    x2 y2 z2 w1 v2 | 0:0 1000:1 2000:2 3000:3 4000:4     | lru     |       | 1 2 3 4 | {pressures: 0}            | ours stops as soon as 22 % are available
    x3 y3 z3     | 0:0 1000:1 2000:2 3000:0              | lru     |       | 0 2     | {again_bytes: 3_221_225_472, freed_bytes: 6_442_450_944, pulls: 4} | what has gone and is needed is pulled again
    x3 y3 z3     | 0:0 1000:0 2000:0 3000:0 10000:1 30000:2 | cost |       | 0 2     | {}                        | by cost it keeps what is used often
    !x3 y3 z3    | 0:1 1000:2                            | lru     |       | 0 2     | {lost: 0}                 | ours removes what was not pulled last
    !x3 y3 z3    | 0:1 1000:2                            | cost    |       | 0 2     | {lost: 0}                 | by cost, too
    !x3 y3 z3    | 0:1 1000:2                            | kubelet |       | 2       | {lost: 1}                 | the kubelet loses it
    !x3 y3 z3    | 0:1 1000:2 2000:0                     | kubelet |       | 0 2     | {lost: 1, missed: 1, again_bytes: 0} | one that is needed is imported by hand
    x1 y1 z1     | 0:0 1000:1 2000:2:inf                 | prune   | 86401 | 2       | {pressures: 0}            | the timer removes every unused image without need
    x1 y1 z6 w0  | 0:0 1000:1 2000:2 3000:3:1:.6         | docuum  |       | 1 2 3   | {}                        | docuum acts after the event and stops at its mark
    x1 x1+y1 z.1 w6.2 | 0:0 1000:2 2000:1 3000:3    | docuum  |       | 0 3     | {}                        | docuum counts the use of what is built on an image for both, and it goes before
    x2 y2 z2 w3  | 0:2 1000:1 2000:0 3000:3 4000:0 5000:1 | offline |      | 0 1 3   | {again_bytes: 0, removed: 1} | offline removes what is needed latest
""")
def test_when_who_removes_what(
    images: str, starts: str, order: str, until: float | None, left: str, figures: dict[str, int]
) -> None:
    """What is left of the images in the end, by their number."""
    node = replayed(images, starts, order, until)
    assert sorted(node.present) == [int(each) for each in left.split()]
    assert asdict(node.figures) | figures == asdict(node.figures)


# ---- ours


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("order", "ours"), [(ImageOrder.LRU, Reclaimd), (ImageOrder.COST, ByCost)])
def test_ours_is_the_order_of_the_plan(order: ImageOrder, ours: type[Reclaimd], seed: int) -> None:
    """A node after half a day, asked for 5 GiB: what its runtime would list, its
    records and layers, as a plan.
    """
    node = Node(ci_fleet(seed, days=0.5), Policy())
    node.run()
    catalogue, layers = node.trace.catalogue, ByCost()
    images, records = [], {}
    for number, each in node.present.items():
        tag = f"registry.example/repository-{catalogue.images[number].repository}:{number}"
        images.append(Image(str(number), (tag,), size_bytes=catalogue.bytes_of(number)))
        used = node.now if each.running else max(each.last_used, each.detected)
        records[str(number)] = ImageRecord(
            each.detected,
            used,
            uses=each.uses,
            returned=each.returned,
            counted_since=each.counted_since,
        )
    in_use = frozenset(str(number) for number, each in node.present.items() if each.running)
    plan = plan_image_gc(
        Listing(tuple(images)),
        records,
        ImageGCPolicy(order=order),
        now=node.now,
        usage=ImagesInUse(in_use, frozenset(), (), sandbox_image_known=True),
        layers=Layers({str(number): layers._of(node, number) for number in node.present}),
        need_bytes=5 * GIB,
    )
    planned = [int(verdict.id) for verdict in plan.remove]
    assert len(planned) > 20
    assert list(ours().order(node, node.unused(), 5 * GIB)) == planned


# ---- the bound


@rows("""
    images   | starts            | gib   | what
    x4 y4    | turns             | 0     | two that fit beside each other stay
    x6 y6    | turns             | 343   | of two that do not, 2.5 of 6 GiB can stay
    x6 y6    | turns 1e6:0       | 346.5 | quiet times lend nothing
    x3 y4 z0 | turns 0:2:4e5:1   | 0     | two that fit beside what is in use stay
    x4 y4 z2 | turns 0:2:4e5:1   | 245   | what is in use leaves less room
    !x6 y6   | turns             | 0     | what was side-loaded needs no room
    x6 y6 z0 | 0:0:1e5 1000:0 50000:1 55000:2 60000:1 | 3.5 | what runs longest decides how long a layer is in use
    x4       |                   | 0     | nothing is needed
""")
def test_little_bounds_are_exact(images: str, starts: str, gib: float) -> None:
    """What has to be pulled again. What runs all the while has written as much as its image has."""
    assert least_bytes_again(trace(images, starts)) / GIB == pytest.approx(gib, abs=0.01)


# ---- layers and images


def test_images_share_layers_as_the_studys_do() -> None:
    """Of the first versions of 300 repositories, about 90 % of the layers belong to one image, and
    without sharing all would take 1.8 times as much: the median of many catalogues, as single
    large layers decide one."""
    ratios, alone = [], []
    for seed in range(60):
        catalogue = Catalogue()
        makes = Repositories(catalogue, Random(seed))
        images = [catalogue.images[next(makes.repository())].layers for _ in range(300)]
        counts = Counter(itertools.chain.from_iterable(images))
        together = sum(catalogue.sizes[layer] for layer in counts.elements())
        ratios.append(together / sum(catalogue.sizes[layer] for layer in counts))
        alone.append(sum(count == 1 for count in counts.values()) / len(counts))
    assert 1.7 < statistics.median(ratios) < 1.9
    assert 0.88 < statistics.fmean(alone) < 0.96


# ---- what is published, which `python -m tests.lab.bench regret` makes


@pytest.mark.parametrize("workload", WORKLOADS)
def test_what_is_published_is_what_is_simulated(workload: str) -> None:
    """The first node of each, under every order that needs no library: to the byte, on every
    machine. No order is below the bound on any node; that of the last two is quick."""
    of = WORKLOADS[workload](FIRST_SEED)
    bounds = PUBLISHED["bounds"][workload]
    for row in PUBLISHED["rows"]:
        if row["workload"] == workload:
            again = [node["again_bytes"] for node in row["nodes"]]
            assert all(map(ge, again, bounds)), row["order"]
            if row["order"] not in LIBRARY:
                figures = Node(of, POLICIES[row["order"]](of)).run()
                assert asdict(figures) == row["nodes"][0], row["order"]
    if workload in ("service", "edge"):
        assert least_bytes_again(of) == bounds[0]


def test_the_page_shows_what_was_measured() -> None:
    """As a table."""
    (shown,) = re.findall(SHOWN, PAGE.read_text())
    assert shown == table(PUBLISHED)
