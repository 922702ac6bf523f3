"""Faults of single methods as values: which method misbehaves, how, and when.

    {method: RemoveImage, action: fail, code: UNAVAILABLE, times: 2}
    {method: ListContainers, action: cut, when: {fromCall: 3}}
    {method: ContainerStatus, action: delay, seconds: 0.5, when: {afterSeconds: 2, forSeconds: 4}}
    {method: ListImages, action: distort, how: huge_names, when: {probability: 0.2, seed: 7}}

`read_fault` is strict: it refuses unknown fields, wrong types and numbers out of range, and names them.
`fault_document` is its inverse.

Covers: the values, and reading them. Does not cover: injecting them; see `failpoints`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any

import grpc

from eviction.drill.runtime.distortions import Distortion
from eviction.drill.runtime.private_mounts import EmbeddedNodeError

CODES = {code.name: code for code in grpc.StatusCode if code is not grpc.StatusCode.OK}
LONGEST_MESSAGE_CHARACTERS = 1024  # it is sent in a header, of which clients accept 8 KiB
LARGEST_COUNT = (1 << 31) - 1


class FaultError(EmbeddedNodeError):
    """A document that is not a fault. The message names the field and what is allowed."""


@dataclass(frozen=True, slots=True)
class Fail:
    """`times` calls fail and do nothing; None: every call."""

    code: grpc.StatusCode = grpc.StatusCode.UNAVAILABLE
    message: str = "failed on purpose"
    times: int | None = None


@dataclass(frozen=True, slots=True)
class ActThenFail:
    """`times` calls act, and then answer with an error: the caller must not conclude that nothing was done."""

    code: grpc.StatusCode = grpc.StatusCode.DEADLINE_EXCEEDED
    message: str = "done, and failed on purpose"
    times: int | None = None


@dataclass(frozen=True, slots=True)
class Pretend:
    """`times` calls do nothing and answer with success: the caller must not conclude that it was done."""

    times: int | None = None


@dataclass(frozen=True, slots=True)
class Delay:
    """`times` calls start `seconds` late, or at once when the failpoint is deleted or replaced."""

    seconds: float
    times: int | None = None


@dataclass(frozen=True, slots=True)
class Hang:
    """`times` calls start only when the failpoint is deleted or replaced."""

    times: int | None = None


@dataclass(frozen=True, slots=True)
class Cut:
    """`times` calls act, send one message with the first half of their list, and end with an error."""

    code: grpc.StatusCode = grpc.StatusCode.UNAVAILABLE
    message: str = "the stream was cut on purpose"
    times: int | None = None


@dataclass(frozen=True, slots=True)
class Distort:
    """`times` calls act, and give a distorted answer."""

    how: Distortion
    times: int | None = None


Failpoint = Fail | ActThenFail | Pretend | Delay | Hang | Cut | Distort
"""What happens to a call."""


@dataclass(frozen=True, slots=True)
class When:
    """The calls to which a fault applies; all conditions must hold.

    `from_call`: from this call of the method on; the first call after the fault was set is 1. `after_seconds` and
    `for_seconds` (None: no end): a span of time that begins when the fault is set. `probability`: the share of the
    remaining calls, drawn from a generator seeded with `seed`, so that the same order of calls always gives the same
    draws. Raises ValueError for numbers out of range.
    """

    from_call: int = 1
    after_seconds: float = 0.0
    for_seconds: float | None = None
    probability: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.from_call < 1:
            raise ValueError(f"from_call is {self.from_call}: calls are counted from 1")
        if self.after_seconds < 0 or (self.for_seconds is not None and self.for_seconds < 0):
            raise ValueError("after_seconds and for_seconds are at least 0")
        if not 0 <= self.probability <= 1:
            raise ValueError(f"probability is {self.probability:g}: it is from 0 to 1")


@dataclass(frozen=True, slots=True)
class MethodFault:
    """One method misbehaves in one way. `method` is its name in CRI, without the service."""

    method: str
    action: Failpoint
    when: When = When()


ACTIONS: dict[str, type[Failpoint]] = {
    "fail": Fail,
    "actThenFail": ActThenFail,
    "pretend": Pretend,
    "delay": Delay,
    "hang": Hang,
    "cut": Cut,
    "distort": Distort,
}
_ACTION_NAMES = {kind: name for name, kind in ACTIONS.items()}
_DECIMAL = re.compile(r"\d{1,12}(\.\d{1,9})?")


def read_fault(document: object, methods: Collection[str]) -> MethodFault:
    """The fault in a document of YAML or JSON. `methods`: the names that exist. Raises FaultError.

    Fields: `method`, `action` (see ACTIONS), the arguments of the action by name, and `when`. A number of seconds may
    also be a text, because the strict YAML reader does not convert decimal numbers.
    """
    given = _mapping(document, "a fault")
    method = _text(given.pop("method", None), "method")
    if method not in methods:
        raise FaultError(f"method: no method is named {method!r}; allowed are {', '.join(sorted(methods))}")
    action = _text(given.pop("action", None), "action")
    if action not in ACTIONS:
        raise FaultError(f"action: unknown action {action!r}; allowed are {', '.join(ACTIONS)}")
    when = _read(When, _mapping(given.pop("when", {}), "when"), "when.")
    return MethodFault(method, _read(ACTIONS[action], given, ""), when)


def fault_document(fault: MethodFault) -> dict[str, Any]:
    """The document of a fault, from which `read_fault` makes an equal one. Fields with default values are left out."""
    document: dict[str, Any] = {"method": fault.method, "action": _ACTION_NAMES[type(fault.action)]}
    document |= _written(fault.action)
    if when := _written(fault.when):
        document["when"] = when
    return document


def _read(kind: type[Any], given: dict[str, object], where: str) -> Any:
    """An instance of a dataclass from the fields of a document; each field has a reader in `_READERS`."""
    known = {_camel(field.name): field for field in fields(kind)}
    for name in given:
        if name not in known:
            raise FaultError(f"{where}{name}: unknown field; allowed are {', '.join(known) or 'none'}")
    values: dict[str, Any] = {}
    for name, field in known.items():
        if name in given:
            values[field.name] = _READERS[field.name](given[name], where + name)
        elif field.default is MISSING:
            raise FaultError(f"{where}{name}: is missing")
    return kind(**values)


def _written(value: Any) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for field in fields(value):
        found = getattr(value, field.name)
        if field.default is MISSING or found != field.default:
            document[_camel(field.name)] = found.name if isinstance(found, grpc.StatusCode) else found
    return document


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def _mapping(value: object, what: str) -> dict[str, object]:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise FaultError(f"{what}: must be a mapping of fields to values, not {_shown(value)}")
    return dict(value)


def _text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise FaultError(f"{what}: must be a text, not {_shown(value)}")
    if len(value) > LONGEST_MESSAGE_CHARACTERS:
        raise FaultError(f"{what}: has {len(value)} characters; at most {LONGEST_MESSAGE_CHARACTERS} are allowed")
    return value


def _code(value: object, what: str) -> grpc.StatusCode:
    name = _text(value, what)
    if name not in CODES:
        raise FaultError(f"{what}: unknown code {name!r}; allowed are {', '.join(CODES)}")
    return CODES[name]


def _distortion(value: object, what: str) -> Distortion:
    name = _text(value, what)
    if name not in set(Distortion):
        raise FaultError(f"{what}: unknown distortion {name!r}; allowed are {', '.join(Distortion)}")
    return Distortion(name)


def _count(least: int) -> Callable[[object, str], int]:
    def read(value: object, what: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= LARGEST_COUNT:
            raise FaultError(f"{what}: must be a whole number from {least} to {LARGEST_COUNT}, not {_shown(value)}")
        return value

    return read


def _number(most: float) -> Callable[[object, str], float]:
    def read(value: object, what: str) -> float:
        if isinstance(value, str) and _DECIMAL.fullmatch(value):
            value = float(value)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
            raise FaultError(f"{what}: must be a number from 0 to {most:g}, not {_shown(value)}")
        return float(value)

    return read


def _or_none(read: Callable[[object, str], Any]) -> Callable[[object, str], Any]:
    return lambda value, what: None if value is None else read(value, what)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:60] + "…"


_LONGEST_SECONDS = 86400.0
_READERS: dict[str, Callable[[object, str], Any]] = {
    "code": _code,
    "message": _text,
    "times": _or_none(_count(1)),
    "seconds": _number(_LONGEST_SECONDS),
    "how": _distortion,
    "from_call": _count(1),
    "after_seconds": _number(_LONGEST_SECONDS),
    "for_seconds": _or_none(_number(_LONGEST_SECONDS)),
    "probability": _number(1.0),
    "seed": _count(0),
}
