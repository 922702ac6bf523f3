"""The maximum age of unused images: the first part of a periodic pass.

Source: kubelet, `pkg/kubelet/images/image_gc_manager.go` (freeOldImages).
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from reclaim.images.keep_list import parse_keep_list
from reclaim.images.plan import ImageGCPolicy, plan_maximum_age
from reclaim.types import ImageRecord, Listing, Plan, Reason, Rule
from tests.pure.values import container, image

NOW = 100_000.0
HOUR = 3600.0
POLICY = ImageGCPolicy(min_age_seconds=120.0, max_age_seconds=HOUR)
ONE = image(1, "registry.example/one:1")
LONG_AGO = 0.0


def sweep(
    record: ImageRecord,
    *,
    policy: ImageGCPolicy = POLICY,
    uptime: float = 2 * HOUR,
    exact: bool = False,
) -> Plan:
    """The plan for one unused image with this record."""
    listing = Listing((ONE,), sandbox_image_references=frozenset({"pause:1"}))
    return plan_maximum_age(
        listing, {ONE.id: record}, policy, now=NOW, started_at=NOW - uptime, exact=exact
    )


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize(
    ("unused_seconds", "goes"), [(HOUR - 1, False), (HOUR, False), (HOUR + 1, True)]
)
def test_an_image_exactly_at_the_maximum_age_is_kept(
    unused_seconds: float, goes: bool, exact: bool
) -> None:
    """As the kubelet: longer than the maximum age, not as long as."""
    made = sweep(ImageRecord(LONG_AGO, NOW - unused_seconds), exact=exact)
    (verdict,) = made.remove + made.keep
    assert (made.remove != ()) is goes
    assert verdict.reason is (Reason.MAXIMUM_AGE if goes else Reason.WITHIN_LIMIT)
    assert verdict.rule is Rule.KUBELET
    assert verdict.age_seconds == unused_seconds
    assert verdict.eligible_in_seconds == (None if goes else HOUR - unused_seconds)


@pytest.mark.parametrize(("uptime", "sweeps"), [(HOUR - 1, False), (HOUR, False), (HOUR + 1, True)])
def test_there_is_no_sweep_until_the_loop_has_run_for_longer_than_the_maximum_age(
    uptime: float, sweeps: bool
) -> None:
    """As the kubelet: an uptime of exactly the maximum age is not enough.

    Nothing is said of any image then.
    """
    made = sweep(ImageRecord(LONG_AGO, LONG_AGO), uptime=uptime)
    assert (made != Plan()) is sweeps


def test_a_maximum_age_of_0_is_off() -> None:
    """Whatever the uptime and the age."""
    made = sweep(ImageRecord(LONG_AGO), policy=replace(POLICY, max_age_seconds=0.0), exact=True)
    assert made == Plan()


def test_exactly_as_the_kubelet_an_image_pulled_seconds_ago_is_removed() -> None:
    """As the kubelet: never used is infinitely old, and the minimum age is not asked."""
    (verdict,) = sweep(ImageRecord(NOW - 3.0), exact=True).remove
    assert (verdict.reason, verdict.rule, verdict.age_seconds) == (
        Reason.MAXIMUM_AGE,
        Rule.KUBELET,
        3.0,
    )


@pytest.mark.parametrize(
    ("known_seconds", "reason", "wait_seconds"),
    [
        (3.0, Reason.TOO_YOUNG, 117.0),
        (119.0, Reason.TOO_YOUNG, 1.0),
        (120.0, Reason.WITHIN_LIMIT, HOUR - 120.0),
        (HOUR, Reason.WITHIN_LIMIT, 0.0),
    ],
)
def test_the_guard_counts_the_age_of_a_never_used_image_from_its_first_detection(
    known_seconds: float, reason: Reason, wait_seconds: float
) -> None:
    """Against pull-and-delete loops: the kubelet would remove each of these, so
    the verdict is a guard's.
    """
    (verdict,) = sweep(ImageRecord(NOW - known_seconds)).keep
    assert (verdict.reason, verdict.rule, verdict.eligible_in_seconds) == (
        reason,
        Rule.GUARD,
        wait_seconds,
    )


def test_a_never_used_image_that_has_been_known_for_longer_is_removed() -> None:
    """For both readings it is too old."""
    (verdict,) = sweep(ImageRecord(NOW - HOUR - 1.0)).remove
    assert (verdict.reason, verdict.age_seconds) == (Reason.MAXIMUM_AGE, HOUR + 1.0)


def test_the_minimum_age_holds_where_it_is_the_longer_one() -> None:
    """A used image whose last use is too long ago but that has not been known
    for the minimum age stays.
    """
    policy = ImageGCPolicy(min_age_seconds=2 * HOUR, max_age_seconds=60.0)
    record = ImageRecord(NOW - HOUR, NOW - 61.0)
    (verdict,) = sweep(record, policy=policy).keep
    assert (verdict.reason, verdict.rule) == (Reason.TOO_YOUNG, Rule.GUARD)
    assert sweep(record, policy=policy, exact=True).remove != ()


def test_known_for_exactly_the_minimum_age_it_may_go_for_its_age() -> None:
    """As for space: equal is old enough."""
    policy = ImageGCPolicy(min_age_seconds=2 * HOUR, max_age_seconds=60.0)
    assert sweep(ImageRecord(NOW - 2 * HOUR, NOW - 61.0), policy=policy).remove != ()


def test_exactly_as_the_kubelet_the_minimum_age_plays_no_part_in_what_stays_either() -> None:
    """Known for a minute and used a second ago: it is within the maximum age, not too young."""
    (verdict,) = sweep(ImageRecord(NOW - 60.0, NOW - 1.0), exact=True).keep
    assert (verdict.reason, verdict.rule) == (Reason.WITHIN_LIMIT, Rule.KUBELET)


def test_a_young_image_that_the_kubelet_would_keep_too_is_its_rule() -> None:
    """Used a moment ago, known for a minute: no guard is needed."""
    (verdict,) = sweep(ImageRecord(NOW - 60.0, NOW - 1.0)).keep
    assert (verdict.reason, verdict.rule) == (Reason.TOO_YOUNG, Rule.KUBELET)


@pytest.mark.parametrize("exact", [False, True])
def test_what_is_used_pinned_or_kept_has_no_maximum_age(exact: bool) -> None:
    """Exactness is about ages; an image in use, a pin, the sandbox image and the
    keep-list hold in any case.
    """
    used, pinned, kept, pause = (
        image(2, "u:1"),
        image(3, "p:1", pinned=True),
        image(4, "k:1"),
        image(5, "pause:1"),
    )
    listing = Listing(
        (used, pinned, kept, pause),
        (container("c", references=(used.id,)),),
        sandbox_image_references=frozenset({"pause:1"}),
    )
    policy = replace(POLICY, keep=parse_keep_list(["k:1"]))
    records = {one.id: ImageRecord(LONG_AGO, LONG_AGO) for one in listing.images}
    made = plan_maximum_age(listing, records, policy, now=NOW, started_at=LONG_AGO, exact=exact)
    assert {verdict.id: verdict.reason for verdict in made.keep} == {
        used.id: Reason.IN_USE,
        pinned.id: Reason.PINNED,
        kept.id: Reason.KEEP_LIST,
        pause.id: Reason.SANDBOX_IMAGE,
    }
    assert made.remove == ()


def test_the_sweep_removes_in_the_order_of_candidates() -> None:
    """As the kubelet: never used before least recently used."""
    images = tuple(image(number) for number in (1, 2, 3))
    records = {
        images[0].id: ImageRecord(1.0, 500.0),
        images[1].id: ImageRecord(2.0),
        images[2].id: ImageRecord(3.0, 400.0),
    }
    listing = Listing(images, sandbox_image_references=frozenset({"pause:1"}))
    made = plan_maximum_age(listing, records, POLICY, now=NOW, started_at=LONG_AGO)
    assert [verdict.id for verdict in made.remove] == [images[1].id, images[2].id, images[0].id]


@pytest.mark.parametrize(("exact", "goes"), [(False, False), (True, True)])
def test_an_image_that_the_kubelet_did_not_pull_does_not_go_for_its_age(
    exact: bool, goes: bool
) -> None:
    """Nothing needs its space; a kubelet would remove it, and so exactly as the kubelet it goes."""
    made = sweep(ImageRecord(LONG_AGO, LONG_AGO, pulled=False), exact=exact)
    (verdict,) = made.remove + made.keep
    assert ((made.remove != ()), verdict.reason) == (goes, Reason.NOT_PULLED)
    like_others = replace(POLICY, keep_not_pulled=False)
    (verdict,) = sweep(ImageRecord(LONG_AGO, LONG_AGO, pulled=False), policy=like_others).remove
    assert verdict.reason == Reason.MAXIMUM_AGE
