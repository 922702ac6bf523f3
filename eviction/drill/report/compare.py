"""The comparison of two runs: as a table for a terminal, and as a page.

Times count from the moment at which each run crossed its first mark. So runs can be compared whose fill began at
different times, or in which different components (reclaimd, a kubelet) relieved the node. Where one of them crossed no
mark they count from the beginning of each.
"""

from __future__ import annotations

from collections.abc import Callable

from eviction.drill.measurement.measurements import PLURALS
from eviction.drill.report.document import Report
from eviction.drill.report.page import figure, html, html_table, seconds_text
from eviction.drill.report.timeline import Run, html_text, sheet, timeline
from eviction.reporting.log import escaped
from eviction.reporting.tables import table
from signals.quantity import counted, format_bytes, format_duration


def comparison_rows(first: Report, second: Report) -> list[list[str]]:
    """One row for each figure, with the values of both runs. The first row is the head."""
    shown: dict[str, Callable[[Report], str]] = {
        "held": lambda run: "yes" if run.held else "no",
        "relieved by": lambda run: run.response,
        "crossing to first removal": lambda run: seconds_text(run.from_crossing_to_first_removal_seconds),
        "crossing to first relief": lambda run: seconds_text(run.from_crossing_to_first_relief_seconds),
        "crossing to relief": lambda run: seconds_text(run.from_crossing_to_relief_seconds),
        **{f"lowest {signal}": _lowest(signal) for signal in [*first.lowest, *second.lowest]},
        **{f"{plural} removed": _removed(kind) for kind, plural in PLURALS.items()},
        "pods ended": lambda run: str(len(run.ended_pods)),
        "images beyond need": lambda run: (
            "-" if run.images_lost_beyond_need is None else str(run.images_lost_beyond_need)
        ),
        "passes": lambda run: str(len(run.passes)),
        "ReclaimPressure reported": lambda run: seconds_text(_reported(run)),
    }
    names = [run.name for run in _runs(first, second)]
    return [["WHAT", *names], *([what, of(first), of(second)] for what, of in shown.items())]


def comparison_table(first: Report, second: Report, width: int | None = None) -> list[str]:
    """The rows as lines for a terminal, with a note if the scenarios differ."""
    lines = table(comparison_rows(first, second), width)
    if first.scenario != second.scenario:
        lines += ["", escaped(f"different scenarios: {first.scenario} and {second.scenario}")]
    return lines


def comparison_page(first: Report, second: Report) -> str:
    """The page of two runs."""
    _, *rows = comparison_rows(first, second)
    runs = _runs(first, second)
    names = [run.name for run in runs]
    keys = [(run.style, html_text(f"{run.name}: {run.report.why}")) for run in runs]
    body = [
        f"<h1>{html_text(' and '.join(names))}</h1>",
        f'<p class="why">Seconds count from {_origin(first, second)}.</p>',
        html_table(["What", *names], [[html_text(cell) for cell in row] for row in rows]),
        "<h2>Timeline</h2>",
        "".join(f'<p class="key"><span><i class="{style}"></i>{text}</span></p>' for style, text in keys),
        *(figure(*drawing) for drawing in timeline(runs)),
    ]
    return html(f"drills {first.scenario} and {second.scenario}", body)


def comparison_picture(first: Report, second: Report) -> str:
    """The first chart and the events of both runs as one SVG file, for a README, a ticket or a slide."""
    runs = _runs(first, second)
    lines = [f"{run.name[0]}: {_outcome(run.report)}" for run in runs]
    lines.append(f"A is solid, B is dashed; seconds from {_origin(first, second)}")
    return sheet(" and ".join(run.name for run in runs), lines, timeline(runs))


def _runs(first: Report, second: Report) -> list[Run]:
    """Both runs, from the moments at which seconds begin to count."""
    both = _both_crossed(first, second)
    origins = [(run.crossed_seconds or 0.0) if both else 0.0 for run in (first, second)]
    return [
        Run(first, f"A ({first.title})", "line-a", origins[0]),
        Run(second, f"B ({second.title})", "line-b", origins[1]),
    ]


def _origin(first: Report, second: Report) -> str:
    if _both_crossed(first, second):
        return "the moment at which each run crossed its first mark"
    return "the beginning of each run: not both crossed a mark"


def _both_crossed(first: Report, second: Report) -> bool:
    return first.crossed_seconds is not None and second.crossed_seconds is not None


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


def _removed(kind: str) -> Callable[[Report], str]:
    return lambda run: str(sum(removal.kind == kind for removal in run.removals))


def _lowest(signal: str) -> Callable[[Report], str]:
    def shown(run: Report) -> str:
        value = run.lowest.get(signal)
        if value is None:
            return "-"
        return counted(value, "inode") if signal.endswith(".inodesFree") else format_bytes(value)

    return shown
