"""What removals cost: a removal and the next appearance of the image, and what is not known."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eviction.cli.history import regret_lines
from eviction.cli.why import regret_line
from eviction.records.history import documents_of, pass_records
from eviction.records.json_shapes import Json, to_json
from eviction.records.regret import WINDOWS_SECONDS, Removal, images_of, regret_of, removals_of
from reclaim.types import Result
from tests.pure.records.documents import (
    daemon_record,
    outcome,
    parked_ended_record,
    pass_of,
    returned_record,
)
from tests.pure.values import MIB, image_id
from tests.schemas import assert_as_described

T = 1_800_000_000.0
HOUR, DAY = 3600.0, 86_400.0


def removed(
    at: float, *numbers: int, result: Result = Result.REMOVED, seconds: float = 0.0
) -> list[bytes]:
    """A pass that began then and removed these images; each freed 13 MiB and counted 24 MiB."""
    record = pass_of([outcome(number, result=result) for number in numbers], identity=f"pass-{at}")
    return pass_records(replace(record, started_wall=T + at), T + at + seconds)


def joined(
    *records: list[bytes] | bytes, gone: Iterable[int] = (), until: float | None = None
) -> list[Removal]:
    """The removals in these records. `until`: seconds after T."""
    flat = [each for one in records for each in ([one] if isinstance(one, bytes) else one)]
    known_until = None if until is None else T + until
    return removals_of(documents_of(flat), {image_id(number) for number in gone}, known_until)


def fates(removals: list[Removal]) -> list[str]:
    """For each window what is known of one removal."""
    within = regret_of(removals).within
    return [
        next(fate for fate, count in within[window].items() if count) for window in WINDOWS_SECONDS
    ]


def test_a_removed_image_is_joined_with_its_next_appearance() -> None:
    """Removed twice, came back after 20 min and after 2 h.

    What else the pass removed, and what failed, has not.
    """
    found = joined(
        removed(0, 1, 2),
        removed(1, 3, result=Result.FAILED),
        returned_record(1, T + 1200),
        removed(DAY, 1),
        returned_record(1, T + DAY + 2 * HOUR),
        returned_record(1, T + 2 * DAY),
    )
    assert [(each.id, each.at - T, each.came_back, each.returned_bytes) for each in found] == [
        (image_id(1), 0.0, 1200.0, 20 * MIB),
        (image_id(2), 0.0, None, 0),
        (image_id(1), DAY, 2 * HOUR, 20 * MIB),
    ]


def test_the_sums_are_of_all_and_of_each_image_the_worst_first() -> None:
    """Three removals freed 39 MiB, 20 MiB came back: 525 MiB for each GiB."""
    regret = regret_of(joined(removed(0, 1, 2), removed(5, 3), returned_record(2, T + 60)))
    sums = {
        "removed": 3,
        "returned": 1,
        "soonest_seconds": 60.0,
        "freed_bytes": 39 * MIB,
        "returned_bytes": 20 * MIB,
    }
    assert sums.items() <= to_json(regret).items()
    assert regret.returned_bytes_per_gib == round(20 / 39 * 2**30)
    assert [(each.name, each.returned) for each in regret.images] == [
        ("registry.example/app:2", 1),
        ("registry.example/app:1", 0),
        ("registry.example/app:3", 0),
    ]
    assert len(regret_of(joined(removed(0, 1, 2)), limit=1).images) == 1
    assert_as_described(to_json(regret))
    assert_as_described(to_json(regret_of([])))


def test_a_tag_that_came_back_is_joined_with_the_image_that_had_it() -> None:
    """The content is another; one that had nothing to do with it is nobody's."""
    (found,) = joined(
        removed(0, 1), returned_record(9, T + 50, gone=8), returned_record(9, T + 60, gone=1)
    )
    assert (found.id, found.came_back) == (image_id(1), 60.0)


def test_an_image_may_come_back_before_the_end_of_the_pass() -> None:
    """The appearance is recorded first."""
    (found,) = joined(returned_record(1, T + 30), removed(0, 1, seconds=60))
    assert found.came_back == 30.0


def test_a_removal_that_ended_late_counts() -> None:
    """Its pass had not waited for it."""
    found = joined(removed(0, 1, result=Result.PARKED), parked_ended_record(outcome(1), T + 90))
    assert [each.at - T for each in found] == [90.0]


@pytest.mark.parametrize(
    ("came_back", "fate"),
    [
        (HOUR, ["returned", "returned", "returned"]),
        (HOUR + 1, ["not_returned", "returned", "returned"]),
        (8 * DAY, ["not_returned", "not_returned", "not_returned"]),
    ],
)
def test_an_image_came_back_within_a_time_or_not(came_back: float, fate: list[str]) -> None:
    """A daemon looked all the while."""
    found = joined(daemon_record(T - 1), removed(0, 1), returned_record(1, T + came_back))
    assert fates(found) == fate


