"""The configuration file: its fields, their types, their defaults, and which of them need a restart.

A field of the model is named for its value, which other modules use; its alias is its name in the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, TypeVar

from eviction.configuration import text_forms as texts
from eviction.configuration.functions import (
    NO_RUNTIME,
    FilesystemEntry,
    FunctionEntry,
    RowEntryForms,
    RowEntryText,
    read_filesystems,
    signals_of_node,
)
from eviction.configuration.models import ConfigDict, read_as, setting
from eviction.configuration.sources import KIND
from eviction.configuration.strict_yaml import StrictModel
from eviction.types import API_VERSION
from signals.types import KUBELET_ROLES, FilesystemRole, Signal

__all__ = ["ConfigurationFile", "FilesystemEntry", "FunctionEntry", "RowEntryText"]

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class UsedAtStart:
    """The mark of a value that a daemon uses once, at its start. `field`: the field to name, if it is another one."""

    field: str = ""


NeedsRestart = Annotated[Value, UsedAtStart()]


def _as_in_a_file(schema: texts.Schema) -> None:
    """What holds for a file beyond the model: it says what it is, and any of its values may be null."""
    properties = schema["properties"]
    for name, value in (("apiVersion", API_VERSION), ("kind", KIND)):
        properties[name] = {"const": value, **properties[name]}
    for name in properties.keys() - {"apiVersion", "kind"}:
        properties[name] = texts.or_null(properties[name])
    schema["required"] = ["apiVersion", "kind"]


class ConfigurationFile(StrictModel):
    """The file as written. Unknown fields and wrong types are refused."""

    model_config = ConfigDict(title=KIND, json_schema_extra=_as_in_a_file, validate_default=True)

    api_version: str = setting("apiVersion", API_VERSION)
    """The version of this format."""
    kind: str = setting("kind", KIND)
    """What the file is."""
    kubelet_config: str | None = setting("kubeletConfig", None)
    """The kubelet's configuration, read only. Null: as its command line says, else the usual file, where it exists.
    Empty: none."""
    kubelet_config_dir: str = setting("kubeletConfigDir", "")
    """Its drop-in directory."""
    root_directory: NeedsRestart[texts.Directory] = setting("rootDirectory", "/var/lib/kubelet")
    """The kubelet's root directory; nodefs is the filesystem it is on."""
    pod_logs_dir: NeedsRestart[texts.LogDirectory] = setting("podLogsDir", "/var/log/pods")
    """Where the kubelet keeps the logs of pods. A symlink in its place is not followed."""
    container_logs_dir: NeedsRestart[texts.LogDirectory] = setting("containerLogsDir", "/var/log/containers")
    """Where the symlinks to the logs of containers are."""
    runtime_endpoint: NeedsRestart[str] = setting("containerRuntimeEndpoint", "")
    """The runtime's socket: unix:///path. Empty: the first of the usual sockets that exists. none: there is no runtime
    on this machine."""
    image_endpoint: NeedsRestart[str] = setting("imageServiceEndpoint", "")
    """The socket of the image service, where it is another one."""
    kubelet_url: str = setting("kubeletEndpoint", "")
    """Where the kubelet is asked for its pods, such as https://127.0.0.1:10250; auto: found by itself; empty: not
    asked."""
    kubelet_token_file: texts.AbsolutePathOrEmpty = setting("kubeletTokenFile", "")
    """The bearer token for the kubelet."""
    kubelet_certificate_file: texts.AbsolutePathOrEmpty = setting("kubeletCertificateFile", "")
    """The client certificate for the kubelet, in PEM."""
    kubelet_key_file: texts.AbsolutePathOrEmpty = setting("kubeletKeyFile", "")
    """Its key; empty where it is in the same file."""
    kubelet_ca_file: texts.AbsolutePathOrEmpty = setting("kubeletCAFile", "")
    """The authorities whose certificates the kubelet may show, in PEM."""
    kubelet_server_name: str = setting("kubeletServerName", "")
    """The name in the kubelet's certificate, where that is not the address."""
    kubelet_insecure_skip_verify: bool = setting("kubeletInsecureSkipVerify", False)
    """True: whoever listens at that address is believed, and gets the token."""
    terminated_pods: NeedsRestart[Literal["kubelet", "evidence"]] = setting("terminatedPods", "kubelet")
    """How it is known that a pod which still exists has terminated: by the kubelet's word alone, or also by what was
    seen for terminatedPodAge."""
    terminated_pod_age_seconds: NeedsRestart[texts.TerminatedPodAge] = setting("terminatedPodAge", "10m")
    """For how long that must have been seen; at least 10s."""
    margin: texts.Margin = setting("margin", "5%")
    """How far above the inherited marks reclaimd acts: 0% to 50% of the capacity, or bytes with a unit (5Gi), which
    raise the available signals only."""
    eviction_hard: texts.Marks = setting("evictionHard", dict)
    """Signal -> mark, in place of the inherited one and without the margin. 0% switches a signal off."""
    eviction_soft: texts.Marks = setting("evictionSoft", dict)
    """Signal -> mark that acts after a grace period; needs one in evictionSoftGracePeriod."""
    eviction_soft_grace_period: texts.GracePeriods = setting("evictionSoftGracePeriod", dict)
    """Signal -> how long its soft mark must have been crossed."""
    eviction_minimum_reclaim: texts.Marks = setting("evictionMinimumReclaim", dict)
    """Signal -> how far above its mark it must rise before relief is declared; 2% where nothing else is said of an
    available signal."""
    transition_period_seconds: texts.Seconds = setting("evictionPressureTransitionPeriod", "5m")
    """How long DiskPressure is reported after it was last seen. 0s counts as not set."""
    extent: texts.HowFar = setting("extent", "enough")
    """enough: a pass stops when the thresholds are clear. all: it goes to the end of the row, as the kubelet does."""
    dry_run: bool = setting("dryRun", False)
    """True: everything but removals."""
    image_minimum_gc_age_seconds: texts.Seconds = setting("imageMinimumGCAge", "2m")
    """How long an image must have been known before it may go."""
    image_maximum_gc_age_seconds: texts.Seconds = setting("imageMaximumGCAge", "0s")
    """How long an image may stay unused before the periodic collection takes it; 0s: for ever."""
    image_gc_high_threshold_percent: int = setting("imageGCHighThresholdPercent", 85, ge=0, le=100)
    """Of the periodic image collection, in percent of the disk used: it begins there. 100: never."""
    image_gc_low_threshold_percent: int = setting("imageGCLowThresholdPercent", 80, ge=0, le=100)
    """It ends there; below imageGCHighThresholdPercent."""
    minimum_container_ttl_seconds: texts.Seconds = setting("minimumContainerTTLDuration", "0s")
    """How old a dead container must be to go, counted from its creation."""
    maximum_dead_containers_per_container: int = setting("maximumDeadContainersPerContainer", 1)
    """How many dead copies of each container stay; negative: all."""
    maximum_dead_containers: int = setting("maximumDeadContainers", -1)
    """How many dead containers stay on the node; negative: no limit."""
    periodic_gc: NeedsRestart[bool] = setting("periodicGC", False)
    """True: the kubelet's own periodic loops too; for a machine on which no kubelet runs them."""
    keep_images: texts.Texts = setting("keepImages", list)
    """Images that always stay: references, repositories, digests, globs."""
    keep_newest_per_repository: int = setting("keepNewestPerRepository", 0, ge=0)
    """How many images of each repository always stay, the newest ones. 0: none."""
    hold_off_seconds: NeedsRestart[texts.Seconds] = setting("holdOffAfterStart", "5m")
    """Nothing is removed for so long after a start, unless the kubelet answers healthy before."""
    kubelet_healthz: NeedsRestart[texts.HealthzEndpoint] = setting("kubeletHealthzEndpoint", "127.0.0.1:10248")
    """Where the kubelet's /healthz is asked: address and port, or unix:///path; empty: nowhere."""
    pod_start_seconds: texts.PodStart = setting("holdOffForNewPods", "1s")
    """No image goes for so long after a pod began: 0s to 10s."""
    parallel_removals: int = setting("parallelRemovals", 2, ge=1, le=64)
    """Removals side by side."""
    removal_patience_seconds: texts.Patience = setting("removalPatience", "30s")
    """How long a removal that was sent is waited for before the pass goes on without it; at least 500ms."""
    lead: texts.LeadOrNone = setting("lead", "auto")
    """auto: a pass begins before its mark is reached, where removals have lately taken longer than there is time until
    the kubelet's; 0s: never."""
    poll_floor_seconds: texts.Seconds = setting("pollFloor", "10ms")
    """The shortest time between two observations; at least 1ms, and not above pollCeiling."""
    poll_ceiling_seconds: texts.Seconds = setting("pollCeiling", "10s")
    """The longest time between two observations."""
    assumed_fill_rate: texts.Rate = setting("assumedFillRate", "500Mi")
    """Bytes a second that a fill may always have."""
    state_file: NeedsRestart[texts.PathOrEmpty] = setting("stateFile", "/var/lib/reclaimd/images.json")
    """When each image was first seen and last used. Empty: nowhere."""
    history_file: NeedsRestart[texts.PathOrEmpty] = setting("historyFile", "/var/lib/reclaimd/history")
    """Every pass and every removal of the last weeks. Empty: no history."""
    history_size_bytes: NeedsRestart[texts.HistorySize] = setting("historySize", "16Mi")
    """Bytes of that file, allocated at the start: 1Mi to 1Gi."""
    lock_directory: NeedsRestart[texts.Directory] = setting("lockDirectory", "/run/reclaimd/lock")
    """A directory of mode 0700 that the one instance of the node locks."""
    control_socket: NeedsRestart[texts.PathOrEmpty] = setting("controlSocket", "/run/reclaimd/control.sock")
    """Where commands ask the daemon. Empty: nowhere."""
    metrics_address: NeedsRestart[texts.Address] = setting("metricsAddress", "127.0.0.1:9746")
    """Where metrics and health are served: an address of this machine and a port. Empty: nowhere."""
    filesystems: NeedsRestart[
        Annotated[Mapping[FilesystemRole, str], read_as(list[FilesystemEntry], read_filesystems)]
    ] = setting("filesystems", list, json_schema_extra={"maxItems": 8})
    """Filesystems of your own, beside the kubelet's."""
    functions: NeedsRestart[Annotated[tuple[FunctionEntry, ...], read_as(list[FunctionEntry], tuple)]] = setting(
        "reclaimFunctions", list
    )
    """Functions of your own, off until a row of reclaimTable names them."""
    reclaim_table: Annotated[dict[str, list[RowEntryForms]], texts.map_by_signal()] = setting("reclaimTable", dict)
    """Signal -> functions, in order. A signal that is not named keeps its built-in row."""
    kubernetes_events: NeedsRestart[bool] = setting("kubernetesEvents", False)
    """True: events go to the API server too, not only to the log."""
    kubeconfig: NeedsRestart[texts.PathOrEmpty] = setting("kubeconfig", "")
    """Who asks the API server; empty: the pod's service account."""
    node_name: NeedsRestart[texts.NodeName] = setting("nodeName", "")
    """The name of the Node in events; empty: $NODE_NAME, else the host's name."""

    @property
    def has_runtime(self) -> bool:
        """Whether there is a container runtime on this machine, and so a kubelet's filesystems."""
        return self.runtime_endpoint != NO_RUNTIME

    @property
    def terminated_by_evidence(self) -> bool:
        """Whether pods count as terminated by what is seen of them."""
        return self.terminated_pods == "evidence"

    @property
    def roles(self) -> tuple[FilesystemRole, ...]:
        """The filesystems of the node, the kubelet's first."""
        return (*(KUBELET_ROLES if self.has_runtime else ()), *self.filesystems)

    @property
    def signals(self) -> tuple[Signal, ...]:
        """All signals that the node can have, the kubelet's first."""
        return signals_of_node(self.roles)


FIELDS = {field.alias or name: field for name, field in ConfigurationFile.model_fields.items()}
"""The fields by their names in a file."""
