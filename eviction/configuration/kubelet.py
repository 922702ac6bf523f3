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
from dataclasses import replace
from typing import Annotated, Any

from eviction.configuration.models import ConfigDict, Model, ValidationError, not_read, read_as, setting
from eviction.configuration.strict_yaml import ConfigurationError, first_problem, read_document_of, unfit_texts
from eviction.configuration.text_forms import read_log_directory
from eviction.configuration.threshold_config import (
    ParsedThresholds,
    ThresholdConfigError,
    effective_hard,
    parse_threshold_config,
)
from signals.quantity import parse_duration

API_VERSION = "kubelet.config.k8s.io/v1beta1"
KIND = "KubeletConfiguration"
DROP_IN_SUFFIX = ".conf"
DEFAULT_PORT = 10250
ALL_INTERFACES = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 # where the kubelet listens
DEFAULT_POD_LOGS_DIR = "/var/log/pods"
ENFORCEABLE = (
    "none",
    "pods",
    "system-reserved",
    "kube-reserved",
    "system-reserved-compressible",
    "kube-reserved-compressible",
)
EVICTION_MAPS = ("eviction_hard", "eviction_soft", "eviction_soft_grace_period", "eviction_minimum_reclaim")


def host_at(address: str) -> str:
    """Where to ask a server that listens at this address, as a URL has it: on the loopback, if it listens at all."""
    address = ALL_INTERFACES.get(address, address)
    return f"[{address}]" if ":" in address else address


def _seconds(default: float) -> Any:
    """A duration, for which 0 means the default, as in the kubelet."""
    return read_as(str, lambda text: parse_duration(text) or default)


class KubeletConfiguration(Model):
    """The settings of this node's kubelet that reclaimd needs; all others are ignored. Durations in seconds.

    `name`: of the file. `written`: the fields that files and flags set. `root_directory`: its `--root-dir`, empty where
    that is not known. `read_only_port`: 0 is off.
    """

    model_config = ConfigDict(extra="ignore", validate_default=True)

    eviction_hard: dict[str, str] = setting("evictionHard", dict)
    eviction_soft: dict[str, str] = setting("evictionSoft", dict)
    eviction_soft_grace_period: dict[str, str] = setting("evictionSoftGracePeriod", dict)
    eviction_minimum_reclaim: dict[str, str] = setting("evictionMinimumReclaim", dict)
    merge_default_eviction_settings: bool = setting("mergeDefaultEvictionSettings", False)
    transition_period_seconds: Annotated[float, _seconds(300.0)] = setting("evictionPressureTransitionPeriod", "0s")
    image_gc_high_threshold_percent: int = setting("imageGCHighThresholdPercent", 85)
    image_gc_low_threshold_percent: int = setting("imageGCLowThresholdPercent", 80)
    image_minimum_gc_age_seconds: Annotated[float, _seconds(120.0)] = setting("imageMinimumGCAge", "0s")
    image_maximum_gc_age_seconds: Annotated[float, _seconds(0.0)] = setting("imageMaximumGCAge", "0s")
    enforce_node_allocatable: Annotated[tuple[str, ...], read_as(list[str], tuple)] = setting(
        "enforceNodeAllocatable", ["pods"]
    )
    cgroups_per_qos: bool = setting("cgroupsPerQOS", True)
    system_reserved_cgroup: str = setting("systemReservedCgroup", "")
    kube_reserved_cgroup: str = setting("kubeReservedCgroup", "")
    feature_gates: dict[str, bool] = setting("featureGates", dict)
    runtime_endpoint: str = setting("containerRuntimeEndpoint", "")
    image_endpoint: str = setting("imageServiceEndpoint", "")
    pod_logs_dir: Annotated[str, read_as(str, lambda path: path or DEFAULT_POD_LOGS_DIR)] = setting("podLogsDir", "")
    healthz_bind_address: str = setting("healthzBindAddress", "")
    healthz_port: int = setting("healthzPort", 10248)
    address: str = setting("address", "")
    port: Annotated[int, read_as(int, lambda port: port or DEFAULT_PORT)] = setting("port", 0)
    read_only_port: int = setting("readOnlyPort", 0)
    tls_cert_file: str = setting("tlsCertFile", "")
    name: Annotated[str, not_read] = ""
    written: Annotated[frozenset[str], not_read] = frozenset()
    thresholds: Annotated[ParsedThresholds, not_read] = ParsedThresholds(())
    root_directory: Annotated[str, not_read] = ""

    @property
    def separate_disk_gc(self) -> bool:
        """The feature gate KubeletSeparateDiskGC."""
        return self.feature_gates.get("KubeletSeparateDiskGC", True)

    @property
    def healthz_endpoint(self) -> str:
        """Where its `/healthz` is asked on this node: on the loopback, if it listens on every address. Empty: it serves
        none."""
        if self.healthz_port == 0:
            return ""
        return f"{host_at(self.healthz_bind_address)}:{self.healthz_port}"


