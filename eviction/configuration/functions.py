"""Filesystems, reclaim functions and rows of the table that the configuration adds.

Covers: which fields each kind of function has, their values, names, and rows that can never run. Does not cover:
whether a program, a plugin or a filesystem is there (`doctor`), and what the functions do (`reclaim`).
"""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, NamedTuple

from eviction.configuration.models import ConfigDict, Discriminator, Field, Tag, model_validator, read_as, setting
from eviction.configuration.sources import Origins
from eviction.configuration.strict_yaml import StrictModel, quoted
from eviction.configuration.text_forms import AbsolutePath, Duration, Quantity, QuantityOrPercentage, read_duration
from eviction.configuration.threshold_config import ThresholdConfigError, read_value
from eviction.decision.reclaim_table import (
    RowEntry,
    Rows,
)
from reclaim.types import DELETE_ALL_UNUSED_CONTAINERS, DELETE_UNUSED_IMAGES
from signals.quantity import parse_quantity, whole
from signals.types import (
    KUBELET_ROLES,
    KUBELET_SIGNALS,
    ROLE_NAME,
    ROLE_NAMES_ALLOWED,
    FilesystemRole,
    Signal,
    signals_about,
)

NO_RUNTIME = "none"  # of containerRuntimeEndpoint: there is no runtime on this machine
MOST_FILESYSTEMS = 8  # each is polled, and is a value of metrics' labels
MOST_FUNCTIONS = 29  # with the three built-in ones 32 values of a metric's label
BUILT_IN = (DELETE_ALL_UNUSED_CONTAINERS, DELETE_UNUSED_IMAGES)
LEFT_TO_KUBELET = ("memory", "allocatableMemory", "pid")  # roles in the kubelet's other signals
FUNCTION_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,62}")
FUNCTION_NAMES_ALLOWED = "a letter, and up to 62 letters, digits, underscores, dots and hyphens"
SMALLEST_BALLAST_BYTES = 1 << 20
TIMEOUT_SECONDS = (1.0, 600.0)


class FilesystemEntry(StrictModel):
    """A filesystem of `filesystems`."""

    name: str = Field(json_schema_extra={"pattern": f"^{ROLE_NAME.pattern}$"})
    """Its signals are NAME.available and NAME.inodesFree. None of the kubelet's names."""
    path: AbsolutePath
    """A directory on it."""


def read_filesystems(entries: Sequence[FilesystemEntry]) -> dict[FilesystemRole, str]:
    """The paths of the filesystems, by role. Raises ValueError."""
    found: dict[FilesystemRole, str] = {}
    for entry in entries:
        if not ROLE_NAME.fullmatch(entry.name):
            raise ValueError(f"name: must be {ROLE_NAMES_ALLOWED}, but it was {quoted(entry.name)}")
        if entry.name in (*KUBELET_ROLES, *LEFT_TO_KUBELET):
            raise ValueError(f"{entry.name}: is the kubelet's own name; another one is needed")
        role = FilesystemRole(entry.name)
        if role in found:
            raise ValueError(f"{entry.name}: occurs twice")
        if not entry.path.startswith("/"):
            raise ValueError(f"{role}: path must be absolute, but it was {quoted(entry.path)}")
        found[role] = os.path.normpath(entry.path)
    if len(found) > MOST_FILESYSTEMS:
        raise ValueError(f"there may be at most {MOST_FILESYSTEMS}, but there were {len(found)}")
    return found


class FunctionKind(StrEnum):
    """What a function of the configuration is: named by the function, or by the field that makes it one."""

    BALLAST = "ReleaseBallast"
    ROTATED_LOGS = "DeleteRotatedLogs"
    CONTAINERD_GARBAGE = "CollectContainerdGarbage"
    PROGRAM = "exec"
    PLUGIN = "plugin"


class _Kind(NamedTuple):
    """The fields of a kind beside `name`, `frees` and `cooldown`; where it frees and how long it may take if nothing
    else is said."""

    needed: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()
    frees: str = ""
    timeout: str = "30s"


KINDS: Mapping[FunctionKind, _Kind] = {
    FunctionKind.BALLAST: _Kind(("file", "size"), (), FilesystemRole.NODEFS),
    FunctionKind.ROTATED_LOGS: _Kind((), ("keep",), FilesystemRole.NODEFS),
    FunctionKind.CONTAINERD_GARBAGE: _Kind((), ("timeout",), FilesystemRole.IMAGEFS, "60s"),
    FunctionKind.PROGRAM: _Kind(("exec", "frees"), ("user", "timeout", "plan")),
    FunctionKind.PLUGIN: _Kind(("plugin", "frees"), ("entryPoint", "options")),
}


@dataclass(frozen=True, slots=True)
class User:
    """Whose a program runs as."""

    uid: int
    gid: int


def _read_name(name: str) -> str:
    if not FUNCTION_NAME.fullmatch(name):
        raise ValueError(f"must be {FUNCTION_NAMES_ALLOWED}, but it was {quoted(name)}")
    return name


