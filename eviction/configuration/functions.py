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
from typing import Any, NamedTuple, TypeVar

from eviction.configuration.file import ConfigurationFile, FunctionEntry
from eviction.configuration.sources import ConfigurationError, Origins
from eviction.configuration.strict_yaml import quoted
from eviction.configuration.threshold_config import ThresholdConfigError, read_value
from eviction.decision.reclaim_table import (
    DELETE_ALL_UNUSED_CONTAINERS,
    DELETE_UNUSED_IMAGES,
    RowEntry,
    Rows,
)
from signals.quantity import QuantityError, parse_duration, parse_quantity, whole
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
OF_THE_RUNTIME = (DELETE_ALL_UNUSED_CONTAINERS, DELETE_UNUSED_IMAGES)
BUILT_IN = OF_THE_RUNTIME
LEFT_TO_KUBELET = ("memory", "allocatableMemory", "pid")  # roles in the kubelet's other signals
FUNCTION_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,62}")
FUNCTION_NAMES_ALLOWED = "a letter, and up to 62 letters, digits, underscores, dots and hyphens"
SMALLEST_BALLAST_BYTES = 1 << 20
TIMEOUT_SECONDS = (1.0, 600.0)

Value = TypeVar("Value")


class FunctionKind(StrEnum):
    """What a function of the configuration is: named by the function, or by the field that makes it one."""

    BALLAST = "ReleaseBallast"
    ROTATED_LOGS = "DeleteRotatedLogs"
    CONTAINERD_GARBAGE = "CollectContainerdGarbage"
    PROGRAM = "exec"
    PLUGIN = "plugin"


class _Kind(NamedTuple):
    """The fields of a kind beside `name`, `frees` and `cooldown`; where it frees if nothing else is said."""

    needed: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()
    frees: str = ""


KINDS: Mapping[FunctionKind, _Kind] = {
    FunctionKind.BALLAST: _Kind(("file", "size"), (), FilesystemRole.NODEFS),
    FunctionKind.ROTATED_LOGS: _Kind((), ("keep",), FilesystemRole.NODEFS),
    FunctionKind.CONTAINERD_GARBAGE: _Kind((), ("timeout",), FilesystemRole.IMAGEFS),
    FunctionKind.PROGRAM: _Kind(("exec", "frees"), ("user", "timeout", "plan")),
    FunctionKind.PLUGIN: _Kind(("plugin", "frees"), ("entryPoint", "options")),
}


@dataclass(frozen=True, slots=True)
class User:
    """Whose a program runs as."""

    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class ConfiguredFunction:
    """A function of `reclaimFunctions`; what its kind does not have is empty.

    `frees`: the role of the filesystem on which it frees. `argv`, `user`, `timeout_seconds`: of a program, and
    `asks_plan`: whether a dry run starts it with `plan`. `path`,
    `size_bytes`: of ballast. `keep`: rotated logs that stay of each container. `distribution`, `entry_point`,
    `options`: of a plugin.
    """

    name: str
    kind: FunctionKind
    frees: FilesystemRole
    cooldown_seconds: float = 0.0
    timeout_seconds: float = 0.0
    argv: tuple[str, ...] = ()
    user: User | None = None
    asks_plan: bool = True
    path: str = ""
    size_bytes: int = 0
    keep: int = 1
    distribution: str = ""
    entry_point: str = ""
    options: tuple[tuple[str, Any], ...] = ()


