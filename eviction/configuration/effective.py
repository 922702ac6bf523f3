"""The effective configuration: one value from the kubelet's settings, our file and drop-ins, environment and flags.

Names, grammar and meaning of the eviction fields are the kubelet's
(https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/). A later source wins: the kubelet's own
settings, our file, our drop-ins in the order of their names (maps merged by key, lists replaced), environment, flags.
The result contains the source of each value. The first problem ends the reading with one sentence that names the file,
the field, and what is allowed; no part of an invalid configuration is used.

Covers: loading, and parsing texts to amounts. Does not cover: the rules of thresholds (`inherited_thresholds`) and of
paths and addresses (`validation`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from eviction.configuration.bare_numbers import bare_numbers
from eviction.configuration.configz import asked_of_kubelet
from eviction.configuration.file import ConfigurationFile, as_written
from eviction.configuration.functions import (
    NO_RUNTIME,
    ConfiguredFunction,
    own_filesystems,
    own_functions,
    own_rows,
    signals_of_node,
)
from eviction.configuration.inherited_thresholds import DEFAULT_MINIMUM_RECLAIM, effective_thresholds, name_of
from eviction.configuration.kubelet import KubeletConfiguration, image_gc_problems, merged
from eviction.configuration.kubelet_endpoint import KubeletEndpoint, KubeletEndpointError
from eviction.configuration.kubelet_ways import KubeletPlace
from eviction.configuration.models import ValidationError
from eviction.configuration.node_kubelet import kubelet_of_node
from eviction.configuration.sources import (
    DEFAULT,
    Origins,
    Source,
    apply_nulls,
    from_environment,
    inherited_from,
    own_sources,
    zero_means_unset,
)
from eviction.configuration.sources import ConfigurationError as ConfigurationError
from eviction.configuration.strict_yaml import first_problem
from eviction.configuration.texts import unfit_texts
from eviction.configuration.validation import location_problems, parse_healthz_endpoint
from eviction.decision.reclaim_table import Rows
from eviction.types import Extent, Threshold
from reclaim.images.keep_list import parse_keep_list
from reclaim.types import PolicyError
from signals.quantity import (
    QuantityError,
    parse_duration,
    parse_quantity,
    whole,
)
from signals.types import KUBELET_ROLES, KUBELET_SIGNALS, FilesystemRole, Signal

LONGEST_HOLD_OFF_FOR_NEW_PODS = 10.0
SHORTEST_TERMINATED_POD_AGE = 10.0  # two observations lie a minute apart; only tests want less than some minutes
SHORTEST_REMOVAL_PATIENCE = 0.5  # large images take longer on a good day; the tests of a stuck runtime want a short one
SMALLEST_HISTORY_BYTES, LARGEST_HISTORY_BYTES = 1 << 20, 1 << 30
AUTO = "auto"  # of kubeletEndpoint, and of lead
NO_LEAD = "0s"
KUBELET_ENDPOINT_FIELDS = {
    "url": "kubeletEndpoint",
    "token_file": "kubeletTokenFile",
    "certificate_file": "kubeletCertificateFile",
    "key_file": "kubeletKeyFile",
    "ca_file": "kubeletCAFile",
    "server_name": "kubeletServerName",
    "insecure_skip_verify": "kubeletInsecureSkipVerify",
}

USUAL_ENDPOINTS = (
    "unix:///run/containerd/containerd.sock",
    "unix:///run/crio/crio.sock",
    "unix:///run/cri-dockerd.sock",
    "unix:///run/k3s/containerd/containerd.sock",
)


@dataclass(frozen=True, slots=True)
class Configuration:
    """The effective configuration. Durations in seconds, sizes in bytes, rates in bytes a second.

    `effective`: every field as it would be written; `origins`: the source of each value (maps by `field.key`).
    `kubelet`: the settings of the node's kubelet, None where its configuration was not read; `kubelet_remark`: what
    there is to say of how it was looked for, empty if nothing. `kubelet_endpoint`: how
    the kubelet is asked; None if it is not, or by a way that is found from `kubelet_place`, which `auto` sets.
    `filesystems`: the paths of those that the configuration adds; `functions` and `rows` are the configuration's too.
    """

    root_directory: str
    runtime_endpoint: str
    image_endpoint: str
    thresholds: tuple[Threshold, ...]
    transition_period_seconds: float
    extent: Extent
    image_minimum_gc_age_seconds: float
    image_maximum_gc_age_seconds: float
    image_gc_high_threshold_percent: int
    image_gc_low_threshold_percent: int
    minimum_container_ttl_seconds: float
    maximum_dead_containers_per_container: int
    maximum_dead_containers: int
    periodic_gc: bool
    keep_images: tuple[str, ...]
    keep_newest_per_repository: int
    pod_logs_dir: str
    container_logs_dir: str
    hold_off_seconds: float
    pod_start_seconds: float
    kubelet_healthz: tuple[str, int] | str | None
    parallel_removals: int
    removal_patience_seconds: float
    poll_floor_seconds: float
    poll_ceiling_seconds: float
    assumed_fill_rate: int
    dry_run: bool = False
    state_file: str = ""
    history_file: str = ""
    history_size_bytes: int = 16 << 20
    lock_directory: str = ""
    kubelet_endpoint: KubeletEndpoint | None = None
    kubelet_place: KubeletPlace | None = None
    terminated_by_evidence: bool = False
    terminated_pod_age_seconds: float = 600.0
    control_socket: str = ""
    metrics_address: str = ""
    lead: bool = True
    kubernetes_events: bool = False
    kubeconfig: str = ""
    node_name: str = ""
    filesystems: Mapping[FilesystemRole, str] = field(default_factory=dict)
    functions: tuple[ConfiguredFunction, ...] = ()
    rows: Rows = field(default_factory=dict)
    left_to_kubelet: tuple[tuple[str, str], ...] = ()
    kubelet: KubeletConfiguration | None = None
    effective: Mapping[str, Any] = field(default_factory=dict)
    origins: Mapping[str, str] = field(default_factory=dict)
    kubelet_remark: str = ""

    @property
    def has_runtime(self) -> bool:
        """Whether there is a container runtime on this machine, and so a kubelet's filesystems."""
        return self.runtime_endpoint != NO_RUNTIME

    @property
    def signals(self) -> tuple[Signal, ...]:
        """All signals that the node can have, the kubelet's first."""
        return signals_of_node((*(KUBELET_ROLES if self.has_runtime else ()), *self.filesystems))

    @property
    def asks_kubelet(self) -> bool:
        """Whether the kubelet is asked for its pods."""
        return self.kubelet_endpoint is not None or self.kubelet_place is not None


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
        _validated({k: v for k, v in source.document.items() if k not in ConfigurationFile.model_fields}, source.name)
    sources = apply_nulls([zero_means_unset(source) for source in sources])
    for source in sources:
        _validated(source.document, source.name)  # each alone, so that the sentence names its source
    own = merged([dict(source.document) for source in sources])
    ours = _validated(own, path or "configuration")
    kubelet, remark = kubelet_of_node(ours, Origins(sources), root)
    if kubelet is None and remark:
        asks = _EffectiveConfiguration(ours, Origins(sources), None).configuration()
        kubelet, remark = asked_of_kubelet(asks.kubelet_endpoint, asks.kubelet_place, remark)
    if kubelet is not None:
        inherited = inherited_from(kubelet)
        sources.insert(0, Source(kubelet.name, inherited))
        own = {**inherited, **own}
    written = _validated(own, path or "configuration")
    configuration = _EffectiveConfiguration(written, Origins(sources), kubelet).configuration()
    return replace(configuration, kubelet_remark=remark)