KUBELETS_FIELDS = {field.alias for field in KubeletConfiguration.model_fields.values() if field.alias}


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

    Raises ConfigurationError.
    """
    try:
        document = read_document_of(API_VERSION, KIND, path) if path else {}
        patches = (
            [read_document_of(API_VERSION, KIND, each) for each in kubelets_drop_ins(directory)] if directory else []
        )
    except OSError as error:
        raise ConfigurationError(f"{error.filename}: cannot be read: {error.strerror}") from None
    name = " and ".join([*([path] if path else []), *(["the kubelet's flags"] if flags or not path else [])])
    return kubelet_configuration(document, name, patches, flags)


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

    A flag replaces the whole field, also a map, except for feature gates. Raises ConfigurationError.
    """
    flags = flags or {}
    set_by_somebody = merged([file, *drop_ins]).keys() | flags.keys()
    document = merged([with_default_thresholds(file), *drop_ins])
    gates = document.get("featureGates")
    document |= flags
    if isinstance(gates, dict) and "featureGates" in flags:
        document["featureGates"] = {**gates, **flags["featureGates"]}
    document = {field: value for field, value in document.items() if field in KUBELETS_FIELDS}
    for field, problem in unfit_texts(document):
        raise ConfigurationError(f"{name}: {field}: {problem}")
    try:
        found = KubeletConfiguration.model_validate(document)
        thresholds = parse_threshold_config(*(getattr(found, each) for each in EVICTION_MAPS), origin=name)
    except ValidationError as error:
        raise ConfigurationError(first_problem(error, name, KubeletConfiguration)) from None
    except ThresholdConfigError as error:
        raise ConfigurationError(f"{name}: {error}") from None
    if problems := _problems(found):
        raise ConfigurationError(f"{name}: {'; '.join(problems)}")
    if "pods" in found.enforce_node_allocatable:
        thresholds = with_allocatable(thresholds)
    written = frozenset(KUBELETS_FIELDS & set_by_somebody)
    return found.model_copy(update={"name": name, "written": written, "thresholds": thresholds})


def with_allocatable(thresholds: ParsedThresholds) -> ParsedThresholds:
    """Adds each hard memory threshold again for node allocatable, as the kubelet does (addAllocatableThresholds)."""
    copied = tuple(("allocatableMemory.available", text) for name, text in thresholds.hard_memory)
    return replace(thresholds, left_to_kubelet=thresholds.left_to_kubelet + copied)


def _problems(found: KubeletConfiguration) -> list[str]:
    """All problems that the kubelet's validation finds in fields that agree with no other one."""
    maximum_age = found.image_maximum_gc_age_seconds
    high, low = found.image_gc_high_threshold_percent, found.image_gc_low_threshold_percent
    problems = image_gc_problems(high, low, found.image_minimum_gc_age_seconds, maximum_age)
    try:
        read_log_directory(found.pod_logs_dir)
    except ValueError as error:
        problems.append(f"podLogsDir: {error}")
    if maximum_age != 0 and not found.feature_gates.get("ImageMaximumGCAge", True):
        problems.append("imageMaximumGCAge: must be 0 while the feature gate ImageMaximumGCAge is off")
    return problems + node_allocatable_problems(found)


def node_allocatable_problems(found: KubeletConfiguration) -> list[str]:
    """All problems that the kubelet's validation finds in `enforceNodeAllocatable`."""
    enforced = found.enforce_node_allocatable
    name, allowed, entries = "enforceNodeAllocatable", ", ".join(ENFORCEABLE), dict.fromkeys(enforced)
    problems = [f"{name}: unknown entry {e!r}; allowed are {allowed}" for e in entries if e not in ENFORCEABLE]
    problems += [f"{name}: {entry!r} is listed twice" for entry in entries if enforced.count(entry) > 1]
    if "none" in enforced and len(enforced) > 1:
        problems.append(f"{name}: 'none' must stand alone")
    for kind, field, cgroup in (
        ("system-reserved", "systemReservedCgroup", found.system_reserved_cgroup),
        ("kube-reserved", "kubeReservedCgroup", found.kube_reserved_cgroup),
    ):
        forms = [entry for entry in (kind, f"{kind}-compressible") if entry in enforced]
        if forms and not cgroup:
            problems.append(f"{name}: {forms[0]!r} needs {field}")
        if len(forms) > 1:
            problems.append(f"{name}: {forms[0]!r} and {forms[1]!r} must not stand together")
    if not found.cgroups_per_qos and any(entry != "none" for entry in enforced):
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


KUBELETS_DEFAULTS = kubelet_configuration({}, "the kubelet's default")
"""What is inherited where no kubelet's configuration is known."""
