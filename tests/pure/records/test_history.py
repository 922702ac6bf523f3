"""The history: what is recorded of a pass, what is asked of it and shown, and what removals cost."""

from __future__ import annotations

import json
from argparse import ArgumentTypeError
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eviction.cli.history import (
    history_lines,
    is_about,
    regret_lines,
    regret_sentence,
    selected,
    since,
)
from eviction.records.history import documents_of, pass_records
from eviction.records.json_shapes import to_json
from eviction.records.pass_json import outcome_json, pass_json
from eviction.records.regret import WINDOWS_SECONDS, Removal, images_of, regret_of, removals_of
from eviction.records.store import LARGEST_RECORD_BYTES
from reclaim.functions.caches import CACHE_UNIT
from reclaim.types import Kind, ReclaimResult, Result
from signals.quantity import parse_duration
from tests.expected import expect
from tests.pure.records.documents import (
    daemon_record,
    dropped_record,
    outcome,
    parked_ended_record,
    pass_of,
    periodic_pass,
    returned_record,
)
from tests.pure.values import MIB, image_id
from tests.rows import rows
from tests.schemas import assert_as_described

HERE = Path(__file__).parent
WALL = 1_800_000_000.0  # 2027-01-15T08:00:00Z
NAMES = st.text(max_size=600) | st.binary(max_size=300).map(
    lambda name: name.decode("utf-8", "surrogateescape")
)
LONG = "registry.example/" + "team/" * 30 + "app:1.2"
WENT = {
    "removed": (Result.REMOVED, Kind.IMAGE),
    "failed": (Result.FAILED, Kind.IMAGE),
    "parked": (Result.PARKED, Kind.IMAGE),
    "unit": (Result.REMOVED, CACHE_UNIT),
    "container": (Result.REMOVED, Kind.CONTAINER),
}
SOME = [outcome(1), outcome(2, LONG, Result.FAILED, error="it is busy")]
DOCUMENTS = list(
    documents_of(
        [
            daemon_record(WALL),
            *pass_records(pass_of(SOME), WALL),
            *pass_records(periodic_pass(ReclaimResult("container GC", (outcome(3),))), WALL),
            parked_ended_record(outcome(4), WALL),
            dropped_record(3, WALL),
            returned_record(5, WALL + 60),
        ]
    )
)


# ---- what is recorded


def test_what_happened_is_recorded_as_documents() -> None:
    """Each has a kind and a time. Of a pass there is all but what was observed and kept."""
    expect(HERE / "history.json", json.dumps(DOCUMENTS, indent=1) + "\n")
    whole = to_json(pass_json(pass_of(SOME)))
    assert whole["removals"] == DOCUMENTS[1]["removals"]
    assert whole.keys() - DOCUMENTS[1].keys() >= {"observations", "kept", "conditions"}


@given(st.lists(NAMES, min_size=1, max_size=60), NAMES)
def test_names_of_any_characters_come_back(names: list[str], error: str) -> None:
    """Also those that are no UTF-8, and control characters; each record fits."""
    outcomes = [outcome(number, name, Result.FAILED, error) for number, name in enumerate(names)]
    records = pass_records(pass_of(outcomes), WALL)
    (found,) = documents_of(records)
    assert found["removals"] == [to_json(outcome_json(each)) for each in outcomes]
    assert max(map(len, records)) <= LARGEST_RECORD_BYTES


def test_a_pass_of_a_thousand_removals_is_several_records_and_one_document() -> None:
    """What was written before a crash is a pass without the last of them."""
    record = pass_of([outcome(number, "x" * 2000) for number in range(1000)])
    records = pass_records(record, WALL)
    (found,), (torn,), (rest,) = map(list, map(documents_of, (records, records[:5], records[1:2])))
    assert [one["id"] for one in found["removals"]] == [one.verdict.id for one in record.removals]
    assert torn["removals"] == found["removals"][: len(torn["removals"])] != found["removals"]
    assert (rest["kind"], rest["pass"]) == ("removals", record.id)


@pytest.mark.parametrize("letter", ["x", "\x00", "\U0001f600"])
def test_sentences_without_end_are_cut(letter: str) -> None:
    """A runtime may say anything."""
    functions = tuple(
        ReclaimResult("f", error=f"{number}{letter * 10**4}") for number in range(100)
    )
    (record,) = pass_records(replace(pass_of(), reason="r" * 10**5, functions=functions), WALL)
    assert len(record) <= LARGEST_RECORD_BYTES
    (found,) = documents_of([record])
    assert (found["reason"][:3], found["errors"][0][:2]) == ("rrr", f"0{letter}")


