"""Which files are read, what those that are delivered say, and what no file may hold. The JSON
Schema of the configuration accepts what the program accepts, and what is of a wrong type is refused
by both, by the program in words of the file."""

import ast
import itertools
import json
import math
import os
import re
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from eviction.cli.commands import COMMANDS
from eviction.cli.options import configuration_flags
from eviction.cli.parser import command_of
from eviction.configuration import file, kubelet
from eviction.configuration.effective import ConfigurationError, load
from eviction.configuration.file import FIELDS, GONE_FIELDS, ConfigurationFile
from eviction.configuration.fingerprint import (
    configuration_files,
    fingerprint_of,
    same_configuration,
)
from eviction.configuration.kubelet import kubelet_configuration
from eviction.configuration.models import Model
from eviction.configuration.strict_yaml import parse_document, quoted
from eviction.drill import scenario
from eviction.drill.scenario import scenario_of
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
from tests.rows import rows
from tests.schemas import problems, schema_of, validator

ANNOTATED, INSTALLED = ROOT / "config" / "all-fields.yaml", ROOT / "config" / "reclaimd.yaml"

# ---- what is delivered

KUBELETS_OWN = """imageMinimumGCAge: 7m
imageMaximumGCAge: 9h
imageGCHighThresholdPercent: 71
imageGCLowThresholdPercent: 61
podLogsDir: /logs
containerRuntimeEndpoint: unix:///other.sock
imageServiceEndpoint: unix:///images.sock
healthzPort: 1
evictionPressureTransitionPeriod: 11m
"""


@pytest.mark.parametrize("file", [ANNOTATED, INSTALLED], ids=lambda file: file.name)
def test_what_is_delivered_changes_neither_a_default_nor_what_is_inherited(
    tmp_path: Path, file: Path
) -> None:
    """Loading it gives what no file gives, beside a kubelet's configuration, too."""
    kubelet = tmp_path / "kubelet.yaml"
    kubelet.write_text(KUBELETS + KUBELETS_OWN)
    for flags in ({}, {"kubeletConfig": str(kubelet)}):
        bare, found = load(None, {}, flags), load(str(file), {}, flags)
        assert found.model_copy(update={"origins": bare.origins}) == bare


def test_the_annotated_configuration_has_every_field_with_its_default() -> None:
    """And no other; one behind the mark of a comment, too."""
    text = ANNOTATED.read_text()
    assert set(re.findall(r"^#?([a-zA-Z]+):", text, re.MULTILINE)) == FIELDS.keys()
    commented = dict(re.findall(r"^#([a-zA-Z]+): (.*)$", text, re.MULTILINE))
    defaults = load(None, {}, {"kubeletConfig": ""}).effective
    assert {name: written.strip('"') for name, written in commented.items()} == {
        name: str(defaults[name]) for name in commented
    }


def test_what_is_installed_is_short_and_its_suggestions_are_accepted(tmp_path: Path) -> None:
    """At most ten lines, of which one says where every field is explained; without the marks of
    comments they are valid."""
    text, file = INSTALLED.read_text(), tmp_path / "c.yaml"
    assert 3 <= len(text.splitlines()) <= 10
    assert "`reclaimd help configuration`" in text
    file.write_text(re.sub(r"^#([a-zA-Z]+:)", r"\1", text, flags=re.MULTILINE))
    assert str(file) in load(str(file), {}, {}).origins.values()


# ---- which files are read


@rows("""
    config | config_dir | variable | file                           | directory
    -      | -          | -        | ROOT/etc/reclaimd/reclaimd.yaml | ROOT/etc/reclaimd/reclaimd.conf.d
    -      | /d         | -        | ROOT/etc/reclaimd/reclaimd.yaml | /d
    -      |            | -        | ROOT/etc/reclaimd/reclaimd.yaml | -
    /a     | -          | -        | /a                             | -
    /a     | /d         | -        | /a                             | /d
    -      | /d         | /b       | /b                             | /d
    -      | -          | /b       | /b                             | -
    /a     | -          | /b       | /a                             | -
           | -          | -        | -                              | -
           |            | /b       | -                              | -
    -      | -          |          | -                              | -
""")
def test_what_is_named_takes_the_place_of_the_usual_files(
    tmp_path: Path, config: str, config_dir: str, variable: str, file: str, directory: str
) -> None:
    """The command line before the environment; an empty text is none. A minus: it is not there."""
    (tmp_path / "etc/reclaimd/reclaimd.conf.d").mkdir(parents=True)
    (tmp_path / "etc/reclaimd/reclaimd.yaml").touch()
    given = [None if each == "-" else each for each in (config, config_dir, variable)]
    environment = {} if given[2] is None else {"RECLAIMD_CONFIG": given[2]}
    files = configuration_files(given[0], given[1], environment, root=str(tmp_path))
    shown = [(path or "-").replace(str(tmp_path), "ROOT") for path in files]
    assert shown == [file, directory]


