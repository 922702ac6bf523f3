"""The JSON Schemas of the repository, and validators of them."""

import json
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator

from tests.repository import ROOT

SCHEMAS = ROOT / "config" / "schema"


def schema_of(name: str) -> dict[str, Any]:
    """The schema of a kind of documents: `configuration`, `pass` …"""
    found: dict[str, Any] = json.loads((SCHEMAS / f"{name}.v1alpha1.json").read_text())
    return found


@cache
def validator(name: str) -> Draft202012Validator:
    """As an editor or a program of somebody else's validates."""
    return Draft202012Validator(schema_of(name), format_checker=Draft202012Validator.FORMAT_CHECKER)


@cache
def strict_validator(name: str) -> Draft202012Validator:
    """The same, but no field may be there that the schema does not have."""
    return Draft202012Validator(
        _closed(schema_of(name)), format_checker=Draft202012Validator.FORMAT_CHECKER
    )


@cache
def _schema_of_kind() -> dict[str, str]:
    """The kind that a printed document says -> the name of its schema."""
    names = [path.name.partition(".")[0] for path in SCHEMAS.iterdir()]
    kinds = {
        name: schema_of(name).get("properties", {}).get("kind", {}).get("const") for name in names
    }
    return {kind: name for name, kind in kinds.items() if kind is not None}


def assert_as_described(document: Any) -> None:
    """A printed document says what it is, and has all the fields of its schema and no others."""
    assert list(document)[:2] == ["apiVersion", "kind"]
    assert problems(strict_validator(_schema_of_kind()[document["kind"]]), document) == []


def assert_a_log_line(event: Any) -> None:
    """A line of the JSON log has the fields of its schema and no others."""
    assert problems(strict_validator("log-line"), event) == [], event


def problems(found: Draft202012Validator, document: Any) -> list[str]:
    """What is wrong with a document, each with its place."""
    return [f"{error.json_path}: {error.message[:300]}" for error in found.iter_errors(document)]


def _closed(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {word: _closed(value) for word, value in schema.items()}
    if schema.get("type") == "object" and "properties" in schema:
        closed.setdefault("additionalProperties", False)
    return closed
