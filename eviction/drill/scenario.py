"""A scenario: a node, pressures, faults, and what must hold. The model of its file, and what reads and checks it.

A field has the name that it has in the file, in lower case and with its unit: the file's `age` is `age_seconds`. In the
file an amount, a percentage or a duration is a text, as in a Kubernetes configuration (`24Mi`, `10%`, `1m30s`); here it
is a number of bytes or inodes, or of seconds. Reading ends at the first problem with one sentence that names the file
and the field. A guide with an example is `eviction/drill/README.md`.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from eviction.configuration.effective import load
from eviction.configuration.models import ConfigDict, Field, PlainSerializer, ValidationError, after, read_as, to_camel
from eviction.configuration.strict_yaml import ConfigurationError, StrictModel, first_problem, quoted, read_document
from eviction.configuration.text_forms import (
    Duration,
    GracePeriods,
    Marks,
    Quantity,
    QuantityOrPercentage,
    Seconds,
    map_by_signal,
    read_duration,
    text_form,
)
from eviction.configuration.threshold_config import KUBELET_EVICTION_HARD
from signals.quantity import (
    DURATION_PATTERN,
    QUANTITY_PATTERN,
    Percentage,
    format_bytes,
    parse_percentage,
    parse_quantity,
    whole,
)
from signals.types import (
    KUBELET_ROLES,
    KUBELET_SIGNALS,
    ROLE_NAME,
    ROLE_NAMES_ALLOWED,
    FilesystemRole,
    FsLayout,
    Signal,
    signals_about,
)

ScenarioError = ConfigurationError  # a scenario is refused as a configuration is, with one sentence

CONTAINER = "app"
INIT_CONTAINER = "init"
KINDS = ("image", "container", "sandbox", "log", "file")
FULL = "full"
NEVER = "never"
LAYOUTS = {"single": FsLayout.SINGLE, "dedicated": FsLayout.DEDICATED_IMAGEFS, "split": FsLayout.SPLIT}
BALLAST = "ReleaseBallast"
LARGEST_BYTES = 1 << 40
SMALLEST_FILESYSTEM_BYTES = 1 << 20
THRESHOLD_MAPS = ("eviction_hard", "eviction_soft", "eviction_soft_grace_period", "eviction_minimum_reclaim")
# No periodic garbage collection and no hold-off, unless the scenario sets them.
DEFAULTS: dict[str, Any] = {"imageGCHighThresholdPercent": 100, "holdOffAfterStart": "0s"}

Method = Literal[
    "Version",
    "Status",
    "ImageFsInfo",
    "ListImages",
    "ImageStatus",
    "RemoveImage",
    "ListContainers",
    "ContainerStatus",
    "RemoveContainer",
    "ListPodSandbox",
    "PodSandboxStatus",
    "RemovePodSandbox",
]
Dialect = Literal["containerd-1.6", "containerd-2.0", "containerd-2", "cri-o-1.28", "cri-o"]
Code = Literal[
    "CANCELLED",
    "UNKNOWN",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "RESOURCE_EXHAUSTED",
    "ABORTED",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
]
Wrong = Literal[
    "half_list",
    "duplicate_entries",
    "rotated_ids",
    "unknown_ids",
    "short_ids",
    "empty_ids",
    "zero_sizes",
    "largest_sizes",
    "zero_times",
    "negative_times",
    "largest_times",
    "empty_names",
    "huge_names",
    "control_names",
    "empty_paths",
    "hostile_paths",
]

_Part = TypeVar("_Part", bound="Part")
_Item = TypeVar("_Item")
Several = Annotated[tuple[_Item, ...], Field(strict=False)]  # a list in the file


def as_written(text: str | None) -> Any:
    """A default as the file would have it."""
    return text


def read_amount(text: str, at_least: int = 0) -> int:
    """Bytes or files; a fraction is rounded up. Raises ValueError unless it is between `at_least` and 1 Ti."""
    found = whole(parse_quantity(text))
    if not at_least <= found <= LARGEST_BYTES:
        raise ValueError(f"must be between {at_least} and 1Ti, but it was {text!r}")
    return found


def _read_share(text: str) -> int | Percentage:
    return parse_percentage(text) if text.endswith("%") else read_amount(text)


# Bytes or files, and so many a second. A share may also be a percentage of them all.
Amount = Annotated[int, read_as(Quantity, read_amount), PlainSerializer(str)]
Rate = Annotated[int, read_as(Quantity, partial(read_amount, at_least=1))]
FilesystemSize = Annotated[int, read_as(Quantity, partial(read_amount, at_least=SMALLEST_FILESYSTEM_BYTES))]
Share = Annotated[int | Percentage, read_as(QuantityOrPercentage, _read_share)]


def _name_in_file(name: str) -> str:
    return to_camel(name.removesuffix("_seconds").removesuffix("_bytes"))


class Part(StrictModel):
    """What all parts of the file share."""

    model_config = ConfigDict(alias_generator=_name_in_file, validate_default=True)


class Word(StrEnum):
    """A word of a closed list, which the file has as a text."""

    @classmethod
    def __get_pydantic_core_schema__(cls, _: Any, handler: Any) -> Any:
        return handler.generate_schema(Annotated[Literal[tuple(map(str, cls))], after(cls)])


class FilesystemType(Word):
    """`tmpfs`: a filesystem of its own. `ext4`, `xfs`, `btrfs`: of its own too, in a file that a loop device mounts,
    which needs root. `directory`: a size-limited view of one; the report says `simulated`."""

    TMPFS = "tmpfs"
    EXT4 = "ext4"
    XFS = "xfs"
    BTRFS = "btrfs"
    DIRECTORY = "directory"


# Types that need a device, with the smallest size in bytes: what their mkfs makes, and for ext4 a journal.
ON_LOOP_DEVICES = {FilesystemType.EXT4: 16 << 20, FilesystemType.XFS: 300 << 20, FilesystemType.BTRFS: 110 << 20}


class FilesystemSpec(Part):
    """One filesystem."""

    size_bytes: FilesystemSize
    """Bytes; 1Mi to 1Ti."""
    inodes: int = Field(ge=100, le=10_000_000)
    """How many files it takes."""
    type: FilesystemType = as_written("tmpfs")
    """tmpfs: a filesystem of its own. ext4, xfs (300Mi at least), btrfs (110Mi): on a loop device, as root. directory:
    a size-limited view of one."""


def _own_name(name: str) -> FilesystemRole:
    if not ROLE_NAME.fullmatch(name) or name in KUBELET_ROLES:
        raise ValueError(f"must be {ROLE_NAMES_ALLOWED}, and none of the kubelet's, but it was {quoted(name)}")
    return FilesystemRole(name)


_OWN_NAME = Annotated[str, Field(json_schema_extra={"pattern": f"^{ROLE_NAME.pattern}$"})]


class OwnFilesystemSpec(FilesystemSpec):
    """A filesystem of the configuration's own, with `files` entries of `fileSize` bytes, the first one the oldest."""

    name: Annotated[FilesystemRole, read_as(_OWN_NAME, _own_name)]
    """Its signals are NAME.available and NAME.inodesFree. None of the kubelet's names."""
    files: int = Field(0, ge=0, le=10_000)
    """How many entries it has, each a minute younger than the one before."""
    file_bytes: Amount = Field(as_written("0"), alias="fileSize")
    """Bytes of each."""


