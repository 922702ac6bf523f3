"""A scenario: a node, pressures, faults, and what must hold. The model of its file.

Fields are named as in the file, in snake case and with their unit: `age` in the file is
`age_seconds` here. The file writes amounts, percentages and durations as text, as in a Kubernetes
configuration (`24Mi`, `10%`, `1m30s`); here they are bytes, inodes or seconds. Reading stops at
the first problem, with one sentence that names the file and the field. `docs/drill.md`
is a guide with an example.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BeforeValidator, ConfigDict, Field, PlainSerializer, ValidationError

from eviction.configuration.effective import NEEDS_RESTART, load
from eviction.configuration.kubelet import EVICTION_MAPS
from eviction.configuration.models import name_in_file, read_as, setting
from eviction.configuration.strict_yaml import (
    ConfigurationError,
    StrictModel,
    quoted,
    read_document,
    sentence_about,
    unknown,
)
from eviction.configuration.text_forms import (
    Duration,
    GracePeriods,
    Marks,
    Quantity,
    QuantityOrPercentage,
    Seconds,
    map_by_signal,
    read_duration,
    read_size,
    text_form,
    within,
)
from eviction.configuration.threshold_config import KUBELET_EVICTION_HARD
from eviction.shipped import shipped
from eviction.types import Fields, Json
from reclaim.cri.status import Code as CallCode
from signals.quantity import DURATION_PATTERN, QUANTITY_PATTERN, Percentage, parse_percentage
from signals.types import (
    KUBELET_ROLES,
    KUBELET_SIGNALS,
    ROLE_NAME,
    FilesystemRole,
    FsLayout,
    Signal,
    signals_about,
)

# a scenario is rejected as a configuration is, with one sentence
ScenarioError = ConfigurationError

CONTAINER = "app"
INIT_CONTAINER = "init"
# kinds of what no runtime lists
LOG = "log"
FILE = "file"
FULL = "full"
NEVER = "never"
LAYOUTS = {
    "single": FsLayout.SINGLE,
    "dedicated": FsLayout.DEDICATED_IMAGEFS,
    "split": FsLayout.SPLIT,
}
ON_IMAGEFS = {
    FsLayout.SINGLE: (),
    FsLayout.DEDICATED_IMAGEFS: (FilesystemRole.IMAGEFS, FilesystemRole.CONTAINERFS),
    FsLayout.SPLIT: (FilesystemRole.IMAGEFS,),
}
BALLAST = "ReleaseBallast"
LARGEST = "1Ti"

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

_Item = TypeVar("_Item")
Several = Annotated[tuple[_Item, ...], Field(strict=False)]  # a list in the file


_read_amount = within(read_size, "0", LARGEST)
_read_some = within(read_size, "1", LARGEST)


# Bytes or files, in all or per second. A share may also be a percentage of the capacity.
Amount = Annotated[int, read_as(Quantity, _read_amount), PlainSerializer(str)]
Rate = Annotated[int, read_as(Quantity, _read_some)]
FilesystemSize = Annotated[int, read_as(Quantity, within(read_size, "1Mi", LARGEST))]
Share = Annotated[
    int | Percentage,
    read_as(
        QuantityOrPercentage,
        lambda text: parse_percentage(text) if text.endswith("%") else _read_amount(text),
    ),
]
Code = Annotated[
    str, read_as(Literal[tuple(code.name for code in CallCode if code is not CallCode.OK)], str)
]


def _or_word(word: str, pattern: str, read: Callable[[str], Any]) -> Any:
    """Marks a field that is this word, or a text of this form, which `read` reads."""
    return read_as(
        Annotated[str, text_form(pattern, word)], lambda text: text if text == word else read(text)
    )


class Part(StrictModel):
    """The base of all parts of the file."""

    model_config = ConfigDict(validate_default=True)


class FilesystemSpec(Part):
    """One filesystem."""

    size_bytes: FilesystemSize
    """Bytes; 1Mi to 1Ti."""
    inodes: int = Field(ge=100, le=10_000_000)
    """How many inodes it has."""


_OWN_NAME = Annotated[str, Field(json_schema_extra={"pattern": f"^{ROLE_NAME.pattern}$"})]


class OwnFilesystemSpec(FilesystemSpec):
    """A filesystem that the configuration adds, with `files` entries of `fileSize` bytes."""

    name: Annotated[FilesystemRole, read_as(_OWN_NAME, FilesystemRole)]
    """Its signals are NAME.available and NAME.inodesFree.

    The kubelet's own names are not allowed.
    """
    files: int = Field(0, ge=0, le=10_000)
    """How many entries it holds, each a minute newer than the one before."""
    file_bytes: Amount = setting("0", "fileSize")
    """Bytes of each entry."""


class FunctionSpec(Part):
    """An entry of `reclaimFunctions`. `does` has the drill write a program; the other fields are
    those of the configuration."""

    name: str
    """As in the configuration."""
    does: Literal["frees", "hangs", "lies", "fails", "floods", "leaves"] | None = None
    """What the program does: it frees the oldest entries of its filesystem until enough is free;
    ignores TERM and never exits; claims to have freed what it has not; exits with 3; writes output
    without end; or exits and leaves a process running."""
    frees: str | None = None
    """The filesystem on which it frees space."""
    timeout: Duration | None = None
    """How long the program may run."""
    size: Amount | None = None
    """Bytes of the ballast."""
    keep: int | None = None
    """How many rotated logs of each container are kept."""

    def entry(self, path_of: Callable[[str], str]) -> Json:
        """Its entry in the configuration. `path_of` gives the path of a program or ballast."""
        fields = self.model_dump(exclude={"does"}, exclude_none=True)
        if self.does is not None:
            fields["exec"] = [path_of(self.name)]
        elif self.name == BALLAST:
            fields["file"] = path_of(BALLAST)
        return fields


class ImageSpec(Part):
    """One or `count` images.

    Each has a layer of `size` bytes in `files` files; all share one of `shared` bytes.
    """

    name: str = Field(min_length=1, max_length=200)
    """A reference; the tag is 1 unless the name has one. Several are numbered: NAME-01:1."""
    count: int = Field(1, ge=1, le=1000)
    """How many there are."""
    size_bytes: Amount
    """Bytes of each image's own layer."""
    files: int = Field(1, ge=1, le=100_000)
    """How many files that layer has."""
    shared_bytes: Amount = setting("0")
    """Bytes of a layer that all images of this entry share."""
    age_seconds: Seconds = setting("1h")
    """How long ago the first image was first seen; the others follow a second apart."""

    @property
    def names(self) -> list[str]:
        """The references, with the name's tag or the tag `1`.

        Several are numbered, with at least two digits.
        """
        path, slash, last = self.name.rpartition("/")
        name, _, tag = last.partition(":")
        return [f"{path}{slash}{entry}:{tag or 1}" for entry in _numbered(name, self.count)]


