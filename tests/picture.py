"""A picture of a timeline as one SVG file for a page, and that of a drill: `python -m
tests.picture PAGE FILE`.

PAGE: the HTML page of a drill.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from html import unescape
from pathlib import Path
from textwrap import wrap

from eviction.drill.report.timeline import (
    CHARACTER,
    CLASSES,
    COLOURS,
    FONT,
    FONTS,
    LINE,
    WIDTH,
    html_text,
)
from eviction.wording.log import escaped

NAMESPACE = "http://www.w3.org/2000/svg"
PROSE = 0.54 * FONT  # usual fonts are no wider in sentences
TITLE_FONT = 17.0
TITLE_CHARACTER, TITLE_LINE = 0.66 * TITLE_FONT, 23.0
CAPTION = 25.0
MARGIN = 12.0
DRAWING = re.compile(r'<svg viewBox="0 0 [0-9.]+ ([0-9.]+)"')
# Each colour stands there twice: what draws SVG but is no browser knows no
# variables, and takes the first one.
LIGHT = dict(re.findall(r"--([\w-]+): ([^;]+);", COLOURS.partition("@media")[0]))
STYLE = re.sub(
    r"([\w-]+): var\(--([\w-]+)\)",
    lambda found: f"{found[1]}: {LIGHT[found[2]]}; {found[0]}",
    f"""{COLOURS}{CLASSES}{FONTS}
rect.sheet {{ fill: var(--sheet); stroke: var(--edge); }}
.title {{ font-size: {TITLE_FONT:g}px; }}
.title, .caption {{ font-weight: 600; color: var(--ink); }}
""",
)
FIGURE = re.compile(r"<figcaption>(.*?)</figcaption>(<svg .*?</svg>)</figure>", re.DOTALL)


def sheet(title: str, lines: Sequence[str], drawings: Sequence[tuple[str, str]]) -> str:
    """A title, lines of text, and the first chart and the events of a
    timeline, each with its caption.
    """
    room, parts, top = WIDTH - 2 * MARGIN, [], MARGIN
    for text in wrap(escaped(title), int(room / TITLE_CHARACTER)):
        top += TITLE_LINE
        parts.append(_text(top - 6, text, "title"))
    for text in (text for line in lines for text in wrap(escaped(line), int(room / PROSE))):
        top += LINE
        parts.append(_text(top, text, "soft"))
    for caption, drawing in (*drawings[:-1][:1], drawings[-1]):
        found = DRAWING.match(drawing)
        assert found is not None
        most = int(room / CHARACTER)
        short = caption if len(caption) <= most else f"{caption[: most - 1]}…"
        parts.append(_text(top + CAPTION, short, "caption"))
        placed = f'<svg x="0" y="{top + CAPTION:g}" width="{WIDTH:g}" height="{found[1]}" '
        parts.append(drawing.replace("<svg ", placed, 1))
        top += CAPTION + float(found[1])
    size = f'width="{WIDTH:g}" height="{top:g}"'
    head = f'<svg xmlns="{NAMESPACE}" viewBox="0 0 {WIDTH:g} {top:g}" {size} role="img"'
    name = html_text(f"{title}: {'; '.join(lines)}")
    style = f'<style>{STYLE}</style>\n<rect class="sheet" {size} rx="6"/>'
    return "\n".join([f'{head} aria-label="{name}">', style, *parts, "</svg>", ""])


def drill_picture(page: str) -> str:
    """The picture of a drill, from its page: the verdict, why it was run, the times, the
    first chart and the events.
    """

    def shown(element: str) -> str:
        found = re.search(element, page)
        assert found is not None, f"the page has no {element}"
        return unescape(found[1])

    title = f"{shown('<h1>(.*?)</h1>')}: {shown('<p class=.verdict.*?>(.*?)</p>')}"
    lines = shown('<p class="why">(.*?)</p>'), shown("<dt>relief</dt><dd>(.*?)</dd>")
    return sheet(title, lines, [(unescape(caption), svg) for caption, svg in FIGURE.findall(page)])


def _text(y: float, text: str, style: str) -> str:
    return f'<text class="{style}" x="{MARGIN:.1f}" y="{y:.1f}">{html_text(text)}</text>'


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(drill_picture(Path(sys.argv[1]).read_text()))
