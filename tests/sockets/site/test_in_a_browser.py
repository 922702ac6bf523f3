"""The page for the web and the report of a drill, in a real browser: on a phone and a
desk, light and dark, by keys.

Where there is no Chromium they are skipped: it is 100 MB, and these are tests of pages.
SCREENSHOTS= names a directory for pictures of them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eviction.drill.report.page import page
from tests.bench.regret.page import MEASURED as REGRET
from tests.bench.regret.page import Results
from tests.drill.runs import report_of_run, run_of
from tests.kubelet.matrix_page import MEASURED as MATRIX
from tests.kubelet.matrix_page import read_all
from tests.repository import ROOT
from tests.site import browser
from tests.site.browser import Tab, browsing
from tests.site.page import site

pytestmark = pytest.mark.house(
    "README.md", "config/pictures", "eviction/drill/report", "tests/site"
)

PAGES = ("index", "report")
WIDTHS = (360, 1280)
SCHEMES = ("light", "dark")
# WCAG 2.2, level AA: 1.4.3, 1.4.11
TEXT_CONTRAST, LARGE_TEXT_CONTRAST, OUTLINE_CONTRAST = 4.5, 3.0, 3.0
LEGIBLE_PIXELS = 10.0  # of a letter in a picture
TOUCHED_PIXELS = 24.0  # of a link that is not in a text; WCAG 2.2, 2.5.8

# What colours there are, and what they are before. A colour that is not opaque is on what is behind
# it; behind the text of an SVG file is its sheet.
COLOURS = """
const numbers = text => {
  const found = text.match(/[\\d.]+/g).map(Number);
  return found.length > 3 ? found : [...found, 1];
};
const over = (top, below) => [0, 1, 2].map(place => top[place] * top[3] + below[place] * (1 - top[3])).concat(1);
const light = colour => {
  const [red, green, blue] = colour.map(each => each / 255).map(
    each => each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
};
const contrast = (one, other) => {
  const [low, high] = [light(one), light(other)].sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
};
const behind = element => {
  const colours = [];
  for (let each = element; each; each = each.parentElement)
    colours.unshift(numbers(getComputedStyle(each).backgroundColor));
  const sheet = document.querySelector("svg > .sheet");
  if (document.documentElement.localName === "svg") colours.push(numbers(getComputedStyle(sheet).fill));
  return colours.reduce((below, top) => over(top, below), [255, 255, 255, 1]);
};
"""
TEXTS = """
const found = [];
const walker = document.createTreeWalker(document, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const element = walker.currentNode.parentElement, text = walker.currentNode.textContent.trim();
  if (!text || ["style", "title", "script"].includes(element.localName) || !element.getClientRects().length) continue;
  const style = getComputedStyle(element), below = behind(element), drawn = element instanceof SVGElement;
  const size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
  const colour = over(numbers(drawn ? style.fill : style.color), below);
  found.push({text: text.slice(0, 60), large, contrast: contrast(colour, below),
    pixels: size * (drawn ? element.getScreenCTM().a : 1)});
}
"""
# What is wider than the screen, but for what scrolls by itself; what reaches beyond its drawing.
WIDE = """
const scrolls = each => each && (getComputedStyle(each).overflowX === "auto" || scrolls(each.parentElement));
const all = document.body ? [...document.body.querySelectorAll("*")] : [];
const wide = all.filter(each => each.getBoundingClientRect().right > innerWidth + 1 && !scrolls(each));
"""
CUT = """
const box = each => each.getBoundingClientRect(), svg = each => box(each.ownerSVGElement);
const cut = [...document.querySelectorAll("svg text")].filter(
  each => box(each).left < svg(each).left - 1 || box(each).right > svg(each).right + 1);
"""
FOCUSABLE = """
const focusable = [...document.querySelectorAll("a[href], button, summary, input, select, textarea, [tabindex='0']")];
"""


def script(*parts: str, value: str) -> str:
    """One expression."""
    return f"(() => {{ {' '.join(parts)} return {value}; }})()"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The files, of a real drill."""
    directory = tmp_path_factory.mktemp("pages")
    report, regret = page(report_of_run(run_of("pressured-node"))), json.loads(REGRET.read_text())
    texts = {
        "index": site(report, read_all(MATRIX), Results(regret), regret["date"]),
        "report": report,
    }
    for name, text in texts.items():
        (directory / f"{name}.html").write_text(text)
    return {name: directory / f"{name}.html" for name in PAGES}


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    """One browser for all."""
    program = browser.found()
    if program is None:
        pytest.skip(f"no {' or '.join(browser.PROGRAMS)} (Debian packages of these names)")
    with browsing(program, tmp_path_factory.mktemp("browser")) as opened:
        yield opened


def keep(tab: Tab, name: str) -> None:
    """A picture for whoever wants to look."""
    if directory := os.environ.get("SCREENSHOTS"):
        tab.picture(Path(directory) / f"{name}.png")


def what_is_wrong(tab: Tab, file: Path, width: int) -> dict[str, list[Any]]:
    """What is wrong with what is shown, by kind."""
    found = tab.evaluate(script(COLOURS, TEXTS, value="found"))
    assert found, "no text at all"
    requests = tab.requests()
    assert requests[0] == file.as_uri()
    kinds = {
        "scrolls sideways": [
            size for size in [tab.evaluate("document.documentElement.scrollWidth")] if size > width
        ],
        "too wide": tab.evaluate(
            script(WIDE, value="wide.map(each => each.outerHTML.slice(0, 99))")
        ),
        "too faint": [
            each
            for each in found
            if each["contrast"] < (LARGE_TEXT_CONTRAST if each["large"] else TEXT_CONTRAST)
        ],
        "too small": [each for each in found if each["pixels"] < LEGIBLE_PIXELS],
        "cut off": tab.evaluate(script(CUT, value="cut.map(each => each.textContent)")),
        "asked for": [url for url in requests[1:] if not url.startswith("data:")],
        "complaints": tab.complaints(),
    }
    return {kind: problems for kind, problems in kinds.items() if problems}


def what_keys_miss(tab: Tab) -> list[list[Any]]:
    """Tab visits all that can be focused, in the order of the page: what is not reached in its
    turn, is out of sight, or has no outline that stands out."""
    count = tab.evaluate(script(FOCUSABLE, value="focusable.length"))
    assert count
    look = """
    const element = document.activeElement, style = getComputedStyle(element), box = element.getBoundingClientRect();
    const seen = box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth;
    const outlined = style.outlineStyle === "solid" && parseFloat(style.outlineWidth) >= 2;
    const stands = contrast(numbers(style.outlineColor), behind(element.parentElement || element));
    """
    missed = []
    for place in range(count):
        tab.press("Tab", 9)
        value = "[focusable.indexOf(element), seen, outlined, stands]"
        index, seen, outlined, stands = tab.evaluate(script(COLOURS, FOCUSABLE, look, value=value))
        if index != place or not seen or not outlined or stands < OUTLINE_CONTRAST:
            missed.append([place, index, seen, outlined, stands])
    return missed


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_and_can_be_read(
    tab: Tab, pages: dict[str, Path], name: str, width: int, scheme: str
) -> None:
    """Nothing but what scrolls by itself is wider than the screen, every text has
    enough contrast and is large enough, no text of a chart is cut off, nothing is asked
    for and nothing complains."""
    tab.show(pages[name], width, scheme)
    keep(tab, f"{name}-{width}-{scheme}")
    assert what_is_wrong(tab, pages[name], width) == {}


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_everything_can_be_reached_by_keys(
    tab: Tab, pages: dict[str, Path], name: str, scheme: str
) -> None:
    """In the order of the page, in sight, with an outline that stands out."""
    tab.show(pages[name], 360, scheme)
    assert what_keys_miss(tab) == []


def test_the_skip_link_leads_to_the_content_and_links_are_large_enough(
    tab: Tab, pages: dict[str, Path]
) -> None:
    """It is the first that is reached, and the next one is in the content."""
    tab.show(pages["index"], 360, "light")
    tab.press("Tab", 9)
    assert tab.evaluate("document.activeElement.className") == "skip"
    keep(tab, "skip")
    tab.press("Enter", 13, "\r")
    assert tab.evaluate("location.hash") == "#main"
    tab.press("Tab", 9)
    assert tab.evaluate("document.querySelector('main').contains(document.activeElement)")
    heights = tab.evaluate(
        "[...document.querySelectorAll('nav a')].map(each => each.getBoundingClientRect().height)"
    )
    assert min(heights) >= TOUCHED_PIXELS


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(
    "picture", sorted((ROOT / "config" / "pictures").glob("*.svg")), ids=lambda path: path.stem
)
def test_a_picture_can_be_read(tab: Tab, picture: Path, scheme: str) -> None:
    """By itself, at its own size: contrast, and nothing is cut off."""
    tab.show(picture, 1280, scheme)
    keep(tab, f"{picture.stem}-{scheme}")
    assert what_is_wrong(tab, picture, 1280) == {}


def test_what_is_wrong_is_found(tab: Tab, tmp_path: Path) -> None:
    """A page with each mistake: what is said of the others above is said by
    something that can see.
    """
    file = tmp_path / "wrong.html"
    file.write_text("""<!DOCTYPE html><body style="margin: 0">
        <p style="color: #999">Too faint.</p>
        <div style="width: 500px">Too wide.</div>
        <svg viewBox="0 0 960 50" style="width: 300px"><text x="-90" y="9" font-size="11">Cut off, small.</text></svg>
        <img alt="Asked for." src="http://127.0.0.1:9/picture.png">
        <a href="#a" style="outline: none">No outline.</a>
        <a href="#b" tabindex="2">Out of turn.</a>
        <a href="#c" style="position: absolute; left: -999px">Out of sight.</a>
        """)
    tab.show(file, 360, "light")
    kinds = (
        "scrolls sideways",
        "too wide",
        "too faint",
        "too small",
        "cut off",
        "asked for",
        "complaints",
    )
    assert set(what_is_wrong(tab, file, 360)) == set(kinds)
    assert len(what_keys_miss(tab)) == 3
