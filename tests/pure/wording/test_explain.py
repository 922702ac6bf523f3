"""Sentences and tables for people: every reason has words, every table its columns."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eviction.records.passes import Pass, PassResult, Trigger
from eviction.types import Decision
from eviction.wording.explain import (
    REASONS,
    counts_table,
    names_of_removed,
    no_effect_sentences,
    outcome_cells,
    outcomes_table,
    pass_lines,
    reclaiming_sentence,
)
from eviction.wording.tables import (
    against_its_mark,
    amount,
    distinguishable,
    signals_table,
    table,
)
from reclaim.types import (
    DELETE_UNUSED_IMAGES,
    Action,
    Amounts,
    Kind,
    Outcome,
    Reason,
    ReclaimResult,
    Result,
    Verdict,
)
from signals.types import FilesystemRole, FsLayout, Signal, Unavailable
from tests.pure.values import (
    GIB,
    MIB,
    observation,
    observations_of,
    seen_filesystems,
    stats,
    threshold,
)

GOING = Verdict(
    Kind.IMAGE,
    "sha256:1",
    "app:1",
    Action.REMOVE,
    Reason.UNUSED,
    size_bytes=MIB,
    age_seconds=7200.0,
)
STAYING = Verdict(Kind.CONTAINER, "c", "default/pod/app#0", Action.KEEP, Reason.RUNNING)


def test_every_reason_has_words() -> None:
    """And no two of them the same."""
    assert set(Reason) <= set(REASONS)
    assert len(set(REASONS.values())) == len(REASONS)


@pytest.mark.parametrize(
    ("signal", "number", "text"),
    [(Signal.NODEFS_AVAILABLE, 1536, "1.5KiB"), (Signal.NODEFS_INODES_FREE, 1536, "1536 inodes")],
)
def test_an_amount_has_the_unit_of_its_signal(signal: Signal, number: int, text: str) -> None:
    """Bytes or inodes."""
    assert amount(signal, number) == text


def test_the_columns_of_a_table_are_aligned() -> None:
    """Two blanks between columns, none at the end of a line."""
    assert table([["A", "LONGER", "C"], ["value", "x", ""]]) == ["A      LONGER  C", "value  x"]


cells = st.text(max_size=8)


@given(
    st.integers(1, 4).flatmap(
        lambda width: st.lists(st.lists(cells, min_size=width, max_size=width), min_size=1)
    )
)
def test_a_table_has_one_printable_line_a_row(rows: list[list[str]]) -> None:
    """Whatever the cells hold."""
    lines = table(rows)
    assert len(lines) == len(rows)
    assert all(line.isprintable() for line in lines)


@pytest.mark.parametrize(
    ("available", "stale", "with_threshold", "state"),
    [
        (GIB, False, True, "UNDER PRESSURE"),
        (50 * GIB, False, True, "clear"),
        (GIB, True, True, "stale"),
        (GIB, False, False, "no threshold"),
    ],
)
def test_a_signal_is_shown_with_its_state(
    available: int, stale: bool, with_threshold: bool, state: str
) -> None:
    """Of 100Gi with a mark of 10%."""
    seen = observations_of(observation(Signal.NODEFS_AVAILABLE, available, stale=stale))
    thresholds = [threshold(Signal.NODEFS_AVAILABLE, "10%")] if with_threshold else []
    head, line, layout = signals_table(seen, thresholds)
    assert head.split() == [
        "SIGNAL",
        "AVAILABLE",
        "CAPACITY",
        "MARK",
        "HEADROOM",
        "STATE",
        "FILESYSTEM",
    ]
    assert state in line
    assert ("10% = 10.0GiB" in line) is with_threshold
    assert layout == "layout: single"


def test_a_signal_with_a_threshold_and_no_reading_is_unknown() -> None:
    """One line says why its filesystem could not be read."""
    seen = replace(
        observations_of(layout=None),
        unavailable=(Unavailable(FilesystemRole.IMAGEFS, "gone\naway"),),
    )
    _, line, *rest = signals_table(seen, [threshold(Signal.IMAGEFS_AVAILABLE, "15%")])
    assert line.split() == ["imagefs.available", "-", "-", "15%", "-", "unknown", "-"]
    assert rest == ["layout: not known yet", "imagefs: not readable: gone\\naway"]


def test_an_object_is_shown_with_its_result() -> None:
    """A removed object with what it freed, a kept one with the reason, a failed
    one with the error.
    """
    gone = Outcome(GOING, Result.REMOVED, freed=Amounts(2 * MIB, 3))
    assert [*outcome_cells(gone).values()] == [
        "removed", "image", "app:1", "1.0MiB", "2h", "2.0MiB, 3 inodes", "unused", "kubelet",
        "no container uses it",
    ]  # fmt: skip
    assert [*outcome_cells(Outcome(STAYING)).values()] == [
        "keep", "container", "default/pod/app#0", "-", "-", "-", "running", "kubelet", "is running",
    ]  # fmt: skip
    assert (
        outcome_cells(Outcome(GOING, Result.FAILED, "busy"))["IN WORDS"]
        == "no container uses it; busy"
    )


def test_a_threshold_without_effect_is_reported_with_what_counts_instead() -> None:
    """The kubelet reports such a conflict too, and overrides it too."""
    counts, written = (
        threshold(Signal.NODEFS_AVAILABLE, "10%"),
        threshold(Signal.CONTAINERFS_AVAILABLE, "50%"),
    )
    (sentence,) = no_effect_sentences((counts, written))
    assert sentence.startswith(
        "containerfs.available: 50% has no effect: its threshold follows from nodefs, or from"
        " imagefs"
    )
    assert no_effect_sentences((counts,)) == []


def test_nothing_to_show_is_no_table() -> None:
    """Not even a head."""
    assert outcomes_table([]) == []
    assert len(outcomes_table([Outcome(GOING)])) == 2


def test_kept_objects_are_counted_by_reason() -> None:
    """The most first; objects without a size are counted all the same."""
    image = GOING._replace(action=Action.KEEP, reason=Reason.IN_USE)
    head, first, second = counts_table([Outcome(STAYING), *[Outcome(image)] * 2])
    assert head.split() == ["COUNT", "KIND", "SIZE", "REASON", "RULE", "IN", "WORDS"]
    assert first.split() == ["2", "image", "2.0MiB", "in_use", "kubelet", "a", "pod", "uses", "it"]
    assert second.split() == ["1", "container", "-", "running", "kubelet", "is", "running"]


def test_a_pass_is_shown_from_signal_to_result() -> None:
    """The signal, the row, each object, the result, measured and nominal bytes."""
    mark = threshold(Signal.NODEFS_AVAILABLE, "10%")
    seen = observations_of(observation(Signal.NODEFS_AVAILABLE, GIB))
    row = (DELETE_UNUSED_IMAGES,)
    done = ReclaimResult(
        "DeleteUnusedImages", (Outcome(GOING, Result.REMOVED),), (Outcome(STAYING),)
    )
    record = Pass(
        id="1",
        started_wall=0.0,
        trigger=Trigger.INTERVAL,
        observations=seen,
        decision=Decision(frozenset(), (mark,), mark, row, FsLayout.SINGLE),
        row=row,
        functions=(done,),
        measured=Amounts(2 * MIB),
        result=PassResult.SATISFIED,
        reason="done\x1b",
    )
    lines = pass_lines(record)
    assert lines[0] == "nodefs.available 1.0GiB < 10.0GiB"
    assert lines[1] == "row: DeleteUnusedImages (layout single)"
    assert [line.split()[0] for line in lines[2:5]] == ["RESULT", "removed", "keep"]
    assert lines[5] == "satisfied: done\\x1b"
    assert lines[6].startswith("measured 2.0MiB and 0 inodes, nominal 1.0MiB; took 0ms")


@pytest.mark.regression
@pytest.mark.parametrize(
    ("available", "sentence", "event"),
    [
        (57 * MIB, "57.0MiB < 60.0MiB", "below reclaimd's own mark"),
        (
            72 * MIB,
            "72.0MiB < 80.0MiB, the mark of 60.0MiB with its minimum reclaim",
            "short of the minimum reclaim above reclaimd's own mark",
        ),
        (90 * MIB, "90.0MiB >= 60.0MiB", "below reclaimd's own mark"),
    ],
    ids=["below", "short of its minimum reclaim", "asked for without pressure"],
)
def test_a_threshold_that_stays_met_above_its_mark_is_not_called_below_it(
    available: int, sentence: str, event: str
) -> None:
    """It is met until its minimum reclaim is reached, and says so: in the story of a
    pass, and in the event before.
    """
    mark = threshold(Signal.NODEFS_AVAILABLE, "60Mi", min_reclaim="20Mi")
    seen = observations_of(observation(Signal.NODEFS_AVAILABLE, available))
    record = Pass(
        "1", 0.0, Trigger.INTERVAL, seen, Decision(frozenset(), (mark,), mark, (), FsLayout.SINGLE)
    )
    assert pass_lines(record)[0] == f"nodefs.available {sentence}"
    told = reclaiming_sentence(mark, seen.signals[Signal.NODEFS_AVAILABLE])
    assert told == f"Attempting to reclaim ephemeral-storage (ReclaimPressure: {event})"


def test_what_is_only_coming_is_not_called_below_the_mark() -> None:
    """Met although more than the mark is available: in the table of signals, in the story of a
    pass, and in the event before it."""
    mark = threshold(Signal.NODEFS_AVAILABLE, "4Gi", min_reclaim="2Gi")
    coming = replace(
        observation(Signal.NODEFS_AVAILABLE, 5 * GIB), needed=6 * GIB, promised=GIB // 2
    )
    on_xfs = replace(stats(), step_bytes=2 * GIB)
    seen = replace(
        observations_of(coming),
        filesystems=seen_filesystems({FilesystemRole.NODEFS: (1, on_xfs)}),
    )
    needed = "6.0GiB are needed for what is coming (the next step of XFS takes 2.0GiB)"
    assert against_its_mark(mark, seen) == f"nodefs.available 5.0GiB >= 4.0GiB, but {needed}"
    _, line, *below = signals_table(seen, [mark])
    assert "PRESSURE IS COMING" in line
    promised = "512.0MiB of what is used are promised to files by btrfs and not shown by statvfs"
    assert below[:2] == [f"nodefs.available: {promised}", f"nodefs.available: {needed}"]
    assert reclaiming_sentence(mark, coming).endswith(
        "(ReclaimPressure: what is coming would reach the kubelet's mark)"
    )


@pytest.mark.regression
def test_no_words_say_of_a_pod_that_never_left_that_it_is_back() -> None:
    """A plan keeps the logs of a pod that is there, and a check before a
    removal what has a pod again.
    """
    assert REASONS[Reason.POD_ALIVE] == "its pod exists"


def test_a_name_of_one_mebibyte_makes_no_table_of_megabytes() -> None:
    """Every row of the plan was as wide as the longest name:

    100 objects, one of them named so, printed 100 MiB.
    """
    named = [
        Verdict(Kind.IMAGE, str(number), "x", Action.KEEP, Reason.RUNNING) for number in range(100)
    ]
    named[0] = named[0]._replace(name="x" * (1 << 20))
    assert sum(map(len, outcomes_table(map(Outcome, named)))) < 100 * 1024


def test_nothing_freed_is_no_column() -> None:
    """In a plan, and where nothing was removed, the column is left out."""
    assert "FREED" not in outcomes_table([Outcome(GOING)])[0]
    assert "FREED" in outcomes_table([Outcome(GOING, Result.REMOVED)])[0]


def test_amounts_that_round_to_the_same_text_are_shown_in_bytes() -> None:
    """57.6MiB below 57.6MiB would say nothing."""
    signal = Signal.NODEFS_AVAILABLE
    assert distinguishable(signal, 60_390_000, 60_397_978) == ("60390000B", "60397978B")
    assert distinguishable(signal, 60 * MIB, 61 * MIB) == ("60.0MiB", "61.0MiB")
    assert distinguishable(signal, MIB, MIB) == ("1.0MiB", "1.0MiB")
    assert distinguishable(Signal.NODEFS_INODES_FREE, 5, 6) == ("5 inodes", "6 inodes")


def test_the_names_of_what_was_removed_are_the_first_32_and_a_count() -> None:
    """Only what is gone; names without end or of control characters stay within the 48
    KiB of a line of journald.
    """
    gone, failed = Outcome(GOING, Result.REMOVED), Outcome(GOING, Result.FAILED)
    assert names_of_removed([failed, Outcome(STAYING)]) == ""
    assert names_of_removed([gone, failed, gone]) == "image app:1, image app:1"
    names = names_of_removed([Outcome(GOING._replace(name="\x00" * 10_000), Result.REMOVED)] * 40)
    assert names.count("image ") == 32
    assert names.endswith(" and 8 more")
    assert len(names) < 24 << 10
