"""A scenario as values: a node, pressures, faults, and what must hold.

Sizes are bytes or inodes, times are seconds, rates are per second. The fields of the file are in `schema`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from signals.quantity import Percentage
from signals.types import KUBELET_SIGNALS, FilesystemRole, FsLayout, Signal, signals_about

CONTAINER = "app"
INIT_CONTAINER = "init"


class FilesystemType(StrEnum):
    """`tmpfs`: a filesystem of its own. `ext4`, `xfs`, `btrfs`: of its own too, in a file that a loop device mounts,
    which needs root. `directory`: a size-limited view of one; the report says `simulated`."""

    TMPFS = "tmpfs"
    EXT4 = "ext4"
    XFS = "xfs"
    BTRFS = "btrfs"
    DIRECTORY = "directory"


ON_LOOP_DEVICES = {FilesystemType.EXT4: 16 << 20, FilesystemType.XFS: 300 << 20, FilesystemType.BTRFS: 110 << 20}
"""Types that need a device, with the smallest size in bytes: what their mkfs makes, and for ext4 a journal."""


@dataclass(frozen=True, slots=True)
class FilesystemSpec:
    """One filesystem of the node."""

    size_bytes: int
    inodes: int
    type: FilesystemType = FilesystemType.TMPFS


@dataclass(frozen=True, slots=True)
class OwnFilesystemSpec(FilesystemSpec):
    """A filesystem of the configuration's own, with `files` entries of `file_bytes` bytes, the first one the oldest."""

    files: int = 0
    file_bytes: int = 0


class ProgramKind(StrEnum):
    """What a program of a function does. `frees`: removes the oldest entries of its filesystem until what is missing is
    free. `hangs`: ignores TERM and does not end. `lies`: says that it has freed everything and frees nothing. `fails`:
    exit 3. `floods`: writes without end. `leaves`: starts a process that outlives it, and ends."""

    FREES = "frees"
    HANGS = "hangs"
    LIES = "lies"
    FAILS = "fails"
    FLOODS = "floods"
    LEAVES = "leaves"


@dataclass(frozen=True, slots=True)
class FunctionSpec:
    """A function of `reclaimFunctions`: its fields as in the configuration, without paths, which the node has.

    `does`: None of one that is no program.
    """

    name: str
    does: ProgramKind | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ImageSpec:
    """`count` images to be present, or to be pulled. Each has a layer of its own, of `size_bytes` in `files` files, and
    a layer of `shared_bytes` that all of them share. `age_seconds`: how long ago the first of them was first seen; the
    others follow one second apart."""

    name: str
    count: int = 1
    size_bytes: int = 0
    files: int = 1
    shared_bytes: int = 0
    age_seconds: float = 0.0
    pinned: bool = False

    @property
    def has_tag(self) -> bool:
        """Whether the name is a reference with a tag of its own, which only one image can have."""
        return ":" in self.name.rpartition("/")[2]

    @property
    def names(self) -> list[str]:
        """The references: the name with the tag `1`, or with its own. Several images are numbered, with two digits or
        more."""
        if self.has_tag:
            return [self.name]
        if self.count == 1:
            return [f"{self.name}:1"]
        return [f"{self.name}-{number:02}:1" for number in range(1, self.count + 1)]


class PodState(StrEnum):
    """The state of a pod and of its container.

    `running`. `initialized`: an init container has succeeded, the other container runs. `crashed`: the container has
    dead copies, and the kubelet knows the pod. `completed`: succeeded, and the kubelet knows the pod. `created`: the
    container was created and not started. `unknown`: the runtime reports the state UNKNOWN. `gone`: dead, and the
    kubelet has forgotten the pod. `vanished`: only the logs of a forgotten pod are left.
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
    def known_to_kubelet(self) -> bool:
        """True if the pod exists for the kubelet."""
        return self not in (PodState.GONE, PodState.VANISHED)


class RestartPolicy(StrEnum):
    """A pod's restart policy, as Kubernetes spells it."""

    ALWAYS = "Always"
    ON_FAILURE = "OnFailure"
    NEVER = "Never"


@dataclass(frozen=True, slots=True)
class PodSpec:
    """`count` pods with one container each.

    `dead_copies`: dead copies of the container before its last one. `write_bytes`: what each copy has written into its
    writable layer. `log_bytes`: the size of the log of each copy, and of each of its `rotated_logs`. `dead_seconds`:
    how long ago the dead copies ended.
    """

    name: str
    image: str
    state: PodState
    count: int = 1
    dead_copies: int = 0
    write_bytes: int = 0
    log_bytes: int = 0
    rotated_logs: int = 0
    dead_seconds: float = 600.0
    restart_policy: RestartPolicy = RestartPolicy.ALWAYS

    @property
    def names(self) -> list[str]:
        """The name. Several pods are numbered, with two digits or more."""
        return [self.name] if self.count == 1 else [f"{self.name}-{number:02}" for number in range(1, self.count + 1)]