def _numbered(name: str, count: int) -> list[str]:
    return [name] if count == 1 else [f"{name}-{number:02}" for number in range(1, count + 1)]


PodState = Literal[
    "running",
    "initialized",  # its init container has succeeded, its other container runs
    "crashed",  # the container has dead copies, and the kubelet still knows the pod
    "completed",  # the container succeeded, and the kubelet still knows the pod
    "created",  # the container was created and not started
    "unknown",  # the runtime reports the state UNKNOWN
    "gone",  # the container is dead, and the kubelet has forgotten the pod
    "vanished",  # only the logs of a forgotten pod are left
]


class PodSpec(Part):
    """One or `count` pods with one container each. `PodState` explains the states."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9.-]{0,60}$")
    """Several are numbered: NAME-01."""
    image: str
    """The reference of an image of the node, with its tag."""
    state: PodState
    """gone: dead, and the kubelet has forgotten the pod. vanished: only its logs are left."""
    count: int = Field(1, ge=1, le=1000)
    """How many there are."""
    written_copies: int | None = Field(None, ge=0, le=100, alias="deadCopies")
    """How many dead copies of the container there are before the last one.

    The default is 1 if it crashed, else 0.
    """
    write_bytes: Amount = setting("2Mi", "writes")
    """Bytes that each copy has written to its writable layer."""
    log_bytes: Amount = setting("0", "logs")
    """Bytes of each copy's log, and of each of its rotated logs."""
    rotated_logs: int = Field(0, ge=0, le=100)
    """How many rotated logs each copy has."""

    @property
    def dead_copies(self) -> int:
        if self.written_copies is not None:
            return self.written_copies
        return int(self.state == "crashed")

    @property
    def known_to_kubelet(self) -> bool:
        return self.state not in ("gone", "vanished")

    @property
    def names(self) -> list[str]:
        """The name. Several pods are numbered, with at least two digits."""
        return _numbered(self.name, self.count)