def own_filesystems(written: ConfigurationFile, origins: Origins) -> dict[FilesystemRole, str]:
    """The paths of the filesystems that the configuration adds, by role. Raises ConfigurationError."""
    found: dict[FilesystemRole, str] = {}
    for entry in written.filesystems:
        if not ROLE_NAME.fullmatch(entry.name):
            raise origins.error("filesystems", f"name: must be {ROLE_NAMES_ALLOWED}, but it was {quoted(entry.name)}")
        if entry.name in (*KUBELET_ROLES, *LEFT_TO_KUBELET):
            raise origins.error("filesystems", f"{entry.name}: is the kubelet's own name; another one is needed")
        role = FilesystemRole(entry.name)
        if role in found:
            raise origins.error("filesystems", f"{entry.name}: occurs twice")
        if not entry.path.startswith("/"):
            raise origins.error("filesystems", f"{role}: path must be absolute, but it was {quoted(entry.path)}")
        found[role] = os.path.normpath(entry.path)
    if len(found) > MOST_FILESYSTEMS:
        raise origins.error("filesystems", f"there may be at most {MOST_FILESYSTEMS}, but there were {len(found)}")
    return found


def own_functions(
    written: ConfigurationFile, origins: Origins, roles: Collection[FilesystemRole]
) -> tuple[ConfiguredFunction, ...]:
    """The functions of `reclaimFunctions`. `roles`: of all filesystems of the node. Raises ConfigurationError."""
    entries = written.reclaimFunctions
    if len(entries) > MOST_FUNCTIONS:
        raise origins.error("reclaimFunctions", f"there may be at most {MOST_FUNCTIONS}, but there were {len(entries)}")
    for number, entry in enumerate(entries):
        if not FUNCTION_NAME.fullmatch(entry.name):
            text = f"name: must be {FUNCTION_NAMES_ALLOWED}, but it was {quoted(entry.name)}"
            raise origins.error("reclaimFunctions", text)
        if entry.name in BUILT_IN:
            raise origins.error("reclaimFunctions", f"{entry.name}: is built in; it needs no entry")
        if entry.name in (other.name for other in entries[:number]):
            raise origins.error("reclaimFunctions", f"{entry.name}: occurs twice")
    return tuple(_Function(entry, origins, roles, written).configured() for entry in entries)


def own_rows(
    written: ConfigurationFile,
    origins: Origins,
    functions: Sequence[ConfiguredFunction],
    roles: Collection[FilesystemRole],
) -> Rows:
    """The rows of `reclaimTable`. Raises ConfigurationError."""
    has_runtime = written.containerRuntimeEndpoint != NO_RUNTIME
    signals = [signal for role in roles for signal in signals_about(role)]
    names = [*(OF_THE_RUNTIME if has_runtime else ()), *(function.name for function in functions)]
    rows: dict[Signal, tuple[RowEntry, ...]] = {}
    for name, entries in written.reclaimTable.items():
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


