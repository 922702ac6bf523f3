"""Reads the configuration of the node's kubelet; never writes it.

In the kubelet's own order (`cmd/kubelet/app/server.go`):

1. The file. Here, and only here, the default thresholds come in: all of them if the file does not set `evictionHard`,
   those of the other signals if it also sets `mergeDefaultEvictionSettings`.
2. The `*.conf` files of the drop-in directory and of the directories below it, in lexical order: a JSON merge patch
   each. So a drop-in can take a default away, and `mergeDefaultEvictionSettings` in a drop-in changes nothing.
3. All other defaults (`pkg/kubelet/apis/config/v1beta1/defaults.go`).
4. The flags of its command line, where they are known.

A kubelet without a file has no default thresholds from Kubernetes 1.25 on; here it has them, as before.

Only the fields that reclaimd needs are read; all others are ignored. Values that the kubelet refuses are refused here
too (`pkg/kubelet/apis/config/validation/validation.go`), with all problems in one sentence.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from eviction.configuration.models import ConfigDict, Model, ValidationError
from eviction.configuration.strict_yaml import DocumentError, first_problem, read_document, required_value, unfit_texts
from eviction.configuration.threshold_config import (
    EvictionMaps,
    ParsedThresholds,
    ThresholdConfigError,
    effective_hard,
    parse_threshold_config,
)
from eviction.configuration.validation import read_log_directory
from eviction.types import EvictionError
from signals.quantity import QuantityError, parse_duration

API_VERSION = "kubelet.config.k8s.io/v1beta1"
KIND = "KubeletConfiguration"
DROP_IN_SUFFIX = ".conf"
DEFAULT_PORT = 10250
ENFORCEABLE = (
    "none",
    "pods",
    "system-reserved",
    "kube-reserved",
    "system-reserved-compressible",
    "kube-reserved-compressible",
)


LOOPBACK_OF_ALL = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 # nothing listens here


class KubeletConfigurationError(EvictionError):
    """A kubelet configuration that cannot be used. The message is one sentence that names the file."""


@dataclass(frozen=True, slots=True)
class KubeletConfiguration:
    """The settings of this node's kubelet that reclaimd needs. Durations in seconds.

    `name`: of the file. `healthz_endpoint`: where its `/healthz` is asked on this node, empty where it has none.
    `maps`: the eviction maps as in force. `written`: the fields that the files set. `separate_disk_gc`: the feature
    gate KubeletSeparateDiskGC. `address`, `port`, `read_only_port` (0: off), `tls_cert_file`: of its own API.
    `root_directory`: its `--root-dir`, empty where that is not known.
    """

    name: str
    maps: EvictionMaps
    thresholds: ParsedThresholds
    transition_period_seconds: float
    image_minimum_gc_age_seconds: float
    image_maximum_gc_age_seconds: float
    image_gc_high_threshold_percent: int
    image_gc_low_threshold_percent: int
    runtime_endpoint: str
    image_endpoint: str
    pod_logs_dir: str
    healthz_endpoint: str
    written: frozenset[str]
    separate_disk_gc: bool = True
    address: str = ""
    port: int = DEFAULT_PORT
    read_only_port: int = 0
    tls_cert_file: str = ""
    root_directory: str = ""


class _File(Model):
    """The fields that reclaimd needs; all others are ignored."""

    model_config = ConfigDict(extra="ignore")

    evictionHard: dict[str, str] | None = None  # noqa: N815 # the names of fields are the file's
    evictionSoft: dict[str, str] | None = None  # noqa: N815
    evictionSoftGracePeriod: dict[str, str] | None = None  # noqa: N815
    evictionMinimumReclaim: dict[str, str] | None = None  # noqa: N815
    evictionPressureTransitionPeriod: str | None = None  # noqa: N815
    mergeDefaultEvictionSettings: bool | None = None  # noqa: N815
    imageGCHighThresholdPercent: int | None = None  # noqa: N815
    imageGCLowThresholdPercent: int | None = None  # noqa: N815
    imageMinimumGCAge: str | None = None  # noqa: N815
    imageMaximumGCAge: str | None = None  # noqa: N815
    enforceNodeAllocatable: list[str] | None = None  # noqa: N815
    cgroupsPerQOS: bool | None = None  # noqa: N815
    systemReservedCgroup: str | None = None  # noqa: N815
    kubeReservedCgroup: str | None = None  # noqa: N815
    featureGates: dict[str, bool] | None = None  # noqa: N815
    containerRuntimeEndpoint: str | None = None  # noqa: N815
    imageServiceEndpoint: str | None = None  # noqa: N815
    podLogsDir: str | None = None  # noqa: N815
    healthzBindAddress: str | None = None  # noqa: N815
    healthzPort: int | None = None  # noqa: N815
    address: str | None = None
    port: int | None = None
    readOnlyPort: int | None = None  # noqa: N815
    tlsCertFile: str | None = None  # noqa: N815


def merged(documents: list[dict[str, Any]]) -> dict[str, Any]:
    """The documents merged in order, each a JSON merge patch (RFC 7386) of those before it: maps by key, everything
    else replaced; null removes a key."""
    result: dict[str, Any] = {}
    for number, document in enumerate(documents):
        for key, value in document.items():
            held = result.get(key)
            if value is None:
                result.pop(key, None)
            elif isinstance(value, dict) and number:
                result[key] = merged([held if isinstance(held, dict) else {}, value])
            else:
                result[key] = value
    return result


def drop_ins(directory: str) -> list[str]:
    """The `*.conf` files of a drop-in directory in the order of their names. Raises OSError."""
    return [os.path.join(directory, name) for name in sorted(os.listdir(directory)) if name.endswith(DROP_IN_SUFFIX)]


def kubelets_drop_ins(directory: str) -> Iterator[str]:
    """The kubelet's drop-ins in its order, that of Go's `filepath.WalkDir`: a symlink is a file, even to a directory,
    and nothing is walked if `directory` itself is one (unless a slash is behind it). Raises OSError."""
    if not stat.S_ISDIR(os.lstat(directory).st_mode):
        return
    with os.scandir(directory) as entries:
        found = sorted(entries, key=lambda entry: entry.name)
    for entry in found:
        if entry.is_dir(follow_symlinks=False):
            yield from kubelets_drop_ins(entry.path)
        elif entry.name.endswith(DROP_IN_SUFFIX):
            yield entry.path


def read_kubelet_configuration(
    path: str, directory: str = "", flags: Mapping[str, Any] | None = None
) -> KubeletConfiguration:
    """The kubelet's effective settings from its file and its drop-in directory, where they are named, and its flags
    (field -> value).

    Raises KubeletConfigurationError.
    """
    try:
        document = _checked(path) if path else {}
        patches = [_checked(drop_in) for drop_in in kubelets_drop_ins(directory)] if directory else []
    except DocumentError as error:
        raise KubeletConfigurationError(str(error)) from None
    except OSError as error:
        raise KubeletConfigurationError(f"{error.filename}: cannot be read: {error.strerror}") from None
    name = " and ".join([*([path] if path else []), *(["the kubelet's flags"] if flags or not path else [])])
    return kubelet_configuration(document, name, patches, flags)


def _checked(path: str) -> dict[str, Any]:
    document = read_document(path)
    for field, allowed in (("apiVersion", API_VERSION), ("kind", KIND)):
        if (problem := required_value(document, field, allowed)) is not None:
            raise DocumentError(f"{path}: {problem}")
    return document


def with_default_thresholds(document: dict[str, Any]) -> dict[str, Any]:
    """The document of the file as the kubelet has it before the drop-ins; what is of a wrong type is refused later."""
    written, merge_defaults = document.get("evictionHard"), document.get("mergeDefaultEvictionSettings") is True
    if written is not None and not isinstance(written, dict):
        return document
    hard = {str(signal): text for signal, text in effective_hard(written, merge_defaults=merge_defaults).items()}
    return {**document, "evictionHard": hard}


def kubelet_configuration(
    file: dict[str, Any],
    name: str,
    drop_ins: Sequence[dict[str, Any]] = (),
    flags: Mapping[str, Any] | None = None,
) -> KubeletConfiguration:
    """The effective settings of the documents of a file and of its drop-ins, and of flags; `name` is that of the file
    in messages.

    A flag replaces the whole field, also a map, except for feature gates. Raises KubeletConfigurationError.
    """
    flags = flags or {}
    set_by_somebody = merged([file, *drop_ins]).keys() | flags.keys()
    document = merged([with_default_thresholds(file), *drop_ins])
    gates = document.get("featureGates")
    document |= flags
    if isinstance(gates, dict) and "featureGates" in flags:
        document["featureGates"] = {**gates, **flags["featureGates"]}
    for field, problem in unfit_texts({key: value for key, value in document.items() if key in _File.model_fields}):
        raise KubeletConfigurationError(f"{name}: {field}: {problem}")
    try:
        written = _File.model_validate(document)
    except ValidationError as error:
        raise KubeletConfigurationError(first_problem(error, name, _File)) from None
    try:
        maps = EvictionMaps(
            written.evictionHard or {},
            written.evictionSoft or {},
            written.evictionSoftGracePeriod or {},
            written.evictionMinimumReclaim or {},
        )
        thresholds = parse_threshold_config(maps, origin=name)
    except ThresholdConfigError as error:
        raise KubeletConfigurationError(f"{name}: {error}") from None
    transition = _seconds(
        written.evictionPressureTransitionPeriod, "evictionPressureTransitionPeriod", name, default=300.0
    )
    minimum_age = _seconds(written.imageMinimumGCAge, "imageMinimumGCAge", name, default=120.0)
    maximum_age = _seconds(written.imageMaximumGCAge, "imageMaximumGCAge", name, default=0.0)
    high = 85 if written.imageGCHighThresholdPercent is None else written.imageGCHighThresholdPercent
    low = 80 if written.imageGCLowThresholdPercent is None else written.imageGCLowThresholdPercent
    problems = image_gc_problems(high, low, minimum_age, maximum_age)
    pod_logs_dir = written.podLogsDir or "/var/log/pods"
    try:
        read_log_directory(pod_logs_dir)
    except ValueError as error:
        problems.append(f"podLogsDir: {error}")
    if maximum_age != 0 and not (written.featureGates or {}).get("ImageMaximumGCAge", True):
        problems.append("imageMaximumGCAge: must be 0 while the feature gate ImageMaximumGCAge is off")
    enforced = ["pods"] if written.enforceNodeAllocatable is None else written.enforceNodeAllocatable
    reserved = {
        "system-reserved": written.systemReservedCgroup or "",
        "kube-reserved": written.kubeReservedCgroup or "",
    }
    problems += node_allocatable_problems(enforced, reserved, cgroups_per_qos=written.cgroupsPerQOS is not False)
    if problems:
        raise KubeletConfigurationError(f"{name}: {'; '.join(problems)}")
    return KubeletConfiguration(
        name=name,
        maps=maps,
        thresholds=with_allocatable(thresholds) if "pods" in enforced else thresholds,
        transition_period_seconds=transition,
        image_minimum_gc_age_seconds=minimum_age,
        image_maximum_gc_age_seconds=maximum_age,
        image_gc_high_threshold_percent=high,
        image_gc_low_threshold_percent=low,
        runtime_endpoint=written.containerRuntimeEndpoint or "",
        image_endpoint=written.imageServiceEndpoint or "",
        pod_logs_dir=pod_logs_dir,
        healthz_endpoint=_healthz_endpoint(written),
        written=frozenset(_File.model_fields.keys() & set_by_somebody),
        separate_disk_gc=(written.featureGates or {}).get("KubeletSeparateDiskGC", True),
        address=written.address or "",
        port=written.port or DEFAULT_PORT,
        read_only_port=written.readOnlyPort or 0,
        tls_cert_file=written.tlsCertFile or "",
    )


def _healthz_endpoint(written: _File) -> str:
    """Address and port; a kubelet that listens on every address is asked on the loopback. Empty: it serves none."""
    port = 10248 if written.healthzPort is None else written.healthzPort
    if port == 0:
        return ""
    address = LOOPBACK_OF_ALL.get(written.healthzBindAddress or "", written.healthzBindAddress) or "127.0.0.1"
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _seconds(text: str | None, field: str, name: str, default: float) -> float:
    """A duration; not set and 0 mean the default, as in the kubelet."""
    if text is None:
        return default
    try:
        return parse_duration(text) or default
    except QuantityError as error:
        raise KubeletConfigurationError(f"{name}: {field}: {error}") from None


def with_allocatable(thresholds: ParsedThresholds) -> ParsedThresholds:
    """Adds each hard memory threshold again for node allocatable, as the kubelet does (addAllocatableThresholds)."""
    copied = tuple(("allocatableMemory.available", text) for name, text in thresholds.hard_memory)
    return replace(thresholds, left_to_kubelet=thresholds.left_to_kubelet + copied)


def node_allocatable_problems(
    enforced: list[str], reserved_cgroups: Mapping[str, str], *, cgroups_per_qos: bool
) -> list[str]:
    """All problems that the kubelet's validation finds in `enforceNodeAllocatable`."""
    name, allowed, entries = "enforceNodeAllocatable", ", ".join(ENFORCEABLE), dict.fromkeys(enforced)
    problems = [f"{name}: unknown entry {e!r}; allowed are {allowed}" for e in entries if e not in ENFORCEABLE]
    problems += [f"{name}: {entry!r} is listed twice" for entry in entries if enforced.count(entry) > 1]
    if "none" in enforced and len(enforced) > 1:
        problems.append(f"{name}: 'none' must stand alone")
    for kind, cgroup in reserved_cgroups.items():
        forms = [entry for entry in (kind, f"{kind}-compressible") if entry in enforced]
        field = "systemReservedCgroup" if kind == "system-reserved" else "kubeReservedCgroup"
        if forms and not cgroup:
            problems.append(f"{name}: {forms[0]!r} needs {field}")
        if len(forms) > 1:
            problems.append(f"{name}: {forms[0]!r} and {forms[1]!r} must not stand together")
    if not cgroups_per_qos and any(entry != "none" for entry in enforced):
        problems.append(f"{name}: needs cgroupsPerQOS, unless it is ['none'] or empty")
    return problems


def image_gc_problems(high: int, low: int, minimum_age: float, maximum_age: float) -> list[str]:
    """All problems that the kubelet's validation finds in these image GC settings; ages in seconds."""
    problems = [
        f"{field}: must be between 0 and 100, but it was {value}"
        for field, value in (("imageGCHighThresholdPercent", high), ("imageGCLowThresholdPercent", low))
        if not 0 <= value <= 100
    ]
    if low >= high:
        problems.append(
            f"imageGCLowThresholdPercent: must be below imageGCHighThresholdPercent ({high}), but it was {low}"
        )
    if minimum_age < 0:
        problems.append(f"imageMinimumGCAge: must not be negative, but it was {minimum_age:g}s")
    if maximum_age < 0:
        problems.append(f"imageMaximumGCAge: must not be negative, but it was {maximum_age:g}s")
    if 0 < maximum_age <= minimum_age:
        problems.append(
            f"imageMaximumGCAge: must be above imageMinimumGCAge ({minimum_age:g}s), but it was {maximum_age:g}s"
        )
    return problems


def name_of(kubelet: KubeletConfiguration | None) -> str:
    """The origin of inherited values: the kubelet's file, or its defaults."""
    return kubelet.name if kubelet is not None else "the kubelet's default"