Layout = Annotated[FsLayout, read_as(Literal["single", "dedicated", "split"], LAYOUTS.__getitem__)]


class RuntimeSpec(Part):
    """The rules of the embedded runtime: those of containerd 2, with the scenario's changes."""

    container_space_delay_seconds: Seconds | None = None
    """How long after a container's removal its space is freed."""
    pins_sandbox_image: bool | None = None
    """Whether it pins the sandbox image."""
    fills_image_id: bool | None = None
    """Whether it sets Container.image_id."""


class NodeSpec(FilesystemSpec):
    """The node. `size` and `inodes` describe nodefs. The first image is the sandbox
    image. The thresholds and `configuration` are fields of the configuration file; thresholds
    that are not named are off."""

    layout: Layout = setting("single")
    """single: everything on one filesystem. dedicated: images and writable layers on imagefs.
    split: only images on imagefs."""
    imagefs: FilesystemSpec | None = None
    """The filesystem of images, in the layouts dedicated and split."""
    own_filesystems: Several[OwnFilesystemSpec] = setting(tuple, "filesystems")
    """The filesystems that the configuration adds."""
    functions: Several[FunctionSpec] = setting(tuple)
    """The reclaimFunctions of the configuration; its reclaimTable belongs in `configuration`."""
    images: Several[ImageSpec] = Field(min_length=1)
    """The images that the runtime has."""
    pods: Several[PodSpec] = setting(tuple)
    """The pods that run or have run."""
    eviction_hard: Marks = setting(dict)
    """Signal -> mark."""
    eviction_soft: Marks = setting(dict)
    """Signal -> mark that acts after a grace period."""
    eviction_soft_grace_period: GracePeriods = setting(dict)
    """Signal -> how long it must be below its soft mark."""
    eviction_minimum_reclaim: Marks = setting(dict)
    """Signal -> how far above its mark it must rise before relief is declared."""
    other_fields: Json = setting(dict, "configuration")
    """Other fields of the configuration file, except those that the drill sets itself."""
    runtime: RuntimeSpec = RuntimeSpec()
    """The embedded runtime."""
    rebooted: bool = False
    """Whether the node has just rebooted."""

    @property
    def configuration(self) -> Json:
        """The fields of the configuration file that do not depend on paths. Unless the scenario
        sets them, there is no periodic garbage collection and no hold-off; the kubelet's default
        thresholds that are not named are switched off in the kubelet's way, with 0%."""
        maps: dict[str, dict[str, str]] = self.model_dump(by_alias=True, include={*EVICTION_MAPS})
        hard = {**{str(signal): "0%" for signal in KUBELET_EVICTION_HARD}, **self.eviction_hard}
        return {
            "imageGCHighThresholdPercent": 100,
            "holdOffAfterStart": "0s",
            **self.other_fields,
            **maps,
            "evictionHard": hard,
        }

    def tables(self, path_of: Callable[[str], str]) -> Json:
        """`filesystems` and `reclaimFunctions` of the configuration. `path_of` gives the path of a
        filesystem, of a function's program, or of the ballast, by name."""
        return {
            "filesystems": [
                {"name": str(spec.name), "path": path_of(spec.name)}
                for spec in self.own_filesystems
            ],
            "reclaimFunctions": [function.entry(path_of) for function in self.functions],
        }

    @property
    def own(self) -> dict[FilesystemRole, OwnFilesystemSpec]:
        """The filesystems that the configuration adds, by name."""
        return {spec.name: spec for spec in self.own_filesystems}

    @property
    def filesystems(self) -> dict[FilesystemRole, FilesystemSpec]:
        """The filesystems by name."""
        imagefs = {} if self.imagefs is None else {FilesystemRole.IMAGEFS: self.imagefs}
        return {FilesystemRole.NODEFS: self, **imagefs, **self.own}

    @property
    def signals(self) -> tuple[Signal, ...]:
        return (*KUBELET_SIGNALS, *(signal for role in self.own for signal in signals_about(role)))

    def role(self, role: FilesystemRole) -> FilesystemRole:
        """The name of the filesystem that a role is on."""
        if role in self.own:
            return role
        return FilesystemRole.IMAGEFS if role in ON_IMAGEFS[self.layout] else FilesystemRole.NODEFS


