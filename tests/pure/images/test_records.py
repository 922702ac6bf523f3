"""What is remembered of images: first seen, last used, and who can testify to an age."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eviction.engine.effects import Effect, Plan
from reclaim.functions.table import FUNCTIONS
from reclaim.functions.unused_images import UnusedImages
from reclaim.images.records import MOST_GONE, ImageRecords, Loaded, Returned
from reclaim.kubelet.pull_records import PullRecords, record_names
from reclaim.types import DELETE_UNUSED_IMAGES, Image, ImageRecord, Reason, Result
from tests.inline import run_stages
from tests.pure.contexts import context_of
from tests.pure.interrupted import Interruption
from tests.pure.memory_runtime import MemoryRuntime
from tests.pure.values import SteppedClock, image, image_id

NONE: frozenset[str] = frozenset()
ONE, TWO = image_id(1), image_id(2)
USED = frozenset({ONE})


def test_a_new_image_is_first_seen_now_and_never_used() -> None:
    """Unknown is young."""
    assert ImageRecords().update([image(1)], NONE, 100.0, wall_now=5000.0) == {
        ONE: ImageRecord(100.0, None)
    }


def test_first_detected_is_kept_and_last_used_moves() -> None:
    """Seen at 100 s, used until 200 s, unused at 300 s."""
    records = ImageRecords()
    records.update([image(1)], NONE, 100.0, wall_now=0.0)
    assert records.update([image(1)], frozenset({ONE}), 200.0, wall_now=0.0) == {
        ONE: ImageRecord(100.0, 200.0, uses=1)
    }
    assert records.update([image(1)], NONE, 300.0, wall_now=0.0) == {
        ONE: ImageRecord(100.0, 200.0, uses=1)
    }
    assert records.records == {ONE: ImageRecord(100.0, 200.0, uses=1)}


def test_a_use_that_goes_on_is_one_spell() -> None:
    """In use at 100, 200 and 400 s, unused at 300 s: twice."""
    records = ImageRecords()
    spells = [
        records.update([image(1)], in_use, now, wall_now=0.0)[ONE].uses
        for now, in_use in (
            (100.0, USED),
            (200.0, USED),
            (300.0, NONE),
            (400.0, USED),
            (500.0, NONE),
        )
    ]
    assert spells == [1, 1, 1, 2, 2]


def test_a_use_that_goes_on_over_a_restart_is_one_spell() -> None:
    """ONE was in use at the last detection before it, TWO was not: its use is a new one."""
    records = ImageRecords()
    records.restore(
        Loaded({ONE: ImageRecord(-500.0, -100.0, uses=3), TWO: ImageRecord(-500.0, -200.0, uses=3)})
    )
    found = records.update([image(1), image(2)], frozenset({ONE, TWO}), 10.0, wall_now=5000.0)
    assert (found[ONE].uses, found[TWO].uses) == (3, 4)


Told = tuple[str, str, bool, float]
"""The id of the image, of the one that had gone, whether we removed it, and since when it is there.
"""


def reporting(**witness: Any) -> tuple[ImageRecords, list[Told]]:
    """Records, and what they report as returned."""
    told: list[Told] = []

    def tell(returned: Returned) -> None:
        told.append((returned.image.id, returned.gone_id, returned.by_us, returned.since))

    return ImageRecords(**witness, on_return=tell), told


def test_an_image_that_we_removed_and_that_comes_back_has_returned() -> None:
    """It starts a new age, but how often it was used and came back, and since when, is
    kept. Each return is reported once. Of what something else has removed that is
    reported too, but not counted."""
    records, returned = reporting()
    for now in (100.0, 200.0):
        records.update([image(1), image(2)], frozenset({ONE, TWO}), now, wall_now=now + 5000.0)
        records.forget(ONE, now + 1)
        records.update([], NONE, now + 10, wall_now=now + 5010.0)
    found = records.update([image(1), image(2)], NONE, 300.0, wall_now=5300.0)
    used = ImageRecord(300.0, uses=2, counted_since=100.0)
    assert found == {ONE: replace(used, returned=2), TWO: used}
    assert records.update([image(1), image(2)], NONE, 310.0, wall_now=5310.0) == found
    assert returned == [
        (one, one, by_us, at)
        for at in (5200.0, 5300.0)
        for one, by_us in ((ONE, True), (TWO, False))
    ]


def test_a_return_is_dated_by_the_pull() -> None:
    """The runtime says that it was pulled 60 s after the last detection, 40 s before this one."""
    records, returned = reporting(
        pull_times=lambda: {ONE: 5160.0}, earlier=lambda: (9000.0, -3950.0)
    )
    records.update([image(1)], NONE, 50.0, wall_now=5050.0)
    records.forget(ONE, 60.0)
    records.update([], NONE, 100.0, wall_now=5100.0)
    records.update([image(1)], NONE, 200.0, wall_now=5200.0)
    assert returned == [(ONE, ONE, True, 5160.0)]


def test_what_may_be_there_has_not_returned() -> None:
    """Nobody knows whether the removal did anything: a new age, but nothing came back."""
    records, returned = reporting()
    records.update([image(1)], NONE, 100.0, wall_now=0.0)
    records.forget(ONE)
    assert records.update([image(1)], NONE, 110.0, wall_now=0.0) == {ONE: ImageRecord(110.0)}
    assert returned == []


def test_an_older_list_does_not_bring_back_what_was_removed_since() -> None:
    """The list began before the removal, or up to a second before its detection.

    The next one tells.
    """
    records, returned = reporting()
    for there in ([image(1)], []):
        records.update([image(1)], NONE, 100.0, wall_now=0.0)
        records.forget(ONE, 110.0)
        for began in (109.0, 110.5):
            assert records.update([image(1)], NONE, began, wall_now=0.0) == {
                ONE: ImageRecord(109.0)
            }, "it counts as new"
        assert (returned, records.gone) == ([], {ONE: ImageRecord(100.0, removed=True)})
        records.update(there, NONE, 111.0, wall_now=0.0)
        assert [one for one, *_ in returned] == [one.id for one in there]
        records, returned = reporting()


def test_a_tag_that_comes_back_with_other_content_has_returned() -> None:
    """Unless the image itself is there again: then the tag has only moved.

    An image without a tag is nobody's.
    """
    records, returned = reporting()
    records.update(
        [image(1, "app:1"), image(2, "<none>:<none>"), image(3)], NONE, 100.0, wall_now=0.0
    )
    for number in (1, 2, 3):
        records.forget(image_id(number), 110.0)
    found = records.update(
        [image(4, "other:1", "app:1"), image(5, "<none>:<none>"), image(6)],
        NONE,
        200.0,
        wall_now=0.0,
    )
    assert [each[:2] for each in returned] == [(image_id(4), ONE)]
    assert found[image_id(4)].returned == 1
    records.forget(image_id(4), 210.0)
    records.update([image(7, "other:1"), image(4)], NONE, 300.0, wall_now=0.0)
    assert [each[:2] for each in returned[1:]] == [(image_id(4), image_id(4))]


def test_an_image_is_gone_when_no_runtime_handler_has_it() -> None:
    """One of two entries goes and comes back: the image was there all along."""
    records, returned = reporting()
    for listed in ([image(1), KATA], [KATA], [image(1), KATA]):
        records.update(listed, NONE, 100.0, wall_now=0.0)
    assert (returned, records.gone) == ([], {})
    records.forget(ONE, 110.0)
    assert records.update([image(1), KATA], NONE, 200.0, wall_now=0.0)[ONE].returned == 1
    assert len(returned) == 1


def test_what_has_gone_is_remembered_over_a_restart() -> None:
    """Also an image that went while no process looked: its record was
    restored, and it is not listed.
    """
    records, returned = reporting()
    gone = {
        ONE: ImageRecord(-900.0, uses=4, returned=2, removed=True),
        image_id(3): ImageRecord(-900.0),
    }
    records.restore(
        Loaded({TWO: ImageRecord(-500.0, uses=7), image_id(3): ImageRecord(-9.0)}, gone)
    )
    assert records.gone.keys() == {ONE}, "an image with a record is not gone"
    records.update([], NONE, 10.0, wall_now=0.0)
    assert records.gone[TWO] == ImageRecord(-500.0, uses=7)
    found = records.update([image(1), image(2)], NONE, 20.0, wall_now=0.0)
    assert (found[ONE].uses, found[ONE].returned, found[TWO].uses, found[TWO].returned) == (
        4,
        3,
        7,
        0,
    )
    assert [by_us for _, _, by_us, _ in returned] == [True, False]


def test_what_was_pulled_again_while_no_process_looked_has_returned() -> None:
    """A process was killed after a removal, before it saved that.

    Reported once; what stayed has not returned.
    """
    # of TWO a moment after its first detection, as far as clocks can say
    pulls = {ONE: 4950.0, TWO: 4490.1}
    records, returned = reporting(pull_times=lambda: pulls)
    saved = {ONE: ImageRecord(-500.0, uses=3), TWO: ImageRecord(-500.0, uses=3)}
    records.restore(Loaded(saved, saved=(-100.0, 4890.0)))
    found = records.update([image(1), image(2)], NONE, 10.0, wall_now=5000.0)
    assert (found[ONE].uses, found[ONE].returned) == (3, 0)
    assert records.update([image(1), image(2)], NONE, 20.0, wall_now=5010.0) == found
    assert returned == [(ONE, ONE, False, 4950.0)]


def test_the_last_thousand_that_went_are_remembered() -> None:
    """A node that pulls for ever needs no more memory."""
    records = ImageRecords()
    for number in range(3 * MOST_GONE):
        records.update([image(number)], NONE, float(number), wall_now=0.0)
    assert list(records.gone) == [
        image_id(number) for number in range(2 * MOST_GONE - 1, 3 * MOST_GONE - 1)
    ]


def test_an_image_that_comes_back_starts_a_new_age() -> None:
    """Removed and pulled again it is new."""
    records = ImageRecords()
    records.update([image(1), image(2)], frozenset({ONE}), 100.0, wall_now=0.0)
    assert records.update([image(2)], NONE, 200.0, wall_now=0.0) == {TWO: ImageRecord(100.0)}
    found = records.update([image(1), image(2)], NONE, 300.0, wall_now=0.0)
    assert found[ONE] == ImageRecord(300.0, uses=1, counted_since=100.0)


def test_what_is_in_use_but_not_listed_gets_no_record() -> None:
    """Records are those of the listed images."""
    assert ImageRecords().update([], frozenset({ONE}), 100.0, wall_now=0.0) == {}


def test_one_id_listed_twice_is_one_record() -> None:
    """As in the kubelet; the later entry's tag is known."""
    records = ImageRecords()
    assert records.update([image(1, "a:1"), image(1, "b:1")], NONE, 5.0, wall_now=0.0) == {
        ONE: ImageRecord(5.0, tag="b:1")
    }


