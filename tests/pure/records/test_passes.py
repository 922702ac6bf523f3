"""What a pass has gained, its result with the reason, and its JSON form, on which scripts rely; the
history: what is recorded of passes, what is asked of it and shown, and what removals cost."""

import json
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
from eviction.records.pass_json import outcome_json, pass_json, pass_summary
from eviction.records.passes import Pass, PassResult, Timings, Trigger, freed_in_words, with_result
from eviction.records.regret import WINDOWS_SECONDS, Removal, images_of, regret_of, removals_of
from eviction.records.store import LARGEST_RECORD_BYTES
from eviction.surface.requests import exit_code
from eviction.types import NodeCondition
from reclaim.functions.caches import CACHE_UNIT
from reclaim.types import (
    Action,
    Amounts,
    Kind,
    Outcome,
    Reason,
    ReclaimResult,
    Result,
    Usage,
    Verdict,
)
from signals.quantity import parse_duration
from signals.types import FilesystemIdentity, Signal
from tests.expected import expect
from tests.pure.records.documents import (
    a_pass,
    daemon_record,
    dropped_record,
    outcome,
    parked_ended_record,
    pass_of,
    periodic_pass,
    returned_record,
)
from tests.pure.values import GIB, MIB, image_id, observation, observations_of, threshold
from tests.rows import rows
from tests.schemas import assert_as_described

NODEFS, IMAGEFS = Signal.NODEFS_AVAILABLE, Signal.IMAGEFS_AVAILABLE
LOW = replace(threshold(NODEFS, "10%", min_reclaim="2%"), origin="flag")
SHORT = threshold(NODEFS, "10%", min_reclaim="89Gi")
ROW = ("DeleteAllUnusedContainers", "DeleteUnusedImages")
CLEAR = observations_of(observation(NODEFS, 50 * GIB))
VERDICT = Verdict(
    Kind.IMAGE, "sha256:1", "app:1", Action.REMOVE, Reason.UNUSED, 10 * MIB, 7200.12345678
)
GONE, FAILED, PLANNED = (
    Outcome(VERDICT, result, duration_seconds=0.25, freed=Amounts(2 * MIB, 3))
    for result in (Result.REMOVED, Result.FAILED, Result.PLANNED)
)
LAST = VERDICT._replace(last_resort=True)
BECAME = {
    "gone": GONE,
    "planned": PLANNED,
    "last": GONE._replace(verdict=LAST),
    "failed": FAILED._replace(verdict=LAST),
    "last-planned": PLANNED._replace(verdict=LAST),
}
NOT_NEEDED = Outcome(VERDICT._replace(action=Action.KEEP, reason=Reason.RELIEVED))
STAYS = Outcome(Verdict(Kind.CONTAINER, "c", "pod/app#0", Action.KEEP, Reason.RUNNING))
PINNED = STAYS._replace(verdict=STAYS.verdict._replace(reason=Reason.PINNED))


def record(*outcomes: Outcome, **fields: Any) -> Pass:
    """A pass with these outcomes that measured 20 MiB and 30 inodes; `fields` replace values of it
    and of its function."""
    of_function = {
        name: fields.pop(name)
        for name in ("kept", "eligible_in_seconds", "error")
        if name in fields
    }
    usual = a_pass(
        replace(ReclaimResult(ROW[1], outcomes), **of_function),
        met=LOW,
        row=fields.pop("row", ROW),
        observations=CLEAR,
        measured=Amounts(20 * MIB, 30),
        after=CLEAR,
    )
    return replace(usual, **fields)


@given(*[st.tuples(*[st.integers(0, 100)] * 3)] * 2)
def test_the_larger_of_two_gains_counts(
    before: tuple[int, int, int], after: tuple[int, int, int]
) -> None:
    """While an ext4 is within its reserve for root, available bytes stay 0 and free bytes already
    rise."""
    available, free, inodes = (
        later - earlier for earlier, later in zip(before, after, strict=True)
    )
    assert Usage(*after).gained_since(Usage(*before)) == (max(available, free), inodes)


