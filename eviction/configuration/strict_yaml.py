"""Reads YAML documents strictly. The only module that uses PyYAML.

PyYAML alone reads `012` as 10 and `yes` as true, silently takes the last of two equal keys, and expands a few lines of
aliases to gigabytes. Here `null`, `true`, `false` and decimal integers have a type, as in YAML 1.2's core schema, and
every other scalar is text; duplicate keys, aliases, tags and files over 1 MiB are rejected.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches
from itertools import islice
from typing import Any

import yaml

from eviction.configuration.models import ConfigDict, Model, PydanticCustomError, ValidationError, model_validator
from eviction.types import EvictionError
from reclaim.execution.workers import in_time
from reclaim.trust import file_refusal

LARGEST_BYTES = 1024 * 1024
MANY = 30  # fields, which only the configuration has
EVERY_FIELD = "`reclaimd help configuration` explains all"
DEEPEST = 50


class ConfigurationError(EvictionError):
    """The message is one sentence that names the source and, if known, the field."""


class StrictModel(Model):
    """A model that also rejects unknown fields."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _without_unknown_fields(cls, document: Any) -> Any:
        """The same document. Raises PydanticCustomError, which pydantic's own check would do without the names."""
        fields = [info.alias or name for name, info in cls.model_fields.items()]
        for name in document if isinstance(document, Mapping) else ():
            if name not in fields:
                raise PydanticCustomError("unknown_field", "unknown field", {"field": name, "fields": fields})
        return document


class _StrictLoader(yaml.SafeLoader):
    """The safe loader without guessed types. (The C loader composes in C, where aliases cannot be rejected.)"""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 # PyYAML keeps resolvers on the class

    _depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.composer.ComposerError(None, None, "aliases are not allowed", self._mark())
        if getattr(self.peek_event(), "tag", None) is not None:  # type: ignore[no-untyped-call] # untyped in the stubs
            raise yaml.composer.ComposerError(None, None, "tags are not allowed", self._mark())
        self._depth += 1
        if self._depth > DEEPEST:
            raise yaml.composer.ComposerError(None, None, f"nested deeper than {DEEPEST}", self._mark())
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1

    def _mark(self) -> Any:
        return self.peek_event().start_mark  # type: ignore[no-untyped-call] # the stubs leave this method untyped

    def construct_mapping(self, node: Any, deep: bool = True) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
            if key is None:
                raise yaml.constructor.ConstructorError(None, None, "keys must be plain texts", key_node.start_mark)
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} occurs twice", key_node.start_mark
                )
            seen.add(key)
        return {key_node.value: self.construct_object(value, deep=deep) for key_node, value in node.value}


_StrictLoader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile(r"^(?:null|~|)$"), ["n", "~", ""])
_StrictLoader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(?:true|false)$"), ["t", "f"])
_StrictLoader.add_implicit_resolver(
    "tag:yaml.org,2002:int", re.compile(r"^[-+]?(?:0|[1-9][0-9]{0,18})$"), list("-+0123456789")
)
_StrictLoader.add_constructor("tag:yaml.org,2002:map", _StrictLoader.construct_mapping)


def read_document(path: str, *, trusted_only: bool = True) -> dict[str, Any]:
    """The mapping in a YAML file; empty for an empty file. Raises ConfigurationError.

    `trusted_only`: reject a file that anyone but root or our own user may write or replace.
    """

    def read() -> bytes:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # opening a FIFO must not block
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ConfigurationError(f"{path}: is not a regular file")
            if trusted_only and (refusal := file_refusal(path, os.fstat(descriptor))) is not None:
                raise ConfigurationError(f"{path}: is not trusted: {refusal}")
            return file.read(LARGEST_BYTES + 1)

    try:
        data = in_time(read)
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror}") from None
    if len(data) > LARGEST_BYTES:
        raise ConfigurationError(f"{path}: larger than {LARGEST_BYTES} bytes, the largest allowed")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path}: not UTF-8 at byte {error.start}") from None
    return parse_document(text, path)


def parse_document(text: str, name: str) -> dict[str, Any]:
    """The mapping in a YAML text. `name`: for messages. Raises ConfigurationError."""
    try:
        documents = list(islice(yaml.load_all(text, Loader=_StrictLoader), 2))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
        where = "" if mark is None else f" in line {mark.line + 1}"
        why = problem or " ".join(str(error).split())
        raise ConfigurationError(f"{name}: not readable as YAML{where}: {why}") from None
    if len(documents) > 1:
        raise ConfigurationError(f"{name}: holds more than one document; one is allowed")
    document = documents[0] if documents else None
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise ConfigurationError(f"{name}: must be a mapping of fields to values, but it was {quoted(document)}")
    return document