Grows = Literal[
    "bytes",  # one file
    "inodes",  # the number of files, empty or small
    "log",  # a pod's log
    "writable",  # a pod's writable layer
    "pull",  # images are pulled one after another
]


class Pressure(Part):
    """One pressure. `amount` is a quantity or `full`; `for` limits its duration; with `beside` it
    starts together with the one before it."""

    grows: Grows
    """One file, many files, a pod's log, a pod's writable layer, or images that are
    pulled one after another.
    """
    rate: Rate
    """Bytes per second; files per second if inodes grow."""
    limit: Annotated[int | str, _or_word(FULL, QUANTITY_PATTERN, _read_some)] | None = setting(
        None, "amount"
    )
    """Bytes or files in all, or full: until the disk is full."""
    for_seconds: Seconds | None = None
    """How long it lasts at most."""
    after_seconds: Seconds = setting("0s")
    """How long to wait before it starts."""
    holds_seconds: Seconds = setting("0s")
    """How long to hold the disk filled before the next pressure starts."""
    remains: bool = True
    """False: what it wrote is removed at its end."""
    where: Annotated[FilesystemRole, read_as(str, FilesystemRole)] = setting("nodefs")
    """The filesystem on which bytes or inodes grow. The default is nodefs."""
    file_bytes: Amount = setting("0", "fileSize")
    """Bytes of each file if inodes grow."""
    pod: str = ""
    """The pod whose log or writable layer grows."""
    image: ImageSpec | None = None
    """The images that are pulled."""
    file: Literal["closed", "open", "deleted"] = "closed"
    """What becomes of the file or log once it has grown; deleted: it is kept open, and was unlinked
    before the first byte."""
    beside: bool = False
    """True: it starts together with the one before it."""

    @property
    def until_full(self) -> bool:
        return self.limit == FULL

    @property
    def amount(self) -> int | None:
        """The bytes or files that it writes; None: no limit."""
        return self.limit if isinstance(self.limit, int) else None

    @property
    def counts_inodes(self) -> bool:
        """True if `rate` and `amount` count files."""
        return self.grows == "inodes"

    @property
    def signal(self) -> Signal:
        """The signal that falls on the filesystem where it writes."""
        return signals_about(self.where)[self.counts_inodes]


FaultAction = Literal[
    # of one method of the runtime
    "fail",  # does nothing and fails
    "act-then-fail",
    "pretend",  # does nothing and reports success
    "delay",
    "hang",
    "cut",  # breaks a list off with an error
    # of the whole runtime
    "restart",
    "away",  # is stopped for a while
]


