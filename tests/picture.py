"""Charts, with a title and sentences, as one SVG file for a page."""

import re
from collections.abc import Sequence
from textwrap import wrap

from eviction.drill.report.page import (
    CLASSES,
    COLOURS,
    FONT,
    FONTS,
    LINE,
    WIDTH,
    html_text,
)
from eviction.printable import escaped

NAMESPACE = "http://www.w3.org/2000/svg"
PROSE = 0.54 * FONT  # usual fonts are no wider in sentences
TITLE_FONT = 17.0
TITLE_CHARACTER, TITLE_LINE = 0.66 * TITLE_FONT, 23.0
CAPTION = 25.0
MARGIN = 12.0
DRAWING = re.compile(r'<svg viewBox="0 0 [0-9.]+ ([0-9.]+)"')
# Each colour stands there twice: what draws SVG but is no browser knows no
# variables, and takes the first one.
LIGHT, DARK = (dict(re.findall(r"--([\w-]+): ([^;]+);", part)) for part in COLOURS.split("@media"))
STYLE = re.sub(
    r"([\w-]+): var\(--([\w-]+)\)",
    lambda found: f"{found[1]}: {LIGHT[found[2]]}; {found[0]}",
    f"""{COLOURS}{CLASSES}{FONTS}
rect.sheet {{ fill: var(--sheet); stroke: var(--edge); stroke-width: 1; }}
.title {{ font-size: {TITLE_FONT:g}px; }}
.title, .caption {{ font-weight: 600; color: var(--ink); }}
""",
)


def sheet(title: str, lines: Sequence[tuple[str, str]], drawings: Sequence[tuple[str, str]]) -> str:
    """A title, lines of text with their CSS classes, and drawings with their captions."""
    room, parts, top = WIDTH - 2 * MARGIN, [], MARGIN
    for text in wrap(escaped(title), int(room / TITLE_CHARACTER)):
        top += TITLE_LINE
        parts.append(_text(top - 6, text, "title"))
    for style, line in lines:
        for text in wrap(escaped(line), int(room / PROSE)):
            top += LINE
            parts.append(_text(top, text, style))
    for caption, drawing in drawings:
        found = DRAWING.match(drawing)
        assert found is not None
        parts.append(_text(top + CAPTION, caption, "caption"))
        placed = f'<svg x="0" y="{top + CAPTION:g}" width="{WIDTH:g}" height="{found[1]}" '
        parts.append(drawing.replace("<svg ", placed, 1))
        top += CAPTION + float(found[1])
    size = f'width="{WIDTH:g}" height="{top:g}"'
    head = f'<svg xmlns="{NAMESPACE}" viewBox="0 0 {WIDTH:g} {top:g}" {size} role="img"'
    name = html_text(f"{title}: {'; '.join(line for _, line in lines)}")
    style = f'<style>{STYLE}</style>\n<rect class="sheet" {size} rx="6"/>'
    return "\n".join([f'{head} aria-label="{name}">', style, *parts, "</svg>", ""])


def _text(y: float, text: str, style: str) -> str:
    return f'<text class="{style}" x="{MARGIN:.1f}" y="{y:.1f}">{html_text(text)}</text>'
