"""Plans side by side: what frees most goes first, what frees nothing gets every eighth turn, and no more goes than
alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclaim.disk_need import Need
from reclaim.execution.executor import Executor
from reclaim.execution.freed_space import MOST_FREED_PER_PROMISED_BYTE, FreedSpace
from reclaim.execution.plan_in_execution import ExecutionResult, Work
from reclaim.execution.side_by_side import ANOTHERS_TURN, Standing, next_plan
from reclaim.images.removal_order import ImageRemovalOrder, RemovalHistory
from reclaim.types import Reason, Result
from tests.pure.store import Site, Store, plan_of, reasons, results
from tests.pure.values import MIB

NOTHING_YET = Standing(True)
FULL_IN_A_SECOND = Need(missing=1000 * MIB, left=100 * MIB, fill_per_second=100.0 * MIB)


def choices(standings: list[Standing], count: int) -> list[int | None]:
    """The first so many choices."""
    return [next_plan(standings, started) for started in range(count)]


def test_of_equals_the_first_leads_and_every_eighth_is_the_others() -> None:
    """Seven of the first, one of the second, and so on."""
    assert choices([NOTHING_YET, NOTHING_YET], 16) == [*[0] * 7, 1, *[0] * 7, 1]


def test_who_has_freed_more_leads() -> None:
    """Dead containers of 100 MiB go before images of 10 MiB."""
    assert choices([Standing(True, 10.0), Standing(True, 100.0)], 8) == [*[1] * 7, 0]


def test_the_others_take_turns() -> None:
    """Of three plans two share every eighth removal."""
    assert choices([NOTHING_YET] * 3, 32)[7::8] == [1, 2, 1, 2]


def test_what_has_nothing_left_has_no_turn() -> None:
    """The last one goes on alone."""
    assert choices([Standing(False, 9.0), NOTHING_YET], 9) == [1] * 9
    assert next_plan([Standing(False)], 0) is None


@given(st.lists(st.builds(Standing, st.booleans(), st.floats(0, 1e12)), min_size=1, max_size=4), st.integers(0, 1000))
def test_a_plan_that_has_more_is_chosen_and_each_of_them_in_time(standings: list[Standing], started: int) -> None:
    """Never one that has nothing left; none waits for ever; and the best has seven of eight."""
    have_more = [index for index, standing in enumerate(standings) if standing.has_more]
    turns = [next_plan(standings, started + number) for number in range(ANOTHERS_TURN * len(standings))]
    expected: set[int | None] = {*have_more} if have_more else {None}
    assert set(turns) == expected
    if have_more:
        best = max(standings[index].freed_each for index in have_more)
        led = sum(1 for index in turns if index is not None and standings[index].freed_each == best)
        assert led >= (ANOTHERS_TURN - 1) * len(standings)


def test_what_an_object_without_a_size_has_freed_is_what_the_others_cannot_have() -> None:
    """A container ends while an image of 10 MiB is in flight, and 60 MiB have come: at most 40 are the image's."""
    freed = FreedSpace()
    assert freed.record(0, 60 * MIB, 10 * MIB) == 60 * MIB - MOST_FREED_PER_PROMISED_BYTE * 10 * MIB
    assert (freed.each(promising=False), freed.each(promising=True)) == (20 * MIB, 0.0)


def test_what_comes_with_an_image_and_cannot_be_its_own_is_the_containers() -> None:
    """Two containers freed nothing; then an image of 10 MiB frees 1 GiB: 984 MiB of it are theirs, and the next image
    is expected to free what the first one can have."""
    freed = FreedSpace()
    freed.record(0, 0, 0)
    freed.record(0, 0, 0)
    assert freed.record(10 * MIB, 1024 * MIB, 0) == 40 * MIB
    assert freed.each(promising=False) == 492 * MIB
    assert freed.ratio.of(10 * MIB) == 40 * MIB


def test_without_containers_all_that_comes_is_the_images() -> None:
    """However much it is: nothing else was removed."""
    freed = FreedSpace()
    assert freed.record(10 * MIB, 1024 * MIB, 0) == 1024 * MIB


def test_a_container_that_brings_nothing_is_not_waited_for() -> None:
    """It promised nothing; that others wrote meanwhile is no sign of late space."""
    assert FreedSpace().late_wait(0, -MIB) is None


class Row:
    """Images a, b, c … that promise their sizes, and containers A, B, C … that promise nothing."""

    def __init__(self, images: Mapping[str, int], containers: Mapping[str, int], wanted_mib: int, **options: bool):
        self.site = Site(0, wanted_mib, **options)
        self.images, self.containers = dict(images), dict(containers)
        self.store = Store(self.site.disk, self.site.clock, {**images, **containers})
        self.site.disk.need = FULL_IN_A_SECOND
        self.order = ImageRemovalOrder(RemovalHistory(), 1)

    def execute(self) -> tuple[ExecutionResult, ...]:
        """Both side by side, the images leading."""
        images = Work(plan_of(self.images), self.store, self.order)
        containers = Work(plan_of(self.containers, sized=False), self.store)
        return self.executor.execute_side_by_side([images, containers], self.site.disk.measure)

    @property
    def executor(self) -> Executor:
        """Of the site."""
        return self.site.executor


