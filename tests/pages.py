"""The six READMEs, and the parts that tests read: sections, tables, links, console blocks.

Covers: parsing Markdown, as far as these pages use it. Does not cover: what the pages must contain.
"""

from __future__ import annotations

import re
from pathlib import Path

from tests.repository import ROOT

INSTALLATION = ROOT / "README.md"
SIGNALS = ROOT / "signals" / "README.md"
RECLAIM = ROOT / "reclaim" / "README.md"
EVICTION = ROOT / "eviction" / "README.md"
DRILL = ROOT / "eviction" / "drill" / "README.md"
TESTS = ROOT / "tests" / "README.md"
PAGES = (INSTALLATION, SIGNALS, RECLAIM, EVICTION, DRILL, TESTS)
SAFETY_CASE = ROOT / "tests" / "safety_case.md"
FIRST_HOUR = ROOT / "config" / "examples" / "first-hour.md"


def name_of(page: Path) -> str:
    """The path of a page inside the repository."""
    return str(page.relative_to(ROOT))


def section(page: Path, title: str) -> str:
    """The text below a heading of the second level, without the heading."""
    _, found, rest = page.read_text().partition(f"\n## {title}\n")
    assert found, f"{name_of(page)} has no section {title}"
    return rest.partition("\n## ")[0]


def prose(page: Path) -> str:
    """The text of a page without its blocks of code."""
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def code_blocks(page: Path, language: str) -> list[str]:
    """The blocks of code in a language, in their order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


def rows_of(text: str) -> list[list[str]]:
    """The rows of the tables in a text, without their heads."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    rules = {number for number, line in enumerate(lines) if set(line) <= set("|- ")}
    rows = [line for number, line in enumerate(lines) if number not in rules and number + 1 not in rules]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip()[1:-1])] for line in rows]


def headings(page: Path) -> list[str]:
    """The titles of all headings, in their order."""
    return re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """Where the headings of a page can be linked to, as GitHub names them."""
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in headings(page)}


def links(page: Path) -> list[str]:
    """The targets of all links and pictures, in their order."""
    return re.findall(r"\]\(([^)\s]+)\)", prose(page))
