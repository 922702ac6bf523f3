"""The times of a benchmark as one SVG: a bar from best to worst for each row,
logarithmic, with the median marked.

No library and no style sheet, so that it shows in a README as it is.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from html import escape

from tests.bench.measure import Row

WIDTH, LABELS, ROW, MARGIN = 1000, 520, 22, 34
INK, BAR, MEDIAN = "#57606a", "#9ec1e8", "#0b5cad"


def chart(rows: Sequence[Row], machine: str) -> str:
    """One bar a row; all rows in milliseconds. Rows without a time above 0 are left out."""
    shown = [row for row in rows if row.values and min(row.values) > 0]
    height = MARGIN * 2 + ROW * len(shown)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}"'
        ' font-family="sans-serif" '
    )
    parts = [
        f'{head}font-size="12" fill="{INK}">',
        f'<text x="8" y="20">milliseconds; {escape(machine)}</text>',
    ]
    if shown:
        low = math.floor(math.log10(min(min(row.values) for row in shown)))
        high = max(math.ceil(math.log10(max(max(row.values) for row in shown))), low + 1)
        for power in range(low, high + 1):
            x = _x(10.0**power, low, high)
            parts.append(
                f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{MARGIN}" y2="{height - MARGIN}"'
                ' stroke="#d0d7de"/>'
            )
            parts.append(
                f'<text x="{x:.1f}" y="{height - 14}" text-anchor="middle">{10.0**power:g}</text>'
            )
        for number, row in enumerate(shown):
            parts += _bar(row, MARGIN + ROW * number, low, high)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _x(value: float, low: int, high: int) -> float:
    """Where a value stands between the powers of ten `low` and `high`."""
    share = (math.log10(value) - low) / (high - low)
    return LABELS + share * (WIDTH - LABELS - 30)


def _bar(row: Row, y: int, low: int, high: int) -> list[str]:
    best, worst = _x(min(row.values), low, high), _x(max(row.values), low, high)
    middle = statistics.median(row.values)
    x = _x(middle, low, high)
    title = f"<title>median {middle:.3g} ms of {len(row.values)}</title>"
    return [
        f'<text x="{LABELS - 8}" y="{y + 15}" text-anchor="end">{escape(row.what)}</text>',
        (
            f'<rect x="{best:.1f}" y="{y + 5}" width="{max(worst - best, 1):.1f}" height="12"'
            f' fill="{BAR}"/>'
        ),
        f'<rect x="{x - 1.5:.1f}" y="{y + 3}" width="3" height="16" fill="{MEDIAN}">{title}</rect>',
    ]
