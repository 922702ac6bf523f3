"""Sentences and tables for people: every reason has words, every mark its sentence, lines fit; and
one event is one line, whatever it contains."""

import io
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eviction.configuration.effective import load
from eviction.configuration.kubelet import KUBELETS_DEFAULTS
from eviction.decision.thresholds import thresholds_met
from eviction.printable import escaped
from eviction.records.passes import Pass, PassResult
from eviction.surface.daemon import hanging_sentences
from eviction.types import NodeCondition, Threshold
from eviction.wording.bars import bar, sparkline
from eviction.wording.explain import (
    LEFT_OUT_FIRST,
    NAMES,
    REASONS,
    TEXTS,
    amount,
    condition_begins,
    conditions_in_words,
    counts_table,
    distinguishable,
    image_gc_mark,
    ladder,
    later_than_kubelet,
    names_of_removed,
    no_effect_sentences,
    outcomes_table,
    pass_lines,
    reclaiming_sentence,
    signals_table,
    table,
    unreachable_sentences,
    why_met,
)
from eviction.wording.log import Level, Log, goes_to_journal
from reclaim.removals import StageId
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
from signals.types import FilesystemRole, Signal, Unavailable
from tests.expected import expect
from tests.pure.records.documents import a_pass
from tests.pure.values import (
    GIB,
    MIB,
    observation,
    observations_of,
    seen_filesystems,
    stats,
    threshold,
    value,
)
from tests.rows import rows

EXPECTED = Path(__file__).with_name("expected")
NODEFS, IMAGEFS = Signal.NODEFS_AVAILABLE, Signal.IMAGEFS_AVAILABLE
INODES, CONTAINERFS = Signal.NODEFS_INODES_FREE, Signal("containerfs.available")
GOING = Verdict(
    Kind.IMAGE, "sha256:1", "app:1", Action.REMOVE, Reason.UNUSED, size_bytes=MIB, age_seconds=7200
)
STAYING = Verdict(Kind.CONTAINER, "c", "default/pod/app#0", Action.KEEP, Reason.RUNNING)
GONE, FAILED = (
    Outcome(GOING, Result.REMOVED, freed=Amounts(2 * MIB, 3)),
    Outcome(GOING, Result.FAILED, "busy\x1b\n"),
)
TEN = threshold(NODEFS, "10Gi")


def test_every_reason_has_words() -> None:
    """No two of them the same. A plan keeps the logs of a pod that never left, so nothing says
    of one that it is back."""
    assert len(set(REASONS.values())) == len(REASONS)
    assert REASONS[Reason.POD_ALIVE] == "its pod exists"


@rows("""
    signal             | one      | other    | shown
    nodefs.available   | 1536     | 1048576  | 1.5KiB 1.0MiB
    nodefs.available   | 1048576  | 1048576  | 1.0MiB 1.0MiB
    nodefs.available   | 60390000 | 60397978 | 60390000B 60397978B
    nodefs.inodesFree  | 1536     | 6        | 1536 inodes 6 inodes
""")
def test_amounts_have_units_and_differ(signal: str, one: int, other: int, shown: str) -> None:
    """Those that round to the same text are shown in bytes: 57.6MiB < 57.6MiB would say nothing."""
    assert " ".join(distinguishable(Signal(signal), one, other)) == shown
    assert amount(INODES, 7) == "7 inodes"


# ---- conditions: whose mark is crossed


