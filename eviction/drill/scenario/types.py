"""What a scenario says: a node, pressures, faults, and what must hold. Values only.

Sizes are bytes or inodes, times are seconds, rates are a second. The file that they are read from is described in
`scenario`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from signals.quantity import Percentage
from signals.types import FilesystemRole, FsLayout, Signal

CONTAINER = "app"
INIT_CONTAINER = "init"


class FilesystemType(StrEnum):
    """`tmpfs`: a filesystem of its own. `directory`: a size-limited view of one; the report says `simulated`."""

    TMPFS = "tmpfs"
    DIRECTORY = "directory"


@dataclass(frozen=True, slots=True)
class FilesystemSpec:
    """One filesystem of the node."""

    size_bytes: int
    inodes: int
    type: FilesystemType = FilesystemType.TMPFS


@dataclass(frozen=True, slots=True)
class ImageSpec:
    """Images to be present, or to be pulled: `count` of them, each of a layer of its own of `size_bytes` in `files`
    files, and of a layer of `shared_bytes` that all of them share. `age_seconds` is how long the first has been known;
    the others follow one second apart."""

    name: str
    count: int = 1
    size_bytes: int = 0
    files: int = 1
    shared_bytes: int = 0
    age_seconds: float = 0.0
    pinned: bool = False

    @property
    def names(self) -> list[str]:
        """The references: the name with the tag `1`; where there are several, with a number of two digits or more."""
        if self.count == 1:
            return [f"{self.name}:1"]
        return [f"{self.name}-{number:02}:1" for number in range(1, self.count + 1)]


class PodState(StrEnum):
    """What has become of a pod and its container.

    `running`. `initialized`: an init container has ended well, the other one runs. `crashed`: dead copies, the pod
    lives. `completed`: ended well, the pod lives. `created`: made and not started. `unknown`: the runtime has lost
    sight of it. `gone`: dead, and the kubelet has forgotten the pod. `vanished`: of what was gone only logs are left.
    """

    RUNNING = "running"
    INITIALIZED = "initialized"
    CRASHED = "crashed"
    COMPLETED = "completed"
    CREATED = "created"
    UNKNOWN = "unknown"
    GONE = "gone"
    VANISHED = "vanished"

    @property
    def lives(self) -> bool:
        """Whether the kubelet knows the pod."""
        return self not in (PodState.GONE, PodState.VANISHED)


class RestartPolicy(StrEnum):
    """A pod's restart policy, as Kubernetes spells it."""

    ALWAYS = "Always"
    ON_FAILURE = "OnFailure"
    NEVER = "Never"


@dataclass(frozen=True, slots=True)
class PodSpec:
    """Pods of one container: `count` of them. `dead_copies` are those of the container that came before its last one;
    `write_bytes` is what each copy has written into its writable layer, `log_bytes` the size of each copy's log;
    `dead_seconds` is how long ago dead things were made."""

    name: str
    image: str
    state: PodState
    count: int = 1
    dead_copies: int = 0
    write_bytes: int = 0
    log_bytes: int = 0
    dead_seconds: float = 600.0
    restart_policy: RestartPolicy = RestartPolicy.ALWAYS

    @property
    def names(self) -> list[str]:
        """The name, or with a number of at least two digits where there are several."""
        return [self.name] if self.count == 1 else [f"{self.name}-{number:02}" for number in range(1, self.count + 1)]


@dataclass(frozen=True, slots=True)
class RuntimeSpec:
    """Whose rules the embedded runtime follows (`runtime.dialects`), and in what it differs from them: the
    space of a removed container comes back so much later; whether it pins the sandbox image; whether it fills
    `Container.image_id`. None: as in the dialect."""

    dialect: str = "containerd-2"
    container_space_delay_seconds: float | None = None
    pins_sandbox_image: bool | None = None
    fills_image_id: bool | None = None


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """The node. `imagefs` is there in the layouts that have one. `configuration`: fields of the configuration file.
    `collectors`: how many agents with this configuration run on it. `rebooted`: the runtime has just come back."""

    nodefs: FilesystemSpec
    imagefs: FilesystemSpec | None
    layout: FsLayout
    images: tuple[ImageSpec, ...]
    pods: tuple[PodSpec, ...]
    configuration: Mapping[str, Any]
    runtime: RuntimeSpec = RuntimeSpec()
    collectors: int = 1
    rebooted: bool = False

    @property
    def filesystems(self) -> dict[FilesystemRole, FilesystemSpec]:
        """The filesystems by the role that they are named for."""
        named = {FilesystemRole.NODEFS: self.nodefs}
        return named if self.imagefs is None else {**named, FilesystemRole.IMAGEFS: self.imagefs}

    def role(self, role: FilesystemRole) -> FilesystemRole:
        """The filesystem that a role is on: `nodefs` or `imagefs`."""
        if self.layout is FsLayout.SINGLE or role is FilesystemRole.NODEFS:
            return FilesystemRole.NODEFS
        if role is FilesystemRole.CONTAINERFS and self.layout is FsLayout.SPLIT:
            return FilesystemRole.NODEFS
        return FilesystemRole.IMAGEFS