def _read_user(name: str) -> User:
    try:
        found = pwd.getpwnam(name)
    except KeyError:
        raise ValueError(f"there is no user {quoted(name)} on this machine") from None
    return User(found.pw_uid, found.pw_gid)


def _read_argv(argv: list[str]) -> tuple[str, ...]:
    if not (argv and argv[0].startswith("/")):
        raise ValueError(f"must begin with an absolute path, but it was {quoted(argv)}")
    return tuple(argv)


def _read_timeout(text: str) -> float:
    seconds = read_duration(text)
    shortest, longest = TIMEOUT_SECONDS
    if not shortest <= seconds <= longest:
        raise ValueError(f"must be between {shortest:g}s and {longest / 60:g}m, but it was {text!r}")
    return seconds


def _read_keep(keep: int) -> int:
    if keep < 0:
        raise ValueError(f"must not be negative, but it was {keep}")
    return keep


def _read_role(name: str) -> str:
    return FilesystemRole(name) if ROLE_NAME.fullmatch(name) else name  # what is none is refused beside the others


def ballast_size(text: str) -> int:
    """The size of ballast in bytes. Raises ValueError."""
    size = whole(parse_quantity(text))
    if size < SMALLEST_BALLAST_BYTES:
        raise ValueError(f"must be at least 1Mi, but it was {text!r}")
    return size


def ballast_path(text: str) -> str:
    """The path of the file of ballast, without //, . and .. . Raises ValueError."""
    if not text.startswith("/") or text.endswith("/"):
        raise ValueError(f"must be the absolute path of a file, but it was {quoted(text)}")
    return os.path.normpath(text)


def _read_or(default: Any, written: Any, read: Callable[[Any], Any]) -> Any:
    """The mark of a field that may be left out or null, which means `default`."""
    return read_as(written | None, lambda value: default if value is None else read(value))


class FunctionEntry(StrictModel):
    """A function of `reclaimFunctions`. Which fields it needs depends on what it is (`functions`)."""

    model_config = ConfigDict(validate_default=True)

    name: Annotated[str, read_as(str, _read_name)]
    """ReleaseBallast (needs file and size), DeleteRotatedLogs, CollectContainerdGarbage, or a name of your own, with
    exec or plugin."""
    argv: Annotated[tuple[str, ...], _read_or((), list[str], _read_argv)] = setting("exec")
    """A program: its absolute path and its arguments. There is no shell. Needs frees."""
    user: Annotated[User | None, _read_or(None, str, _read_user)] = setting("user")
    """Whom the program runs as; left out: as reclaimd."""
    asks_plan: Annotated[bool, _read_or(True, bool, bool)] = setting("plan")
    """False: a dry run does not start the program, as it ignores the argument `plan`."""
    timeout_seconds: Annotated[float, _read_or(0.0, Duration, _read_timeout)] = setting("timeout")
    """After so long the program gets TERM, and KILL for its whole process group: 1s to 10m."""
    distribution: Annotated[str, _read_or("", str, str)] = setting("plugin")
    """A Python distribution that has the function as an entry point. Needs frees."""
    entry_point: Annotated[str, _read_or("", str, str)] = setting("entryPoint")
    """The name of that entry point; left out: the name of the function."""
    options: Annotated[tuple[tuple[str, Any], ...], _read_or((), dict[str, Any], lambda each: tuple(each.items()))] = (
        setting("options")
    )
    """Of the plugin."""
    path: Annotated[str, _read_or("", AbsolutePath, ballast_path)] = setting("file")
    """The ballast."""
    size_bytes: Annotated[int, _read_or(0, Quantity, ballast_size)] = setting("size")
    """Of the ballast, in bytes: at least 1Mi."""
    keep: Annotated[int, _read_or(1, int, _read_keep)] = setting("keep", json_schema_extra={"minimum": 0})
    """How many rotated logs of each container stay."""
    frees: Annotated[FilesystemRole, _read_or("", str, _read_role)] = setting("frees")
    """The filesystem on which it frees: nodefs, imagefs, containerfs, or one of `filesystems`."""
    cooldown_seconds: Annotated[float, _read_or(0.0, Duration, read_duration)] = setting("cooldown")
    """How long it rests after a call."""

    @property
    def kind(self) -> FunctionKind:
        """What it is."""
        by_name = next((kind for kind in FunctionKind if kind == self.name), None)
        return by_name or (FunctionKind.PROGRAM if self.argv else FunctionKind.PLUGIN)

    @model_validator(mode="wrap")
    @classmethod
    def _of_its_kind(cls, entry: Any, validated: Callable[[Any], FunctionEntry]) -> FunctionEntry:
        """The entry with the defaults of its kind. Raises ValueError for a field that its kind has not, or lacks."""
        if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str):
            return validated(entry)
        fields = [field.alias or name for name, field in cls.model_fields.items() if name != "name"]
        given = [field for field in fields if entry.get(field) is not None]
        kind = next((kind for kind in FunctionKind if kind == entry["name"]), None)
        kind = kind or (FunctionKind.PROGRAM if "exec" in given else FunctionKind.PLUGIN)
        defaults = {"frees": KINDS[kind].frees, "timeout": KINDS[kind].timeout, "entryPoint": entry["name"]}
        left_out = {field for field in defaults if entry.get(field) is None}
        left_out |= {field for field in ("frees", "entryPoint") if entry.get(field) == ""}
        function = validated({**entry, **{field: defaults[field] for field in left_out}})
        if problem := _problem_of_its_kind(function, given):
            raise ValueError(problem)
        return function


