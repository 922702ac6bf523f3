"""The effective configuration, from the kubelet's settings and our own sources.

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

import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, NamedTuple

from pydantic import ConfigDict, ValidationError

from eviction.configuration.file import (
    AUTO,
    FIELDS,
    GONE_FIELDS,
    KIND,
    NO_RUNTIME,
    USED_AT_START,
    ConfigurationFile,
    FunctionKind,
)
from eviction.configuration.fingerprint import drop_ins
from eviction.configuration.kubelet import (
    DEFAULT_PORT,
    EVICTION_MAPS,
    KUBELETS_DEFAULTS,
    KubeletConfiguration,
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
from eviction.configuration.strict_yaml import ConfigurationError as ConfigurationError
from eviction.configuration.strict_yaml import (
    end_of_sentence,
    quoted,
    read_document_of,
    sentence_about,
    unfit_texts,
)
from eviction.configuration.text_forms import bare_numbers
from eviction.configuration.threshold_config import FieldError, parse_threshold_config
from eviction.decision.reclaim_table import BUILT_IN, Rows
from eviction.decision.synchronize import EvictionConfig
from eviction.types import API_VERSION, Fields, Json, Threshold, Thresholds, ThresholdValue
from reclaim.kubelet.client import InvalidEndpoint, KubeletEndpoint
from reclaim.kubelet.versions import NEWEST, KubeletVersion
from reclaim.workers import in_time
from signals.types import AVAILABLE, Signal

DEFAULT = "default"  # the origin of a value that no source has
TRANSITION_PERIOD = "evictionPressureTransitionPeriod"
MINIMUM_RECLAIM = "2%"  # the default for available signals
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
    """The fields of the file, and what follows from them.

    Durations are in seconds, sizes in bytes, rates in bytes per second.

    `effective`: every field as it would be written; `origins`: the source of each value (maps
    by `field.key`). `kubelet`: the settings of the node's kubelet, None if its configuration
    was not read; `kubelet_remark`: a sentence about the search for it, or empty.
    `kubelet_version`: as which it is taken. `kubelet_access`: how the kubelet is asked for its
    pods; None: it is not asked.
    """

    model_config = ConfigDict(defer_build=True)  # its values are already checked

    thresholds: Thresholds
    left_to_kubelet: tuple[tuple[str, str], ...]
    rows: Rows
    kubelet: KubeletConfiguration | None
    kubelet_remark: str
    kubelet_version: KubeletVersion
    kubelet_access: KubeletAccess | None
    effective: Fields
    origins: Mapping[str, str]

    @property
    def expects_kubelet(self) -> bool:
        """Whether the kubelet's silence is worth a warning."""
        # by default it is only asked where there is a way
        return self.kubelet_access is not None and self.origins["kubeletEndpoint"] != DEFAULT


NEEDS_RESTART: Mapping[str, str] = {
    name: str(field.alias)
    for name, field in ConfigurationFile.model_fields.items()
    if USED_AT_START in field.metadata
} | {"kubelet_access": "kubeletEndpoint"}
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


class _Written(NamedTuple):
    """A value of a source, and which source that is."""

    value: Any
    origin: str


_Layer = Fields
"""A document with `_Written` in place of each value. A null removes what is below."""


def _layer(origin: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _layer(origin, entry) for key, entry in value.items()}
    return None if value is None else _Written(value, origin)


def _values(layer: Any) -> Any:
    """The document, without null entries, also of maps in lists."""
    if isinstance(layer, Mapping):
        return {key: _values(entry) for key, entry in layer.items() if entry is not None}
    if isinstance(layer, list):
        return [_values(item) for item in layer]
    return _values(layer.value) if isinstance(layer, _Written) else layer


def _origin(layer: _Layer, name: str, key: str | None = None) -> str:
    """The source of a field, or of an entry of a map; DEFAULT if there is none."""
    written = layer.get(name)
    if isinstance(written, Mapping):
        written = written.get(key)
    return written.origin if isinstance(written, _Written) else DEFAULT