def test_a_seed_is_what_was_remembered_before() -> None:
    """A record that survived keeps its times; the seed itself is not changed."""
    seed = {ONE: ImageRecord(-50.0, -10.0)}
    records = ImageRecords(seed=seed)
    records.update([image(1)], frozenset({ONE}), 100.0, wall_now=0.0)
    assert records.records == {ONE: ImageRecord(-50.0, 100.0, uses=1)}
    assert seed == {ONE: ImageRecord(-50.0, -10.0)}


KATA = image(1)._replace(runtime_handler="kata")


@pytest.mark.regression
def test_an_entry_for_another_runtime_handler_makes_an_image_young() -> None:
    """A removal takes all entries.

    What was known stays known; one that goes changes nothing, until it is back.
    """
    records = ImageRecords()
    records.update([image(1)], USED, 5.0, wall_now=0.0)
    both = ImageRecord(9.0, 5.0, first_listed=5.0, uses=1, counted_since=5.0, handlers=("", "kata"))
    assert records.update([image(1), KATA], NONE, 9.0, wall_now=0.0) == {ONE: both}
    assert records.update([KATA, image(1)], NONE, 10.0, wall_now=0.0) == {ONE: both}
    assert records.update([KATA], NONE, 11.0, wall_now=0.0) == {
        ONE: replace(both, handlers=("kata",))
    }
    assert records.update([image(1), KATA], NONE, 12.0, wall_now=0.0) == {
        ONE: replace(both, first_detected=12.0)
    }
    records.forget(ONE)
    assert records.records == {}


