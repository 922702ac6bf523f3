"""The README documents the scenario format completely."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from eviction.drill.scenario import schema
from eviction.drill.scenario.library import library
from eviction.drill.scenario.reader import read_scenario
from eviction.drill.scenario.types import FaultAction, Grows, PodState
from tests.repository import ROOT

SECTION = (ROOT / "README.md").read_text().partition("\n## Drill\n")[2].partition("\n## ")[0]
MODELS = (
    schema.FilesystemFields,
    schema.ImageFields,
    schema.PodFields,
    schema.RuntimeFields,
    schema.NodeFields,
    schema.PressureFields,
    schema.CallFields,
    schema.FaultFields,
    schema.ConditionFields,
    schema.ExpectFields,
)
FIELDS = sorted({info.alias or name for model in MODELS for name, info in model.model_fields.items()})


@pytest.mark.parametrize("word", [*FIELDS, *PodState, *Grows, *FaultAction])
def test_every_field_and_every_word_of_a_scenario_is_documented(word: str) -> None:
    """Every name of the schema is in the README's section on the drill."""
    assert f"`{word}`" in SECTION


def test_the_number_of_built_in_scenarios_is_right() -> None:
    """The number in the README is that of the library."""
    assert f"({len(library())})" in SECTION


def test_the_example_can_be_used(tmp_path: Path) -> None:
    """The scenario in the README is read without an error."""
    (example,) = re.findall(r"```yaml\n(.*?)```", SECTION, re.DOTALL)
    path = tmp_path / "example.yaml"
    path.write_text(example)
    assert read_scenario(str(path)).faults
