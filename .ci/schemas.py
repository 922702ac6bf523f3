"""The JSON Schemas of the documents that programs read from us and write for us,
generated from the types.

`.ci/schemas.py DIRECTORY` writes them below `DIRECTORY/schema`, and that of the Helm chart's values
into the chart; `make check` fails if those below `config` differ. A file is named for what it
describes and its version.
"""

from __future__ import annotations

import json
from typing import Any

from eviction.cli.config import EffectiveConfiguration
from eviction.cli.df import DiskUsageJson
from eviction.cli.history import HistoryJson
from eviction.cli.plan import PlanJson
from eviction.cli.why import WhyJson
from eviction.configuration.file import KIND, ConfigurationFile
from eviction.doctor.checks import DoctorJson
from eviction.drill.report.document import DrillReportJson
from eviction.drill.scenario import NOT_IN_A_SCENARIO, Scenario
from eviction.engine.ballast import Ballast
from eviction.records.pass_json import NothingToDo, PassJson
from eviction.records.regret import RegretJson
from eviction.surface.check import CheckJson
from eviction.types import API_VERSION
from eviction.wording.status import Status
from json_schema import Schema, schema_of_document, schema_of_model
from log_line import LogLineJson
from written import write

PRINTED: dict[str, Any] = {
    "ballast": Ballast,
    "check": CheckJson,
    "disk-usage": DiskUsageJson,
    "doctor": DoctorJson,
    "drill-report": DrillReportJson,
    "effective-configuration": EffectiveConfiguration,
    "history": HistoryJson,
    "log-line": LogLineJson,
    "nothing-to-do": NothingToDo,
    "pass": PassJson,
    "plan": PlanJson,
    "regret": RegretJson,
    "status": Status,
    "why": WhyJson,
}
NULL: Schema = {"type": "null"}
VERSION = API_VERSION.rpartition("/")[2]


def file_name(name: str) -> str:
    """The name of the file with a schema, which is its `$id` too."""
    return f"{name}.{VERSION}.json"


def configuration_schema(name: str) -> Schema:
    """The schema of a configuration file:

    `apiVersion` and `kind` are required, and any other value may be null.
    """
    schema = schema_of_model(ConfigurationFile, name)
    properties = schema["properties"]
    for field in properties.keys() - {"apiVersion", "kind"}:
        properties[field] = _or_null(properties[field])
    entry = schema["$defs"]["FunctionEntry"]["properties"]
    for field in entry.keys() - {"name"}:
        entry[field] = {**_or_null(entry[field]), "default": None}
    bounded = schema["$defs"]["BoundedMargin"]["properties"]
    bounded |= {field: _or_null(bounded[field]) for field in bounded}
    for field, value in (("apiVersion", API_VERSION), ("kind", KIND)):
        description = properties[field].pop("description")
        properties[field] = {"description": description, "const": value, **properties[field]}
    ending = {word: schema.pop(word) for word in ("title", "type", "$defs")}
    return {**schema, "required": ["apiVersion", "kind"], **ending}


def _or_null(schema: Schema) -> Schema:
    """The same schema, with null allowed: in a file, null removes a value, also from
    a map, whatever its name.
    """
    rest = {word: value for word, value in schema.items() if word not in ("description", "default")}
    for word in rest.keys() & {"properties", "patternProperties"}:
        rest[word] = {name: _or_null(value) for name, value in rest[word].items()}
    if "patternProperties" in rest:
        rest["additionalProperties"] = NULL
    alternatives = rest["anyOf"] if rest.keys() == {"anyOf"} else [rest]
    whole = {**schema, "anyOf": [*alternatives, *([] if NULL in alternatives else [NULL])]}
    return {word: whole[word] for word in ("description", "anyOf", "default") if word in whole}


def scenario_schema(name: str) -> Schema:
    """The schema of a scenario, with the fields of the configuration that it may set."""
    configuration = configuration_schema("")
    schema = schema_of_model(Scenario, name)
    fields = {
        key: field
        for key, field in configuration["properties"].items()
        if key not in NOT_IN_A_SCENARIO
    }
    written = schema["$defs"]["NodeSpec"]["properties"]["configuration"]
    written |= {"properties": fields, "additionalProperties": False}
    for name in ("BoundedMargin", "RowEntryText"):
        schema["$defs"][name] = configuration["$defs"][name]
    return schema


def values_schema() -> Schema:
    """The schema of the Helm chart's values: draft 7, as older versions of Helm know no other.

    Of the configuration it has each field and of which types it is. Helm's regular expressions are
    Go's, which cannot say what ours do; the program looks at the values themselves.
    """
    switch = {"type": "boolean"}
    image = {
        "repository": {"type": "string", "pattern": "^[^@]+$"},
        "tag": {"type": "string"},
        "pullPolicy": {"enum": ["Always", "IfNotPresent", "Never"]},
        "pullSecrets": {"type": "array", "items": {"type": "string"}},
    }
    fields = {
        name: {"type": sorted(_types(field))}
        for name, field in configuration_schema("")["properties"].items()
        if name not in ("apiVersion", "kind")  # the chart adds them
    }
    values = {
        "image": _closed(image),
        "runtime": {"enum": ["containerd", "cri-o", "k3s"]},
        **dict.fromkeys(("dryRun", "kubelet", "events", "prometheus"), switch),
        "configuration": _closed(fields),
        "daemonSet": {"type": "object"},
        "global": {"type": "object"},
    }
    return {"$schema": "http://json-schema.org/draft-07/schema#", **_closed(values)}


def _types(field: Schema) -> set[str]:
    """The types that values of a field may have."""
    alternatives = [*field.get("anyOf", ()), *field.get("oneOf", ())]
    if alternatives:
        return set().union(*map(_types, alternatives))
    if "enum" in field:
        return {"boolean" if isinstance(value, bool) else "string" for value in field["enum"]}
    return {field.get("type", "object")}


def _closed(properties: Schema) -> Schema:
    """An object with these fields, and no other."""
    return {"type": "object", "additionalProperties": False, "properties": properties}


def schemas() -> dict[str, Schema]:
    """Every schema by the name of its file."""
    return {
        file_name("configuration"): configuration_schema(file_name("configuration")),
        file_name("scenario"): scenario_schema(file_name("scenario")),
        **{
            file_name(name): schema_of_document(shape, file_name(name))
            for name, shape in PRINTED.items()
        },
    }


def documents() -> list[tuple[str, str]]:
    """Every file: its path below `config/`, and its text."""
    made = {f"schema/{name}": schema for name, schema in schemas().items()}
    made["kubernetes/values.schema.json"] = values_schema()
    return [
        (path, json.dumps(each, indent=2, ensure_ascii=False) + "\n") for path, each in made.items()
    ]


if __name__ == "__main__":
    write("Writes the JSON Schemas.", documents())
