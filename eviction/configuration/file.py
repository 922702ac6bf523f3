"""The configuration file: its fields, their types and defaults, and which need a restart.

Other modules use the attributes of the models. Does not cover: checks of one field against another
(`effective`), whether a program or a filesystem exists (`doctor`), and what the functions do
(`reclaim`).
"""

from __future__ import annotations

import posixpath
import pwd
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Annotated, Any, NamedTuple, TypeVar

from pydantic import ConfigDict, Discriminator, Field, Tag, model_validator

from eviction.configuration import text_forms as texts
from eviction.configuration.models import read_as, setting
from eviction.configuration.strict_yaml import StrictModel, quoted
from eviction.configuration.threshold_config import LEFT_TO_KUBELET, read_margin, read_percent
from eviction.decision.reclaim_table import BUILT_IN, RowEntry
from eviction.types import API_VERSION, Fields, ThresholdValue
from reclaim.images.keep_list import KeepList, parse_keep_list
from signals.types import (
    AVAILABLE,
    KUBELET_ROLES,
    KUBELET_SIGNALS,
    ROLE_NAME,
    FilesystemRole,
    Signal,
    signals_about,
)

KIND = "ReclaimdConfiguration"
NO_RUNTIME = "none"  # of containerRuntimeEndpoint: this machine has no runtime
AUTO = "auto"  # of kubeletEndpoint: find the way
# 20Gi hold what a fast NVMe disk writes (4 GiB/s) in the 5 s in which removals must help, or two of
# the largest steps of XFS; from 400 GiB on, 5 % are more, and keep space empty that nothing needs.
MARGIN = {"percent": "5%", "atMost": "20Gi"}
MOST_FILESYSTEMS = 8  # each is polled, and is one more value of the metrics' labels
MOST_FUNCTIONS = 29  # with the three built-in ones 32 values of a metric's label

_ASK_THE_KUBELET = (
    "use kubeletEndpoint: auto with the kubelet's pods socket (from Kubernetes 1.37), or an address"
    " with kubeletTokenFile"
)
GONE_FIELDS: Mapping[str, str] = {
    "plugin": "use a program (exec) that answers `plan` with names and sizes",
    "terminatedPods": _ASK_THE_KUBELET,
    "terminatedPodAge": _ASK_THE_KUBELET,
    "imageStoreLimit": (
        "use a filesystem of its own for images with imagefs.available marks, or imageMaximumGCAge"
    ),
}
"""A field that an earlier version had, at any depth -> what to use instead, as a clause."""

Value = TypeVar("Value")


class FilesystemEntry(StrictModel):
    """A filesystem of `filesystems`."""

    name: Annotated[FilesystemRole, read_as(str, FilesystemRole)] = Field(
        json_schema_extra={"pattern": f"^{ROLE_NAME.pattern}$"}
    )
    """Its signals are NAME.available and NAME.inodesFree.

    The kubelet's own names are not allowed.
    """
    path: texts.Directory
    """A directory on it."""


def _refuse_twice(names: Sequence[str]) -> None:
    """Raises ValueError for a name that occurs twice."""
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{name}: occurs twice")


def read_filesystems(entries: Sequence[FilesystemEntry]) -> dict[FilesystemRole, str]:
    """The paths of the filesystems, by role. Raises ValueError."""
    names = [entry.name for entry in entries]
    for name in names:
        if name in KUBELET_ROLES or f"{name}.{AVAILABLE}" in LEFT_TO_KUBELET:
            raise ValueError(f"{name}: has a meaning of its own; choose another name")
    _refuse_twice(names)
    return {entry.name: posixpath.normpath(entry.path) for entry in entries}


class FunctionKind(StrEnum):
    """The kind of a configured function: its name, or the field that tells the kind."""

    BALLAST = "ReleaseBallast"
    ROTATED_LOGS = "DeleteRotatedLogs"
    CONTAINERD_GARBAGE = "CollectContainerdGarbage"
    CACHES = "DeleteFromCaches"
    CHECKPOINTS = "DeleteCheckpoints"
    PROGRAM = "exec"

    @classmethod
    def _missing_(cls, _: object) -> FunctionKind:
        return cls.PROGRAM


