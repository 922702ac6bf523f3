"""What an earlier version has left behind is read as before: its configuration,
records of images, documents.

The files in `tests/earlier` are of a9eef8e, as it wrote them, but for the names of the machine. Its
history has a test of its own (`records/test_store`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from eviction.records.state_file import Moment, records_from_json
from tests.reclaimd_process import answer, reclaimd_here
from tests.repository import ROOT
from tests.schemas import strict_validator

EARLIER = ROOT / "tests" / "earlier"
DOCUMENTS: dict[str, Any] = json.loads((EARLIER / "documents.json").read_text())
WENT = {"order", "released", "jumped", "xfs_helper"}  # fields, with the rules that they were about
WENT_FROM_FILE = ("xfsHelperSocket", "terminatedPods", "terminatedPodAge")
CAME = {
    "events_dropped",
    "listener_failures",
    "next_look_seconds",
    "next_look_why",
    "lead_seconds",
    "reload_problem",
    "warnings",
    "quota",
    "went",
    "kubelet_version",
    "regret",
    "defaults",
}  # fields of later versions


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
    errors = list(strict_validator(name).iter_errors(without(DOCUMENTS[name], WENT)))
    missing = {error.message.split("'")[1] for error in errors if error.validator == "required"}
    assert missing <= CAME
    assert [error.message for error in errors if error.validator != "required"] == []


def test_its_configuration_means_what_it_meant(tmp_path: Path) -> None:
    """The annotated file with every field, and what was in force by it; a
    field that went is left out.
    """
    lines = (EARLIER / "reclaimd.yaml").read_text().splitlines()
    file = tmp_path / "reclaimd.yaml"
    file.write_text("\n".join(line for line in lines if not line.startswith(WENT_FROM_FILE)) + "\n")
    file.chmod(0o644)
    values = answer(reclaimd_here("config", "--config", str(file), "-o", "json"))["values"]
    then = DOCUMENTS["effective-configuration"]["values"]
    assert {name: values[name] for name in then if name in values} == without(
        then, set(WENT_FROM_FILE)
    )


def test_its_records_of_images_are_restored() -> None:
    """Both images, as old as they were when they were saved."""
    text = (EARLIER / "images.json").read_bytes()
    document = json.loads(text)
    saved = document["saved"]
    now = Moment(5.0, saved["wall"] + 100.0, "another boot")
    records = records_from_json(text, now).records
    assert records.keys() == document["images"].keys()
    for key, record in records.items():
        at_save = saved["wall"] - document["images"][key]["first_detected"]
        assert now.monotonic - record.first_detected == pytest.approx(at_save)
