"""The simulator of nodes: what a start needs, what a removal frees, when the
kubelet and a policy act.
"""

from __future__ import annotations

import random

import pytest

from tests.bench.regret.catalogue import Catalogue
from tests.bench.regret.node import Figures, Node, Policy
from tests.bench.regret.policies import POLICIES, Alone, ByCost, Docuum, Offline, Prune, Reclaimd
from tests.bench.regret.workloads import (
    DAY,
    FOREVER,
    GIB,
    HOUR,
    MIB,
    WORKLOADS,
    Start,
    Trace,
    ci_fleet,
    edge_node,
)

DISK = 10 * GIB
LIBRARY = ("GDSF", "LHD")


def catalogue(
    *images: tuple[str, ...], sizes: dict[str, int], not_pulled: tuple[int, ...] = ()
) -> Catalogue:
    """Images by the names of their layers, numbered from 0. Sizes in GiB."""
    found = Catalogue()
    numbers = {name: found.layer(size * GIB) for name, size in sizes.items()}
    for number, layers in enumerate(images):
        found.image([numbers[name] for name in layers], pulled=number not in not_pulled)
    return found


def trace(found: Catalogue, *starts: Start, imported: tuple[int, ...] = ()) -> Trace:
    """A node with a disk of 10 GiB."""
    return Trace("a test's", DISK, 0, found, list(starts), imported)


def at_intervals(*images: int, every: float = 1000, seconds: float = 60) -> list[Start]:
    """One start after another, each for a minute."""
    return [Start(place * every, image, seconds) for place, image in enumerate(images)]


def singles(*sizes: int) -> Catalogue:
    """Images of one layer each, sizes in GiB."""
    names = {f"l{number}": size for number, size in enumerate(sizes)}
    return catalogue(*((name,) for name in names), sizes=names)


def replayed(of: Trace, policy: Policy) -> Node:
    """The node after the whole trace."""
    node = Node(of, policy)
    node.run()
    return node


# ---- bytes


def test_a_pull_brings_what_is_missing_and_a_removal_frees_what_nobody_else_holds() -> None:
    """Two images on one base: 1 + 2 GiB, then 3 more; the removal of the first frees its own 2."""
    found = catalogue(("base", "a"), ("base", "b"), sizes={"base": 1, "a": 2, "b": 3})
    node = replayed(trace(found, *at_intervals(0, 1)), Alone())
    assert node.used == node.figures.pulled_bytes == 6 * GIB
    assert (node.exclusive[0], node.exclusive[1]) == (2 * GIB, 3 * GIB)
    node.remove(0)
    assert (node.used, node.figures.freed_bytes, node.exclusive[1]) == (4 * GIB, 2 * GIB, 4 * GIB)


def test_only_layers_that_were_removed_are_pulled_again() -> None:
    """After the removal of a, its 2 GiB come again, and the base does not."""
    found = catalogue(("base", "a"), ("base", "b"), sizes={"base": 1, "a": 2, "b": 3})
    node = replayed(trace(found, *at_intervals(0, 1)), Alone())
    node.advance(5000)
    node.remove(0)
    node.start(Start(5000, 0, 60))
    assert (node.figures.again_bytes, node.figures.pulled_bytes, node.figures.pulls) == (
        2 * GIB,
        6 * GIB,
        3,
    )
    assert node.records[0].returned == 1


@pytest.mark.parametrize("order", [each for each in POLICIES if each not in LIBRARY])
def test_no_byte_is_lost_or_made(order: str) -> None:
    """Under each order, what was pulled is what was freed and what is there; each
    layer has those that hold it.
    """
    of = edge_node(3, days=40)
    node = Node(of, POLICIES[order](of))
    there = node.used
    node.run()
    sizes, figures = of.catalogue.sizes, node.figures
    writes = sum(writes for _, number, _, writes in node._pods if number not in node._evicted)
    held = {layer for image in node.present for layer in of.catalogue.images[image].layers}
    assert held == node.holders.keys()
    assert node.used == of.other_bytes + sum(sizes[layer] for layer in held) + writes
    assert (
        there + figures.pulled_bytes + figures.again_bytes - figures.freed_bytes + writes
        == node.used
    )
    for image in node.present:
        alone = [
            layer for layer in of.catalogue.images[image].layers if node.holders[layer] == {image}
        ]
        assert node.exclusive[image] == sum(sizes[layer] for layer in alone)