class ProgramKind(Word):
    """What a program of a function does. `frees`: removes the oldest entries of its filesystem until what is missing is
    free. `hangs`: ignores TERM and does not end. `lies`: says that it has freed everything and frees nothing. `fails`:
    exit 3. `floods`: writes without end. `leaves`: starts a process that outlives it, and ends."""

    FREES = "frees"
    HANGS = "hangs"
    LIES = "lies"
    FAILS = "fails"
    FLOODS = "floods"
    LEAVES = "leaves"


class FunctionSpec(Part):
    """A function of `reclaimFunctions`. `does`: of a program that the drill writes, see `ProgramKind`; the others are
    named as in the configuration."""

    name: str
    """As in the configuration."""
    does: ProgramKind | None = None
    """What the program does: frees the oldest entries first, hangs and ignores TERM, says that it has freed what it has
    not, fails, writes without end, or leaves a process behind."""
    frees: str | None = None
    """The filesystem on which it frees."""
    timeout: Duration | None = None
    """How long the program may run."""
    cooldown: Duration | None = None
    """How long it rests after a call."""
    size: Amount | None = None
    """Bytes of the ballast."""
    keep: int | None = None
    """How many rotated logs of each container stay."""

    def entry(self, path_of: Callable[[str], str]) -> dict[str, Any]:
        """Its entry in the configuration. `path_of`: where the node has its program, or the ballast."""
        fields = self.model_dump(exclude={"does"}, exclude_none=True)
        if self.does is not None:
            return {**fields, "exec": [path_of(self.name)]}
        return {**fields, "file": path_of(BALLAST)} if self.name == BALLAST else fields


