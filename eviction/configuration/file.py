"""The configuration file: its fields, their types, their defaults, and which of them need a restart.

A field of the model is named for its value, which other modules use; its alias is its name in the file. Does not cover:
what has to agree with another field (`effective`), whether a program, a plugin or a filesystem is there (`doctor`), and
what the functions do (`reclaim`).
"""

from __future__ import annotations

import posixpath
import pwd
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

from eviction.configuration import text_forms as texts
from eviction.configuration.models import ConfigDict, Discriminator, Field, Tag, model_validator, read_as, setting
from eviction.configuration.strict_yaml import StrictModel, quoted
from eviction.configuration.threshold_config import LEFT_TO_KUBELET
from eviction.types import API_VERSION
from reclaim.types import DELETE_ALL_UNUSED_CONTAINERS, DELETE_UNUSED_IMAGES
from signals.types import (
    AVAILABLE,
    KUBELET_ROLES,
    KUBELET_SIGNALS,
    ROLE_NAME,
    ROLE_NAMES_ALLOWED,
    FilesystemRole,
    Signal,
    signals_about,
)

KIND = "ReclaimdConfiguration"
NO_RUNTIME = "none"  # of containerRuntimeEndpoint: there is no runtime on this machine
MOST_FILESYSTEMS = 8  # each is polled, and is a value of metrics' labels
BUILT_IN = (DELETE_ALL_UNUSED_CONTAINERS, DELETE_UNUSED_IMAGES)
FUNCTION_NAME = "[A-Za-z][A-Za-z0-9_.-]{0,62}"
FUNCTION_NAMES_ALLOWED = "a letter, and up to 62 letters, digits, underscores, dots and hyphens"

Value = TypeVar("Value")


class FilesystemEntry(StrictModel):
    """A filesystem of `filesystems`."""

    name: str = Field(json_schema_extra={"pattern": f"^{ROLE_NAME.pattern}$"})
    """Its signals are NAME.available and NAME.inodesFree. None of the kubelet's names."""
    path: texts.AbsolutePath
    """A directory on it."""


def read_filesystems(entries: Sequence[FilesystemEntry]) -> dict[FilesystemRole, str]:
    """The paths of the filesystems, by role. Raises ValueError."""
    found: dict[FilesystemRole, str] = {}
    for entry in entries:
        if not ROLE_NAME.fullmatch(entry.name):
            raise ValueError(f"name: must be {ROLE_NAMES_ALLOWED}, but it was {quoted(entry.name)}")
        if entry.name in KUBELET_ROLES or f"{entry.name}.{AVAILABLE}" in LEFT_TO_KUBELET:
            raise ValueError(f"{entry.name}: is the kubelet's own name; another one is needed")
        role = FilesystemRole(entry.name)
        if role in found:
            raise ValueError(f"{entry.name}: occurs twice")
        if not entry.path.startswith("/"):
            raise ValueError(f"{role}: path must be absolute, but it was {quoted(entry.path)}")
        found[role] = posixpath.normpath(entry.path)
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


_read_timeout = texts.within(texts.read_duration, "1s", "10m")


