"""Reads YAML: our own documents strictly, the kubelet's as the kubelet does.

The only module that uses PyYAML.

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

In all of them, files over 1 MiB are rejected, and what is nested deeper than 50, or holds more than
a million values, which only aliases can do.
"""

import base64
import math
import os
import re
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import partial
from types import MappingProxyType
from typing import Any

import yaml
from pydantic import ConfigDict, model_validator
from pydantic_core import PydanticCustomError

from eviction.configuration.models import Model, name_in_file
from eviction.types import EvictionError, Json
from reclaim.trust import file_refusal
from reclaim.workers import in_time
from signals.quantity import format_bytes

Parse = Callable[[str, str], Json]
"""Makes a mapping of the text of a file, whose name messages begin with.

Raises ConfigurationError.
"""

LARGEST_BYTES = 1024 * 1024
MANY = 30  # fields, which only the configuration has
DEEPEST = 50
NEW_LINE = "\n"
TOO_DEEP = f"nested deeper than {DEEPEST}"


class ConfigurationError(EvictionError):
    """The message is one sentence that names the source and, if known, the field."""


class StrictModel(Model):
    """A model that also rejects unknown fields."""

    model_config = ConfigDict(extra="forbid", alias_generator=name_in_file)

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


_TAG = "tag:yaml.org,2002:"
_PLAIN = _TAG + "plain"  # of ours
_BY_TEXT = {_TAG + kind for kind in ("plain", "bool", "int", "float", "null")}
"""The tags of scalars whose text says what they are; with any other tag they are text."""

_CORE_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,18})")
_NOT_IN_JSON = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_INTEGER = re.compile(
    r"[-+]?(?:0[xX][0-9a-fA-F]{1,16}|0[bB][01]{1,64}|0[oO]?([0-7]{1,22})|0|[1-9][0-9]{0,19})"
)
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")


def _problem(place: Any, words: str) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=words, problem_mark=place.start_mark)


class _Loader(yaml.SafeLoader):
    """Makes the values of a document. A subclass says how its plain scalars are read."""

    words: Mapping[str, bool | None]
    """What plain scalars are that are neither numbers nor texts."""
    merges = True
    """Whether `<<` is a merge key, and not a text."""
    key_twice = False
    """Whether a key may be set twice; the last one counts then."""
    _count = 0

    def number(self, node: yaml.ScalarNode) -> Any:
        """The number that a plain scalar is, else its text."""
        return int(node.value) if _CORE_INTEGER.fullmatch(node.value) else node.value

    def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
        if kind is yaml.ScalarNode and implicit[0]:
            return _PLAIN
        return super().resolve(kind, value, implicit)  # type: ignore[no-untyped-call] # untyped in the stubs

    def value(self, node: Any, depth: int = 1) -> Any:
        """`node`: a yaml.Node. Raises YAMLError."""
        if depth > DEEPEST:
            raise _problem(node, TOO_DEEP)
        self._count += 1
        if self._count > LARGEST_BYTES:  # without aliases, each takes a byte at least
            raise _problem(node, "too much of it comes from aliases")
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, depth + 1) for item in node.value]
        if isinstance(node, yaml.ScalarNode):
            return self.scalar(node)
        mapping: Json = {}
        for key_node, value_node in node.value:
            for key, value in self._entries(key_node, value_node, depth + 1):
                if key in mapping and not self.key_twice:
                    raise _problem(key_node, f"the key {key!r} occurs twice")
                mapping[key] = value
        return mapping

    def scalar(self, node: yaml.ScalarNode) -> Any:
        text: str = node.value
        if node.tag == _TAG + "binary":
            return base64.b64decode(text).decode(errors="replace")
        if node.tag not in _BY_TEXT:
            return text
        return self.words[text] if text in self.words else self.number(node)

    def _key(self, node: yaml.Node) -> str:
        key = self.scalar(node) if isinstance(node, yaml.ScalarNode) else None
        if key is None:
            raise _problem(node, "keys must be texts, numbers or truth values")
        return key if isinstance(key, str) else str(key).lower()  # true, false

    def _entries(self, key: yaml.Node, value: yaml.Node, depth: int) -> Iterable[tuple[str, Any]]:
        merges = key.tag == _TAG + "merge" or (key.tag == _PLAIN and key.value == "<<")
        if not (self.merges and merges):
            return [(self._key(key), self.value(value, depth))]
        # of several mappings, the first one wins
        sources = value.value[::-1] if isinstance(value, yaml.SequenceNode) else [value]
        if not all(isinstance(source, yaml.MappingNode) for source in sources):
            raise _problem(value, "a merge key needs a mapping, or a list of them")
        return [entry for source in sources for entry in self.value(source, depth).items()]