class _Function:
    """One entry of `reclaimFunctions`, while it is read."""

    def __init__(
        self, entry: FunctionEntry, origins: Origins, roles: Collection[FilesystemRole], written: ConfigurationFile
    ):
        self._entry = entry
        self._origins = origins
        self._roles = roles
        self._has_runtime = written.containerRuntimeEndpoint != NO_RUNTIME

    def configured(self) -> ConfiguredFunction:
        """Its values. Raises ConfigurationError."""
        entry, kind = self._entry, self._kind()
        self._check_fields(kind)
        options = entry.options or {}
        return ConfiguredFunction(
            name=entry.name,
            kind=kind,
            frees=self._frees(kind),
            cooldown_seconds=0.0 if entry.cooldown is None else self._read("cooldown", entry.cooldown, _duration),
            timeout_seconds=self._timeout(kind),
            argv=self._argv(),
            user=None if entry.user is None else self._read("user", entry.user, _user),
            asks_plan=entry.plan is not False,
            path="" if entry.file is None else self._read("file", entry.file, ballast_path),
            size_bytes=0 if entry.size is None else self._read("size", entry.size, ballast_size),
            keep=self._keep(),
            distribution=entry.plugin or "",
            entry_point=entry.entryPoint or entry.name,
            options=tuple(options.items()),
        )

    def _kind(self) -> FunctionKind:
        entry = self._entry
        by_name = next((kind for kind in FunctionKind if kind == entry.name), None)
        if by_name is not None:
            return by_name
        if (entry.exec is None) == (entry.plugin is None):
            both = "both were given" if entry.exec is not None else "neither was given"
            built_in = ", ".join((FunctionKind.BALLAST, FunctionKind.ROTATED_LOGS, FunctionKind.CONTAINERD_GARBAGE))
            raise self._error(f"must have either exec or plugin, but {both}; functions without are {built_in}")
        return FunctionKind.PROGRAM if entry.exec is not None else FunctionKind.PLUGIN

    def _check_fields(self, kind: FunctionKind) -> None:
        entry, fields = self._entry, KINDS[kind]
        given = [name for name in FunctionEntry.model_fields if name != "name" and getattr(entry, name) is not None]
        allowed = dict.fromkeys((*fields.needed, *fields.allowed, "frees", "cooldown"))
        for name in given:
            if name not in allowed:
                raise self._error(f"{name}: is no field of such a function; allowed are {', '.join(allowed)}")
        for name in fields.needed:
            if name not in given:
                raise self._error(f"{name} is missing")
        if kind is FunctionKind.CONTAINERD_GARBAGE and not self._has_runtime:
            raise self._error(f"needs containerd, but containerRuntimeEndpoint is {NO_RUNTIME}")

    def _frees(self, kind: FunctionKind) -> FilesystemRole:
        name = self._entry.frees or KINDS[kind].frees
        if name not in self._roles:
            raise self._error(f"frees: must be one of {', '.join(self._roles)}, but it was {quoted(name)}")
        return FilesystemRole(name)

    def _argv(self) -> tuple[str, ...]:
        argv = self._entry.exec
        if argv is not None and not (argv and argv[0].startswith("/")):
            raise self._error(f"exec: must begin with an absolute path, but it was {quoted(argv)}")
        return tuple(argv or ())

    def _timeout(self, kind: FunctionKind) -> float:
        default = "60s" if kind is FunctionKind.CONTAINERD_GARBAGE else "30s"
        written = self._entry.timeout
        seconds = self._read("timeout", default if written is None else written, _duration)
        shortest, longest = TIMEOUT_SECONDS
        if not shortest <= seconds <= longest:
            text = f"must be between {shortest:g}s and {longest / 60:g}m, but it was {written!r}"
            raise self._error(f"timeout: {text}")
        return seconds

    def _keep(self) -> int:
        keep = 1 if self._entry.keep is None else self._entry.keep
        if keep < 0:
            raise self._error(f"keep: must not be negative, but it was {keep}")
        return keep

    def _read(self, field: str, text: str, read: Callable[[str], Value]) -> Value:
        try:
            return read(text)
        except ValueError as error:
            raise self._error(f"{field}: {error}") from None

    def _error(self, problem: str) -> ConfigurationError:
        return self._origins.error("reclaimFunctions", f"{self._entry.name}: {problem}")


def _duration(text: str) -> float:
    seconds = parse_duration(text)
    if seconds < 0:
        raise QuantityError(f"must not be negative, but it was {text!r}")
    return seconds


def ballast_size(text: str) -> int:
    """The size of ballast in bytes. Raises QuantityError."""
    size = whole(parse_quantity(text))
    if size < SMALLEST_BALLAST_BYTES:
        raise QuantityError(f"must be at least 1Mi, but it was {text!r}")
    return size


def ballast_path(text: str) -> str:
    """The path of the file of ballast, without //, . and .. . Raises ValueError."""
    if not text.startswith("/") or text.endswith("/"):
        raise ValueError(f"must be the absolute path of a file, but it was {quoted(text)}")
    return os.path.normpath(text)


def _user(text: str) -> User:
    try:
        found = pwd.getpwnam(text)
    except KeyError:
        raise ValueError(f"there is no user {quoted(text)} on this machine") from None
    return User(found.pw_uid, found.pw_gid)