class _Kind(NamedTuple):
    """The fields of a kind besides `name`, `frees` and `cooldown`, and its defaults."""

    needed: tuple[str, ...]
    allowed: tuple[str, ...]
    defaults: Fields


_ON_NODEFS = {"frees": FilesystemRole.NODEFS}
KINDS: Mapping[FunctionKind, _Kind] = {
    FunctionKind.BALLAST: _Kind(("file", "size"), (), _ON_NODEFS),
    FunctionKind.ROTATED_LOGS: _Kind((), ("keep",), _ON_NODEFS),
    FunctionKind.CONTAINERD_GARBAGE: _Kind(
        (), ("timeout",), {"frees": FilesystemRole.IMAGEFS, "timeout": "60s"}
    ),
    FunctionKind.CACHES: _Kind(
        ("caches",), ("minAge", "keep", "maxSize"), {"minAge": "1h", "keep": [], **_ON_NODEFS}
    ),
    FunctionKind.CHECKPOINTS: _Kind((), ("minAge", "keep"), {"minAge": "24h", **_ON_NODEFS}),
    FunctionKind.PROGRAM: _Kind(("exec", "frees"), ("user", "timeout", "plan"), {}),
}


def _read_user(name: str) -> tuple[int, int]:
    """The ids of a user and of its group. Raises ValueError."""
    try:
        user = pwd.getpwnam(name)
    except KeyError:
        raise ValueError(f"there is no user {quoted(name)} on this machine") from None
    return user.pw_uid, user.pw_gid


def _read_argv(argv: list[str]) -> tuple[str, ...]:
    if not (argv and argv[0].startswith("/")):
        raise ValueError(f"must begin with an absolute path, but it was {quoted(argv)}")
    return tuple(argv)


_read_timeout = texts.within(texts.read_duration, "1s", "10m")


ballast_size = texts.within(texts.read_size, "1Mi")
"""The size of the ballast in bytes. Raises ValueError."""


def ballast_path(text: str) -> str:
    """The normalized path of the ballast file. Raises ValueError."""
    if not text.startswith("/") or text.endswith("/"):
        raise ValueError(f"must be the absolute path of a file, but it was {quoted(text)}")
    return posixpath.normpath(text)


def _read_caches(paths: list[str]) -> tuple[str, ...]:
    """Directories in which caches are looked for. Raises ValueError."""
    found = tuple(posixpath.normpath(texts.read_path(path)) for path in paths)
    _refuse_twice(list(found))
    if not found or "/" in found:
        raise ValueError(f"must name at least one directory, and not /, but it was {quoted(paths)}")
    return found


KeepForms = Annotated[
    Annotated[int, Field(ge=0), Tag("<number>")] | Annotated[list[str], Tag("<patterns>")],
    Discriminator(
        lambda keep: {int: "<number>", list: "<patterns>"}.get(type(keep)),
        custom_error_type="keep",
        custom_error_message="must be a number, or a list of patterns",
    ),
]
"""What is kept: so many, or what fits these patterns."""


def kind_of(name: str, *, has_caches: bool) -> FunctionKind:
    """The kind of a function: its name tells it, or else whether it has caches."""
    kind = FunctionKind(name)
    return FunctionKind.CACHES if has_caches and kind is FunctionKind.PROGRAM else kind


def _read_functions(entries: Sequence[FunctionEntry]) -> tuple[FunctionEntry, ...]:
    _refuse_twice([entry.name for entry in entries])
    return tuple(entries)


