"""What the history records of a pass: every removal, in records that fit,
whatever the names are made of.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from eviction.records.history import documents_of, pass_records
from eviction.records.json_shapes import to_json
from eviction.records.pass_json import outcome_json, pass_json
from eviction.records.store import LARGEST_RECORD_BYTES
from reclaim.types import ReclaimResult, Result
from tests.pure.records.documents import (
    daemon_record,
    dropped_record,
    outcome,
    parked_ended_record,
    pass_of,
)

WALL = 1_800_000_001.5
NAMES = st.text(max_size=600) | st.binary(max_size=300).map(
    lambda name: name.decode("utf-8", "surrogateescape")
)


def test_a_pass_is_recorded_with_its_removals_and_amounts() -> None:
    """In the fields of the record of a pass; what was observed and kept is left out."""
    record = pass_of([outcome(1), outcome(2, result=Result.FAILED, error="it is busy")])
    (found,) = documents_of(pass_records(record, WALL))
    whole = to_json(pass_json(record))
    assert found["removals"] == whole["removals"]
    for name in (
        "id",
        "started",
        "functions",
        "trigger",
        "acted_on",
        "row",
        "measured",
        "nominal",
        "result",
        "reason",
        "timings",
    ):
        assert found[name] == whole[name]
    assert (found["kind"], found["time"]) == ("pass", "2027-01-15T08:00:01.500Z")
    assert found["removals_by_result"] == {"image": {"removed": 1, "failed": 1}}
    assert not found.keys() & {"observations", "kept", "conditions"}


@given(st.lists(NAMES, min_size=1, max_size=60), NAMES)
def test_names_of_any_characters_come_back(names: list[str], error: str) -> None:
    """Also those that are no UTF-8, and control characters; each record fits."""
    outcomes = [outcome(number, name, Result.FAILED, error) for number, name in enumerate(names)]
    records = pass_records(pass_of(outcomes), WALL)
    (found,) = documents_of(records)
    assert found["removals"] == [to_json(outcome_json(each)) for each in outcomes]
    assert all(len(record) <= LARGEST_RECORD_BYTES for record in records)


def test_a_pass_of_a_thousand_removals_is_several_records_and_one_document() -> None:
    """What was written before a crash is a pass without the last of them."""
    record = pass_of([outcome(number, "x" * 2000) for number in range(1000)])
    records = pass_records(record, WALL)
    assert len(records) > 10
    (found,) = documents_of(records)
    assert [removal["id"] for removal in found["removals"]] == [
        each.verdict.id for each in record.removals
    ]
    (torn,) = documents_of(records[:5])
    assert torn["removals"] == found["removals"][: len(torn["removals"])]
    (rest,) = documents_of(records[1:2])
    assert (rest["kind"], rest["pass"]) == ("removals", record.id)


def test_sentences_without_end_are_cut() -> None:
    """A runtime may say anything."""
    long = replace(pass_of(), reason="r" * 10**6)
    for letter in ("x", "\x00", "\U0001f600"):
        functions = tuple(
            ReclaimResult("DeleteUnusedImages", error=f"{number}{letter * 10**5}")
            for number in range(100)
        )
        (record,) = pass_records(replace(long, functions=functions), WALL)
        assert len(record) <= LARGEST_RECORD_BYTES
        (found,) = documents_of([record])
        assert found["reason"].startswith("rrr")
        assert found["errors"][0].startswith(f"0{letter}")


def test_the_other_events_have_a_kind_and_a_time() -> None:
    """Start, parked removal, dropped records."""
    records = [daemon_record(WALL), parked_ended_record(outcome(1), WALL), dropped_record(12, WALL)]
    found = list(documents_of(records))
    assert [document["kind"] for document in found] == ["started", "parked_ended", "dropped"]
    assert {document["time"] for document in found} == {"2027-01-15T08:00:01.500Z"}
    assert found[1]["removals"][0]["name"] == "registry.example/app:1"
    assert found[0] == {
        "kind": "started",
        "time": found[0]["time"],
        "version": "0.1.0",
        "pid": 7,
    }
