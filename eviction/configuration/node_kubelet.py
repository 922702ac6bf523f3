"""Finds the configuration of the node's kubelet: the file that our own configuration names; else the files and flags
that the kubelet was started with, as its process tells; else its usual file.

Anybody may call a program `kubelet`, and what is read here moves the marks of a root daemon. So a process counts only
if

* its name and the last part of its `argv[0]` are `kubelet` (one inside another program, as in k3s, is left alone),
* all its user ids are root's or our own: a setuid program has the real one of who started it,
* its executable is called `kubelet`, or, where that may not be looked at (a unit without capabilities), it runs in
  `kubelet.service`: where it runs, a user cannot choose,
* it is in no PID namespace below ours, has our root directory and sees the same file at the path of its `--config`, as
  far as that may be looked at: the kubelet of a nested node is not this node's.

Of several none is taken. Reading the command line of a process whose memory is locked may hang, so all of it is done on
a thread that is waited for and may be left behind.

Flags override files, as in the kubelet (`cmd/kubelet/app/server.go`, kubeletConfigFlagPrecedence); their syntax is that
of pflag, their fields those of `cmd/kubelet/app/options/options.go`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from eviction.configuration.functions import NO_RUNTIME
from eviction.configuration.kubelet import (
    KubeletConfiguration,
    read_kubelet_configuration,
)
from eviction.configuration.sources import Origins, parse_pairs
from eviction.configuration.strict_yaml import ConfigurationError
from eviction.types import EvictionError
from reclaim.trust import this_process

KUBELET_CONFIG = "/var/lib/kubelet/config.yaml"
NAME = "kubelet"
SERVICE = "kubelet.service"
LARGEST_BYTES = 1 << 20  # of a command line
SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class KubeletProcess:
    """A kubelet's command line. Paths are absolute, and empty where no flag names them. `flags`: the fields of its
    configuration that flags override."""

    pid: int
    config: str = ""
    config_dir: str = ""
    root_dir: str = ""
    flags: Mapping[str, Any] = field(default_factory=dict)


class _LeftAloneError(EvictionError):
    """Why a process that is called kubelet is not taken for the node's, as the end of a sentence about it."""


def _text(values: Sequence[str]) -> str:
    return values[-1]


def _number(values: Sequence[str]) -> int:
    return int(values[-1])


def _words(values: Sequence[str]) -> list[str]:
    return [word for value in values for word in value.split(",") if word]


def _pairs(operator: str) -> Callable[[Sequence[str]], dict[str, str]]:
    """The first of these flags replaces the map of the files, and each further one adds to it."""
    return lambda values: {name: text for value in values for name, text in parse_pairs(NAME, value, operator).items()}


def _truth(text: str) -> bool:
    if text not in {"1", "t", "T", "TRUE", "true", "True", "0", "f", "F", "FALSE", "false", "False"}:
        raise ValueError(f"{text!r} is neither true nor false")
    return text in {"1", "t", "T", "TRUE", "true", "True"}


def _gates(values: Sequence[str]) -> dict[str, bool]:
    return {name: _truth(text) for name, text in _pairs("=")(values).items()}


FLAGS: Mapping[str, tuple[str, Callable[[Sequence[str]], Any]]] = {
    "eviction-hard": ("evictionHard", _pairs("<")),
    "eviction-soft": ("evictionSoft", _pairs("<")),
    "eviction-soft-grace-period": ("evictionSoftGracePeriod", _pairs("=")),
    "eviction-minimum-reclaim": ("evictionMinimumReclaim", _pairs("=")),
    "eviction-pressure-transition-period": ("evictionPressureTransitionPeriod", _text),
    "image-gc-high-threshold": ("imageGCHighThresholdPercent", _number),
    "image-gc-low-threshold": ("imageGCLowThresholdPercent", _number),
    "minimum-image-ttl-duration": ("imageMinimumGCAge", _text),
    "enforce-node-allocatable": ("enforceNodeAllocatable", _words),
    "cgroups-per-qos": ("cgroupsPerQOS", lambda values: _truth(values[-1])),
    "system-reserved-cgroup": ("systemReservedCgroup", _text),
    "kube-reserved-cgroup": ("kubeReservedCgroup", _text),
    "feature-gates": ("featureGates", _gates),
    "container-runtime-endpoint": ("containerRuntimeEndpoint", _text),
    "image-service-endpoint": ("imageServiceEndpoint", _text),
    "healthz-bind-address": ("healthzBindAddress", _text),
    "healthz-port": ("healthzPort", _number),
    "address": ("address", _text),
    "port": ("port", _number),
    "read-only-port": ("readOnlyPort", _number),
    "tls-cert-file": ("tlsCertFile", _text),
}
PATHS = ("config", "config-dir", "root-dir")
WITHOUT_VALUE = "cgroups-per-qos"


