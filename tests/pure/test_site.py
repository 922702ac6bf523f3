"""The page for the web: whole, self-contained, and built so that it can be read
without seeing it.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from eviction.drill.judge import Check, DrillResult
from eviction.drill.report.document import report_of
from eviction.drill.report.page import page
from tests.bench.regret.page import MEASURED as REGRET
from tests.bench.regret.page import Results
from tests.drill.documents import measurements, scenario
from tests.expected import expect
from tests.kubelet.duel import Responder
from tests.kubelet.matrix_page import MEASURED as MATRIX
from tests.kubelet.matrix_page import figures, nodes, read_all
from tests.site.page import README, site
from tests.site.sections import html, section

pytestmark = pytest.mark.house(
    "README.md", "config/pictures", "eviction/drill/report", "tests/bench", "tests/site"
)

RUNS = read_all(MATRIX)
WHY = scenario().why
LOADING = {"script", "link", "iframe", "object", "embed", "base", "form", "audio", "video"}


def report() -> str:
    """The page of an invented run."""
    made, checks = scenario(), (Check("relieved", "within 1s", "after 0.200 s", held=True),)
    result = DrillResult(made.name, made.why, "a tmpfs of its own", measurements(), checks)
    return page(report_of(result))


def page_of() -> str:
    """The page of what is stored."""
    regret = json.loads(REGRET.read_text())
    return site(report(), RUNS, Results(regret), regret["date"])


def tree_of(page: str) -> ElementTree.Element:
    """The page as a tree: it is well-formed XML, too."""
    return ElementTree.fromstring(page.removeprefix("<!DOCTYPE html>\n"))  # noqa: S314 # our own page


@pytest.fixture(scope="module")
def tree() -> ElementTree.Element:
    """Read by several."""
    return tree_of(page_of())


def text_of(element: ElementTree.Element) -> str:
    return " ".join("".join(element.itertext()).split())


def test_it_loads_and_runs_nothing(tree: ElementTree.Element) -> None:
    """Pictures are in it, and a policy forbids the rest."""
    assert not LOADING & {element.tag for element in tree.iter()}
    assert not [name for element in tree.iter() for name in element.attrib if name.startswith("on")]
    sources = {image.get("src", "").partition(",")[0] for image in tree.iter("img")}
    assert sources <= {"data:image/svg+xml;base64"}
    style = "".join(map(text_of, tree.iter("style")))
    assert not re.search(r"url\(|@import", style)
    (policy,) = (meta.get("content", "") for meta in tree.iter("meta") if meta.get("http-equiv"))
    assert policy == "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def test_it_can_be_read_without_seeing_it(tree: ElementTree.Element) -> None:
    """Landmarks, a skip link that leads to the content, headings without gaps, names for all that
    scrolls, captions and scopes of tables, alternatives of pictures, ids that differ."""
    assert tree.get("lang") == "en"
    body = tree.find("body")
    assert body is not None
    assert [element.tag for element in body] == ["a", "header", "main", "footer"]
    ids = [element.get("id") for element in tree.iter() if element.get("id")]
    assert len(ids) == len(set(ids))
    inside = [
        link.get("href", "") for link in tree.iter("a") if link.get("href", "").startswith("#")
    ]
    assert inside[0] == "#main"
    assert {href[1:] for href in inside} == set(ids)
    levels = [int(element.tag[1]) for element in tree.iter() if re.fullmatch("h[1-6]", element.tag)]
    assert levels.count(1) == 1
    assert all(later - earlier <= 1 for earlier, later in zip([0, *levels], levels, strict=False))
    assert list(tree.iter("table"))
    for table in tree.iter("table"):
        assert text_of(table[0]), "a caption"
        assert (table[0].tag, table[1].tag) == ("caption", "thead")
        assert {cell.get("scope") for cell in table.iter("th")} <= {"col", "row"}
        assert all(cell.get("scope") == "col" for cell in table[1].iter("th"))
        assert all(map(text_of, table.iter("th")))
    for element in tree.iter():
        if element.tag in ("pre", "figure") or element.get("class") == "scroll":
            assert element.get("tabindex") == "0", text_of(element)[:60]
            assert element.get("aria-label") or text_of(next(element.iter("figcaption"))), (
                element.tag
            )
        if element.tag == "svg":
            assert (element.get("role"), bool(element.get("aria-label"))) == ("img", True)
    assert all(image.get("alt") for image in tree.iter("img"))


def test_its_figures_are_those_of_the_stored_runs(tree: ElementTree.Element) -> None:
    """Each row of the matrix, and how often there was DiskPressure."""
    tables = {text_of(table[0]): table for table in tree.iter("table")}
    rows = [[text_of(cell) for cell in row] for row in tables["Each node"].iter("tr")][1:]
    found = [figures(RUNS, node, who) for node in nodes(RUNS) for who in Responder]
    told = [each for each in found if each is not None]
    assert [row[2] for row in rows] == [f"{each.pressure} of {each.runs}" for each in told]
    assert [int(row[6]) for row in rows] == [each.evicted for each in told]
    pressed = [
        [text_of(cell) for cell in row] for row in tables["Runs with DiskPressure"].iter("tr")
    ][1:]
    for filesystem, alone, *_ in pressed:
        runs = [
            run
            for run in RUNS
            if (run.head["filesystem"], run.head["responder"]) == (filesystem, "nobody")
        ]
        assert alone == f"{sum(run.summary['pressure'] for run in runs)} of {len(runs)}"
    assert "Expectations" in tables


def test_a_section_that_is_gone_is_named(tmp_path: Path) -> None:
    """With those that there are."""
    page = tmp_path / "README.md"
    page.write_text("# a\n\nWhat it is.\n\n## Try it\n\n```\n# as root\n```\n")
    assert section(page, "") == "What it is.\n"
    assert section(page, "Try it") == "```\n# as root\n```\n"
    with pytest.raises(ValueError, match="no section 'Install'; there are '', 'Try it'"):
        section(page, "Install")
    assert section(README, "")


MARKDOWN = """\
[what was
measured](tests/README.md#bench) ([why](a.md)), [elsewhere](https://other.example/)

| | A |
|---|---|
| b | `c` |

```console
# make
```
"""


def test_a_part_of_a_page_is_html_that_scrolls_by_keys_with_a_name() -> None:
    """Links to the repository lead to where it is, or to the same heading of this page, or are only
    text, if it is nowhere; others stay as they are."""
    made = [
        html(MARKDOWN, "Costs"),
        html(MARKDOWN, "Costs", headings=["bench"]),
        html(MARKDOWN, "Costs", "https://example/"),
    ]
    expect(Path(__file__).with_name("site.html"), "\n".join(made))
    hrefs = {link.get("href", "") for link in tree_of(page_of()).iter("a")}
    assert all(href.startswith(("#", "https://")) for href in hrefs)
