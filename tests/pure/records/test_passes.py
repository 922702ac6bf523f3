"""The gain that a pass measures, and its result with the reason."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eviction.exit_codes import EXIT_RUNTIME
from eviction.records.passes import Pass, PassResult, Trigger, freed_in_words, with_result
from eviction.surface.requests import exit_code
from eviction.types import Decision, Threshold
from reclaim.types import (
    DELETE_ALL_UNUSED_CONTAINERS,
    DELETE_UNUSED_IMAGES,
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
from signals.types import FsLayout, Signal, SignalObservations
from tests.pure.values import GIB, MIB, observation, observations_of, threshold

LOW = threshold(Signal.NODEFS_AVAILABLE, "10%")
ROW = (DELETE_ALL_UNUSED_CONTAINERS, DELETE_UNUSED_IMAGES)
CLEAR = observations_of(observation(Signal.NODEFS_AVAILABLE, 50 * GIB))


@pytest.mark.parametrize(
    ("before", "after", "gained"),
    [
        (Usage(10, 20, 5), Usage(15, 25, 7), (5, 2)),
        (Usage(0, 20, 5), Usage(0, 30, 5), (10, 0)),
        (Usage(10, 20, 5), Usage(4, 14, 3), (-6, -2)),
    ],
)
def test_the_larger_of_two_gains_counts(
    before: Usage, after: Usage, gained: tuple[int, int]
) -> None:
    """While an ext4 is within its reserve for root, available bytes stay 0
    and free bytes already rise.
    """
    assert after.gained_since(before) == gained


def outcome(result: Result) -> Outcome:
    """One object of 10 MiB."""
    return Outcome(Verdict(Kind.IMAGE, "i", "i", Action.REMOVE, Reason.UNUSED, 10 * MIB), result)


def record(
    *outcomes: Outcome,
    still_met: tuple[Threshold, ...] = (),
    after: SignalObservations = CLEAR,
    row: tuple[str, ...] = ROW,
    error: str = "",
    eligible_in_seconds: float | None = None,
    kept: tuple[Outcome, ...] = (),
) -> Pass:
    """A pass with these outcomes that measured 20 MiB and 30 inodes."""
    done = ReclaimResult(
        "DeleteUnusedImages",
        outcomes,
        kept,
        eligible_in_seconds=eligible_in_seconds,
        error=error,
    )
    decision = Decision(frozenset(), (LOW,), LOW, row, FsLayout.SINGLE)
    return Pass(
        "id", 0.0, Trigger.INTERVAL, CLEAR, decision, row, (done,),
        measured=Amounts(20 * MIB, 30), after=after, still_met=still_met,
    )  # fmt: skip


NOT_NEEDED = Outcome(Verdict(Kind.IMAGE, "k", "k", Action.KEEP, Reason.RELIEVED, 10 * MIB))
FREED = "removed 1 object, freed 20.0MiB and 30 inodes"
NONE = "removed 0 objects, freed 20.0MiB and 30 inodes"
STILL = "still under pressure: nodefs.available"
STALE = observations_of(observation(Signal.IMAGEFS_AVAILABLE, 50 * GIB, stale=True))


@pytest.mark.parametrize(
    ("passed", "result", "reason"),
    [
        (
            record(outcome(Result.REMOVED)),
            PassResult.SATISFIED,
            f"{FREED}; no threshold is met any more",
        ),
        (
            record(outcome(Result.REMOVED), error="lost"),
            PassResult.SATISFIED,
            f"{FREED}; no threshold is met any more",
        ),
        (record(still_met=(LOW,), error="no list"), PassResult.FAILED, "no list"),
        (
            record(outcome(Result.REMOVED), still_met=(LOW,)),
            PassResult.NOT_ENOUGH,
            f"{FREED}; {STILL}; everything else is in use or protected",
        ),
        (
            record(outcome(Result.REMOVED), still_met=(LOW,), error="lost"),
            PassResult.NOT_ENOUGH,
            f"{FREED}; {STILL}; lost",
        ),
        (
            record(
                outcome(Result.REMOVED),
                outcome(Result.FAILED),
                still_met=(LOW,),
                eligible_in_seconds=90.0,
            ),
            PassResult.NOT_ENOUGH,
            f"{FREED}; {STILL}; 1 removal failed, the next object is old enough in 90 s",
        ),
        (
            record(outcome(Result.REMOVED), after=STALE),
            PassResult.NOT_ENOUGH,
            (
                f"{FREED}; still under pressure: nodefs.available is not readable,"
                " imagefs.available is not readable; everything else is in use or protected"
            ),
        ),
        (
            record(
                still_met=(threshold(Signal.NODEFS_AVAILABLE, "10%", min_reclaim="89Gi"),),
                after=CLEAR,
            ),
            PassResult.NOT_ENOUGH,
            (
                f"{NONE}; {STILL} (above its mark, short of its minimum reclaim); everything else"
                " is in use or protected"
            ),
        ),
        (
            record(outcome(Result.REMOVED), still_met=(LOW,), kept=(NOT_NEEDED,)),
            PassResult.NOT_ENOUGH,
            f"{FREED}; {STILL}; the rest was not needed for what its row relieves",
        ),
        (
            record(still_met=(LOW,), row=()),
            PassResult.NOT_ENOUGH,
            (
                f"{NONE}; {STILL}; nothing in this layout relieves it: its row of the reclaim table"
                " is empty"
            ),
        ),
    ],
)
def test_the_result_of_a_pass_depends_on_the_thresholds_not_on_its_errors(
    passed: Pass, result: PassResult, reason: str
) -> None:
    """Satisfied when no threshold is met; failed when nothing could be done; else
    not enough, with the reason.
    """
    ended = with_result(passed, dry_run=False)
    assert (ended.result, ended.reason) == (result, reason)


def test_a_pass_names_the_next_object_that_is_old_enough() -> None:
    """In 30 s one of the first function is, in 90 s one of the second."""
    waiting = record(still_met=(LOW,))
    functions = tuple(ReclaimResult("f", eligible_in_seconds=wait) for wait in (30.0, 90.0, None))
    ended = with_result(replace(waiting, functions=functions), dry_run=False)
    assert ended.reason == f"{NONE}; {STILL}; the next object is old enough in 30 s"


@pytest.mark.parametrize(
    ("result", "says"), [(Result.REMOVED, True), (Result.PLANNED, True), (Result.FAILED, False)]
)
def test_a_pass_says_that_images_went_that_the_kubelet_had_not_pulled(
    result: Result, says: bool
) -> None:
    """At the end of its reason, whatever its result."""
    last = Outcome(outcome(result).verdict._replace(last_resort=True), result)
    words = "; nothing else was enough, so 1 image went that the kubelet had not pulled"
    for dry_run in (False, True):
        assert with_result(record(last), dry_run=dry_run).reason.endswith(words) is says


@pytest.mark.regression
def test_a_dry_run_that_could_list_nothing_has_failed() -> None:
    """That nothing would be removed is not known then."""
    ended = with_result(record(error="the runtime is away"), dry_run=True)
    assert (ended.result, ended.reason) == (PassResult.FAILED, "the runtime is away")
    assert exit_code(ended) == EXIT_RUNTIME


@pytest.mark.regression
def test_a_dry_run_that_could_list_a_part_says_what_is_missing() -> None:
    """What would go stands beside what could not be read, and the exit code is that
    of a runtime that is away.
    """
    ended = with_result(record(outcome(Result.PLANNED), error="ListImages failed"), dry_run=True)
    assert ended.result is PassResult.DRY_RUN
    assert (
        ended.reason
        == "could not read everything: ListImages failed; of the rest it would remove 1 object of"
        " nominally 10.0MiB"
    )
    assert exit_code(ended) == EXIT_RUNTIME


@pytest.mark.regression
@pytest.mark.parametrize(
    ("freed", "written", "words"),
    [
        (Amounts(20 * MIB, 30), Amounts(), "freed 20.0MiB and 30 inodes"),
        (Amounts(), Amounts(), "freed 0B and 0 inodes"),
        (
            Amounts(),
            Amounts(31 * MIB, 12),
            "freed 0B and 0 inodes, as 31.0MiB and 12 inodes were written meanwhile",
        ),
        (
            Amounts(0, 12),
            Amounts(31 * MIB),
            "freed 0B and 12 inodes, as 31.0MiB were written meanwhile",
        ),
        (
            Amounts(31 * MIB),
            Amounts(0, 12),
            "freed 31.0MiB and 0 inodes, as 12 inodes were written meanwhile",
        ),
    ],
)
def test_nothing_is_freed_below_zero(freed: Amounts, written: Amounts, words: str) -> None:
    """Somebody who writes faster than reclaimd frees makes the gain of a pass
    negative; that is said in words.
    """
    assert freed_in_words(freed, written) == words


def test_a_dry_run_says_what_would_be_removed() -> None:
    """Whatever the thresholds say."""
    ended = with_result(
        record(outcome(Result.PLANNED), outcome(Result.PLANNED), still_met=(LOW,)), dry_run=True
    )
    assert (ended.result, ended.reason) == (
        PassResult.DRY_RUN,
        "would remove 2 objects of nominally 20.0MiB",
    )


def test_an_error_is_reported_once() -> None:
    """Two functions that failed for one reason give one sentence."""
    passed = record(still_met=(LOW,), error="the runtime is away")
    twice = Pass(
        **{name: getattr(passed, name) for name in Pass.__slots__}
        | {"functions": passed.functions * 2}
    )
    assert with_result(twice, dry_run=False).reason == "the runtime is away"


def test_a_node_that_can_no_longer_be_read_is_not_satisfied() -> None:
    """A signal that was under pressure and has no reading at the end does not count as clear."""
    ended = with_result(record(outcome(Result.REMOVED), after=observations_of()), dry_run=False)
    assert ended.result is PassResult.NOT_ENOUGH
    assert "not readable" in ended.reason
