"""The fields of a scenario file, with their types and ranges.

`reader` turns their texts into amounts and checks fields that must agree. Quantities, percentages and durations are
texts as in a Kubernetes configuration (`24Mi`, `10%`, `1m30s`).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from eviction.configuration.models import ConfigDict, Field
from eviction.configuration.strict_yaml import StrictModel
from eviction.configuration.text_forms import (
    Duration,
    GracePeriods,
    Marks,
    Quantity,
    QuantityOrPercentage,
    Schema,
    map_by_signal,
    text_form,
)
from signals.quantity import DURATION_PATTERN, QUANTITY_PATTERN
from signals.types import ROLE_NAME

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

    size: Quantity
    """Bytes; 1Mi to 1Ti."""
    inodes: int = Field(ge=100, le=10_000_000)
    """How many files it takes."""
    type: Filesystem = "tmpfs"
    """tmpfs: a filesystem of its own. ext4, xfs (300Mi at least), btrfs (110Mi): on a loop device, as root. directory:
    a size-limited view of one."""


class OwnFilesystemFields(FilesystemFields):
    """A filesystem of the configuration's own, with `files` entries of `fileSize` bytes, the first one the oldest."""

    name: str = Field(json_schema_extra={"pattern": f"^{ROLE_NAME.pattern}$"})
    """Its signals are NAME.available and NAME.inodesFree. None of the kubelet's names."""
    files: int = Field(0, ge=0, le=10_000)
    """How many entries it has, each a minute younger than the one before."""
    fileSize: Quantity = "0"  # noqa: N815 # field names are those of the file
    """Bytes of each."""


class FunctionFields(StrictModel):
    """A function of `reclaimFunctions`. `does`: of a program that the drill writes, see `ProgramKind`; the others are
    named as in the configuration."""

    name: str
    """As in the configuration."""
    does: Literal["frees", "hangs", "lies", "fails", "floods", "leaves"] | None = None
    """What the program does: frees the oldest entries first, hangs and ignores TERM, says that it has freed what it has
    not, fails, writes without end, or leaves a process behind."""
    frees: str | None = None
    """The filesystem on which it frees."""
    timeout: Duration | None = None
    """How long the program may run."""
    cooldown: Duration | None = None
    """How long it rests after a call."""
    size: Quantity | None = None
    """Bytes of the ballast."""
    keep: int | None = None
    """How many rotated logs of each container stay."""


class ImageFields(StrictModel):
    """One or `count` images, each with a layer of its own (`size` in `files` files) and a common layer of `shared`
    bytes."""

    name: str = Field(min_length=1, max_length=200)
    """A reference, with a tag of its own or else 1. Several are numbered: NAME-01:1."""
    count: int = Field(1, ge=1, le=1000)
    """How many there are."""
    size: Quantity
    """Bytes of the layer of its own."""
    files: int = Field(1, ge=1, le=100_000)
    """In how many files."""
    shared: Quantity = "0"
    """Bytes of a layer that all of this entry share."""
    age: Duration = "1h"
    """How long ago the first of them was first seen; the others follow a second apart."""
    pinned: bool = False
    """Whether the runtime pins it."""