def _problem_of_its_kind(function: FunctionEntry, given: Sequence[str]) -> str:
    """The end of a sentence about a function that has not the fields of its kind; empty if it has. `given`: its fields
    beside the name."""
    if function.name in BUILT_IN:
        return "is built in; it needs no entry"
    if function.kind != function.name and ("exec" in given) == ("plugin" in given):
        both = "both were given" if "exec" in given else "neither was given"
        built_in = ", ".join((FunctionKind.BALLAST, FunctionKind.ROTATED_LOGS, FunctionKind.CONTAINERD_GARBAGE))
        return f"must have either exec or plugin, but {both}; functions without are {built_in}"
    needed, more, _, _ = KINDS[function.kind]
    allowed = dict.fromkeys((*needed, *more, "frees", "cooldown"))
    for field in given:
        if field not in allowed:
            return f"{field}: is no field of such a function; allowed are {', '.join(allowed)}"
    missing = [field for field in needed if field not in given]
    return f"{missing[0]} is missing" if missing else ""


class RowEntryText(StrictModel):
    """An entry of a row of `reclaimTable` that has more than a name."""

    function: str
    """The name of the function."""
    below: QuantityOrPercentage | None = None
    """It is called only while the signal is below this mark."""


def _form(entry: Any) -> str | None:
    return "<name>" if isinstance(entry, str) else "<entry>" if isinstance(entry, dict | RowEntryText) else None


RowEntryForms = Annotated[
    Annotated[str, Tag("<name>")] | Annotated[RowEntryText, Tag("<entry>")],
    Discriminator(
        _form,
        custom_error_type="row_entry",
        custom_error_message="must be a function's name, or function and below",
    ),
]
"""An entry of a row. A tag in angle brackets is not part of a field's name (`strict_yaml.first_problem`)."""


def check_functions(
    functions: Sequence[FunctionEntry], origins: Origins, roles: Collection[FilesystemRole], *, has_runtime: bool
) -> None:
    """Raises ConfigurationError for what is wrong of `reclaimFunctions` beside the rest of the configuration. `roles`:
    of all filesystems of the node."""
    if len(functions) > MOST_FUNCTIONS:
        problem = f"there may be at most {MOST_FUNCTIONS}, but there were {len(functions)}"
        raise origins.error("reclaimFunctions", problem)
    for number, function in enumerate(functions):
        problem = ""
        if function.name in (other.name for other in functions[:number]):
            problem = "occurs twice"
        elif function.kind is FunctionKind.CONTAINERD_GARBAGE and not has_runtime:
            problem = f"needs containerd, but containerRuntimeEndpoint is {NO_RUNTIME}"
        elif function.frees not in roles:
            problem = f"frees: must be one of {', '.join(roles)}, but it was {quoted(str(function.frees))}"
        if problem:
            raise origins.error("reclaimFunctions", f"{function.name}: {problem}")


def read_rows(
    table: Mapping[str, Sequence[str | RowEntryText]],
    origins: Origins,
    functions: Sequence[FunctionEntry],
    roles: Collection[FilesystemRole],
    *,
    has_runtime: bool,
) -> Rows:
    """The rows of `reclaimTable`. Raises ConfigurationError."""
    signals = [signal for role in roles for signal in signals_about(role)]
    names = [*(BUILT_IN if has_runtime else ()), *(function.name for function in functions)]
    rows: dict[Signal, tuple[RowEntry, ...]] = {}
    for name, entries in table.items():
        if name not in signals:
            raise origins.error("reclaimTable", f"unknown signal {quoted(name)}; allowed are {', '.join(signals)}")
        row: list[RowEntry] = []
        for entry in entries:
            function, below = (entry, None) if isinstance(entry, str) else (entry.function, entry.below)
            if function not in names:
                text = f"unknown function {quoted(function)}; allowed are {', '.join(names) or 'none'}"
                raise origins.error("reclaimTable", f"{name}: {text}", name)
            if function in (other.function for other in row):
                raise origins.error("reclaimTable", f"{name}: {function} occurs twice", name)
            try:
                mark = None if below is None else read_value("below", name, below)
            except ThresholdConfigError as error:
                raise origins.error("reclaimTable", f"{name}: {function}: {error}", name) from None
            row.append(RowEntry(function, mark))
        rows[Signal(name)] = tuple(row)
    return rows


def signals_of_node(roles: Collection[FilesystemRole]) -> tuple[Signal, ...]:
    """The signals of these roles, the kubelet's first."""
    own = [signal for role in roles if not role.kubelets for signal in signals_about(role)]
    return (*(KUBELET_SIGNALS if FilesystemRole.NODEFS in roles else ()), *own)