def telling(
    *witnessed: tuple[str, float], earlier: tuple[float, float] | None = (9000.0, -4000.0)
) -> ImageRecords:
    """Records with a witness of these ids and wall times. The clocks are known since 9000 s before
    the first look: at a wall time of 5000 s nobody has set them since."""
    return ImageRecords(pull_times=lambda: dict(witnessed), earlier=lambda: earlier)


@pytest.mark.regression
def test_a_witness_of_an_id_says_nothing_of_an_entry_that_is_added_to_it() -> None:
    """It has seen the first pull; the one for another runtime handler is new, whether or not the
    first is still there, and also after a restart. Of two that are seen for the first time together
    neither is known to be the old one."""
    records = telling((ONE, 4000.0))
    records.update([image(1)], NONE, 100.0, wall_now=5000.0)
    assert records.update([KATA], NONE, 200.0, wall_now=5100.0)[ONE].first_detected == 200.0
    restored = telling((ONE, 4000.0))
    restored.restore(Loaded({ONE: ImageRecord(-900.0)}))
    assert (
        restored.update([image(1), KATA], NONE, 100.0, wall_now=5000.0)[ONE].first_detected == 100.0
    )
    together = telling((ONE, 4000.0)).update([image(1), KATA], NONE, 100.0, wall_now=5000.0)
    assert together == {ONE: ImageRecord(100.0, handlers=("", "kata"))}