class ImageSpec(Part):
    """One or `count` images, each with a layer of its own (`size` in `files` files) and a common layer of `shared`
    bytes."""

    name: str = Field(min_length=1, max_length=200)
    """A reference, with a tag of its own or else 1. Several are numbered: NAME-01:1."""
    count: int = Field(1, ge=1, le=1000)
    """How many there are."""
    size_bytes: Amount
    """Bytes of the layer of its own."""
    files: int = Field(1, ge=1, le=100_000)
    """In how many files."""
    shared_bytes: Amount = as_written("0")
    """Bytes of a layer that all of this entry share."""
    age_seconds: Seconds = as_written("1h")
    """How long ago the first of them was first seen; the others follow a second apart."""
    pinned: bool = False
    """Whether the runtime pins it."""

    @property
    def has_tag(self) -> bool:
        """Whether the name is a reference with a tag of its own, which only one image can have."""
        return ":" in self.name.rpartition("/")[2]

    @property
    def names(self) -> list[str]:
        """The references: the name with the tag `1`, or with its own. Several are numbered, with two digits or more."""
        if self.has_tag:
            return [self.name]
        return [f"{name}:1" for name in _numbered(self.name, self.count)]


def _numbered(name: str, count: int) -> list[str]:
    return [name] if count == 1 else [f"{name}-{number:02}" for number in range(1, count + 1)]


class PodState(Word):
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


class RestartPolicy(Word):
    """A pod's restart policy, as Kubernetes spells it."""

    ALWAYS = "Always"
    ON_FAILURE = "OnFailure"
    NEVER = "Never"


