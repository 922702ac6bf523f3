"""Another removal starts only if those in flight are not expected to be enough."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pytest

from reclaim.disk_need import Need
from reclaim.execution.plan_in_execution import ExecutionResult
from reclaim.images.removal_order import ImageRemovalOrder, RemovalHistory
from reclaim.types import Reason, Result
from tests.pure.store import Site, plan_of, reasons, results
from tests.pure.values import MIB

URGENT = Need(missing=1000 * MIB, left=100 * MIB, fill_per_second=100.0 * MIB)  # full in a second


def images_of(site: Site) -> ExecutionResult:
    """The objects of a site, executed as images are: in an order that depends on the need."""
    order = ImageRemovalOrder(RemovalHistory(), site.executor.parallel)
    return site.executor.execute(plan_of(site.sizes), site.store, site.disk.measure, order)


@pytest.mark.parametrize("need", [None, URGENT], ids=["with time", "in a hurry"])
def test_what_promises_nothing_goes_side_by_side_from_the_start(need: Need | None) -> None:
    """Two containers are removed at the same time: each waits for the other."""
    site, together = Site(2, wanted_mib=20, parallel=2), threading.Barrier(2)
    site.disk.need = need

    def remove(_: str) -> None:
        together.wait(60.0)

    site.store.on_remove = remove
    assert results(site.execute(sized=False)) == dict.fromkeys("ab", Result.REMOVED)


@pytest.mark.parametrize("urgent", [False, True])
@pytest.mark.parametrize("wanted_mib", [40, 41])
def test_on_a_disk_that_is_almost_full_a_promised_byte_is_taken_to_free_four_until_one_removal_has_shown_it(
    wanted_mib: int, urgent: bool
) -> None:
    """Objects of 10 MiB, of which each might free 40: the second waits for the first where that would be enough, and
    always where there is time."""
    site, second = Site(6, wanted_mib=wanted_mib, parallel=2), threading.Event()
    site.disk.need = URGENT if urgent else None
    alone = not urgent or wanted_mib == 40

    def remove(name: str) -> None:
        if name == "b":
            second.set()
        if name == "a":
            assert second.wait(0.1 if alone else 10.0) is not alone

    site.store.on_remove = remove
    assert len(results(site.execute())) == 4 + (wanted_mib == 41)


@pytest.mark.parametrize(("seconds_each", "expected"), [(0.0, 2), (0.05, 3), (0.25, 4)])
def test_on_a_disk_that_is_almost_full_what_earlier_plans_freed_counts_and_what_is_written_meanwhile(
    seconds_each: float, expected: int
) -> None:
    """Objects of 10 MiB that freed 20 each before, and 40 MiB are wanted: two at once, and as many more as make up for
    100 MiB a second while one removal goes on."""
    site, together = Site(6, wanted_mib=40, parallel=2), threading.Barrier(expected)
    site.disk.need = URGENT
    in_flight: list[int] = []

    def remove(name: str) -> None:
        in_flight.append(len(site.executor.in_flight))
        if name in "abcd"[:expected]:
            together.wait(60.0)

    site.store.on_remove = remove
    before = RemovalHistory(10.0 * MIB, 20.0 * MIB, 64.0, 1.0, seconds_each, {"app": (2.0, 0.0)})
    site.executor.execute(plan_of(site.sizes), site.store, site.disk.measure, ImageRemovalOrder(before, 2))
    assert max(in_flight[:expected]) == expected


def test_where_inodes_are_short_the_first_is_removed_alone() -> None:
    """No runtime promises any: it shows what the images bring."""
    site = Site(3, wanted_mib=1000, parallel=2)
    site.disk.need = Need(missing=1000, left=1000, fill_per_second=0.0, inodes=True)
    in_flight: list[set[str]] = []
    site.store.on_remove = lambda _: in_flight.append(set(site.executor.in_flight))
    site.execute()
    assert in_flight[0] == {"a"}


def test_nothing_is_started_that_what_is_in_flight_may_make_needless() -> None:
    """20 MiB are wanted; with 10 freed and 10 in flight the third object waits, and then stays."""
    site = Site(4, wanted_mib=20, parallel=4)
    in_flight: list[int] = []
    site.store.on_remove = lambda _: in_flight.append(len(site.executor.in_flight))
    executed = site.execute()
    assert (results(executed), in_flight) == (dict.fromkeys("ab", Result.REMOVED), [1, 1])
    assert reasons(executed) == dict.fromkeys("cd", Reason.RELIEVED)


def test_on_a_disk_that_is_full_within_a_minute_eight_times_as_many_go_side_by_side() -> None:
    """Sixteen of 18 for a bound of 2, as even at four bytes for each that is promised all of them are not enough. The
    first one, which is not answered before that, holds the others up for a moment only."""
    site, together = Site(18, wanted_mib=1000, parallel=2), threading.Barrier(16)
    site.disk.need = URGENT

    def remove(name: str) -> None:
        if name <= "p":
            together.wait(60.0)

    site.store.on_remove = remove
    assert results(images_of(site)) == dict.fromkeys("abcdefghijklmnopqr", Result.REMOVED)


def test_on_a_disk_that_is_full_within_a_minute_the_first_goes_alone_and_the_others_with_its_answer() -> None:
    """Beside others each waits for the syncs of all, so none would free anything as early as one alone."""
    site, together = Site(18, wanted_mib=1000, parallel=2), threading.Barrier(16)
    site.disk.need = URGENT
    in_flight: dict[str, int] = {}

    def remove(name: str) -> None:
        in_flight[name] = len(site.executor.in_flight)
        if "a" < name <= "q":
            together.wait(60.0)

    site.store.on_remove = remove
    assert results(images_of(site)) == dict.fromkeys("abcdefghijklmnopqr", Result.REMOVED)
    assert in_flight["a"] == 1


def test_of_inodes_no_more_are_started_than_those_in_flight_are_expected_to_free() -> None:
    """An image brings 474 inodes, by what is known after the first, which goes alone and brings none; 1300 are missing:
    three go side by side, and the fourth is not started with them."""
    site, together = Site(8, wanted_mib=1000, parallel=8), threading.Barrier(3)
    site.disk.need = Need(missing=1300, left=10_000, fill_per_second=0.0, inodes=True)
    in_flight: list[set[str]] = []

    def remove(name: str) -> None:
        in_flight.append(set(site.executor.in_flight))
        if name in "bcd":
            together.wait(60.0)

    site.store.on_remove = remove
    known = RemovalHistory(promised_bytes=10.0 * MIB, freed_bytes=0.0, freed_inodes=1000.0)
    site.executor.execute(plan_of(site.sizes), site.store, site.disk.measure, ImageRemovalOrder(known, 8))
    assert in_flight[0] == {"a"}
    assert max(map(len, in_flight[:4])) == 3  # of those that bring less than was expected more are needed later


@pytest.mark.parametrize(
    ("seconds", "parallel", "expected"), [(59.0, 2, 16), (61.0, 2, 2), (59.0, 1, 1), (59.0, 8, 32), (59.0, 64, 64)]
)
def test_how_many_go_side_by_side_on_a_disk_that_is_almost_full(seconds: float, parallel: int, expected: int) -> None:
    """Eight times as many, up to 32; one stays one."""
    need = Need(missing=1, left=int(seconds * MIB), fill_per_second=MIB)
    assert need.max_in_flight(parallel) == expected
    assert replace(need, inodes=True).max_in_flight(parallel) == parallel


def test_what_brought_little_so_far_may_bring_all_that_it_promises() -> None:
    """Three of 10 MiB that shared all but 1 KiB are gone, and 15 MiB are missing: two more side by side, and no third,
    though by what was seen a hundred would not be enough."""
    site = Site(8, wanted_mib=15, parallel=8)
    site.disk.need = URGENT
    site.store.sizes |= dict.fromkeys("abc", 1024)
    site.store.on_remove = lambda name: time.sleep(0.5 if name > "c" else 0.0)
    assert set(results(site.execute())) <= set("abcde")


def test_never_more_than_the_bound_go_side_by_side() -> None:
    """With a bound of 3 and 20 objects."""
    site = Site(20, wanted_mib=10_000, parallel=3)
    in_flight: list[int] = []
    site.store.on_remove = lambda _: in_flight.append(len(site.executor.in_flight))
    assert len(site.execute(sized=False).outcomes) == 20
    assert max(in_flight) <= 3