AWAY = ReclaimResult("f", error="away")
YOUNG = tuple(ReclaimResult("f", eligible_in_seconds=each) for each in (30.0, 90.0, None))
GIVEN: dict[str, dict[str, Any]] = {
    "low": {"still_met": (LOW,)},
    "short": {"still_met": (SHORT,)},
    "lost": {"error": "lost"},
    "away": {"functions": (AWAY, AWAY)},
    "in-90-s": {"eligible_in_seconds": 90.0},
    "in-30-s": {"functions": YOUNG},
    "stale": {"after": observations_of(observation(IMAGEFS, 50 * GIB, stale=True))},
    "unread": {"after": observations_of()},
    "not-needed": {"kept": (NOT_NEEDED,)},
    "no-row": {"row": ()},
}
"""What a pass came to, by a word of the table."""


@rows("""
    removed          | given          | result     | code | reason
    gone             |                | satisfied  | 0    | no threshold is met any more
    gone             | lost           | satisfied  | 0    | no threshold is met any more
                     | low lost       | failed     | 3    | lost
                     | low away       | failed     | 3    | away
    gone             | low            | not_enough | 1    | nodefs.available; everything else is in use or protected
    gone             | low lost       | not_enough | 1    | nodefs.available; lost
    gone failed      | low in-90-s    | not_enough | 1    | nodefs.available; 1 removal failed, the next object is old enough in 90 s
                     | low in-30-s    | not_enough | 1    | nodefs.available; the next object is old enough in 30 s
    gone             | stale          | not_enough | 1    | nodefs.available is not readable, imagefs.available is not readable; everything else is in use or protected
    last             | low            | not_enough | 1    | nodefs.available; everything else is in use or protected; nothing else was enough, so 1 image went that the kubelet had not pulled
    gone             | unread         | not_enough | 1    | nodefs.available is not readable; everything else is in use or protected
                     | short          | not_enough | 1    | nodefs.available (above its mark, short of its minimum reclaim); everything else is in use or protected
                     | low not-needed | not_enough | 1    | nodefs.available; the rest was not needed for what its row relieves
                     | low no-row     | not_enough | 1    | nodefs.available; nothing in this layout relieves it: its row of the reclaim table is empty
    planned planned  | low            | dry_run    | 0    | would free ~20.0MiB with 2 objects
    last-planned     |                | dry_run    | 0    | would free ~10.0MiB with 1 object; nothing else was enough, so 1 image went that the kubelet had not pulled
    none-planned     | lost           | failed     | 3    | lost
    planned          | lost           | dry_run    | 3    | could not read everything: lost; of the rest it would free ~10.0MiB with 1 object
""")
def test_the_result_of_a_pass_depends_on_the_thresholds_not_on_its_errors(
    removed: str, given: str, result: str, code: int, reason: str
) -> None:
    """Satisfied when no threshold is met, and all can be read; failed when nothing could be done;
    else not enough, with the reason, each once; and it says that an image went that the kubelet had
    not pulled, but not of one that failed to. A dry run that could list nothing has failed: that
    nothing would be removed is not known then. What could be listed stands beside what could not,
    and the exit code is that of a runtime that is away."""
    fields = {name: value for word in given.split() for name, value in GIVEN[word].items()}
    outcomes = [BECAME[each] for each in removed.split() if each in BECAME]
    ended = with_result(record(*outcomes, **fields), dry_run="planned" in removed)
    count = "1 object" if removed else "0 objects"
    begins = {
        "satisfied": f"removed {count}, freed 20.0MiB and 30 inodes; ",
        "not_enough": f"removed {count}, freed 20.0MiB and 30 inodes; still under pressure: ",
    }
    found = ended.result, exit_code(ended), ended.reason
    assert found == (result, code, begins.get(result, "") + reason)


MARKS = {
    "low": LOW,
    "inodes": threshold(Signal.NODEFS_INODES_FREE, "10%"),
    "fifth": threshold(IMAGEFS, "20%"),
}


