"""What is remembered of images: first seen, last used, come back, and who can testify to an age."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclaim.images.records import MOST_GONE, ImageRecords, Loaded, Returned
from reclaim.kubelet.pull_records import PullRecords, record_names
from reclaim.types import Image, ImageRecord
from tests.pure.interrupted import Interruption
from tests.pure.values import image, image_id
from tests.rows import rows

ONE, TWO = image_id(1), image_id(2)
KATA = image(1)._replace(runtime_handler="kata")
WALL = 4900.0  # what the wall clock shows more than the monotonic one, if nothing else is said
OLD, USED = ImageRecord(-500.0), ImageRecord(-500.0, -100.0)


class Told:
    """Records, and what they have reported as returned. `pulls`: wall times at which a runtime has
    pulled images; `earlier`: what is known of the clocks before the first look, as `ImageRecords`
    takes it."""

    def __init__(
        self,
        *pulls: tuple[str, float],
        earlier: tuple[float, float] | None = None,
        seed: dict[str, ImageRecord] | None = None,
    ) -> None:
        self.told: list[Returned] = []
        self.asked = 0
        self.kubelets = PullRecords(problem="not known")

        def pull_times() -> dict[str, float]:
            self.asked += 1
            return dict(pulls)

        self.records = ImageRecords(
            pull_times,
            seed,
            lambda: earlier,
            on_return=self.told.append,
            pulls=lambda _: self.kubelets,
        )

    def see(
        self, *listed: int | Image, at: float, used: Collection[int] = (), wall: float | None = None
    ) -> dict[str, ImageRecord]:
        """One detection."""
        images = [each if isinstance(each, Image) else image(each) for each in listed]
        wall_now = at + WALL if wall is None else wall
        in_use = frozenset(map(image_id, used))
        return dict(self.records.update(images, in_use, at, wall_now=wall_now))

    def see_one(self, *listed: int | Image, at: float) -> ImageRecord:
        """The record of ONE after a detection."""
        return self.see(*(listed or (1,)), at=at)[ONE]

    def returned(self) -> list[tuple[str, str, bool, float]]:
        """The id of each image, of the one that had gone, whether we removed it, since when."""
        return [(each.image.id, each.gone_id, each.by_us, each.since) for each in self.told]


def witnessed(*pulls: tuple[str, float]) -> Told:
    """The clocks are known since 9000 s before the first look, and were not set since."""
    return Told(*pulls, earlier=(9000.0, 100.0 + WALL - 9000.0))


numbers = st.integers(1, 4)
events = st.one_of(
    st.tuples(st.just("see"), st.frozensets(numbers), st.frozensets(numbers)),
    st.tuples(st.sampled_from(["removed", "may be there"]), numbers, st.none()),
)


@given(st.lists(st.tuples(events, st.floats(1.0, 100.0)), max_size=12))
def test_records_are_what_a_ledger_by_hand_says(
    history: list[tuple[tuple[str, frozenset[int], frozenset[int]] | tuple[str, int, None], float]],
) -> None:
    """Whatever is listed, used and removed: an age begins when an image is listed, and again when
    it was gone; a use that goes on from one detection to the next is one spell; what has gone
    returns with its uses, and as missed if we removed it. An image that may be there has not
    returned."""
    told, known, gone = Told(), dict[int, ImageRecord](), dict[int, ImageRecord]()
    now, looked_at, returned = 0.0, -1.0, list[tuple[str, str, bool, float]]()
    for (what, whom, used), step in history:
        now += step
        if isinstance(whom, int):
            told.records.forget(image_id(whom), now if what == "removed" else None)
            record = known.pop(whom, None)
            if record is not None and what == "removed":
                gone[whom] = replace(record, removed=True)
            now += 1.0
            continue
        for number in sorted(whom):
            record = known.get(number)
            if record is None:
                record = ImageRecord(now)
                if (before := gone.pop(number, None)) is not None:
                    name = image_id(number)
                    returned.append((name, name, before.removed, now + WALL))
                    record = replace(
                        record,
                        uses=before.uses,
                        returned=before.returned + before.removed,
                        counted_since=before.uses_since if before.uses else None,
                    )
            if number in (used or ()):
                spells = record.uses + (record.last_used != looked_at)
                record = replace(record, last_used=now, uses=spells)
            known[number] = record
        for number in known.keys() - whom:
            gone[number] = known.pop(number)
        looked_at = now
        found = told.see(*sorted(whom), at=now, used=used or ())
        assert found == {image_id(number): record for number, record in known.items()}
        assert told.records.gone == {image_id(number): record for number, record in gone.items()}
    assert told.returned() == returned


# ---- what comes back


def test_a_return_is_dated_by_the_pull() -> None:
    """The runtime says that it was pulled 60 s after the last detection, 40 s before this one."""
    told = Told((ONE, 5060.0), earlier=(9000.0, 50.0 + WALL - 9000.0))
    told.see(1, at=50.0)
    told.records.forget(ONE, 60.0)
    told.see(at=100.0)
    told.see(1, at=200.0)
    assert told.returned() == [(ONE, ONE, True, 5060.0)]


@pytest.mark.parametrize("there", [True, False])
def test_an_older_list_does_not_bring_back_what_was_removed_since(there: bool) -> None:
    """The list began before the removal, or up to a second before its detection. The next one
    tells."""
    told = Told()
    told.see(1, at=100.0)
    told.records.forget(ONE, 110.0)
    for began in (109.0, 110.5):
        assert told.see(1, at=began) == {ONE: ImageRecord(109.0)}, "it counts as new"
    assert (told.told, told.records.gone) == ([], {ONE: ImageRecord(100.0, removed=True)})
    told.see(*[1] * there, at=111.0)
    assert len(told.told) == there


def test_a_tag_that_comes_back_with_other_content_has_returned() -> None:
    """Unless the image itself is there again: then the tag has only moved. An image without a tag
    is nobody's."""
    told = Told()
    told.see(image(1, "app:1"), image(2, "<none>:<none>"), 3, at=100.0)
    for number in (1, 2, 3):
        told.records.forget(image_id(number), 110.0)
    found = told.see(image(4, "other:1", "app:1"), image(5, "<none>:<none>"), 6, at=200.0)
    assert found[image_id(4)].returned == 1
    told.records.forget(image_id(4), 210.0)
    told.see(image(7, "other:1"), 4, at=300.0)
    assert [each[:2] for each in told.returned()] == [(image_id(4), ONE), (image_id(4),) * 2]


