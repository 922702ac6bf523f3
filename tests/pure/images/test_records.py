"""What is remembered of images: first seen, last used, and who can testify to an age."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclaim.execution.executor import never_relieved
from reclaim.functions import FUNCTIONS, Call
from reclaim.images.records import ImageRecords
from reclaim.types import DELETE_UNUSED_IMAGES, ImageRecord, Reason, Result
from tests.pure.contexts import context_of
from tests.pure.memory_runtime import MemoryRuntime
from tests.pure.values import SteppedClock, image, image_id

NONE: frozenset[str] = frozenset()
ONE, TWO = image_id(1), image_id(2)
USED = frozenset({ONE})


def test_a_new_image_is_first_seen_now_and_never_used() -> None:
    """Unknown is young."""
    assert ImageRecords().update([image(1)], NONE, 100.0, 5000.0) == {ONE: ImageRecord(100.0, None)}


def test_first_detected_is_kept_and_last_used_moves() -> None:
    """Seen at 100 s, used until 200 s, unused at 300 s."""
    records = ImageRecords()
    records.update([image(1)], NONE, 100.0, 0.0)
    assert records.update([image(1)], frozenset({ONE}), 200.0, 0.0) == {ONE: ImageRecord(100.0, 200.0, uses=1)}
    assert records.update([image(1)], NONE, 300.0, 0.0) == {ONE: ImageRecord(100.0, 200.0, uses=1)}
    assert records.records == {ONE: ImageRecord(100.0, 200.0, uses=1)}


def test_a_use_that_goes_on_is_one_spell() -> None:
    """In use at 100, 200 and 400 s, unused at 300 s: twice."""
    records = ImageRecords()
    spells = [
        records.update([image(1)], in_use, now, 0.0)[ONE].uses
        for now, in_use in ((100.0, USED), (200.0, USED), (300.0, NONE), (400.0, USED), (500.0, NONE))
    ]
    assert spells == [1, 1, 1, 2, 2]


def test_a_use_that_goes_on_over_a_restart_is_one_spell() -> None:
    """ONE was in use at the last detection before it, TWO was not: its use is a new one."""
    records = ImageRecords()
    records.restore({ONE: ImageRecord(-500.0, -100.0, uses=3), TWO: ImageRecord(-500.0, -200.0, uses=3)})
    found = records.update([image(1), image(2)], frozenset({ONE, TWO}), 10.0, 5000.0)
    assert (found[ONE].uses, found[TWO].uses) == (3, 4)


def test_an_image_that_we_removed_and_that_comes_back_has_returned() -> None:
    """It starts a new age, but how often it was used and came back is kept. What others removed does not return."""
    records = ImageRecords()
    for now in (100.0, 200.0):
        records.update([image(1), image(2)], frozenset({ONE, TWO}), now, 0.0)
        records.forget(ONE, removed=True)
        records.forget(TWO)
        records.update([], NONE, now + 10, 0.0)
    found = records.update([image(1), image(2)], NONE, 300.0, 0.0)
    assert found == {ONE: ImageRecord(300.0, uses=2, returned=2), TWO: ImageRecord(300.0)}


def test_an_image_that_comes_back_starts_a_new_age() -> None:
    """Removed and pulled again it is new."""
    records = ImageRecords()
    records.update([image(1), image(2)], frozenset({ONE}), 100.0, 0.0)
    assert records.update([image(2)], NONE, 200.0, 0.0) == {TWO: ImageRecord(100.0)}
    assert records.update([image(1), image(2)], NONE, 300.0, 0.0)[ONE] == ImageRecord(300.0)


def test_what_is_in_use_but_not_listed_gets_no_record() -> None:
    """Records are those of the listed images."""
    assert ImageRecords().update([], frozenset({ONE}), 100.0, 0.0) == {}


def test_one_id_listed_twice_is_one_record() -> None:
    """As in the kubelet."""
    records = ImageRecords()
    assert records.update([image(1, "a:1"), image(1, "b:1")], NONE, 5.0, 0.0) == {ONE: ImageRecord(5.0)}


def test_a_seed_is_what_was_remembered_before() -> None:
    """A record that survived keeps its times; the seed itself is not changed."""
    seed = {ONE: ImageRecord(-50.0, -10.0)}
    records = ImageRecords(seed=seed)
    records.update([image(1)], frozenset({ONE}), 100.0, 0.0)
    assert records.records == {ONE: ImageRecord(-50.0, 100.0, uses=1)}
    assert seed == {ONE: ImageRecord(-50.0, -10.0)}


KATA = image(1)._replace(runtime_handler="kata")


@pytest.mark.regression
def test_each_runtime_handler_of_one_id_has_a_record() -> None:
    """As in the kubelet (getImageTuple). A container's use is known by the id, so it counts for both."""
    records = ImageRecords()
    records.update([image(1)], NONE, 5.0, 0.0)
    both = {ONE: ImageRecord(5.0, 9.0, uses=1), f"{ONE},kata": ImageRecord(9.0, 9.0, uses=1)}
    assert records.update([image(1), KATA], frozenset({ONE}), 9.0, 0.0) == both
    assert records.update([KATA], NONE, 10.0, 0.0) == {f"{ONE},kata": ImageRecord(9.0, 9.0, uses=1)}
    records.forget(ONE)
    assert records.records == {}