@rows("""
    available | foreseen | met        | verdict
    8 40      | 13 40    | low        | : nodefs 8% → 13% available, enough
    8 40      | 11 40    | low        | : nodefs 8% → 11% available, 1.0GiB short
    8 9       | 11 12    | low fifth  | : imagefs 9% → 12% available, 8.0GiB short
    50 40     | 50 45    |            | : imagefs 40% → 45% available, clear already
    50 40     | 50 40    |            |
    8 40      | 13 40    | low inodes | : how many inodes is not known
""")
def test_a_dry_run_says_whether_what_would_go_is_enough(
    available: str, foreseen: str, met: str, verdict: str
) -> None:
    """For the mark that is missed most, minimum reclaim included. `~`: not all of it is known from
    the disk."""
    now, then = (
        observations_of(
            *map(observation, (NODEFS, IMAGEFS), (int(each) * GIB for each in gib.split())),
            observation(Signal.NODEFS_INODES_FREE, 5, 100),
        )
        for gib in (available, foreseen)
    )
    known = PLANNED._replace(verdict=VERDICT._replace(frees_bytes=3 * MIB))
    still_met = tuple(MARKS[word] for word in met.split())
    for outcomes, frees in (
        ((known, PLANNED), "~13.0MiB with 2 objects"),
        ((known,), "3.0MiB with 1 object"),
    ):
        passed = record(*outcomes, after=now, foreseen=then, still_met=still_met)
        assert with_result(passed, dry_run=True).reason == f"would free {frees}{verdict}"


@rows("""
    freed | written | words
    20 30 | 0 0     | 20.0MiB and 30 inodes
    0 0   | 0 0     | 0B and 0 inodes
    0 0   | 31 12   | 0B and 0 inodes, as 31.0MiB and 12 inodes were written meanwhile
    0 12  | 31 0    | 0B and 12 inodes, as 31.0MiB were written meanwhile
    31 0  | 0 12    | 31.0MiB and 0 inodes, as 12 inodes were written meanwhile
""")
def test_nothing_is_freed_below_zero(freed: str, written: str, words: str) -> None:
    """Somebody who writes faster than reclaimd frees makes the gain of a pass negative; that is
    said in words. In MiB and inodes."""
    pairs = ([int(each) for each in text.split()] for text in (freed, written))
    gain, loss = (Amounts(mebibytes * MIB, inodes) for mebibytes, inodes in pairs)
    assert freed_in_words(gain, loss) == f"freed {words}"


# ---- the JSON form


def test_a_pass_is_one_json_document() -> None:
    """Bytes are integers, durations seconds, to a microsecond, times those of the reading (5 s
    before the observation ended), RFC 3339 in UTC with milliseconds. What is coming is where it is
    not zero, a mark is that at the present capacity, and null where that is not known."""
    where = FilesystemIdentity("/var/lib/kubelet", 7, "/dev/sda1", "ext4")
    nodefs = observation(NODEFS, GIB, time=95.0)._replace(filesystem=where, promised=5, needed=7)
    images = observation(IMAGEFS, GIB, time=100.0, stale=True)
    seen = observations_of(nodefs, images, time=100.0)._replace(wall_time=1_800_000_005.25)
    soft = threshold(NODEFS, "20%", grace_seconds=1)
    passed = record(
        GONE,
        kept=(STAYS, PINNED, STAYS),
        error="lost",
        observations=seen,
        after=seen,
        trigger=Trigger.WATCH,
        result=PassResult.NOT_ENOUGH,
        reason="because",
        timings=Timings(total_seconds=1.5),
        still_met=(LOW, soft, threshold(Signal("containerfs.available"), "10%")),
    )
    conditions = frozenset({NodeCondition.RECLAIM_PRESSURE})
    passed = replace(passed, decision=passed.decision._replace(conditions=conditions))
    document = to_json(pass_json(passed))
    expect(
        Path(__file__).with_name("pass.json"),
        json.dumps(document, indent=1, allow_nan=False) + "\n",
    )
    brief = to_json(pass_json(passed, with_kept=False))
    assert ("kept" in brief, brief["kept_by_reason"]) == (False, {"pinned": 1, "running": 2})


def test_a_pass_of_fifty_thousand_removals_made_a_line_of_17_megabytes() -> None:
    """Journald cuts at 48 KiB, and twenty such passes were kept for the control socket: now the
    first 32 removals are reported, of all of them the numbers, also where names and errors are as
    long as they may be."""
    long = GONE._replace(
        verdict=VERDICT._replace(id="sha256:" + "7" * 64, name="n" * 10_000),
        error="refused" * 1000,
    )
    functions = (
        ReclaimResult(ROW[0], (long,) * 30, (STAYS,) * 1000),
        ReclaimResult(ROW[1], (long,) * 50_000, (STAYS,)),
    )
    summary = to_json(pass_summary(record(functions=functions)))
    assert len(json.dumps(summary)) < 48 << 10
    assert (len(summary["removals"]), summary["removals_left_out"]) == (32, 49_998)
    assert summary["removals_by_result"] == {"image": {"removed": 50_030}}
    assert summary["kept_by_reason"] == {"running": 1001}
    assert [function["removed"] for function in summary["functions"]] == [30, 50_000]
    assert "kept" not in summary
    few = record(GONE, kept=(STAYS,))
    whole = to_json(pass_json(few, with_kept=False))
    assert to_json(pass_summary(few)) == {**whole, "removals_left_out": 0}


