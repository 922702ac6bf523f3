"""What a drill measured, as lines for a terminal: one run, or two side by side."""

from __future__ import annotations

from collections.abc import Sequence

from eviction.drill.measurement.measurements import PLURALS
from eviction.drill.report.document import Report
from eviction.reporting.log import escaped
from eviction.reporting.tables import table
from signals.quantity import counted, format_bytes, format_duration

NAMED = 5  # objects of each kind that a terminal names; the report names all


def verdict_lines(report: Report, width: int | None = None) -> list[str]:
    """The expectations with what was measured, the times, and the verdict."""
    words = {True: "ok", False: "NOT", None: "-"}
    rows = [[words[check.held], check.name, check.expected, check.seen] for check in report.checks]
    lines = table([["HELD", "WHAT", "EXPECTED", "MEASURED"], *rows], width) if rows else []
    removal, relief = report.from_crossing_to_first_removal_seconds, report.from_crossing_to_relief_seconds
    if removal is not None and relief is not None:
        acted_on = next((one.acted_on.signal for one in report.passes if one.acted_on), "")
        lines += [
            "",
            f"from crossing the mark to the first removal: {format_duration(removal)}",
            f"from crossing the mark to relief:            {format_duration(relief)}",
            f"lowest point:                                {lowest(report).get(acted_on, '-')}",
        ]
    return [*lines, "", f"{report.scenario}: {report.verdict}"]


def observation_lines(report: Report, width: int | None = None) -> list[str]:
    """What was measured on a real node, in a run without expectations."""
    crossed = report.crossed_seconds
    rows = [
        ["WHAT", "MEASURED"],
        ["crossed a mark", "never" if crossed is None else f"after {format_duration(crossed)}"],
    ]
    for what, took in report.times.items() if crossed is not None else ():
        rows.append([f"from crossing to {what.replace('first', 'the first')}", seconds_text(took, "not measured")])
    rows += [[f"lowest {signal}", text] for signal, text in lowest(report, "not measured").items()]
    for kind, plural in PLURALS.items():
        rows.append([f"{plural} removed", _counted_names([one.name for one in report.removals if one.kind == kind])])
    rows.append(["pods that ended", _counted_names([pod.name for pod in report.ended_pods])])
    rows += [["meanwhile", f"{fault.what}, after {format_duration(fault.seconds)}"] for fault in report.faults]
    return table(rows, width)


def comparison_rows(first: Report, second: Report) -> list[list[str]]:
    """One row for each figure, with the values of both runs."""
    signals = [*first.lowest, *second.lowest]
    one, other = _figures(first, signals), _figures(second, signals)
    return [[what, one[what], other[what]] for what in one]


def comparison_table(first: Report, second: Report, width: int | None = None) -> list[str]:
    """The rows as lines, with a note if the scenarios differ."""
    lines = table([["WHAT", f"A ({first.title})", f"B ({second.title})"], *comparison_rows(first, second)], width)
    if first.scenario != second.scenario:
        lines += ["", escaped(f"different scenarios: {first.scenario} and {second.scenario}")]
    return lines


def _figures(report: Report, signals: Sequence[str]) -> dict[str, str]:
    kinds = [removal.kind for removal in report.removals]
    beyond, least = report.images_lost_beyond_need, lowest(report)
    reported = [
        (report.ended_seconds if one.to_seconds is None else one.to_seconds) - one.from_seconds
        for one in report.reclaim_pressure
    ]
    return {
        "held": "yes" if report.held else "no",
        "relieved by": report.response,
        **{f"crossing to {what}": seconds_text(took) for what, took in report.times.items()},
        **{f"lowest {signal}": least.get(signal, "-") for signal in signals},
        **{f"{plural} removed": str(kinds.count(kind)) for kind, plural in PLURALS.items()},
        "pods ended": str(len(report.ended_pods)),
        "images beyond need": "-" if beyond is None else str(beyond),
        "passes": str(len(report.passes)),
        "ReclaimPressure reported": seconds_text(sum(reported) if reported else None),
    }


def lowest(report: Report, unknown: str = "-") -> dict[str, str]:
    """The least that was available, by signal."""
    return {signal: unknown if least is None else amount_text(signal, least) for signal, least in report.lowest.items()}


def amount_text(signal: str, amount: int) -> str:
    """An amount of a signal of any name: `1.4GiB`, `17 inodes`."""
    return counted(amount, "inode") if signal.endswith(".inodesFree") else format_bytes(amount)


def seconds_text(seconds: float | None, unknown: str = "-") -> str:
    return unknown if seconds is None else format_duration(seconds)


def _counted_names(names: Sequence[str]) -> str:
    return ", ".join([str(len(names)), *names[:NAMED], *["…"] * (len(names) > NAMED)])