class Fault(Part):
    """One fault: its action and its time."""

    action: FaultAction
    """What goes wrong. restart and away concern the whole runtime, all others one method."""
    at_seconds: Seconds
    """How long after the first pressure began."""
    method: Method | None = None
    """The method of CRI that goes wrong."""
    times: int | None = Field(None, ge=1, le=10_000)
    """For how many calls. No limit by default."""
    lasts_seconds: Seconds | None = None
    """For how long. No limit by default; the action away needs one."""
    by_seconds: Seconds | None = None
    """How late a delayed answer is."""
    code: Code = setting("UNAVAILABLE")
    """The gRPC status that the client gets."""
    message: str = Field("failed on purpose", max_length=200)
    """The message of that status."""


# Matches names of objects as a shell matches file names. The kinds: a `log` is a pod's log
# directory, a `file` is `ballast` or `buildcache/0001`, an entry of a filesystem that the
# configuration adds; without one any kind matches.
Pattern = Annotated[str, Field(pattern=r"^((image|container|sandbox|log|file) )?[^ ]+$")]


class ConditionExpectation(Part):
    """When ReclaimPressure must be reported, and when it must end. The scenario's thresholds stand
    for the kubelet's, so this is the DiskPressure of a kubelet that has them."""

    never: bool = False
    """It must not be reported."""
    comes_within_seconds: Seconds | None = None
    """Counted from crossing the mark."""
    goes_within_seconds: Seconds | None = None
    """Counted from relief."""


class Expectation(Part):
    """What must hold. A pattern is a name, or a kind and a name: `image old/*`."""

    condition: ConditionExpectation = setting(ConditionExpectation(), "diskPressure")
    """When the condition must be reported. By default it must be reported at any time."""
    relief: Annotated[float | str, _or_word(NEVER, DURATION_PATTERN, read_duration)] | None = (
        setting(None, "relievedWithin")
    )
    """Counted from crossing a mark, each time. never: pressure must remain."""
    first_removal_within_seconds: Seconds | None = None
    """Counted from the first crossing of a mark."""
    first_removal_not_before_seconds: Seconds | None = None
    """Counted from the first crossing of a mark."""
    nothing_goes: bool = False
    """No object may be removed."""
    goes: Several[Pattern] = setting(tuple)
    """Patterns of objects that must be removed. Each must match an object."""
    stays: Several[Pattern] = setting(tuple)
    """Patterns of objects that must be kept. Each must match an object."""
    images_left_at_least: int = Field(0, ge=0)
    """How many images must be left."""
    lowest: Annotated[dict[str, Share], map_by_signal()] = setting(dict)
    """Signal -> the least that must be available at any time."""
    passes_at_most: int | None = Field(None, ge=0)
    """How many passes may try a removal."""
    says: str = Field("", max_length=200)
    """A text that the reason of the last pass must contain."""
    no_restarts: bool = True
    """By its restart rule the kubelet would start no container that it
    would not have started before.
    """
    new_pod_starts: bool = True
    """A new pod starts afterwards."""
    quiet_seconds: Seconds | None = setting(None, "quietFor")
    """How long nothing must happen at the end."""

    @property
    def never_relieved(self) -> bool:
        return self.relief == NEVER

    @property
    def relieved_within_seconds(self) -> float | None:
        """Counted from crossing a mark, each time; None: no time is expected."""
        return self.relief if isinstance(self.relief, float) else None


_Pressures = Annotated[
    Several[Pressure],
    BeforeValidator(lambda given: [given] if isinstance(given, Mapping) else given),
]


def _one_or_several(schema: Json) -> None:
    """A single pressure may be written as one mapping."""
    several = schema["properties"]["pressure"]
    what = several.pop("description", "")
    schema["properties"]["pressure"] = {"description": what, "anyOf": [several["items"], several]}


