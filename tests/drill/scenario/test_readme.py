"""The drill's page can be followed: its example is a scenario, and the schema that it
names for the rest is whole.
"""

from __future__ import annotations

import json
from pathlib import Path

from eviction.drill.scenario import read_scenario
from tests.pages import DRILL, code_blocks
from tests.repository import ROOT

SCHEMA = json.loads((ROOT / "config" / "schema" / "scenario.v1alpha1.json").read_text())


def test_the_example_can_be_used(tmp_path: Path) -> None:
    """The scenario of the page is read without an error."""
    (example,) = code_blocks(DRILL, "yaml")
    path = tmp_path / "example.yaml"
    path.write_text(example)
    assert read_scenario(str(path)).faults


def test_every_field_of_the_schema_has_a_meaning() -> None:
    """Of the scenario and of each of its parts."""
    for name, part in {"Scenario": SCHEMA, **SCHEMA["$defs"]}.items():
        for field, shape in part.get("properties", {}).items():
            assert shape.get("description") or "const" in shape, f"{name}.{field}"
