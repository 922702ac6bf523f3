"""A timeline as one SVG file, for a README, a ticket or a slide. Nothing is loaded, no script runs.

That of a drill shows the first chart of the page and the events below it; light or dark as the page.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from eviction.drill.report.chart import WIDTH, html_text
from eviction.drill.report.css import COLOURS, DRAWING
from eviction.drill.report.document import Report
from eviction.drill.report.html import chart_drawings, lanes_drawing
from signals.quantity import counted, format_duration

NAMESPACE = "http://www.w3.org/2000/svg"
FIRST_LINE, LINE = 44.0, 16.0  # where the lines below the title are
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
    return sheet(report.scenario, (report.why, _outcome(report)), drawings)


def sheet(title: str, lines: Sequence[str], drawings: Iterable[tuple[str, str]]) -> str:
    """A sheet with a title, some lines of text, and drawings below each other, each with its caption."""
    texts = [(26.0, "title", title)]
    texts += [(FIRST_LINE + LINE * number, "axis", line) for number, line in enumerate(lines)]
    parts, top = [], FIRST_LINE + LINE * len(lines)
    for caption, drawing in drawings:
        found = _DRAWING.match(drawing)
        assert found is not None  # drawn by `chart`
        height = float(found[1])
        parts.append(f'<text class="caption" x="{MARGIN:g}" y="{top + 14:g}">{html_text(caption)}</text>')
        placed = f'<svg x="0" y="{top + CAPTION:g}" width="{WIDTH:g}" height="{height:g}" '
        parts.append(drawing.replace("<svg ", placed, 1))
        top += CAPTION + height
    size = f'width="{WIDTH:g}" height="{top:g}"'
    name = html_text(f"{title}: {'; '.join(lines)}")
    return "\n".join(
        [
            f'<svg xmlns="{NAMESPACE}" viewBox="0 0 {WIDTH:g} {top:g}" {size} role="img" aria-label="{name}">',
            f"<style>{_STYLE}</style>",
            f'<rect class="sheet" {size} rx="6"/>',
            *(f'<text class="{style}" x="{MARGIN:g}" y="{y:g}">{html_text(text)}</text>' for y, style, text in texts),
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
    return f"{', '.join(facts)}; {counted(len(report.removals), 'object')} removed"