@pytest.mark.parametrize("workload", WORKLOADS)
def test_the_same_seed_is_the_same_trace_and_another_one_is_not(workload: str) -> None:
    """Nothing but the seed decides; starts are in their order."""
    first, second, other = (WORKLOADS[workload](seed) for seed in (1, 1, 2))
    assert first == second
    assert first != other
    assert first.starts == sorted(first.starts)


@pytest.mark.parametrize("order", ["kubelet", "docuum", "cost", "offline"])
def test_the_same_trace_has_the_same_figures(order: str) -> None:
    """Twice, each with an object of its own."""
    of = ci_fleet(1, days=1)
    assert Node(of, POLICIES[order](of)).run() == Node(of, POLICIES[order](of)).run()


# ---- the kubelet


def test_the_kubelet_removes_everything_unused_at_its_next_look() -> None:
    """9 of 10 GiB are used: one time of DiskPressure, and of three unused images none is left."""
    node = replayed(trace(singles(2, 2, 2, 3), *at_intervals(0, 1, 2, 3, every=600)), Alone())
    node.advance(4000)
    assert (set(node.present), node.figures.pressures, node.figures.removed) == ({3}, 1, 3)


def test_the_kubelet_keeps_what_is_in_use_or_younger_than_two_minutes() -> None:
    """0 runs all the time, and 1 has just come."""
    starts = [Start(0, 0, FOREVER), Start(1000, 2, 10), Start(1900, 1, 1), Start(1930, 3, 5)]
    node = replayed(trace(singles(2, 2, 2, 3), *starts), Alone())
    node.advance(1990)
    assert set(node.present) == {0, 1, 3}


def test_a_pod_is_evicted_only_if_no_image_is_left() -> None:
    """It writes 9 of 10 GiB; its image is in use. Then there is room."""
    node = replayed(trace(singles(1), Start(0, 0, FOREVER, 8 * GIB)), Alone())
    node.advance(HOUR)
    assert (node.figures.evicted, node.figures.pressures, node.used) == (1, 1, GIB)


def test_every_five_minutes_the_kubelet_collects_down_to_80_percent() -> None:
    """The disk comes to 86 % right before that: the least recently used image goes,
    and no pressure is reported.
    """
    starts = [
        Start(0, 0, 10),
        Start(300, 1, 10),
        Start(590 - 6 * GIB / (150 * MIB), 2, 1, 0),
        Start(600.5, 3, 1, 0),
    ]
    found = singles(1, 1, 6, 0)
    found.sizes[3] = 600 * MIB
    node = replayed(trace(found, *starts), Alone())
    node.advance(700)
    assert (set(node.present), node.figures.pressures) == ({1, 2, 3}, 0)


# ---- the others


def test_ours_stops_as_soon_as_22_percent_are_available() -> None:
    """2 + 2 + 2 + 1 GiB and 2 more: the one that was used least recently goes."""
    node = replayed(trace(singles(2, 2, 2, 1, 2), *at_intervals(0, 1, 2, 3, 4)), Reclaimd())
    assert (set(node.present), node.figures.pressures) == ({1, 2, 3, 4}, 0)


def test_ours_by_cost_keeps_what_is_used_often() -> None:
    """0 was used ten times, and 1 once, a little later: 1 goes."""
    starts = [*at_intervals(*[0] * 10, 1), Start(30_000, 2, 60)]
    node = replayed(trace(singles(3, 3, 3), *starts), ByCost())
    assert set(node.present) == {0, 2}