@dataclass(frozen=True, slots=True)
class RuntimeSpec:
    """The runtime whose rules the embedded runtime follows (`runtime.dialects`), and rules that the scenario changes:
    how late the space of a removed container is freed, whether the sandbox image is pinned, and whether
    `Container.image_id` is filled. None: as in the dialect. `unreferenced_bytes`: of content that nothing refers to and
    CRI does not show."""

    dialect: str = "containerd-2"
    container_space_delay_seconds: float | None = None
    pins_sandbox_image: bool | None = None
    fills_image_id: bool | None = None
    unreferenced_bytes: int = 0


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """The node.

    `imagefs`: None in a layout without one. `configuration`: fields of the configuration file. `collectors`: how many
    agents with this configuration run on the node. `rebooted`: the node has just booted. `own`: filesystems of the
    configuration's own; `functions`: its functions.
    """

    nodefs: FilesystemSpec
    imagefs: FilesystemSpec | None
    layout: FsLayout
    images: tuple[ImageSpec, ...]
    pods: tuple[PodSpec, ...]
    configuration: Mapping[str, Any]
    runtime: RuntimeSpec = RuntimeSpec()
    collectors: int = 1
    rebooted: bool = False
    own: Mapping[FilesystemRole, OwnFilesystemSpec] = field(default_factory=dict)
    functions: tuple[FunctionSpec, ...] = ()

    @property
    def filesystems(self) -> dict[FilesystemRole, FilesystemSpec]:
        """The filesystems by name: `nodefs`, `imagefs` if the layout has one, and those of the configuration's own."""
        imagefs = {} if self.imagefs is None else {FilesystemRole.IMAGEFS: self.imagefs}
        return {FilesystemRole.NODEFS: self.nodefs, **imagefs, **self.own}

    @property
    def signals(self) -> tuple[Signal, ...]:
        """All signals that the node can have."""
        return (*KUBELET_SIGNALS, *(signal for role in self.own for signal in signals_about(role)))

    def role(self, role: FilesystemRole) -> FilesystemRole:
        """The name of the filesystem that a role is on: `nodefs`, `imagefs`, or one of the configuration's own."""
        if role in self.own:
            return role
        if self.layout is FsLayout.SINGLE or role is FilesystemRole.NODEFS:
            return FilesystemRole.NODEFS
        if role is FilesystemRole.CONTAINERFS and self.layout is FsLayout.SPLIT:
            return FilesystemRole.NODEFS
        return FilesystemRole.IMAGEFS


class Grows(StrEnum):
    """What grows. `bytes`: one file. `inodes`: many files, empty or small. `log`: a pod's log. `writable`: a pod's
    writable layer. `pull`: images are pulled one after the other."""

    BYTES = "bytes"
    INODES = "inodes"
    LOG = "log"
    WRITABLE = "writable"
    PULL = "pull"


class FileEnd(StrEnum):
    """What becomes of the file that grew when nothing more is written. `closed`: as it is when a program has ended.
    `open`: the program holds it open. `deleted`: that too, and it has had no name since the first byte."""

    CLOSED = "closed"
    OPEN = "open"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class Pressure:
    """What grows, how fast, and until when.

    A pressure begins `after_seconds` after the one before has ended, or, `beside` it, has begun. It writes until
    `amount` is reached (None: no limit), until the disk is full (`until_full`), or for `for_seconds`. Then it waits
    `holds_seconds`, and frees what it wrote unless it `remains`. `rate` and `amount` are bytes, or files if inodes
    grow; `file_bytes` is the size of each of those files. `where`: the filesystem for bytes and inodes. `file`: of one
    file that grows.
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
    file: FileEnd = FileEnd.CLOSED
    beside: bool = False

    @property
    def counts_inodes(self) -> bool:
        """True if `rate` and `amount` are numbers of files."""
        return self.grows is Grows.INODES


class FaultAction(StrEnum):
    """What goes wrong.

    One method of the runtime: `fail` does nothing and fails; `act-then-fail` acts and then fails; `pretend` does
    nothing and reports success; `delay` answers late; `hang` does not answer; `cut` ends a list in the middle with an
    error; `distort` gives a wrong answer. The whole runtime: `restart` restarts it; `away` stops it for a while.
    """

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
        """True if it concerns one method of the runtime, False if it concerns the whole runtime."""
        return self not in (FaultAction.RESTART, FaultAction.AWAY)


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    It is triggered `at_seconds` after the first pressure began, or by the `call_count`th call of `call_method` since
    then. A fault of a method lasts for `times` calls and at most `lasts_seconds` (None: no limit). `delay_seconds`: how
    late an answer is. `code` and `message`: the error that the caller gets. `how`: the distortion of an answer.
    """

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
    """Names of objects, as shells match file names; `kind` is `image`, `container`, `sandbox`, `log` (the directory of
    a pod's logs) or `file` (`buildcache/0001`: an entry of a filesystem of the configuration's own; `ballast`), empty
    for any."""

    kind: str
    glob: str

    def __str__(self) -> str:
        return f"{self.kind} {self.glob}".strip()


@dataclass(frozen=True, slots=True)
class ConditionExpectation:
    """When ReclaimPressure is reported. `never`: it must not be reported. `comes_within_seconds` of crossing a mark;
    `goes_within_seconds` of the last relief. None: at any time."""

    never: bool = False
    comes_within_seconds: float | None = None
    goes_within_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Expectation:
    """What must hold. None: nothing is expected.

    `relieved_within_seconds`: of crossing a mark, for each crossing. `never_relieved`: pressure must remain.
    `first_removal_*`: of the first crossing. `nothing_goes`: no object may be removed. `goes`, `stays`: every object
    that matches and was there at the start must be removed, or kept; at least one must match. `lowest`: the least that
    may ever be available, on the node of the scenario; `lowest_shares`: those of them that were written as percentages.
    `images_lost_beyond_need`: images removed although the other removals were enough. `passes_at_most`: passes that
    tried a removal. `says`: a text in the reason of the last pass. `faults_triggered`: how many faults must have been
    triggered; with fewer the run did not test what the scenario says. `quiet_seconds`: no change for that long at the
    end.
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
    faults_triggered: int = 0
    no_restarts: bool = True
    new_pod_starts: bool = True
    quiet_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Scenario:
    """One scenario."""

    name: str
    why: str
    node: NodeSpec
    pressures: tuple[Pressure, ...]
    faults: tuple[Fault, ...]
    expect: Expectation
