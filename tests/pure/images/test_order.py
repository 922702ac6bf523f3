"""Which image goes first by `imageOrder: cost`, and what each removal
frees, beside a count by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclaim.cri.inventory import Inventory
from reclaim.functions.unused_images import UnusedImages
from reclaim.images.order import Candidate, by_cost, freed_along
from reclaim.images.plan import ImageGCPolicy, plan_image_gc
from reclaim.images.records import ImageRecords
from reclaim.types import ImageOrder, ImageRecord, Layers, Listing, Verdict
from tests.pure.contexts import context_of
from tests.pure.memory_runtime import MemoryPods, MemoryRuntime
from tests.pure.values import GIB, MIB, SteppedClock, container, image

DAY = 86400.0
SIZES = {
    f"layer{number}": size * 1000 for number, size in enumerate((1, 3, 9, 27, 81, 243, 729, 2187))
}
LAYERS = st.sets(st.sampled_from(sorted(SIZES)))


@st.composite
def candidates(draw: st.DrawFn) -> tuple[Candidate, ...]:
    """Images over a few layers; some of whose layers nothing is known."""

    def one(number: int) -> Candidate:
        unused, own = draw(st.floats(0.0, 1e7)), draw(st.none() | LAYERS)
        return Candidate(
            f"image{number}",
            draw(st.integers(0, 10**9)),
            unused,
            draw(st.integers(0, 50)),
            draw(st.integers(0, 5)),
            None if own is None else {layer: SIZES[layer] for layer in own},
            draw(st.integers(0, 3)),
            unused + draw(st.floats(0.0, 1e7)),
        )

    return tuple(one(number) for number in range(draw(st.integers(0, 8))))


def bytes_freed(images: Sequence[Candidate], gone: Collection[str], held: Collection[str]) -> int:
    """What is free once these are gone: the layers that neither another
    image nor anything else holds.
    """
    left = {
        layer for image in images if image.id not in gone for layer in image.layers or ()
    }.union(held)
    layers = {layer for image in images if image.id in gone for layer in image.layers or ()} - left
    whole = sum(image.size_bytes for image in images if image.id in gone and image.layers is None)
    return whole + sum(SIZES[layer] for layer in layers)


def ids(ranked: Sequence[Candidate]) -> list[str]:
    return [each.id for each in ranked]


@given(candidates(), LAYERS, st.integers(0, 10**9), st.randoms(use_true_random=False))
def test_each_image_has_one_place_whatever_order_they_are_given_in(
    images: tuple[Candidate, ...], held: set[str], need_bytes: int, random: Random
) -> None:
    """The list of a runtime has no order."""
    ranked = by_cost(images, held, need_bytes)
    assert sorted(ids(ranked)) == sorted(image.id for image in images)
    assert by_cost(random.sample(images, len(images)), held, need_bytes) == ranked


@given(candidates(), LAYERS, st.integers(0, 10**9))
def test_what_is_promised_is_what_no_image_that_remains_holds(
    images: tuple[Candidate, ...], held: set[str], need_bytes: int
) -> None:
    """After each removal, to the byte; in any order, that of the kubelet too."""
    for ranked in (by_cost(images, held, need_bytes), images):
        freed = freed_along(ranked, held)
        for count in range(len(ranked) + 1):
            assert sum(freed[:count]) == bytes_freed(images, ids(ranked)[:count], held)


@given(candidates(), LAYERS, st.integers(1, 10**9))
def test_what_goes_for_the_need_can_do_without_none_of_it(
    images: tuple[Candidate, ...], held: set[str], need_bytes: int
) -> None:
    """Of the fewest that are enough, all are needed."""
    order = ids(by_cost(images, held, need_bytes))
    enough = next(
        (n for n in range(len(order) + 1) if bytes_freed(images, order[:n], held) >= need_bytes),
        None,
    )
    for number in range(enough or 0):
        others = order[:number] + order[number + 1 : enough]
        assert bytes_freed(images, others, held) < need_bytes


@given(candidates(), LAYERS, st.integers(0, 7), st.integers(0, 5), st.integers(0, 5))
def test_an_image_that_was_used_or_came_back_more_often_goes_no_sooner(
    images: tuple[Candidate, ...], held: set[str], which: int, uses: int, returned: int
) -> None:
    """All else being equal."""
    if which < len(images):
        one = images[which]
        more = one._replace(uses=one.uses + uses, returned=one.returned + returned)
        others = [image for image in images if image is not one]
        assert ids(by_cost([*others, more], held)).index(one.id) >= ids(
            by_cost(images, held)
        ).index(one.id)


@given(candidates(), LAYERS, st.integers(0, 7), st.floats(0.0, 1.0))
def test_an_image_that_was_used_later_goes_no_sooner(
    images: tuple[Candidate, ...], held: set[str], which: int, part: float
) -> None:
    """All else being equal."""
    if which < len(images):
        one = images[which]
        later = one._replace(unused_seconds=one.unused_seconds * part)
        others = [image for image in images if image is not one]
        assert ids(by_cost([*others, later], held)).index(one.id) >= ids(
            by_cost(images, held)
        ).index(one.id)


def of(name: str, uses: int, unused: float, size_bytes: int = GIB, returned: int = 0) -> Candidate:
    """An image whose layers are not known."""
    return Candidate(name, size_bytes, unused, uses, returned)


@given(candidates(), LAYERS, st.integers(0, 7))
def test_an_image_with_a_newer_version_goes_no_later(
    images: tuple[Candidate, ...], held: set[str], which: int
) -> None:
    """All else being equal."""
    if which < len(images):
        one = images[which]
        others = [image for image in images if image is not one]
        older = one._replace(superseded=one.superseded + 1)
        assert ids(by_cost([*others, older], held)).index(one.id) <= ids(
            by_cost(images, held)
        ).index(one.id)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(
            of("once", 1, DAY),
            of("often", 60, 3 * DAY),
            id="once, but lately, before one used often",
        ),
        pytest.param(of("old", 5, 20 * DAY), of("new", 5, DAY), id="as often, but longer ago"),
        pytest.param(
            of("lost", 3, DAY),
            of("missed", 3, DAY, returned=2),
            id="never missed before one that came back",
        ),
        pytest.param(
            of("large", 3, DAY),
            of("small", 3, DAY, MIB),
            id="a GiB before a MiB: a pull costs more than bytes",
        ),
    ],
)
def test_which_of_two_goes_first(first: Candidate, second: Candidate) -> None:
    """In words."""
    assert ids(by_cost([second, first])) == [first.id, second.id]


def test_what_remains_of_an_image_counts() -> None:
    """Two images of 1 GiB each: one shares all but 10 MiB with what stays, so it goes
    last; it would free nothing.
    """
    own, shared = (
        Candidate("own", GIB, DAY, 1, 0, {"a": GIB}),
        Candidate("shared", GIB, DAY, 1, 0, {"b": GIB}),
    )
    ranked = by_cost([own, shared], {"b"})
    assert (ids(ranked), freed_along(ranked, {"b"})) == (["own", "shared"], [GIB, 0])


def test_the_last_of_a_family_frees_what_all_shared() -> None:
    """Three builds on one base that nothing else needs."""
    family = [Candidate(name, GIB, DAY, 1, 0, {"base": GIB, name: MIB}) for name in "abc"]
    assert freed_along(by_cost(family)) == [MIB, MIB, GIB + MIB]


def test_one_large_image_goes_in_place_of_small_ones_before_it() -> None:
    """20 GiB are needed; without the need the small ones would go first."""
    small, large = of("small", 1, 20 * DAY), of("large", 1, 10 * DAY, 30 * GIB)
    assert ids(by_cost([large, small])) == ["small", "large"]
    assert ids(by_cost([large, small], need_bytes=20 * GIB)) == ["large", "small"]


# ---- in a plan

OFTEN, ONCE, BASE = (
    image(number, f"registry.test/{number}:1", size_bytes=GIB) for number in (1, 2, 3)
)
LISTING = Listing(
    images=(OFTEN, ONCE, BASE),
    containers=(container("c", references=(BASE.id,)),),
    sandbox_image_references=frozenset({"registry.k8s.io/pause:3.9"}),
    resolved={"registry.k8s.io/pause:3.9": None},
)
RECORDS = {
    OFTEN.id: ImageRecord(0.0, 10 * DAY, uses=100),
    ONCE.id: ImageRecord(0.0, 11 * DAY, uses=1),
    BASE.id: ImageRecord(0.0, uses=1),
}
HOLD = Layers(
    {
        OFTEN.id: {"base": GIB, "1": 5 * MIB},
        ONCE.id: {"base": GIB, "2": 7 * MIB, "3": MIB},
        BASE.id: {"base": GIB},
    },
    frozenset({"3"}),
)
NOW = 12 * DAY


def goes(order: ImageOrder, layers: Layers = HOLD) -> tuple[Verdict, ...]:
    """What goes, in order."""
    return plan_image_gc(
        LISTING, RECORDS, ImageGCPolicy(order=order), now=NOW, layers=layers
    ).remove


def test_lru_stays_the_kubelets_order_and_promises_what_is_freed() -> None:
    """The base stays, as a container uses it, and something else holds a layer of another.

    Nothing is foretold.
    """
    assert [(each.id, each.frees_bytes) for each in goes(ImageOrder.LRU)] == [
        (OFTEN.id, 5 * MIB),
        (ONCE.id, 7 * MIB),
    ]
    assert [(each.promised_bytes, each.needed_in_seconds) for each in goes(ImageOrder.LRU)] == [
        (5 * MIB, None),
        (7 * MIB, None),
    ]


def test_by_cost_what_was_used_once_goes_first() -> None:
    """And the verdict says when it is expected to be needed again."""
    once, often = goes(ImageOrder.COST)
    assert (once.id, often.id) == (ONCE.id, OFTEN.id)
    assert once.needed_in_seconds is not None
    assert often.needed_in_seconds is not None
    assert often.needed_in_seconds < once.needed_in_seconds


def test_a_version_before_the_one_in_use_goes_first() -> None:
    """A rollback may still need it, but less likely than an image that was used at the same time
    and has no newer version; one in two repositories counts as the newest of one of them."""
    tags = {
        1: "registry.test/app:1",
        2: "registry.test/app:2",
        3: "registry.test/tool:1",
        4: "registry.test/app:0",
    }
    old, new, tool, named_twice = (
        image(number, tag, size_bytes=GIB) for number, tag in tags.items()
    )
    named_twice = named_twice._replace(repo_tags=("registry.test/app:0", "registry.test/other:1"))
    listing = replace(
        LISTING,
        images=(new, tool, named_twice, old),
        containers=(container("c", references=(new.id,)),),
    )
    records = {each.id: ImageRecord(0.0, 10 * DAY, uses=3) for each in (old, tool, named_twice)}
    records[new.id] = ImageRecord(0.0, NOW, uses=1)
    first, *others = plan_image_gc(
        listing, records, ImageGCPolicy(order=ImageOrder.COST), now=NOW + 1.0
    ).remove
    assert first.id == old.id
    assert {each.id for each in others} == {tool.id, named_twice.id}


@pytest.mark.parametrize("order", ImageOrder)
def test_without_layers_the_runtimes_sizes_are_promised(order: ImageOrder) -> None:
    """As on a runtime that tells nothing of them."""
    assert {(each.frees_bytes, each.promised_bytes) for each in goes(order, Layers())} == {
        (None, GIB)
    }


# ---- who learns the layers, and who uses them


def test_layers_are_learned_once_for_the_same_images_and_a_pass_does_not_ask() -> None:
    """What is not told in time is asked again; a plan uses what is known,
    in the order of the policy.
    """
    asked: list[float] = []
    answers = iter([None, HOLD, None])

    def read(left: Callable[[], float]) -> Layers | None:
        asked.append(left())
        return next(answers)

    clock = SteppedClock(NOW)
    runtime = MemoryRuntime(clock)
    runtime.hold(*LISTING.images, *LISTING.containers)
    inventory = Inventory(runtime, MemoryPods(), clock=clock, read_layers=read)
    policy = ImageGCPolicy(order=ImageOrder.COST, pod_start_seconds=0.0)
    context = context_of(runtime, clock, records=ImageRecords(seed=RECORDS), images=policy)
    stage = UnusedImages(context._replace(inventory=inventory))
    assert {each.frees_bytes for each in stage.plan().remove} == {None}
    for _ in range(3):
        inventory.learn_layers(LISTING.images)
    assert asked == [2.0] * 2
    assert [each.frees_bytes for each in stage.plan().remove] == [7 * MIB, 5 * MIB]
    inventory.learn_layers(LISTING.images[:1], lambda: False)
    assert asked == [2.0] * 2 + [0.0]
    assert inventory.layers == HOLD