def _validated(document: Mapping[str, Any], name: str) -> ConfigurationFile:
    for field_name, problem in (*unfit_texts(document), *bare_numbers(document)):
        raise ConfigurationError(f"{name}: {field_name}: {problem}")
    try:
        return ConfigurationFile.model_validate(document)
    except ValidationError as error:
        raise ConfigurationError(first_problem(error, name, ConfigurationFile)) from None


class _EffectiveConfiguration:
    """Parses the texts of the merged sources; every error names the source of its text."""

    def __init__(self, written: ConfigurationFile, origins: Origins, kubelet: KubeletConfiguration | None):
        self._written = written
        self._origins = origins
        self._kubelet = kubelet

    def configuration(self) -> Configuration:
        written = self._written
        minimum_age, maximum_age = self._seconds("imageMinimumGCAge"), self._seconds("imageMaximumGCAge")
        high, low = written.imageGCHighThresholdPercent, written.imageGCLowThresholdPercent
        for problem in image_gc_problems(high, low, minimum_age, maximum_age):
            name, _, text = problem.partition(": ")
            raise self._origins.error(name, text)
        for name, problem in location_problems(written):
            raise self._origins.error(name, problem)
        self._check_keep_list()
        poll_floor, poll_ceiling = self._seconds("pollFloor"), self._seconds("pollCeiling")
        if not 0.001 <= poll_floor <= poll_ceiling:
            problem = f"must be at least 1ms and not above pollCeiling ({written.pollCeiling})"
            raise self._origins.error("pollFloor", problem)
        filesystems = own_filesystems(written, self._origins)
        has_runtime = written.containerRuntimeEndpoint != NO_RUNTIME
        if not has_runtime and written.periodicGC:
            raise self._origins.error("periodicGC", f"must be false while containerRuntimeEndpoint is {NO_RUNTIME}")
        if not has_runtime and not filesystems:
            problem = f"{NO_RUNTIME} needs at least one entry of filesystems, or there is nothing to watch"
            raise self._origins.error("containerRuntimeEndpoint", problem)
        roles = (*(KUBELET_ROLES if has_runtime else ()), *filesystems)
        functions = own_functions(written, self._origins, roles)
        signals = signals_of_node(roles)
        thresholds, left, maps = effective_thresholds(written, self._kubelet, self._origins, signals)
        return Configuration(
            root_directory=written.rootDirectory,
            runtime_endpoint=written.containerRuntimeEndpoint,
            image_endpoint=written.imageServiceEndpoint,
            thresholds=thresholds,
            transition_period_seconds=self._seconds("evictionPressureTransitionPeriod"),
            extent=Extent(written.extent),
            dry_run=written.dryRun,
            image_minimum_gc_age_seconds=minimum_age,
            image_maximum_gc_age_seconds=maximum_age,
            image_gc_high_threshold_percent=high,
            image_gc_low_threshold_percent=low,
            minimum_container_ttl_seconds=self._seconds("minimumContainerTTLDuration"),
            maximum_dead_containers_per_container=written.maximumDeadContainersPerContainer,
            maximum_dead_containers=written.maximumDeadContainers,
            periodic_gc=written.periodicGC,
            keep_images=tuple(written.keepImages),
            keep_newest_per_repository=written.keepNewestPerRepository,
            pod_logs_dir=written.podLogsDir,
            container_logs_dir=written.containerLogsDir,
            hold_off_seconds=self._seconds("holdOffAfterStart") if has_runtime else 0.0,
            pod_start_seconds=self._seconds_up_to("holdOffForNewPods", LONGEST_HOLD_OFF_FOR_NEW_PODS),
            kubelet_healthz=parse_healthz_endpoint(written.kubeletHealthzEndpoint),
            parallel_removals=written.parallelRemovals,
            removal_patience_seconds=self._seconds_from("removalPatience", SHORTEST_REMOVAL_PATIENCE),
            poll_floor_seconds=poll_floor,
            poll_ceiling_seconds=poll_ceiling,
            assumed_fill_rate=self._rate("assumedFillRate"),
            state_file=written.stateFile,
            history_file=written.historyFile,
            history_size_bytes=self._history_size(),
            lock_directory=written.lockDirectory,
            kubelet_endpoint=self._kubelet_endpoint(),
            kubelet_place=self._kubelet_place(),
            terminated_by_evidence=self._terminated_by_evidence(),
            terminated_pod_age_seconds=self._seconds_from("terminatedPodAge", SHORTEST_TERMINATED_POD_AGE),
            control_socket=written.controlSocket,
            metrics_address=written.metricsAddress,
            lead=self._lead(),
            kubernetes_events=written.kubernetesEvents,
            kubeconfig=written.kubeconfig,
            node_name=written.nodeName,
            filesystems=filesystems,
            functions=functions,
            rows=own_rows(written, self._origins, functions, roles),
            left_to_kubelet=left,
            kubelet=self._kubelet,
            effective={**as_written(written), **maps},
            origins=self._origin_of_each(maps),
        )

    def _lead(self) -> bool:
        """Whether passes may begin before their mark is reached."""
        lead = self._written.lead
        if lead not in (AUTO, NO_LEAD):
            raise self._origins.error("lead", f"must be {AUTO} or {NO_LEAD}, but it was {lead!r}")
        return lead == AUTO

    def _kubelet_endpoint(self) -> KubeletEndpoint | None:
        """The endpoint for requests to the kubelet; None without one."""
        written = self._written
        if written.kubeletEndpoint in ("", AUTO):
            for name in KUBELET_ENDPOINT_FIELDS.values():
                if getattr(written, name) and name != "kubeletEndpoint":
                    state = written.kubeletEndpoint or "empty"
                    raise self._origins.error(name, f"has no effect while kubeletEndpoint is {state}")
            return None
        fields = {attribute: getattr(written, name) for attribute, name in KUBELET_ENDPOINT_FIELDS.items()}
        try:
            return KubeletEndpoint(**fields)
        except KubeletEndpointError as error:
            # a missing field has no source: then the source of the endpoint is named
            name = KUBELET_ENDPOINT_FIELDS[error.field]
            where = self._origins.of(name if getattr(written, name) else "kubeletEndpoint")
            raise ConfigurationError(f"{where}: {name}: {error}") from None

    def _kubelet_place(self) -> KubeletPlace | None:
        """Where the kubelet is by its own configuration, if the way to ask it is to be found."""
        if self._written.kubeletEndpoint != AUTO:
            return None
        root, kubelet = self._written.rootDirectory, self._kubelet
        if kubelet is None:
            return KubeletPlace(root)
        return KubeletPlace(root, kubelet.address, kubelet.port, kubelet.read_only_port, kubelet.tls_cert_file)

    def _check_keep_list(self) -> None:
        try:
            parse_keep_list(self._written.keepImages)
        except PolicyError as error:
            raise ConfigurationError(f"{self._origins.of('keepImages')}: {error}") from None

    def _origin_of_each(self, maps: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
        kubelet = name_of(self._kubelet)
        rows = [str(signal) for signal in self._written.reclaimTable]
        whole = ConfigurationFile.model_fields.keys() - maps.keys() - {"reclaimTable"}
        origins = {name: self._origins.of(name) for name in ConfigurationFile.model_fields if name in whole}
        origins |= {f"reclaimTable.{name}": self._origins.of("reclaimTable", name) for name in rows}
        for name, entries in maps.items():
            for key, text in entries.items():
                own = self._origins.of(name, key)
                ours = key not in KUBELET_SIGNALS or DEFAULT_MINIMUM_RECLAIM.get(key) == text
                reclaimd = name == "evictionMinimumReclaim" and ours
                origins[f"{name}.{key}"] = own if own != DEFAULT or reclaimd else kubelet
        return origins

    def _seconds(self, name: str) -> float:
        text = getattr(self._written, name)
        try:
            seconds = parse_duration(text)
        except QuantityError as error:
            raise self._origins.error(name, str(error)) from None
        if seconds < 0:
            raise self._origins.error(name, f"must not be negative, but it was {text!r}")
        return seconds

    def _terminated_by_evidence(self) -> bool:
        """Whether pods count as terminated by what is seen of them; that needs the kubelet's health."""
        if self._written.terminatedPods != "evidence":
            return False
        if not self._written.kubeletHealthzEndpoint:
            raise self._origins.error("terminatedPods", "must be kubelet while kubeletHealthzEndpoint is empty")
        return True

    def _seconds_from(self, name: str, least: float) -> float:
        seconds = self._seconds(name)
        if seconds < least:
            text = getattr(self._written, name)
            raise self._origins.error(name, f"must be at least {least:g}s, but it was {text!r}")
        return seconds

    def _seconds_up_to(self, name: str, most: float) -> float:
        seconds = self._seconds(name)
        if seconds > most:
            raise self._origins.error(name, f"must be at most {most:g}s, but it was {getattr(self._written, name)!r}")
        return seconds

    def _history_size(self) -> int:
        text = self._written.historySize
        try:
            size_bytes = whole(parse_quantity(text))
        except QuantityError as error:
            raise self._origins.error("historySize", str(error)) from None
        if not SMALLEST_HISTORY_BYTES <= size_bytes <= LARGEST_HISTORY_BYTES:
            raise self._origins.error("historySize", f"must be between 1Mi and 1Gi, but it was {text!r}")
        return size_bytes

    def _rate(self, name: str) -> int:
        text = getattr(self._written, name)
        try:
            amount = whole(parse_quantity(text))
        except QuantityError as error:
            raise self._origins.error(name, str(error)) from None
        if amount <= 0:
            raise self._origins.error(name, f"must be above 0 bytes a second, but it was {text!r}")
        return amount