class FunctionEntry(StrictModel):
    """A function of `reclaimFunctions`.

    Its kind decides which fields it needs and which are allowed.
    """

    name: Annotated[
        str,
        read_as(
            str,
            texts.matching(
                "[A-Za-z][A-Za-z0-9_.-]{0,62}",
                "a letter, and up to 62 letters, digits, underscores, dots and hyphens",
            ),
        ),
    ]
    """ReleaseBallast (needs file and size), DeleteRotatedLogs, DeleteFromCaches (needs caches),
    DeleteCheckpoints, CollectContainerdGarbage, or a name of your own together with exec or caches.
    """
    argv: Annotated[tuple[str, ...], read_as(list[str], _read_argv)] = setting((), "exec")
    """A program: its absolute path and its arguments, run without a shell. Needs frees."""
    user: Annotated[tuple[int, int] | None, read_as(str, _read_user)] = None
    """The user that the program runs as. Default: reclaimd's own."""
    asks_plan: bool = setting(True, "plan")
    """False: a dry run does not start the program; for one that ignores the argument `plan`."""
    timeout_seconds: Annotated[float, read_as(texts.Duration, _read_timeout)] = 30.0
    """How long a call may take, 1s to 10m.

    Then the program gets TERM, and its whole process group KILL.
    """
    path: Annotated[str, read_as(texts.AbsolutePath, ballast_path)] = setting("", "file")
    """The path of the ballast file."""
    size_bytes: Annotated[int, read_as(texts.Quantity, ballast_size)] = 0
    """The size of the ballast: at least 1Mi."""
    keep: Annotated[
        int | tuple[str, ...],
        read_as(KeepForms, lambda keep: keep if isinstance(keep, int) else tuple(keep)),
    ] = 1
    """How many rotated logs, or checkpoints, to keep of each container; of caches, the patterns of
    what is kept: of a unit's name, or of its path below its directory of `caches`."""
    caches: Annotated[tuple[str, ...], read_as(list[texts.AbsolutePath], _read_caches)] = ()
    """Directories below which those with a `CACHEDIR.TAG` are caches, which it removes from."""
    min_age_seconds: Annotated[float, read_as(texts.Duration, texts.read_duration)] = 0.0
    """How long a part of a cache has not been used, or a checkpoint neither written nor read."""
    max_size_bytes: Annotated[int, read_as(texts.Quantity, texts.read_size)] = 0
    """How much all caches below one directory may hold: what is over it goes first. 0: any."""
    frees: Annotated[FilesystemRole, read_as(str, FilesystemRole)] = setting("")
    """The filesystem on which it frees space: nodefs, imagefs, containerfs, or one of
    `filesystems`.
    """
    cooldown_seconds: Annotated[float, read_as(texts.Duration, texts.read_duration)] = 0.0
    """How long it is not called again after a call."""

    @property
    def kind(self) -> FunctionKind:
        return kind_of(self.name, has_caches=bool(self.caches))

    @model_validator(mode="wrap")
    @classmethod
    def _of_its_kind(cls, entry: Any, validated: Callable[[Any], FunctionEntry]) -> FunctionEntry:
        """The entry with the defaults of its kind.

        Raises ValueError for a field that its kind lacks or does not allow.
        """
        if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str):
            return validated(entry)
        kind = KINDS[kind_of(entry["name"], has_caches="caches" in entry)]
        function = validated({**kind.defaults, **entry})
        if function.name in BUILT_IN:
            raise ValueError("is built in; it needs no entry")
        allowed = dict.fromkeys((*kind.needed, *kind.allowed, "frees", "cooldown"))
        for field in kind.needed:
            if field not in entry:
                raise ValueError(
                    "must have exec or caches; only ReleaseBallast, DeleteRotatedLogs,"
                    " DeleteCheckpoints and CollectContainerdGarbage have neither"
                    if field == "exec"
                    else f"{field} is missing"
                )
        for field in entry:
            if field not in ("name", *allowed):
                raise ValueError(
                    f"{field}: is not a field of this kind of function; allowed are"
                    f" {', '.join(allowed)}"
                )
        if isinstance(function.keep, int) is (kind is KINDS[FunctionKind.CACHES]):
            form = "a list of patterns" if isinstance(function.keep, int) else "a number"
            raise ValueError(f"keep: must be {form} here, but it was {quoted(entry['keep'])}")
        return function


class BoundedMargin(StrictModel):
    """A margin that is a share of the capacity, but at most so many bytes."""

    percent: Annotated[ThresholdValue, read_as(texts.Percent, read_percent)] = setting(
        MARGIN["percent"], validate_default=True
    )
    """The share: 0% to 50%."""
    at_most: Annotated[int, read_as(texts.Quantity, texts.within(texts.read_size, "1Mi"))] = (
        setting(MARGIN["atMost"], validate_default=True)
    )
    """The bound for the marks of the available signals: at least 1Mi."""


def _read_margin(written: str | BoundedMargin) -> ThresholdValue:
    """The margin. Raises ValueError."""
    if isinstance(written, str):
        return read_margin(written)
    return replace(written.percent, at_most=written.at_most)