class PodSpec(Part):
    """One or `count` pods with one container each, of an image of the node; see `PodState` for the states."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9.-]{0,60}$")
    """Several are numbered: NAME-01."""
    image: str
    """A reference of an image of the node, with its tag."""
    state: PodState
    """gone: dead, and the kubelet has forgotten it. vanished: only its logs are left."""
    count: int = Field(1, ge=1, le=1000)
    """How many there are."""
    written_copies: int | None = Field(None, ge=0, le=100, alias="deadCopies")
    """Dead copies of the container before the last one; left out: one if it crashed."""
    write_bytes: Amount = Field(as_written("2Mi"), alias="writes")
    """Bytes that each copy has written into its writable layer."""
    log_bytes: Amount = Field(as_written("0"), alias="logs")
    """Bytes of the log of each copy, and of each of its rotated logs."""
    rotated_logs: int = Field(0, ge=0, le=100)
    """How many rotated logs each copy has."""
    dead_seconds: Seconds = as_written("10m")
    """How long ago the dead copies ended."""
    written_policy: RestartPolicy | None = Field(None, alias="restartPolicy")
    """Left out: OnFailure for a completed pod, else Always."""

    @property
    def dead_copies(self) -> int:
        """How many dead copies of the container there are before its last one."""
        return int(self.state is PodState.CRASHED) if self.written_copies is None else self.written_copies

    @property
    def restart_policy(self) -> RestartPolicy:
        """Its restart policy."""
        usual = RestartPolicy.ON_FAILURE if self.state is PodState.COMPLETED else RestartPolicy.ALWAYS
        return self.written_policy or usual

    @property
    def names(self) -> list[str]:
        """The name. Several pods are numbered, with two digits or more."""
        return _numbered(self.name, self.count)


Layout = Annotated[FsLayout, read_as(Literal["single", "dedicated", "split"], LAYOUTS.__getitem__)]


class RuntimeSpec(Part):
    """The runtime whose rules the embedded runtime follows, and the rules that the scenario changes."""

    dialect: Dialect = "containerd-2"
    """Whose rules these are."""
    container_space_delay_seconds: Seconds | None = None
    """How late the space of a removed container is freed."""
    pins_sandbox_image: bool | None = None
    """Whether it pins the image of pod sandboxes."""
    fills_image_id: bool | None = None
    """Whether it fills Container.image_id."""
    unreferenced_bytes: Amount = as_written("0")
    """Bytes of content that nothing refers to and CRI does not show."""


class NodeSpec(FilesystemSpec):
    """The node. `size`, `inodes` and `type` are those of nodefs. The first image is the one of pod sandboxes.
    Thresholds and `configuration` are fields of the configuration file. A threshold that is not named is off."""

    layout: Layout = as_written("single")
    """single: everything on one filesystem. dedicated: images and writable layers on imagefs. split: images alone."""
    size_bytes: FilesystemSize
    """Bytes of nodefs; 1Mi to 1Ti."""
    inodes: int = Field(ge=100, le=10_000_000)
    """How many files nodefs takes."""
    imagefs: FilesystemSpec | None = None
    """The filesystem of images in the layouts dedicated and split."""
    own_filesystems: Several[OwnFilesystemSpec] = Field(alias="filesystems", default_factory=tuple)
    """Of the configuration's own."""
    functions: Several[FunctionSpec] = Field(default_factory=tuple)
    """Of the configuration's own; its reclaimTable is in `configuration`."""
    images: Several[ImageSpec] = Field(min_length=1)
    """What the runtime has."""
    pods: Several[PodSpec] = Field(default_factory=tuple)
    """What ran or runs."""
    eviction_hard: Marks = Field(default_factory=dict)
    """Signal -> mark."""
    eviction_soft: Marks = Field(default_factory=dict)
    """Signal -> mark that acts after a grace period."""
    eviction_soft_grace_period: GracePeriods = Field(default_factory=dict)
    """Signal -> how long its soft mark must have been crossed."""
    eviction_minimum_reclaim: Marks = Field(default_factory=dict)
    """Signal -> how far above its mark it must rise before relief is declared."""
    other_fields: dict[str, Any] = Field(alias="configuration", default_factory=dict)
    """Other fields of the configuration file, without those that the drill sets because it makes the node."""
    runtime: RuntimeSpec = RuntimeSpec()
    """The embedded runtime."""
    collectors: int = Field(1, ge=1, le=4)
    """How many agents with this configuration run."""
    rebooted: bool = False
    """Whether the node has just come up again."""

    @property
    def thresholds(self) -> dict[str, dict[str, str]]:
        """The thresholds as fields of the configuration file. Those of the kubelet's defaults that are not named are
        switched off as the kubelet does it."""
        maps: dict[str, dict[str, str]] = self.model_dump(by_alias=True, include={*THRESHOLD_MAPS})
        off = {str(signal): "0%" for signal in KUBELET_EVICTION_HARD}
        return {**maps, "evictionHard": {**off, **self.eviction_hard}}

    @property
    def configuration(self) -> dict[str, Any]:
        """The fields of the configuration file that do not depend on paths."""
        return {**DEFAULTS, **self.other_fields, **self.thresholds}

    def tables(self, path_of: Callable[[str], str]) -> dict[str, Any]:
        """`filesystems` and `reclaimFunctions` of the configuration. `path_of`: where the node has a filesystem, the
        program of a function, or the ballast, by name."""
        return {
            "filesystems": [{"name": str(role), "path": path_of(role)} for role in self.own],
            "reclaimFunctions": [function.entry(path_of) for function in self.functions],
        }

    @property
    def own(self) -> dict[FilesystemRole, OwnFilesystemSpec]:
        """The filesystems of the configuration's own, by name."""
        return {spec.name: spec for spec in self.own_filesystems}

    @property
    def filesystems(self) -> dict[FilesystemRole, FilesystemSpec]:
        """The filesystems by name: `nodefs`, `imagefs` if the layout has one, and those of the configuration's own."""
        imagefs = {} if self.imagefs is None else {FilesystemRole.IMAGEFS: self.imagefs}
        return {FilesystemRole.NODEFS: self, **imagefs, **self.own}

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


class Grows(Word):
    """What grows. `bytes`: one file. `inodes`: many files, empty or small. `log`: a pod's log. `writable`: a pod's
    writable layer. `pull`: images are pulled one after the other."""

    BYTES = "bytes"
    INODES = "inodes"
    LOG = "log"
    WRITABLE = "writable"
    PULL = "pull"


class FileEnd(Word):
    """What becomes of the file that grew when nothing more is written. `closed`: as it is when a program has ended.
    `open`: the program holds it open. `deleted`: that too, and it has had no name since the first byte."""

    CLOSED = "closed"
    OPEN = "open"
    DELETED = "deleted"


_AMOUNT_OR_FULL = Annotated[str, text_form(QUANTITY_PATTERN, FULL)]


def _amount_or_full(text: str) -> int | str:
    return text if text == FULL else read_amount(text, at_least=1)


