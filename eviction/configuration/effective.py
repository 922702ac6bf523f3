"""The effective configuration: one value from the kubelet's settings, our file and
drop-ins, environment and flags.

Names, grammar and meaning of the eviction fields are the kubelet's
(https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/). The sources, of which a
later one wins: the defaults, the kubelet's own settings, our file, our drop-ins in the order of
their names (maps merged by key, lists replaced), environment, flags. A null in one of our sources
removes the values of our earlier ones. The result contains the source of each value. An invalid
configuration is rejected as a whole, with one sentence about its first problem that names the file,
the field, and what is allowed.

Thresholds are the kubelet's plus the margin, so that reclaimd acts before the kubelet does; without
a kubelet configuration they are its defaults on Linux. An entry of our own maps replaces the
inherited threshold of its signal, and gets no margin.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import reduce
from typing import Annotated, Any

from eviction.configuration.file import (
    AUTO,
    BUILT_IN,
    FIELDS,
    GONE_FIELDS,
    KIND,
    NO_RUNTIME,
    ConfigurationFile,
    FunctionKind,
    UsedAtStart,
)
from eviction.configuration.kubelet import (
    DEFAULT_PORT,
    EVICTION_MAPS,
    KUBELETS_DEFAULTS,
    KubeletConfiguration,
    drop_ins,
    host_at,
    is_zero,
    kubelet_of_node,
    merged,
)
from eviction.configuration.kubelet_ways import (
    KubeletAccess,
    KubeletPlace,
    asked_of_kubelet,
    version_of_kubelet,
)
from eviction.configuration.models import ConfigDict, ValidationError, not_read
from eviction.configuration.strict_yaml import ConfigurationError as ConfigurationError
from eviction.configuration.strict_yaml import (
    end_of_sentence,
    quoted,
    read_document_of,
    sentence_about,
    unfit_texts,
)
from eviction.configuration.text_forms import bare_numbers
from eviction.configuration.threshold_config import FieldError, parse_threshold_config, read_value
from eviction.decision.headroom import PollPolicy
from eviction.decision.reclaim_table import RowEntry, Rows
from eviction.decision.synchronize import EvictionConfig
from eviction.types import API_VERSION, Threshold, ThresholdValue
from reclaim.kubelet.client import InvalidEndpoint, KubeletEndpoint
from reclaim.kubelet.versions import NEWEST, KubeletVersion
from reclaim.workers import in_time
from signals.types import AVAILABLE, Signal

DEFAULT = "default"  # the origin of a value that no source has
TRANSITION_PERIOD = "evictionPressureTransitionPeriod"
MINIMUM_RECLAIM = "2%"  # the default for available signals
KUBELETS_MINIMUM_RECLAIM = {
    "nodefs.available": MINIMUM_RECLAIM,
    "imagefs.available": MINIMUM_RECLAIM,
}
GAP_INTERVALS = 3.0  # times the longest polling interval
SHORTEST_GAP_SECONDS = 30.0  # one observation takes 6 s when three filesystems hang

USUAL_ENDPOINTS = (
    "unix:///run/containerd/containerd.sock",
    "unix:///run/crio/crio.sock",
    "unix:///run/cri-dockerd.sock",
    "unix:///run/k3s/containerd/containerd.sock",
)
ENVIRONMENT = {
    "CONTAINER_RUNTIME_ENDPOINT": "containerRuntimeEndpoint",
    "IMAGE_SERVICE_ENDPOINT": "imageServiceEndpoint",
    "KUBELET_HEALTHZ_ENDPOINT": "kubeletHealthzEndpoint",
    "NODE_NAME": "nodeName",
}
_BESIDE = {
    "imageGCLowThresholdPercent": "imageGCHighThresholdPercent",
    "imageMaximumGCAge": "imageMinimumGCAge",
    "pollFloor": "pollCeiling",
    "kubeletCAFile": "kubeletEndpoint",
}  # a default can conflict only with this other field, whose source is then named


class Configuration(ConfigurationFile):
    """The fields of the file, and what follows from them. Durations are in seconds, sizes in bytes,
    rates in bytes per second.

    `effective`: every field as it would be written; `origins`: the source of each value (maps
    by `field.key`). `kubelet`: the settings of the node's kubelet, None if its configuration
    was not read; `kubelet_remark`: a sentence about the search for it, or empty.
    `kubelet_version`: as which it is taken. `kubelet_access`: how the kubelet is asked for its
    pods; None: it is not asked.
    """

    model_config = ConfigDict(defer_build=True)  # its values are already checked

    thresholds: Annotated[tuple[Threshold, ...], not_read]
    left_to_kubelet: Annotated[tuple[tuple[str, str], ...], not_read]
    rows: Annotated[Rows, not_read]
    kubelet: Annotated[KubeletConfiguration | None, not_read]
    kubelet_remark: Annotated[str, not_read]
    kubelet_version: Annotated[KubeletVersion, not_read]
    kubelet_access: Annotated[KubeletAccess | None, not_read, UsedAtStart("kubeletEndpoint")]
    effective: Annotated[Mapping[str, Any], not_read]
    origins: Annotated[Mapping[str, str], not_read]

    @property
    def expects_kubelet(self) -> bool:
        """Whether the kubelet's silence is worth a warning: by default it is only
        asked where there is a way.
        """
        return self.kubelet_access is not None and self.origins["kubeletEndpoint"] != DEFAULT


NEEDS_RESTART: Mapping[str, str] = {
    name: mark.field or field.alias or name
    for name, field in Configuration.model_fields.items()
    for mark in field.metadata
    if isinstance(mark, UsedAtStart)
}
"""Attribute of the configuration -> field of the file."""


def needing_restart(running: Configuration, read: Configuration) -> tuple[str, ...]:
    """The fields of the file that differ and take effect only after a restart."""
    return tuple(
        name
        for attribute, name in NEEDS_RESTART.items()
        if getattr(running, attribute) != getattr(read, attribute)
    )


def until_restart(running: Configuration, read: Configuration) -> Configuration:
    """The configuration that was read, except for those fields, which keep their values."""
    return read.model_copy(
        update={attribute: getattr(running, attribute) for attribute in NEEDS_RESTART}
    )


@dataclass(frozen=True, slots=True)
class Source:
    """A source of values, with its name in messages."""

    name: str
    document: Mapping[str, Any]


def load(
    path: str | None,
    environment: Mapping[str, str],
    flags: Mapping[str, Any],
    *,
    directory: str | None = None,
    root: str | None = None,
    asks_version: bool = False,
) -> Configuration:
    """The effective configuration from a file, a drop-in directory, the environment and flags.

    `flags`: field -> value. `root`: where to look for the kubelet if no source names its file
    (`kubelet`); None: nowhere. `asks_version`: asks for the kubelet's version, if `kubeletEndpoint`
    is written, even if no setting depends on it. Raises ConfigurationError.
    """
    sources = _files(path, directory)
    set_there = {
        field: environment[variable]
        for variable, field in ENVIRONMENT.items()
        if environment.get(variable)
    }
    sources += [Source("environment", set_there), Source("flags", flags)]
    for source in sources:
        _check_types(source)
    sources = _without_nulls(sources)
    own = merged([source.document for source in sources])
    try:
        kubelet, remark = kubelet_of_node(own, root, NEWEST)
        version = NEWEST
        depends = kubelet is not None and kubelet.depends_on_version
        if depends or (asks_version and _origin(sources, "kubeletEndpoint") != DEFAULT):
            version = version_of_kubelet(_configuration(sources, kubelet, remark).kubelet_access)
        if depends and not version.assumed:
            kubelet, remark = kubelet_of_node(own, root, version)
    except ConfigurationError as error:
        for name in ("kubeletConfig", "kubeletConfigDir"):
            if own.get(name) and str(error).startswith(f"{own[name]}: cannot be read: "):
                raise ConfigurationError(f"{_origin(sources, name)}: {name}: {error}") from None
        raise
    if kubelet is None and remark and _origin(sources, "kubeletEndpoint") != DEFAULT:
        access = _configuration(sources, None, remark).kubelet_access
        try:
            if access is not None:
                return _configuration(sources, asked_of_kubelet(access), "", version=version)
        except ConfigurationError as error:  # a wrong answer does not prevent a start
            remark = f"{remark}, and {error}"
    return _configuration(sources, kubelet, remark, version=version)


def _files(path: str | None, directory: str | None) -> list[Source]:
    """The file, then the drop-ins by name. Raises ConfigurationError."""
    try:
        names = [
            *([path] if path is not None else []),
            *(drop_ins(directory) if directory is not None else []),
        ]
    except OSError as error:
        raise ConfigurationError(f"{directory}: cannot be read: {error.strerror}") from None
    return [Source(name, read_document_of(API_VERSION, KIND, name)) for name in names]


def _without_nulls(sources: Sequence[Source]) -> list[Source]:
    """The sources without nulls, and without values that a null in a later source removes. A
    transition period of 0 counts as not set, as in the kubelet
    (`pkg/kubelet/apis/config/v1beta1`)."""
    documents = [
        {
            **source.document,
            **(
                {TRANSITION_PERIOD: None} if is_zero(source.document.get(TRANSITION_PERIOD)) else {}
            ),
        }
        for source in sources
    ]
    return [
        Source(source.name, reduce(_remaining, documents[number:], documents[number]))
        for number, source in enumerate(sources)
    ]


def _remaining(value: Any, later: Any) -> Any:
    """A value without the entries that are null in it or in a later value."""
    if isinstance(value, list):
        return [_remaining(each, None) for each in value]
    if not isinstance(value, Mapping):
        return value
    later = later if isinstance(later, Mapping) else {}
    return {
        key: _remaining(each, later.get(key))
        for key, each in value.items()
        if each is not None and later.get(key, each) is not None
    }


def _origin(sources: Sequence[Source], name: str, key: str | None = None) -> str:
    """The name of the last source that has a field, or a key of a map; DEFAULT if none has."""
    for source in reversed(sources):
        value = source.document.get(name)
        if value is not None and (key is None or (isinstance(value, Mapping) and key in value)):
            return source.name
    return DEFAULT


def _defaults(own: Mapping[str, Any], has_runtime: bool) -> dict[str, Any]:
    """Every field with its default, as it would be written."""
    found = {name: field.get_default(call_default_factory=True) for name, field in FIELDS.items()}
    kubelets = KUBELETS_MINIMUM_RECLAIM if has_runtime else {}
    ours = {
        f"{entry.get('name')}.{AVAILABLE}": MINIMUM_RECLAIM for entry in own.get("filesystems", ())
    }
    return {**found, "evictionMinimumReclaim": {**kubelets, **ours}}


def _inherited(kubelet: KubeletConfiguration, has_runtime: bool) -> dict[str, Any]:
    """The kubelet's settings that our own sources may override: the maps of thresholds (unless
    there is no runtime, and so no kubelet), and fields of ours that its files or flags set."""
    found = {
        name: value
        for name, value in kubelet.settings.items()
        if name in FIELDS and (has_runtime or not isinstance(value, Mapping))
    }
    if kubelet.root_directory:
        found["rootDirectory"] = kubelet.root_directory
    if kubelet.settings.keys() & {"healthzBindAddress", "healthzPort"}:
        host, port = host_at(kubelet.healthz_bind_address), kubelet.healthz_port
        found["kubeletHealthzEndpoint"] = f"{host}:{port}" if port else ""
    return found


def _check_types(source: Source) -> None:
    """Raises ConfigurationError for unknown fields and wrong types. What a text says is
    checked after the merge, as a later source may replace it; so is that nothing is missing,
    as a null takes a field away."""
    for name, problem in (*unfit_texts(source.document), *bare_numbers(source.document)):
        raise ConfigurationError(f"{source.name}: {name}: {problem}")
    try:
        ConfigurationFile.model_validate(source.document)
    except ValidationError as error:
        for found in error.errors(include_url=False):
            is_null_field = found["input"] is None and isinstance(found["loc"][-1], str)
            if found["type"] != "value_error" and not is_null_field:
                raise ConfigurationError(sentence_about(found, source.name, GONE_FIELDS)) from None


def _configuration(
    own: Sequence[Source],
    kubelet: KubeletConfiguration | None,
    remark: str,
    *,
    version: KubeletVersion = NEWEST,
) -> Configuration:
    """The configuration from our own sources and the kubelet's. Raises ConfigurationError, which
    names the source of the value."""
    inherited, ours = kubelet or KUBELETS_DEFAULTS, merged([source.document for source in own])
    has_runtime = ours.get("containerRuntimeEndpoint") != NO_RUNTIME
    defaults = Source(DEFAULT, _defaults(ours, has_runtime))
    sources = [defaults, Source(inherited.name, _inherited(inherited, has_runtime)), *own]
    effective = {**defaults.document, **merged([source.document for source in sources])}
    origins = _origin_of_each(sources, effective)
    try:
        written = _read(effective)
        _check_agreement(written, effective["pollCeiling"])
        _check_functions(written)
        parsed = parse_threshold_config(
            *(getattr(written, each) for each in EVICTION_MAPS), signals=written.signals
        )
        thresholds = tuple(
            _with_margin(each, origins, inherited.name, margin=written.margin)
            for each in parsed.thresholds
        )
        access, rows = (
            _kubelet_access(written, inherited, origins["kubeletEndpoint"] == DEFAULT),
            _rows(written),
        )
    except FieldError as error:
        source = _origin(sources, error.field, error.key)
        if source == DEFAULT and error.field in _BESIDE:
            source = _origin(sources, _BESIDE[error.field])
        raise ConfigurationError(f"{source}: {error}") from None
    return Configuration.model_construct(
        **{**dict(written), "hold_off_seconds": written.hold_off_seconds if has_runtime else 0.0},
        thresholds=thresholds,
        left_to_kubelet=(parsed if kubelet is None else kubelet.thresholds).left_to_kubelet,
        rows=rows,
        kubelet=kubelet,
        kubelet_remark=remark,
        kubelet_version=version,
        kubelet_access=access,
        effective=effective,
        origins=origins,
    )


def _read(document: Mapping[str, Any]) -> ConfigurationFile:
    """The values of a document whose types are checked.

    Raises FieldError for a text that its field does not take.
    """
    try:
        return ConfigurationFile.model_validate(document)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        name, *place = [str(part) for part in problem["loc"] if not str(part).startswith("<")]
        # an entry's name says more than its number
        if place and place[0].isdigit() and place[1:] != ["name"]:
            place[0] = document[name][int(place[0])]["name"]
        raise FieldError(name, ": ".join([*place, end_of_sentence(problem)])) from None


def _check_agreement(written: ConfigurationFile, poll_ceiling: str) -> None:
    """Raises FieldError for fields that contradict each other."""
    high, low = written.image_gc_high_threshold_percent, written.image_gc_low_threshold_percent
    if low >= high:
        problem = f"must be below imageGCHighThresholdPercent ({high}), but it was {low}"
        raise FieldError("imageGCLowThresholdPercent", problem)
    minimum, maximum = written.image_minimum_gc_age_seconds, written.image_maximum_gc_age_seconds
    if 0 < maximum <= minimum:
        problem = f"must be above imageMinimumGCAge ({minimum:g}s), but it was {maximum:g}s"
        raise FieldError("imageMaximumGCAge", problem)
    if not 0.001 <= written.poll_floor_seconds <= written.poll_ceiling_seconds:
        raise FieldError(
            "pollFloor", f"must be at least 1ms and not above pollCeiling ({poll_ceiling})"
        )
    if not written.has_runtime and written.periodic_gc:
        raise FieldError(
            "periodicGC", f"must be false while containerRuntimeEndpoint is {NO_RUNTIME}"
        )
    if not written.has_runtime and not written.filesystems:
        problem = (
            f"{NO_RUNTIME} needs at least one entry of filesystems, or there is nothing to watch"
        )
        raise FieldError("containerRuntimeEndpoint", problem)


def _check_functions(written: ConfigurationFile) -> None:
    """Raises FieldError for functions that contradict each other or the rest of
    the configuration.
    """
    for number, function in enumerate(written.functions):
        problem = ""
        if function.name in (other.name for other in written.functions[:number]):
            problem = "occurs twice"
        elif function.kind is FunctionKind.CONTAINERD_GARBAGE and not written.has_runtime:
            problem = f"needs containerd, but containerRuntimeEndpoint is {NO_RUNTIME}"
        elif function.frees not in written.roles:
            problem = (
                f"frees: must be one of {', '.join(written.roles)}, but it was"
                f" {quoted(str(function.frees))}"
            )
        if problem:
            raise FieldError("reclaimFunctions", f"{function.name}: {problem}")


def _rows(written: ConfigurationFile) -> Rows:
    """Raises FieldError."""
    signals = written.signals
    names = [
        *(BUILT_IN if written.has_runtime else ()),
        *(function.name for function in written.functions),
    ]
    rows: dict[Signal, tuple[RowEntry, ...]] = {}
    for name, entries in written.reclaim_table.items():
        if name not in signals:
            raise FieldError(
                "reclaimTable", f"unknown signal {quoted(name)}; allowed are {', '.join(signals)}"
            )
        row: list[RowEntry] = []
        for entry in entries:
            function, below = (
                (entry, None) if isinstance(entry, str) else (entry.function, entry.below)
            )
            if function not in names:
                text = (
                    f"unknown function {quoted(function)}; allowed are {', '.join(names) or 'none'}"
                )
                raise FieldError("reclaimTable", f"{name}: {text}", name)
            if function in (other.function for other in row):
                raise FieldError("reclaimTable", f"{name}: {function} occurs twice", name)
            try:
                mark = None if below is None else read_value(below)
            except ValueError as error:
                raise FieldError(
                    "reclaimTable", f"{name}: {function}: below: {error}", name
                ) from None
            row.append(RowEntry(function, mark))
        rows[Signal(name)] = tuple(row)
    return rows


def _kubelet_access(
    written: ConfigurationFile, inherited: KubeletConfiguration, by_default: bool
) -> KubeletAccess | None:
    """How the kubelet is asked for its pods; None: it is not asked. Raises FieldError."""
    names = [
        each.name
        for each in fields(KubeletEndpoint)
        if f"kubelet_{each.name}" in type(written).model_fields
    ]
    given = {name: getattr(written, f"kubelet_{name}") for name in names}
    if written.kubelet_url not in ("", AUTO):
        try:
            return KubeletEndpoint(**given)
        except InvalidEndpoint as error:
            raise FieldError(error.field, error.problem) from error
    for attribute, value in given.items():
        if value and attribute != "url":
            problem = f"has no effect while kubeletEndpoint is {written.kubelet_url or 'empty'}"
            raise FieldError(
                str(ConfigurationFile.model_fields[f"kubelet_{attribute}"].alias), problem
            )
    no_kubelet = written.kubelet_config == "" or not written.has_runtime
    if not written.kubelet_url or (by_default and no_kubelet):
        return None
    return KubeletPlace(
        written.root_directory,
        inherited.address,
        inherited.port or DEFAULT_PORT,
        inherited.tls_cert_file,
    )


def _with_margin(
    threshold: Threshold, origins: Mapping[str, str], kubelet: str, *, margin: ThresholdValue
) -> Threshold:
    """The threshold with its origin, and with the margin if the kubelet's. A margin in bytes does
    not apply to inodes. Raises FieldError for one that is written and leaves nothing below 100%;
    the default one is only warned of."""
    origin = origins[f"{threshold.origin}.{threshold.signal}"]
    applies = margin.percentage is not None or not threshold.signal.counts_inodes
    if origin == kubelet and applies and margin.amount(2**62) > 0:
        shares = [
            one.percentage.fraction
            for one in (threshold.value, margin)
            if one.percentage is not None
        ]
        if len(shares) > 1 and sum(shares) >= 1 and origins["margin"] != DEFAULT:
            problem = (
                f"must be less, as with the kubelet's {threshold.signal} of {threshold.value} it"
                " reaches 100%"
            )
            raise FieldError("margin", f"{problem}, but it was {margin}")
        return replace(threshold, origin=f"{origin} plus margin {margin}", margin=margin)
    return replace(threshold, origin=origin, margin=None)


def _origin_of_each(sources: Sequence[Source], effective: Mapping[str, Any]) -> dict[str, str]:
    """The source of each value in force; the keys of a map are `field.key`."""
    found: dict[str, str] = {}
    for name, value in effective.items():
        if isinstance(value, Mapping):
            found |= {f"{name}.{key}": _origin(sources, name, key) for key in value}
        else:
            found[name] = _origin(sources, name)
    return found


def eviction_config(configuration: Configuration) -> EvictionConfig:
    """The part of the configuration that `synchronize` uses."""
    kubelets = None  # not known: its configuration was not read, or it has no filesystem here
    if configuration.kubelet is not None and configuration.has_runtime:
        kubelets = configuration.kubelet.thresholds.thresholds
    longest_gap_seconds = max(
        GAP_INTERVALS * configuration.poll_ceiling_seconds, SHORTEST_GAP_SECONDS
    )
    return EvictionConfig(
        configuration.thresholds,
        configuration.transition_period_seconds,
        longest_gap_seconds,
        rows=configuration.rows,
        kubelets=kubelets,
    )


def poll_policy(configuration: Configuration) -> PollPolicy:
    assumed = float(configuration.assumed_fill_rate)
    return PollPolicy(configuration.poll_floor_seconds, configuration.poll_ceiling_seconds, assumed)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The sockets of the runtime and of the image service. `found`: whether there is a
    socket at one of the usual places; `remark`: how it was chosen, as a sentence.
    Neither if it is configured."""

    runtime: str
    image: str
    found: bool = False
    remark: str = ""


def choose_endpoint(
    configuration: Configuration, usual: Sequence[str] = USUAL_ENDPOINTS
) -> Endpoint:
    """The configured endpoint, else the first usual socket that exists, else containerd's."""
    if configuration.runtime_endpoint:
        return Endpoint(configuration.runtime_endpoint, configuration.image_endpoint)
    existing = next(
        (endpoint for endpoint in usual if _is_socket(endpoint.removeprefix("unix://"))), None
    )
    how = f"; using {existing}" if existing else f", and no socket found; tried {', '.join(usual)}"
    return Endpoint(
        existing or usual[0],
        configuration.image_endpoint,
        existing is not None,
        f"no endpoint configured{how}",
    )


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(in_time(lambda: os.stat(path)).st_mode)
    except OSError:
        return False