@rows("""
    conditions                   | known | available | words
                                 | yes   | 11        | no ReclaimPressure, no DiskPressure
                                 |       | 11        | no ReclaimPressure
    ReclaimPressure              | yes   | 9         | ReclaimPressure (below our mark), no DiskPressure
    ReclaimPressure              | yes   | 10        | ReclaimPressure (is coming), no DiskPressure
    ReclaimPressure              |       | 11        | ReclaimPressure (was below our mark)
    DiskPressure ReclaimPressure | yes   | 9         | ReclaimPressure (below our mark), DiskPressure (below the kubelet's own mark)
    DiskPressure                 | yes   | 11        | no ReclaimPressure, DiskPressure (below the kubelet's own mark)
""")
def test_the_words_say_whose_mark_is_crossed(
    conditions: str, known: bool, available: int, words: str
) -> None:
    """Ours, of 10 GiB, of which 11 are needed for what is coming; and the kubelet's where its marks
    are known."""
    seen = {NODEFS: observation(NODEFS, available * GIB)._replace(needed=11 * GIB)}
    why = why_met(thresholds_met([TEN], seen, enforce_min_reclaim=False), seen)
    assert conditions_in_words(conditions.split(), known, why) == words


@pytest.mark.parametrize("promised", [0, 3])
def test_the_log_names_the_signals_and_both_amounts(promised: int) -> None:
    """One sentence for our mark, another for the kubelet's, for which what btrfs has promised does
    not count. One that stays met is told with what it must reach."""
    near = observation(NODEFS, 5 * GIB)._replace(promised=promised * GIB)
    seen = observations_of(near, observation(IMAGEFS, 12 * GIB))
    stays = threshold(IMAGEFS, "10Gi", min_reclaim="5Gi")
    assert condition_begins(NodeCondition.RECLAIM_PRESSURE, [TEN, stays], seen) == (
        "ReclaimPressure: nodefs.available 5.0GiB < 10.0GiB, imagefs.available 12.0GiB < 15.0GiB,"
        " the mark of 10.0GiB with its minimum reclaim"
    )
    assert condition_begins(NodeCondition.DISK_PRESSURE, [TEN], seen) == (
        "below the kubelet's own mark, so the kubelet would report DiskPressure: nodefs.available"
        f" {5 + promised}.0GiB < 10.0GiB"
    )


# ---- signals, objects, passes


def story(available: int, mark: Threshold, *done: ReclaimResult, **fields: Any) -> Pass:
    """A pass that acted on a mark."""
    seen = observations_of(observation(mark.signal, available))
    return a_pass(*done, met=mark, observations=seen, row=(DELETE_UNUSED_IMAGES,), **fields)