class RowEntryText(StrictModel):
    """An entry of a row of `reclaimTable` that is more than a name."""

    function: str
    """The name of the function."""
    below: texts.Mark | None = None
    """The function is called only while the signal is below this mark."""


def _form(entry: Any) -> str | None:
    if isinstance(entry, str):
        return "<name>"
    return "<entry>" if isinstance(entry, dict | StrictModel) else None


RowEntryForms = Annotated[
    Annotated[str, Tag("<name>")] | Annotated[RowEntryText, Tag("<entry>")],
    Discriminator(
        _form,
        custom_error_type="row_entry",
        custom_error_message="must be a function's name, or function and below",
    ),
]
"""An entry of a row.

`strict_yaml.sentence_about` leaves tags in angle brackets out of the names of fields.
"""


MarginForms = Annotated[
    Annotated[texts.Amount, Tag("<name>")] | Annotated[BoundedMargin, Tag("<entry>")],
    Discriminator(
        _form,
        custom_error_type="margin",
        custom_error_message="must be a quantity, a percentage, or percent and atMost",
    ),
]
"""A margin: an amount, or a share with a bound."""


def _read_row(entries: Sequence[str | RowEntryText]) -> tuple[RowEntry, ...]:
    row = [
        RowEntry(entry) if isinstance(entry, str) else RowEntry(entry.function, entry.below)
        for entry in entries
    ]
    _refuse_twice([entry.function for entry in row])
    return tuple(row)


USED_AT_START = "used only at startup"  # marks a field
NeedsRestart = Annotated[Value, USED_AT_START]
_RuntimeEndpoint = Annotated[
    str, read_as(str, lambda text: text if text == NO_RUNTIME else texts.read_endpoint(text))
]
_Row = Annotated[tuple[RowEntry, ...], read_as(list[RowEntryForms], _read_row)]
_Entries = Annotated[list[FilesystemEntry], Field(max_length=MOST_FILESYSTEMS)]
_Functions = Annotated[list[FunctionEntry], Field(max_length=MOST_FUNCTIONS)]


