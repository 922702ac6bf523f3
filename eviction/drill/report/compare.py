"""The comparison of two runs: as a table for a terminal, and as a page.

Times count from the moment at which each run crossed its first mark. So runs can be compared whose fill began at
different times, or in which different components (reclaimd, a kubelet) relieved the node. Where one of them crossed no
mark they count from the beginning of each.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from eviction.drill.measurement.measurements import PLURALS
from eviction.drill.report.chart import Chart, Series, chart_svg, html_text, lanes_svg
from eviction.drill.report.document import Report
from eviction.drill.report.html import chart_name, charts_to_draw, event_lanes, figure, html, html_table, marks_of
from eviction.drill.report.svg import sheet
from eviction.drill.report.write import write_text
from eviction.reporting.log import escaped
from eviction.reporting.tables import table
from signals.quantity import counted, format_bytes, format_duration

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
        "ReclaimPressure reported": lambda run: _seconds(_reported(run)),
    }
    rows = [[what, of(first), of(second)] for what, of in shown.items()]
    return [["WHAT", *names_of(first, second)], *rows]


def comparison_table(first: Report, second: Report, width: int | None = None) -> list[str]:
    """The rows as lines for a terminal, with a note if the scenarios differ."""
    lines = table(comparison_rows(first, second), width)
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
        f'<p class="why">Seconds count from {_origin(first, second)}.</p>',
        html_table(["What", *names], [[html_text(cell) for cell in row] for row in rows]),
        "<h2>Timeline</h2>",
        "".join(
            f'<p class="key"><span><i class="{style}"></i>{html_text(name)}: {html_text(run.why)}</span></p>'
            for style, name, run in zip(STYLES, names, (first, second), strict=True)
        ),
        *(figure(*drawing) for drawing in _drawings(first, second)),
    ]
    return html(f"drills {first.scenario} and {second.scenario}", body)


def comparison_picture(first: Report, second: Report) -> str:
    """The first chart and the events of both runs as one SVG file, for a README, a ticket or a slide."""
    chart, *_, events = _drawings(first, second)
    title = " and ".join(names_of(first, second))
    lines = [f"{name}: {_outcome(run)}" for name, run in zip("AB", (first, second), strict=True)]
    return sheet(title, (*lines, f"A is solid, B is dashed; seconds from {_origin(first, second)}"), (chart, events))


def write_comparison(first: Report, second: Report, directory: str) -> tuple[str, str]:
    """Writes the page and the picture into a directory; their paths. Raises OSError."""
    texts = {"comparison.html": comparison_page(first, second), "comparison.svg": comparison_picture(first, second)}
    page, picture = (write_text(os.path.join(directory, name), text) for name, text in texts.items())
    return page, picture


def _origin(first: Report, second: Report) -> str:
    if _both_crossed(first, second):
        return "the moment at which each run crossed its first mark"
    return "the beginning of each run: not both crossed a mark"


def _both_crossed(first: Report, second: Report) -> bool:
    return first.crossed_seconds is not None and second.crossed_seconds is not None


def _drawings(first: Report, second: Report) -> list[tuple[str, str]]:
    """Name and SVG of the charts of the first run, each with the line of the second run if that has the same
    filesystem; and of the events of both."""
    runs = (first, second)
    both = _both_crossed(first, second)
    origins = [(run.crossed_seconds or 0.0) if both else 0.0 for run in runs]
    began = min(-origin for origin in origins)
    ended = max(run.ended_seconds - origin for run, origin in zip(runs, origins, strict=True))
    drawings = []
    for filesystem, inodes in charts_to_draw(first):
        name = chart_name(filesystem, inodes=inodes)
        lines = [
            Series(
                run_name, [(at - origin, amount) for at, amount in run.series(filesystem.name, inodes=inodes)], style
            )
            for run, run_name, style, origin in zip(runs, names_of(first, second), STYLES, origins, strict=True)
        ]
        marks = marks_of(first, filesystem, inodes=inodes)
        unit = str if inodes else format_bytes
        chart = Chart(name, began, ended, unit, lines, marks, binary=not inodes)
        drawings.append((f"{name}; marks of A", chart_svg(chart)))
    lanes = [
        lane
        for name, run, origin in zip("AB", runs, origins, strict=True)
        for lane in event_lanes(run, f"{name}: ", origin)
    ]
    return [*drawings, ("events", lanes_svg("events", began, ended, lanes))]


def _outcome(run: Report) -> str:
    """What became of a run, in one line."""
    facts = [
        f"lowest {signal} {format_bytes(value)}"
        for signal, value in run.lowest.items()
        if value is not None and not signal.endswith("inodesFree")
    ][:1]
    relief = run.from_crossing_to_first_relief_seconds
    facts += [] if relief is None else [f"first byte freed {format_duration(relief)} after its mark was crossed"]
    facts += [f"pods ended: {len(run.ended_pods)}", f"images removed: {_removed('image')(run)}"]
    return ", ".join(facts)


def _reported(run: Report) -> float | None:
    bands = run.reclaim_pressure
    if not bands:
        return None
    return sum((run.ended_seconds if b.to_seconds is None else b.to_seconds) - b.from_seconds for b in bands)


def _seconds(seconds: float | None) -> str:
    return "-" if seconds is None else format_duration(seconds)


def _removed(kind: str) -> Callable[[Report], str]:
    return lambda run: str(sum(removal.kind == kind for removal in run.removals))


def _lowest(signal: str) -> Callable[[Report], str]:
    def shown(run: Report) -> str:
        value = run.lowest.get(signal)
        if value is None:
            return "-"
        return counted(value, "inode") if signal.endswith(".inodesFree") else format_bytes(value)

    return shown