def of(letters: str, size_mib: int) -> dict[str, int]:
    """Objects of one size."""
    return dict.fromkeys(letters, size_mib * MIB)


def test_images_go_first_and_every_eighth_removal_is_a_container() -> None:
    """Nine images and many containers that free nothing: seven images, a container, two images, the containers."""
    row = Row(of("abcdefghi", 1), of("ABC", 0), 100)
    images, containers = row.execute()
    assert "".join(row.store.sent) == "abcdefgAhiBC"
    assert (set(results(images)), set(results(containers))) == (set("abcdefghi"), set("ABC"))


def test_containers_that_prove_to_hold_more_go_first_from_then_on() -> None:
    """Images of 1 MiB, containers of 100: after the first container all others go before the eighth image."""
    row = Row(of("abcdefghijkl", 1), of("ABCDE", 100), 1000)
    row.execute()
    assert "".join(row.store.sent) == "abcdefgABCDEhijkl"


def test_what_is_enough_stops_both() -> None:
    """Three images are enough."""
    row = Row(of("abcdefghi", 10), of("ABC", 0), 30)
    images, containers = row.execute()
    assert row.store.sent == list("abc")
    assert set(reasons(images).values()) == set(reasons(containers).values()) == {Reason.RELIEVED}
    assert (images.relieved, containers.relieved) == (True, True)


def test_without_the_leader_the_other_goes_on_alone() -> None:
    """No image may go."""
    row = Row({}, of("ABC", 1), 100)
    row.execute()
    assert "".join(row.store.sent) == "ABC"


def test_a_dry_run_takes_the_same_turns() -> None:
    """Nothing is sent, and what would be is in the same order."""
    row = Row(of("abcdefghi", 1), of("ABC", 0), 100, dry_run=True)
    row.execute()
    assert "".join(row.store.checked) == "abcdefgAhiBC"
    assert {verdict.id for verdict in row.executor.planned} == set("abcdefghiABC")
    assert row.store.sent == []


def test_a_stop_lets_the_removal_in_flight_end_and_keeps_the_rest_of_both() -> None:
    """As with one plan."""
    row = Row(of("abcdefghi", 1), of("ABC", 0), 100)
    row.store.on_remove = lambda name: row.site.stopping.set() if name == "A" else None
    images, containers = row.execute()
    assert "".join(row.store.sent) == "abcdefgA"
    assert results(containers) == {"A": Result.REMOVED}
    assert reasons(images) | reasons(containers) == dict.fromkeys("hiBC", Reason.STOPPING)


def test_what_containers_freed_teaches_the_images_nothing() -> None:
    """100 MiB of a container come with the next image of 1 MiB: the history keeps what that one can have freed."""
    row = Row(of("abcdefghi", 1), of("A", 0), 1000)
    row.store.on_remove = lambda name: row.site.disk.free(100 * MIB) if name == "h" else None
    row.execute()
    assert row.order.history.freed_per_promised_byte <= MOST_FREED_PER_PROMISED_BYTE
    assert row.site.disk.freed_bytes == 109 * MIB


@pytest.mark.parametrize("held_mib", [0, 1, 50])
@given(st.lists(st.integers(1, 20), max_size=24), st.integers(0, 24), st.integers(1, 300))
def test_no_more_goes_than_is_needed_and_no_more_images_than_alone(
    held_mib: int, sizes: list[int], containers: int, wanted_mib: int
) -> None:
    """Without the last removal it would not have been enough; images go in their order, and beside containers never
    more of them than without; of containers at most every eighth removal while images are left and free more."""
    images = {f"i{number}": size * MIB for number, size in enumerate(sizes)}
    dead = {f"c{number}": held_mib * MIB for number in range(containers)}
    row = Row(images, dead, wanted_mib)
    row.site.disk.need = replace(
        FULL_IN_A_SECOND, fill_per_second=2.0 * MIB
    )  # urgent, but time for the kubelet's order
    row.execute()
    sent = row.store.sent
    freed = [(images | dead)[name] for name in sent]
    assert len(set(sent)) == len(sent)
    assert sum(freed) >= wanted_mib * MIB or len(sent) == len(images | dead)
    assert sum(freed[:-1]) < wanted_mib * MIB
    alone = 0
    for size in images.values():
        if sum(list(images.values())[:alone]) < wanted_mib * MIB and size:
            alone += 1
    gone = [name for name in sent if name in images]
    assert gone == list(images)[: len(gone)]
    assert len(gone) <= alone
    if held_mib == 0 and len(gone) < len(images):
        assert len(sent) - len(gone) <= len(sent) // ANOTHERS_TURN