class ConfigurationFile(StrictModel):
    """The file as written. Unknown fields and wrong types are rejected."""

    model_config = ConfigDict(title=KIND, validate_default=True)

    api_version: str = API_VERSION
    """The version of this format."""
    kind: str = KIND
    """What the file is."""
    kubelet_config: str | None = None
    """The kubelet's configuration file, only read. Null: the file that the kubelet's command line
    names, else the usual one if it exists. Empty: none."""
    kubelet_config_dir: str = ""
    """The kubelet's drop-in directory."""
    root_directory: NeedsRestart[texts.Directory] = "/var/lib/kubelet"
    """The kubelet's root directory; nodefs is the filesystem it is on."""
    pod_logs_dir: NeedsRestart[texts.LogDirectory] = "/var/log/pods"
    """Where the kubelet keeps the logs of pods. Not followed if it is a symlink."""
    container_logs_dir: NeedsRestart[texts.LogDirectory] = "/var/log/containers"
    """Where the symlinks to container logs are."""
    runtime_endpoint: NeedsRestart[_RuntimeEndpoint] = setting("", "containerRuntimeEndpoint")
    """The runtime's socket: unix:///path. Empty: the first of the usual sockets that exists. none:
    this machine has no runtime."""
    image_endpoint: NeedsRestart[texts.Endpoint] = setting("", "imageServiceEndpoint")
    """The image service's socket. Empty: the runtime's."""
    kubelet_url: str = setting(AUTO, "kubeletEndpoint")
    """Where to ask the kubelet for its pods, such as https://127.0.0.1:10250. auto: find the way
    automatically. Empty: do not ask."""
    kubelet_token_file: texts.PathOrEmpty = ""
    """The file with the bearer token for the kubelet."""
    kubelet_certificate_file: texts.PathOrEmpty = ""
    """The file with the client certificate for the kubelet, in PEM."""
    kubelet_key_file: texts.PathOrEmpty = ""
    """The file with the key of that certificate. Empty: the key is in the same file."""
    kubelet_ca_file: texts.PathOrEmpty = ""
    """The file with the certificate authorities trusted for the kubelet's certificate, in PEM."""
    kubelet_server_name: str = ""
    """The name in the kubelet's certificate, if it is not the address."""
    kubelet_insecure_skip_verify: bool = False
    """True: trust whatever listens at that address, and send it the token."""
    margin: Annotated[ThresholdValue, read_as(MarginForms, _read_margin)] = setting(MARGIN)
    """How far above the inherited marks reclaimd acts: 0% to 50% of the capacity, or bytes with a
    unit (5Gi), which raise only the marks of the available signals, or both: percent and its bound
    atMost."""
    eviction_hard: texts.Marks = setting(dict)
    """Signal -> mark, in place of the inherited one and without the margin.

    0% switches a signal off.
    """
    eviction_soft: texts.Marks = setting(dict)
    """Signal -> mark that takes effect after a grace period; needs an entry
    in evictionSoftGracePeriod.
    """
    eviction_soft_grace_period: texts.GracePeriods = setting(dict)
    """Signal -> how long the signal must stay below its soft mark before that takes effect."""
    eviction_minimum_reclaim: texts.Marks = setting(dict)
    """Signal -> how far above its mark it must rise to count as relieved.

    Default for the available signals: 2%.
    """
    transition_period_seconds: texts.Seconds = setting("5m", "evictionPressureTransitionPeriod")
    """How long a condition is reported after pressure was last observed. 0s counts as not set."""
    extent: texts.HowFar = setting("enough")
    """enough: a pass stops when the thresholds are clear. all: it continues to the end of the
    row, as the kubelet does."""
    dry_run: bool = False
    """True: do everything except remove."""
    image_minimum_gc_age_seconds: texts.Seconds = setting("2m")
    """How long an image must have been known before it may be removed."""
    image_maximum_gc_age_seconds: texts.Seconds = setting("0s")
    """How long an image may be unused before periodic garbage collection removes it.

    0s: no limit.
    """
    image_gc_high_threshold_percent: int = setting(85, ge=0, le=100)
    """The disk usage in percent at which periodic image garbage collection begins. 100: never."""
    image_gc_low_threshold_percent: int = setting(80, ge=0, le=100)
    """The disk usage in percent at which it ends; below imageGCHighThresholdPercent."""
    minimum_container_ttl_seconds: texts.Seconds = setting("0s", "minimumContainerTTLDuration")
    """How old a dead container must be before it may be removed, counted from its creation."""
    maximum_dead_containers_per_container: int = 1
    """How many dead instances of each container to keep. Negative: all."""
    maximum_dead_containers: int = -1
    """How many dead containers to keep on the node. Negative: no limit."""
    periodic_gc: NeedsRestart[bool] = False
    """True: run the kubelet's periodic garbage collection too; for a machine
    on which no kubelet does.
    """
    keep_images: Annotated[KeepList, read_as(list[str], parse_keep_list)] = setting(list)
    """Images that are never removed: references, repositories, digests, globs."""
    keep_newest_per_repository: int = setting(0, ge=0)
    """How many of the newest images of each repository to keep always. 0: none."""
    keep_images_not_pulled: texts.WhetherOrAuto = setting("auto", json_schema_extra=texts.WHETHER)
    """Images that pods have used and that the kubelet did not pull, by its records (since
    Kubernetes 1.35). true: they are never removed. auto: they go last, and only where nothing else
    is enough. false: they are images like others."""
    image_order: texts.Order = setting("lru")
    """Which image goes first. lru: the least recently used, as in the kubelet. cost: the one that
    costs the least to bring again, for each byte that it frees."""
    hold_off_seconds: NeedsRestart[texts.Seconds] = setting("5m", "holdOffAfterStart")
    """How long nothing is removed after a start, unless the kubelet reports
    that it is healthy sooner.
    """
    kubelet_healthz: NeedsRestart[texts.HealthzEndpoint] = setting(
        "127.0.0.1:10248", "kubeletHealthzEndpoint"
    )
    """Where the kubelet serves /healthz: address and port, or unix:///path.

    Empty: it is not asked.
    """
    pod_start_seconds: texts.PodStart = setting("1s", "holdOffForNewPods")
    """How long no image is removed after a pod began to start: 0s to 10s."""
    parallel_removals: int = setting(2, ge=1, le=64)
    """How many removals run in parallel."""
    removal_patience_seconds: texts.Patience = setting("30s")
    """How long a pass waits for a removal before it continues without it; at least 500ms."""
    lead: texts.Lead = setting("auto")
    """auto: a pass begins before its mark is reached when what is written until a removal helps, or
    the next step of XFS, would reach the kubelet's mark. 0s: never."""
    poll_floor_seconds: texts.Seconds = setting("10ms")
    """The shortest time between two observations: at least 1ms, and not above pollCeiling."""
    poll_ceiling_seconds: texts.Seconds = setting("10s")
    """The longest time between two observations."""
    assumed_fill_rate: texts.Rate = setting("500Mi")
    """The fill rate, in bytes per second, that is always assumed to be possible."""
    state_file: NeedsRestart[texts.PathOrEmpty] = "/var/lib/reclaimd/images.json"
    """The file that records when each image was first seen and last used, and which are gone.

    Empty: none.
    """
    history_file: NeedsRestart[texts.PathOrEmpty] = "/var/lib/reclaimd/history"
    """The file that records every pass and every removal of the last weeks. Empty: none."""
    history_size_bytes: NeedsRestart[texts.HistorySize] = setting("16Mi")
    """The size of that file, allocated at startup: 1Mi to 1Gi."""
    lock_directory: NeedsRestart[texts.Directory] = "/run/reclaimd/lock"
    """A directory of mode 0700 that is locked by the node's only instance."""
    control_socket: NeedsRestart[texts.SocketOrEmpty] = "/run/reclaimd/control.sock"
    """The socket on which commands reach the daemon. Empty: none."""
    metrics_address: NeedsRestart[texts.Address] = setting("127.0.0.1:9746")
    """Where metrics and health are served: an address of this machine and a port.

    Empty: nowhere.
    """
    xfs_extent_size_hint_bytes: NeedsRestart[texts.ExtentSize | None] = None
    """The extent size hint that the daemon gives the directories of pods, their logs and snapshots
    if they are on XFS: a multiple of the block size, 4Ki to 1Gi. Null: it gives none."""
    filesystems: NeedsRestart[
        Annotated[Mapping[FilesystemRole, str], read_as(_Entries, read_filesystems)]
    ] = setting(list)
    """Filesystems of your own, besides the kubelet's."""
    functions: NeedsRestart[
        Annotated[tuple[FunctionEntry, ...], read_as(_Functions, _read_functions)]
    ] = setting(list, "reclaimFunctions")
    """Functions of your own. Each is called only where a row of reclaimTable names it."""
    reclaim_table: Annotated[dict[str, _Row], texts.map_by_signal()] = setting(dict)
    """Signal -> functions, in order. Other signals keep their built-in rows."""
    kubernetes_events: NeedsRestart[bool] = False
    """True: send events to the API server too, not only to the log."""
    kubeconfig: NeedsRestart[texts.PathOrEmpty] = ""
    """The kubeconfig for the API server. Empty: the pod's service account."""
    node_name: NeedsRestart[texts.NodeName] = ""
    """The name of the Node in events. Empty: $NODE_NAME, else the host name."""

    @property
    def has_runtime(self) -> bool:
        """Whether this machine has a container runtime, and with it the kubelet's filesystems."""
        return self.runtime_endpoint != NO_RUNTIME

    @property
    def roles(self) -> tuple[FilesystemRole, ...]:
        """The filesystems of the node, the kubelet's first."""
        return (*(KUBELET_ROLES if self.has_runtime else ()), *self.filesystems)

    @property
    def signals(self) -> tuple[Signal, ...]:
        """All signals that the node can have, the kubelet's first."""
        return (
            *(KUBELET_SIGNALS if self.has_runtime else ()),
            *[signal for role in self.filesystems for signal in signals_about(role)],
        )

    @property
    def ballast(self) -> FunctionEntry | None:
        """The function that releases the ballast; None if none is configured."""
        return next(
            (function for function in self.functions if function.kind is FunctionKind.BALLAST), None
        )


FIELDS = {str(field.alias): field for field in ConfigurationFile.model_fields.values()}
"""The fields by their names in a file."""
