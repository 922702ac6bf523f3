"""The effective configuration: one value from the kubelet's settings, our file and drop-ins, environment and flags.

Names, grammar and meaning of the eviction fields are the kubelet's
(https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/). A later source wins: the kubelet's own
settings, our file, our drop-ins in the order of their names (maps merged by key, lists replaced), environment, flags.
The result contains the source of each value. The first problem ends the reading with one sentence that names the file,
the field, and what is allowed; no part of an invalid configuration is used.

Thresholds are the kubelet's plus the margin, so that reclaimd acts before the kubelet does; without a kubelet
configuration they are its defaults on Linux. A signal that our own maps name replaces the inherited one, and gets no
margin.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any

from eviction.configuration.bare_numbers import bare_numbers
from eviction.configuration.file import FIELDS, ConfigurationFile, UsedAtStart
from eviction.configuration.functions import (
    NO_RUNTIME,
    FilesystemEntry,
    FunctionEntry,
    RowEntryText,
    check_functions,
    read_rows,
)
from eviction.configuration.kubelet import (
    EVICTION_MAPS,
    KUBELETS_DEFAULTS,
    KubeletConfiguration,
    image_gc_problems,
    merged,
)
from eviction.configuration.kubelet_client import KubeletEndpoint, KubeletEndpointError
from eviction.configuration.kubelet_ways import KubeletPlace, asked_of_kubelet
from eviction.configuration.models import ConfigDict, Model, ValidationError, not_read
from eviction.configuration.node_kubelet import kubelet_of_node
from eviction.configuration.sources import (
    DEFAULT,
    Origins,
    Source,
    apply_nulls,
    from_environment,
    own_sources,
    zero_means_unset,
)
from eviction.configuration.strict_yaml import ConfigurationError as ConfigurationError
from eviction.configuration.strict_yaml import sentence_about, unfit_texts
from eviction.configuration.threshold_config import (
    ParsedThresholds,
    ThresholdConfigError,
    parse_threshold_config,
)
from eviction.decision.reclaim_table import Rows
from eviction.types import Threshold, ThresholdValue
from reclaim.execution.workers import in_time
from reclaim.images.keep_list import parse_keep_list
from reclaim.types import PolicyError
from signals.types import AVAILABLE, KUBELET_SIGNALS, Signal

AUTO = "auto"  # of kubeletEndpoint
MINIMUM_RECLAIM = "2%"  # of the available signals, where nothing else is said
KUBELETS_MINIMUM_RECLAIM = {"nodefs.available": MINIMUM_RECLAIM, "imagefs.available": MINIMUM_RECLAIM}

USUAL_ENDPOINTS = (
    "unix:///run/containerd/containerd.sock",
    "unix:///run/crio/crio.sock",
    "unix:///run/cri-dockerd.sock",
    "unix:///run/k3s/containerd/containerd.sock",
)


class Configuration(ConfigurationFile):
    """The fields of the file, and what follows from them. Durations are in seconds, sizes in bytes, rates in bytes a
    second.

    `effective`: every field as it would be written; `origins`: the source of each value (maps by `field.key`).
    `kubelet`: the settings of the node's kubelet, None where its configuration was not read; `kubelet_remark`: what
    there is to say of how it was looked for, empty if nothing. `kubelet_endpoint`: how the kubelet is asked; None if it
    is not, or by a way that is found from `kubelet_place`, which `auto` sets.
    """

    model_config = ConfigDict(defer_build=True)  # it is made of what was checked

    thresholds: Annotated[tuple[Threshold, ...], not_read]
    left_to_kubelet: Annotated[tuple[tuple[str, str], ...], not_read]
    rows: Annotated[Rows, not_read]
    kubelet: Annotated[KubeletConfiguration | None, not_read]
    kubelet_remark: Annotated[str, not_read]
    kubelet_endpoint: Annotated[KubeletEndpoint | None, not_read, UsedAtStart("kubeletEndpoint")]
    kubelet_place: Annotated[KubeletPlace | None, not_read, UsedAtStart("kubeletEndpoint")]
    effective: Annotated[Mapping[str, Any], not_read]
    origins: Annotated[Mapping[str, str], not_read]

    @property
    def asks_kubelet(self) -> bool:
        """Whether the kubelet is asked for its pods."""
        return self.kubelet_endpoint is not None or self.kubelet_place is not None


NEEDS_RESTART: Mapping[str, str] = {
    name: mark.field or field.alias or name
    for name, field in Configuration.model_fields.items()
    for mark in field.metadata
    if isinstance(mark, UsedAtStart)
}
"""Attribute of the configuration -> field of the file."""


def needing_restart(running: Configuration, read: Configuration) -> tuple[str, ...]:
    """The fields of the file that differ and only a restart can change."""
    changed = (
        name for attribute, name in NEEDS_RESTART.items() if getattr(running, attribute) != getattr(read, attribute)
    )
    return tuple(dict.fromkeys(changed))


def until_restart(running: Configuration, read: Configuration) -> Configuration:
    """The configuration that was read, with those fields as they are."""
    return read.model_copy(update={attribute: getattr(running, attribute) for attribute in NEEDS_RESTART})


def load(
    path: str | None,
    environment: Mapping[str, str],
    flags: Mapping[str, Any],
    directory: str | None = None,
    root: str | None = None,
) -> Configuration:
    """The effective configuration from a file (None: none), a drop-in directory, the environment and flags.

    `flags`: field -> value. `root`: where the kubelet is looked for if no source names its file (`node_kubelet`); None:
    nowhere. Raises ConfigurationError with one sentence.
    """
    sources = own_sources(path, directory)
    sources.append(Source("environment", from_environment(environment)))
    sources.append(Source("flags", dict(flags)))
    for source in sources:  # an unknown field with a null too
        _check_types(Source(source.name, {k: v for k, v in source.document.items() if k not in FIELDS}))
    sources = apply_nulls([zero_means_unset(source) for source in sources])
    for source in sources:
        _check_types(source)
    own = merged([dict(source.document) for source in sources])
    kubelet, remark = kubelet_of_node(own, Origins(sources), root)
    if kubelet is None and remark:
        asks = _configuration(own, Origins(sources), None, remark)
        kubelet, remark = asked_of_kubelet(asks.kubelet_endpoint, asks.kubelet_place, remark)
    if kubelet is not None:
        inherited = _inherited(kubelet)
        sources.insert(0, Source(kubelet.name, inherited))
        own = {**inherited, **own}
    return _configuration(own, Origins(sources), kubelet, remark)


def _inherited(kubelet: KubeletConfiguration) -> dict[str, Any]:
    """The fields that our own sources override: those that the kubelet's files or flags set and ours have too. The maps
    of thresholds are merged by signal later."""
    found: dict[str, Any] = {}
    for attribute, field in ConfigurationFile.model_fields.items():
        if field.alias in kubelet.written and attribute not in EVICTION_MAPS:
            value = getattr(kubelet, attribute)
            found[field.alias] = _duration(value) if isinstance(value, float) else value
    if kubelet.root_directory:
        found["rootDirectory"] = kubelet.root_directory
    if kubelet.written & {"healthzBindAddress", "healthzPort"}:
        found["kubeletHealthzEndpoint"] = kubelet.healthz_endpoint
    return found


def _duration(seconds: float) -> str:
    """Seconds in the format of Go's ParseDuration: without exponent, at most nine decimals."""
    return f"{seconds:.9f}".rstrip("0").rstrip(".") + "s"