def kubelet_of_node(
    own: Mapping[str, Any], origins: Origins, root: str | None
) -> tuple[KubeletConfiguration | None, str]:
    """The configuration of the node's kubelet, None if there is none; and a sentence about it, if there is one to say.

    `own`: the fields of our own sources. `root`: where /proc and the usual file are looked for, unless they say which
    file it is, or that there is none; None: nowhere. Raises ConfigurationError.
    """
    path, directory, process, remark = own.get("kubeletConfig"), own.get("kubeletConfigDir", ""), None, ""
    if path is None and root is not None and own.get("containerRuntimeEndpoint") != NO_RUNTIME:
        process, remark = find_kubelet(os.path.join(root, "proc"))
        usual = os.path.join(root, KUBELET_CONFIG.lstrip("/"))
        if process is None and os.path.exists(usual):
            path = usual
        elif process is None:
            remark = remark or f"no kubelet is seen among the processes, and there is no {usual}"
    try:
        if process is not None:
            found = read_kubelet_configuration(process.config, directory or process.config_dir, process.flags)
            return found.model_copy(update={"root_directory": process.root_dir}), ""
        return read_kubelet_configuration(path, directory) if path else None, remark
    except ConfigurationError as error:
        for name in ("kubeletConfig", "kubeletConfigDir"):
            if own.get(name) and str(error).startswith(f"{own[name]}: cannot be read: "):
                raise origins.error(name, str(error)) from None
        raise


def find_kubelet(proc: str, seconds: float = SECONDS) -> tuple[KubeletProcess | None, str]:
    """The node's kubelet in a directory of the form of /proc; or why none is taken, as a sentence; empty if none runs.

    Ends after at most `seconds`.
    """
    found: list[tuple[KubeletProcess | None, str]] = []
    thread = threading.Thread(target=lambda: found.append(_search(proc)), name="kubelet search", daemon=True)
    try:
        thread.start()
    except RuntimeError:
        return None, "no thread can be started to look for the kubelet among the processes"
    thread.join(seconds)
    return found[0] if found else (None, f"{proc} was not read within {seconds:g}s, so no kubelet is found there")


def _search(proc: str) -> tuple[KubeletProcess | None, str]:
    try:
        called = [name for name in os.listdir(proc) if name.isdigit() and _comm(os.path.join(proc, name)) == NAME]
    except OSError:
        return None, ""
    found: dict[int, KubeletProcess] = {}
    parents: dict[int, int] = {}
    left_alone = ""
    for name in sorted(called, key=int):
        entry, pid = os.path.join(proc, name), int(name)
        try:
            arguments = [part.decode() for part in _bytes(os.path.join(entry, "cmdline")).split(b"\0")[:-1]]
            if not arguments or os.path.basename(arguments[0]) != NAME:
                continue
            parents[pid] = _check(entry)
            found[pid] = _process(entry, pid, arguments[1:])
        except _LeftAloneError as error:
            left_alone = f"process {pid} is called {NAME} and left alone: {error}"
        except (ValueError, ConfigurationError) as error:
            left_alone = f"process {pid} is called {NAME} and left alone: its command line cannot be read ({error})"
        except OSError:  # it has ended
            continue
    own = [pid for pid in found if parents[pid] not in found]  # without what it has just forked
    if len(own) > 1:
        return None, f"several kubelets run here: processes {', '.join(map(str, own))}"
    return (found[own[0]], "") if own else (None, left_alone)


def _comm(entry: str) -> str:
    """The name of a process; this never waits for it, unlike its command line."""
    try:
        return _bytes(os.path.join(entry, "comm")).decode(errors="replace").rstrip("\n")
    except OSError:
        return ""


