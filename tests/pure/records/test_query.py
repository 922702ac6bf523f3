"""What is asked of the history: from when, which object, how many."""

from __future__ import annotations

from argparse import ArgumentTypeError
from typing import Any

import pytest

from eviction.cli.history import is_about, selected, since
from eviction.records.history import documents_of, pass_records
from tests.pure.records.documents import outcome, parked_ended_record, pass_of, returned_record
from tests.pure.values import image_id

NOW = 1_800_000_000.0  # 2027-01-15T08:00:00Z


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("2h", "2027-01-15T06:00:00.000Z"),
        ("0s", "2027-01-15T08:00:00.000Z"),
        ("7d", "2027-01-08T08:00:00.000Z"),
        ("1h30m", "2027-01-15T06:30:00.000Z"),
        ("2026-11-22T10:00:00Z", "2026-11-22T10:00:00.000Z"),
        ("2026-11-22T10:00:00.5+02:00", "2026-11-22T08:00:00.500Z"),
        ("2026-11-22", "2026-11-22T00:00:00.000Z"),
    ],
)
def test_since_is_a_duration_or_a_time(text: str, time: str) -> None:
    """Without a zone it is UTC, as everything else that is printed."""
    assert since(text, NOW) == time


@pytest.mark.parametrize(
    "text", ["", "yesterday", "-2h", "2", "10:00", "2026-13-01", "9999d", "1e400d", "2027-01-15T"]
)
def test_a_since_that_is_no_time_is_refused(text: str) -> None:
    """Named, with what is allowed."""
    if text == "9999d":
        assert since(text, NOW) < "2000"
        return
    with pytest.raises(ArgumentTypeError) as refusal:
        since(text, NOW)
    assert repr(text) in str(refusal.value)
    assert "2h" in str(refusal.value)


def documents() -> list[dict[str, Any]]:
    """Three passes of two removals each, a minute apart, and a parked removal that ended."""
    records = []
    for number in range(3):
        outcomes = [
            outcome(10 * number),
            outcome(10 * number + 1, f"registry.example/base:{number}"),
        ]
        records += pass_records(pass_of(outcomes, identity=f"pass-{number}"), NOW + 60 * number)
    records.append(parked_ended_record(outcome(99, "registry.example/late:1"), NOW + 300))
    return list(documents_of(records))


def test_everything_comes_in_its_order_and_a_limit_keeps_the_newest() -> None:
    """The newest last."""
    whole = documents()
    assert selected(whole) == whole
    assert selected(whole, limit=2) == whole[-2:]
    assert selected(whole, limit=100) == whole
    assert selected(whole, start="2027-01-15T08:01:00.000Z") == whole[1:]


def test_of_an_object_only_its_removals_are_shown() -> None:
    """In the passes that removed it, and where its removal ended late."""
    found = selected(documents(), about="registry.example/base")
    assert [[removal["name"] for removal in document["removals"]] for document in found] == [
        [f"registry.example/base:{number}"] for number in range(3)
    ]
    assert [document["kind"] for document in selected(documents(), about="late")] == [
        "parked_ended"
    ]
    assert selected(documents(), about="no such") == []


def test_an_appearance_is_found_by_the_image() -> None:
    """Beside its removals; not by the id of a pass."""
    whole = [*documents(), *documents_of([returned_record(10, NOW + 400)])]
    assert [document["kind"] for document in selected(whole, about="app:10")] == [
        "pass",
        "returned",
    ]
    assert selected(whole, about=image_id(10)[:16])[-1] == whole[-1]
    assert selected(whole, about="pass-1") == []


def test_an_object_is_named_by_a_part_of_its_name_or_the_beginning_of_its_id() -> None:
    """With the algorithm of a digest or without it; no other part of an id."""
    removal = {"id": image_id(7), "name": "registry.example/team/app:1.2"}
    digest = image_id(7).removeprefix("sha256:")
    for text in (
        "team/app",
        "app:1.2",
        "registry.example/team/app:1.2",
        image_id(7),
        digest,
        digest[:12],
    ):
        assert is_about(removal, text)
    for text in ("other", digest[1:13], "sha256:" + digest[1:]):
        assert not is_about(removal, text)
    assert not is_about(removal, digest[:7], shortest_id=8)
    assert is_about(removal, digest[:8], shortest_id=8)