@pytest.mark.parametrize("policy", [Reclaimd(), ByCost()])
def test_ours_removes_what_was_not_pulled_last(policy: Policy) -> None:
    """Image 0 is side-loaded and was never used; the kubelet alone loses it."""
    found = catalogue(("a",), ("b",), ("c",), sizes={"a": 3, "b": 3, "c": 3}, not_pulled=(0,))
    of = trace(found, *at_intervals(1, 2), imported=(0,))
    assert set(replayed(of, policy).present) == {0, 2}
    assert replayed(of, Alone()).figures.lost == 1


def test_a_lost_image_that_is_needed_is_imported_by_hand() -> None:
    """It counts as lost once, as needed once, and not as pulled again."""
    found = catalogue(("a",), ("b",), ("c",), sizes={"a": 3, "b": 3, "c": 3}, not_pulled=(0,))
    node = replayed(trace(found, *at_intervals(1, 2, 0), imported=(0,)), Alone())
    assert (node.figures.lost, node.figures.missed, node.figures.again_bytes) == (1, 1, 0)


def test_the_timer_removes_every_unused_image_without_need() -> None:
    """A day after the beginning, on a disk that is half empty."""
    starts = [*at_intervals(0, 1), Start(2000, 2, FOREVER)]
    node = replayed(trace(singles(1, 1, 1), *starts), Prune())
    node.advance(DAY + 1)
    assert (set(node.present), node.figures.pressures) == ({2}, 0)


def test_docuum_counts_the_use_of_an_image_that_is_built_on_another_for_both() -> None:
    """1 is built on 0 and was used last, so 2 goes before both, and 1 before 0."""
    found = catalogue(("a",), ("a", "b"), ("c",), sizes={"a": 1, "b": 1, "c": 1})
    node = replayed(trace(found, *at_intervals(0, 2, 1)), Docuum())
    node.advance(9000)
    assert list(Docuum().order(node, [0, 1, 2], 0)) == [2, 1, 0]
    assert list(Alone().order(node, [0, 1, 2], 0)) == [0, 2, 1]


def test_docuum_acts_after_the_event_and_stops_at_its_mark() -> None:
    """With 9 of 10 GiB one image of 1 GiB is enough; the kubelet has seen the
    fill before that, or not.
    """
    node = replayed(
        trace(singles(1, 1, 6, 0), *at_intervals(0, 1, 2), Start(3000, 3, 1, 600 * MIB)), Docuum()
    )
    assert set(node.present) == {1, 2, 3}


def test_offline_removes_what_is_needed_latest() -> None:
    """0 is needed next and 1 later; 2 never again."""
    of = trace(singles(2, 2, 2, 3), *at_intervals(2, 1, 0, 3, 0, 1))
    node = replayed(of, Offline(of))
    assert (node.figures.again_bytes, node.figures.removed) == (0, 1)
    assert 2 not in node.present


@pytest.mark.parametrize("algorithm", LIBRARY)
def test_the_librarys_orders_name_each_image_that_may_go_once(algorithm: str) -> None:
    """Those in use stay known to it."""
    pytest.importorskip(
        "libcachesim", reason="libcachesim is not installed (pip install '.[test,bench]')"
    )
    of = trace(singles(1, 1, 1), *at_intervals(0, 1, 2))
    node = Node(of, POLICIES[algorithm](of))
    node.run()
    assert set(node.policy.order(node, [0, 2], 0)) == {0, 2}
    assert set(node.policy.order(node, [1], 0)) == {1}


def test_where_nothing_was_freed_nothing_was_pulled_again() -> None:
    """The ratio is 0."""
    assert Figures(again_bytes=1, freed_bytes=4).again_per_byte == 0.25
    assert Figures().again_per_byte == 0


def test_many_random_removals_keep_the_sums() -> None:
    """Whatever goes in whatever order."""
    chance, of = random.Random(7), ci_fleet(2, days=0.2)
    node = replayed(of, Alone())
    while node.present:
        node.remove(chance.choice(sorted(node.present)))
    assert not node.holders
    assert not node.exclusive
