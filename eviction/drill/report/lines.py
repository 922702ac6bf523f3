"""What a drill measured, for people: the story of a run, and its expectations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

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
    filled = [("filled", what) for what in pressures]
    return [("node", node), *filled, *(("fault", what) for what in faults)]


def story_rows(report: DrillReportJson) -> list[Row]:
    """What happened: the mark and its row, what went and stayed, how long it took, the verdict."""
    rows = [("crossed", "no mark")]
    which = "a mark"
    row: list[Row] = []
    for one in report.passes:
        mark = one.acted_on
        if mark is not None:
            figure = amount(mark.signal, mark.effective or 0)
            which = f"the mark of {mark.signal}, {mark_text(mark)} = {figure},"
            row = [("row", ", ".join(one.row) or "empty")]
            break
    if report.crossed_seconds is not None:
        rows = [("crossed", f"{which} after {format_duration(report.crossed_seconds)}")]
    rows += row
    reasons = {verdict.id: verdict.reason for one in report.passes for verdict in one.removals}
    removed = [(gone.kind, gone.name, reasons.get(gone.id, "")) for gone in report.removals]
    rows += _by_kind("removed", removed)
    kept: dict[str, Any] = {}
    for one in report.passes:
        if not isinstance(one.kept, LeftOut):
            kept |= {verdict.id: verdict for verdict in one.kept}
    for gone in report.removals:
        kept.pop(gone.id, None)
    for word, spared in (("kept", False), ("spared", True)):  # spared: enough was freed without it
        stayed = [one for one in kept.values() if (one.reason == Reason.RELIEVED) is spared]
        rows += _by_kind(word, [(one.kind, one.name, one.reason) for one in stayed])
    rows += _by_kind("ended", [("pod", pod.name, "") for pod in report.ended_pods])
    if report.crossed_seconds is not None:
        rows.append(("relief", outcome_text(report)))
    for check in report.checks:
        if check.held is False:
            rows.append(("NOT", f"{check.name} {check.expected}: {check.seen}"))
    return [*rows, ("ok" if report.held else "NOT", f"{report.scenario}: {report.verdict}")]


def outcome_text(report: DrillReportJson) -> str:
    """How long after the first crossing everything came, and the lowest point."""
    times = [f"{what} {seconds_text(took, 'never')}" for what, took in report.times.items()]
    acted_on = next((one.acted_on.signal for one in report.passes if one.acted_on), "")
    least = {
        text: None for signal, text in lowest(report).items() if signal == acted_on or not acted_on
    }
    return f"from crossing the mark: {', '.join(times)}; lowest point {', '.join(least)}"


def _by_kind(word: str, objects: Sequence[tuple[str, str, str]]) -> list[Row]:
    """Objects (kind, name, reason): of each kind their number, and one with the usual reason.

    The kinds stand in one order, whichever of them was first: functions run side
    by side where it hurries.
    """
    rows = []
    for kind in dict.fromkeys((*PLURALS, *sorted(each for each, *_ in objects))):
        names: dict[str, list[str]] = {}  # by reason
        for each, name, reason in objects:
            if each == kind:
                names.setdefault(reason, []).append(name)
        if not names:
            continue
        usual = max(names, key=lambda reason: len(names[reason]))
        why = f" ({reason_in_words(usual)})" if usual else ""
        count = sum(map(len, names.values()))
        example = f"{count}, such as {names[usual][0]}{why}"
        rows.append((word, f"{PLURALS.get(kind, f'{kind}s')}: {example}"))
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
