"""What a pass has gained, its result with the reason, and its JSON form, on which scripts rely."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eviction.exit_codes import EXIT_RUNTIME
from eviction.records.json_shapes import observations_json, threshold_json, timestamp, to_json
from eviction.records.pass_json import pass_json, pass_summary
from eviction.records.passes import (
    Pass,
    PassResult,
    Timings,
    Trigger,
    freed_in_words,
    with_result,
)
from eviction.surface.requests import exit_code
from eviction.types import NodeCondition
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
from signals.types import FilesystemIdentity, Signal
from tests.expected import expect
from tests.pure.records.documents import a_pass
from tests.pure.values import GIB, MIB, observation, observations_of, threshold
from tests.rows import rows

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
LAST, FAILED, LAST_PLANNED = (
    each._replace(verdict=VERDICT._replace(last_resort=True)) for each in (GONE, FAILED, PLANNED)
)
WENT = "; nothing else was enough, so 1 image went that the kubelet had not pulled"
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


GIVEN: dict[str, dict[str, Any]] = {
    "low": {"still_met": (LOW,)},
    "short": {"still_met": (SHORT,)},
    "lost": {"error": "lost"},
    "away": {"functions": (ReclaimResult("f", error="away"),) * 2},
    "in-90-s": {"eligible_in_seconds": 90.0},
    "in-30-s": {
        "functions": tuple(ReclaimResult("f", eligible_in_seconds=s) for s in (30.0, 90.0, None))
    },
    "stale": {"after": observations_of(observation(IMAGEFS, 50 * GIB, stale=True))},
    "unread": {"after": observations_of()},
    "not-needed": {"kept": (NOT_NEEDED,)},
    "no-row": {"row": ()},
}
"""What a pass came to, by a word of the table."""


@rows("""
    removed     | given        | result     | reason
    gone        |              | satisfied  | no threshold is met any more
    gone        | lost         | satisfied  | no threshold is met any more
                | low lost     | failed     | lost
                | low away     | failed     | away
    gone        | low          | not_enough | nodefs.available; everything else is in use or protected
    gone        | low lost     | not_enough | nodefs.available; lost
    gone failed | low in-90-s  | not_enough | nodefs.available; 1 removal failed, the next object is old enough in 90 s
                | low in-30-s  | not_enough | nodefs.available; the next object is old enough in 30 s
    gone        | stale        | not_enough | nodefs.available is not readable, imagefs.available is not readable; everything else is in use or protected
    last        | low          | not_enough | nodefs.available; everything else is in use or protected; nothing else was enough, so 1 image went that the kubelet had not pulled
    gone        | unread       | not_enough | nodefs.available is not readable; everything else is in use or protected
                | short        | not_enough | nodefs.available (above its mark, short of its minimum reclaim); everything else is in use or protected
    gone        | low not-needed | not_enough | nodefs.available; the rest was not needed for what its row relieves
                | low no-row   | not_enough | nodefs.available; nothing in this layout relieves it: its row of the reclaim table is empty
""")
def test_the_result_of_a_pass_depends_on_the_thresholds_not_on_its_errors(
    removed: str, given: str, result: str, reason: str
) -> None:
    """Satisfied when no threshold is met, and all can be read; failed when nothing could be done;
    else not enough, with the reason, each once; and it says that an image went that the kubelet had
    not pulled, but not of one that failed to."""
    fields = {name: value for word in given.split() for name, value in GIVEN[word].items()}
    removals = {"gone": GONE, "failed": FAILED, "last": LAST}
    outcomes = [removals[each] for each in removed.split()]
    ended = with_result(record(*outcomes, **fields), dry_run=False)
    count = "1 object" if removed else "0 objects"
    begins = {
        "satisfied": f"removed {count}, freed 20.0MiB and 30 inodes; ",
        "not_enough": f"removed {count}, freed 20.0MiB and 30 inodes; still under pressure: ",
    }
    assert (ended.result, ended.reason) == (result, begins.get(result, "") + reason)


@pytest.mark.regression
def test_a_dry_run_that_could_list_nothing_has_failed() -> None:
    """That nothing would be removed is not known then. What could be listed stands beside what could
    not, and the exit code is that of a runtime that is away."""
    would = "would free ~{1}.0MiB with {0}".format
    for passed, result, reason in (
        (record(PLANNED, PLANNED, still_met=(LOW,)), PassResult.DRY_RUN, would("2 objects", 20)),
        (record(LAST_PLANNED), PassResult.DRY_RUN, would("1 object", 10) + WENT),
        (record(error="it is away"), PassResult.FAILED, "it is away"),
        (
            record(PLANNED, error="ListImages failed"),
            PassResult.DRY_RUN,
            f"could not read everything: ListImages failed; of the rest it {would('1 object', 10)}",
        ),
    ):
        ended = with_result(passed, dry_run=True)
        assert (ended.result, ended.reason) == (result, reason)
        assert (exit_code(ended) == EXIT_RUNTIME) is bool(passed.errors)


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


@pytest.mark.regression
@rows("""
    freed | written | words
    20 30 | 0 0     | 20.0MiB and 30 inodes
    0 0   | 0 0     | 0B and 0 inodes
    0 0   | 31 12   | 0B and 0 inodes, as 31.0MiB and 12 inodes were written meanwhile
    0 12  | 31 0    | 0B and 12 inodes, as 31.0MiB were written meanwhile
    31 0  | 0 12    | 31.0MiB and 0 inodes, as 12 inodes were written meanwhile
""")
def test_nothing_is_freed_below_zero(freed: str, written: str, words: str) -> None:
    """Somebody who writes faster than reclaimd frees makes the gain of a pass negative; that is said
    in words. In MiB and inodes."""
    pairs = ([int(each) for each in text.split()] for text in (freed, written))
    gain, loss = (Amounts(mebibytes * MIB, inodes) for mebibytes, inodes in pairs)
    assert freed_in_words(gain, loss) == f"freed {words}"


# ---- the JSON form


def test_a_pass_is_one_json_document() -> None:
    """Bytes are integers, durations seconds, to a microsecond, times those of the reading (5 s before
    the observation ended), RFC 3339 in UTC with milliseconds. What is coming is where it is not zero,
    a mark is that at the present capacity, and null where that is not known."""
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
        still_met=(LOW, soft, threshold(Signal.CONTAINERFS_AVAILABLE, "10%")),
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
    assert to_json(observations_json(seen)) == document["observations"]
    assert to_json(threshold_json(LOW, seen)) == document["acted_on"]
    assert timestamp(0.0) == "1970-01-01T00:00:00.000Z"


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
