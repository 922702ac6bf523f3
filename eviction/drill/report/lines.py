"""What a drill measured, for people: the story of a run, and its expectations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from eviction.drill.measurement.measurements import PLURALS
from eviction.drill.report.document import DrillReportJson, mark_text
from eviction.records.json_shapes import LeftOut
from eviction.wording.explain import reason_in_words
from eviction.wording.tables import amount, table
from reclaim.types import Reason
from signals.quantity import format_duration

Row = tuple[str, str]
"""A word and what it is about."""


def before_rows(node: str, pressures: Iterable[str], faults: Iterable[str]) -> list[Row]:
    """What a run is to show: the node, what fills it, what goes wrong."""
    return [
        ("node", node),
        *(("filled", what) for what in pressures),
        *(("fault", what) for what in faults),
    ]


def story_rows(report: DrillReportJson) -> list[Row]:
    """What happened, in its order: the mark and its row, what went and what stayed, how
    long that took, the verdict.
    """
    crossed, acted = (
        report.crossed_seconds,
        next((one for one in report.passes if one.acted_on), None),
    )
    which = "a mark"
    if acted and (mark := acted.acted_on):
        which = (
            f"the mark of {mark.signal}, {mark_text(mark)} ="
            f" {amount(mark.signal, mark.effective or 0)},"
        )
    rows = [
        ("crossed", "no mark" if crossed is None else f"{which} after {format_duration(crossed)}")
    ]
    if acted:
        rows.append(("row", ", ".join(acted.row) or "empty"))
    reasons = {one.id: one.reason for each in report.passes for one in each.removals}
    rows += _by_kind(
        "removed", [(one.kind, one.name, reasons.get(one.id, "")) for one in report.removals]
    )
    gone = {one.id for one in report.removals}
    objects = [
        one for each in report.passes if not isinstance(each.kept, LeftOut) for one in each.kept
    ]
    kept = {one.id: one for one in objects if one.id not in gone}.values()
    for word, spared in (("kept", False), ("spared", True)):  # spared: enough was freed without it
        mine = [one for one in kept if (one.reason == Reason.RELIEVED) is spared]
        rows += _by_kind(word, [(one.kind, one.name, one.reason) for one in mine])
    rows += _by_kind("ended", [("pod", pod.name, "") for pod in report.ended_pods])
    if crossed is not None:
        rows.append(("relief", outcome_text(report)))
    rows += [
        ("NOT", f"{one.name} {one.expected}: {one.seen}")
        for one in report.checks
        if one.held is False
    ]
    return [*rows, ("ok" if report.held else "NOT", f"{report.scenario}: {report.verdict}")]


def outcome_text(report: DrillReportJson) -> str:
    """How long after the first crossing everything came, and what was
    available at the lowest point.
    """
    times = [f"{what} {seconds_text(took, 'never')}" for what, took in report.times.items()]
    acted_on = next((one.acted_on.signal for one in report.passes if one.acted_on), "")
    least = {
        text: None for signal, text in lowest(report).items() if signal == acted_on or not acted_on
    }
    return f"from crossing the mark: {', '.join(times)}; lowest point {', '.join(least)}"


def _by_kind(word: str, objects: Sequence[tuple[str, str, str]]) -> list[Row]:
    """Objects (kind, name and reason): for each kind their number, and one with
    the most frequent reason.

    The kinds stand in one order, whichever of them was first: functions run side
    by side where it hurries.
    """
    rows = []
    for kind in dict.fromkeys((*PLURALS, *sorted(each for each, *_ in objects))):
        mine = [(reason, name) for each, name, reason in objects if each == kind]
        if not mine:
            continue
        ((most, _),) = Counter(reason for reason, _ in mine).most_common(1)
        example = next(name for reason, name in mine if reason == most)
        why = f" ({reason_in_words(most)})" if most else ""
        rows.append((word, f"{PLURALS.get(kind, f'{kind}s')}: {len(mine)}, such as {example}{why}"))
    return rows


def row_lines(rows: Iterable[Row]) -> list[str]:
    """Rows as lines, their words in a column."""
    return [f"{word:9}{text}" for word, text in rows]


def checks_table(report: DrillReportJson, width: int | None = None) -> list[str]:
    """The expectations with what was measured."""
    words = {True: "ok", False: "NOT", None: "-"}
    rows = [[words[check.held], check.name, check.expected, check.seen] for check in report.checks]
    return table([["HELD", "WHAT", "EXPECTED", "MEASURED"], *rows], width) if rows else []


def lowest(report: DrillReportJson) -> dict[str, str]:
    """The least that was available, by signal."""
    return {
        signal: "-" if least is None else amount(signal, least)
        for signal, least in report.lowest.items()
    }


def seconds_text(seconds: float | None, unknown: str = "-") -> str:
    return unknown if seconds is None else format_duration(seconds)