@pytest.mark.parametrize(
    ("witnessed", "record"),
    [
        (None, ImageRecord(100.0)),
        (4000.0, ImageRecord(-900.0, first_listed=100.0)),
        (5000.0, ImageRecord(100.0)),
        (9000.0, ImageRecord(100.0)),
    ],
)
def test_a_witness_makes_an_image_as_old_as_it_provably_is(
    witnessed: float | None, record: ImageRecord
) -> None:
    """There for 1000 s, though listed only now; a time in the future makes it
    no younger than now.
    """
    records = telling() if witnessed is None else telling((ONE, witnessed))
    assert records.update([image(1)], NONE, 100.0, wall_now=5000.0) == {ONE: record}


@pytest.mark.regression
@pytest.mark.parametrize(
    ("earlier", "first_detected"),
    [
        (None, 100.0),  # nobody knows what the wall clock showed before
        ((600.0, 4400.0), -500.0),  # known for 600 s, in which it was not set: there for those
        ((9000.0, -4000.0), -800.0),  # known for longer than the image is there, by the wall clock
        ((9000.0, -4600.0), -200.0),  # 10 min ahead since: it was pulled 5 min ago, or 15
        ((9000.0, -7600.0), 100.0),  # an hour ahead since: pulled just now, for all that is known
        ((9000.0, -400.0), -800.0),  # set back since: pulled 15 min ago at least
        ((50.0, -1e9), 100.0),  # a clock that began in 1938
    ],
)
def test_a_witness_counts_as_far_as_the_monotonic_clock_can_vouch_for_it(
    earlier: tuple[float, float] | None, first_detected: float
) -> None:
    """An image was pulled at 4100 s of the wall clock, and is listed first at 5000 s."""
    found = telling((ONE, 4100.0), earlier=earlier).update([image(1)], NONE, 100.0, wall_now=5000.0)
    assert found[ONE].first_detected == first_detected


@pytest.mark.regression
def test_a_clock_that_is_set_forward_makes_no_pulled_image_old() -> None:
    """Between two detections an image is pulled and the clock jumps ahead by an
    hour; later it is set back.
    """
    records = telling((ONE, 5030.0), (TWO, 5030.0), earlier=None)
    records.update([], NONE, 100.0, wall_now=5000.0)
    assert records.update([image(1)], NONE, 160.0, wall_now=8660.0) == {
        ONE: ImageRecord(130.0, first_listed=160.0)
    }
    assert records.update([image(1), image(2)], NONE, 220.0, wall_now=5120.0)[TWO] == ImageRecord(
        160.0, first_listed=220.0
    )


@pytest.mark.regression
def test_what_was_missing_in_the_detection_before_is_no_older_than_that() -> None:
    """Whatever its witness says: the clock was wrong for a moment when it was pulled."""
    records = telling((ONE, 1000.0))
    records.update([image(2)], NONE, 100.0, wall_now=5000.0)
    assert records.update([image(1)], NONE, 160.0, wall_now=5060.0) == {
        ONE: ImageRecord(100.0, first_listed=160.0)
    }


@pytest.mark.regression
@pytest.mark.parametrize(
    ("saved", "first_detected"), [((-500.0, 4400.0), -500.0), ((-500.0, 800.0), 100.0)]
)
def test_the_clocks_at_the_save_vouch_for_a_pull_since(
    saved: tuple[float, float], first_detected: float
) -> None:
    """The file of records is of this boot: since then the clock was not set, or an hour ahead."""
    records = telling((ONE, 4000.0), earlier=None)
    records.restore(Loaded({TWO: ImageRecord(-800.0)}, saved=saved))
    found = records.update([image(1), image(2)], NONE, 100.0, wall_now=5000.0)
    assert (found[ONE].first_detected, found[TWO].first_detected) == (first_detected, -800.0)