class Scenario(Part):
    """The whole file. A single `pressure` may be written as one mapping."""

    model_config = ConfigDict(title="Scenario", json_schema_extra=_one_or_several)

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")
    """Its name in reports."""
    why: str = Field(min_length=1)
    """What it shows, in one sentence."""
    node: NodeSpec
    """The node that the drill makes."""
    pressures: _Pressures = Field(alias="pressure", min_length=1, max_length=20)
    """What fills the disk: one pressure, or several one after another."""
    faults: Several[Fault] = Field(default_factory=tuple, max_length=20)
    """What goes wrong meanwhile. Every fault must be triggered."""
    expect: Expectation
    """What must hold."""


# Fields that `configuration` of a scenario may not have: the drill sets them, since it makes the
# node and its kubelet, or they have a field of their own under `node`.
NOT_IN_A_SCENARIO = {
    "apiVersion",
    "kind",
    *map(name_in_file, EVICTION_MAPS),
    "kubeletConfig",
    "kubeletConfigDir",
    "kubeletTokenFile",
    "kubeletCertificateFile",
    "kubeletKeyFile",
    "kubeletCAFile",
    "kubeletServerName",
    "kubeletInsecureSkipVerify",
    *NEEDS_RESTART.values(),
} - {"periodicGC", "holdOffAfterStart", "kubeletHealthzEndpoint"}


def library() -> dict[str, str]:
    """The built-in scenarios: name -> path."""
    return {path.stem: str(path) for path in sorted(shipped("scenarios").glob("*.yaml"))}


def find_scenario(name: str) -> Scenario:
    """The built-in scenario of this name, or the one in the file at this path.

    Raises ScenarioError.
    """
    known = library()
    if name not in known and os.sep not in name and not name.endswith((".yaml", ".yml")):
        raise ScenarioError(
            unknown(
                "scenario",
                name,
                known,
                otherwise="`reclaimd drill --list` shows all; paths of files are allowed",
            )
        )
    return read_scenario(known.get(name, name))


def read_scenario(path: str) -> Scenario:
    """The scenario in a file.

    Raises ScenarioError with one sentence that names the file and the field.
    """
    # it runs on a node of its own
    return scenario_of(read_document(path, trusted_only=False), path)


def scenario_of(document: Fields, path: str) -> Scenario:
    """The scenario in a document, which error messages call `path`. Raises ScenarioError."""
    try:
        scenario = Scenario.model_validate(document)
    except ValidationError as error:
        raise ScenarioError(sentence_about(error.errors()[0], path)) from None
    for field, wrong, problem in _contradictions(scenario):
        if wrong:
            raise ScenarioError(f"{path}: {field}: {problem}")
    return scenario


# ---- fields that must agree

Problem = tuple[str, bool, str]
"""A field, whether it is wrong, and the problem, as the rest of a sentence
that begins with the field.
"""


def _contradictions(scenario: Scenario) -> Iterator[Problem]:
    node = scenario.node
    pressures = scenario.pressures
    yield from _of_node(node)
    for number, pressure in enumerate(pressures):
        yield from _of_pressure(f"pressure.{number}", pressure, node)
    yield "pressure.0.beside", pressures[0].beside, "there is no pressure before it"
    for number, fault in enumerate(scenario.faults):
        yield from _of_fault(f"faults.{number}", fault)
    allowed = ", ".join(node.signals)
    for name in scenario.expect.lowest:
        yield (
            "expect.lowest",
            name not in node.signals,
            f"unknown signal {name!r}; allowed are {allowed}",
        )