def test_usual_files_are_read_where_they_exist(tmp_path: Path) -> None:
    """A dangling symlink is an error of whoever reads it, not a node without a configuration, and
    so is a directory of drop-ins that is named and missing."""
    assert configuration_files(None, None, {}, root=str(tmp_path)) == (None, None)
    file = tmp_path / "etc/reclaimd/reclaimd.yaml"
    file.parent.mkdir(parents=True)
    file.symlink_to("nowhere")
    assert configuration_files(None, None, {}, root=str(tmp_path)) == (str(file), None)
    with pytest.raises(ConfigurationError, match=f"^{tmp_path}/none: cannot be read: No such file"):
        load(None, {}, {}, directory=f"{tmp_path}/none")


def test_the_same_files_flags_and_endpoints_make_the_same_fingerprint(tmp_path: Path) -> None:
    """By whatever path; other flags, another endpoint, and a file that changed in any way make
    another one, and so does naming none, which a command may. A missing file is an error."""
    file, link = tmp_path / "a.conf", tmp_path / "link"
    file.write_text("x: 1\n")
    link.symlink_to(file)

    def of(
        path: str | None = str(file), directory: str | None = str(tmp_path), **variables: str
    ) -> dict[str, Any]:
        flags = {"root-dir": variables.pop("root", None)}
        return fingerprint_of(path, directory, flags, environment=variables)

    daemon = of(PATH="/bin")
    by_link = fingerprint_of(str(link), str(tmp_path), {}, environment={})
    assert daemon == by_link == of(CONTAINER_RUNTIME_ENDPOINT="")
    others = [of(directory=None), of(root="/x"), of(CONTAINER_RUNTIME_ENDPOINT="unix:///x")]
    others.append(of(None, None, IMAGE_SERVICE_ENDPOINT="unix:///x"))
    assert same_configuration(of(None, None), others[-1])
    os.utime(file, ns=(0, file.stat().st_mtime_ns + 1))
    told = [*others, of(), "text", {}, daemon]
    same = [same_configuration(each, daemon) for each in told]
    assert (same, same_configuration(daemon, {})) == ([False] * 6 + [True] * 2, False)
    with pytest.raises(FileNotFoundError):
        of(str(tmp_path / "missing"))


# ---- what no file may hold


@pytest.mark.parametrize("field", GONE_FIELDS)
def test_a_field_that_is_gone_is_refused_with_what_to_use_instead(
    tmp_path: Path, field: str
) -> None:
    """Whatever its value: who wrote it relies on what is no longer done."""
    assert field not in FIELDS
    file = tmp_path / "c.yaml"
    for value in ("200Gi", '"0"', "null"):
        file.write_text(f"{OURS}{field}: {value}\n")
        with pytest.raises(ConfigurationError) as refused:
            load(str(file), {}, {})
        assert str(refused.value) == f"{file}: the field '{field}' is gone; {GONE_FIELDS[field]}"


OF_TEXT = [name for name, field in FIELDS.items() if isinstance(field.default, str)][2:]
UNFIT = "must hold no NUL and no lone surrogate"


@pytest.mark.parametrize("text", ["/x\0y", "/x\ud800y"], ids=["NUL", "lone surrogate"])
def test_a_text_that_the_kernel_does_not_take_is_refused_by_name(tmp_path: Path, text: str) -> None:
    """Of any field, in a file and by a flag; of the kubelet's those that are read."""
    file = tmp_path / "c.yaml"
    values = dict.fromkeys((*OF_TEXT, "kubeletConfig"), text) | {
        "keepImages": [text],
        "evictionHard": {"nodefs.available": text},
    }
    for name, value in values.items():
        file.write_text(f"{OURS}{json.dumps({name: value})[1:-1]}\n")
        for path, flags in ((str(file), {}), (None, {name: value})):
            with pytest.raises(ConfigurationError, match=UNFIT) as refused:
                load(path, {}, flags)
            assert name in str(refused.value)
            assert "\n" not in str(refused.value)
            str(refused.value).encode()
    for name in ("podLogsDir", "containerRuntimeEndpoint", "imageServiceEndpoint"):
        with pytest.raises(ConfigurationError, match=f"{name}: {UNFIT}"):
            kubelet_configuration({name: text}, "kubelet.yaml")
    kubelet_configuration({"clusterDomain": text}, "kubelet.yaml")