def _check_types(source: Source) -> None:
    """Raises ConfigurationError for what no field of this name can have. Whether a text is one of its field's is
    checked where all sources are merged, as a later one may replace it."""
    for name, problem in (*unfit_texts(source.document), *bare_numbers(source.document)):
        raise ConfigurationError(f"{source.name}: {name}: {problem}")
    try:
        ConfigurationFile.model_validate(source.document)
    except ValidationError as error:
        for found in error.errors(include_url=False):
            if found["type"] != "value_error":
                raise ConfigurationError(sentence_about(found, source.name, ConfigurationFile)) from None


def _read(document: Mapping[str, Any], origins: Origins) -> ConfigurationFile:
    try:
        return ConfigurationFile.model_validate(document)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        name, *place = problem["loc"]
        if name == "reclaimFunctions" and place:  # a function is known by its name, not by its number
            known = [] if "name" in place else [document[name][place[0]]["name"]]
            words = [*known, *place[1:], problem["msg"].removeprefix("Value error, ")]
            raise origins.error(name, ": ".join(map(str, words))) from None
        raise ConfigurationError(sentence_about(problem, origins.of(str(name)), ConfigurationFile)) from None


def _configuration(
    document: Mapping[str, Any], origins: Origins, kubelet: KubeletConfiguration | None, remark: str
) -> Configuration:
    """The configuration of the merged sources; every error names the source of its text."""
    written = _read(document, origins)
    effective = _as_written(document)
    for name, problem in _disagreements(written, effective["pollCeiling"]):
        raise origins.error(name, problem)
    try:
        parse_keep_list(written.keep_images)
    except PolicyError as error:
        raise ConfigurationError(f"{origins.of('keepImages')}: {error}") from None
    roles, has_runtime = written.roles, written.has_runtime
    check_functions(written.functions, origins, roles, has_runtime=has_runtime)
    inherited = kubelet or KUBELETS_DEFAULTS
    maps = _eviction_maps(written, inherited)
    effective |= maps
    parsed = _thresholds(written, inherited, origins, maps)
    place = KubeletPlace(
        written.root_directory, inherited.address, inherited.port, inherited.read_only_port, inherited.tls_cert_file
    )
    return Configuration.model_construct(
        **{**dict(written), "hold_off_seconds": written.hold_off_seconds if has_runtime else 0.0},
        thresholds=parsed.thresholds,
        left_to_kubelet=(parsed if kubelet is None else kubelet.thresholds).left_to_kubelet,
        rows=read_rows(written.reclaim_table, origins, written.functions, roles, has_runtime=has_runtime),
        kubelet=kubelet,
        kubelet_remark=remark,
        kubelet_endpoint=_kubelet_endpoint(written, origins),
        kubelet_place=place if written.kubelet_url == AUTO else None,
        effective=effective,
        origins=_origin_of_each(inherited, origins, effective, maps),
    )


