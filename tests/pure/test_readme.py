"""What the README and the annotated configuration say is what the code does."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from eviction.cli import COMMANDS
from eviction.cli.manual import options_of
from eviction.configuration.effective import ConfigurationError, load
from eviction.configuration.file import ConfigurationFile
from eviction.decision.reclaim_table import RECLAIM_TABLE
from eviction.drill.report.svg import NAMESPACE
from eviction.drill.scenario.library import find_scenario
from eviction.reporting.explain import REASONS
from eviction.types import ReclaimFunction
from reclaim.types import Reason
from signals.types import FilesystemRole, FsLayout
from tests.repository import ROOT

README = (ROOT / "README.md").read_text()
CONFIGURATION = ROOT / "config" / "reclaimd.yaml"


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_is_documented(reason: Reason) -> None:
    """A word that a table or a log can show stands in the README and has a sentence."""
    assert f"`{reason}`" in README
    assert REASONS[reason]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_documented(command: str) -> None:
    """A command that the parser knows stands in the README."""
    assert f"`reclaimd {command}" in README


@pytest.mark.parametrize("role", FilesystemRole)
def test_the_table_of_rows_is_that_of_the_code(role: FilesystemRole) -> None:
    """The README's row of each filesystem reads as the literal table does."""
    letters = {ReclaimFunction.DELETE_ALL_UNUSED_CONTAINERS: "C", ReclaimFunction.DELETE_UNUSED_IMAGES: "I"}
    cells = [", ".join(letters[f] for f in RECLAIM_TABLE[role, layout]) or "(none)" for layout in FsLayout]
    assert f"| `{role}.available`, `{role}.inodesFree` | {' | '.join(cells)} |" in README


def test_the_annotated_configuration_is_the_defaults() -> None:
    """Loading the annotated file gives what no file gives."""
    annotated, defaults = load(str(CONFIGURATION), {}, {}), load(None, {}, {})
    assert replace(annotated, origins={}) == replace(defaults, origins={})


def test_the_annotated_configuration_has_every_field() -> None:
    """A field that the refusal of an unknown one lists stands in the annotated file."""
    fields = set(re.findall(r"^([a-zA-Z]+):", CONFIGURATION.read_text(), re.MULTILINE))
    with pytest.raises(ConfigurationError) as refusal:
        load(None, {}, {"noSuchField": 1})
    allowed = str(refusal.value).partition("allowed are ")[2].split(", ")
    assert fields == set(allowed)


def section(title: str) -> str:
    """The text below a heading."""
    assert f"\n## {title}\n" in README
    return README.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def rows_of(text: str) -> list[list[str]]:
    """The rows of the tables in a text, without their heads."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    rules = {number for number, line in enumerate(lines) if set(line) <= set("|- ")}
    rows = [line for number, line in enumerate(lines) if number not in rules and number + 1 not in rules]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in rows]


def test_the_table_of_the_configuration_has_every_field_and_its_default() -> None:
    """Neither has a field that the other has not; the default of a row of one field is the code's."""
    named = [(re.findall(r"`(\w+)`", cells[0]), cells[1].strip("` |")) for cells in rows_of(section("Configuration"))]
    fields = ConfigurationFile.model_fields.keys() - {"apiVersion", "kind"}
    assert sorted(name for names, _ in named for name in names) == sorted(fields)
    defaults = load(None, {}, {"kubeletConfig": ""}).effective
    for names, default in named:
        value = defaults[names[0]]
        if len(names) == 1 and names[0] != "kubeletConfig":
            assert default == (str(value).lower() if isinstance(value, bool) else str(value or "").strip("[]")), names


def test_every_option_in_the_readme_is_one() -> None:
    """Of one of our commands, or of the few others that the README shows."""
    ours = {spelling for command in COMMANDS for option in options_of(command) for spelling in option.spellings}
    others = {"--build-arg", "--now"}
    shown = set(re.findall(r"(?<![\w-])(--[a-z][a-z-]+)", README))
    assert "--standalone" in shown
    assert shown - others - {"--version"} <= ours


def test_every_command_line_in_the_readme_begins_with_a_command() -> None:
    """`reclaimd x` names a subcommand that exists."""
    shown = set(re.findall(r"(?:`|^# )reclaimd ([a-z]+)", README, re.MULTILINE)) | set(
        re.findall(r"bin/reclaimd ([a-z]+)", README)
    )
    assert shown == set(COMMANDS)


def anchor(title: str) -> str:
    """Where a heading is, as GitHub has it."""
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


def test_every_link_leads_somewhere() -> None:
    """To a file of the repository, or to a heading of the README."""
    links = re.findall(r"\]\(([^)\s]+)\)", README)
    assert len(links) > 20
    anchors = {f"#{anchor(title)}" for title in re.findall(r"^#+ (.+)$", README, re.MULTILINE)}
    for link in links:
        assert link.startswith("https://") or link in anchors or (ROOT / link).exists(), link


def sources() -> str:
    """All of the product's code, with what a line break cuts apart in a text joined."""
    code = "".join(
        path.read_text() for room in ("signals", "reclaim", "eviction") for path in (ROOT / room).rglob("*.py")
    )
    return re.sub(r'"\s*\n\s*f?"', "", code)