class PodFields(StrictModel):
    """One or `count` pods with one container each, of an image of the node; see `PodState` for the states."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9.-]{0,60}$")
    """Several are numbered: NAME-01."""
    image: str
    """A reference of an image of the node, with its tag."""
    state: Literal["running", "initialized", "crashed", "completed", "created", "unknown", "gone", "vanished"]
    """gone: dead, and the kubelet has forgotten it. vanished: only its logs are left."""
    count: int = Field(1, ge=1, le=1000)
    """How many there are."""
    deadCopies: int | None = Field(None, ge=0, le=100)  # noqa: N815 # field names are those of the file
    """Dead copies of the container before the last one; left out: one if it crashed."""
    writes: Quantity = "2Mi"
    """Bytes that each copy has written into its writable layer."""
    logs: Quantity = "0"
    """Bytes of the log of each copy, and of each of its rotated logs."""
    rotatedLogs: int = Field(0, ge=0, le=100)  # noqa: N815
    """How many rotated logs each copy has."""
    dead: Duration = "10m"
    """How long ago the dead copies ended."""
    restartPolicy: Literal["Always", "OnFailure", "Never"] | None = None  # noqa: N815
    """Left out: OnFailure for a completed pod, else Always."""


class RuntimeFields(StrictModel):
    """The runtime whose rules the embedded runtime follows, and the rules that the scenario changes."""

    dialect: Dialect = "containerd-2"
    """Whose rules these are."""
    containerSpaceDelay: Duration | None = None  # noqa: N815
    """How late the space of a removed container is freed."""
    pinsSandboxImage: bool | None = None  # noqa: N815
    """Whether it pins the image of pod sandboxes."""
    fillsImageId: bool | None = None  # noqa: N815
    """Whether it fills Container.image_id."""
    unreferenced: Quantity = "0"
    """Bytes of content that nothing refers to and CRI does not show."""


class NodeFields(StrictModel):
    """The node. `size`, `inodes` and `type` are those of nodefs. The first image is the one of pod sandboxes.
    Thresholds and `configuration` are fields of the configuration file. A threshold that is not named is off."""

    layout: Literal["single", "dedicated", "split"] = "single"
    """single: everything on one filesystem. dedicated: images and writable layers on imagefs. split: images alone."""
    size: Quantity
    """Bytes of nodefs; 1Mi to 1Ti."""
    inodes: int = Field(ge=100, le=10_000_000)
    """How many files nodefs takes."""
    type: Filesystem = "tmpfs"
    """tmpfs: a filesystem of its own. ext4, xfs (300Mi at least), btrfs (110Mi): on a loop device, as root. directory:
    a size-limited view of one."""
    imagefs: FilesystemFields | None = None
    """The filesystem of images in the layouts dedicated and split."""
    filesystems: list[OwnFilesystemFields] = Field(default_factory=list)
    """Of the configuration's own."""
    functions: list[FunctionFields] = Field(default_factory=list)
    """Of the configuration's own; its reclaimTable is in `configuration`."""
    images: list[ImageFields] = Field(min_length=1)
    """What the runtime has."""
    pods: list[PodFields] = Field(default_factory=list)
    """What ran or runs."""
    evictionHard: Marks = Field(default_factory=dict)  # noqa: N815
    """Signal -> mark."""
    evictionSoft: Marks = Field(default_factory=dict)  # noqa: N815
    """Signal -> mark that acts after a grace period."""
    evictionSoftGracePeriod: GracePeriods = Field(default_factory=dict)  # noqa: N815
    """Signal -> how long its soft mark must have been crossed."""
    evictionMinimumReclaim: Marks = Field(default_factory=dict)  # noqa: N815
    """Signal -> how far above its mark it must rise before relief is declared."""
    configuration: dict[str, Any] = Field(default_factory=dict)
    """Other fields of the configuration file, without those that the drill sets because it makes the node."""
    runtime: RuntimeFields = RuntimeFields()
    """The embedded runtime."""
    collectors: int = Field(1, ge=1, le=4)
    """How many agents with this configuration run."""
    rebooted: bool = False
    """Whether the node has just come up again."""


class PressureFields(StrictModel):
    """One pressure. `amount` is a quantity or `full`; `for` ends it after a time. `beside`: it begins together with the
    one before it."""

    grows: Literal["bytes", "inodes", "log", "writable", "pull"]
    """One file, many files, the log or the writable layer of a pod, or images that are pulled one after the other."""
    rate: Quantity
    """Bytes a second, or files a second where inodes grow."""
    amount: Annotated[str, text_form(QUANTITY_PATTERN, "full")] | None = None
    """Bytes or files; full: until the disk is."""
    for_: Duration | None = Field(None, alias="for")
    """How long it lasts at most."""
    after: Duration = "0s"
    """How long it waits before it begins."""
    holds: Duration = "0s"
    """How long it stands still at its end."""
    remains: bool = True
    """False: what was written goes again."""
    where: str | None = None
    """The filesystem for bytes and inodes; left out: nodefs."""
    fileSize: Quantity = "0"  # noqa: N815
    """Bytes of each file where inodes grow."""
    pod: str = ""
    """Whose log or writable layer grows."""
    image: ImageFields | None = None
    """What is pulled."""
    file: Literal["closed", "open", "deleted"] = "closed"
    """What becomes of the one file or log that grew; deleted: it has no name from the first byte on, and is held
    open."""
    beside: bool = False
    """True: it begins together with the one before it."""


