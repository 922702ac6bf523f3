"""Schemas, manual page and completions are those of this program, and editors accept them (man and
shells: `told/completions.txt`); and what an earlier version has left behind is read as before.

The files in `tests/earlier` are of a9eef8e, as it wrote them, but for the names of the machine. Its
history has a test of its own (`records/test_old_file`).
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import manual
from eviction.cli.commands import COMMANDS
from eviction.cli.help import all_fields
from eviction.cli.parser import command_of
from eviction.configuration.file import FIELDS
from eviction.configuration.strict_yaml import parse_document
from eviction.records.state_file import Moment, records_from_json
from tests.reclaimd_process import answer, reclaimd_here
from tests.repository import ROOT
from tests.schemas import SCHEMAS, problems, schema_of, strict_validator, validator

CONFIG = ROOT / "config"
LOADED = re.compile(
    r"<(?:link|script|img|iframe)\b[^>]*?[\"' =](https?:[^\"'> ]+)|url\((https?:|//)"
)


# ---- schemas


@pytest.mark.house("config/schema", ".ci/schemas.py", "eviction", "reclaim", "signals")
def test_each_schema_is_current_and_is_one(tmp_path: Path) -> None:
    """`make schema` would change nothing but, with another version of pydantic, the order of
    keywords. By the draft that it names; its `$id` is its name. The chart's has a test beside it."""
    command = [sys.executable, ".ci/schemas.py", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True)  # in a process that has no models yet
    made = {path.name: json.loads(path.read_text()) for path in (tmp_path / "schema").iterdir()}
    assert {path.name: json.loads(path.read_text()) for path in SCHEMAS.iterdir()} == made
    for name, schema in made.items():
        Draft202012Validator.check_schema(schema)
        assert schema["$schema"] == Draft202012Validator.META_SCHEMA["$id"]
        assert schema["$id"] == name
        assert schema["title"]
        assert schema["description"]


def test_an_example_names_its_schema_and_is_valid() -> None:
    """The first line leads an editor to the schema, from where the file stands; but in a ConfigMap,
    which stands nowhere."""
    linked = [CONFIG / "all-fields.yaml", CONFIG / "reclaimd.yaml"]
    linked += [*CONFIG.glob("reclaimd.conf.d/*.conf"), *CONFIG.glob("scenarios/*.yaml")]
    examples = [*CONFIG.glob("examples/**/*.yaml"), *CONFIG.glob("kubernetes/**/reclaimd.yaml")]
    linked += [path for path in examples if "reclaimd.io/v1alpha1" in path.read_text()]
    assert len(linked) > 10
    for path in linked:
        text = path.read_text()
        found = validator("configuration")
        if CONFIG / "kubernetes" not in path.parents:
            (link,) = re.findall(r"\A# yaml-language-server: \$schema=(\S+)\n", text)
            schema = (path.parent / link).resolve()
            assert schema.parent == SCHEMAS
            found = Draft202012Validator(schema_of(schema.name.partition(".")[0]))
        assert problems(found, parse_document(text, path.name)) == [], path


# ---- manual and completions


@pytest.mark.parametrize(("name", "text"), manual.documents())
def test_what_is_committed_is_current(name: str, text: str) -> None:
    """`make manual` would change nothing."""
    assert (CONFIG / name).read_text() == text


def test_every_command_option_and_field_is_in_the_manual() -> None:
    """As the parsers and the model have them, with the words that are said of each field in the
    annotated file."""
    text = (CONFIG / "man" / "reclaimd.1").read_text().replace(r"\-", "-")
    for command in COMMANDS:
        section = text.partition(f".SS {command}\n")[2].partition(".SS ")[0]
        assert re.search(r"\.PP\nExit 0(?s:.*)\.PP\nExample: reclaimd ", section), command
        for action in chain(*command_of(command)[0].groups().values()):
            named = {*action.option_strings} - {"-h", "--help"}
            assert all(f"\\fB{each}\\fR" in text for each in named), command
    fields = text.partition(".SH CONFIGURATION FILE\n")[2]
    assert {*re.findall("^#?([a-zA-Z]+): ", fields, re.MULTILINE)} >= FIELDS.keys()
    words = re.compile(r"[\w.:/-]{9,}")
    missing = {*words.findall(all_fields())} - {*words.findall(fields)}
    assert [word for word in missing if not re.search("schema|yaml-language", word)] == []


# ---- an earlier version

EARLIER = ROOT / "tests" / "earlier"
DOCUMENTS: dict[str, Any] = json.loads((EARLIER / "documents.json").read_text())
WENT = {"order", "released", "jumped", "xfs_helper"}  # fields, with the rules that they were about
WENT_FROM_FILE = ("xfsHelperSocket", "terminatedPods", "terminatedPodAge")
CAME = """events_dropped listener_failures next_look_seconds next_look_why lead_seconds
reload_problem warnings quota went kubelet_version regret defaults by reclaimable ladder
pause_left_seconds"""  # fields of later versions


def without(document: Any, names: set[str]) -> Any:
    """A document without the fields of these names, at any depth."""
    if isinstance(document, list):
        return [without(each, names) for each in document]
    if isinstance(document, dict):
        return {key: without(value, names) for key, value in document.items() if key not in names}
    return document


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_field_that_was_printed_is_printed_still(name: str) -> None:
    """By its name and of its type: a program that reads a document of then reads one of now."""
    errors = [*strict_validator(name).iter_errors(without(DOCUMENTS[name], WENT))]
    missing = {error.message.split("'")[1] for error in errors if error.validator == "required"}
    assert missing <= {*CAME.split()}
    assert [error.message for error in errors if error.validator != "required"] == []


def test_its_configuration_means_what_it_meant(tmp_path: Path) -> None:
    """The annotated file with every field, and what was in force by it; a field that went is left
    out."""
    text, file = (EARLIER / "reclaimd.yaml").read_text(), tmp_path / "reclaimd.yaml"
    file.write_text(re.sub(rf"^({'|'.join(WENT_FROM_FILE)}).*\n", "", text, flags=re.MULTILINE))
    values = answer(reclaimd_here("config", "--config", str(file), "-o", "json"))["values"]
    then = DOCUMENTS["effective-configuration"]["values"]
    now = {name: values[name] for name in then if name in values}
    assert now == without(then, {*WENT_FROM_FILE})


def test_its_records_of_images_are_restored() -> None:
    """All of them, as old as they were when they were saved."""
    text = (EARLIER / "images.json").read_bytes()
    document = json.loads(text)
    now = Moment(5.0, document["saved"]["wall"] + 100.0, "another boot")
    restored = records_from_json(text, now).records
    ages = {key: now.monotonic - record.first_detected for key, record in restored.items()}
    assert ages == {
        key: pytest.approx(document["saved"]["wall"] - image["first_detected"])
        for key, image in document["images"].items()
    }


# ---- the site


@pytest.mark.house("docs", "config/mkdocs.yml")
def test_the_site_is_whole_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    """Each page is there, each link and heading too (`--strict`); no script, style, font or picture
    is another host's."""
    site = ("--strict", f"--config-file={CONFIG}/mkdocs.yml", f"--site-dir={tmp_path}")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", *site]
    made = subprocess.run(command, capture_output=True, text=True)
    assert made.returncode == 0, made.stdout + made.stderr
    pages = [*tmp_path.rglob("*.html")]
    assert len(pages) == len([*(ROOT / "docs").iterdir()]) + 1, "404.html"
    for path in [*pages, *tmp_path.rglob("*.css")]:
        assert not LOADED.findall(path.read_text()), path
