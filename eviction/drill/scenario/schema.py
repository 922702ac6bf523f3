"""The fields of a scenario file, with their types and ranges.

`reader` turns their texts into amounts and checks fields that must agree. Quantities, percentages and durations are
texts as in a Kubernetes configuration (`24Mi`, `10%`, `1m30s`).
"""

from __future__ import annotations

from typing import Any, Literal

from eviction.configuration.models import Field
from eviction.configuration.strict_yaml import StrictModel

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


Filesystem = Literal["tmpfs", "ext4", "xfs", "btrfs", "directory"]


class FilesystemFields(StrictModel):
    """One filesystem."""

    size: str
    inodes: int = Field(ge=100, le=10_000_000)
    type: Filesystem = "tmpfs"


class OwnFilesystemFields(FilesystemFields):
    """A filesystem of the configuration's own, with `files` entries of `fileSize` bytes, the first one the oldest."""

    name: str
    files: int = Field(0, ge=0, le=10_000)
    fileSize: str = "0"  # noqa: N815 # field names are those of the file


class FunctionFields(StrictModel):
    """A function of `reclaimFunctions`. `does`: of a program that the drill writes, see `ProgramKind`; the others are
    named as in the configuration."""

    name: str
    does: Literal["frees", "hangs", "lies", "fails", "floods", "leaves"] | None = None
    frees: str | None = None
    timeout: str | None = None
    cooldown: str | None = None
    size: str | None = None
    keep: int | None = None


class ImageFields(StrictModel):
    """One or `count` images, each with a layer of its own (`size` in `files` files) and a common layer of `shared`
    bytes."""

    name: str = Field(min_length=1, max_length=200)
    count: int = Field(1, ge=1, le=1000)
    size: str
    files: int = Field(1, ge=1, le=100_000)
    shared: str = "0"
    age: str = "1h"
    pinned: bool = False


class PodFields(StrictModel):
    """One or `count` pods with one container each, of an image of the node; see `PodState` for the states."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9.-]{0,60}$")
    image: str
    state: Literal["running", "initialized", "crashed", "completed", "created", "unknown", "gone", "vanished"]
    count: int = Field(1, ge=1, le=1000)
    deadCopies: int | None = Field(None, ge=0, le=100)  # noqa: N815 # field names are those of the file
    writes: str = "2Mi"
    logs: str = "0"
    rotatedLogs: int = Field(0, ge=0, le=100)  # noqa: N815
    dead: str = "10m"
    restartPolicy: Literal["Always", "OnFailure", "Never"] | None = None  # noqa: N815


class RuntimeFields(StrictModel):
    """The runtime whose rules the embedded runtime follows, and the rules that the scenario changes."""

    dialect: Dialect = "containerd-2"
    containerSpaceDelay: str | None = None  # noqa: N815
    pinsSandboxImage: bool | None = None  # noqa: N815
    fillsImageId: bool | None = None  # noqa: N815
    unreferenced: str = "0"


class NodeFields(StrictModel):
    """The node. `size`, `inodes` and `type` are those of nodefs. The first image is the one of pod sandboxes.
    Thresholds and `configuration` are fields of the configuration file. A threshold that is not named is off."""

    layout: Literal["single", "dedicated", "split"] = "single"
    size: str
    inodes: int = Field(ge=100, le=10_000_000)
    type: Filesystem = "tmpfs"
    imagefs: FilesystemFields | None = None
    filesystems: list[OwnFilesystemFields] = Field(default_factory=list)
    functions: list[FunctionFields] = Field(default_factory=list)
    images: list[ImageFields] = Field(min_length=1)
    pods: list[PodFields] = Field(default_factory=list)
    evictionHard: dict[str, str] = Field(default_factory=dict)  # noqa: N815
    evictionSoft: dict[str, str] = Field(default_factory=dict)  # noqa: N815
    evictionSoftGracePeriod: dict[str, str] = Field(default_factory=dict)  # noqa: N815
    evictionMinimumReclaim: dict[str, str] = Field(default_factory=dict)  # noqa: N815
    configuration: dict[str, Any] = Field(default_factory=dict)
    runtime: RuntimeFields = RuntimeFields()
    collectors: int = Field(1, ge=1, le=4)
    rebooted: bool = False


class PressureFields(StrictModel):
    """One pressure. `amount` is a quantity or `full`; `for` ends it after a time. `beside`: it begins together with the
    one before it."""

    grows: Literal["bytes", "inodes", "log", "writable", "pull"]
    rate: str
    amount: str | None = None
    for_: str | None = Field(None, alias="for")
    after: str = "0s"
    holds: str = "0s"
    remains: bool = True
    where: str | None = None
    fileSize: str = "0"  # noqa: N815
    pod: str = ""
    image: ImageFields | None = None
    file: Literal["closed", "open", "deleted"] = "closed"
    beside: bool = False


class CallFields(StrictModel):
    """The call that triggers a fault: the `count`th call of a method since the first pressure began."""

    method: Method
    count: int = Field(1, ge=1, le=10_000)


class FaultFields(StrictModel):
    """One fault: its action and its trigger."""

    action: Literal["fail", "act-then-fail", "pretend", "delay", "hang", "cut", "distort", "restart", "away"]
    at: str | None = None
    onCall: CallFields | None = None  # noqa: N815
    method: Method | None = None
    times: int | None = Field(None, ge=1, le=10_000)
    lasts: str | None = None
    by: str | None = None
    code: Literal[
        "CANCELLED",
        "UNKNOWN",
        "DEADLINE_EXCEEDED",
        "NOT_FOUND",
        "RESOURCE_EXHAUSTED",
        "ABORTED",
        "UNIMPLEMENTED",
        "INTERNAL",
        "UNAVAILABLE",
    ] = "UNAVAILABLE"
    message: str = Field("failed on purpose", max_length=200)
    how: Wrong | None = None


class ConditionFields(StrictModel):
    """When ReclaimPressure has to be reported, and when it has to end. The scenario's thresholds stand for the
    kubelet's, so it is the DiskPressure of a kubelet that has them."""

    never: bool = False
    comesWithin: str | None = None  # noqa: N815
    goesWithin: str | None = None  # noqa: N815


class ExpectFields(StrictModel):
    """What must hold. `relievedWithin` may be `never`. A pattern is a name, or a kind and a name: `image old/*`."""

    diskPressure: ConditionFields = ConditionFields()  # noqa: N815
    relievedWithin: str | None = None  # noqa: N815
    firstRemovalWithin: str | None = None  # noqa: N815
    firstRemovalNotBefore: str | None = None  # noqa: N815
    nothingGoes: bool = False  # noqa: N815
    goes: list[str] = Field(default_factory=list)
    stays: list[str] = Field(default_factory=list)
    imagesLeftAtLeast: int = Field(0, ge=0)  # noqa: N815
    imagesLostBeyondNeed: int | None = Field(None, ge=0)  # noqa: N815
    lowest: dict[str, str] = Field(default_factory=dict)
    passesAtMost: int | None = Field(None, ge=0)  # noqa: N815
    says: str = Field("", max_length=200)
    noRestarts: bool = True  # noqa: N815
    newPodStarts: bool = True  # noqa: N815
    quietFor: str | None = None  # noqa: N815


class ScenarioFields(StrictModel):
    """The whole file. A single `pressure` may be written as one mapping."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")
    why: str = Field(min_length=1)
    node: NodeFields
    pressure: list[PressureFields] = Field(min_length=1, max_length=20)
    faults: list[FaultFields] = Field(default_factory=list, max_length=20)
    expect: ExpectFields