def test_a_use_changes_nothing_of_when_an_image_was_listed() -> None:
    """Nor does another detection."""
    records = telling((ONE, 4000.0))
    records.update([image(1)], NONE, 100.0, wall_now=5000.0)
    expected = ImageRecord(-900.0, 200.0, first_listed=100.0, uses=1)
    assert records.update([image(1)], frozenset({ONE}), 200.0, wall_now=5100.0) == {ONE: expected}
    assert expected.listed_since == 100.0


def test_a_witness_is_asked_only_where_a_record_is_missing() -> None:
    """What is known by record needs no witness."""
    asked = 0

    def witness() -> dict[str, float]:
        nonlocal asked
        asked += 1
        return {}

    records = ImageRecords(witness)
    for now in (1.0, 2.0, 3.0):
        records.update([image(1), image(2)], NONE, now, wall_now=0.0)
    assert asked == 1


def test_a_copy_of_the_records_is_given_out() -> None:
    """Changing the answer changes no record."""
    records = ImageRecords()
    answer = dict(records.update([image(1)], NONE, 1.0, wall_now=0.0))
    answer.clear()
    assert ONE in records.records


def test_a_removed_image_that_is_pulled_again_before_the_next_detection_starts_a_new_age() -> None:
    """Without that it would be as old as the one that was removed, and could go at once again."""
    records = ImageRecords()
    records.update([image(1)], frozenset({ONE}), 100.0, wall_now=0.0)
    records.forget(ONE)
    records.forget(TWO, 100.0)
    assert records.records == {}
    assert records.update([image(1)], NONE, 900.0, wall_now=0.0) == {ONE: ImageRecord(900.0)}


def test_a_look_that_began_earlier_forgets_nothing_and_sets_nothing_back() -> None:
    """Two passes at a time: the one that listed before a pull reports after the one
    that saw the new image used.
    """
    records = ImageRecords()
    records.update([image(1), image(2)], frozenset({ONE, TWO}), 200.0, wall_now=0.0)
    expected = {ONE: ImageRecord(200.0, 200.0, uses=1), TWO: ImageRecord(200.0, 200.0, uses=1)}
    assert records.update([image(1)], frozenset({ONE}), 150.0, wall_now=0.0) == expected
    assert records.update([image(1)], NONE, 250.0, wall_now=0.0) == {
        ONE: ImageRecord(200.0, 200.0, uses=1)
    }


def test_a_record_that_a_late_look_confirmed_is_not_forgotten_by_an_earlier_one() -> None:
    """An old image, seen at 300 s, is missing in a list of 250 s: that list is
    not the newest word.
    """
    records = telling((ONE, 0.0), earlier=(1000.0, 0.0))
    records.update([image(1)], NONE, 300.0, wall_now=1000.0)
    records.update([image(1)], NONE, 200.0, wall_now=900.0)
    assert records.update([], NONE, 250.0, wall_now=950.0) == {
        ONE: ImageRecord(-700.0, first_listed=300.0)
    }
    assert records.update([], NONE, 301.0, wall_now=1001.0) == {}


def test_what_was_brought_back_keeps_its_times_until_it_is_no_longer_listed() -> None:
    """After a restart: the first detection confirms one image and forgets the other."""
    records = ImageRecords()
    records.restore(Loaded({ONE: ImageRecord(-500.0, -100.0), TWO: ImageRecord(-500.0)}))
    assert records.update([image(1)], NONE, 10.0, wall_now=5000.0) == {
        ONE: ImageRecord(-500.0, -100.0)
    }


def test_what_this_process_knows_is_not_overwritten_by_what_is_brought_back() -> None:
    """A file that is read late brings back only what is not known."""
    records = ImageRecords()
    records.update([image(1)], NONE, 10.0, wall_now=5000.0)
    records.restore(Loaded({ONE: ImageRecord(-500.0), TWO: ImageRecord(-500.0)}))
    assert records.records == {ONE: ImageRecord(10.0), TWO: ImageRecord(-500.0)}