def load(
    path: str | None,
    environment: Mapping[str, str],
    flags: Fields,
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
    set_there = {
        field: environment[variable]
        for variable, field in ENVIRONMENT.items()
        if environment.get(variable)
    }
    own = merged(
        [
            *(
                _own(read_document_of(API_VERSION, KIND, name), name)
                for name in _files(path, directory)
            ),
            _own(set_there, "environment"),
            _own(flags, "flags"),
        ]
    )
    values = _values(own)
    asks_kubelet = "kubeletEndpoint" in own
    version = NEWEST
    try:
        kubelet, remark = kubelet_of_node(values, root, version)
        depends = kubelet is not None and kubelet.depends_on_version
        if depends or (asks_version and asks_kubelet):
            version = version_of_kubelet(_configuration(own, kubelet, remark).kubelet_access)
        if depends and not version.assumed:
            kubelet, remark = kubelet_of_node(values, root, version)
    except ConfigurationError as error:
        for name in ("kubeletConfig", "kubeletConfigDir"):
            path = values.get(name)
            if path and str(error).startswith(f"{path}: cannot be read: "):
                raise ConfigurationError(f"{_origin(own, name)}: {name}: {error}") from None
        raise
    if kubelet is None and remark and asks_kubelet:
        access = _configuration(own, None, remark).kubelet_access
        try:
            if access is not None:
                return _configuration(own, asked_of_kubelet(access), "", version=version)
        except ConfigurationError as error:  # a wrong answer does not prevent a start
            remark = f"{remark}, and {error}"
    return _configuration(own, kubelet, remark, version=version)


def _files(path: str | None, directory: str | None) -> list[str]:
    """The file, then the drop-ins by name. Raises ConfigurationError."""
    files = [] if path is None else [path]
    try:
        return files if directory is None else files + drop_ins(directory)
    except OSError as error:
        raise ConfigurationError(f"{directory}: cannot be read: {error.strerror}") from None


def _own(document: Fields, name: str) -> _Layer:
    """The values of a source of ours.

    A transition period of 0 counts as not set, as in the kubelet
    (`pkg/kubelet/apis/config/v1beta1`).

    Raises ConfigurationError for unknown fields and wrong types. What a text says is checked after
    the merge, as a later source may replace it; so is that nothing is missing, as a null takes a
    field away.
    """
    for field, problem in (*unfit_texts(document), *bare_numbers(document)):
        raise ConfigurationError(f"{name}: {field}: {problem}")
    try:
        ConfigurationFile.model_validate(document)
    except ValidationError as error:
        for found in error.errors():
            is_null_field = found["input"] is None and isinstance(found["loc"][-1], str)
            if found["type"] != "value_error" and not is_null_field:
                raise ConfigurationError(sentence_about(found, name, GONE_FIELDS)) from None
    if is_zero(document.get(TRANSITION_PERIOD)):
        document = {**document, TRANSITION_PERIOD: None}
    layer: _Layer = _layer(name, document)
    return layer


def _defaults(own: Fields, has_runtime: bool) -> Json:
    """Every field with its default, as it would be written."""
    defaults = {
        name: field.get_default(call_default_factory=True) for name, field in FIELDS.items()
    }
    filesystems = [*(("nodefs", "imagefs") if has_runtime else ())]
    filesystems += [str(entry.get("name")) for entry in own.get("filesystems", ())]
    defaults["evictionMinimumReclaim"] = {
        f"{filesystem}.{AVAILABLE}": MINIMUM_RECLAIM for filesystem in filesystems
    }
    return defaults


def _inherited(kubelet: KubeletConfiguration, has_runtime: bool) -> Json:
    """The kubelet's settings that our own sources may override.

    The maps of thresholds, unless there is no runtime and so no kubelet; and fields of ours that
    its files or flags set.
    """
    inherited = {
        name: value
        for name, value in kubelet.settings.items()
        if name in FIELDS and (has_runtime or not isinstance(value, Mapping))
    }
    if kubelet.root_directory:
        inherited["rootDirectory"] = kubelet.root_directory
    if kubelet.settings.keys() & {"healthzBindAddress", "healthzPort"}:
        inherited["kubeletHealthzEndpoint"] = (
            f"{host_at(kubelet.healthz_bind_address)}:{kubelet.healthz_port}"
            if kubelet.healthz_port
            else ""
        )
    return inherited


def _configuration(
    own: _Layer,
    kubelet: KubeletConfiguration | None,
    remark: str,
    *,
    version: KubeletVersion = NEWEST,
) -> Configuration:
    """The configuration from our own sources and the kubelet's.

    Raises ConfigurationError, which names the source of the value.
    """
    inherited = kubelet or KUBELETS_DEFAULTS
    values = _values(own)
    has_runtime = values.get("containerRuntimeEndpoint") != NO_RUNTIME
    defaults = _defaults(values, has_runtime)
    layers = merged(
        [_layer(DEFAULT, defaults), _layer(inherited.name, _inherited(inherited, has_runtime)), own]
    )
    effective = {**defaults, **_values(layers)}
    try:
        written = _read(effective)
        _check_agreement(written, effective["pollCeiling"])
        parsed = parse_threshold_config(
            *(getattr(written, name) for name in EVICTION_MAPS), signals=written.signals
        )
        thresholds = tuple(
            _with_margin(threshold, layers, inherited.name, margin=written.margin)
            for threshold in parsed.thresholds
        )
        access = _kubelet_access(written, inherited, _origin(layers, "kubeletEndpoint") == DEFAULT)
        rows = _rows(written)
    except FieldError as error:
        source = _origin(layers, error.field, error.key)
        if source == DEFAULT and error.field in _BESIDE:
            source = _origin(layers, _BESIDE[error.field])
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
        origins={
            name if key is None else f"{name}.{key}": _origin(layers, name, key)
            for name, value in effective.items()
            for key in (value if isinstance(value, Mapping) else (None,))
        },
    )