def test_a_time_that_is_not_over_is_neither() -> None:
    """The daemon still remembers the image as gone, two hours later; eight days
    later all times are over.
    """
    assert fates(joined(removed(0, 1), gone=[1], until=2 * HOUR)) == [
        "not_returned",
        "not_over",
        "not_over",
    ]
    assert set(fates(joined(removed(0, 1), gone=[1], until=8 * DAY))) == {"not_returned"}


@pytest.mark.parametrize(("gone", "until"), [([], 8 * DAY), ([2], 8 * DAY), ([], None)])
def test_what_nobody_remembers_is_not_known(gone: list[int], until: float | None) -> None:
    """No state file, or the image is no longer among the last that went: it may have come back."""
    assert set(fates(joined(removed(0, 1), gone=gone, until=until))) == {"unknown"}


def test_while_no_daemon_ran_nobody_looked() -> None:
    """Killed after 2 h, started again after 30 h, and the image is there: it came back within 30 h,
    but within a day? Not within the first hour, in which the daemon has recorded something else."""
    gap = [
        returned_record(7, T + 2 * HOUR),
        daemon_record(T + 30 * HOUR),
        returned_record(1, T + 30 * HOUR + 5),
    ]
    assert fates(joined(removed(0, 1), *gap)) == ["not_returned", "unknown", "returned"]
    assert fates(joined(removed(0, 1), *gap[1:])) == ["unknown", "unknown", "returned"]


def test_an_image_that_is_removed_again_had_come_back() -> None:
    """By commands, without a daemon: after 2 h at most, whether within the first is not known."""
    first, second = joined(removed(0, 1), removed(2 * HOUR, 1))
    assert (first.came_back, first.returned_bytes, second.came_back) == (2 * HOUR, 24 * MIB, None)
    assert fates([first]) == ["unknown", "returned", "returned"]


def test_the_table_has_a_line_for_all_and_for_each_image() -> None:
    """And what is known within each time; why says it in a sentence."""
    regret = regret_of(
        joined(removed(0, 1, 2), returned_record(2, T + 60), gone=[1], until=2 * HOUR)
    )
    lines = [line.split("  ") for line in regret_lines(regret)]
    cells = [[cell.strip() for cell in line if cell] for line in lines]
    assert cells == [
        ["NAME", "REMOVED", "CAME BACK", "SOONEST", "FREED", "PULLED AGAIN", "PER GIB FREED"],
        ["all", "2", "1", "1m", "26.0MiB", "20.0MiB", "787.7MiB"],
        ["registry.example/app:2", "1", "1", "1m", "13.0MiB", "20.0MiB", "1.5GiB"],
        ["registry.example/app:1", "1", "0", "-", "13.0MiB", "0B", "0B"],
        ["WITHIN", "CAME BACK", "DID NOT", "NOT OVER YET", "NOT KNOWN"],
        ["1h", "1", "1", "0", "0"],
        ["24h", "1", "0", "1", "0"],
        ["7d", "1", "0", "1", "0"],
    ]
    for width in (60, 80, 100):
        assert max(map(len, regret_lines(regret, width))) <= width
    first, second = images_of(joined(removed(0, 1, 2), returned_record(2, T + 60)))
    assert (
        regret_line(first)
        == "image registry.example/app:2: removed 1 time, came back 1 time, soonest after 1m"
    )
    assert regret_line(second) == "image registry.example/app:1: removed 1 time, came back 0 times"


steps = st.lists(
    st.tuples(
        st.sampled_from(["removed", "returned", "started"]),
        st.integers(1, 3),
        st.floats(0.1, 2 * DAY),
    ),
    max_size=30,
)


@given(steps, st.frozensets(st.integers(1, 3)))
def test_every_removal_has_one_fate_in_each_window(
    story: list[tuple[str, int, float]], gone: frozenset[int]
) -> None:
    """Whatever happened: nothing came back before it was removed, a longer window loses no return,
    and what is not known to be missing is never said not to have returned."""
    at, records = 0.0, list[bytes]()
    for what, number, seconds in story:
        at += seconds
        one = {"returned": returned_record(number, T + at), "started": daemon_record(T + at)}
        records += removed(at, number) if what == "removed" else [one[what]]
    found = joined(records, gone=gone, until=at + 60)
    assert len(found) == sum(what == "removed" for what, _, _ in story)
    assert all(
        (each.came_back is None or each.came_back >= 0) and each.missing >= 0 for each in found
    )
    within = regret_of(found).within
    assert all(sum(counts.values()) == len(found) for counts in within.values())
    assert within["1h"]["returned"] <= within["24h"]["returned"] <= within["7d"]["returned"]
    assert (
        within["1h"]["not_returned"]
        >= within["24h"]["not_returned"]
        >= within["7d"]["not_returned"]
    )
    for each in found:
        if each.came_back is not None:
            assert each.missing <= each.came_back


def test_documents_come_in_any_order() -> None:
    """An appearance is recorded with the time of the pull, which may be before
    what was recorded meanwhile.
    """
    documents: list[Json] = list(
        documents_of([*removed(0, 1), *removed(500, 2), returned_record(1, T + 400)])
    )
    assert [each.came_back for each in removals_of(documents)] == [400.0, None]
    assert [each.came_back for each in removals_of(reversed(documents))] == [400.0, None]