def _disagreements(written: ConfigurationFile, poll_ceiling: str) -> Iterator[tuple[str, str]]:
    """For each field that does not agree with another one: its name, and the end of a sentence about it."""
    high, low = written.image_gc_high_threshold_percent, written.image_gc_low_threshold_percent
    ages = written.image_minimum_gc_age_seconds, written.image_maximum_gc_age_seconds
    for text in image_gc_problems(high, low, *ages):
        name, _, problem = text.partition(": ")
        yield name, problem
    if not 0.001 <= written.poll_floor_seconds <= written.poll_ceiling_seconds:
        yield "pollFloor", f"must be at least 1ms and not above pollCeiling ({poll_ceiling})"
    if not written.has_runtime and written.periodic_gc:
        yield "periodicGC", f"must be false while containerRuntimeEndpoint is {NO_RUNTIME}"
    if not written.has_runtime and not written.filesystems:
        problem = f"{NO_RUNTIME} needs at least one entry of filesystems, or there is nothing to watch"
        yield "containerRuntimeEndpoint", problem
    if written.terminated_by_evidence and written.kubelet_healthz is None:
        yield "terminatedPods", "must be kubelet while kubeletHealthzEndpoint is empty"


def _kubelet_endpoint(written: ConfigurationFile, origins: Origins) -> KubeletEndpoint | None:
    """The endpoint for requests to the kubelet; None without one."""
    names = [each.name for each in fields(KubeletEndpoint) if f"kubelet_{each.name}" in type(written).model_fields]
    given = {name: getattr(written, f"kubelet_{name}") for name in names}
    if given["url"] in ("", AUTO):
        for attribute, value in given.items():
            if value and attribute != "url":
                state = given["url"] or "empty"
                raise origins.error(
                    _field_of(f"kubelet_{attribute}"), f"has no effect while kubeletEndpoint is {state}"
                )
        return None
    try:
        return KubeletEndpoint(**given)
    except KubeletEndpointError as error:
        name = _field_of(f"kubelet_{error.field}")
        where = name if given[error.field] else "kubeletEndpoint"  # a missing field has no source
        raise ConfigurationError(f"{origins.of(where)}: {name}: {error}") from None


def _field_of(attribute: str) -> str:
    """The field of the file that has this attribute."""
    return str(ConfigurationFile.model_fields[attribute].alias)


def _eviction_maps(written: ConfigurationFile, inherited: KubeletConfiguration) -> dict[str, dict[str, str]]:
    """The four maps as they are in force. Nothing is inherited where there is no runtime, and so no kubelet."""
    maps: dict[str, dict[str, str]] = {}
    for attribute in EVICTION_MAPS:
        kubelets = getattr(inherited, attribute) if written.has_runtime else {}
        maps[_field_of(attribute)] = {**kubelets, **getattr(written, attribute)}
    own = {f"{role}.{AVAILABLE}": MINIMUM_RECLAIM for role in written.filesystems}
    defaults = {**KUBELETS_MINIMUM_RECLAIM, **own} if written.has_runtime else own
    return {**maps, "evictionMinimumReclaim": {**defaults, **maps["evictionMinimumReclaim"]}}


