"""The pages: links lead somewhere, commands and options exist, closed lists are whole, and
each guard has its tests.
"""

import re
import tomllib
from collections import Counter
from itertools import chain
from pathlib import Path

import pytest
import yaml

from eviction.cli.help import explained
from eviction.records.attribution import About
from eviction.wording.explain import REASONS
from reclaim.evidence.states import Why
from reclaim.types import EventReason
from tests.pages import (
    DOCS,
    PAGES,
    SAFETY_CASE,
    anchors,
    headings,
    links,
    name_of,
    prose,
    words,
)
from tests.repository import ROOT

TEXT = "\n".join(page.read_text() for page in PAGES)
MANUAL = (ROOT / "config" / "man" / "reclaimd.1").read_text().replace("\\-", "-")
COMMANDS = set(re.findall(r"^\.SS ([\w-]+)$", MANUAL, re.MULTILINE))
OPTIONS = {"--help", "--version", *re.findall(r"\\fB(--[a-z-]+)\\fR", MANUAL)}
OF_OTHERS = {"--now", "--prune", "--repair"}  # systemctl, crictl, crio
OF_OTHERS |= {"--no-deps", "--python", "--no-cache-dir", "--no-compile"}  # pip
OF_OTHERS |= {"--disk"}  # of the benches
OF_OTHERS |= {"--namespace", "--set"}  # helm
OF_OTHERS |= {"--certificate-oidc-issuer", "--certificate-identity-regexp"}  # cosign
OF_OTHERS |= {"--data-dir", "--ephemeral-storage-local-ssd"}  # k3s, GKE


# ---- links


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_somewhere(page: Path) -> None:
    """To a file of the repository, and where it names a heading, to one that is there, once. A path
    in code that begins like one of ours is that of a file or a folder."""
    targets = [link for link in links(page) if not link.startswith("https://")]
    assert targets
    for link in targets:
        path, _, heading = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.is_relative_to(ROOT), link
        assert target.exists(), link
        assert not heading or heading in anchors(target), link
    assert [title for title, count in Counter(headings(page)).items() if count > 1] == []
    ours = r"`((?:config|signals|reclaim|eviction|tests)/[\w./-]+)`"
    assert [word for word in re.findall(ours, prose(page)) if not (ROOT / word).exists()] == []


# ---- commands


def test_every_command_line_begins_with_a_command() -> None:
    """`reclaimd x` names a subcommand that exists, and each is shown."""
    shown = set(re.findall(r"(?:`|^# |bin/)reclaimd ([a-z][a-z-]*)", TEXT, re.MULTILINE))
    assert shown == COMMANDS


def test_every_option_is_one() -> None:
    """Of one of our commands, or of the few others that the pages show."""
    shown = set(re.findall(r"(?<![\w-])(--[a-z][a-z-]+)", TEXT))
    assert "--standalone" in shown
    assert shown - OF_OTHERS <= OPTIONS


@pytest.mark.parametrize(
    "target", sorted(set(re.findall(r"(?:`|^[#$] )make ([a-z-]+)", TEXT, re.MULTILINE)))
)
def test_every_target_of_make_exists(target: str) -> None:
    """`make x` names one."""
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


# ---- closed lists, which scripts and dashboards rely on


@pytest.mark.parametrize(
    ("page", "listed"),
    [("functions", REASONS), ("functions", About), ("functions", Why), ("monitoring", EventReason)],
    ids=["reasons", "remarks", "doubts", "reasons of events"],
)
def test_every_word_of_a_closed_list_is_documented(page: str, listed: type[object]) -> None:
    """Each has a place on its page."""
    assert {str(word) for word in listed} - words(DOCS / f"{page}.md") == set()  # type: ignore[attr-defined] # enumerations and a table


RULES = yaml.safe_load((ROOT / "config" / "prometheus" / "rules.yaml").read_text())
RUNBOOKS = {
    rule["alert"]: rule["annotations"]["runbook_url"]
    for group in RULES["groups"]
    for rule in group["rules"]
    if "alert" in rule
}


def test_help_has_a_paragraph_for_each_finding_and_alert() -> None:
    """Each finding that is printed somewhere, and no other; an alert's runbook is where it says."""
    told = explained()
    findings = re.findall(r"^### (.+)$", (DOCS / "troubleshooting.md").read_text(), re.MULTILINE)
    printed = (Path(__file__).parent / "doctor.txt").read_text()
    assert {*re.findall(r"\[([a-z-]+)\]$", printed, re.MULTILINE)} <= {*findings}
    code = "\n".join(path.read_text() for path in (ROOT / "eviction").rglob("*.py"))
    assert [name for name in findings if f'"{name}"' not in code] == []
    assert all(told[name] for name in (*findings, *RUNBOOKS))
    assert {alert: f"docs/monitoring.md#{alert.lower()}" for alert in RUNBOOKS} == RUNBOOKS
    assert {url.partition("#")[2] for url in RUNBOOKS.values()} <= anchors(DOCS / "monitoring.md")


# ---- the safety case

# How many hazards each class has that the design began with. A: something is removed that must
# stay. B: removal goes wrong. C: the agent itself fails or misleads. A row that was found later has
# a letter behind the number: A9b.
HAZARDS = {"A": 16, "B": 11, "C": 10}
HELD_BY: dict[str, list[str]] = tomllib.loads((ROOT / "tests" / "safety_case.toml").read_text())


def test_the_safety_case_answers_every_hazard() -> None:
    """Every number of every class has a row with a hazard and a guard, and tests that hold it."""
    rows = re.findall(
        r"^\| ([ABC]\d+[a-z]?) \| [^|]+ \| [^|]+ \|$", SAFETY_CASE.read_text(), re.MULTILINE
    )
    assert rows == list(HELD_BY)
    answered = {number.rstrip("bcdefg") for number in rows}
    assert answered == {
        f"{letter}{number + 1}" for letter, count in HAZARDS.items() for number in range(count)
    }


def test_every_guard_is_held_by_tests_that_exist() -> None:
    """At least one; each name is that of exactly one test function."""
    files = (path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    found = Counter(re.findall(r"^def (test_\w+)\(", "\n".join(files), re.MULTILINE))
    assert all(HELD_BY.values())
    assert {name: found[name] for name in chain(*HELD_BY.values()) if found[name] != 1} == {}
