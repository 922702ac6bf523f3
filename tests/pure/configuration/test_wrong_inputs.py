"""Whatever is wrong with a field, the sentence speaks of the file: its name, the
field, YAML's words for values.

Every field of the configuration, of its entries, of the kubelet's file and of a scenario is
given each of some dozens of wrong values. What a validation library or Python would say of
them must not come through.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eviction.cli.commands import COMMANDS
from eviction.cli.parser import command_of
from eviction.configuration.effective import load
from eviction.configuration.file import FIELDS, FilesystemEntry, FunctionEntry
from eviction.configuration.kubelet import KUBELETS_FIELDS, read_kubelet_configuration
from eviction.configuration.strict_yaml import ConfigurationError, parse_document, quoted
from eviction.drill.scenario import (
    ConditionExpectation,
    Expectation,
    NodeSpec,
    Part,
    Pressure,
    Scenario,
    ScenarioError,
    scenario_of,
)
from eviction.types import EvictionError

WRONG = [
    "null", "-7", "7", "1.5", "true", "x", "''", "'5'", "[]", "[x]", "[7]", "[null]", "[true]", "{}", "{a: 1}",
    "{a: null}", "{a: x}", "{a: [x]}", "[{}]", "[{a: 1}]", "[[x]]", "{nodefs.available: 7}", "{nodefs.available: x}",
    "{nodefs.available: [7]}", "{nodefs.available: [{}]}", "{nodefs.available: {}}", "99999999999999999999",
]  # fmt: skip
PYTHONS = re.compile(
    r"\bNone\b|\bTrue\b|\bFalse\b|dictionary|[Ii]nput should|[Ii]nput was|valid"
    r" (?:integer|boolean|list|string|number)"
    r"|instance"
    r" of|\bEntry\b|Entry\b|Fields\b|NoneType|\b(?:str|int|dict|list|tuple|float|bool)\b(?!\.)|_type\b"
    r"|Value error|unhashable|object has|\{'|<class"
)
"""Words of Python's and of its library's. `a list` is the reader's."""
HEAD = "apiVersion: {}\nkind: {}\n"
OURS = HEAD.format("reclaimd.io/v1alpha1", "ReclaimdConfiguration")


def own_texts() -> Iterator[tuple[str, str]]:
    """A field, and a document in which it is wrong."""
    for wrong in WRONG:
        for name in FIELDS.keys() - {"apiVersion", "kind"}:
            kubelet = "" if name == "kubeletConfig" else 'kubeletConfig: ""\n'
            yield name, f"{kubelet}{name}: {wrong}\n"
        for name in (field.alias or name for name, field in FunctionEntry.model_fields.items()):
            others = {"name": "f", "exec": "[/x]", "frees": "nodefs", name: wrong}
            fields = ", ".join(f"{key}: {value}" for key, value in others.items())
            yield name, f'kubeletConfig: ""\nreclaimFunctions: [{{{fields}}}]\n'
        for name in FilesystemEntry.model_fields:
            yield name, f'kubeletConfig: ""\nfilesystems: [{{{name}: {wrong}}}]\n'
        row = f"[{{function: DeleteUnusedImages, below: {wrong}}}]"
        yield "below", f'kubeletConfig: ""\nreclaimTable: {{nodefs.available: {row}}}\n'


def kubelets_texts() -> Iterator[tuple[str, str]]:
    """The same for the fields of the kubelet's file that are read."""
    for wrong in WRONG:
        for name in sorted(KUBELETS_FIELDS):
            yield name, f"{name}: {wrong}\n"


def sentences_about(
    texts: Iterator[tuple[str, str]], read: Callable[[str], object]
) -> list[tuple[str, str]]:
    """Each wrong field with the sentence about it."""
    found = []
    for name, text in texts:
        try:
            read(text)
        except EvictionError as error:
            found.append((name, str(error)))
    return found


def assert_plain(found: list[tuple[str, str]], path: str) -> None:
    """Each sentence names file and field, and has no word of Python's outside the quoted value."""
    for name, sentence in found:
        assert sentence.startswith(path), sentence
        assert name in sentence or "mapping of fields" in sentence or "is missing" in sentence, (
            sentence
        )
        without_texts = re.sub(r"'[^']*'", "'…'", sentence.removeprefix(path))
        plain = re.sub(r"\ba list\b|list of\b", "", without_texts)
        assert not PYTHONS.search(plain), sentence
        assert "\n" not in sentence