@pytest.mark.parametrize(
    ("witnessed", "expected"),
    [
        (None, ImageRecord(-500.0, -100.0)),
        (4000.0, ImageRecord(-500.0, -100.0)),  # there for 1000 s: not younger than remembered
        (4700.0, ImageRecord(-290.0, -100.0, 10.0)),  # there for 300 s, used 110 s ago
        (4950.0, ImageRecord(-40.0, None, 10.0)),  # pulled 50 s ago: the use was another image's
        (9000.0, ImageRecord(10.0, None, 10.0)),  # in the future: as young as can be
    ],
)
def test_what_was_brought_back_is_no_older_than_the_witness_says(
    witnessed: float | None, expected: ImageRecord
) -> None:
    """It may have been removed and pulled again while no process detected images."""
    records = ImageRecords(pull_times=lambda: {} if witnessed is None else {ONE: witnessed})
    records.restore(Loaded({ONE: ImageRecord(-500.0, -100.0)}))
    assert records.update([image(1)], NONE, 10.0, wall_now=5000.0) == {ONE: expected}
    assert records.update([image(1)], NONE, 20.0, wall_now=5000.0) == {ONE: expected}  # asked once


def test_a_pressure_pass_forgets_what_it_removed() -> None:
    """The kubelet pulls the image again before the next detection: it is new, and has
    to be known for 2 minutes.
    """
    clock = SteppedClock()
    runtime = MemoryRuntime(clock)
    runtime.hold(image(1, "app:1"), image(2, "registry.k8s.io/pause:3.9"))
    records = ImageRecords(seed={ONE: ImageRecord(0.0)})
    stages = FUNCTIONS[DELETE_UNUSED_IMAGES].stages
    result = run_stages(
        lambda facts: context_of(runtime, clock, records=records, facts=facts), clock, stages
    )
    assert [(o.verdict.id, o.result) for o in result.outcomes] == [(ONE, Result.REMOVED)]
    assert records.records.keys() == {TWO}
    runtime.hold(image(1, "app:1"))
    again = run_stages(
        lambda facts: context_of(runtime, clock, records=records, facts=facts), clock, stages
    )
    assert {o.verdict.id: o.verdict.reason for o in again.kept}[ONE] is Reason.TOO_YOUNG


@pytest.mark.regression
def test_a_dry_run_forgets_nothing_of_what_it_would_remove() -> None:
    """Its row plans images again, without those that it has planned before: they are not gone. An
    image is dated also once something was left out."""
    clock = SteppedClock()
    runtime = MemoryRuntime(clock)
    runtime.hold(image(1, "app:1"), image(2, "registry.k8s.io/pause:3.9"))
    records = ImageRecords(seed={ONE: ImageRecord(0.0, uses=3, tag="app:1")})

    def another_comes(effect: Effect) -> None:
        if isinstance(effect, Plan) and effect.stage.number == 2:
            clock.step(10.0)
            runtime.hold(image(3, "new:1"))

    result = run_stages(
        lambda facts: context_of(runtime, clock, records=records, facts=facts),
        clock,
        lambda context: (UnusedImages(context), UnusedImages(context)),
        dry_run=True,
        before=another_comes,
    )
    assert [(o.verdict.id, o.result) for o in result.outcomes] == [(ONE, Result.PLANNED)]
    assert ONE not in {outcome.verdict.id for outcome in result.kept}
    assert (records.records[ONE], records.gone) == (ImageRecord(0.0, uses=3, tag="app:1"), {})
    assert image_id(3) in records.records


