"""The timeline of a drill as one SVG file, for a README, a ticket or a slide. Nothing is loaded, no script runs.

It shows the first chart of the page and the events below it; light or dark as the page.
"""

from __future__ import annotations

import re

from eviction.drill.report.chart import WIDTH, html_text
from eviction.drill.report.css import COLOURS, DRAWING
from eviction.drill.report.document import Report
from eviction.drill.report.html import chart_drawings, lanes_drawing
from signals.quantity import format_duration

NAMESPACE = "http://www.w3.org/2000/svg"
HEAD = 76.0  # the title, the reason of the scenario, and the outcome
CAPTION = 24.0
MARGIN = 12.0
_DRAWING = re.compile(r'<svg viewBox="0 0 [0-9.]+ ([0-9.]+)"')
_STYLE = f"""{COLOURS}{DRAWING}
svg {{ font: 11px system-ui, sans-serif; }}
.sheet {{ fill: var(--sheet); stroke: var(--edge); }}
.title {{ font-size: 15px; font-weight: 600; fill: var(--ink); }}
.caption {{ font-weight: 600; fill: var(--ink); }}
"""


def picture(report: Report) -> str:
    """The picture of one run."""
    drawings = [*chart_drawings(report)[:1], lanes_drawing(report)]
    parts, top = [], HEAD
    for caption, drawing in drawings:
        found = _DRAWING.match(drawing)
        assert found is not None  # drawn by `chart`
        height = float(found[1])
        parts.append(f'<text class="caption" x="{MARGIN:g}" y="{top + 14:g}">{html_text(caption)}</text>')
        placed = f'<svg x="0" y="{top + CAPTION:g}" width="{WIDTH:g}" height="{height:g}" '
        parts.append(drawing.replace("<svg ", placed, 1))
        top += CAPTION + height
    sheet = f'width="{WIDTH:g}" height="{top:g}"'
    name = html_text(f"{report.scenario}: {report.why}")
    lines = [(26, "title", report.scenario), (44, "axis", report.why), (60, "axis", _outcome(report))]
    return "\n".join(
        [
            f'<svg xmlns="{NAMESPACE}" viewBox="0 0 {WIDTH:g} {top:g}" {sheet} role="img" aria-label="{name}">',
            f"<style>{_STYLE}</style>",
            f'<rect class="sheet" {sheet} rx="6"/>',
            *(f'<text class="{style}" x="{MARGIN:g}" y="{y}">{html_text(text)}</text>' for y, style, text in lines),
            *parts,
            "</svg>",
            "",
        ]
    )


def _outcome(report: Report) -> str:
    """The outcome in one line."""
    first, relief = report.from_crossing_to_first_removal_seconds, report.from_crossing_to_relief_seconds
    facts = ["everything held" if report.held else "NOT everything held"]
    if first is not None:
        facts.append(f"the first removal {format_duration(first)} after the mark was crossed")
    if relief is not None:
        facts.append(f"relieved after {format_duration(relief)}")
    return f"{', '.join(facts)}; {len(report.removals)} objects removed"