HERE = Path(__file__).parent
WALL = 1_800_000_000.0  # 2027-01-15T08:00:00Z
NAMES = st.text(max_size=600) | st.binary(max_size=300).map(
    lambda name: name.decode("utf-8", "surrogateescape")
)
LONG = "registry.example/" + "team/" * 30 + "app:1.2"
HAPPENS = {
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


@given(st.lists(NAMES, min_size=1, max_size=60), NAMES, st.none() | st.integers(60, 300))
def test_names_of_any_characters_come_back(names: list[str], error: str, width: int | None) -> None:
    """Also those that are no UTF-8, and control characters; each record fits. Shown, they break no
    line, at any width."""
    outcomes = [outcome(number, name, Result.FAILED, error) for number, name in enumerate(names)]
    records = pass_records(pass_of(outcomes), WALL)
    (found,) = documents_of(records)
    assert found["removals"] == [to_json(outcome_json(each)) for each in outcomes]
    assert max(map(len, records)) <= LARGEST_RECORD_BYTES
    lines = history_lines([found], width)
    assert len(lines) == 2 + len(names)
    assert all(line.isprintable() for line in lines)
    assert width is None or max(map(len, lines)) <= width


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
        with pytest.raises(ValueError, match="such as 2h, ") as refusal:
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
    team/app         | app:1.2
    app:4            | app:4
    app:5            | app:5
    sha256:000000050 | app:5
    00000005         | app:5
    0000005          |
    sha256:0000005   |
    0123456789ab     |
    no such          |
""")
def test_of_an_object_only_what_happened_to_it_is_chosen(about: str, names: str) -> None:
    """Its removals, in the passes and where they ended late, and its appearances; not by the id of
    a pass. It is named by a part of its name, or the beginning of its id, with the algorithm of a
    digest or without it, and so much of it."""
    found = selected(DOCUMENTS, about=about)
    objects = [one for each in found for one in each.get("removals", [each])]
    assert [one["name"].rpartition("/")[2] for one in objects] == names.split()
    removal: dict[str, Any] = {"id": image_id(7), "name": ""}
    shown = [is_about(removal, each, shortest_id=8) for each in ("0000000", "00000007")]
    assert shown == [False, True]


# ---- what is shown


def test_the_history_is_a_line_for_each_removal_and_each_pass() -> None:
    """Removals before their pass, the newest last. On a narrow terminal columns go in the stated
    order, a long name keeps its end, as the tag tells more than the registry, and a sentence its
    beginning."""
    shown = ["\n".join(history_lines(DOCUMENTS, width)) for width in (None, 120, 100, 80, 60)]
    expect(HERE / "history.txt", "\n\n".join(shown) + "\n")


# ---- what removals cost


def removals_in(story: str, gone: str = "", until: str = "") -> list[Removal]:
    """The removals in a story: when something happened, what, and to which images. In a pass each
    image freed 13 MiB and counted 24 MiB; what comes back has 20 MiB, and may have the tag of
    another one (`9=1`)."""
    records = list[bytes]()
    for event in story.split(", "):
        time, what, *images = event.split()
        at = WALL + parse_duration(time)
        match what:
            case "started":
                records.append(daemon_record(at))
            case "returned":
                number, _, had_tag = images[0].partition("=")
                records.append(returned_record(int(number), at, int(had_tag or number)))
            case "ended":
                records.append(parked_ended_record(outcome(int(images[0])), at))
            case _:
                result, kind = HAPPENS[what]
                outcomes = [outcome(int(image), result=result, kind=kind) for image in images]
                record = replace(pass_of(outcomes, identity=time), started_wall=at)
                records += pass_records(record, at + 60)
    known = WALL + parse_duration(until) if until else None
    documents, still = list(documents_of(records)), {image_id(int(one)) for one in gone.split()}
    found, backwards = (
        removals_of(each, still, known) for each in (documents, reversed(documents))
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