class _OurLoader(_Loader):
    """For our own documents."""

    words = MappingProxyType({"": None, "~": None, "null": None, "true": True, "false": False})
    merges = False

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()  # type: ignore[no-untyped-call] # untyped in the stubs
        if isinstance(event, yaml.AliasEvent):
            raise _problem(event, "aliases are not allowed")
        if getattr(event, "tag", None) is not None:
            raise _problem(event, "tags are not allowed")
        return super().compose_node(parent, index)


class _DropInLoader(_Loader):
    """For the kubelet's drop-ins."""

    words = MappingProxyType(
        dict.fromkeys("y Y yes Yes YES true True TRUE on On ON".split(), True)  # noqa: SIM905 # read better than a list
        | dict.fromkeys("n N no No NO false False FALSE off Off OFF".split(), False)  # noqa: SIM905 # the same
        | dict.fromkeys(("", "~", "null", "Null", "NULL"))
    )

    def scan_to_next_token(self) -> None:
        """Tabs may stand where libyaml lets them."""
        super().scan_to_next_token()
        while self.peek() == "\t" and (self.flow_level or not self.allow_simple_key):
            self.forward()
            super().scan_to_next_token()

    def number(self, node: yaml.ScalarNode) -> Any:
        """A whole number is an int, as in the JSON that Go writes of it."""
        text: str = node.value
        if _NOT_IN_JSON.fullmatch(text):
            raise _problem(node, f"{text} is not a number that JSON has")
        digits = text.replace("_", "") if text[0] in "+-0123456789" else text
        if integer := _INTEGER.fullmatch(digits):
            number = int(re.sub("[oO]", "", digits), 8) if integer[1] else int(digits, 0)
            if -(2**63) <= number < (2**63 if digits[0] == "+" else 2**64):
                return number
        if _FLOAT.fullmatch(digits) and math.isfinite(fraction := float(digits)):
            return int(fraction) if fraction.is_integer() else fraction
        return text


class _FileLoader(_DropInLoader):
    """For its file."""

    key_twice = True


def _parse(text: str, name: str, *, loads: type[_Loader]) -> Json:
    try:
        loader = loads(text)
        document = loader.value(loader.get_node()) if loader.check_node() else None
        if loads is _OurLoader and loader.check_node():
            raise ConfigurationError(f"{name}: holds more than one document; one is allowed")
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        place = "" if mark is None else f" in line {mark.line + 1}"
        why = getattr(error, "problem", None) or " ".join(str(error).split())
        if isinstance(error, yaml.reader.ReaderError):
            place = f" in line {text.count(NEW_LINE, 0, error.position) + 1}"
            why = f"the character U+{error.character:04X} is not allowed"
        if isinstance(error, RecursionError):  # of the parser, which goes on beyond our limit
            why = TOO_DEEP
        raise ConfigurationError(f"{name}: not readable as YAML{place}: {why}") from None
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise ConfigurationError(
            f"{name}: must be a mapping of fields to values, but it was {quoted(document)}"
        )
    return document