def shown_signals() -> list[list[str]]:
    """Tables of signals in each state: by 10% of 100 GiB, without a mark, without a reading, and of
    what is only coming."""
    coming = observation(NODEFS, 5 * GIB)._replace(needed=6 * GIB, promised=GIB // 2)
    on_xfs = {FilesystemRole.NODEFS: (1, replace(stats(), step_bytes=2 * GIB))}
    away = (Unavailable(FilesystemRole.IMAGEFS, "gone\naway"),)
    none = observations_of(layout=None)._replace(unavailable=away)
    mark, given = threshold(NODEFS, "10%"), [GIB, 50 * GIB]
    return [
        *(signals_table(observations_of(observation(NODEFS, each)), [mark]) for each in given),
        signals_table(observations_of(observation(NODEFS, GIB, stale=True)), [mark]),
        signals_table(observations_of(observation(NODEFS, GIB)), []),
        signals_table(none, [threshold(IMAGEFS, "15%")]),
        signals_table(
            observations_of(coming)._replace(filesystems=seen_filesystems(on_xfs)),
            [threshold(NODEFS, "4Gi", min_reclaim="2Gi")],
        ),
    ]


def test_signals_objects_and_passes_are_shown_in_tables_and_sentences() -> None:
    """Each object with its result, its reason and its error; those that stay counted by reason, the
    most first; a pass from its signal to its result."""
    done = ReclaimResult("DeleteUnusedImages", (GONE, FAILED), (Outcome(STAYING),))
    used = Outcome(GOING._replace(action=Action.KEEP, reason=Reason.IN_USE))
    result: dict[str, Any] = {"result": PassResult.SATISFIED, "reason": "done\x1b"}
    passed = story(GIB, threshold(NODEFS, "10%"), done, measured=Amounts(2 * MIB), **result)
    parts = [
        *shown_signals(),
        outcomes_table([GONE, FAILED, Outcome(STAYING)]),
        outcomes_table([Outcome(GOING)]),
        counts_table([Outcome(STAYING), used, used]),
        pass_lines(passed),
        [*hanging_sentences(frozenset({StageId("two", 1), StageId("one", 2)}))],
        no_effect_sentences((threshold(NODEFS, "10%"), threshold(CONTAINERFS, "50%"))),
    ]
    expect(EXPECTED / "tables.txt", "\n\n".join("\n".join(part) for part in parts) + "\n")
    assert outcomes_table([]) == [*hanging_sentences(frozenset())] == []
    assert no_effect_sentences((threshold(NODEFS, "10%"),)) == []


@rows("""
    available | needed | sentence                                                        | event
    57        | 0      | 57.0MiB < 60.0MiB                                               | below reclaimd's own mark
    72        | 0      | 72.0MiB < 80.0MiB, the mark of 60.0MiB with its minimum reclaim | short of the minimum reclaim above reclaimd's own mark
    90        | 0      | 90.0MiB >= 60.0MiB                                              | below reclaimd's own mark
    90        | 99     | 90.0MiB >= 60.0MiB, but 99.0MiB are needed for what is coming   | what is coming would reach the kubelet's mark
""")
def test_a_threshold_that_is_met_above_its_mark_is_not_called_below_it(
    available: int, needed: int, sentence: str, event: str
) -> None:
    """In the story of a pass, and in the event before."""
    mark = threshold(NODEFS, "60Mi", min_reclaim="20Mi")
    seen = observation(NODEFS, available * MIB)._replace(needed=needed * MIB)
    record = replace(story(0, mark), observations=observations_of(seen))
    assert pass_lines(record)[0] == f"nodefs.available {sentence}"
    told = reclaiming_sentence(mark, seen)
    assert told == f"Attempting to reclaim ephemeral-storage (ReclaimPressure: {event})"


def test_the_names_of_what_was_removed_are_the_first_32_and_a_count() -> None:
    """Only what is gone; names without end or of control characters stay within the 48 KiB of a
    line of journald, and one of a mebibyte makes no table of megabytes."""
    assert names_of_removed([FAILED, Outcome(STAYING)]) == ""
    assert names_of_removed([GONE, FAILED, GONE]) == "image app:1, image app:1"
    names = names_of_removed([Outcome(GOING._replace(name="\0" * 10_000), Result.REMOVED)] * 40)
    assert (names.count("image "), names[-11:]) == (32, " and 8 more")
    assert len(names) < 24 << 10
    many = [Outcome(STAYING)] * 99 + [Outcome(STAYING._replace(name="x" * (1 << 20)))]
    assert sum(map(len, outcomes_table(many))) < 100 * 1024


# ---- marks: the kubelet's beside ours

LADDER = """
nodefs.available 20.000000000 kubelet soft (90 s grace) 20Gi
nodefs.available 15.000000000 reclaimd hard 15Gi
nodefs.available 10.000000000 kubelet hard 10Gi
imagefs.available 21.000000000 reclaimd hard 21Gi
imagefs.available 20.000000000 kubelet image GC frees to 80%
imagefs.available 15.999999999 kubelet image GC starts at 85%
imagefs.available 15.000000000 kubelet hard 15Gi
"""
SEEN = {signal: observation(signal, 50 * GIB) for signal in (NODEFS, IMAGEFS)}


def test_the_highest_mark_of_each_signal_comes_first() -> None:
    """A disk that fills meets the highest mark first. Without a reading there is none."""
    ours = [threshold(IMAGEFS, "21Gi"), *marks_of("15Gi")]
    kubelets = [TEN, *marks_of("20Gi/90"), threshold(IMAGEFS, "15Gi")]
    found = ladder(ours, kubelets, (85, 80), observations=SEEN)
    shown = [f"{one.signal} {one.mark / GIB:.9f} {one.whose} {one.what}" for one in found]
    assert shown == LADDER.strip().splitlines()
    assert ladder(ours, kubelets, (85, 80), observations={NODEFS: SEEN[NODEFS]}) == found[:3]
    assert len(ladder(ours, kubelets, None, observations=SEEN)) == len(found) - 2


@pytest.mark.parametrize("capacity", [10**9, 100 * GIB, 7 * GIB + 1])
def test_by_default_we_act_before_the_kubelets_image_gc(capacity: int) -> None:
    """15% + 5% of imagefs: at 80% use (a percentage is held in single precision), and image GC at
    85%, where the kubelet's own threshold is, too."""
    seen = {IMAGEFS: observation(IMAGEFS, capacity, capacity)}
    ours = load(None, {}, {"kubeletConfig": ""}).thresholds
    marks = ladder(ours, KUBELETS_DEFAULTS.thresholds.thresholds, (85, 80), observations=seen)
    starts = [mark for mark in marks if not mark.what.startswith("image GC frees")]
    assert [f"{mark.whose} {mark.what}" for mark in starts] == [
        "reclaimd hard 15% + 5% (at most 20Gi)",
        "kubelet image GC starts at 85%",
        "kubelet hard 15%",
    ]
    assert abs(starts[0].mark - capacity // 5) <= 2 * capacity // 10**6


@given(st.integers(1, 2**63 - 1), st.integers(1, 100))
def test_the_mark_of_image_gc_is_where_the_kubelets_integers_turn(capacity: int, high: int) -> None:
    """At the mark it starts, one byte above it does not. Source: kubelet,
    `pkg/kubelet/images/image_gc_manager.go` (GarbageCollect)."""
    mark = image_gc_mark(high, capacity)
    assert mark >= 0
    starts = [100 - each * 100 // capacity >= high for each in (mark, mark + 1)]
    assert starts == [True, False]


def marks_of(text: str) -> list[Threshold]:
    """Marks of nodefs, each as `15%` or with seconds of grace as `15%/60`; of another filesystem
    behind its signal."""
    found = []
    for each in text.split():
        signal, _, mark = each.rpartition("=")
        amount, _, grace = mark.partition("/")
        found.append(threshold(Signal(signal or NODEFS), amount, grace_seconds=float(grace or 0)))
    return found


@rows("""
    ours                      | kubelets                  | late
    15%                       | 10%                       |
    10%                       | 10%                       |
    5%                        | 10%                       | 5% = 5.0GiB
    9Gi                       | 10%                       | 9Gi = 9.0GiB
    11Gi                      | 10%                       |
    15%/60                    | 10%                       | 15% = 15.0GiB with its longer grace period
    15%/60                    | 10%/60                    |
    15%/61                    | 10%/60                    | 15% = 15.0GiB with its longer grace period
    5% 15%                    | 10%                       |
    1Gi 5Gi 15Gi/60           | 10Gi                      | 5Gi = 5.0GiB
    imagefs.available=1%      | 10%                       |
                              | 10%                       |
    1%                        |                           |
    nodefs.inodesFree=1%      | nodefs.inodesFree=9%      |
    containerfs.available=15% | containerfs.available=50% |
""")
def test_thresholds_that_act_later_than_the_kubelet_are_told(
    ours: str, kubelets: str, late: str | None
) -> None:
    """With a lower mark or a longer grace: of ours the nearest with a grace that is not longer,
    else the nearest. Without a threshold of ours or a reading nothing is said, nor of containerfs,
    whose thresholds never take effect in the kubelet either (UpdateContainerFsThresholds)."""
    seen = {**SEEN, CONTAINERFS: observation(CONTAINERFS, 50 * GIB)}
    told = list(later_than_kubelet(marks_of(ours), marks_of(kubelets), seen))
    begins = f"nodefs.available: the mark of {late} acts later than the kubelet's of 10"
    assert [each[: len(begins)] for each in told] == ([] if late is None else [begins])


@rows("""
    text  | margin | reclaim | sentences
    10Gi  | 5Gi    | 2Gi     |
    10Gi  | 90Gi   |         | is 100.0GiB, the margin is left out
    10Gi  | 5Gi    | 85Gi    | is 100.0GiB, the minimum reclaim
    10Gi  | 90Gi   | 91Gi    | is 100.0GiB, the margin is left out; is 101.0GiB, the minimum reclaim
    100Gi | 5Gi    | 2Gi     | is 100.0GiB, it is never cleared
""")
def test_what_the_disk_is_too_small_for_is_told(
    text: str, margin: str, reclaim: str, sentences: str
) -> None:
    """Of 100GiB: a value, or what is added to it and then left out."""
    one = replace(threshold(NODEFS, text, min_reclaim=reclaim), margin=value(margin))
    told = list(unreachable_sentences([one], observations_of(observation(NODEFS, 50 * GIB))))
    large = ", not below the 100.0GiB that the filesystem has, so "
    for part, each in zip(filter(None, sentences.split("; ")), told, strict=True):
        assert part.replace(", ", large) in each


# ---- tables on a terminal

OBJECTS = ["RESULT", "KIND", "NAME", "SIZE", "AGE", "FREES", "REASON", "RULE", "IN WORDS"]
LONG = "shop/" + "x" * 60
ROWS = [
    OBJECTS,
    ["removed", "image", "app:1", "1.0MiB", "2h", "2.0MiB", "unused", "kubelet", "no container uses it"],
    ["keep", "container", LONG, *"---", "newest_of_live_pod", "guard", "is how it is known"],
]  # fmt: skip


@rows("""
    width | left_out
          |
    200   |
    110   |
    80    | IN WORDS, RULE, AGE
    60    | IN WORDS, RULE, AGE, SIZE, KIND, REASON
""")
def test_columns_are_left_out_in_the_stated_order(width: int | None, left_out: str) -> None:
    """At 80 columns objects have result, kind, name, size, reason and what was freed; at 60 result,
    name and what was freed; in a pipe every column, and each row in one line, however long its
    names."""
    lines = table(ROWS, width)
    heads = {head for head in OBJECTS if f" {head} " in f" {lines[0]} "}
    assert set(OBJECTS) - heads == set(filter(None, left_out.split(", ")))
    assert max(map(len, lines)) <= width if width else len(lines) == 3 and LONG in lines[2]


def test_of_a_name_both_ends_are_shown_and_texts_go_on_below() -> None:
    """No word of a text is broken that fits; a path goes on after a slash, the name of a field
    after a dot."""
    words = "a container uses it, and another one too"
    named = [["NAME", "IN WORDS"], ["registry.example/some/team/app:1.2.3", words]]
    grace = "evictionSoftGracePeriod.nodefs.available"
    field = [["FIELD", "VALUE"], [grace, "/var/lib/kubelet/pods"]]
    assert table(named, 45) + table(field, 44) == [
        "NAME                         IN WORDS",
        "registry.exam…eam/app:1.2.3  a container uses",
        "                             it, and another",
        "                             one too",
        "FIELD                        VALUE",
        "evictionSoftGracePeriod.     /var/lib/",
        "nodefs.available             kubelet/pods",
    ]
    assert table([["A", "LONGER", "C"], ["value", "x", ""]]) == ["A      LONGER  C", "value  x"]


cells = st.text("ab ./,:=é\n", max_size=90)


@pytest.mark.parametrize("last", ["NAME", "WHAT"])
@given(
    st.lists(st.sampled_from(LEFT_OUT_FIRST), unique=True, max_size=9),
    cells | st.text(max_size=20),
    cells,
    st.data(),
    st.none() | st.integers(45, 200),
)
def test_every_line_fits_and_is_printable_and_no_text_is_lost(
    last: str, heads: list[str], one: str, other: str, data: st.DataObject, width: int | None
) -> None:
    """Whatever the cells are, from 45 columns on; without a width each row is a line. A head that
    is left out is not the first of its table."""
    short = [data.draw(st.text("x", max_size=12)) for _ in heads]
    rows = [["RESULT", *heads, last], ["1", *short, one], ["2", *short, other]]
    lines = table(rows, width)
    assert all(line.isprintable() for line in lines)
    assert max(map(len, lines)) <= width if width else len(lines) == 3
    if last == "WHAT" and width:
        begins = lines[0].index("WHAT")
        texts = "".join("".join(line[begins:].split()) for line in lines[1:])
        assert texts == "".join((escaped(one) + escaped(other)).split())
    assert not NAMES & TEXTS


# ---- bars


@rows("""
    available | marks                       | shown                | what
    100       | {}                          | ···················· | nothing is used
    52        | {reclaimd: 15, kubelet: 10} | █████████▌·······│┃· | to an eighth of a character
    4         | {reclaimd: 15, kubelet: 10} | █████████████████│┃▏ | below both
    0         | {reclaimd: 0, kubelet: 100} | ┃██████████████████│ | at the ends
    50        | {reclaimd: 10.4, kubelet: 10} | ██████████·······│┃· | in one place
    50        | {reclaimd: 10, kubelet: 12} | ██████████·······┃│· | later than the kubelet
""")
def test_a_bar_shows_what_is_used_and_both_marks(
    available: int, marks: dict[str, int], shown: str
) -> None:
    """Of 100 units, on 20 characters, in the order in which a filling disk reaches the marks."""
    assert bar(available, 100, marks) == shown
    assert len(bar(0, 0, marks)) == len(shown)


def test_a_sparkline_is_flat_where_little_moves() -> None:
    """Else it goes from the least amount to the largest."""
    assert sparkline([0, 10, 30, 70, 20], 100) == "▁▂▄█▃"
    assert (sparkline([5000, 5001], 10_000), sparkline([0], 0)) == ("▁▁", "▁")


WALL = 1_800_000_000.25
HOSTILE = "a\nb\r\x1b[2J\x00\x7f\x85\u2028\u202e\t"


def logged(*, as_json: bool = False, verbosity: int = 0) -> tuple[Log, io.StringIO]:
    """A log and the stream that it writes to."""
    stream = io.StringIO()
    return Log(lambda: WALL, as_json=as_json, verbosity=verbosity, stream=stream), stream


def test_an_event_is_a_line_of_text_or_one_object() -> None:
    """Values with blanks or quotes, and empty ones, are quoted; what the sentence says, and the
    record, are left to the JSON form, and what that has as a field is a line of its own only in
    text."""
    (text, in_text), (document, in_json) = logged(), logged(as_json=True)
    given: dict[str, Any] = {"signal": "nodefs.available", "reason": "it is 1GiB", "said": '"'}
    for log in (text, document):
        log.info("relieved", **given, nothing="", record={"a": [1]})
        log.info("held off: 17 of 2", reason="held_off", code=17, other=7, result="idle")
        log.in_text("removed image a", **{"pass": "1"})
    assert in_text.getvalue() == (
        '2027-01-15T08:00:00.250Z info    relieved signal=nodefs.available reason="it is 1GiB"'
        ' said="\\"" nothing=""\n2027-01-15T08:00:00.250Z info    held off: 17 of 2 other=7\n'
        "2027-01-15T08:00:00.250Z info    removed image a pass=1\n"
    )
    head = {"time": "2027-01-15T08:00:00.250Z", "level": "info", "message": "relieved"}
    assert json.loads(in_json.getvalue().splitlines()[0]) == {
        **head,
        **given,
        "nothing": "",
        "record": {"a": [1]},
    }


@pytest.mark.parametrize("as_json", [False, True])
@given(
    sentence=st.text() | st.just(HOSTILE),
    name=st.text() | st.just(HOSTILE) | st.binary(max_size=40).map(os.fsdecode),
)
def test_one_event_is_one_printable_line(as_json: bool, sentence: str, name: str) -> None:
    """No name ends a line early, turns it around, or sends commands to a terminal."""
    log, stream = logged(as_json=as_json)
    log.error(sentence, name=name, nested=[name])
    line = stream.getvalue()
    assert line.endswith("\n")
    assert line[:-1].isprintable()
    assert len(line.splitlines()) == 1
    if as_json:
        found = json.loads(line)
        assert (found["message"], found["name"]) == (sentence, name)


@given(st.text())
def test_escaped_text_is_printable_and_stays_so(text: str) -> None:
    """Only what cannot be shown is written as an escape; escaping twice is escaping once."""
    assert escaped(text).isprintable()
    assert escaped(escaped(text)) == escaped(text)
    assert not text.isprintable() or escaped(text) == text
    shown = [
        ("a\nb", "a\\nb"),
        ("\x1b[31m", "\\x1b[31m"),
        ("\u2028", "\\u2028"),
        ("\ud800", "\\ud800"),
    ]
    assert [(given, escaped(given)) for given, _ in shown] == shown


@pytest.mark.parametrize(("verbosity", "lines"), [(0, 3), (1, 4), (9, 4)])
def test_debug_events_need_verbosity(verbosity: int, lines: int) -> None:
    """Everything else is always written."""
    log, stream = logged(verbosity=verbosity)
    log.event(Level.DEBUG, "d")
    for write in (log.info, log.warning, log.error):
        write("w")
    assert len(stream.getvalue().splitlines()) == lines


class FullDisk(io.StringIO):
    """A stream that cannot be written to."""

    def write(self, text: str) -> int:
        """Fails as a full disk does."""
        raise OSError(28, "No space left on device")


@pytest.mark.parametrize("closed", [False, True])
def test_a_log_that_cannot_be_written_stops_nothing(closed: bool) -> None:
    """A full disk, or a stream that was closed."""
    stream = FullDisk()
    if closed:
        stream.close()
    Log(lambda: WALL, stream=stream).event(Level.ERROR, "lost")


def test_for_the_journal_a_line_begins_with_its_priority() -> None:
    """As sd-daemon(3) has it; text without a time of its own, JSON whole behind it."""
    stream = io.StringIO()
    Log(lambda: 0.0, stream=stream, journal=True).warning("full\nof it", signal="nodefs.available")
    Log(lambda: 0.0, stream=stream, journal=True, as_json=True).error("broken")
    Log(lambda: 0.0, stream=stream, journal=True, verbosity=1).event(Level.DEBUG, "detail")
    text, document, last = stream.getvalue().splitlines()
    assert (text, document[:3]) == ("<4>full\\nof it signal=nodefs.available", "<3>")
    assert last == "<7>detail"
    assert json.loads(document[3:])["message"] == "broken"


def test_only_the_journals_own_stream_is_the_journal(tmp_path: Path) -> None:
    """Device and inode must agree: a daemon whose output was redirected writes plain lines."""
    with (tmp_path / "stream").open("w") as stream, (tmp_path / "other").open("w") as other:
        found = os.fstat(stream.fileno())
        environment = {"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino}"}
        closed = os.dup(stream.fileno())
        os.close(closed)
        for descriptor, variables, is_it in (
            (stream.fileno(), environment, True),
            (other.fileno(), environment, False),
            (stream.fileno(), {}, False),
            (closed, environment, False),
        ):
            assert goes_to_journal(variables, descriptor) is is_it