class Pressure(Part):
    """One pressure. `amount` is a quantity or `full`; `for` ends it after a time. `beside`: it begins together with the
    one before it."""

    grows: Grows
    """One file, many files, the log or the writable layer of a pod, or images that are pulled one after the other."""
    rate: Rate
    """Bytes a second, or files a second where inodes grow."""
    limit: Annotated[int | str, read_as(_AMOUNT_OR_FULL, _amount_or_full)] | None = Field(None, alias="amount")
    """Bytes or files; full: until the disk is."""
    for_seconds: Seconds | None = None
    """How long it lasts at most."""
    after_seconds: Seconds = as_written("0s")
    """How long it waits before it begins."""
    holds_seconds: Seconds = as_written("0s")
    """How long it stands still at its end."""
    remains: bool = True
    """False: what was written goes again."""
    written_where: str | None = Field(None, alias="where")
    """The filesystem for bytes and inodes; left out: nodefs."""
    file_bytes: Amount = Field(as_written("0"), alias="fileSize")
    """Bytes of each file where inodes grow."""
    pod: str = ""
    """Whose log or writable layer grows."""
    image: ImageSpec | None = None
    """What is pulled."""
    file: FileEnd = as_written("closed")
    """What becomes of the one file or log that grew; deleted: it has no name from the first byte on, and is held
    open."""
    beside: bool = False
    """True: it begins together with the one before it."""

    @property
    def until_full(self) -> bool:
        """Whether it writes until the disk is full."""
        return self.limit == FULL

    @property
    def amount(self) -> int | None:
        """The bytes or files that it writes; None: no limit."""
        return self.limit if isinstance(self.limit, int) else None

    @property
    def where(self) -> FilesystemRole:
        """The filesystem for bytes and inodes."""
        return FilesystemRole(self.written_where or "nodefs")

    @property
    def counts_inodes(self) -> bool:
        """True if `rate` and `amount` are numbers of files."""
        return self.grows is Grows.INODES


class FaultAction(Word):
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


class Call(Part):
    """The call that triggers a fault: the `count`th call of a method since the first pressure began."""

    method: Method
    """A call of CRI."""
    count: int = Field(1, ge=1, le=10_000)
    """The how many-th."""


def _or_empty(text: str | None) -> str:
    return text or ""


class Fault(Part):
    """One fault: its action and its trigger."""

    action: FaultAction
    """What goes wrong: restart and away of the whole runtime, the others of one method."""
    at_seconds: Seconds | None = None
    """How long after the first pressure began; this or onCall."""
    on_call: Call | None = None
    """The call that triggers it."""
    method: Annotated[str, read_as(Method | None, _or_empty)] = as_written(None)
    """The call of CRI that goes wrong."""
    times: int | None = Field(None, ge=1, le=10_000)
    """For how many calls; left out: no limit."""
    lasts_seconds: Seconds | None = None
    """How long; left out: no limit. The action away needs it."""
    by_seconds: Seconds | None = None
    """How late a delayed answer is."""
    code: Code = "UNAVAILABLE"
    """The gRPC status that the client gets."""
    message: str = Field("failed on purpose", max_length=200)
    """Its message."""
    how: Annotated[str, read_as(Wrong | None, _or_empty)] = as_written(None)
    """How an answer is distorted."""


@dataclass(frozen=True, slots=True)
class ObjectPattern:
    """Names of objects, as shells match file names; `kind` is `image`, `container`, `sandbox`, `log` (the directory of
    a pod's logs) or `file` (`buildcache/0001`: an entry of a filesystem of the configuration's own; `ballast`), empty
    for any."""

    kind: str
    glob: str

    def __str__(self) -> str:
        return f"{self.kind} {self.glob}".strip()


def _pattern(text: str) -> ObjectPattern:
    kind, space, glob = text.partition(" ")
    if not space:
        kind, glob = "", text
    if not glob or " " in glob or (space and kind not in KINDS):
        raise ValueError(f"{quoted(text)} is neither a name nor a kind ({', '.join(KINDS)}) and a name")
    return ObjectPattern(kind, glob)


Pattern = Annotated[ObjectPattern, read_as(str, _pattern)]


class ConditionExpectation(Part):
    """When ReclaimPressure has to be reported, and when it has to end. The scenario's thresholds stand for the
    kubelet's, so it is the DiskPressure of a kubelet that has them."""

    never: bool = False
    """It must not be reported."""
    comes_within_seconds: Seconds | None = None
    """Of crossing the mark."""
    goes_within_seconds: Seconds | None = None
    """Of relief."""


_SECONDS_OR_NEVER = Annotated[str, text_form(DURATION_PATTERN, NEVER)]


def _seconds_or_never(text: str) -> float | str:
    return text if text == NEVER else read_duration(text)