parse_document: Parse = partial(_parse, loads=_OurLoader)
parse_kubelets_file: Parse = partial(_parse, loads=_FileLoader)
parse_kubelets_drop_in: Parse = partial(_parse, loads=_DropInLoader)


def read_document(path: str, parse: Parse = parse_document, *, trusted_only: bool = True) -> Json:
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
        raise ConfigurationError(
            f"{path}: larger than {format_bytes(LARGEST_BYTES)}, the largest allowed"
        )
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path}: not UTF-8 at byte {error.start}") from None
    return parse(text, path)


def read_document_of(
    api_version: str, kind: str, path: str, *, parse: Parse = parse_document
) -> Json:
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
    "dict_type": "must be a mapping of names to values",
    "model_type": "must be a mapping of fields to values",
    "list_type": "must be a list",
    "string_type": "must be a text: a number with its unit (30s, 10Gi, 5%), or in quotes",
    "tuple_type": "must be a list",
    "literal_error": "must be {expected}",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "string_too_short": "must not be empty",
    "string_too_long": "must have at most {max_length} characters",
    "string_pattern_mismatch": "must match {pattern}",
    "too_short": "must have at least {min_length} of them",
    "too_long": "must have at most {max_length} of them",
}
"""pydantic's type of a problem -> what is allowed, with names from the problem's context."""


def sentence_about(problem: Any, name: str, gone: Mapping[str, str] = MappingProxyType({})) -> str:
    """A problem that pydantic found, as one sentence with the field and what is allowed.

    `name`: of the document. `gone`: fields that there were -> what to use instead.
    """
    # without tags of alternatives
    parts = [str(part) for part in problem["loc"] if not str(part).startswith("<")]
    if problem["type"] != "unknown_field":
        return f"{name}: {'.'.join(parts) or 'the document'}: {end_of_sentence(problem)}"
    unknown_field = problem["ctx"]["field"]
    fields = problem["ctx"]["fields"]
    path = ".".join([*parts, unknown_field])
    if unknown_field in gone:
        return f"{name}: the field {quoted(path)} is gone; {gone[unknown_field]}"
    every = f"allowed are {', '.join(fields)}"
    if len(fields) > MANY:
        every = "`reclaimd help configuration` explains all"
    return f"{name}: {unknown('field', path, fields, otherwise=every)}"


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
    """A sentence about a name that is not allowed, with the three nearest that are.

    `otherwise`: its end if none is near.
    """
    near = " or ".join(get_close_matches(name.rpartition(".")[2], allowed, 3))
    end = f"did you mean {near}?" if near else otherwise
    return "; ".join(filter(None, (f"unknown {what} {quoted(name)}", end)))


def quoted(value: object) -> str:
    """A value for messages, as it would be written in YAML, cut to 60 characters."""
    text = _flow(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


def _flow(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_key(key)}: {_flow(each)}' for key, each in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_flow, value))}]"
    return repr(str(value) if isinstance(value, str) else value)


def _key(name: object) -> str:
    return str(name) if str(name).isprintable() else repr(name)


# A NUL would end a text early, and Python raises ValueError for it. A lone surrogate has no UTF-8
# bytes; it comes from a YAML escape such as "\ud800", or from a byte of a flag or a variable that
# is not UTF-8.
_UNFIT = re.compile("[\0\ud800-\udfff]")


def unfit_texts(value: Any, field: str = "") -> Iterator[tuple[str, str]]:
    """The texts of a document that cannot be passed to the kernel.

    Each with its field (`evictionHard.pid.available`) and the end of a sentence about it.
    """
    if isinstance(value, Mapping):
        for key, entry in value.items():
            yield from unfit_texts(key, field or str(key))
            yield from unfit_texts(entry, f"{field}.{key}" if field else str(key))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from unfit_texts(item, field)
    elif isinstance(value, str) and _UNFIT.search(value):
        allowed = "must hold no NUL and no lone surrogate (what is not UTF-8)"
        yield field, f"{allowed}, but it was {quoted(value)}"
