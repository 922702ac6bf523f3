"""The JSON Schema of the configuration accepts what the program accepts, and what is of a wrong
type is refused by both, by the program in words of the file.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from eviction.cli.commands import COMMANDS
from eviction.cli.parser import command_of
from eviction.configuration.effective import ConfigurationError, load
from eviction.configuration.file import (
    FIELDS,
    BoundedMargin,
    ConfigurationFile,
    FilesystemEntry,
    FunctionEntry,
    RowEntryText,
)
from eviction.configuration.kubelet import KubeletFields, read_kubelet_configuration
from eviction.configuration.models import Model
from eviction.configuration.strict_yaml import parse_document, quoted
from eviction.drill.scenario import (
    ConditionExpectation,
    Expectation,
    NodeSpec,
    Pressure,
    Scenario,
    scenario_of,
)
from eviction.types import EvictionError
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
from tests.pure.configuration.test_told import KUBELETS, OURS
from tests.repository import ROOT
from tests.schemas import problems, schema_of, validator

DEFAULTS = parse_document((ROOT / "config" / "all-fields.yaml").read_text(), "all-fields.yaml")
WHOLE = DEFAULTS | parse_document(
    """
kubeletConfig: ""
filesystems: [{name: buildcache, path: /var/lib/buildkit}]
reclaimFunctions:
- {name: prune, exec: [/bin/prune, x], frees: buildcache, user: root, plan: true, timeout: 30s, cooldown: 5m}
- {name: ReleaseBallast, file: /var/lib/ballast, size: 1Gi}
- {name: DeleteRotatedLogs, keep: 1}
- {name: CollectContainerdGarbage}
reclaimTable:
  nodefs.available: [DeleteUnusedImages, {function: ReleaseBallast, below: 3%}]
  buildcache.available: [prune]
evictionHard: {nodefs.available: 15%, buildcache.available: 1Gi, memory.available: "1"}
evictionSoft: {nodefs.available: 20%}
evictionSoftGracePeriod: {nodefs.available: 1m30s}
evictionMinimumReclaim: {nodefs.available: 2%}
keepImages: [registry.example/app:1]
""",
    "whole",
)


def accepted(directory: Path, document: Any) -> tuple[bool, bool]:
    """Whether the program, and whether the schema accepts a document."""
    path = directory / "c.yaml"
    path.write_text(json.dumps(document))  # JSON is YAML
    by_schema = problems(validator("configuration"), document) == []
    try:
        load(str(path), {}, {})
    except ConfigurationError:
        return False, by_schema
    return True, by_schema


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all examples of a property."""
    return tmp_path_factory.mktemp("files")


def test_every_field_has_its_default() -> None:
    """Those of the model."""
    schema = schema_of("configuration")
    assert schema["properties"].keys() == FIELDS.keys()
    for name, field in schema["properties"].items():
        default = FIELDS[name].get_default(call_default_factory=True)
        assert field.get("default", default) == default
        assert "default" in field or default in ([], {})


@given(mutations(WHOLE))
def test_what_the_program_accepts_the_schema_accepts(directory: Path, document: Any) -> None:
    """One small change of a file that has every field: the schema refuses nothing that the program
    takes."""
    assert accepted(directory, document) != (True, False)


def test_a_file_says_what_it_is_to_both(directory: Path) -> None:
    """Without apiVersion or kind, or with others, nothing is accepted."""
    assert accepted(directory, WHOLE) == (True, True)
    for name in ("apiVersion", "kind"):
        rest = {key: value for key, value in WHOLE.items() if key != name}
        for document in (rest, {**rest, name: "x"}, {**rest, name: None}):
            assert accepted(directory, document) == (False, False)


def names_in_file(model: type[Model]) -> list[str]:
    """The names of its fields, as they are written."""
    return [field.alias or name for name, field in model.model_fields.items()]


TYPES: tuple[Any, ...] = ("x", 5, 1.5, True, [], [1], {}, {"x": 1}, {"x": []})


