"""What a drill measured, for people: the story of a run, and its expectations."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import product

from eviction.drill.measurements import PLURALS
from eviction.drill.report.document import DrillReportJson, mark_text
from eviction.records.json_shapes import LeftOut
from eviction.wording.explain import reason_in_words
from eviction.wording.tables import amount, table
from reclaim.types import Reason
from signals.quantity import format_duration

Row = tuple[str, str]
"""A word and what it is about."""

Fate = tuple[str, str, str, str]
"""What became of an object: removed, kept, spared or ended; its kind, its name, the reason."""


def before_rows(node: str, pressures: Iterable[str], faults: Iterable[str]) -> list[Row]:
    """What a run is to show: the node, what fills it, what goes wrong."""
    filled = [("filled", what) for what in pressures]
    return [("node", node), *filled, *(("fault", what) for what in faults)]


def story_rows(report: DrillReportJson) -> list[Row]:
    """What happened: the mark and its row, what went and stayed, how long it took."""
    which = "a mark"
    acted_on = ""
    row: list[Row] = []
    for one in report.passes:
        mark = one.acted_on
        if mark is not None:
            acted_on = mark.signal
            figure = amount(acted_on, mark.effective or 0)
            which = f"the mark of {acted_on}, {mark_text(mark)} = {figure},"
            row = [("row", ", ".join(one.row) or "empty")]
            break
    crossed = report.crossed_seconds
    how = "no mark" if crossed is None else f"{which} after {format_duration(crossed)}"
    rows = [("crossed", how), *row]
    reasons: dict[str, str] = {}
    fates: dict[str, Fate] = {}
    for one in report.passes:
        reasons |= {verdict.id: verdict.reason for verdict in one.removals}
        if isinstance(one.kept, LeftOut):
            continue
        for verdict in one.kept:
            # spared: enough was freed without it
            word = "spared" if verdict.reason == Reason.RELIEVED else "kept"
            fates[verdict.id] = (word, verdict.kind, verdict.name, verdict.reason)
    for gone in report.removals:  # in their order, whatever an earlier pass kept
        fates.pop(gone.id, None)
        fates[gone.id] = ("removed", gone.kind, gone.name, reasons.get(gone.id, ""))
    for pod in report.ended_pods:
        fates[pod.id] = ("ended", pod.kind, pod.name, "")
    rows += _fate_rows(fates.values())
    if crossed is not None:
        rows.append(("relief", _outcome_text(report, acted_on)))
    return rows


def verdict_rows(report: DrillReportJson) -> list[Row]:
    """What did not hold, and the verdict."""
    failed = [check for check in report.checks if check.held is False]
    rows = [("NOT", f"{check.name} {check.expected}: {check.seen}") for check in failed]
    return [*rows, ("ok" if report.held else "NOT", f"{report.scenario}: {report.verdict}")]


def _outcome_text(report: DrillReportJson, acted_on: str) -> str:
    """How long after the first crossing everything came, and the lowest point. Of a removal, polled
    lists say only by when it was."""
    removal = "first removal" if report.lists_apart_seconds is None else "first removal within"
    times = [
        f"{what} {'never' if took is None else format_duration(took)}"
        for what, took in (
            (removal, report.from_crossing_to_first_removal_seconds),
            ("first byte", report.from_crossing_to_first_relief_seconds),
            ("relief", report.from_crossing_to_relief_seconds),
        )
    ]
    lowest = [
        "-" if least is None else amount(signal, least)
        for signal, least in report.lowest.items()
        if signal == (acted_on or signal)
    ]
    points = ", ".join(dict.fromkeys(lowest))
    return f"from crossing the mark: {', '.join(times)}; lowest point {points}"


def _fate_rows(fates: Collection[Fate]) -> list[Row]:
    """Of each fate and kind of object their number, and one with the usual reason.

    The kinds stand in one order, whichever of them was first: functions run side
    by side where it hurries.
    """
    rows = []
    kinds = dict.fromkeys((*PLURALS, *sorted(kind for _, kind, _, _ in fates)))
    for word, kind in product(("removed", "kept", "spared", "ended"), kinds):
        names: dict[str, list[str]] = {}  # by reason
        for fate in fates:
            if fate[:2] == (word, kind):
                names.setdefault(fate[3], []).append(fate[2])
        if names:
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