def _read(document: Fields) -> ConfigurationFile:
    """The values of a document whose types are checked.

    Raises FieldError for a text that its field does not take.
    """
    try:
        return ConfigurationFile.model_validate(document)
    except ValidationError as error:
        problem = error.errors()[0]
        name, *place = [str(part) for part in problem["loc"] if not str(part).startswith("<")]
        key = place[0] if place else None
        # an entry's name says more than its number
        if key and key.isdigit() and place[1:] != ["name"]:
            place[0] = document[name][int(key)]["name"]
        raise FieldError(name, ": ".join([*place, end_of_sentence(problem)]), key) from None


def _check_agreement(written: ConfigurationFile, poll_ceiling: str) -> None:
    """Raises FieldError for fields that contradict each other."""
    high = written.image_gc_high_threshold_percent
    low = written.image_gc_low_threshold_percent
    minimum = written.image_minimum_gc_age_seconds
    maximum = written.image_maximum_gc_age_seconds
    floor = written.poll_floor_seconds
    without_runtime = not written.has_runtime
    for field, contradicts, problem in (
        (
            "imageGCLowThresholdPercent",
            low >= high,
            f"must be below imageGCHighThresholdPercent ({high}), but it was {low}",
        ),
        (
            "imageMaximumGCAge",
            0 < maximum <= minimum,
            f"must be above imageMinimumGCAge ({minimum:g}s), but it was {maximum:g}s",
        ),
        (
            "pollFloor",
            not 0.001 <= floor <= written.poll_ceiling_seconds,
            f"must be 1ms to pollCeiling ({poll_ceiling}), but it was {floor:g}s",
        ),
        (
            "periodicGC",
            without_runtime and written.periodic_gc,
            f"must be false while containerRuntimeEndpoint is {NO_RUNTIME}",
        ),
        (
            "containerRuntimeEndpoint",
            without_runtime and not written.filesystems,
            f"{NO_RUNTIME} needs at least one entry of filesystems, or there is nothing to watch",
        ),
    ):
        if contradicts:
            raise FieldError(field, problem)
    for function in written.functions:
        problem = ""
        if without_runtime and function.kind is FunctionKind.CONTAINERD_GARBAGE:
            problem = f"needs containerd, but containerRuntimeEndpoint is {NO_RUNTIME}"
        elif function.frees not in written.roles:
            allowed = f"frees: must be one of {', '.join(written.roles)}"
            problem = f"{allowed}, but it was {quoted(str(function.frees))}"
        if problem:
            raise FieldError("reclaimFunctions", f"{function.name}: {problem}")