def _read_options(options: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(options.items())


def _read_keep(keep: int) -> int:
    if keep < 0:
        raise ValueError(f"must not be negative, but it was {keep}")
    return keep


def _read_role(name: str) -> str:
    return FilesystemRole(name) if ROLE_NAME.fullmatch(name) else name  # what is none is refused beside the others


ballast_size = texts.within(texts.read_size, "1Mi")
"""The size of ballast in bytes. Raises ValueError."""


def ballast_path(text: str) -> str:
    """The path of the file of ballast, without //, . and .. . Raises ValueError."""
    if not text.startswith("/") or text.endswith("/"):
        raise ValueError(f"must be the absolute path of a file, but it was {quoted(text)}")
    return posixpath.normpath(text)


class FunctionEntry(StrictModel):
    """A function of `reclaimFunctions`. Which fields it needs depends on what it is (`functions`)."""

    name: Annotated[str, read_as(str, texts.matching(FUNCTION_NAME, FUNCTION_NAMES_ALLOWED))]
    """ReleaseBallast (needs file and size), DeleteRotatedLogs, CollectContainerdGarbage, or a name of your own, with
    exec or plugin."""
    argv: Annotated[tuple[str, ...], read_as(list[str], _read_argv)] = setting("exec", ())
    """A program: its absolute path and its arguments. There is no shell. Needs frees."""
    user: Annotated[User | None, read_as(str, _read_user)] = setting("user")
    """Whom the program runs as; left out: as reclaimd."""
    asks_plan: bool = setting("plan", True)
    """False: a dry run does not start the program, as it ignores the argument `plan`."""
    timeout_seconds: Annotated[float, read_as(texts.Duration, _read_timeout)] = setting("timeout", 0.0)
    """After so long the program gets TERM, and KILL for its whole process group: 1s to 10m."""
    distribution: str = setting("plugin", "")
    """A Python distribution that has the function as an entry point. Needs frees."""
    entry_point: str = setting("entryPoint", "")
    """The name of that entry point; left out: the name of the function."""
    options: Annotated[tuple[tuple[str, Any], ...], read_as(dict[str, Any], _read_options)] = setting("options", ())
    """Of the plugin."""
    path: Annotated[str, read_as(texts.AbsolutePath, ballast_path)] = setting("file", "")
    """The ballast."""
    size_bytes: Annotated[int, read_as(texts.Quantity, ballast_size)] = setting("size", 0)
    """Of the ballast, in bytes: at least 1Mi."""
    keep: Annotated[int, read_as(int, _read_keep)] = setting("keep", 1, json_schema_extra={"minimum": 0})
    """How many rotated logs of each container stay."""
    frees: Annotated[FilesystemRole, read_as(str, _read_role)] = setting("frees", "")
    """The filesystem on which it frees: nodefs, imagefs, containerfs, or one of `filesystems`."""
    cooldown_seconds: Annotated[float, read_as(texts.Duration, texts.read_duration)] = setting("cooldown", 0.0)
    """How long it rests after a call."""

    @property
    def kind(self) -> FunctionKind:
        """What it is."""
        return _kind_of(self.name, program=bool(self.argv))

    @model_validator(mode="wrap")
    @classmethod
    def _of_its_kind(cls, entry: Any, validated: Callable[[Any], FunctionEntry]) -> FunctionEntry:
        """The entry with the defaults of its kind. Raises ValueError for a field that its kind has not, or lacks."""
        if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str):
            return validated(entry)
        fields = [field.alias for field in cls.model_fields.values() if field.alias]
        given = [name for name in fields if entry.get(name) is not None]
        kind = KINDS[_kind_of(entry["name"], program="exec" in given)]
        defaults = {"frees": kind.frees, "timeout": kind.timeout, "entryPoint": entry["name"]}
        left_out = {name for name in defaults if entry.get(name) is None or (entry[name] == "" and name != "timeout")}
        written = {name: value for name, value in entry.items() if value is not None or name not in fields}
        function = validated({**written, **{name: defaults[name] for name in left_out}})
        _check_fields(function, given)
        return function


def _kind_of(name: str, *, program: bool) -> FunctionKind:
    by_name = next((kind for kind in FunctionKind if kind == name), None)
    return by_name or (FunctionKind.PROGRAM if program else FunctionKind.PLUGIN)


def _check_fields(function: FunctionEntry, given: Sequence[str]) -> None:
    """Raises ValueError for a function that has not the fields of its kind. `given`: its fields beside the name."""
    if function.name in BUILT_IN:
        raise ValueError("is built in; it needs no entry")
    if function.kind != function.name and ("exec" in given) == ("plugin" in given):
        both = "both were given" if "exec" in given else "neither was given"
        built_in = ", ".join((FunctionKind.BALLAST, FunctionKind.ROTATED_LOGS, FunctionKind.CONTAINERD_GARBAGE))
        raise ValueError(f"must have either exec or plugin, but {both}; functions without are {built_in}")
    kind = KINDS[function.kind]
    allowed = dict.fromkeys((*kind.needed, *kind.allowed, "frees", "cooldown"))
    for field in given:
        if field not in allowed:
            raise ValueError(f"{field}: is no field of such a function; allowed are {', '.join(allowed)}")
    for field in kind.needed:
        if field not in given:
            raise ValueError(f"{field} is missing")


class RowEntryText(StrictModel):
    """An entry of a row of `reclaimTable` that has more than a name."""

    function: str
    """The name of the function."""
    below: texts.QuantityOrPercentage | None = None
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


@dataclass(frozen=True, slots=True)
class UsedAtStart:
    """The mark of a value that a daemon uses once, at its start. `field`: the field to name, if it is another one."""

    field: str = ""


NeedsRestart = Annotated[Value, UsedAtStart()]


class ConfigurationFile(StrictModel):
    """The file as written. Unknown fields and wrong types are refused."""

    model_config = ConfigDict(title=KIND, validate_default=True)

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
        own = [signal for role in self.filesystems for signal in signals_about(role)]
        return (*(KUBELET_SIGNALS if self.has_runtime else ()), *own)

    @property
    def ballast(self) -> FunctionEntry | None:
        """The function that releases the ballast; None where none is configured."""
        return next((each for each in self.functions if each.kind is FunctionKind.BALLAST), None)


FIELDS = {field.alias or name: field for name, field in ConfigurationFile.model_fields.items()}
"""The fields by their names in a file."""