class CallFields(StrictModel):
    """The call that triggers a fault: the `count`th call of a method since the first pressure began."""

    method: Method
    """A call of CRI."""
    count: int = Field(1, ge=1, le=10_000)
    """The how many-th."""


class FaultFields(StrictModel):
    """One fault: its action and its trigger."""

    action: Literal["fail", "act-then-fail", "pretend", "delay", "hang", "cut", "distort", "restart", "away"]
    """What goes wrong: restart and away of the whole runtime, the others of one method."""
    at: Duration | None = None
    """How long after the first pressure began; this or onCall."""
    onCall: CallFields | None = None  # noqa: N815
    """The call that triggers it."""
    method: Method | None = None
    """The call of CRI that goes wrong."""
    times: int | None = Field(None, ge=1, le=10_000)
    """For how many calls; left out: no limit."""
    lasts: Duration | None = None
    """How long; left out: no limit. The action away needs it."""
    by: Duration | None = None
    """How late a delayed answer is."""
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
    """The gRPC status that the client gets."""
    message: str = Field("failed on purpose", max_length=200)
    """Its message."""
    how: Wrong | None = None
    """How an answer is distorted."""


class ConditionFields(StrictModel):
    """When ReclaimPressure has to be reported, and when it has to end. The scenario's thresholds stand for the
    kubelet's, so it is the DiskPressure of a kubelet that has them."""

    never: bool = False
    """It must not be reported."""
    comesWithin: Duration | None = None  # noqa: N815
    """Of crossing the mark."""
    goesWithin: Duration | None = None  # noqa: N815
    """Of relief."""


class ExpectFields(StrictModel):
    """What must hold. `relievedWithin` may be `never`. A pattern is a name, or a kind and a name: `image old/*`."""

    diskPressure: ConditionFields = ConditionFields()  # noqa: N815
    """When the condition has to be reported; it must come, unless it says otherwise."""
    relievedWithin: Annotated[str, text_form(DURATION_PATTERN, "never")] | None = None  # noqa: N815
    """Of crossing a mark, each time; never: pressure must remain."""
    firstRemovalWithin: Duration | None = None  # noqa: N815
    """Of the first crossing."""
    firstRemovalNotBefore: Duration | None = None  # noqa: N815
    """Of the first crossing."""
    nothingGoes: bool = False  # noqa: N815
    """No object may be removed."""
    goes: list[str] = Field(default_factory=list)
    """Patterns of objects that must be removed; one must be there."""
    stays: list[str] = Field(default_factory=list)
    """Patterns of objects that must stay; one must be there."""
    imagesLeftAtLeast: int = Field(0, ge=0)  # noqa: N815
    """How many images must be left."""
    imagesLostBeyondNeed: int | None = Field(None, ge=0)  # noqa: N815
    """How many images may have gone although the others were enough."""
    lowest: Annotated[dict[str, QuantityOrPercentage], map_by_signal()] = Field(default_factory=dict)
    """Signal -> the least that may ever be available."""
    passesAtMost: int | None = Field(None, ge=0)  # noqa: N815
    """How many passes may have tried a removal."""
    says: str = Field("", max_length=200)
    """A text in the reason of the last pass."""
    noRestarts: bool = True  # noqa: N815
    """The kubelet's restart rule would start no container that it would not have started before."""
    newPodStarts: bool = True  # noqa: N815
    """A new pod starts afterwards."""
    quietFor: Duration | None = None  # noqa: N815
    """Nothing happens for so long at the end."""


def _one_or_several(schema: Schema) -> None:
    """A single pressure may be written as one mapping (`reader.scenario_of`)."""
    several = schema["properties"]["pressure"]
    del several["title"]
    schema["properties"]["pressure"] = {"anyOf": [several["items"], several]}


class ScenarioFields(StrictModel):
    """The whole file. A single `pressure` may be written as one mapping."""

    model_config = ConfigDict(title="Scenario", json_schema_extra=_one_or_several)

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")
    """Its name in reports."""
    why: str = Field(min_length=1)
    """What it shows, in one sentence."""
    node: NodeFields
    """What the drill makes."""
    pressure: list[PressureFields] = Field(min_length=1, max_length=20)
    """What fills the disk: one, or several one after the other."""
    faults: list[FaultFields] = Field(default_factory=list, max_length=20)
    """What goes wrong meanwhile. Each must be triggered."""
    expect: ExpectFields
    """What must hold."""
