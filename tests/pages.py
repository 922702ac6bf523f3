"""The pages of the repository, and the parts that tests read: links, headings, blocks of code.

Covers: parsing Markdown, as far as these pages use it. Does not cover: what the pages must contain.
"""

import re
from pathlib import Path

from tests.repository import ROOT

INSTALLATION = ROOT / "README.md"
DOCS = ROOT / "docs"
SAFETY_CASE = ROOT / "tests" / "safety_case.md"
ROOMS = ("docs", "config", "eviction", "reclaim", "signals", "tests")
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
PAGES = (
    INSTALLATION,
    CONTRIBUTING,
    ROOT / "SECURITY.md",
    *sorted(page for room in ROOMS for page in (ROOT / room).rglob("*.md")),
)


def name_of(page: Path) -> str:
    """The path of a page inside the repository."""
    return str(page.relative_to(ROOT))


def prose(page: Path) -> str:
    """The text of a page without its blocks of code."""
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def code_blocks(page: Path, language: str) -> list[str]:
    """The blocks of code in a language, in their order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


def headings(page: Path) -> list[str]:
    """The titles of all headings, in their order."""
    return re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """Where the headings of a page can be linked to, as GitHub names them."""
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in headings(page)}


def links(page: Path) -> list[str]:
    """The targets of all links and pictures, in their order."""
    return re.findall(r"\]\(([^)\s]+)\)", prose(page))


def words(page: Path) -> set[str]:
    """The words that the page has in code, each alone between its marks."""
    return set(re.findall(r"`([\w.-]+)`", prose(page)))