def wrong_types(model: type[Model], rest: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """For each field the values of types that the model refuses there."""
    for name in names_in_file(model):
        for value in TYPES:
            try:
                model.model_validate({**rest, name: value})
            except ValidationError as error:
                if any(problem["type"] != "value_error" for problem in error.errors()):
                    yield name, value


Entries = dict[type[Model], tuple[dict[str, Any], Callable[[Any], Any]]]
ENTRIES: Entries = {
    ConfigurationFile: ({}, lambda entry: entry),
    FilesystemEntry: ({"name": "x", "path": "/x"}, lambda entry: {"filesystems": [entry]}),
    BoundedMargin: ({}, lambda entry: {"margin": entry}),
    FunctionEntry: (
        {"name": "f", "exec": ["/x"], "frees": "nodefs"},
        lambda entry: {"reclaimFunctions": [entry]},
    ),
    RowEntryText: (
        {"function": "DeleteUnusedImages"},
        lambda entry: {"reclaimTable": {"nodefs.available": [entry]}},
    ),
}


@pytest.mark.parametrize("model", ENTRIES)
def test_a_value_of_a_wrong_type_is_refused_by_the_schema_too(model: type[Model]) -> None:
    """For each field, in entries of lists too."""
    rest, within = ENTRIES[model]
    for name, value in wrong_types(model, rest):
        document = {**WHOLE, **within({**rest, name: value})}
        assert problems(validator("configuration"), document) != [], (name, value)


@given(st.one_of(st.sampled_from(TEXTS), st.text("0123456789.-+%KMGTPEkimnuµshe", max_size=10)))
def test_the_forms_are_those_of_the_parsers(text: str) -> None:
    """What a parser takes has the form of the schema. The other way round, a number may be too
    large."""
    for parse, pattern in (
        (parse_quantity, QUANTITY_PATTERN),
        (parse_percentage, PERCENTAGE_PATTERN),
        (parse_duration, DURATION_PATTERN),
    ):
        duration, form = parse is parse_duration, re.fullmatch(pattern, text) is not None
        try:
            parse(text)
        except QuantityError:
            assert not form or len(text) > 10 or "e" in text.lower() or duration, text
        else:
            assert form or (text.startswith("-") and duration), text


# ---- in words of the file

WRONG = [
    "null", "-7", "1.5", "true", "x", "'5'", "[]", "[7]", "[null]", "{}", "{a: null}", "{a: [x]}", "[{a: 1}]", "[[x]]",
    "{nodefs.available: 7}", "{nodefs.available: [{}]}", "99999999999999999999",
]  # fmt: skip
PYTHONS = re.compile(
    r"\bNone\b|\bTrue\b|\bFalse\b|dictionary|[Ii]nput should|[Ii]nput was|instance of|Entry\b"
    r"|valid (?:integer|boolean|list|string|number)|Fields\b|NoneType|_type\b|Value error|<class"
    r"|\b(?:str|int|dict|tuple|float|bool)\b(?!\.)|unhashable|object has|\{'"
)
"""Words of Python's and of its library's."""
NODE = {
    "size": "64Mi",
    "inodes": 4000,
    "images": [{"name": "a:1", "size": "1Mi"}],
    "evictionHard": {"nodefs.available": "20%"},
}
GROWS = {"grows": "bytes", "rate": "1Mi", "amount": "1Mi"}
SCENARIO = {"name": "small", "why": "because", "node": NODE, "pressure": [GROWS], "expect": {}}
OF_SCENARIOS: Entries = {
    Scenario: ({}, lambda entry: entry),
    NodeSpec: (NODE, lambda entry: {"node": entry}),
    Pressure: (GROWS, lambda entry: {"pressure": [entry]}),
    Expectation: ({}, lambda entry: {"expect": entry}),
    ConditionExpectation: ({}, lambda entry: {"expect": {"diskPressure": entry}}),
}
KINDS: dict[str, tuple[Any, Entries, Callable[[str, Any], object]]] = {
    "c.yaml": (
        parse_document(OURS + 'kubeletConfig: ""', ""),
        ENTRIES,
        lambda path, _: load(path, {}, {}),
    ),
    "kubelet.yaml": (
        parse_document(KUBELETS, ""),
        {KubeletFields: ({}, lambda entry: entry)},
        lambda path, _: read_kubelet_configuration(path),
    ),
    "scenario.yaml": (
        SCENARIO,
        OF_SCENARIOS,
        lambda path, document: scenario_of(document, path),
    ),
}


@pytest.mark.parametrize(
    ("kind", "least"), [("c.yaml", 500), ("kubelet.yaml", 100), ("scenario.yaml", 200)]
)
def test_a_wrong_value_of_any_field_is_told_in_words_of_the_file(
    tmp_path: Path, kind: str, least: int
) -> None:
    """Its name, the field, YAML's words for values: null, another type, a list in place of a map.
    What Python or its library says of them does not come through."""
    base, entries, read = KINDS[kind]
    path, told = tmp_path / kind, 0
    path.write_text(json.dumps(base))
    read(str(path), base)
    for model, (rest, within) in entries.items():
        for name, wrong in itertools.product(names_in_file(model), WRONG):
            value = parse_document(f"value: {wrong}", "")["value"]
            document = {**base, **within({**rest, name: value})}
            path.write_text(json.dumps(document))
            try:
                read(str(path), document)
            except EvictionError as error:
                told, sentence = told + 1, str(error)
            else:
                continue
            assert sentence.startswith(str(path))
            assert "\n" not in sentence
            assert name in sentence or "is missing" in sentence
            plain = re.sub(r"'[^']*'|\ba list\b|list of\b", "…", sentence.removeprefix(str(path)))
            assert not PYTHONS.search(plain), sentence
    assert told > least


def test_a_value_is_shown_as_it_would_be_written() -> None:
    """In YAML's words, at most 60 characters of it."""
    for shown in (r"['a', null, 1, true, 'yes']", r"{a: {b: false}}", r"{'a\n\x1b[31m': 1}"):
        text = shown.replace("'", '"')
        assert quoted(parse_document(f"value: {text}", "")["value"]) == shown
    assert quoted("x" * 100) == "'" + "x" * 59 + "…"


@pytest.mark.parametrize("command", COMMANDS)
def test_a_wrong_value_of_an_option_is_told_in_words(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """For each option whose text is read: what is allowed, and what it was; no name of a function
    or a type."""
    parser, _ = command_of(command)
    for action in parser._actions:
        if action.type in (None, str):
            continue
        with pytest.raises(SystemExit):
            parser.parse_args([*action.option_strings[-1:], ""])
        sentence = capsys.readouterr().err.removesuffix(f" (see {parser.prog} --help)\n")
        assert "invalid" not in sentence
        assert sentence.endswith(", but it was ''") or "'' is not a " in sentence