def read_document_of(api_version: str, kind: str, path: str) -> dict[str, Any]:
    """The mapping in a YAML file with this `apiVersion` and `kind`. Raises ConfigurationError."""
    document = read_document(path)
    for field, allowed in (("apiVersion", api_version), ("kind", kind)):
        if document.get(field) is None:
            raise ConfigurationError(f"{path}: {field} is missing; it must be {allowed!r}")
        if document[field] != allowed:
            raise ConfigurationError(f"{path}: {field} must be {allowed!r}, but it was {quoted(document[field])}")
    return document


_PROBLEMS: Mapping[str, str] = {
    "bool_type": "must be true or false",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "dict_type": "must be a mapping of names to values",
    "model_type": "must be a mapping of fields to values",
    "dataclass_type": "must be a mapping of fields to values",
    "list_type": "must be a list",
    "string_type": "must be a text, in quotes where YAML would read it otherwise",
    "tuple_type": "must be a list",
    "literal_error": "must be {expected}",
    "greater_than": "must be above {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "string_too_short": "must not be empty",
    "string_too_long": "must have at most {max_length} characters",
    "string_pattern_mismatch": "must match {pattern}",
    "too_short": "must have at least {min_length} of them",
    "too_long": "must have at most {max_length} of them",
}
"""pydantic's type of a problem -> what is allowed, with names from the problem's context."""


def first_problem(error: ValidationError, name: str) -> str:
    """The first problem that pydantic found, as one sentence with the field and what is allowed."""
    return sentence_about(error.errors(include_url=False)[0], name)


def sentence_about(problem: Any, name: str) -> str:
    """A problem that pydantic found, as such a sentence."""
    parts = [str(part) for part in problem["loc"] if not str(part).startswith("<")]  # without tags of alternatives
    if problem["type"] == "unknown_field":
        field, fields = ".".join([*parts, problem["ctx"]["field"]]), problem["ctx"]["fields"]
        every = EVERY_FIELD if len(fields) > MANY else f"allowed are {', '.join(fields)}"
        return f"{name}: {unknown('field', field, fields, every)}"
    return f"{name}: {'.'.join(parts) or 'the document'}: {end_of_sentence(problem)}"


def end_of_sentence(problem: Any) -> str:
    """What pydantic found wrong with a field, without its name."""
    match problem["type"]:
        case "value_error":
            return str(problem["ctx"]["error"])
        case "missing":
            return "is missing"
        case kind:
            allowed = _PROBLEMS.get(kind, problem["msg"]).format(**problem.get("ctx", {}))
            return f"{allowed}, but it was {quoted(problem['input'])}"


def unknown(what: str, name: str, allowed: Collection[str], otherwise: str) -> str:
    """A sentence about a name that is not allowed: the three nearest that are; `otherwise` if none is near."""
    near = " or ".join(get_close_matches(name.rpartition(".")[2], allowed, 3))
    end = f"did you mean {near}?" if near else otherwise
    return f"unknown {what} {quoted(name)}" + (f"; {end}" if end else "")


def quoted(value: object) -> str:
    """A value as it would be written in YAML, texts in quotes, cut to 60 characters; for messages."""
    text = _flow(value)
    return text if len(text) <= 60 else text[:60] + "…"


def _key(name: object) -> str:
    return str(name) if str(name).isprintable() else repr(name)


def _flow(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_key(key)}: {_flow(each)}' for key, each in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_flow, value))}]"
    return "null" if value is None else repr(value)


def unfit_texts(value: Any, field: str = "") -> Iterator[tuple[str, str]]:
    """The texts of a document that cannot be passed to the kernel, each with its field (`evictionHard.pid.available`)
    and the end of a sentence about it.

    A NUL would end a text early, and Python raises ValueError for it. A lone surrogate has no UTF-8 bytes (it comes
    from a YAML escape such as "\\ud800", or from a byte of a flag or a variable that is not UTF-8).
    """
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from unfit_texts(key, field or str(key))
            yield from unfit_texts(each, f"{field}.{key}" if field else str(key))
    elif isinstance(value, list | tuple):
        for each in value:
            yield from unfit_texts(each, field)
    elif isinstance(value, str) and any(each == "\0" or "\ud800" <= each <= "\udfff" for each in value):
        yield field, f"must hold no NUL and no lone surrogate (what is not UTF-8), but it was {quoted(value)}"
