"""The JSON Schemas of what programs read of us and write for us, made from the types themselves.

`python -m eviction.cli.schemas DIRECTORY` writes them below `DIRECTORY/schema`; `make check` fails where the files in
`config/schema` say something else. A file is named for what it describes, and for the version of that.
"""

from __future__ import annotations

import json
import os
import sys

from eviction.cli.json_schema import Schema, schema_of_model
from eviction.configuration.file import ConfigurationFile
from eviction.drill.scenario.reader import BY_THE_SCENARIO, SET_BY_THE_DRILL
from eviction.drill.scenario.schema import ScenarioFields
from eviction.types import API_VERSION

VERSION = API_VERSION.rpartition("/")[2]


def file_name(name: str) -> str:
    """The name of the file with a schema, which is its `$id` too."""
    return f"{name}.{VERSION}.json"


def scenario_schema(name: str) -> Schema:
    """The schema of a scenario, with the fields of the configuration that it may set."""
    configuration = schema_of_model(ConfigurationFile, "")
    schema = schema_of_model(ScenarioFields, name)
    fields = {
        key: field
        for key, field in configuration["properties"].items()
        if key not in SET_BY_THE_DRILL and key not in BY_THE_SCENARIO
    }
    written = schema["$defs"]["NodeFields"]["properties"]["configuration"]
    written |= {"properties": fields, "additionalProperties": False}
    schema["$defs"]["RowEntryText"] = configuration["$defs"]["RowEntryText"]
    return schema


def schemas() -> dict[str, Schema]:
    """Every schema by the name of its file."""
    return {
        file_name("configuration"): schema_of_model(ConfigurationFile, file_name("configuration")),
        file_name("scenario"): scenario_schema(file_name("scenario")),
    }


def documents() -> list[tuple[str, str]]:
    """Every file: its path below `config/`, and its text."""
    return [
        (f"schema/{name}", json.dumps(each, indent=2, ensure_ascii=False) + "\n") for name, each in schemas().items()
    ]


def write(directory: str) -> None:
    """Writes all of them."""
    for name, text in documents():
        path = os.path.join(directory, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)


if __name__ == "__main__":
    write(sys.argv[1])
