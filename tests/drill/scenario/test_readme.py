"""The drill's README documents the scenario format completely."""

from __future__ import annotations

from pathlib import Path

import pytest

from eviction.drill.runtime.dialects import DIALECTS
from eviction.drill.runtime.distortions import Distortion
from eviction.drill.scenario import types
from eviction.drill.scenario.reader import library, read_scenario
from eviction.drill.scenario.types import FaultAction, Grows, PodState
from tests.pages import DRILL, code_blocks

TEXT = DRILL.read_text()
MODELS = (
    types.FilesystemSpec,
    types.ImageSpec,
    types.PodSpec,
    types.RuntimeSpec,
    types.NodeSpec,
    types.Pressure,
    types.Call,
    types.Fault,
    types.ConditionExpectation,
    types.Expectation,
)
FIELDS = sorted({info.alias or name for model in MODELS for name, info in model.model_fields.items()})


@pytest.mark.parametrize("word", [*FIELDS, *PodState, *Grows, *FaultAction, *DIALECTS, *Distortion])
def test_every_field_and_every_word_of_a_scenario_is_documented(word: str) -> None:
    """Every name of the schema is in the drill's README."""
    assert f"`{word}`" in TEXT


def test_the_number_of_built_in_scenarios_is_right() -> None:
    """The number in the README is that of the library."""
    assert f"({len(library())})" in TEXT


def test_the_example_can_be_used(tmp_path: Path) -> None:
    """The scenario in the README is read without an error."""
    (example,) = code_blocks(DRILL, "yaml")
    path = tmp_path / "example.yaml"
    path.write_text(example)
    assert read_scenario(str(path)).faults