def _thresholds(
    written: ConfigurationFile, inherited: KubeletConfiguration, origins: Origins, maps: Mapping[str, dict[str, str]]
) -> ParsedThresholds:
    """The thresholds, with the margin where they are inherited, and what is left to the kubelet."""
    try:
        parsed = parse_threshold_config(*maps.values(), signals=written.signals)
    except ThresholdConfigError as error:
        raise origins.error(error.field, error.problem, error.signal) from None
    thresholds = []
    for threshold in parsed.thresholds:
        origin, margin = origins.of(threshold.origin, threshold.signal), None
        if origin == DEFAULT:
            origin, margin = inherited.name, _margin_of(threshold.signal, written.margin)
        if margin is not None:
            origin = f"{origin} plus margin {margin}"
        thresholds.append(replace(threshold, origin=origin, margin=margin))
    return ParsedThresholds(tuple(thresholds), parsed.left_to_kubelet)


def _margin_of(signal: Signal, margin: ThresholdValue) -> ThresholdValue | None:
    """The margin of an inherited threshold; None: it has none. Bytes do not raise a mark of inodes."""
    applies = margin.percentage is not None or not signal.counts_inodes
    return margin if applies and margin.amount(2**62) > 0 else None


def _as_written(document: Mapping[str, Any]) -> dict[str, Any]:
    """Every field as it would be written in a file."""
    found = {name: document.get(name, field.get_default(call_default_factory=True)) for name, field in FIELDS.items()}
    found["filesystems"] = [_entry(entry, FilesystemEntry) for entry in found["filesystems"]]
    found["reclaimFunctions"] = [_entry(entry, FunctionEntry) for entry in found["reclaimFunctions"]]
    rows = found["reclaimTable"].items()
    found["reclaimTable"] = {signal: [_entry(entry, RowEntryText) for entry in row] for signal, row in rows}
    return found


def _entry(entry: Any, model: type[Model]) -> Any:
    """An entry of a list in the order of its fields, without those that it leaves out."""
    if not isinstance(entry, Mapping):
        return entry
    names = (field.alias or name for name, field in model.model_fields.items())
    return {name: _without_nulls(entry[name]) for name in names if entry.get(name) is not None}


def _without_nulls(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_nulls(each) for each in value]
    if isinstance(value, Mapping):
        return {key: _without_nulls(each) for key, each in value.items() if each is not None}
    return value


def _origin_of_each(
    inherited: KubeletConfiguration, origins: Origins, effective: Mapping[str, Any], maps: Collection[str]
) -> dict[str, str]:
    """The source of each value in force; of a map, by `field.key`."""
    found: dict[str, str] = {}
    for name, value in effective.items():
        if name == "reclaimTable":
            found |= {f"{name}.{key}": origins.of(name, key) for key in value}
        elif name not in maps:
            found[name] = origins.of(name)
    for name in maps:
        for key, text in effective[name].items():
            own = origins.of(name, key)
            ours = key not in KUBELET_SIGNALS or KUBELETS_MINIMUM_RECLAIM.get(key) == text
            reclaimd = name == "evictionMinimumReclaim" and ours
            found[f"{name}.{key}"] = own if own != DEFAULT or reclaimd else inherited.name
    return found


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The runtime's socket and the image service's. `tried`: the usual places, where none is configured; `found`: a
    socket is at one of them."""

    runtime: str
    image: str
    found: bool = False
    tried: tuple[str, ...] = ()

    @property
    def remark(self) -> str:
        """How it was chosen, as a sentence; empty where it is configured."""
        if not self.tried:
            return ""
        if self.found:
            return f"no endpoint configured; using {self.runtime}"
        return f"no endpoint configured, and no socket found; tried {', '.join(self.tried)}"


def choose_endpoint(configuration: Configuration, usual: Sequence[str] = USUAL_ENDPOINTS) -> Endpoint:
    """The configured endpoint, else the first usual socket that exists, else containerd's."""
    if configuration.runtime_endpoint:
        return Endpoint(configuration.runtime_endpoint, configuration.image_endpoint)
    existing = next((endpoint for endpoint in usual if _is_socket(endpoint.removeprefix("unix://"))), None)
    return Endpoint(existing or usual[0], configuration.image_endpoint, existing is not None, tuple(usual))


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(in_time(lambda: os.stat(path)).st_mode)
    except OSError:
        return False
