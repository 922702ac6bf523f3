"""The built-in scenarios, and finding a scenario by name or path."""

from __future__ import annotations

import os
from importlib import resources
from pathlib import Path

from eviction.drill.scenario.amounts import ScenarioError
from eviction.drill.scenario.reader import read_scenario
from eviction.drill.scenario.types import Scenario


def library() -> dict[str, str]:
    """The built-in scenarios: name -> path."""
    packaged = Path(str(resources.files("eviction.drill"))) / "library"  # in an installed package
    source = Path(__file__).parents[3] / "config" / "scenarios"  # in a checkout
    folder = packaged if packaged.is_dir() else source
    return {path.stem: str(path) for path in sorted(folder.glob("*.yaml"))}


def find_scenario(name: str) -> Scenario:
    """Reads a built-in scenario by name, or a file by path. Raises ScenarioError."""
    known = library()
    if name in known:
        return read_scenario(known[name])
    if os.sep in name or name.endswith((".yaml", ".yml")):
        return read_scenario(name)
    raise ScenarioError(f"unknown scenario {name!r}; allowed are {', '.join(known)} and paths of files")
