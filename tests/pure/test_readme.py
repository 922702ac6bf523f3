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