def telling(*witnessed: tuple[str, float], earlier: tuple[float, float] | None = (9000.0, -4000.0)) -> ImageRecords:
    """Records with a witness of these ids and wall times. The clocks are known since 9000 s before the first
    look: at a wall time of 5000 s nobody has set them since."""
    return ImageRecords(pull_times=lambda: dict(witnessed), earlier=lambda: earlier)


@pytest.mark.regression
def test_a_witness_of_an_id_says_nothing_of_an_entry_that_is_added_to_it() -> None:
    """It has seen the first pull; the one for another runtime handler is new, whether or not the first is still there.
    Of two that are seen for the first time together neither is known to be the old one."""
    records = telling((ONE, 4000.0), (TWO, 4000.0))
    records.update([image(1)], NONE, 100.0, 5000.0)
    assert records.update([image(1), KATA], NONE, 200.0, 5100.0)[f"{ONE},kata"] == ImageRecord(200.0)
    records.update([image(2)], NONE, 300.0, 5200.0)
    others = [image(2)._replace(runtime_handler="kata")]
    assert records.update(others, NONE, 400.0, 5300.0) == {f"{TWO},kata": ImageRecord(400.0)}
    together = telling((ONE, 4000.0)).update([image(1), KATA], NONE, 100.0, 5000.0)
    assert together == {ONE: ImageRecord(100.0), f"{ONE},kata": ImageRecord(100.0)}


@pytest.mark.parametrize(
    ("witnessed", "record"),
    [
        (None, ImageRecord(100.0)),
        (4000.0, ImageRecord(-900.0, first_listed=100.0)),
        (5000.0, ImageRecord(100.0)),
        (9000.0, ImageRecord(100.0)),
    ],
)
def test_a_witness_makes_an_image_as_old_as_it_provably_is(witnessed: float | None, record: ImageRecord) -> None:
    """There for 1000 s, though listed only now; a time in the future makes it no younger than now."""
    records = telling() if witnessed is None else telling((ONE, witnessed))
    assert records.update([image(1)], NONE, 100.0, 5000.0) == {ONE: record}


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
    found = telling((ONE, 4100.0), earlier=earlier).update([image(1)], NONE, 100.0, 5000.0)
    assert found[ONE].first_detected == first_detected


@pytest.mark.regression
def test_a_clock_that_is_set_forward_makes_no_pulled_image_old() -> None:
    """Between two detections an image is pulled and the clock jumps ahead by an hour; later it is set back."""
    records = telling((ONE, 5030.0), (TWO, 5030.0), earlier=None)
    records.update([], NONE, 100.0, 5000.0)
    assert records.update([image(1)], NONE, 160.0, 8660.0) == {ONE: ImageRecord(130.0, first_listed=160.0)}
    assert records.update([image(1), image(2)], NONE, 220.0, 5120.0)[TWO] == ImageRecord(160.0, first_listed=220.0)


@pytest.mark.regression
def test_what_was_missing_in_the_detection_before_is_no_older_than_that() -> None:
    """Whatever its witness says: the clock was wrong for a moment when it was pulled."""
    records = telling((ONE, 1000.0))
    records.update([image(2)], NONE, 100.0, 5000.0)
    assert records.update([image(1)], NONE, 160.0, 5060.0) == {ONE: ImageRecord(100.0, first_listed=160.0)}


@pytest.mark.regression
@pytest.mark.parametrize(("saved", "first_detected"), [((-500.0, 4400.0), -500.0), ((-500.0, 800.0), 100.0)])
def test_the_clocks_at_the_save_vouch_for_a_pull_since(saved: tuple[float, float], first_detected: float) -> None:
    """The file of records is of this boot: since then the clock was not set, or an hour ahead."""
    records = telling((ONE, 4000.0), earlier=None)
    records.restore({TWO: ImageRecord(-800.0)}, saved)
    found = records.update([image(1), image(2)], NONE, 100.0, 5000.0)
    assert (found[ONE].first_detected, found[TWO].first_detected) == (first_detected, -800.0)


def test_a_use_changes_nothing_of_when_an_image_was_listed() -> None:
    """Nor does another detection."""
    records = telling((ONE, 4000.0))
    records.update([image(1)], NONE, 100.0, 5000.0)
    expected = ImageRecord(-900.0, 200.0, first_listed=100.0, uses=1)
    assert records.update([image(1)], frozenset({ONE}), 200.0, 5100.0) == {ONE: expected}
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
        records.update([image(1), image(2)], NONE, now, 0.0)
    assert asked == 1


def test_a_copy_of_the_records_is_given_out() -> None:
    """Changing the answer changes no record."""
    records = ImageRecords()
    answer = dict(records.update([image(1)], NONE, 1.0, 0.0))
    answer.clear()
    assert ONE in records.records


