"""The JSON Schemas of what programs read of us and write for us, made from the types themselves.

`.ci/schemas.py DIRECTORY` writes them below `DIRECTORY/schema`; `make check` fails where the files in
`config/schema` say something else. A file is named for what it describes, and for the version of that.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from eviction.ballast import Ballast
from eviction.cli.config import EffectiveConfigurationJson
from eviction.cli.doctor import DoctorJson
from eviction.cli.history import HistoryJson
from eviction.cli.plan import PlanJson
from eviction.cli.why import WhyJson
from eviction.configuration.file import ConfigurationFile
from eviction.drill.report.document import DrillReportJson
from eviction.drill.scenario import SET_BY_THE_DRILL, UNDER_NODE, Scenario
from eviction.pod_eviction.report import PodEvictions
from eviction.reporting.pass_record import LogLineJson, NothingToDoJson, PassJson
from eviction.reporting.status import CheckJson, Status
from eviction.types import API_VERSION
from json_schema import Schema, schema_of_document, schema_of_model

PRINTED: dict[str, Any] = {
    "ballast": Ballast,
    "check": CheckJson,
    "doctor": DoctorJson,
    "drill-report": DrillReportJson,
    "effective-configuration": EffectiveConfigurationJson,
    "history": HistoryJson,
    "log-line": LogLineJson,
    "nothing-to-do": NothingToDoJson,
    "pass": PassJson,
    "plan": PlanJson,
    "pod-evictions": PodEvictions,
    "status": Status,
    "why": WhyJson,
}
VERSION = API_VERSION.rpartition("/")[2]


def file_name(name: str) -> str:
    """The name of the file with a schema, which is its `$id` too."""
    return f"{name}.{VERSION}.json"


def scenario_schema(name: str) -> Schema:
    """The schema of a scenario, with the fields of the configuration that it may set."""
    configuration = schema_of_model(ConfigurationFile, "")
    schema = schema_of_model(Scenario, name)
    fields = {
        key: field
        for key, field in configuration["properties"].items()
        if key not in SET_BY_THE_DRILL and key not in UNDER_NODE
    }
    written = schema["$defs"]["NodeSpec"]["properties"]["configuration"]
    written |= {"properties": fields, "additionalProperties": False}
    schema["$defs"]["RowEntryText"] = configuration["$defs"]["RowEntryText"]
    return schema


def schemas() -> dict[str, Schema]:
    """Every schema by the name of its file."""
    return {
        file_name("configuration"): schema_of_model(ConfigurationFile, file_name("configuration")),
        file_name("scenario"): scenario_schema(file_name("scenario")),
        **{file_name(name): schema_of_document(shape, file_name(name)) for name, shape in PRINTED.items()},
    }


def documents() -> list[tuple[str, str]]:
    """Every file: its path below `config/`, and its text."""
    return [
        (f"schema/{name}", json.dumps(each, indent=2, ensure_ascii=False) + "\n") for name, each in schemas().items()
    ]


if __name__ == "__main__":
    for path, text in documents():
        file = Path(sys.argv[1], path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