def test_two_threads_share_the_records() -> None:
    """A thousand detections and removals on each of two threads: no error, and no
    record of what is not listed.
    """
    records, errors = ImageRecords(), list[BaseException]()

    def work(own: int) -> None:
        try:
            for step in range(1000):
                records.update([image(1), image(own)], frozenset({ONE}), float(step), wall_now=0.0)
                records.forget(image_id(own), float(step))
                assert records.records[ONE].last_used is not None
        except BaseException as error:  # noqa: BLE001 # the test reports what a thread raised
            errors.append(error)

    threads = [threading.Thread(target=work, args=(own,)) for own in (2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert records.update([image(1)], NONE, 2000.0, wall_now=0.0) == {
        ONE: ImageRecord(0.0, 999.0, uses=records.records[ONE].uses)
    }


@given(
    st.lists(
        st.tuples(
            st.frozensets(st.integers(1, 4)), st.frozensets(st.integers(1, 4)), st.floats(0, 100)
        )
    )
)
def test_times_never_lie_in_the_future(
    detections: list[tuple[frozenset[int], frozenset[int], float]],
) -> None:
    """After any history: listed ids have a record, first seen at most now, last used between."""
    records, now = ImageRecords(), 0.0
    for listed, used, step in detections:
        now += step
        found = records.update(
            [image(n) for n in listed], frozenset(map(image_id, used)), now, wall_now=0.0
        )
        assert found.keys() == {image_id(n) for n in listed}
        assert all(
            record.first_detected <= (record.last_used or now) <= now for record in found.values()
        )


CAME = 4000.0
COMPLETE = PullRecords(complete_since=CAME - 1.0)
"""The kubelet's records of pulls, of which none can be missing: of no image."""
PULLED = PullRecords(names=record_names(image(1)))
UNKNOWN = PullRecords(problem="not known")


def judging(came: float | None = CAME) -> tuple[ImageRecords, list[PullRecords]]:
    """Records beside the kubelet's, which are the last of the list.

    `came`: when the runtime has got ONE.
    """
    kubelets = [UNKNOWN]
    times = {} if came is None else {ONE: came}
    return (
        ImageRecords(
            lambda: times, earlier=lambda: (9000.0, -4000.0), pulls=lambda _: kubelets[-1]
        ),
        kubelets,
    )


def known_of_pulls(
    judged: tuple[ImageRecords, list[PullRecords]], *found: PullRecords
) -> list[bool | None]:
    """What is known of ONE after each detection beside these, one every 100 s."""
    records, kubelets = judged
    known = []
    for each in found:
        kubelets.append(each)
        now = 100.0 * len(kubelets)
        known.append(records.update([image(1)], NONE, now, wall_now=5000.0 + now)[ONE].pulled)
    return known


@pytest.mark.parametrize(
    ("found", "known"),
    [
        ((COMPLETE,), [False]),
        ((PULLED,), [True]),
        ((UNKNOWN, COMPLETE), [None, False]),  # as soon as the records are known
        ((PullRecords(), COMPLETE), [None, None]),  # it was decided that it is not known
        ((COMPLETE, PULLED), [False, True]),  # pulled later
        ((PULLED, COMPLETE), [True, True]),  # its record was pruned
        ((COMPLETE, PullRecords(), UNKNOWN), [False, False, False]),
    ],
)
def test_whether_an_image_was_pulled_is_decided_once(
    found: tuple[PullRecords, ...], known: list[bool | None]
) -> None:
    """A missing record shows it only while none can be missing; one that
    was seen shows it for good.
    """
    assert known_of_pulls(judging(), *found) == known


def test_without_a_time_at_which_it_came_no_image_was_not_pulled() -> None:
    """A runtime that does not say leaves it unknown."""
    assert known_of_pulls(judging(None), COMPLETE, PULLED) == [None, True]


def test_what_was_known_of_pulls_survives_a_restart_but_not_another_pull() -> None:
    """ONE is the image that was there, by clocks that have drifted; TWO came again since,
    of which nothing is known.
    """
    records = telling((ONE, 3900.5), (TWO, 5090.0))
    records.restore(
        Loaded({ONE: ImageRecord(-1000.0, pulled=False), TWO: ImageRecord(-1000.0, pulled=True)})
    )
    found = records.update([image(1), image(2)], NONE, 100.0, wall_now=5100.0)
    assert (found[ONE].pulled, found[TWO].pulled) == (False, None)


def test_an_image_that_comes_back_is_judged_anew() -> None:
    """It was imported, and is pulled now; and the other way round, after its record has gone."""
    judged = judging()
    for found, known in ((COMPLETE, False), (PULLED, True), (COMPLETE, False)):
        assert known_of_pulls(judged, found) == [known]
        judged[0].forget(ONE, removed=100.0)


def test_what_is_forgotten_during_a_detection_stays_forgotten() -> None:
    """An image is removed, by another thread, while the detection that still lists it asks for the
    records of pulls: if it is pulled again, it is not as old as the one before."""
    records = ImageRecords(seed={ONE: ImageRecord(5.0)}, pulls=lambda _: Asked())
    removal = Interruption(lambda: records.forget(ONE))

    class Asked(PullRecords):
        """Asked about the image."""

        def pulled(self, image: Image, came: float | None = None) -> bool | None:
            """Not known; and the image is removed now."""
            removal.come()
            return None

    records.update([image(1)], NONE, 100.0, wall_now=0.0)
    removal.join()
    assert records.update([image(1)], NONE, 200.0, wall_now=0.0)[ONE].first_detected == 200.0