def test_the_last_thousand_that_went_are_remembered() -> None:
    """A node that pulls for ever needs no more memory."""
    told = Told()
    for number in range(MOST_GONE + 9):
        told.see(number, at=float(number))
    assert list(told.records.gone) == [image_id(number) for number in range(8, MOST_GONE + 8)]


# ---- over a restart


def test_what_was_remembered_is_confirmed_or_gone() -> None:
    """What was in use at the last detection before is still the same use; what is not listed has
    gone, as what had gone before; and what this process knows is not overwritten."""
    told = Told()
    told.see(4, at=-300.0)
    loaded = {
        ONE: replace(USED, uses=3),
        TWO: replace(USED, last_used=-200.0, uses=3),
        image_id(3): replace(OLD, uses=7),
        image_id(4): OLD,
    }
    went = {image_id(5): replace(OLD, uses=4, returned=2, removed=True), image_id(4): OLD}
    told.records.restore(Loaded(loaded, went))
    assert told.records.records == loaded | {image_id(4): ImageRecord(-300.0)}
    assert told.records.gone.keys() == {image_id(5)}, "an image with a record is not gone"
    found = told.see(1, 2, 4, at=10.0, used=[1, 2])
    assert [(found[each].first_detected, found[each].uses) for each in (ONE, TWO)] == [
        (-500.0, 3),
        (-500.0, 4),
    ]
    assert told.records.gone[image_id(3)] == loaded[image_id(3)]
    found = told.see(3, 5, at=20.0)
    assert [(found[image_id(n)].uses, found[image_id(n)].returned) for n in (3, 5)] == [
        (7, 0),
        (4, 3),
    ]
    assert [each.by_us for each in told.told] == [False, True]


@rows("""
    pulled | first_detected | last_used | listed | what
    -      | -500           | -100      | -500   | nobody says when
    4400   | -500           | -100      | -500   | there for longer than remembered
    4610   | -290           | -100      | 10     | used since it was pulled
    4860   | -40            | -         | 10     | the use was another image's
    9000   | 10             | -         | 10     | as young as can be
""")
def test_what_was_brought_back_is_no_older_than_the_witness_says(
    pulled: str, first_detected: float, last_used: str, listed: float
) -> None:
    """It may have been removed and pulled again while no process detected images. Asked once."""
    told = Told(*[] if pulled == "-" else [(ONE, float(pulled))])
    told.records.restore(Loaded({ONE: USED}))
    found = told.see_one(at=10.0)
    assert found == told.see_one(at=20.0)
    assert (found.first_detected, found.listed_since) == (first_detected, listed)
    assert found.last_used == (None if last_used == "-" else float(last_used))
    assert told.asked == 1