class Expectation(Part):
    """What must hold. `relievedWithin` may be `never`. A pattern is a name, or a kind and a name: `image old/*`."""

    condition: ConditionExpectation = Field(ConditionExpectation(), alias="diskPressure")
    """When the condition has to be reported; it must come, unless it says otherwise."""
    relief: Annotated[float | str, read_as(_SECONDS_OR_NEVER, _seconds_or_never)] | None = Field(
        None, alias="relievedWithin"
    )
    """Of crossing a mark, each time; never: pressure must remain."""
    first_removal_within_seconds: Seconds | None = None
    """Of the first crossing."""
    first_removal_not_before_seconds: Seconds | None = None
    """Of the first crossing."""
    nothing_goes: bool = False
    """No object may be removed."""
    goes: Several[Pattern] = Field(default_factory=tuple)
    """Patterns of objects that must be removed; one must be there."""
    stays: Several[Pattern] = Field(default_factory=tuple)
    """Patterns of objects that must stay; one must be there."""
    images_left_at_least: int = Field(0, ge=0)
    """How many images must be left."""
    images_lost_beyond_need: int | None = Field(None, ge=0)
    """How many images may have gone although the others were enough."""
    lowest: Annotated[dict[str, Share], map_by_signal()] = Field(default_factory=dict)
    """Signal -> the least that may ever be available."""
    passes_at_most: int | None = Field(None, ge=0)
    """How many passes may have tried a removal."""
    says: str = Field("", max_length=200)
    """A text in the reason of the last pass."""
    no_restarts: bool = True
    """The kubelet's restart rule would start no container that it would not have started before."""
    new_pod_starts: bool = True
    """A new pod starts afterwards."""
    quiet_seconds: Seconds | None = Field(None, alias="quietFor")
    """Nothing happens for so long at the end."""

    @property
    def never_relieved(self) -> bool:
        """Whether pressure must remain."""
        return self.relief == NEVER

    @property
    def relieved_within_seconds(self) -> float | None:
        """Of crossing a mark, each time; None: nothing is expected."""
        return self.relief if isinstance(self.relief, float) else None


def _one_or_several(schema: dict[str, Any]) -> None:
    """A single pressure may be written as one mapping (`scenario_of`)."""
    several = schema["properties"]["pressure"]
    del several["title"]
    schema["properties"]["pressure"] = {"anyOf": [several["items"], several]}


class Scenario(Part):
    """The whole file. A single `pressure` may be written as one mapping."""

    model_config = ConfigDict(title="Scenario", json_schema_extra=_one_or_several)

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")
    """Its name in reports."""
    why: str = Field(min_length=1)
    """What it shows, in one sentence."""
    node: NodeSpec
    """What the drill makes."""
    pressures: Several[Pressure] = Field(alias="pressure", min_length=1, max_length=20)
    """What fills the disk: one, or several one after the other."""
    faults: Several[Fault] = Field(default_factory=tuple, max_length=20)
    """What goes wrong meanwhile. Each must be triggered."""
    expect: Expectation
    """What must hold."""


# Set by the drill, since it makes the node.
SET_BY_THE_DRILL = frozenset(
    {"apiVersion", "kind", "kubeletConfig", "kubeletConfigDir", "rootDirectory", "podLogsDir", "containerLogsDir"}
    | {
        "containerRuntimeEndpoint",
        "imageServiceEndpoint",
        "stateFile",
        "historyFile",
        "historySize",
        "lockDirectory",
        "controlSocket",
        "metricsAddress",
    }
    | {"kubeletEndpoint", "kubeletTokenFile", "kubeletCertificateFile", "kubeletKeyFile", "kubeletCAFile"}
    | {"kubeletServerName", "kubeletInsecureSkipVerify", "kubernetesEvents", "kubeconfig", "nodeName"}
)
# Fields of the configuration that have a place of their own in a scenario, and where that is.
UNDER_NODE = {
    **dict.fromkeys(map(to_camel, THRESHOLD_MAPS), "node"),
    "filesystems": "node.filesystems",
    "reclaimFunctions": "node.functions",
}


def library() -> dict[str, str]:
    """The built-in scenarios: name -> path."""
    packaged = Path(str(resources.files("eviction.drill"))) / "library"  # in an installed package
    source = Path(__file__).parents[2] / "config" / "scenarios"  # in a checkout
    folder = packaged if packaged.is_dir() else source
    return {path.stem: str(path) for path in sorted(folder.glob("*.yaml"))}


def find_scenario(name: str) -> Scenario:
    """Reads a built-in scenario by name, or a file by path. Raises ScenarioError."""
    known = library()
    if name not in known and os.sep not in name and not name.endswith((".yaml", ".yml")):
        raise ScenarioError(f"unknown scenario {name!r}; allowed are {', '.join(known)} and paths of files")
    return read_scenario(known.get(name, name))


