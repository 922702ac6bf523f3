"""The JSON Schema of the configuration accepts what the program accepts, and
refuses what is of a wrong type.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from eviction.configuration.effective import ConfigurationError, load
from eviction.configuration.file import (
    FIELDS,
    BoundedMargin,
    ConfigurationFile,
    FilesystemEntry,
    FunctionEntry,
    RowEntryText,
)
from eviction.configuration.models import Model
from eviction.configuration.strict_yaml import parse_document
from signals.quantity import (
    DURATION_PATTERN,
    PERCENTAGE_PATTERN,
    QUANTITY_PATTERN,
    QuantityError,
    parse_duration,
    parse_percentage,
    parse_quantity,
)
from tests.mutations import TEXTS, mutations
from tests.repository import ROOT
from tests.schemas import problems, schema_of, validator

TABLES = {
    "filesystems": [{"name": "buildcache", "path": "/var/lib/buildkit"}],
    "reclaimFunctions": [
        {"name": "prune", "exec": ["/bin/prune", "x"], "frees": "buildcache", "user": "root", "plan": True,
         "timeout": "30s", "cooldown": "5m"},
        {"name": "ReleaseBallast", "file": "/var/lib/ballast", "size": "1Gi"},
        {"name": "DeleteRotatedLogs", "keep": 1},
        {"name": "CollectContainerdGarbage"},
    ],
    "reclaimTable": {
        "nodefs.available": ["DeleteUnusedImages", {"function": "ReleaseBallast", "below": "3%"}],
        "buildcache.available": ["prune"],
    },
}  # fmt: skip
MAPS = {
    "evictionHard": {
        "nodefs.available": "15%",
        "buildcache.available": "1Gi",
        "memory.available": "100Mi",
    },
    "evictionSoft": {"nodefs.available": "20%"},
    "evictionSoftGracePeriod": {"nodefs.available": "1m30s"},
    "evictionMinimumReclaim": {"nodefs.available": "2%"},
    "keepImages": ["registry.example/app:1"],
}
DEFAULTS = parse_document((ROOT / "config" / "all-fields.yaml").read_text(), "all-fields.yaml")
WHOLE = {**DEFAULTS, "kubeletConfig": "", **TABLES, **MAPS}
ONE_OF_EACH_TYPE: tuple[Any, ...] = ("x", 5, 1.5, True, [], [1], {}, {"x": 1}, {"x": []})


def refusal(directory: Path, document: Any) -> str | None:
    """Why the program refuses a file with this document; None if it accepts it."""
    path = directory / "c.yaml"
    path.write_text(json.dumps(document))  # JSON is YAML
    try:
        load(str(path), {}, {})
    except ConfigurationError as error:
        return str(error)
    return None


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all examples of a property."""
    return tmp_path_factory.mktemp("files")


def test_every_field_is_described_and_has_its_default() -> None:
    """Title, description, and for each field a sentence; the defaults are those of the model."""
    schema = schema_of("configuration")
    assert schema["$id"] == "configuration.v1alpha1.json"
    assert schema["properties"].keys() == FIELDS.keys()
    for part in (schema, *schema["$defs"].values()):
        assert part["title"]
        assert part["description"]
        assert all(field["description"].endswith(".") for field in part["properties"].values())
    defaults = {
        name: field.get_default(call_default_factory=True) for name, field in FIELDS.items()
    }
    for name, field in schema["properties"].items():
        assert field.get("default", defaults[name]) == defaults[name]
        assert "default" in field or defaults[name] in ([], {})


def test_the_defaults_and_every_kind_of_entry_are_accepted_by_both(directory: Path) -> None:
    """The document that the mutations begin with, and one with an amount of
    memory, which needs no unit.
    """
    for document in (WHOLE, {**WHOLE, "evictionHard": {"memory.available": "1"}}):
        assert refusal(directory, document) is None
        assert problems(validator("configuration"), document) == []