some_fields = st.sampled_from([*FIELDS])
some_texts = st.one_of(
    st.sampled_from((*TEXTS, "5%", "{}", "[]", "null", "1e-9999%", "[x]", "99999999999999999999")),
    st.text(max_size=40).map(lambda text: json.dumps([text])),
    st.text(max_size=40).map(lambda text: json.dumps({"nodefs.available": text})),
    st.sampled_from(TEXTS).map("{{nodefs.available: {}, cache.inodesFree: 1}}".format),
    st.text(),
)


@given(st.lists(st.tuples(some_fields, some_texts), max_size=4) | st.text(max_size=60))
def test_any_file_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, content: list[tuple[str, str]] | str
) -> None:
    """Nothing but ConfigurationError comes out of a file, in one line, and no part of a refused one
    is used; every number that is in force is finite, and no mark negative."""
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    lines = (
        content if isinstance(content, str) else "".join(f"{f}: {text}\n" for f, text in content)
    )
    path.write_bytes((OURS + lines).encode("utf-8", "surrogatepass"))
    refused = ""
    try:
        found = load(str(path), {}, {})
    except ConfigurationError as error:
        refused, found = str(error), load(None, {}, {})
    assert "\n" not in refused
    for each in found.thresholds:
        assert each.mark_with_min_reclaim(10**12) >= each.mark(10**12) >= 0
    numbers = [value for value in dict(found).values() if isinstance(value, int | float)]
    assert all(map(math.isfinite, numbers))
    assert 0 <= found.image_gc_low_threshold_percent < found.image_gc_high_threshold_percent <= 100


# ---- what may be written is read

MODULES = {
    path: ast.parse(path.read_text())
    for package in ("signals", "reclaim", "eviction")
    for path in (ROOT / package).rglob("*.py")
}
ROOM = ROOT / "eviction"


def names_in(modules: Iterable[Path]) -> Iterator[str]:
    """The names of attributes and of annotated fields, and the texts, in their code."""
    for path in modules:
        for node in ast.walk(MODULES[path]):
            match node:
                case (
                    ast.Attribute(attr=name, ctx=ast.Load())
                    | ast.AnnAssign(target=ast.Name(id=name))
                ):
                    yield name
                case ast.Constant(value=str() as text):
                    yield text


def test_each_field_is_read() -> None:
    """Elsewhere than where its form is: as an attribute, or by its name in the document."""
    elsewhere = set(names_in(MODULES.keys() - {ROOM / "configuration" / "file.py"}))
    fields = ConfigurationFile.model_fields
    assert [name for name in fields if not {name, fields[name].alias} & elsewhere] == []


def test_each_option_is_read() -> None:
    """By its name in the code of commands, or as a field of the configuration."""
    rooms = {ROOM / "cli", ROOM / "surface"}
    by_commands = set(names_in(path for path in MODULES if rooms & {*path.parents}))
    fields = {flag.replace("-", "_") for flag in configuration_flags(Namespace())}
    given_is_enough = {"help", "standalone"}  # the daemon is asked by other options alone
    for command in COMMANDS:
        wanted = {action.dest for action in command_of(command)[0]._actions}
        assert wanted - by_commands - fields - given_is_enough == set(), command


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

WRONG_TEXTS = """null; -7; 1.5; true; x; '5'; []; [7]; [null]; {}; {a: null}; {a: [x]}; [{a: 1}]; [[x]];
{nodefs.available: 7}; {nodefs.available: [{}]}; 99999999999999999999"""
WRONG = {text: yaml.safe_load(text) for text in WRONG_TEXTS.replace("\n", " ").split("; ")}
PYTHONS = re.compile(
    r"\bNone\b|\bTrue\b|\bFalse\b|dictionary|[Ii]nput should|[Ii]nput was|instance of|Entry\b"
    r"|valid (?:integer|boolean|list|string|number)|Fields\b|NoneType|_type\b|Value error|<class"
    r"|\b(?:str|int|dict|tuple|float|bool)\b(?!\.)|unhashable|object has|\{'"
)
"""Words of Python's and of its library's."""
SCENARIO = """
name: small
why: because
node:
    size: 64Mi
    inodes: 4000
    images: [{name: "a:1", size: 1Mi}]
    evictionHard: {nodefs.available: 20%}
pressure: [{grows: bytes, rate: 1Mi, amount: 1Mi}]
expect: {}
"""
SCHEMAS = {"flags": ("configuration", WHOLE), "scenario": ("scenario", yaml.safe_load(SCENARIO))}
NODE = """
size: 64Mi, inodes: 4000, images: [{name: "a:1", size: 1Mi}], evictionHard: {nodefs.available: 20%}
""".strip()
READERS: dict[str, tuple[ModuleType, str, Callable[[Any], object]]] = {
    "flags": (file, 'kubeletConfig: ""', lambda document: load(None, {}, document)),
    "kubelet": (kubelet, KUBELETS, lambda document: kubelet_configuration(document, "kubelet")),
    "scenario": (scenario, SCENARIO, lambda document: scenario_of(document, "scenario")),
}