def read_scenario(path: str) -> Scenario:
    """The scenario in a file. Raises ScenarioError with one sentence that names the file and the field."""
    return scenario_of(read_document(path, trusted_only=False), path)  # it runs on a node of its own


def scenario_of(document: Mapping[str, Any], path: str) -> Scenario:
    """The scenario in a document. `path` names it in the error message. Raises ScenarioError."""
    if isinstance(document.get("pressure"), dict):
        try:
            return scenario_of({**document, "pressure": [document["pressure"]]}, path)
        except ScenarioError as error:
            raise ScenarioError(str(error).replace("pressure.0.", "pressure.", 1)) from None
    scenario = part_of(Scenario, document, path)
    _refuse(_contradictions(scenario), path)
    return scenario


def part_of(part: type[_Part], document: Mapping[str, Any], path: str) -> _Part:
    """A part of a scenario by itself, not yet beside the others. Raises ScenarioError."""
    try:
        return part.model_validate(document)
    except ValidationError as error:
        raise ScenarioError(first_problem(error, path, part)) from None


def on_filesystems(scenario: Scenario, fstype: FilesystemType) -> Scenario:
    """The scenario with filesystems of this type where it has tmpfs. Raises ScenarioError if one is too small."""
    node = scenario.node
    changed = {
        role: spec.model_copy(update={"type": fstype})
        for role, spec in node.filesystems.items()
        if spec.type is FilesystemType.TMPFS
    }
    _refuse((_too_small(f"the size of {role}", spec) for role, spec in changed.items()), scenario.name)
    parts = {
        "type": changed.get(FilesystemRole.NODEFS, node).type,
        "imagefs": changed.get(FilesystemRole.IMAGEFS, node.imagefs),
        "own_filesystems": tuple(changed.get(spec.name, spec) for spec in node.own_filesystems),
    }
    return scenario.model_copy(update={"node": node.model_copy(update=parts)})


# ---- fields that must agree

Problem = tuple[str, bool, str]
"""A field, whether something is wrong with it, and what, as the end of a sentence that begins with the field."""


def _refuse(problems: Iterable[Problem], name: str) -> None:
    """Raises ScenarioError for the first thing that is wrong. What comes after it is not looked at."""
    for field, wrong, problem in problems:
        if wrong:
            raise ScenarioError(f"{name}: {field}: {problem}")


def _contradictions(scenario: Scenario) -> Iterator[Problem]:
    node, pressures = scenario.node, scenario.pressures
    yield from _of_node(node)
    yield from _of_configuration(node)
    for number, pressure in enumerate(pressures):
        yield from _of_pressure(f"pressure.{number}" if len(pressures) > 1 else "pressure", pressure, node)
    yield "pressure.0.beside", pressures[0].beside, "there is no pressure before it"
    for number, fault in enumerate(scenario.faults):
        yield from _of_fault(f"faults.{number}", fault)
    allowed = ", ".join(node.signals)
    for name in scenario.expect.lowest:
        yield "expect.lowest", name not in node.signals, f"unknown signal {name!r}; allowed are {allowed}"


def _of_node(node: NodeSpec) -> Iterator[Problem]:
    layout = next(word for word, layout in LAYOUTS.items() if layout is node.layout)
    single, imagefs = node.layout is FsLayout.SINGLE, node.imagefs is not None
    yield "node.imagefs", single and imagefs, f"the layout {layout!r} has no imagefs of its own"
    yield "node.imagefs", not single and not imagefs, f"the layout {layout!r} needs an imagefs"
    yield _too_small("node.size", node)
    if node.imagefs is not None:
        yield _too_small("node.imagefs.size", node.imagefs)
    for number, spec in enumerate(node.own_filesystems):
        yield _too_small(f"node.filesystems.{number}.size", spec)
    for number, image in enumerate(node.images):
        yield _several_of_a_tag(f"node.images.{number}", image)
    images = [name for image in node.images for name in image.names]
    yield _twice("node.images", images)
    yield _twice("node.pods", [name for pod in node.pods for name in pod.names])
    yield _twice("node.filesystems", [spec.name for spec in node.own_filesystems])
    yield _twice("node.functions", [function.name for function in node.functions])
    for pod in node.pods:
        absent = f"{pod.name}: the image {quoted(pod.image)} is not among node.images"
        yield "node.pods", pod.image not in images, absent


