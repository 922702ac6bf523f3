"""Records of images as text and back: the clocks, and what is refused.

What is known of an image must not change with a restart: old stays old and young stays young,
whatever happened to the wall clock in between.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eviction.records import state_file as json_of
from eviction.records.state_file import Moment
from reclaim.types import ImageRecord
from tests.pure.values import image_id

DAY = 86_400.0
ONE, TWO = image_id(1), image_id(2)
SAVED = Moment(monotonic=50_000.0, wall=1_800_000_000.0, boot_id="boot-1")
RECORDS = {ONE: ImageRecord(40_000.0, 49_000.0), TWO: ImageRecord(-5 * DAY)}


def records_json(records: dict[str, ImageRecord], saved: Moment) -> bytes:
    """The text of records, when nothing has gone."""
    return json_of.records_json(records, saved, {})


TEXT = records_json(RECORDS, SAVED)


def records_from_json(text: bytes, now: Moment) -> dict[str, ImageRecord]:
    """The records alone."""
    return dict(json_of.records_from_json(text, now).records)


def ages(records: dict[str, ImageRecord], now: float) -> dict[str, tuple[float, float | None]]:
    """Seconds since first detection and since last use, to the millisecond."""
    return {
        known: (
            round(now - record.first_detected, 3),
            None if record.last_used is None else round(now - record.last_used, 3),
        )
        for known, record in records.items()
    }


AT_SAVE = ages(RECORDS, SAVED.monotonic)


def later(seconds: float) -> dict[str, tuple[float, float | None]]:
    """The ages at the save, and so many seconds more."""
    return {
        known: (first + seconds, None if used is None else used + seconds)
        for known, (first, used) in AT_SAVE.items()
    }


def loaded(
    monotonic: float, wall_after_save: float, boot_id: str
) -> dict[str, tuple[float, float | None]]:
    """The ages after a load at this moment."""
    return ages(
        records_from_json(TEXT, Moment(monotonic, SAVED.wall + wall_after_save, boot_id)), monotonic
    )


@pytest.mark.regression
def test_the_runtime_handlers_of_an_image_survive() -> None:
    """An entry for another one that is added meanwhile makes it young."""
    records = {ONE: ImageRecord(40_000.0, handlers=("", "kata-clh"))}
    assert records_from_json(records_json(records, SAVED), SAVED) == records


def test_when_an_image_was_listed_first_survives() -> None:
    """Beside an older age that the runtime told."""
    records = {ONE: ImageRecord(40_000.0, first_listed=45_000.0)}
    assert records_from_json(records_json(records, SAVED), SAVED) == records


def test_how_often_an_image_was_used_and_returned_survives() -> None:
    """A reboot changes nothing of it."""
    records = {ONE: ImageRecord(40_000.0, 49_000.0, uses=7, returned=2)}
    text = records_json(records, SAVED)
    assert records_from_json(text, Moment(60.0, SAVED.wall + 60.0, "boot-2"))[ONE].uses == 7
    assert records_from_json(text, SAVED) == records


@pytest.mark.parametrize(
    ("now", "known"),
    [
        (replace(SAVED, monotonic=60_000.0), True),
        (replace(SAVED, boot_id="boot-2"), False),
        (replace(SAVED, boot_id=""), False),
        (replace(SAVED, monotonic=40_000.0), False),
    ],
)
def test_the_moment_of_the_save_is_known_in_the_same_boot(now: Moment, known: bool) -> None:
    """In another one its monotonic time means nothing."""
    loaded = json_of.records_from_json(TEXT, now)
    assert loaded.saved == ((SAVED.monotonic, SAVED.wall) if known else None)
    assert loaded.at == SAVED.wall


def test_what_has_gone_survives() -> None:
    """In its order, in any boot, where times are ages."""
    went = ImageRecord(
        40_000.0, uses=3, returned=1, counted_since=SAVED.monotonic - DAY, tag="app:1", removed=True
    )
    gone = {TWO: went, ONE: ImageRecord(40_000.0)}
    text = json_of.records_json(RECORDS, SAVED, gone)
    found = json_of.records_from_json(text, SAVED)
    assert (found.gone, list(found.gone)) == (gone, [TWO, ONE])
    rebooted = json_of.records_from_json(text, Moment(50.0, SAVED.wall + DAY, "boot-2")).gone[TWO]
    assert rebooted == replace(went, first_detected=50.0 - 10_000.0, counted_since=50.0 - DAY)


def test_times_in_the_text_are_wall_time() -> None:
    """They can be read by people, and the moment of the save stands beside them in both clocks."""
    document = json.loads(TEXT)
    times = {
        "first_detected": SAVED.wall - 10_000.0,
        "last_used": SAVED.wall - 1_000.0,
        "first_listed": None,
    }
    others = {
        "uses": 0,
        "returned": 0,
        "pulled": None,
        "counted_since": None,
        "handlers": [""],
        "tag": "",
    }
    assert document["images"][ONE] == {**times, **others, "removed": False}
    assert document["images"][TWO]["last_used"] is None
    assert document["saved"] == {
        "monotonic": 50_000.0,
        "wall": SAVED.wall,
        "boot_id": "boot-1",
        "machine_id": "",
    }
    assert (document["kind"], document["version"]) == ("reclaimd.io/image-records", 1)


@pytest.mark.parametrize("stepped", [0.0, -DAY, -10_000 * DAY, DAY, 10_000 * DAY])
def test_a_restart_in_the_same_boot_does_not_care_for_the_wall_clock(stepped: float) -> None:
    """60 s later by the monotonic clock everything is 60 s older, whatever
    the wall clock was set to.
    """
    assert loaded(50_060.0, 60.0 + stepped, "boot-1") == later(60.0)


@pytest.mark.parametrize("wall_after_save", [0.0, 300.0, DAY, 10_000 * DAY])
def test_after_a_reboot_everything_is_as_old_as_at_the_save(wall_after_save: float) -> None:
    """A wall clock that was set forward, by however much, makes no young image ancient."""
    assert loaded(20.0, wall_after_save, "boot-2") == later(0.0)


def test_after_a_reboot_with_the_clock_an_hour_behind_old_images_stay_old() -> None:
    """They are an hour younger; what is younger than the hour is as young as can be."""
    assert loaded(20.0, -3600.0, "boot-2") == {
        ONE: (6_400.0, 0.0),
        TWO: (5 * DAY + 50_000.0 - 3600.0, None),
    }


def test_after_a_reboot_with_a_dead_clock_everything_is_young() -> None:
    """The wall clock is before all times of the text: no image is older than that."""
    assert loaded(20.0, -20_000 * DAY, "boot-2") == {ONE: (0.0, 0.0), TWO: (0.0, None)}


@pytest.mark.regression
def test_records_of_another_machine_are_not_used() -> None:
    """A disk image that was cloned carries them: the images of this node were pulled
    when it was made, or later.
    """
    here = Moment(20.0, SAVED.wall, "boot-2", "machine-2")
    with pytest.raises(ValueError, match="it is of another machine"):
        records_from_json(records_json(RECORDS, replace(SAVED, machine_id="machine-1")), here)


@pytest.mark.parametrize(
    ("written", "read"),
    [("", "machine-1"), ("machine-1", ""), ("", ""), ("machine-1", "machine-1")],
)
def test_a_machine_that_is_not_known_is_no_other_one(written: str, read: str) -> None:
    """Not every machine has an id: the rules of boots hold."""
    text = records_json(RECORDS, replace(SAVED, machine_id=written))
    found = records_from_json(text, Moment(50_060.0, SAVED.wall + 60.0, "boot-1", read))
    assert ages(found, 50_060.0) == later(60.0)


@pytest.mark.parametrize(("monotonic", "boot_id"), [(10.0, "boot-1"), (60_000.0, "")])
def test_without_comparable_monotonic_clocks_it_is_as_after_a_reboot(
    monotonic: float, boot_id: str
) -> None:
    """A monotonic clock that went back (another time namespace), or a boot that is not known."""
    assert loaded(monotonic, 9_000.0, boot_id) == later(0.0)


def test_two_boots_that_are_not_known_are_not_the_same() -> None:
    """An empty id says nothing."""
    text = records_json(RECORDS, Moment(50_000.0, SAVED.wall, ""))
    found = records_from_json(text, Moment(60_000.0, SAVED.wall + 9_000.0, ""))
    assert ages(found, 60_000.0) == later(0.0)


def changed(change: dict[str, object], image: object = None) -> bytes:
    """A good text with other fields, or with one image of this content."""
    document = json.loads(TEXT) | change
    if image is not None:
        document["images"] = {ONE: image}
    return json.dumps(document).encode()


OF_NO_RECORD: tuple[object, ...] = (
    7,
    {},
    {"first_detected": float("nan")},
    {"first_detected": float("inf")},
    {"first_detected": 10**400},
    {"first_detected": "1"},
    {"first_detected": 1.0, "last_used": -1e300},
    {"first_detected": 1.0, "last_used": "x"},
    {"first_detected": 1.0, "uses": True},
    {"first_detected": 1.0, "uses": 10**30},
    {"first_detected": 1.0, "uses": -1},
    {"first_detected": 1.0, "returned": "1"},
    {"first_detected": 1.0, "returned": 2 * 10**9},
    {"first_detected": 1.0, "pulled": 1},
    {"first_detected": 1.0, "tag": 7},
)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        TEXT[:-20],
        b"\xff\xfe\x00\x00\x80",
        b"[" * 200_000,
        b"1" * 10_000,
        b"[]",
        b"null",
        changed({"kind": "other"}),
        changed({"version": 2}),
        changed({"version": "1"}),
        changed({"saved": None}),
        changed({"saved": {"wall": 1.0}}),
        changed({"saved": {"wall": "x", "monotonic": 1.0, "boot_id": ""}}),
        changed({"saved": {"wall": True, "monotonic": 1.0, "boot_id": ""}}),
        changed({"saved": {"wall": float("nan"), "monotonic": 1.0, "boot_id": SAVED.boot_id}}),
        changed({"saved": {"wall": 1.0, "monotonic": -1e300, "boot_id": SAVED.boot_id}}),
        changed({"saved": {"wall": 1.0, "monotonic": -1e9, "boot_id": SAVED.boot_id}}),
        changed({"saved": {"wall": 1.0, "monotonic": 1.0, "boot_id": "", "machine_id": 7}}),
        changed({"images": []}),
        changed({"gone": []}),
        *(changed({}, entry) for entry in OF_NO_RECORD),
        *(changed({"gone": {ONE: entry}}) for entry in OF_NO_RECORD),
    ],
)
def test_what_cannot_be_believed_is_refused_in_a_sentence(text: bytes) -> None:
    """The whole of it: losing it is harmless, half of it is not worth the doubt."""
    with pytest.raises(
        ValueError, match=r"^it (is no file of image records|holds an impossible (time|number))"
    ):
        records_from_json(text, SAVED)


def test_fields_that_are_not_known_are_passed_over() -> None:
    """A later version may write more beside what this one reads."""
    text = changed(
        {"comment": "hello"}, {"first_detected": SAVED.wall - 5.0, "last_used": None, "size": 7}
    )
    assert ages(records_from_json(text, SAVED), SAVED.monotonic) == {ONE: (5.0, None)}


def test_a_time_after_the_save_is_as_young_as_can_be() -> None:
    """No image was first seen after its record was written."""
    text = changed({}, {"first_detected": SAVED.wall + DAY, "last_used": SAVED.wall + DAY})
    assert records_from_json(text, SAVED) == {ONE: ImageRecord(SAVED.monotonic, SAVED.monotonic)}


seconds = st.floats(0, 10 * DAY)
histories = st.dictionaries(
    st.integers(1, 9).map(image_id),
    st.tuples(seconds, st.none() | st.floats(0, 1)).map(
        lambda one: ImageRecord(
            SAVED.monotonic - one[0], None if one[1] is None else SAVED.monotonic - one[0] * one[1]
        )
    ),
)


@given(histories, seconds, st.floats(-2e9, 2e9), st.booleans())
def test_a_restart_makes_no_young_image_old_and_no_old_one_young(
    records: dict[str, ImageRecord], away: float, stepped: float, rebooted: bool
) -> None:
    """Whatever the wall clock did: nothing ages by more than has passed; in the same
    boot by exactly that, and after a reboot nothing is younger than at the save unless
    the clock was set back."""
    boot, monotonic = ("boot-2", 5.0) if rebooted else (SAVED.boot_id, SAVED.monotonic + away)
    now = Moment(monotonic, SAVED.wall + away + stepped, boot)
    found = records_from_json(records_json(records, SAVED), now)
    assert found.keys() == records.keys()
    for known, record in records.items():
        for before, after in (
            (record.first_detected, found[known].first_detected),
            (record.last_used, found[known].last_used),
        ):
            assert (before is None) == (after is None)
            if before is None or after is None:
                continue
            age_before, age_after = SAVED.monotonic - before, monotonic - after
            assert -1e-3 <= age_after <= age_before + away + 1e-3
            if not rebooted:
                assert age_after == pytest.approx(age_before + away, abs=1e-3)
            elif away + stepped >= 0:
                assert age_after == pytest.approx(age_before, abs=1e-3)


@given(
    st.binary(max_size=300)
    | st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["kind", "version", "saved", "images", "wall", ONE]),
                inner,
                max_size=4,
            )
        ),
    ).map(lambda value: json.dumps(value).encode())
)
def test_bytes_of_any_kind_are_records_or_refused(text: bytes) -> None:
    """Nothing else is ever raised."""
    try:
        found = records_from_json(text, SAVED)
    except ValueError:
        return
    assert all(record.first_detected <= SAVED.monotonic for record in found.values())


@given(st.integers(0, len(TEXT) - 1), st.integers(0, 255))
def test_one_changed_byte_never_raises_and_never_makes_the_future(place: int, byte: int) -> None:
    """A flipped byte in a good text: refused, or times that are not after now."""
    text = bytearray(TEXT)
    text[place] = byte
    try:
        found = records_from_json(bytes(text), SAVED)
    except ValueError:
        return
    assert all(record.first_detected <= SAVED.monotonic for record in found.values())


def test_whether_an_image_was_pulled_survives() -> None:
    """Also that it is not known."""
    records = {
        image_id(number): ImageRecord(0.0, pulled=told)
        for number, told in enumerate((True, False, None))
    }
    assert records_from_json(records_json(records, SAVED), SAVED) == records