def test_a_removed_image_that_is_pulled_again_before_the_next_detection_starts_a_new_age() -> None:
    """Without that it would be as old as the one that was removed, and could go at once again."""
    records = ImageRecords()
    records.update([image(1)], frozenset({ONE}), 100.0, 0.0)
    records.forget(ONE)
    records.forget(TWO)
    assert records.records == {}
    assert records.update([image(1)], NONE, 900.0, 0.0) == {ONE: ImageRecord(900.0)}


def test_a_look_that_began_earlier_forgets_nothing_and_sets_nothing_back() -> None:
    """Two passes at a time: the one that listed before a pull reports after the one that saw the new image used."""
    records = ImageRecords()
    records.update([image(1), image(2)], frozenset({ONE, TWO}), 200.0, 0.0)
    expected = {ONE: ImageRecord(200.0, 200.0, uses=1), TWO: ImageRecord(200.0, 200.0, uses=1)}
    assert records.update([image(1)], frozenset({ONE}), 150.0, 0.0) == expected
    assert records.update([image(1)], NONE, 250.0, 0.0) == {ONE: ImageRecord(200.0, 200.0, uses=1)}


def test_a_record_that_a_late_look_confirmed_is_not_forgotten_by_an_earlier_one() -> None:
    """An old image, seen at 300 s, is missing in a list of 250 s: that list is not the newest word."""
    records = telling((ONE, 0.0), earlier=(1000.0, 0.0))
    records.update([image(1)], NONE, 300.0, 1000.0)
    records.update([image(1)], NONE, 200.0, 900.0)
    assert records.update([], NONE, 250.0, 950.0) == {ONE: ImageRecord(-700.0, first_listed=300.0)}
    assert records.update([], NONE, 301.0, 1001.0) == {}


def test_what_was_brought_back_keeps_its_times_until_it_is_no_longer_listed() -> None:
    """After a restart: the first detection confirms one image and forgets the other."""
    records = ImageRecords()
    records.restore({ONE: ImageRecord(-500.0, -100.0), TWO: ImageRecord(-500.0)})
    assert records.update([image(1)], NONE, 10.0, 5000.0) == {ONE: ImageRecord(-500.0, -100.0)}


def test_what_this_process_knows_is_not_overwritten_by_what_is_brought_back() -> None:
    """A file that is read late brings back only what is not known."""
    records = ImageRecords()
    records.update([image(1)], NONE, 10.0, 5000.0)
    records.restore({ONE: ImageRecord(-500.0), TWO: ImageRecord(-500.0)})
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
    records.restore({ONE: ImageRecord(-500.0, -100.0)})
    assert records.update([image(1)], NONE, 10.0, 5000.0) == {ONE: expected}
    assert records.update([image(1)], NONE, 20.0, 5000.0) == {ONE: expected}  # asked once


def test_a_pressure_pass_forgets_what_it_removed() -> None:
    """The kubelet pulls the image again before the next detection: it is new, and has to be known for 2 minutes."""
    clock = SteppedClock()
    runtime = MemoryRuntime(clock)
    runtime.hold(image(1, "app:1"), image(2, "registry.k8s.io/pause:3.9"))
    records = ImageRecords(seed={ONE: ImageRecord(0.0)})
    context = context_of(runtime, clock, records=records)
    result = Call(FUNCTIONS[DELETE_UNUSED_IMAGES], context).run(never_relieved)
    assert [(o.verdict.id, o.result) for o in result.outcomes] == [(ONE, Result.REMOVED)]
    assert records.records.keys() == {TWO}
    runtime.hold(image(1, "app:1"))
    again = Call(FUNCTIONS[DELETE_UNUSED_IMAGES], context).run(never_relieved)
    assert {o.verdict.id: o.verdict.reason for o in again.kept}[ONE] is Reason.TOO_YOUNG


def test_two_threads_share_the_records() -> None:
    """A thousand detections and removals on each of two threads: no error, and no record of what is not listed."""
    records, errors = ImageRecords(), list[BaseException]()

    def work(own: int) -> None:
        try:
            for step in range(1000):
                records.update([image(1), image(own)], frozenset({ONE}), float(step), 0.0)
                records.forget(image_id(own), removed=True)
                assert records.records[ONE].last_used is not None
        except BaseException as error:  # noqa: BLE001 # the test reports what a thread raised
            errors.append(error)

    threads = [threading.Thread(target=work, args=(own,)) for own in (2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert records.update([image(1)], NONE, 2000.0, 0.0) == {
        ONE: ImageRecord(0.0, 999.0, uses=records.records[ONE].uses)
    }


@given(st.lists(st.tuples(st.frozensets(st.integers(1, 4)), st.frozensets(st.integers(1, 4)), st.floats(0, 100))))
def test_times_never_lie_in_the_future(detections: list[tuple[frozenset[int], frozenset[int], float]]) -> None:
    """After any history: listed ids have a record, first seen at most now, last used between."""
    records, now = ImageRecords(), 0.0
    for listed, used, step in detections:
        now += step
        found = records.update([image(n) for n in listed], frozenset(map(image_id, used)), now, 0.0)
        assert found.keys() == {image_id(n) for n in listed}
        assert all(record.first_detected <= (record.last_used or now) <= now for record in found.values())
