"""The JSON Schema of scenarios accepts what the drill accepts, and refuses what
is of a wrong type.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from jsonschema import Draft202012Validator
from pydantic import ValidationError

from eviction.configuration.models import Model
from eviction.configuration.strict_yaml import read_document
from eviction.drill.scenario import (
    ConditionExpectation,
    Expectation,
    Fault,
    FilesystemSpec,
    FunctionSpec,
    ImageSpec,
    NodeSpec,
    OwnFilesystemSpec,
    PodSpec,
    Pressure,
    RuntimeSpec,
    ScenarioError,
    library,
    scenario_of,
)
from tests.drill.documents import document
from tests.drill.scenario.test_reader import REFUSED
from tests.mutations import mutations
from tests.schemas import problems, schema_of, validator

RICH = {
    **document(),
    "pressure": [
        {"grows": "bytes", "rate": "60Mi", "amount": "full", "for": "10s", "holds": "0s", "where": "nodefs"},
        {"grows": "log", "rate": "1Mi", "amount": "2Mi", "pod": "web", "remains": False},
        {"grows": "pull", "rate": "1Mi", "image": {"name": "registry.example/new", "size": "1Mi", "age": "1m"}},
    ],
    "faults": [
        {"action": "away", "at": "1s", "lasts": "1s"},
        {"action": "delay", "method": "RemoveImage", "at": "1s", "by": "1s"},
        {"action": "cut", "method": "ListImages", "at": "0s", "times": 1},
    ],
}  # fmt: skip


def refusal(written: Any) -> str | None:
    """Why the drill refuses a scenario; None if it accepts it."""
    try:
        scenario_of(written, "scenario")
    except ScenarioError as error:
        return str(error)
    return None


def test_every_field_is_described() -> None:
    """Each part of the file has a title and a description, each field a sentence."""
    schema = schema_of("scenario")
    for part in (schema, *schema["$defs"].values()):
        assert part["title"]
        assert part["description"]
        assert all(field["description"].endswith(".") for field in part["properties"].values())


@pytest.mark.parametrize("name", library())
def test_every_built_in_scenario_is_valid(name: str) -> None:
    """By the schema too."""
    assert problems(validator("scenario"), read_document(library()[name], trusted_only=False)) == []


@settings(max_examples=300, deadline=None, database=None)
@given(mutations(RICH))
def test_what_the_drill_accepts_the_schema_accepts(written: Any) -> None:
    """One small change of a scenario with pressures and faults of every form."""
    if refusal(written) is None:
        assert problems(validator("scenario"), written) == []


def test_the_scenario_that_is_changed_is_accepted() -> None:
    """So that a change of it may be accepted too."""
    assert refusal(RICH) is None


BY_THE_FORM = (
    "an unknown field", "an unknown field of an expectation", "a missing part", "no pressure", "no image",
    "an unknown layout", "an unknown field of the configuration",
    "an invalid value in the configuration", "a field that the drill sets", "a threshold among the other fields",
)  # fmt: skip


@pytest.mark.parametrize("wrong", BY_THE_FORM)
def test_what_has_a_wrong_form_is_refused_by_both(wrong: str) -> None:
    """Unknown fields, missing parts and words that are not in a closed list."""
    written = document(**REFUSED[wrong][0])
    assert refusal(written) is not None
    assert problems(validator("scenario"), written) != []


ONE_OF_EACH_TYPE: tuple[Any, ...] = ("x", 5, 1.5, True, None, [], [1], {}, {"x": 1}, {"x": []})
ONE_OF_EACH_PART: dict[type[Model], dict[str, Any]] = {
    FilesystemSpec: {"size": "1Gi", "inodes": 1000},
    OwnFilesystemSpec: {"size": "1Gi", "inodes": 1000, "name": "cache"},
    FunctionSpec: {"name": "prune"},
    ImageSpec: RICH["node"]["images"][0],
    PodSpec: RICH["node"]["pods"][0],
    RuntimeSpec: {},
    NodeSpec: RICH["node"],
    Pressure: RICH["pressure"][0],
    Fault: RICH["faults"][0],
    ConditionExpectation: {},
    Expectation: RICH["expect"],
}


@pytest.mark.parametrize("part", ONE_OF_EACH_PART, ids=lambda part: part.__name__)
def test_a_value_of_a_wrong_type_is_refused_by_the_schema_too(part: type[Model]) -> None:
    """For each field of each part: what the model refuses there."""
    whole, usual = schema_of("scenario"), ONE_OF_EACH_PART[part]
    found = Draft202012Validator({"$ref": f"#/$defs/{part.__name__}", "$defs": whole["$defs"]})
    assert problems(found, usual) == []
    for name, info in part.model_fields.items():
        for value in ONE_OF_EACH_TYPE:
            changed = {**usual, info.alias or name: value}
            try:
                part.model_validate(changed)
            except ValidationError:
                assert problems(found, changed) != [], (name, value)


def test_every_part_is_among_them() -> None:
    """The schema has no other definitions, but those of the configuration's margin and rows."""
    assert schema_of("scenario")["$defs"].keys() == {part.__name__ for part in ONE_OF_EACH_PART} | {
        "BoundedMargin",
        "RowEntryText",
    }
