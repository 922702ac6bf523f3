"""The JSON Schemas in `config/schema` are those of this program, and what we
give as examples is valid.
"""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from eviction.configuration.strict_yaml import parse_document
from json_schema import Schema
from schemas import documents
from tests.repository import ROOT
from tests.schemas import SCHEMAS, problems, schema_of, validator

LINK = re.compile(r"# yaml-language-server: \$schema=(\S+)\n")
CONFIG = ROOT / "config"
LINKED = sorted(
    [
        CONFIG / "all-fields.yaml",
        CONFIG / "reclaimd.yaml",
        *CONFIG.glob("reclaimd.conf.d/*.conf"),
        *CONFIG.glob("scenarios/*.yaml"),
        *(
            path
            for path in CONFIG.glob("examples/**/*.yaml")
            if "reclaimd.io/v1alpha1" in path.read_text()
        ),
    ]
)
UNLINKED = sorted(  # the text of a ConfigMap, which stands nowhere
    path
    for path in CONFIG.glob("kubernetes/**/reclaimd.yaml")
    if "kind: ReclaimdConfiguration" in path.read_text()
)


def name_of(path: Path) -> str:
    return str(path.relative_to(CONFIG))


COMMITTED = sorted(path.name for path in SCHEMAS.iterdir())


@functools.cache
def made() -> dict[str, Schema]:
    """What `make schema` writes: by name, as read back."""
    return {path.removeprefix("schema/"): json.loads(text) for path, text in documents()}


@pytest.mark.parametrize("name", COMMITTED)
def test_what_is_committed_is_current(name: str) -> None:
    """`make schema` would change nothing but, with another version of
    pydantic, the order of keywords.
    """
    assert json.loads((SCHEMAS / name).read_text()) == made()[name]


def test_there_are_no_others() -> None:
    """A schema that is no longer made is removed, and each that is made is committed."""
    assert set(COMMITTED) == made().keys()


@pytest.mark.parametrize("name", COMMITTED)
def test_each_is_a_schema(name: str) -> None:
    """By the draft that it names; its `$id` is its name."""
    schema = schema_of(name.partition(".")[0])
    Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == Draft202012Validator.META_SCHEMA["$id"]
    assert schema["$id"] == name
    assert schema["title"]
    assert schema["description"]


@pytest.mark.parametrize("path", LINKED, ids=name_of)
def test_an_example_names_its_schema_and_is_valid(path: Path) -> None:
    """The first line leads an editor to the schema, from where the file stands."""
    link = LINK.match(path.read_text())
    assert link is not None
    schema = (path.parent / link[1]).resolve()
    assert schema.parent == SCHEMAS
    found = Draft202012Validator(schema_of(schema.name.partition(".")[0]))
    assert problems(found, parse_document(path.read_text(), path.name)) == []


@pytest.mark.parametrize("path", UNLINKED, ids=name_of)
def test_the_configuration_in_a_manifest_is_valid(path: Path) -> None:
    """Of the DaemonSet and its overlays."""
    assert problems(validator("configuration"), parse_document(path.read_text(), path.name)) == []
