"""JSON Schemas (draft 2020-12) of the files that are read and the documents that are
printed, made from their types.

* Of a file that is read: from its pydantic model. Unknown fields are rejected, as by the program.
* Of a document that is printed: from its dataclass. Other fields are allowed, as
  later versions may have more.

Descriptions are docstrings: of a class, and of a field the literal text below it. Python ignores
the latter, so they are taken from the source.
"""

from __future__ import annotations

import ast
import functools
import inspect
import re
import sys
import types
from collections.abc import Mapping
from dataclasses import is_dataclass
from enum import StrEnum
from typing import (
    Annotated,
    Any,
    Literal,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from eviction.configuration.models import Model
from eviction.configuration.text_forms import BY_SIGNAL
from eviction.records.json_shapes import Keywords, LeftOut, SignalName
from signals.quantity import AMOUNT_PATTERN, PERCENTAGE_PATTERN
from signals.types import AVAILABLE, INODES_FREE, KUBELET_SIGNALS, ROLE_NAME, Signal

DIALECT = "https://json-schema.org/draft/2020-12/schema"

Schema = dict[str, Any]

_PLAIN: dict[Any, Schema] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    types.NoneType: {"type": "null"},
    None: {"type": "null"},
    Any: {},
    object: {},
    Signal: {"type": "string", **get_args(SignalName)[1].keywords},
}


def schema_of_model(model: type[Model], name: str) -> Schema:
    """The schema of a file that this model reads. `name`: its `$id`."""
    schema = _with_signals(model.model_json_schema())
    definitions = schema.pop("$defs", {})
    models = [
        each for each in vars(sys.modules[model.__module__]).values() if isinstance(each, type)
    ]
    known = {each.__name__: each for each in models if issubclass(each, Model)}
    for defined, cls in ((schema, model), *((definitions[key], known[key]) for key in definitions)):
        defined.update(_described(cls))
        aliases = {key: info.alias or key for key, info in cls.model_fields.items()}
        for key, text in _field_docstrings(cls).items():
            field = defined["properties"][aliases[key]]
            defined["properties"][aliases[key]] = {"description": text, **_without_title(field)}
    return _whole(schema, definitions, name)


def schema_of_document(shape: Any, name: str) -> Schema:
    """The schema of a document of this dataclass. `name`: its `$id`."""
    shapes = _Shapes()
    root = shapes.of(shape)["$ref"].rpartition("/")[2]
    schema = shapes.definitions.pop(root)
    return _whole(schema, shapes.definitions, name)


def _whole(schema: Schema, definitions: dict[str, Schema], name: str) -> Schema:
    head = {"$schema": DIALECT, "$id": name}
    return {**head, **schema, **({"$defs": definitions} if definitions else {})}


class _Shapes:
    """Collects the definitions of the shapes that a type refers to."""

    def __init__(self) -> None:
        self.definitions: dict[str, Schema] = {}

    def of(self, hint: Any) -> Schema:
        """The schema of a type. Raises TypeError for one that JSON does not have."""
        if hint in _PLAIN:
            return dict(_PLAIN[hint])
        if is_dataclass(hint):
            return {"$ref": f"#/$defs/{self._define(hint)}"}
        if inspect.isclass(hint) and issubclass(hint, StrEnum):
            return {"type": "string", "enum": [str(word) for word in hint]}
        origin, arguments = get_origin(hint), get_args(hint)
        if origin is Annotated:
            added = [each.keywords for each in arguments[1:] if isinstance(each, Keywords)]
            return {
                **self.of(arguments[0]),
                **{word: value for each in added for word, value in each.items()},
            }
        if origin is Literal:
            return {"const": arguments[0]} if len(arguments) == 1 else {"enum": list(arguments)}
        if origin in (Union, types.UnionType):
            present = [each for each in arguments if each is not LeftOut]
            return (
                self.of(present[0])
                if len(present) == 1
                else {"anyOf": [self.of(each) for each in present]}
            )
        if origin in (list, tuple, frozenset):
            return {"type": "array", "items": self.of(arguments[0])}
        if origin in (dict, Mapping):
            names = {word: value for word, value in self.of(arguments[0]).items() if word != "type"}
            values = {"type": "object", "additionalProperties": self.of(arguments[1])}
            return {**values, "propertyNames": names} if names else values
        raise TypeError(f"{hint}: has no schema")

    def _define(self, shape: Any) -> str:
        name: str = shape.__name__.removesuffix("Json").strip("_")
        if name not in self.definitions:
            self.definitions[name] = {}  # it may refer to itself
            hints = get_type_hints(shape, include_extras=True)
            texts = _field_docstrings(shape)
            properties = {}
            for key, hint in hints.items():
                described = {"description": texts[key]} if key in texts else {}
                properties[key.rstrip("_")] = {**described, **self.of(hint)}
            self.definitions[name] = {
                "title": name,
                **_described(shape),
                "type": "object",
                "properties": properties,
                "required": [key for key, hint in hints.items() if LeftOut not in get_args(hint)],
            }
        return name


def _with_signals(schema: Any) -> Any:
    """The schema, with the signals as names in its maps by signal
    (`eviction.configuration.text_forms`).
    """
    if isinstance(schema, list):
        return [_with_signals(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {word: _with_signals(each) for word, each in schema.items() if word != BY_SIGNAL}
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


def _described(cls: Any) -> Schema:
    return {"description": _one_line(cls.__doc__)} if cls.__doc__ else {}


def _field_docstrings(cls: Any) -> dict[str, str]:
    """The text below each field, also of base classes."""
    module = sys.modules[cls.__module__]
    statement = _classes_of(module)[cls.__name__]
    found: dict[str, str] = {}
    for base in statement.bases:
        if isinstance(base, ast.Name) and base.id not in ("Document", "StrictModel"):
            found |= _field_docstrings(getattr(module, base.id))
    for field, text in zip(statement.body, statement.body[1:], strict=False):
        match field, text:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(
                value=ast.Constant(value=str(words))
            ):
                found[name] = _one_line(words)
    return found


@functools.cache
def _classes_of(module: types.ModuleType) -> dict[str, ast.ClassDef]:
    """The classes in the source of a module, by name."""
    parsed = ast.parse(inspect.getsource(module)).body
    return {each.name: each for each in parsed if isinstance(each, ast.ClassDef)}


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _without_title(field: Schema) -> Schema:
    """Without the title, which pydantic makes from the field's name."""
    return {word: value for word, value in field.items() if word != "title"}