def test_what_the_troubleshooting_quotes_is_said() -> None:
    """Every text in quotes is the beginning or a part of one that the code has; every word in code is one of ours."""
    text, code = section("Troubleshooting"), sources()
    quotes = re.findall(r'"([^"]+)"', re.sub(r"`[^`]*`", "", text))
    assert len(quotes) >= 10
    assert [quote for quote in quotes if quote not in code] == []
    rules = (ROOT / "config" / "kubernetes" / "overlays" / "prometheus" / "rules.yaml").read_text()
    words = set(re.findall(r"`([a-z_]+|[A-Z]\w+)`", text))
    known = {str(reason) for reason in Reason} | {"statvfs", "events", "not_enough"} | set(COMMANDS)
    assert {word for word in words if word not in known and f"alert: {word}" not in rules} <= set(
        ConfigurationFile.model_fields
    )


def test_the_picture_is_small_and_of_the_scenario_that_make_run_runs() -> None:
    """As `make picture` draws it: one sheet, nothing loaded from anywhere, everything held."""
    svg = (ROOT / "config" / "pictures" / "pressured-node.svg").read_text()
    assert len(svg) < 32 * 1024
    shown = [element.text or "" for element in ElementTree.fromstring(svg).iter(f"{{{NAMESPACE}}}text")]  # noqa: S314 # our own
    scenario = find_scenario("pressured-node")
    assert shown[:2] == [scenario.name, scenario.why]
    assert shown[2].startswith("everything held")
    assert not re.search(r"https?://|url\(", svg.replace(NAMESPACE, ""))


# What each row of the safety case answers to: A, something is deleted that must stay; B, it is deleted badly; C, the
# agent itself dies or lies. The numbers are those of the list of hazards that the design began with.
HAZARDS = {
    "A runtime protects nothing": ["A1"],
    "Runtimes take the prefix": ["A2"],
    "The newest dead copy": ["A3"],
    "A pod's parts appear before": ["A4"],
    "After a reboot": ["A5"],
    "A container runs in a sandbox": ["A6"],
    '"In use" is not one field': ["A7"],
    "A pod starts between list": ["A8"],
    "A list is incomplete": ["A9"],
    "A list says something wrong": ["A9"],
    "Without the sandbox (pause) image": ["A10"],
    "Images that were loaded by hand": ["A11"],
    "An image was just pulled": ["A12"],
    "Ages that live in memory": ["A13"],
    "A path is built from": ["A14"],
    "Symlinks, mounts and depth": ["A15"],
    "Others use the runtime too": ["A16"],
    "An error is not a failure": ["B1"],
    "An interrupted RemoveImage": ["B2"],
    "Space comes late": ["B3"],
    "`f_bavail` stays 0": ["B4"],
    "Everything is purged": ["B5"],
    "The deleting itself": ["B6"],
    "What answers at the socket": ["C10"],
    "A list is too large": ["B7"],
    "A client waits long": ["B8"],
    "A signal has no row": ["B9"],
    "One error fails it all": ["B10"],
    "Pressure flaps": ["B11"],
    "Not a byte and not an inode": ["C1"],
    "`statvfs` can hang": ["C2"],
    "A filesystem counts no inodes": ["C3"],
    "inotify says nothing": ["C4"],
    "Mounts change": ["C5"],
    "Clocks step": ["C6"],
    "The agent is told to stop": ["C7"],
    "Names and error texts": ["C8"],
    "YAML guesses": ["C9"],
    "Whoever has the runtime's socket": ["C10"],
    "Somebody else writes": ["C10"],
    "Somebody else talks": ["C10"],
    "The runtime stands still": ["B8"],
    "A defect in a look": ["C7"],
    "Thousands of removals": ["C8"],
}


def safety_case() -> list[list[str]]:
    """The rows of the table: hazard, guard, tests."""
    section = README.partition("## Safety case")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[1:]]


@pytest.mark.parametrize("cells", safety_case(), ids=lambda cells: str(cells[0])[:40])
def test_every_row_of_the_safety_case_is_held_by_tests_that_exist(cells: list[str]) -> None:
    """Hazard, guard, and at least one name of a test function that stands in its file, with a story of its own."""
    _, guard, held_by = cells
    assert guard
    names = re.findall(r"`([a-z0-9_/]+)::([a-z0-9_]+)`", held_by)
    assert names
    assert len(names) == held_by.count("`") / 2, "every name is readable"
    for file, name in names:
        source = (ROOT / "tests" / f"{file}.py").read_text()
        found = re.search(rf'^def test_{name}\(.*?\) -> None:\n    """\S', source, re.MULTILINE | re.DOTALL)
        assert found, f"{file}::{name} does not exist"


def test_the_safety_case_answers_every_hazard() -> None:
    """No hazard is without a row, and no row without a hazard."""
    rows = [cells[0] for cells in safety_case()]
    assert [next(key for key in HAZARDS if row.startswith(key)) for row in rows] == list(HAZARDS)
    answered = {number for numbers in HAZARDS.values() for number in numbers}
    classes = {"A": 16, "B": 11, "C": 10}
    assert answered == {f"{letter}{number + 1}" for letter, count in classes.items() for number in range(count)}