def _check(entry: str) -> int:
    """The parent's id of a process that can be the node's kubelet. Raises _LeftAloneError, OSError, ValueError."""
    lines = _bytes(os.path.join(entry, "status")).decode(errors="replace").splitlines()
    status = {name: values.split() for name, _, values in (line.partition(":") for line in lines)}
    users = [int(uid) for uid in status["Uid"]] if "Uid" in status else []
    others = [uid for uid in users if not this_process().trusts(uid)]
    if others or not users:
        raise _LeftAloneError(f"it belongs to uid {others[0]}" if others else "whom it belongs to is not known")
    if len(status.get("NSpid", "1")) > 1:
        raise _LeftAloneError("it runs in a PID namespace of its own")
    try:
        executable = os.readlink(os.path.join(entry, "exe")).removesuffix(" (deleted)")
    except PermissionError:
        groups = _bytes(os.path.join(entry, "cgroup")).decode(errors="replace").splitlines()
        if not any(SERVICE in group.split("/") for group in groups):
            raise _LeftAloneError(f"its executable may not be looked at, and it does not run in {SERVICE}") from None
    else:
        if os.path.basename(executable) != NAME:
            raise _LeftAloneError(f"its executable is {executable}")
    if not _same(os.path.join(entry, "root"), "/"):
        raise _LeftAloneError("it has another root directory")
    return int(status["PPid"][0]) if status.get("PPid") else 0


def _process(entry: str, pid: int, arguments: Sequence[str]) -> KubeletProcess:
    """Raises _LeftAloneError, ConfigurationError, ValueError."""
    given = given_flags(arguments)
    config, config_dir, root_dir = (_absolute(entry, given[name][-1] if name in given else "") for name in PATHS)
    if config and not (_same(f"{os.path.join(entry, 'root')}{config}", config) and os.path.exists(config)):
        raise _LeftAloneError(f"its {config} is not to be seen here")
    if config_dir and not os.path.lexists(config_dir):
        raise _LeftAloneError(f"its {config_dir} is not to be seen here")
    flags = {of: read(given[name]) for name, (of, read) in FLAGS.items() if name in given}
    return KubeletProcess(pid, config, config_dir, root_dir, flags)


def given_flags(arguments: Sequence[str]) -> dict[str, list[str]]:
    """The flags that are known here with their values, in order; `--name value` and `--name=value`, `_` counts as `-`.

    A value of another flag is passed over: a kubelet refuses to start with an argument that belongs to no flag.
    """
    given: dict[str, list[str]] = {}
    rest = list(reversed(arguments))
    while rest and (argument := rest.pop()) != "--":
        name, equals, value = argument.removeprefix("--").partition("=")
        name = name.replace("_", "-")
        if not argument.startswith("--") or name not in (*FLAGS, *PATHS):
            continue
        if not equals:
            value = "true" if name == WITHOUT_VALUE else rest.pop() if rest else ""
        given.setdefault(name, []).append(value)
    return given


def _absolute(entry: str, path: str) -> str:
    """The path as an absolute one: the kubelet's are relative to its working directory. Raises _LeftAloneError."""
    if not path or path.startswith("/"):
        return path
    try:
        return os.path.join(os.readlink(os.path.join(entry, "cwd")), path)
    except OSError:
        raise _LeftAloneError(f"{path} is relative to its working directory, which may not be looked at") from None


def _same(theirs: str, ours: str) -> bool:
    """Whether two paths lead to the same file; also if it may not be looked at through the process."""
    try:
        their_status = os.stat(theirs)
    except PermissionError:
        return True
    except OSError:
        return False
    try:
        our_status = os.stat(ours)
    except OSError:
        return False
    return (their_status.st_dev, their_status.st_ino) == (our_status.st_dev, our_status.st_ino)


def _bytes(path: str) -> bytes:
    """Raises OSError; ValueError for more than any command line should have."""
    with open(path, "rb") as file:
        data = file.read(LARGEST_BYTES + 1)
    if len(data) > LARGEST_BYTES:
        raise ValueError(f"{path} holds more than {LARGEST_BYTES} bytes")
    return data