def test_what_was_pulled_again_while_no_process_looked_has_returned() -> None:
    """A process was killed after a removal, before it saved that. Reported once; TWO, pulled a
    moment after its first detection as far as clocks can say, has stayed."""
    told = Told((ONE, 4860.0), (TWO, 4400.1))
    used = replace(OLD, uses=3)
    told.records.restore(Loaded({ONE: used, TWO: used}, saved=(-100.0, WALL - 100.0)))
    found = told.see(1, 2, at=10.0)
    assert (found[ONE].uses, found[ONE].returned) == (3, 0)
    assert told.see(1, 2, at=20.0) == found
    assert told.returned() == [(ONE, ONE, False, 4860.0)]


# ---- who can testify to an age


@pytest.mark.regression
@rows("""
    pulled | ago  | showed      | first_detected | what
    4100   | -    | -           | 100            | nobody knows what the wall clock showed before
    4100   | 600  | 4400        | -500           | known for 600 s: there for those
    4100   | 9000 | -4000       | -800           | known for longer than the image is there
    4100   | 9000 | -4600       | -200           | 10 min ahead since: pulled 5 min ago, or 15
    4100   | 9000 | -7600       | 100            | an hour ahead since: just now, for all that is known
    4100   | 9000 | -400        | -800           | set back since: 15 min ago at least
    4100   | 50   | -1000000000 | 100            | a clock that began in 1938
    5000   | 9000 | -4000       | 100            | now
    9000   | 9000 | -4000       | 100            | in the future
""")
def test_a_witness_counts_as_far_as_the_monotonic_clock_can_vouch_for_it(
    pulled: float, ago: str, showed: str, first_detected: str
) -> None:
    """An image is listed first at 5000 s of the wall clock, which has shown something so long ago.
    A use and another detection change nothing of when it was listed."""
    told = Told((ONE, pulled), earlier=None if ago == "-" else (float(ago), float(showed)))
    expected = ImageRecord(
        float(first_detected), first_listed=None if first_detected == "100" else 100.0
    )
    assert told.see(1, at=100.0) == {ONE: expected}
    used = told.see(1, at=200.0, used=[1])
    assert used == {ONE: replace(expected, last_used=200.0, uses=1)}
    assert (used[ONE].listed_since, told.asked) == (100.0, 1)


@pytest.mark.regression
def test_a_clock_that_is_set_forward_makes_no_pulled_image_old() -> None:
    """Between two detections an image is pulled and the clock jumps ahead by an hour; later it is
    set back."""
    told = Told((ONE, 5030.0), (TWO, 5030.0))
    told.see(at=100.0)
    assert told.see(1, at=160.0, wall=8660.0)[ONE] == ImageRecord(130.0, first_listed=160.0)
    assert told.see(1, 2, at=220.0, wall=5120.0)[TWO] == ImageRecord(160.0, first_listed=220.0)


@pytest.mark.regression
def test_what_was_missing_in_the_detection_before_is_no_older_than_that() -> None:
    """Whatever its witness says: the clock was wrong for a moment when it was pulled."""
    told = witnessed((ONE, 1000.0))
    told.see(2, at=100.0)
    assert told.see_one(at=160.0) == ImageRecord(100.0, first_listed=160.0)


@pytest.mark.regression
@rows("""
    saved_at | first_detected
    4400     | -500
    800      | 100
""")
def test_the_clocks_at_the_save_vouch_for_a_pull_since(
    saved_at: float, first_detected: float
) -> None:
    """The file of records is of this boot: since then the clock was not set, or an hour ahead."""
    told = Told((ONE, 4000.0))
    told.records.restore(Loaded({TWO: ImageRecord(-800.0)}, saved=(-500.0, saved_at)))
    found = told.see(1, 2, at=100.0)
    assert (found[ONE].first_detected, found[TWO].first_detected) == (first_detected, -800.0)


# ---- several entries of one id, several looks at once


@pytest.mark.regression
def test_an_entry_for_another_runtime_handler_makes_an_image_young() -> None:
    """A removal takes all entries. What was known stays known; one that goes changes nothing, until
    it is back; the image is gone when no handler has it. The later entry's tag is known."""
    told = Told()
    told.see(1, at=5.0, used=[1])
    both = ImageRecord(9.0, 5.0, first_listed=5.0, uses=1, counted_since=5.0, handlers=("", "kata"))
    assert told.see(1, KATA, at=9.0) == told.see(KATA, 1, at=10.0) == {ONE: both}
    assert told.see_one(KATA, at=11.0) == replace(both, handlers=("kata",))
    assert told.see_one(1, KATA, at=12.0) == replace(both, first_detected=12.0)
    assert (told.told, told.records.gone) == ([], {})
    told.records.forget(ONE, 13.0)
    assert told.see_one(1, KATA, at=20.0).returned == len(told.told) == 1
    assert Told().see_one(image(1, "a:1"), image(1, "b:1"), at=5.0) == ImageRecord(5.0, tag="b:1")