# ---- what is asked


@rows("""
    text                        | time
    2h                          | 2027-01-15T06:00:00.000Z
    0s                          | 2027-01-15T08:00:00.000Z
    7d                          | 2027-01-08T08:00:00.000Z
    9999d                       | 1999-08-31T08:00:00.000Z
    2026-11-22T10:00:00.5+02:00 | 2026-11-22T08:00:00.500Z
    2026-11-22                  | 2026-11-22T00:00:00.000Z
""")
def test_since_is_a_duration_or_a_time(text: str, time: str) -> None:
    """Without a zone it is UTC, as everything else that is printed. Anything else is named, with
    what is allowed."""
    assert since(text, WALL) == time
    for wrong in ("", "yesterday", "-2h", "2", "10:00", "2026-13-01", "1e400d", f"{text}T"):
        with pytest.raises(ArgumentTypeError, match="such as 2h, ") as refusal:
            since(wrong, WALL)
        assert repr(wrong) in str(refusal.value)


def test_the_newest_are_chosen() -> None:
    """So many, or all since a time."""
    assert selected(DOCUMENTS) == selected(DOCUMENTS, limit=100) == DOCUMENTS
    assert selected(DOCUMENTS, limit=2) == DOCUMENTS[-2:]
    assert selected(DOCUMENTS, start="2027-01-15T08:01:00.000Z") == DOCUMENTS[-1:]


@rows("""
    about            | names
    example/app:1    | app:1
    team             | app:1.2
    app:4            | app:4
    app:5            | app:5
    sha256:000000050 | app:5
    0123456789ab     |
    no such          |
""")
def test_of_an_object_only_what_happened_to_it_is_chosen(about: str, names: str) -> None:
    """Its removals, in the passes and where they ended late, and its appearances; not by the id of
    a pass."""
    found = selected(DOCUMENTS, about=about)
    objects = [one for each in found for one in each.get("removals", [each])]
    assert [one["name"].rpartition("/")[2] for one in objects] == names.split()


@rows("""
    text             | is_it
    team/app         | yes
    app:1.2          | yes
    sha256:000000070 | yes
    00000007         | yes
    0000007          |
    sha256:0000007   |
    other            |
""")
def test_an_object_is_named_by_a_part_of_its_name_or_the_beginning_of_its_id(
    text: str, is_it: bool
) -> None:
    """With the algorithm of a digest or without it, and so much of it; no other part of an id."""
    removal: dict[str, Any] = {"id": image_id(7), "name": "registry.example/team/app:1.2"}
    assert is_about(removal, text) is is_it
    assert not is_about(removal, "0000000", shortest_id=8)
    assert is_about(removal, "00000007", shortest_id=8)


# ---- what is shown


def test_the_history_is_a_line_for_each_removal_and_each_pass() -> None:
    """Removals before their pass, the newest last. On a narrow terminal columns go in the stated
    order, a long name keeps its end, as the tag tells more than the registry, and a sentence its
    beginning."""
    shown = ["\n".join(history_lines(DOCUMENTS, width)) for width in (None, 120, 100, 80, 60)]
    expect(HERE / "history.txt", "\n\n".join(shown) + "\n")


@given(NAMES, st.integers(1, 300) | st.none())
def test_no_name_breaks_a_line(name: str, width: int | None) -> None:
    """Control characters are escaped; a line is one, at any width."""
    lines = history_lines(
        list(documents_of(pass_records(pass_of([outcome(1, name)]), WALL))), width
    )
    assert len(lines) == 3
    assert all(line.isprintable() for line in lines)
    if width is not None and width >= 60:
        assert max(map(len, lines)) <= width


# ---- what removals cost