def _of_configuration(node: NodeSpec) -> Iterator[Problem]:
    for name in node.other_fields:
        yield f"node.configuration.{name}", name in SET_BY_THE_DRILL, "the drill sets it"
        yield f"node.configuration.{name}", name in UNDER_NODE, f"belongs directly under {UNDER_NODE.get(name)}"
    none = not node.eviction_hard and not node.eviction_soft
    yield "node.evictionHard", none, "at least one threshold is needed, here or in evictionSoft"
    made = {**node.tables(lambda name: f"/{name}"), "kubeletConfig": ""}
    for where, fields in (("node.", node.thresholds), ("node.configuration: ", node.configuration)):
        try:
            load(None, {}, {**fields, **made})
        except ConfigurationError as error:
            field, _, problem = f"{where}{str(error).removeprefix('flags: ')}".partition(": ")
            yield field, True, problem


def _too_small(field: str, spec: FilesystemSpec) -> Problem:
    """Whether no filesystem of that type can be so small."""
    least, size = ON_LOOP_DEVICES.get(spec.type, 0), spec.size_bytes
    at_least = f"must be at least {format_bytes(least)} for {spec.type}, but it was {format_bytes(size)}"
    return field, size < least, at_least


def _several_of_a_tag(field: str, image: ImageSpec) -> Problem:
    only_one = f"only one image can be {quoted(image.name)}, but it was {image.count}"
    return f"{field}.count", image.has_tag and image.count > 1, only_one


def _twice(field: str, names: Sequence[str]) -> Problem:
    repeated = [name for name, times in Counter(names).items() if times > 1]
    return field, bool(repeated), f"the name {', '.join(map(quoted, repeated[:1]))} occurs twice"


def _of_pressure(field: str, pressure: Pressure, node: NodeSpec) -> Iterator[Problem]:
    grows, pod, image, where = pressure.grows, pressure.pod, pressure.image, pressure.written_where
    for name, given, kinds, needed in (
        ("pod", bool(pod), (Grows.LOG, Grows.WRITABLE), True),
        ("image", image is not None, (Grows.PULL,), True),
        ("where", where is not None, (Grows.BYTES, Grows.INODES), False),
        ("fileSize", pressure.file_bytes != 0, (Grows.INODES,), False),
        ("file", pressure.file is not FileEnd.CLOSED, (Grows.BYTES, Grows.LOG), False),
    ):
        yield f"{field}.{name}", given and grows not in kinds, f"is not allowed if grows is {grows}"
        yield f"{field}.{name}", needed and not given and grows in kinds, f"is missing if grows is {grows}"
    roles = (*KUBELET_ROLES, *node.own)
    one_of = f"must be one of {', '.join(roles)}, but it was {quoted(where)}"
    yield f"{field}.where", where is not None and where not in roles, one_of
    goes = not pressure.remains
    yield f"{field}.remains", goes and grows is Grows.WRITABLE, "what a container has written stays"
    yield f"{field}.remains", goes and grows is Grows.PULL, "what was pulled stays"
    state = {name: each.state for each in node.pods for name in each.names}.get(pod)
    runs = state in (PodState.RUNNING, PodState.INITIALIZED)
    started = state not in (PodState.CREATED, PodState.VANISHED)
    yield f"{field}.pod", bool(pod) and state is None, f"the pod {quoted(pod)} is not among node.pods"
    yield f"{field}.pod", grows is Grows.WRITABLE and not runs, f"{pod} does not run, so it cannot write"
    no_log = f"{pod} has no container that has started, so nothing writes its log"
    yield f"{field}.pod", grows is Grows.LOG and not started, no_log
    endless = pressure.limit is None and pressure.for_seconds is None and grows is not Grows.PULL
    yield f"{field}.amount", endless, f"is missing; allowed are a quantity, full, or a time in {field}.for"
    if image is not None:
        yield _several_of_a_tag(f"{field}.image", image)
        yield _twice(f"{field}.image", [name for spec in (*node.images, image) for name in spec.names])


def _of_fault(field: str, fault: Fault) -> Iterator[Problem]:
    action, given = fault.action, (fault.at_seconds is not None) + (fault.on_call is not None)
    yield f"{field}.at", given != 1, "exactly one of at and onCall must say when the fault is triggered"
    for name, value, needed in (
        ("method", fault.method, action.of_one_method),
        ("by", fault.by_seconds is not None, action is FaultAction.DELAY),
        ("how", fault.how, action is FaultAction.DISTORT),
    ):
        yield f"{field}.{name}", bool(value) and not needed, f"is not allowed in {action}"
        yield f"{field}.{name}", needed and not value, f"is missing in {action}"
    yield f"{field}.lasts", fault.lasts_seconds is None and action is FaultAction.AWAY, "is missing in away"