@pytest.mark.regression
def test_a_witness_of_an_id_says_nothing_of_an_entry_that_is_added_to_it() -> None:
    """It has seen the first pull; the one for another runtime handler is new, whether or not the
    first is still there, and also after a restart. Of two that are seen for the first time together
    neither is known to be the old one."""
    told, restored = witnessed((ONE, 4000.0)), witnessed((ONE, 4000.0))
    told.see(1, at=100.0)
    assert told.see_one(KATA, at=200.0).first_detected == 200.0
    restored.records.restore(Loaded({ONE: ImageRecord(-900.0)}))
    assert restored.see_one(1, KATA, at=100.0).first_detected == 100.0
    together = witnessed((ONE, 4000.0)).see_one(1, KATA, at=100.0)
    assert together == ImageRecord(100.0, handlers=("", "kata"))


def test_a_look_that_began_earlier_forgets_nothing_and_sets_nothing_back() -> None:
    """Two passes at a time: the one that listed before a pull reports after the one that saw the
    new image used. Nor is what a later look has confirmed missing for an earlier one."""
    told = Told()
    expected = told.see(1, 2, at=200.0, used=[1, 2])
    assert told.see(1, at=150.0, used=[1]) == expected
    assert told.see(1, at=250.0) == {ONE: expected[ONE]}
    old = witnessed((ONE, 0.0))
    old.see(1, at=100.0)
    old.see(1, at=0.0)
    assert old.see(at=50.0) == old.see(1, at=100.0)
    assert old.see(at=101.0) == {}


def test_what_is_forgotten_during_a_detection_stays_forgotten() -> None:
    """An image is removed, by another thread, while the detection that still lists it asks for the
    records of pulls: if it is pulled again, it is not as old as the one before."""
    told = Told(seed={ONE: ImageRecord(5.0)})
    removal = Interruption(lambda: told.records.forget(ONE))

    class Asked(PullRecords):
        """Asked about the image."""

        def pulled(self, image: Image, came: float | None = None) -> bool | None:
            """Not known; and the image is removed now."""
            removal.come()
            return None

    told.kubelets = Asked()
    told.see(1, at=100.0)
    removal.join()
    assert told.see_one(at=200.0).first_detected == 200.0


# ---- whether the kubelet has pulled an image

JUDGED = {
    "no record": PullRecords(complete_since=3999.0),  # of which none can be missing
    "a record": PullRecords(names=record_names(image(1))),
    "unknown": PullRecords(problem="not known"),
    "may be missing": PullRecords(),
}


@rows("""
    came | found                                      | known             | what
    4000 | no record                                  | False             | it was not
    4000 | a record                                   | True              | it was
    4000 | unknown, no record                         | None False        | once they are known
    4000 | may be missing, no record                  | None None         | decided: not known
    4000 | no record, a record                        | False True        | pulled later
    4000 | a record, no record                        | True True         | pruned later
    4000 | no record, may be missing, unknown         | False False False | once for all
    -    | no record, a record                        | None True         | nobody says when it came
    4000 | no record, gone, a record, gone, no record | False True False  | anew
""")
def test_whether_an_image_was_pulled_is_decided_once(came: str, found: str, known: str) -> None:
    """By what is known of the kubelet's records in detections one after the other. A missing record
    shows it only while none can be missing; one that was seen shows it for good."""
    told = witnessed(*[] if came == "-" else [(ONE, float(came))])
    answers = []
    for number, each in enumerate(found.split(", ")):
        now = 200.0 + 100.0 * number
        if each == "gone":
            told.records.forget(ONE, removed=now)
        else:
            told.kubelets = JUDGED[each]
            answers.append(str(told.see_one(at=now).pulled))
    assert " ".join(answers) == known


def test_what_was_known_of_pulls_survives_a_restart_but_not_another_pull() -> None:
    """ONE is the image that was there, by clocks that have drifted; TWO came again since, of which
    nothing is known."""
    told = witnessed((ONE, 3900.5), (TWO, 4990.0))
    then = ImageRecord(-1000.0)
    told.records.restore(
        Loaded({ONE: replace(then, pulled=False), TWO: replace(then, pulled=True)})
    )
    assert [each.pulled for each in told.see(1, 2, at=100.0).values()] == [False, None]
