"""Reads YAML documents: ours strictly, the kubelet's as the kubelet does. The
only module that uses PyYAML.

PyYAML alone reads `012` as 10 and `yes` as true, silently takes the last of two equal keys, and
expands a few lines of aliases to gigabytes. In our own files `null`, `true`, `false` and decimal
integers have a type, as in YAML 1.2's core schema, and every other scalar is text; duplicate keys,
aliases and tags are rejected.

What the kubelet accepts must not keep reclaimd from starting. Kubernetes 1.30 to 1.37 read its file
and its drop-ins with sigs.k8s.io/yaml, YAMLToJSON, which is go-yaml's v2 with types by YAML 1.1
(`resolve.go`): `yes` and `on` are true, `0x5B`, `0133` and `91.0` are 91; anchors, merge keys
(`<<`) and tags count; only the first document is read. A number is no text, and no text a number:
the target's type is not asked (`k8s.io/apimachinery/pkg/runtime/serializer/json`).

* The file (`pkg/kubelet/kubeletconfig/util/codec/codec.go`, DecodeKubeletConfiguration):
  after an unknown field or a key twice, which is a strict error, the lenient decoder reads
  it again. So unknown fields are ignored, and of equal keys the last one counts. Keys in
  other capitals are unknown.
* A drop-in (DecodeKubeletConfigurationIntoJSON): unknown fields are ignored, but a key twice, or
  one that a merge key has set already, is an error.

More lenient than the kubelet, which does not start then: a document in JSON
need not be strictly JSON.

In both, files over 1 MiB are rejected, and what is nested deeper than 50; aliases are
limited as go-yaml limits them.
"""

from __future__ import annotations

import base64
import math
import os
import re
import stat
from collections.abc import Callable, Collection, Iterator, Mapping
from difflib import get_close_matches
from itertools import islice
from types import MappingProxyType
from typing import Any

import yaml

from eviction.configuration.models import (
    ConfigDict,
    Model,
    PydanticCustomError,
    ValidationError,
    model_validator,
)
from eviction.types import EvictionError
from reclaim.trust import file_refusal
from reclaim.workers import in_time

Parse = Callable[[str, str], dict[str, Any]]
"""How the text of a file becomes a mapping, given the file's name for messages."""

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
        """The same document.

        Raises PydanticCustomError, which pydantic's own check would do without the names.
        """
        fields = [info.alias or name for name, info in cls.model_fields.items()]
        for name in document if isinstance(document, Mapping) else ():
            if name not in fields:
                raise PydanticCustomError(
                    "unknown_field", "unknown field", {"field": name, "fields": fields}
                )
        return document


class _Loader(yaml.SafeLoader):
    """The safe loader without guessed types. (The C loader composes in C, where
    aliases cannot be rejected.)
    """

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 # PyYAML keeps resolvers on the class

    _depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        self._depth += 1
        if self._depth > DEEPEST:
            raise yaml.composer.ComposerError(
                None, None, f"nested deeper than {DEEPEST}", self._mark()
            )
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1

    def _mark(self) -> Any:
        return self.peek_event().start_mark  # type: ignore[no-untyped-call] # the stubs leave this method untyped