def of_wrong_type(model: type[Model], entry: Any) -> bool:
    """Whether the model refuses it for the type of a value."""
    try:
        model.model_validate(entry)
    except ValidationError as error:
        return any(problem["type"] != "value_error" for problem in error.errors())
    return False


@rows("""
    where    | kind                 | entry                                   | document                                       | least
    flags    | ConfigurationFile    | {}                                      | ENTRY                                          | 400
    flags    | FilesystemEntry      | {name: x, path: /x}                     | {filesystems: [ENTRY]}                         | 20
    flags    | BoundedMargin        | {}                                      | {margin: ENTRY}                                | 20
    flags    | FunctionEntry        | {name: f, exec: [/x], frees: nodefs}    | {reclaimFunctions: [ENTRY]}                    | 100
    flags    | RowEntryText         | {function: DeleteUnusedImages}          | {reclaimTable: {nodefs.available: [ENTRY]}}    | 20
    kubelet  | KubeletFields        | {}                                      | ENTRY                                          | 100
    scenario | Scenario             | {}                                      | ENTRY                                          | 50
    scenario | NodeSpec             | {NODE}                                  | {node: ENTRY}                                  | 50
    scenario | FilesystemSpec       | {size: 48Mi, inodes: 2000}              | {node: {NODE, layout: split, imagefs: ENTRY}}  | 20
    scenario | OwnFilesystemSpec    | {name: x, size: 48Mi, inodes: 2000}     | {node: {NODE, filesystems: [ENTRY]}}           | 20
    scenario | ImageSpec            | {name: "b:1", size: 1Mi}                | {node: {NODE, images: [ENTRY]}}                | 20
    scenario | PodSpec              | {name: p, image: "a:1", state: running} | {node: {NODE, pods: [ENTRY]}}                  | 20
    scenario | RuntimeSpec          | {}                                      | {node: {NODE, runtime: ENTRY}}                 | 5
    scenario | Fault                | {action: away, at: 1s, lasts: 1s}       | {faults: [ENTRY]}                              | 20
    scenario | Pressure             | {grows: bytes, rate: 1Mi, amount: 1Mi}  | {pressure: [ENTRY]}                            | 50
    scenario | Expectation          | {}                                      | {expect: ENTRY}                                | 20
    scenario | ConditionExpectation | {}                                      | {expect: {diskPressure: ENTRY}}                | 20
""")
def test_a_wrong_value_of_any_field_is_told_in_words_of_the_file(
    where: str, kind: str, entry: str, document: str, least: int
) -> None:
    """Its name, the field, YAML's words for values: null, another type, a list in place of a map.
    What Python or its library says of them does not come through; and what is of a wrong type is
    refused by the schema, too."""
    module, base, read = READERS[where]
    usual, document = (yaml.safe_load(entry.replace("NODE", NODE)), document.replace("NODE", NODE))
    model, told = getattr(module, kind), 0
    names = [field.alias or name for name, field in model.model_fields.items()]
    given = yaml.safe_load(base)
    read(given)
    for name, (wrong, value) in itertools.product(names, WRONG.items()):
        changed = {**usual, name: value}
        fields = yaml.safe_load(document.replace("ENTRY", json.dumps(changed)))
        try:
            read({**given, **fields})
        except EvictionError as error:
            told, sentence = told + 1, str(error)
        else:
            continue
        assert sentence.startswith(where)
        assert "\n" not in sentence
        assert name in sentence or "is missing" in sentence
        plain = re.sub(r"'[^']*'|\ba list\b|list of\b", "…", sentence.removeprefix(where))
        assert not PYTHONS.search(plain), sentence
        if where in SCHEMAS and wrong != "null" and of_wrong_type(model, changed):
            schema, whole = SCHEMAS[where]
            assert not validator(schema).is_valid({**whole, **fields}), changed
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
