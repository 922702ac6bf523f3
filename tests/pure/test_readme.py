"""What the README and the annotated configuration say is what the code does."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from eviction.cli import COMMANDS
from eviction.configuration import ConfigurationError, load
from eviction.explain import REASONS
from eviction.reclaim_table import RECLAIM_TABLE
from eviction.types import ReclaimFunction
from reclaim.types import Reason
from signals.types import FilesystemRole, FsLayout

ROOT = Path(__file__).parents[2]
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
    names = re.findall(r"`([a-z_/]+)::([a-z0-9_]+)`", held_by)
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