@pytest.mark.regression
def test_a_wrong_value_of_any_field_is_told_in_words_of_the_file(tmp_path: Path) -> None:
    """Null, another type, a list in place of a map, a negative number."""
    file = tmp_path / "c.yaml"

    def read(text: str) -> object:
        file.write_text(OURS + text)
        return load(str(file), {}, {})

    found = sentences_about(own_texts(), read)
    assert len(found) > 1000
    assert_plain(found, str(file))


@pytest.mark.regression
def test_a_wrong_value_in_the_kubelets_file_is_told_in_the_same_words(tmp_path: Path) -> None:
    """It names the kubelet's file."""
    file = tmp_path / "kubelet.yaml"

    def read(text: str) -> object:
        file.write_text(HEAD.format("kubelet.config.k8s.io/v1beta1", "KubeletConfiguration") + text)
        return read_kubelet_configuration(str(file))

    found = sentences_about(kubelets_texts(), read)
    assert len(found) > 250
    assert_plain(found, str(file))


NODE = {
    "size": "64Mi",
    "inodes": 4000,
    "images": [{"name": "a:1", "size": "1Mi"}],
    "evictionHard": {"nodefs.available": "20%"},
}
GROWS = {"grows": "bytes", "rate": "1Mi", "amount": "1Mi"}
SCENARIO = {"name": "small", "why": "because", "node": NODE, "pressure": [GROWS], "expect": {}}
PLACES: dict[str, type[Part]] = {
    "": Scenario,
    "node": NodeSpec,
    "expect": Expectation,
    "expect.diskPressure": ConditionExpectation,
}


def names_in_file(part: type[Part]) -> list[str]:
    return [info.alias or name for name, info in part.model_fields.items()]


@pytest.mark.regression
def test_a_wrong_value_in_a_scenario_is_told_in_the_same_words() -> None:
    """The whole document, the node, what grows, what is expected."""
    scenario_of(SCENARIO, "s.yaml")
    values = [parse_document(f"value: {wrong}", "w")["value"] for wrong in WRONG]
    found = []
    for place, model in PLACES.items():
        for name in names_in_file(model):
            for value in values:
                parts = place.split(".") if place else []
                document = {name: value}
                for part in reversed(parts):
                    document = {part: {**(NODE if part == "node" else {}), **document}}
                try:
                    scenario_of({**SCENARIO, **document}, "s.yaml")
                except ScenarioError as error:
                    found.append((name, str(error)))
    for grown in values:
        for name in names_in_file(Pressure):
            try:
                scenario_of({**SCENARIO, "pressure": {**GROWS, name: grown}}, "s.yaml")
            except ScenarioError as error:
                found.append((name, str(error)))
    assert len(found) > 500
    assert_plain(found, "s.yaml")


DOCUMENTS = [
    "[]",
    "x",
    "7",
    "- x",
    "null",
    "a: b: c",
    "\t",
    "{",
    "a: *x",
    "? [a]\n: b",
    "kind: !!int x",
    "true",
]


@pytest.mark.parametrize("text", DOCUMENTS)
def test_a_file_that_is_no_mapping_is_told_in_words(text: str, tmp_path: Path) -> None:
    """An empty one lacks its apiVersion."""
    file = tmp_path / "c.yaml"
    file.write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        load(str(file), {}, {})
    assert_plain([("c.yaml", str(caught.value))], str(tmp_path))


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "null"),
        (True, "true"),
        ("yes", "'yes'"),
        (-7, "-7"),
        (["a", None, 1], "['a', null, 1]"),
        ({"a": {"b": False}}, "{a: {b: false}}"),
        ({"a\n\x1b[31m": 1}, "{'a\\n\\x1b[31m': 1}"),
        ("x" * 100, "'" + "x" * 59 + "…"),
    ],
)
def test_a_value_is_shown_as_it_would_be_written(value: object, shown: str) -> None:
    """In YAML's words, at most 60 characters of it."""
    assert quoted(value) == shown


@pytest.mark.regression
@pytest.mark.parametrize("command", COMMANDS)
def test_a_wrong_value_of_an_option_is_told_in_words(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """For each option whose text is read: what is allowed, and what it was; no
    name of a function or a type.
    """
    parser, _ = command_of(command)
    options = [
        action.option_strings[-1] for action in parser._actions if action.type not in (None, str)
    ]
    for option in options:
        with pytest.raises(SystemExit):
            parser.parse_args([option, "many"])
        sentence = capsys.readouterr().err.removesuffix(f" (see {parser.prog} --help)\n")
        assert "invalid" not in sentence
        assert sentence.endswith(", but it was 'many'") or "'many' is not a " in sentence
