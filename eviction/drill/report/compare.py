"""The comparison of two runs: as a table for a terminal, and as a page.

Times count from the moment at which each run crossed its first mark. So runs can be compared whose fill began at
different times, or in which different components (reclaimd, a kubelet) relieved the node.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from eviction.drill.measurement.measurements import PLURALS
from eviction.drill.report.chart import Chart, Series, chart_svg, html_text
from eviction.drill.report.document import Report
from eviction.drill.report.html import chart_name, charts_to_draw, figure, html, html_table, marks_of
from eviction.drill.report.write import write_text
from eviction.reporting.log import escaped
from eviction.reporting.tables import table
from signals.quantity import format_bytes, format_duration

STYLES = ("line-a", "line-b")


def comparison_rows(first: Report, second: Report) -> list[list[str]]:
    """One row for each figure, with the values of both runs. The first row is the head."""
    shown: dict[str, Callable[[Report], str]] = {
        "held": lambda run: "yes" if run.held else "no",
        "relieved by": lambda run: run.response,
        "crossing to first removal": lambda run: _seconds(run.from_crossing_to_first_removal_seconds),
        "crossing to first relief": lambda run: _seconds(run.from_crossing_to_first_relief_seconds),
        "crossing to relief": lambda run: _seconds(run.from_crossing_to_relief_seconds),
        **{f"lowest {signal}": _lowest(signal) for signal in [*first.lowest, *second.lowest]},
        **{f"{plural} removed": _removed(kind) for kind, plural in PLURALS.items()},
        "pods ended": lambda run: str(len(run.ended_pods)),
        "images beyond need": lambda run: (
            "-" if run.images_lost_beyond_need is None else str(run.images_lost_beyond_need)
        ),
        "passes": lambda run: str(len(run.passes)),
        "DiskPressure reported": lambda run: _seconds(_reported(run)),
    }
    rows = [[what, of(first), of(second)] for what, of in shown.items()]
    return [["WHAT", *names_of(first, second)], *rows]


def comparison_table(first: Report, second: Report) -> list[str]:
    """The rows as lines for a terminal, with a note if the scenarios differ."""
    lines = table(comparison_rows(first, second))
    if first.scenario != second.scenario:
        lines += ["", escaped(f"different scenarios: {first.scenario} and {second.scenario}")]
    return lines


def names_of(first: Report, second: Report) -> tuple[str, str]:
    """The names of the runs: A and B, with the names of their scenarios."""
    return f"A ({first.title})", f"B ({second.title})"


def comparison_page(first: Report, second: Report) -> str:
    """The page of two runs."""
    _, *rows = comparison_rows(first, second)
    names = names_of(first, second)
    body = [
        f"<h1>{html_text(names[0])} and {html_text(names[1])}</h1>",
        '<p class="why">Seconds count from the moment at which each run crossed its first mark.</p>',
        html_table(["What", *names], [[html_text(cell) for cell in row] for row in rows]),
        "<h2>Timeline</h2>",
        "".join(
            f'<p class="key"><span><i class="{style}"></i>{html_text(name)}: {html_text(run.why)}</span></p>'
            for style, name, run in zip(STYLES, names, (first, second), strict=True)
        ),
        *_charts(first, second),
    ]
    return html(f"drills {first.scenario} and {second.scenario}", body)


def write_comparison(first: Report, second: Report, directory: str) -> str:
    """Writes the page into a directory; its path. Raises OSError."""
    return write_text(os.path.join(directory, "comparison.html"), comparison_page(first, second))


def _charts(first: Report, second: Report) -> list[str]:
    """The charts of the first run, each with the line of the second run if that has the same filesystem."""
    began = min(-(run.crossed_seconds or 0.0) for run in (first, second))
    ended = max(run.ended_seconds - (run.crossed_seconds or 0.0) for run in (first, second))
    figures = []
    for filesystem, inodes in charts_to_draw(first):
        name = chart_name(filesystem, inodes=inodes)
        lines = [
            Series(run_name, _from_crossing(run, run.series(filesystem.name, inodes=inodes)), style)
            for run, run_name, style in zip((first, second), names_of(first, second), STYLES, strict=True)
        ]
        marks = marks_of(first, filesystem, inodes=inodes)
        unit = str if inodes else format_bytes
        chart = Chart(name, began, ended, unit, lines, marks, binary=not inodes)
        figures.append(figure(f"{name}; marks of A", chart_svg(chart)))
    return figures


def _from_crossing(run: Report, points: list[tuple[float, int]]) -> list[tuple[float, int]]:
    return [(seconds - (run.crossed_seconds or 0.0), amount) for seconds, amount in points]


def _reported(run: Report) -> float | None:
    if not run.conditions:
        return None
    return sum((run.ended_seconds if b.to_seconds is None else b.to_seconds) - b.from_seconds for b in run.conditions)


def _seconds(seconds: float | None) -> str:
    return "-" if seconds is None else format_duration(seconds)


def _removed(kind: str) -> Callable[[Report], str]:
    return lambda run: str(sum(removal.kind == kind for removal in run.removals))


def _lowest(signal: str) -> Callable[[Report], str]:
    def shown(run: Report) -> str:
        value = run.lowest.get(signal)
        if value is None:
            return "-"
        return f"{value} inodes" if signal.endswith(".inodesFree") else format_bytes(value)

    return shown
