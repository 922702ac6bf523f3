"""Two readings, and what is named as a leak."""

from __future__ import annotations

import pytest

from eviction.cli.plan_leaks import REMEDIES, Leaks, Reading, judged, leaks_lines
from reclaim.leaks import LeakKind, Unowned

DAY, NOW, UP = 86400.0, 1_800_000_000.0, 1_000_000.0
SNAPSHOT = Unowned(LeakKind.SNAPSHOT, "old", NOW - 2 * DAY, "k8s.io", 4096)
LAYER = Unowned(LeakKind.LAYER, "a" * 64, NOW - 2 * DAY, "", 8192, "/store/overlay/a")
OTHER = LAYER._replace(name="b" * 64, path="/store/overlay/b")


def reading(*found: Unowned) -> Reading:
    """A reading with these."""
    return {(one.kind, one.namespace, one.name): one for one in found}


def judge(first: Reading, second: Reading, up_seconds: float = UP) -> Leaks:
    """Both, with nothing else that is not known."""
    return judged(first, second, NOW, up_seconds, ())


def names(found: Leaks) -> list[str]:
    return [leak.name for leak in found.leaks]


def test_what_both_readings_show_is_named_the_largest_first() -> None:
    """A directory by its path."""
    found = judge(reading(SNAPSHOT, LAYER), reading(LAYER, SNAPSHOT))
    assert names(found) == ["/store/overlay/a", "old"]
    leak = found.leaks[1]
    assert (leak.namespace, leak.bytes, leak.since) == ("k8s.io", 4096, "2027-01-13T08:00:00.000Z")
    assert "ctr leases delete --sync" in leak.remedy


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (reading(SNAPSHOT), reading()),
        (reading(), reading(SNAPSHOT)),
        (reading(SNAPSHOT), reading(SNAPSHOT._replace(size_bytes=1))),
        (reading(SNAPSHOT), reading(SNAPSHOT._replace(since=NOW - 1.5 * DAY))),
        (reading(SNAPSHOT), reading(SNAPSHOT._replace(namespace="moby"))),
    ],
)
def test_what_one_reading_shows_otherwise_is_no_leak(first: Reading, second: Reading) -> None:
    """It came, went, or is still changing."""
    found = judge(first, second)
    assert (found.leaks, found.not_known) == ((), ())


@pytest.mark.parametrize(("since", "up_seconds"), [(NOW - DAY + 1, UP), (NOW + DAY, UP), (0.0, DAY - 1)])
def test_what_is_younger_than_a_day_or_since_a_boot_is_only_counted(since: float, up_seconds: float) -> None:
    """Also what is from the future, or from before the clock was set."""
    one = SNAPSHOT._replace(since=since)
    found = judge(reading(one), reading(one), up_seconds)
    assert (found.leaks, found.not_known) == ((), ("1 object of 4.0KiB changed within a day: too young",))


@pytest.mark.parametrize("second", [reading(LAYER), reading(LAYER, OTHER._replace(size_bytes=1))])
def test_while_directories_are_being_deleted_none_of_their_kind_is_named(second: Reading) -> None:
    """Another one may wait for its turn. Everything else is named."""
    found = judge(reading(LAYER, OTHER, SNAPSHOT), reading(*second.values(), SNAPSHOT))
    assert (names(found), len(found.not_known)) == (["old"], 1)
    assert found.not_known[0].startswith("layer: being deleted now")


def test_directories_that_were_not_counted_in_time_are_not_named() -> None:
    """They may be changing."""
    uncounted = LAYER._replace(size_bytes=None)
    found = judge(reading(uncounted), reading(uncounted))
    assert (found.leaks, len(found.not_known)) == ((), 1)


def test_the_lines_say_what_to_do() -> None:
    """And what was too young, and what is not known."""
    young = OTHER._replace(since=NOW, kind=LeakKind.LAYER_DIRECTORY)
    both = reading(SNAPSHOT, SNAPSHOT._replace(name="older", size_bytes=None), LAYER, young)
    of_snapshots, of_layers = REMEDIES[LeakKind.SNAPSHOT], REMEDIES[LeakKind.LAYER]
    lines = list(leaks_lines(judged(both, both, NOW, UP, ["the kubelet is away"])))
    assert lines[1:] == [
        f"8.0KiB  2027-01-13T08:00:00.000Z  layer     -          /store/overlay/a  {of_layers}",
        f"4.0KiB  2027-01-13T08:00:00.000Z  snapshot  k8s.io     old               {of_snapshots}",
        f"-       2027-01-13T08:00:00.000Z  snapshot  k8s.io     older             {of_snapshots}",
        "belongs to nobody: 3 objects, 12.0KiB; nothing is removed",
        "not known: 1 object of 8.0KiB changed within a day: too young",
        "not known: the kubelet is away",
    ]


def test_without_leaks_there_is_no_table() -> None:
    """A sentence is enough."""
    assert list(leaks_lines(judge({}, {}))) == ["belongs to nobody: 0 objects, 0B; nothing is removed"]