def removals_in(story: str, gone: str = "", until: str = "") -> list[Removal]:
    """The removals in a story: when something happened, what, and to which images. In a pass each
    image freed 13 MiB and counted 24 MiB; what comes back has 20 MiB, and may have the tag of
    another one (`9=1`)."""
    records = list[bytes]()
    for event in story.split(", "):
        time, what, *images = event.split()
        at = WALL + parse_duration(time)
        for image in images or [""]:
            number, _, had_tag = image.partition("=")
            match what:
                case "started":
                    records.append(daemon_record(at))
                case "returned":
                    records.append(returned_record(int(number), at, int(had_tag or number)))
                case "ended":
                    records.append(parked_ended_record(outcome(int(number)), at))
        if what in WENT:
            result, kind = WENT[what]
            record = pass_of(
                [outcome(int(image), result=result, kind=kind) for image in images], identity=time
            )
            records += pass_records(replace(record, started_wall=at), at + 60)
    known = WALL + parse_duration(until) if until else None
    documents = list(documents_of(records))
    found = removals_of(documents, {image_id(int(each)) for each in gone.split()}, known)
    backwards = removals_of(
        reversed(documents), {image_id(int(each)) for each in gone.split()}, known
    )
    assert [each.came_back for each in backwards] == [each.came_back for each in found]
    return found


# each image, when it was removed, and after how long it came back
@rows("""
    story                                                                                      | found
    0 removed 1 2, 1s failed 3, 20m returned 1, 24h removed 1, 26h returned 1, 48h returned 1 | 1@0.0:1200.0 2@0.0:None 1@86400.0:7200.0
    0 removed 1, 50s returned 9=8, 60s returned 9=1                                           | 1@0.0:60.0
    30s returned 1, 0 removed 1                                                               | 1@0.0:30.0
    0 parked 1, 90s ended 1                                                                   | 1@90.0:None
    0 removed 1, 2h removed 1                                                                 | 1@0.0:7200.0 1@7200.0:None
    0 unit 1, 2h unit 1, 3h container 1                                                       | 1@0.0:7200.0 1@7200.0:None
""")
def test_a_removed_image_is_joined_with_its_next_appearance(story: str, found: str) -> None:
    """Or with that of its tag; which may be before the end of the pass. A removal that ended late
    counts, one that failed does not; what is removed again had come back, a unit of a cache, too.
    Containers do not."""
    assert found == " ".join(
        f"{int(each.id[7:15], 16)}@{each.at - WALL}:{each.came_back}" for each in removals_in(story)
    )


# which are still gone, until when it is known, and what is known within an hour, a day, a week
@rows("""
    story                                                   | gone | until | fate
    -1s started, 0 removed 1, 1h returned 1                 |      |       | returned returned returned
    -1s started, 0 removed 1, 3601s returned 1              |      |       | not_returned returned returned
    0 removed 1, 192h returned 1                            |      |       | not_returned not_returned not_returned
    0 removed 1                                             | 1    | 2h    | not_returned not_over not_over
    0 removed 1                                             | 1    | 192h  | not_returned not_returned not_returned
    0 removed 1                                             |      | 192h  | unknown unknown unknown
    0 removed 1                                             | 2    | 192h  | unknown unknown unknown
    0 removed 1                                             |      |       | unknown unknown unknown
    0 removed 1, 2h returned 7, 30h started, 30h returned 1 |      |       | not_returned unknown returned
    0 removed 1, 30h started, 30h returned 1                |      |       | unknown unknown returned
    0 removed 1, 2h removed 1                               |      |       | unknown returned returned
""")
def test_an_image_came_back_within_a_time_or_not_or_nobody_knows(
    story: str, gone: str, until: str, fate: str
) -> None:
    """Unknown is not "not returned": nobody remembers the image, or no daemon ran all the while."""
    within = regret_of(removals_in(story, gone, until)[:1]).within
    known = [
        [each for each, count in within[window].items() if count] for window in WINDOWS_SECONDS
    ]
    assert known == [[each] for each in fate.split()]


def test_the_cost_is_told_of_all_and_of_each_image_the_worst_first() -> None:
    """Three removals freed 39 MiB, 20 MiB came back: 525 MiB for each GiB; and what is known within
    each time. Why says it in a sentence."""
    found = removals_in("0 removed 1 2, 5s removed 3, 60s returned 2", "1", "2h")
    regret = regret_of(found)
    assert (regret.soonest_seconds, regret.returned_bytes, regret.returned_bytes_per_gib) == (
        *(60.0, 20 * MIB, round(20 / 39 * 2**30)),
    )
    shown = ["\n".join(regret_lines(regret, width)) for width in (None, 80, 60)]
    shown.append("\n".join(regret_sentence(each.name, each) for each in images_of(found)))
    expect(HERE / "regret.txt", "\n\n".join(shown) + "\n")
    assert len(regret_of(found, limit=1).images) == 1
    assert_as_described(to_json(regret))
    assert_as_described(to_json(regret_of([])))