def _of_node(node: NodeSpec) -> Iterator[Problem]:
    wrong = (node.layout is FsLayout.SINGLE) is (node.imagefs is not None)
    yield (
        "node.imagefs",
        wrong,
        "the layouts dedicated and split need one, the layout single has none of its own",
    )
    images = [name for image in node.images for name in image.names]
    yield _twice("node.images", images)
    yield _twice("node.pods", [name for pod in node.pods for name in pod.names])
    for pod in node.pods:
        yield (
            "node.pods",
            pod.image not in images,
            f"{pod.name}: the image {quoted(pod.image)} is not among node.images",
        )
    for name in node.other_fields:
        problem = "is not allowed here: the drill sets it, or it has a field of its own under node"
        yield f"node.configuration.{name}", name in NOT_IN_A_SCENARIO, problem
    yield (
        "node.evictionHard",
        not node.eviction_hard and not node.eviction_soft,
        "at least one threshold is needed, here or in evictionSoft",
    )
    tables = node.tables(lambda name: f"/{name}")
    try:
        load(None, {}, {**node.configuration, **tables, "kubeletConfig": ""})
    except ConfigurationError as error:
        text = str(error).removeprefix("flags: ")
        where = "node." if text.partition(":")[0] in NOT_IN_A_SCENARIO else "node.configuration: "
        field, _, problem = f"{where}{text}".partition(": ")
        yield field, True, problem


def _twice(field: str, names: Sequence[str]) -> Problem:
    repeated = [name for name, times in Counter(names).items() if times > 1]
    return field, bool(repeated), f"the name {', '.join(map(quoted, repeated[:1]))} occurs twice"


# A field -> what must grow for it to be given.
OF_WHAT_GROWS: Mapping[str, tuple[Grows, ...]] = {
    "pod": ("log", "writable"),
    "image": ("pull",),
    "where": ("bytes", "inodes"),
    "file_bytes": ("inodes",),
    "file": ("bytes", "log"),
}
# What grows -> the states of a pod in which it can.
GROWS_WHILE: Mapping[Grows, tuple[PodState, ...]] = {
    "writable": ("running", "initialized"),
    "log": ("running", "initialized", "crashed", "completed", "unknown", "gone"),
}


def _of_pressure(field: str, pressure: Pressure, node: NodeSpec) -> Iterator[Problem]:
    grows = pressure.grows
    pod = pressure.pod
    given = pressure.model_fields_set
    for name, kinds in OF_WHAT_GROWS.items():
        written = f"{field}.{Pressure.model_fields[name].alias}"
        yield written, name in given and grows not in kinds, f"is not allowed if grows is {grows}"
        yield (
            written,
            name in ("pod", "image") and name not in given and grows in kinds,
            f"is missing if grows is {grows}",
        )
    roles = (*KUBELET_ROLES, *node.own)
    yield (
        f"{field}.where",
        pressure.where not in roles,
        f"must be one of {', '.join(roles)}, but it was {quoted(pressure.where)}",
    )
    kept = grows in ("writable", "pull") and not pressure.remains
    must_be = (
        f"must be true if grows is {grows}: the files of containers and images that were pulled are"
        " kept"
    )
    yield f"{field}.remains", kept, must_be
    state = {name: spec.state for spec in node.pods for name in spec.names}.get(pod)
    yield (
        f"{field}.pod",
        "pod" in given and state is None,
        f"the pod {quoted(pod)} is not among node.pods",
    )
    yield (
        f"{field}.pod",
        state not in GROWS_WHILE.get(grows, (state,)),
        f"{pod} is {state}, so its {grows} does not grow",
    )
    endless = pressure.limit is None and pressure.for_seconds is None and grows != "pull"
    yield (
        f"{field}.amount",
        endless,
        f"is missing; allowed are a quantity, full, or a time in {field}.for",
    )
    if pressure.image is not None:
        yield _twice(
            f"{field}.image",
            [name for spec in (*node.images, pressure.image) for name in spec.names],
        )


def _of_fault(field: str, fault: Fault) -> Iterator[Problem]:
    action = fault.action
    for name, value, needed in (
        ("method", fault.method, action not in ("restart", "away")),
        ("by", fault.by_seconds, action == "delay"),
    ):
        yield (
            f"{field}.{name}",
            value is not None and not needed,
            f"is not allowed with the action {action}",
        )
        yield (
            f"{field}.{name}",
            value is None and needed,
            f"is missing; the action {action} needs it",
        )
    yield (
        f"{field}.lasts",
        fault.lasts_seconds is None and action == "away",
        "is missing; the action away needs it",
    )