class _StrictLoader(_Loader):
    """For our own files."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.composer.ComposerError(None, None, "aliases are not allowed", self._mark())
        if getattr(self.peek_event(), "tag", None) is not None:  # type: ignore[no-untyped-call] # untyped in the stubs
            raise yaml.composer.ComposerError(None, None, "tags are not allowed", self._mark())
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = True) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
            if key is None:
                raise yaml.constructor.ConstructorError(
                    None, None, "keys must be plain texts", key_node.start_mark
                )
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} occurs twice", key_node.start_mark
                )
            seen.add(key)
        return {
            key_node.value: self.construct_object(value, deep=deep)
            for key_node, value in node.value
        }


_StrictLoader.add_implicit_resolver(
    "tag:yaml.org,2002:null", re.compile(r"^(?:null|~|)$"), ["n", "~", ""]
)
_StrictLoader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile(r"^(?:true|false)$"), ["t", "f"]
)
_StrictLoader.add_implicit_resolver(
    "tag:yaml.org,2002:int", re.compile(r"^[-+]?(?:0|[1-9][0-9]{0,18})$"), list("-+0123456789")
)
_StrictLoader.add_constructor("tag:yaml.org,2002:map", _StrictLoader.construct_mapping)


_TAG = "tag:yaml.org,2002:"
_PLAIN = _TAG + "plain"  # of ours: a scalar without quotes and without a tag
_TYPES = {
    "bool": (bool,),
    "int": (int,),
    "float": (int, float),
    "null": (type(None),),
    "timestamp": (str,),
}
"""Tag -> what a scalar with it must be by its text. With any other tag it is text."""
_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(
        ["y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"], True
    ),
    **dict.fromkeys(
        ["n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"], False
    ),
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
}
_NOT_IN_JSON = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_INTEGER = re.compile(
    r"[-+]?(?:0[xX][0-9a-fA-F]{1,16}|0[bB][01]{1,64}|0[oO]?([0-7]{1,22})|0|[1-9][0-9]{0,19})"
)
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")


class _KubeletsLoader(_Loader):
    """Composes nodes as go-yaml does: plain scalars are marked, tabs may
    stand where libyaml lets them.
    """

    def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
        if kind is yaml.ScalarNode and implicit[0]:
            return _PLAIN
        return super().resolve(kind, value, implicit)  # type: ignore[no-untyped-call] # untyped in the stubs

    def scan_to_next_token(self) -> None:
        super().scan_to_next_token()
        while self.peek() == "\t" and (self.flow_level or not self.allow_simple_key):
            self.forward()
            super().scan_to_next_token()


class _KubeletsValues:
    """The values of composed nodes. `strict`: whether a key that is set twice is an error."""

    def __init__(self, strict: bool) -> None:
        self._strict = strict
        # node -> value, which aliases share; nodes, levels in it
        self._known: dict[int, tuple[Any, int, int]] = {}
        self._read = self._aliased = self._deepest = 0

    def of(self, node: yaml.Node, depth: int = 1) -> Any:
        """Raises YAMLError."""
        value, size, levels = self._known.get(id(node), (None, 0, 0))
        outer, self._deepest = self._deepest, depth + levels
        if self._deepest > DEEPEST:
            raise _problem(node, f"nested deeper than {DEEPEST}")
        if size:
            self._deepest = max(outer, self._deepest)
            self._read, self._aliased = self._read + size, self._aliased + size
            # go-yaml, decode.go, allowedAliasRatio
            allowed = min(0.99, max(0.1, 0.99 - 0.89 * (self._read - 400_000) / 3_600_000))
            if self._aliased > 100 and self._read > 1000 and self._aliased / self._read > allowed:
                raise _problem(node, "too much of it comes from aliases")
            return value
        before = self._read
        self._read += 1
        if isinstance(node, yaml.MappingNode):
            value = self._mapping(node, depth)
        elif isinstance(node, yaml.SequenceNode):
            value = [self.of(each, depth + 1) for each in node.value]
        else:
            value = _scalar(node)
        self._known[id(node)] = value, self._read - before, self._deepest - depth
        self._deepest = max(outer, self._deepest)
        return value

    def _mapping(self, node: yaml.MappingNode, depth: int) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if key_node.tag == _TAG + "merge" or (
                key_node.tag == _PLAIN and key_node.value == "<<"
            ):
                several = isinstance(value_node, yaml.SequenceNode)
                sources = value_node.value[::-1] if several else [value_node]  # the first one wins
                if not all(isinstance(each, yaml.MappingNode) for each in sources):
                    raise _problem(value_node, "a merge key needs a mapping, or a list of them")
                entries = [entry for each in sources for entry in self.of(each, depth + 1).items()]
            else:
                entries = [(_key_of(key_node), self.of(value_node, depth + 1))]
            for key, value in entries:
                if self._strict and key in result:
                    raise _problem(key_node, f"the key {key!r} occurs twice")
                result[key] = value
        return result


def _key_of(node: yaml.Node) -> str:
    key = _scalar(node) if isinstance(node, yaml.ScalarNode) else None
    if key is None:
        raise _problem(node, "keys must be texts, numbers or truth values")
    return key if isinstance(key, str) else str(key).lower()  # true, false


def _scalar(node: yaml.Node) -> Any:
    kind = node.tag.removeprefix(_TAG)
    if node.tag != _PLAIN and kind not in _TYPES:
        return (
            base64.b64decode(node.value).decode(errors="replace")
            if kind == "binary"
            else node.value
        )
    value = _guessed(node)
    if node.tag != _PLAIN and type(value) not in _TYPES[kind]:
        raise _problem(node, f"{quoted(node.value)} is not of the type of its tag, {kind}")
    return value


def _guessed(node: yaml.Node) -> Any:
    """The value of a scalar by its text.

    A whole number is an int, as in the JSON that Go writes of it.
    """
    text: str = node.value
    if text in _WORDS:
        return _WORDS[text]
    if _NOT_IN_JSON.fullmatch(text):
        raise _problem(node, f"{text} is not a number that JSON has")
    digits = text.replace("_", "") if text[0] in "+-0123456789" else text
    if found := _INTEGER.fullmatch(digits):
        number = int(digits.replace("o", "").replace("O", ""), 8) if found[1] else int(digits, 0)
        if -(2**63) <= number < (2**63 if digits[0] == "+" else 2**64):
            return number
    if _FLOAT.fullmatch(digits) and math.isfinite(fraction := float(digits)):
        return int(fraction) if fraction.is_integer() else fraction
    return text


def _problem(node: yaml.Node, words: str) -> yaml.constructor.ConstructorError:
    return yaml.constructor.ConstructorError(None, None, words, node.start_mark)


def parse_document(text: str, name: str) -> dict[str, Any]:
    """The mapping in a YAML text. `name`: for messages. Raises ConfigurationError."""
    return _mapping_of(lambda: list(islice(yaml.load_all(text, Loader=_StrictLoader), 2)), name)


def parse_kubelets_file(text: str, name: str) -> dict[str, Any]:
    """The same as the kubelet reads its file."""
    return _mapping_of(lambda: _first_document(text, strict=False), name)


def parse_kubelets_drop_in(text: str, name: str) -> dict[str, Any]:
    """The same as the kubelet reads a drop-in."""
    return _mapping_of(lambda: _first_document(text, strict=True), name)


def _first_document(text: str, strict: bool) -> list[Any]:
    loader = _KubeletsLoader(text)
    node = loader.get_node() if loader.check_node() else None
    return [] if node is None else [_KubeletsValues(strict).of(node)]


def _mapping_of(read: Callable[[], list[Any]], name: str) -> dict[str, Any]:
    try:
        documents = read()
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
        raise ConfigurationError(
            f"{name}: must be a mapping of fields to values, but it was {quoted(document)}"
        )
    return document


def read_document(
    path: str,
    parse: Parse = parse_document,
    *,
    trusted_only: bool = True,
) -> dict[str, Any]:
    """The mapping in a YAML file; empty for an empty file. Raises ConfigurationError.

    `trusted_only`: reject a file that anyone but root or our own user may write or replace.
    """

    def read() -> bytes:
        # opening a FIFO must not block
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
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
    return parse(text, path)


def read_document_of(
    api_version: str, kind: str, path: str, *, parse: Parse = parse_document
) -> dict[str, Any]:
    """The mapping in a YAML file with this `apiVersion` and `kind`. Raises ConfigurationError."""
    document = read_document(path, parse)
    for field, allowed in (("apiVersion", api_version), ("kind", kind)):
        if document.get(field) is None:
            raise ConfigurationError(f"{path}: {field} is missing; it must be {allowed!r}")
        if document[field] != allowed:
            raise ConfigurationError(
                f"{path}: {field} must be {allowed!r}, but it was {quoted(document[field])}"
            )
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


def first_problem(
    error: ValidationError, name: str, gone: Mapping[str, str] = MappingProxyType({})
) -> str:
    """The first problem that pydantic found, as one sentence with the field and what is allowed.
    `gone`: fields that there were -> what to use instead."""
    return sentence_about(error.errors(include_url=False)[0], name, gone)


def sentence_about(problem: Any, name: str, gone: Mapping[str, str] = MappingProxyType({})) -> str:
    """A problem that pydantic found, as such a sentence.

    `gone`: fields that there were -> what to use instead.
    """
    # without tags of alternatives
    parts = [str(part) for part in problem["loc"] if not str(part).startswith("<")]
    if problem["type"] == "unknown_field":
        field, fields = ".".join([*parts, problem["ctx"]["field"]]), problem["ctx"]["fields"]
        if (instead := gone.get(problem["ctx"]["field"])) is not None:
            return f"{name}: the field {quoted(field)} is gone; {instead}"
        every = EVERY_FIELD if len(fields) > MANY else f"allowed are {', '.join(fields)}"
        return f"{name}: {unknown('field', field, fields, otherwise=every)}"
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


def unknown(what: str, name: str, allowed: Collection[str], *, otherwise: str) -> str:
    """A sentence about a name that is not allowed: the three nearest that are;
    `otherwise` if none is near.
    """
    near = " or ".join(get_close_matches(name.rpartition(".")[2], allowed, 3))
    end = f"did you mean {near}?" if near else otherwise
    return f"unknown {what} {quoted(name)}" + (f"; {end}" if end else "")


def quoted(value: object) -> str:
    """A value as it would be written in YAML, texts in quotes, cut to 60
    characters; for messages.
    """
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
    """The texts of a document that cannot be passed to the kernel, each with its field
    (`evictionHard.pid.available`) and the end of a sentence about it.

    A NUL would end a text early, and Python raises ValueError for it. A lone surrogate has no
    UTF-8 bytes (it comes from a YAML escape such as "\\ud800", or from a byte of a flag or a
    variable that is not UTF-8).
    """
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from unfit_texts(key, field or str(key))
            yield from unfit_texts(each, f"{field}.{key}" if field else str(key))
    elif isinstance(value, list | tuple):
        for each in value:
            yield from unfit_texts(each, field)
    elif isinstance(value, str) and any(
        each == "\0" or "\ud800" <= each <= "\udfff" for each in value
    ):
        yield (
            field,
            (
                "must hold no NUL and no lone surrogate (what is not UTF-8), but it was"
                f" {quoted(value)}"
            ),
        )
