"""Sections of a Markdown page as HTML: pictures inlined, tables with captions, wide
parts that scroll by keys.

A link to a heading that the page for the web has, too, leads there; other links to files of the
repository lead to `source` (the address of its root on the web). Without one, their text is left,
and nothing of a link in brackets.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Collection
from pathlib import Path

from markdown_it import MarkdownIt

from eviction.drill.report.timeline import html_text
from tests.repository import ROOT

PICTURE = re.compile(r"^!\[([^\]]*)\]\(([^)\s]+)\)\n", re.MULTILINE)
OF_THE_REPOSITORY = r"\[([^\]]+)\]\((?!https?:|#)([^)\s]+)\)"
MARKDOWN = MarkdownIt("commonmark").enable("table")


def section(page: Path, heading: str) -> str:
    """What stands below a heading of a page, down to the next one; "" for what stands
    above the first. ValueError.
    """
    above, *parts = re.split(r"^## (.+)\n", page.read_text(), flags=re.MULTILINE)
    sections = {"": above.partition("\n")[2], **dict(zip(parts[::2], parts[1::2], strict=True))}
    if heading not in sections:
        raise ValueError(
            f"{page}: no section {heading!r}; there are {', '.join(map(repr, sections))}"
        )
    return sections[heading].strip() + "\n"


def html(text: str, name: str, source: str = "", headings: Collection[str] = ()) -> str:
    """Markdown as HTML. `name`: of the section, from which parts without a name have theirs.
    `headings`: the ids of those of the page for the web."""
    parts = PICTURE.split(text)
    made = [_prose(parts[0], name, source, headings)]
    for alternative, path, prose in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
        made += [
            figure(ROOT / path, " ".join(alternative.split())),
            _prose(prose, name, source, headings),
        ]
    return "\n".join(made)


def figure(picture: Path, alternative: str) -> str:
    """A picture that is part of the page."""
    data = base64.b64encode(picture.read_bytes()).decode()
    image = f'<img src="data:image/svg+xml;base64,{data}" alt="{html_text(alternative)}"/>'
    return (
        '<figure tabindex="0"'
        f' aria-label="{html_text(alternative.partition(".")[0])}">{image}</figure>'
    )


def _prose(text: str, name: str, source: str, headings: Collection[str]) -> str:
    for heading in headings:
        text = re.sub(rf"\]\([^)\s]*#{heading}\)", f"](#{heading})", text)
    if source:
        text = re.sub(OF_THE_REPOSITORY, rf"[\1]({source}\2)", text)
    text = re.sub(rf"\s*\({OF_THE_REPOSITORY}\)", "", text)
    rendered = MARKDOWN.render(re.sub(OF_THE_REPOSITORY, r"\1", text))
    title = html_text(name)
    blocks = (
        f'<pre role="region" aria-label="{title}: example {number}" tabindex="0">'
        for number in range(1, 99)
    )
    rendered = re.sub("<pre>", lambda _: next(blocks), rendered)
    caption = f'<caption class="unseen">{title}</caption>'  # the heading is above it
    scrolling = (
        f'<div class="scroll" role="region" aria-label="{title}" tabindex="0"><table>{caption}'
    )
    rendered = rendered.replace("<table>", scrolling).replace("</table>", "</table></div>")
    if "<th></th>" in rendered:  # what has no heading names the row
        rendered = re.sub(r"<tr>\n<td>(.*?)</td>", r'<tr>\n<th scope="row">\1</th>', rendered)
    return rendered.replace("<th></th>", "<td></td>").replace("<th>", '<th scope="col">')