def _rows(written: ConfigurationFile) -> Rows:
    """Raises FieldError for a row of an unknown signal or function."""
    names = [*(BUILT_IN if written.has_runtime else ())]
    names += [function.name for function in written.functions]
    for signal, row in written.reclaim_table.items():
        unknown = [entry.function for entry in row if entry.function not in names]
        problem = ""
        if signal not in written.signals:
            problem = f"unknown signal {quoted(signal)}; allowed are {', '.join(written.signals)}"
        elif unknown:
            allowed = f"allowed are {', '.join(names) or 'none'}"
            problem = f"{signal}: unknown function {quoted(unknown[0])}; {allowed}"
        if problem:
            raise FieldError("reclaimTable", problem, signal)
    return {Signal(signal): row for signal, row in written.reclaim_table.items()}


def _kubelet_access(
    written: ConfigurationFile, inherited: KubeletConfiguration, by_default: bool
) -> KubeletAccess | None:
    """How the kubelet is asked for its pods; None: it is not asked. Raises FieldError."""
    given = {
        field.name: getattr(written, f"kubelet_{field.name}")
        for field in fields(KubeletEndpoint)
        if field.name != "pinned_files"  # those of `auto`
    }
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
        tls_cert_file=inherited.tls_cert_file,
    )


def _with_margin(
    threshold: Threshold, layers: _Layer, kubelet: str, *, margin: ThresholdValue
) -> Threshold:
    """The threshold with its origin, and with the margin if it is the kubelet's.

    A margin or bound in bytes does not apply to inodes. Raises FieldError for a margin that is
    written and leaves nothing below 100%; the default one is only warned of.
    """
    origin = _origin(layers, threshold.origin, threshold.signal)
    applies = margin.percentage is not None or not threshold.signal.counts_inodes
    if threshold.signal.counts_inodes:
        margin = replace(margin, at_most=None)
    if origin != kubelet or not applies or margin.amount(2**62) <= 0:
        return replace(threshold, origin=origin)
    shares = [
        amount.percentage.fraction
        for amount in (threshold.value, margin)
        if amount.percentage and amount.at_most is None
    ]
    if len(shares) > 1 and sum(shares) >= 1 and _origin(layers, "margin") != DEFAULT:
        raise FieldError(
            "margin",
            f"must be less, as with the kubelet's {threshold.signal} of {threshold.value} it"
            f" reaches 100%, but it was {margin}",
        )
    return replace(threshold, origin=f"{origin} plus margin {margin}", margin=margin)


def eviction_config(configuration: Configuration) -> EvictionConfig:
    """The part of the configuration that `synchronize` uses."""
    kubelets = None  # not known: its configuration was not read, or it has no filesystem here
    if configuration.kubelet is not None and configuration.has_runtime:
        kubelets = configuration.kubelet.thresholds.thresholds
    return EvictionConfig(
        configuration.thresholds,
        configuration.transition_period_seconds,
        max(GAP_INTERVALS * configuration.poll_ceiling_seconds, SHORTEST_GAP_SECONDS),
        rows=configuration.rows,
        kubelets=kubelets,
    )


class Endpoint(NamedTuple):
    """The sockets of the runtime and of the image service."""

    runtime: str
    image: str
    found: bool = False
    """Whether there is a socket at one of the usual places; False if it is configured."""
    remark: str = ""
    """How it was chosen, as a sentence; empty if it is configured."""


def choose_endpoint(
    configuration: Configuration, usual: Sequence[str] = USUAL_ENDPOINTS
) -> Endpoint:
    """The configured endpoint, else the first usual socket that exists, else containerd's."""
    if configuration.runtime_endpoint:
        return Endpoint(configuration.runtime_endpoint, configuration.image_endpoint)
    existing = [endpoint for endpoint in usual if _is_socket(endpoint.removeprefix("unix://"))]
    how = (
        f"; using {existing[0]}" if existing else f", and no socket found; tried {', '.join(usual)}"
    )
    return Endpoint(
        (*existing, *usual)[0],
        configuration.image_endpoint,
        bool(existing),
        remark=f"no endpoint configured{how}",
    )


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(in_time(lambda: os.stat(path)).st_mode)
    except OSError:
        return False
