"""The page for the web and the report of a drill, in a real browser: on a phone and a desk, light and dark, by keys.

Where there is no Chromium they are skipped: it is 100 MB, and these are tests of pages. SCREENSHOTS= names a directory
for pictures of them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eviction.drill.report.page import comparison_page, page
from tests.bench.regret.page import MEASURED as REGRET
from tests.bench.regret.page import Results
from tests.drill.runs import report_of_run, run_of
from tests.kubelet.matrix_page import MEASURED as MATRIX
from tests.kubelet.matrix_page import read_all
from tests.repository import ROOT
from tests.site import browser
from tests.site.browser import Tab, browsing
from tests.site.page import site

pytestmark = pytest.mark.house("README.md", "config/pictures", "eviction/drill/report", "tests/site")

PAGES = ("index", "report", "comparison")
WIDTHS = (360, 1280)
SCHEMES = ("light", "dark")
TEXT_CONTRAST, LARGE_TEXT_CONTRAST, OUTLINE_CONTRAST = 4.5, 3.0, 3.0  # WCAG 2.2, level AA: 1.4.3, 1.4.11
LEGIBLE_PIXELS = 10.0  # of a letter in a picture
TOUCHED_PIXELS = 24.0  # of a link that is not in a text; WCAG 2.2, 2.5.8

# What colours there are, and what they are before. A colour that is not opaque is on what is behind it; behind the text
# of an SVG file is its sheet.
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
    report, regret = report_of_run(run_of("pressured-node")), json.loads(REGRET.read_text())
    texts = {
        "index": site(report, read_all(MATRIX), Results(regret), regret["date"]),
        "report": page(report),
        "comparison": comparison_page(report, report),
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


def texts(tab: Tab) -> list[dict[str, Any]]:
    """Every text that is shown, with its contrast and the height of its letters."""
    found: list[dict[str, Any]] = tab.evaluate(script(COLOURS, TEXTS, value="found"))
    assert found
    return found


def too_faint(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those below the least contrast for their size."""
    return [each for each in found if each["contrast"] < (LARGE_TEXT_CONTRAST if each["large"] else TEXT_CONTRAST)]


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_and_can_be_read(tab: Tab, pages: dict[str, Path], name: str, width: int, scheme: str) -> None:
    """Nothing but what scrolls by itself is wider than the screen, every text has enough contrast and is large enough,
    no text of a chart is cut off, nothing is asked for and nothing complains."""
    tab.show(pages[name], width, scheme)
    keep(tab, f"{name}-{width}-{scheme}")
    assert tab.evaluate("document.documentElement.scrollWidth") == width
    scrolls = (
        "const scrolls = each => each && (getComputedStyle(each).overflowX === 'auto' || scrolls(each.parentElement));"
    )
    wide = (
        "[...document.body.querySelectorAll('*')].filter(each => each.getBoundingClientRect().right > innerWidth + 1)"
    )
    outside = (
        f"{wide}.filter(each => !scrolls(each) && !each.matches('.skip')).map(each => each.outerHTML.slice(0, 99))"
    )
    assert tab.evaluate(script(scrolls, value=outside)) == []
    found = texts(tab)
    assert too_faint(found) == []
    assert [each for each in found if each["pixels"] < LEGIBLE_PIXELS] == []
    assert cut_off(tab) == []
    assert tab.requests()[0] == pages[name].as_uri()
    assert all(each.startswith("data:") for each in tab.requests()[1:])
    assert tab.complaints() == []


def cut_off(tab: Tab) -> Any:
    """The texts of drawings that reach beyond them."""
    box = "const box = each => each.getBoundingClientRect(), svg = each => box(each.ownerSVGElement.closest('svg'));"
    beyond = "box(each).left < svg(each).left - 1 || box(each).right > svg(each).right + 1"
    found = f"[...document.querySelectorAll('svg text')].filter(each => {beyond}).map(each => each.textContent)"
    return tab.evaluate(script(box, value=found))


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_everything_can_be_reached_by_keys(tab: Tab, pages: dict[str, Path], name: str, scheme: str) -> None:
    """Tab visits all that can be focused, in the order of the page, each in sight with an outline that stands out."""
    tab.show(pages[name], 360, scheme)
    count = tab.evaluate(script(FOCUSABLE, value="focusable.length"))
    assert count
    look = """
    const element = document.activeElement, style = getComputedStyle(element), box = element.getBoundingClientRect();
    const seen = box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth;
    const stands = contrast(numbers(style.outlineColor), behind(element.parentElement));
    """
    value = "[focusable.indexOf(element), seen, style.outlineStyle, parseFloat(style.outlineWidth), stands]"
    for place in range(count):
        tab.press("Tab", 9)
        index, seen, style, width, stands = tab.evaluate(script(COLOURS, FOCUSABLE, look, value=value))
        assert (index, seen, style) == (place, True, "solid")
        assert width >= 2
        assert stands >= OUTLINE_CONTRAST


def test_the_skip_link_leads_to_the_content_and_links_are_large_enough(tab: Tab, pages: dict[str, Path]) -> None:
    """It is the first that is reached, and the next one is in the content."""
    tab.show(pages["index"], 360, "light")
    tab.press("Tab", 9)
    assert tab.evaluate("document.activeElement.className") == "skip"
    keep(tab, "skip")
    tab.press("Enter", 13, "\r")
    assert tab.evaluate("location.hash") == "#main"
    tab.press("Tab", 9)
    assert tab.evaluate("document.querySelector('main').contains(document.activeElement)")
    heights = tab.evaluate("[...document.querySelectorAll('nav a')].map(each => each.getBoundingClientRect().height)")
    assert min(heights) >= TOUCHED_PIXELS


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("picture", sorted((ROOT / "config" / "pictures").glob("*.svg")), ids=lambda path: path.stem)
def test_a_picture_can_be_read(tab: Tab, picture: Path, scheme: str) -> None:
    """By itself, at its own size: contrast, and nothing is cut off."""
    tab.show(picture, 1280, scheme)
    keep(tab, f"{picture.stem}-{scheme}")
    assert too_faint(texts(tab)) == []
    assert cut_off(tab) == []
    assert tab.requests() == [picture.as_uri()]