class Grows(StrEnum):
    """What grows. `bytes`: one file. `inodes`: many files, empty or small. `log`: a pod's log. `writable`: a pod's
    writable layer. `pull`: images arrive one after the other."""

    BYTES = "bytes"
    INODES = "inodes"
    LOG = "log"
    WRITABLE = "writable"
    PULL = "pull"


@dataclass(frozen=True, slots=True)
class Pressure:
    """What grows, how fast, until when.

    It begins `after_seconds` after the one before has ended, and ends when `amount` (None: no end by itself) has been
    written, when the disk is full if `until_full`, or after `for_seconds`. Then it stands still for `holds_seconds`;
    what was written goes unless it `remains`. `rate` and `amount` are bytes, or files where inodes grow; `file_bytes`
    is the size of each of those. `where`: the filesystem, for bytes and inodes.
    """

    grows: Grows
    rate: int
    amount: int | None = None
    until_full: bool = False
    for_seconds: float | None = None
    after_seconds: float = 0.0
    holds_seconds: float = 0.0
    remains: bool = True
    where: FilesystemRole = FilesystemRole.NODEFS
    file_bytes: int = 0
    pod: str = ""
    image: ImageSpec | None = None

    @property
    def counts_inodes(self) -> bool:
        """Whether `rate` and `amount` are files."""
        return self.grows is Grows.INODES


class FaultAction(StrEnum):
    """What goes wrong. Of one method: it fails (nothing is done), it acts and fails all the same, it does nothing and
    answers with success, it answers late, it hangs, its list ends in the middle with an error, its answer is not the
    truth. Of the whole runtime: it restarts, or it is away."""

    FAIL = "fail"
    ACT_THEN_FAIL = "act-then-fail"
    PRETEND = "pretend"
    DELAY = "delay"
    HANG = "hang"
    CUT = "cut"
    DISTORT = "distort"
    RESTART = "restart"
    AWAY = "away"

    @property
    def of_one_method(self) -> bool:
        """Whether it concerns one method of the runtime."""
        return self not in (FaultAction.RESTART, FaultAction.AWAY)


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. It strikes `at_seconds` after the first pressure has begun, or when the `call_count`th call of
    `call_method` since then arrives. A fault of a method lasts for `times` calls and at most `lasts_seconds` (None: no
    limit); `delay_seconds` is how late an answer is; `code` and `message` are what the caller is told; `how` is the
    way in which an answer is wrong."""

    action: FaultAction
    at_seconds: float | None = None
    call_method: str = ""
    call_count: int = 1
    method: str = ""
    times: int | None = None
    lasts_seconds: float | None = None
    delay_seconds: float = 0.0
    code: str = "UNAVAILABLE"
    message: str = "failed on purpose"
    how: str = ""


@dataclass(frozen=True, slots=True)
class ObjectPattern:
    """Names of objects, as shells match file names; `kind` is `image`, `container`, `sandbox` or `log` (the
    directory of a pod's logs), empty for any."""

    kind: str
    glob: str

    def __str__(self) -> str:
        return f"{self.kind} {self.glob}".strip()


@dataclass(frozen=True, slots=True)
class ConditionExpectation:
    """When DiskPressure comes and goes. `never`: it must not appear. `comes_within_seconds` of crossing a mark;
    `goes_within_seconds` of the last relief; None: whenever."""

    never: bool = False
    comes_within_seconds: float | None = None
    goes_within_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Expectation:
    """What must hold. None: nothing is expected of it.

    `relieved_within_seconds` of crossing a mark, each time that one is crossed; `never_relieved`: pressure must remain.
    `first_removal_*`: of the first crossing. `goes`, `stays`: every object of that name that was there at the start, of
    which there must be one. `lowest`: the least that may be available, ever, on the node of the scenario;
    `lowest_shares`: those of them that were written as percentages. `images_lost_beyond_need`: images that
    went although what had gone before was enough. `passes_at_most`: passes that tried anything. `says`: a text in the
    reason of the last pass. `faults_strike`: so many must have struck, or the run did not test what it says.
    """

    condition: ConditionExpectation = ConditionExpectation()
    relieved_within_seconds: float | None = None
    never_relieved: bool = False
    first_removal_within_seconds: float | None = None
    first_removal_not_before_seconds: float | None = None
    nothing_goes: bool = False
    goes: tuple[ObjectPattern, ...] = ()
    stays: tuple[ObjectPattern, ...] = ()
    images_left_at_least: int = 0
    images_lost_beyond_need: int | None = None
    lowest: Mapping[Signal, int] | None = None
    lowest_shares: Mapping[Signal, Percentage] = field(default_factory=dict)
    passes_at_most: int | None = None
    says: str = ""
    faults_strike: int = 0
    no_restarts: bool = True
    new_pod_starts: bool = True
    quiet_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Scenario:
    """One drill."""

    name: str
    why: str
    node: NodeSpec
    pressures: tuple[Pressure, ...]
    faults: tuple[Fault, ...]
    expect: Expectation