@given(mutations(WHOLE))
def test_what_the_program_accepts_the_schema_accepts(directory: Path, document: Any) -> None:
    """One small change of a file that has every field: the schema refuses
    nothing that the program takes.
    """
    if refusal(directory, document) is None:
        assert problems(validator("configuration"), document) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"apiVersion": "v1"}, {"apiVersion": None}, {"kind": "Pod"}, {"colour": "red"}, {"keepImage": None},
        {"margin": 5}, {"margin": "5 %"}, {"margin": "5%x"}, {"margin": {"percent": "5Gi"}}, {"extent": "some"}, {"extent": True},
        {"terminatedPods": "kubelet"},
        {"pollFloor": "fast"}, {"pollFloor": 1}, {"assumedFillRate": "500MiB"},
        {"historySize": 16}, {"historyFile": "history"}, {"rootDirectory": "var"}, {"rootDirectory": ""},
        {"podLogsDir": "logs"}, {"dryRun": "true"}, {"dryRun": 1}, {"parallelRemovals": 0}, {"parallelRemovals": 65},
        {"parallelRemovals": "2"}, {"imageGCHighThresholdPercent": 101}, {"imageGCLowThresholdPercent": -1},
        {"keepNewestPerRepository": -1}, {"keepImages": "pause"}, {"keepImages": [1]}, {"keepImages": [None]},
        {"evictionHard": []}, {"evictionHard": {"nodefs": "5%"}}, {"evictionHard": {"nodefs.available": 5}},
        {"evictionHard": {"nodefs.available": "x"}}, {"evictionHard": {"nodefs.inodesfree": "5%"}},
        {"evictionSoftGracePeriod": {"nodefs.available": "5d"}}, {"filesystems": {}}, {"filesystems": [{"name": "x"}]},
        {"filesystems": [{"name": "X", "path": "/x"}]}, {"filesystems": [{"name": "x", "path": "x"}]},
        {"filesystems": [{"name": "x", "path": "/x", "size": "1Gi"}]}, {"filesystems": [{"name": "x", "path": None}]},
        {"reclaimFunctions": [{}]}, {"reclaimFunctions": [{"name": "x", "exec": "/bin/x", "frees": "nodefs"}]},
        {"reclaimFunctions": [{"name": "x", "exec": ["/bin/x"], "frees": "nodefs", "timeout": 30}]},
        {"reclaimFunctions": [{"name": "x", "exec": ["/bin/x"], "frees": "nodefs", "cooldown": ""}]},
        {"reclaimFunctions": [{"name": "x", "exec": ["/bin/x"], "frees": "nodefs", "timeout": ""}]},
        {"reclaimFunctions": [{"name": "DeleteRotatedLogs", "keep": -1}]},
        {"reclaimFunctions": [{"name": "ReleaseBallast", "file": "x", "size": "1Gi"}]},
        {"reclaimTable": {"nodefs.available": "DeleteUnusedImages"}}, {"reclaimTable": {"nodefs": []}},
        {"reclaimTable": {"nodefs.available": [{"below": "3%"}]}}, {"reclaimTable": {"nodefs.available": [5]}},
    ],
    ids=str,
)  # fmt: skip
def test_what_is_wrong_is_refused_by_both(directory: Path, wrong: dict[str, Any]) -> None:
    """A field that is unknown, of a wrong type, or has not its form."""
    document = {**WHOLE, **wrong}
    assert refusal(directory, document) is not None
    assert problems(validator("configuration"), document) != []


def test_a_file_says_what_it_is_to_both(directory: Path) -> None:
    """Without apiVersion or kind nothing is accepted."""
    for name in ("apiVersion", "kind"):
        document = {key: value for key, value in WHOLE.items() if key != name}
        assert refusal(directory, document) is not None
        assert problems(validator("configuration"), document) != []


def wrong_types(model: type[Model], rest: dict[str, Any]) -> list[tuple[str, Any]]:
    """For each field the values of types that the model refuses there."""
    found = []
    for name in (field.alias or name for name, field in model.model_fields.items()):
        for value in ONE_OF_EACH_TYPE:
            try:
                model.model_validate({**rest, name: value})
            except ValidationError as error:
                # that is of a text
                if any(problem["type"] != "value_error" for problem in error.errors()):
                    found.append((name, value))
    return found


def test_a_value_of_a_wrong_type_is_refused_by_the_schema_too() -> None:
    """For each field, in entries of lists too."""
    for name, value in wrong_types(ConfigurationFile, {}):
        assert problems(validator("configuration"), {**WHOLE, name: value}) != [], (name, value)
    entries: tuple[tuple[type[Model], dict[str, Any], Any], ...] = (
        (FilesystemEntry, {"name": "x", "path": "/x"}, lambda entry: {"filesystems": [entry]}),
        (BoundedMargin, {}, lambda entry: {"margin": entry}),
        (FunctionEntry, {"name": "x"}, lambda entry: {"reclaimFunctions": [entry]}),
        (
            RowEntryText,
            {"function": "x"},
            lambda entry: {"reclaimTable": {"nodefs.available": [entry]}},
        ),
    )
    for model, rest, within in entries:
        for name, value in wrong_types(model, rest):
            document = {**WHOLE, **within({**rest, name: value})}
            assert problems(validator("configuration"), document) != [], (
                model.__name__,
                name,
                value,
            )


@given(st.one_of(st.sampled_from(TEXTS), st.text("0123456789.-+%KMGTPEkimnuµshe", max_size=10)))
def test_the_forms_are_those_of_the_parsers(text: str) -> None:
    """What a parser takes has the form of the schema.

    The other way round, a number may be too large.
    """
    for parse, pattern in (
        (parse_quantity, QUANTITY_PATTERN),
        (parse_percentage, PERCENTAGE_PATTERN),
        (parse_duration, DURATION_PATTERN),
    ):
        form = re.fullmatch(pattern, text) is not None
        try:
            amount = parse(text)
        except QuantityError:
            assert (
                not form or len(text) > 10 or "e" in text.lower() or pattern == DURATION_PATTERN
            ), text
        else:
            assert form or (text.startswith("-") and pattern == DURATION_PATTERN), (text, amount)


def test_a_negative_duration_is_refused_by_the_schema_too(directory: Path) -> None:
    """As a field, of a function, and as a grace period; a zero with a sign is none, as in Go."""
    texts = {"-1s": True, "-1m30s": True, "-0.5h": True, "-0m0s": False, "-0": False, "+1s": False}
    for text, refused in texts.items():
        rotated = {"name": "DeleteRotatedLogs", "cooldown": text}
        for fields in (
            {"holdOffAfterStart": text},
            {"evictionSoftGracePeriod": {"nodefs.available": text}},
            {"reclaimFunctions": [rotated], "reclaimTable": {}},
        ):
            document = {**WHOLE, **fields}
            assert (problems(validator("configuration"), document) != []) == refused, (text, fields)
            assert (refusal(directory, document) is not None) == refused, (text, fields)
