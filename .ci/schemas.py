"""The JSON Schemas (draft 2020-12) of the documents that programs read from us and write for us,
made by pydantic from the types.

`.ci/schemas.py DIRECTORY` writes them below `DIRECTORY/schema`, and that of the Helm chart's values
into the chart; `make check` fails if those below `config` differ. A file is named for what it
describes and its version.

* Of a file that is read: from its model. Unknown fields are rejected, as by the program.
* Of a document that is printed: from its dataclass. Other fields are allowed, as later versions
  may have more.

Descriptions are docstrings: of a class, and of a field the literal text below it.
"""

from __future__ import annotations

import json
import re
from dataclasses import is_dataclass
from functools import cache
from typing import Any, get_args

from pydantic import ConfigDict, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema

from eviction.configuration.models import Model

# before its subclasses are made, of which the program needs no descriptions
Model.model_config["use_attribute_docstrings"] = True

from eviction.cli.config import EffectiveConfiguration
from eviction.cli.df import DiskUsageJson
from eviction.cli.history import HistoryJson
from eviction.cli.plan import PlanJson
from eviction.cli.why import WhyJson
from eviction.configuration.file import KIND, ConfigurationFile
from eviction.configuration.text_forms import BY_SIGNAL
from eviction.doctor.checks import DoctorJson
from eviction.drill.report.document import DrillReportJson
from eviction.drill.scenario import NOT_IN_A_SCENARIO, Scenario
from eviction.engine.ballast import Ballast
from eviction.records.json_shapes import LEFT_OUT, LeftOut, SignalName
from eviction.records.pass_json import NothingToDo, PassJson
from eviction.records.regret import RegretJson
from eviction.surface.check import CheckJson
from eviction.surface.daemon import Status
from eviction.types import API_VERSION
from log_line import LogLineJson
from signals.quantity import AMOUNT_PATTERN, PERCENTAGE_PATTERN
from signals.types import AVAILABLE, INODES_FREE, KUBELET_SIGNALS, ROLE_NAME, Signal
from written import write

DIALECT = "https://json-schema.org/draft/2020-12/schema"

Schema = dict[str, Any]
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
PRINTED_CONFIG = ConfigDict(
    use_attribute_docstrings=True,
    json_schema_serialization_defaults_required=True,
    arbitrary_types_allowed=True,  # a signal, see is_instance_schema
)
NULL: Schema = {"type": "null"}
VERSION = API_VERSION.rpartition("/")[2]


class Generator(GenerateJsonSchema):
    """Without titles, which pydantic makes from names, and without what is left out."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 # for no field
        return False

    def union_schema(self, schema: core_schema.UnionSchema) -> Schema:
        here = [each for each in schema["choices"] if LeftOut.__name__ not in _name_of(each)]
        return super().union_schema({**schema, "choices": here})

    def field_is_required(self, field: Any, total: bool) -> bool:
        return field["schema"].get("default") is not LEFT_OUT and super().field_is_required(
            field, total
        )

    def is_instance_schema(self, schema: core_schema.IsInstanceSchema) -> Schema:
        if schema["cls"] is Signal:
            return {"type": "string", "pattern": get_args(SignalName)[1].metadata[0].pattern}
        return super().is_instance_schema(schema)


class PrintedGenerator(Generator):
    """Of a document that is printed, which has all of its fields: a default is of no interest."""

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> Schema:
        return self.generate_inner(schema["schema"])

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> Schema:
        made = super().dataclass_schema(schema)
        for base in filter(is_dataclass, schema["cls"].__bases__):  # pydantic describes its own
            for name, field in _of_document(base)["properties"].items():
                if text := field.get("description"):
                    made["properties"][name].setdefault("description", text)
        return made


def schema_of_model(model: type[Model], name: str) -> Schema:
    """The schema of a file that this model reads. `name`: its `$id`."""
    return _whole(TypeAdapter(model).json_schema(schema_generator=Generator), name)


def schema_of_document(shape: Any, name: str) -> Schema:
    """The schema of a document of this dataclass. `name`: its `$id`."""
    return _whole(_of_document(shape), name)


@cache
def _of_document(shape: Any) -> Schema:
    # in a list, as a dataclass has no configuration of its own
    adapter = TypeAdapter(list[shape], config=PRINTED_CONFIG)
    made = adapter.json_schema(mode="serialization", schema_generator=PrintedGenerator)
    definitions = made.pop("$defs")
    document = definitions.pop(made["items"]["$ref"].rpartition("/")[2])
    return {**document, **({"$defs": definitions} if definitions else {})}


def _whole(schema: Schema, name: str) -> Schema:
    """Names without `Json` at their ends, or what tells them from a keyword of Python's."""
    text = json.dumps({"$schema": DIALECT, "$id": name, **_with_signals(schema)})
    return dict(json.loads(re.sub(r'(?<=["/])(\w+?)(?:Json|_)(?=")', r"\1", text)))


def _name_of(choice: Any) -> str:
    return str(choice.get("schema_ref") or choice.get("ref") or choice.get("cls"))


def _with_signals(schema: Any) -> Any:
    """The schema, with the signals as names in its maps by signal
    (`eviction.configuration.text_forms`), and descriptions of one line.
    """
    if isinstance(schema, list):
        return [_with_signals(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {word: _with_signals(each) for word, each in schema.items() if word != BY_SIGNAL}
    if isinstance(text := found.get("description"), str):
        found["description"] = " ".join(text.split())
    if (form := schema.get(BY_SIGNAL)) is None:
        return found
    value = found["additionalProperties"]
    amount = (
        {**value, "pattern": f"^({AMOUNT_PATTERN}|{PERCENTAGE_PATTERN})$"}
        if form["amounts"]
        else value
    )
    disks = {str(signal): value if signal.counts_inodes else amount for signal in KUBELET_SIGNALS}
    found["properties"] = {**disks, **dict.fromkeys(form["others"], value)}
    own = {name: rf"{ROLE_NAME.pattern}\.{name}" for name in (AVAILABLE, INODES_FREE)}
    others = "|".join(
        re.escape(name) for name in form["others"] if re.fullmatch(own[AVAILABLE], name)
    )
    not_others = f"(?!(?:{others})$)" if others else ""  # an amount of memory needs no unit
    found["patternProperties"] = {
        f"^{not_others}{own[AVAILABLE]}$": amount,
        f"^{own[INODES_FREE]}$": value,
    }
    found["additionalProperties"] = False
    return dict(sorted(found.items()))


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
