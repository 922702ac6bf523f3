"""Listed objects, verdicts, plans and outcomes. Values only.

The objects are those of the Container Runtime Interface (CRI v1, https://github.com/kubernetes/cri-api), reduced to
what a decision needs. Sizes are bytes, times of the runtime are nanoseconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, NamedTuple

from signals.types import FilesystemRole

NEVER = float("inf")


class ReclaimError(Exception):
    """Root of what can go wrong while reclaiming."""


class RuntimeUnavailable(ReclaimError):
    """The container runtime cannot be reached, does not answer in time, or gave no complete answer.

    `transient`: the connection was refused or lost, so that the same call may succeed a moment later. `late`: the
    deadline of the call has passed.
    """

    def __init__(self, message: str, *, transient: bool = False, late: bool = False):
        super().__init__(message)
        self.transient = transient
        self.late = late


class RemovalFailed(ReclaimError):
    """The runtime or the filesystem refused or failed one removal. The message is its own."""


class PolicyError(ReclaimError):
    """A garbage collection policy that contradicts itself. The message names the value and what is allowed."""


DELETE_ALL_UNUSED_CONTAINERS: Final = "DeleteAllUnusedContainers"
DELETE_UNUSED_IMAGES: Final = "DeleteUnusedImages"
FREES: Final = {
    DELETE_ALL_UNUSED_CONTAINERS: FilesystemRole.CONTAINERFS,
    DELETE_UNUSED_IMAGES: FilesystemRole.IMAGEFS,
}
"""On which filesystem the kubelet's functions free space, by the names that rows of the reclaim table have for them."""


class ContainerState(StrEnum):
    """States of a container in CRI. `EXITED` is final; `CREATED` may start at any moment."""

    CREATED = "CREATED"
    RUNNING = "RUNNING"
    EXITED = "EXITED"
    UNKNOWN = "UNKNOWN"


class PodSandboxState(StrEnum):
    """States of a pod sandbox in CRI."""

    READY = "READY"
    NOTREADY = "NOTREADY"


class Kind(StrEnum):
    """Kinds of objects that the kubelet's own functions remove. Another function may name kinds of its own."""

    CONTAINER = "container"
    SANDBOX = "sandbox"
    IMAGE = "image"
    POD_LOG = "pod_log"
    LOG_SYMLINK = "log_symlink"


class Reason(StrEnum):
    """Why an object is removed or kept; `reclaim/README.md` documents each word. Another function may have its own."""

    # removed
    OLDER_COPY = "older_copy"
    OVER_LIMIT = "over_limit"
    POD_GONE = "pod_gone"
    POD_TERMINATED = "pod_terminated"
    TERMINATED_BY_EVIDENCE = "terminated_by_evidence"
    POD_EVICTED = "pod_evicted"
    OLDER_SANDBOX = "older_sandbox"
    UNUSED = "unused"
    MAXIMUM_AGE = "maximum_age"
    DANGLING = "dangling"
    # kept
    RUNNING = "running"
    CREATED = "created"
    UNKNOWN_STATE = "unknown_state"
    NOT_KUBELETS = "not_kubelets"
    NEWEST_OF_LIVE_POD = "newest_of_live_pod"
    TOO_YOUNG = "too_young"
    READY = "ready"
    HAS_CONTAINERS = "has_containers"
    NEWEST_SANDBOX = "newest_sandbox"
    ROTATING = "rotating"
    TARGET_EXISTS = "target_exists"
    ENOUGH_FREED = "enough_freed"
    POD_ALIVE = "pod_alive"
    POD_UNKNOWN = "pod_unknown"
    IN_USE = "in_use"
    PINNED = "pinned"
    KEEP_LIST = "keep_list"
    NEWEST_OF_REPOSITORY = "newest_of_repository"
    SANDBOX_IMAGE = "sandbox_image"
    SANDBOX_IMAGE_UNKNOWN = "sandbox_image_unknown"
    UNRESOLVED_IMAGE = "unresolved_image"
    WITHIN_LIMIT = "within_limit"
    RELIEVED = "relieved"
    UNREADABLE = "unreadable"
    HELD_OFF = "held_off"
    STOPPING = "stopping"
    INCOMPLETE_LISTING = "incomplete_listing"
    BEING_REMOVED = "being_removed"
    RUNTIME_STUCK = "runtime_stuck"


class Rule(StrEnum):
    """Whose rule a verdict follows.

    `KUBELET`: the kubelet, knowing what is known here, would decide the same. `GUARD`: a guard of ours decided, which
    is stricter than the kubelet or stands in for what only the kubelet knows.
    """

    KUBELET = "kubelet"
    GUARD = "guard"


Identity = tuple[str, str, int]
"""Which one of its kind an object is, in the kubelet's terms: pod UID, name (of the container, or of the pod), attempt.
What a list says of it under an id, the status of that id must say too."""


# Lists hold these by the ten thousand: a named tuple is made three times as fast as a frozen dataclass.
class Container(NamedTuple):
    """A container as the runtime lists it.

    `pod_uid` is the label `io.kubernetes.pod.uid`, empty when the container is not a kubelet's.
    `image_references` is everything the runtime says about its image: `image_id`, `image_ref`, `image.image`,
    `user_specified_image`, without empty ones; image-volume mounts are in `Listing.image_volumes`.
    """

    id: str
    name: str
    state: ContainerState
    created_at_ns: int
    pod_uid: str = ""
    pod_name: str = ""
    pod_namespace: str = ""
    sandbox_id: str = ""
    attempt: int = 0
    image_references: tuple[str, ...] = ()

    @property
    def identity(self) -> Identity:
        """Which copy of which container of which pod it is."""
        return self.pod_uid, self.name, self.attempt

    @property
    def title(self) -> str:
        """For people: `namespace/pod/container#attempt`."""
        pod = f"{self.pod_namespace}/{self.pod_name}/" if self.pod_name else ""
        return f"{pod}{self.name}#{self.attempt}"


class PodSandbox(NamedTuple):
    """A pod sandbox as the runtime lists it. `pod_uid` is that of its metadata; `labelled` tells whether it also
    carries the kubelet's label `io.kubernetes.pod.uid`. `config_source`: where the kubelet has the pod from, by its
    annotation: `api`, `file`, `http`; empty if it does not say."""

    id: str
    state: PodSandboxState
    created_at_ns: int
    pod_uid: str = ""
    pod_name: str = ""
    pod_namespace: str = ""
    attempt: int = 0
    labelled: bool = True
    config_source: str = ""

    @property
    def identity(self) -> Identity:
        """Which sandbox of which pod it is."""
        return self.pod_uid, self.pod_name, self.attempt

    @property
    def title(self) -> str:
        """For people: `namespace/pod#attempt`."""
        return f"{self.pod_namespace}/{self.pod_name}#{self.attempt}"


class Image(NamedTuple):
    """An image as the runtime lists it. `size_bytes` counts shared layers once per image.

    `runtime_handler`: the one that it was pulled for; empty where the runtime does not tell. One id may be listed once
    for each.
    """

    id: str
    repo_tags: tuple[str, ...] = ()
    repo_digests: tuple[str, ...] = ()
    size_bytes: int = 0
    pinned: bool = False
    runtime_handler: str = ""

    @property
    def record_key(self) -> str:
        """What its record is kept by, as in the kubelet (getImageTuple): the id, with the runtime handler if any."""
        return f"{self.id},{self.runtime_handler}" if self.runtime_handler else self.id

    @property
    def title(self) -> str:
        """For people: the first tag, else the first digest, else the id."""
        return next(iter(self.repo_tags + self.repo_digests), self.id)


@dataclass(frozen=True, slots=True)
class Listing:
    """Complete answers of the runtime, images asked first and containers after them.

    The order matters: a container that starts in between is then seen, never missed.
    `sandbox_image_references` names the image of pod sandboxes; None means that no source says which it is.
    `image_volumes` maps a container id to the images that it mounts as volumes, each with all its references.
    `resolved` holds what the runtime answered for references that no listed image carries: the id of an image, or
    None when it has no such image; nothing if it answered with another image than the one meant. `runtime`: its name.
    `named_images`: what the specs of pods that have not terminated name, where the kubelet has told.
    """

    images: tuple[Image, ...] = ()
    containers: tuple[Container, ...] = ()
    sandboxes: tuple[PodSandbox, ...] = ()
    sandbox_image_references: frozenset[str] | None = None
    image_volumes: Mapping[str, tuple[tuple[str, ...], ...]] = field(default_factory=dict)
    resolved: Mapping[str, str | None] = field(default_factory=dict)
    runtime: str = ""
    named_images: frozenset[str] = frozenset()

    def without(self, removed: Iterable[Verdict]) -> Listing:
        """The listing without these objects, as a dry run goes on after it has planned to remove them."""
        gone = {(verdict.kind, verdict.id) for verdict in removed}
        return replace(
            self,
            images=tuple(i for i in self.images if (Kind.IMAGE, i.id) not in gone),
            containers=tuple(c for c in self.containers if (Kind.CONTAINER, c.id) not in gone),
            sandboxes=tuple(s for s in self.sandboxes if (Kind.SANDBOX, s.id) not in gone),
        )


@dataclass(frozen=True, slots=True)
class ImageRecord:
    """What is remembered of an image, in monotonic seconds: first detected, and last seen in use (None = never).

    `first_listed`: when it was first listed to us, if another has told that it was there before; None: first detected.
    """

    first_detected: float
    last_used: float | None = None
    first_listed: float | None = None

    @property
    def listed_since(self) -> float:
        """Since when it is known from lists alone, as the kubelet knows it."""
        return self.first_detected if self.first_listed is None else self.first_listed


class Action(StrEnum):
    """The two verdicts."""

    REMOVE = "remove"
    KEEP = "keep"


class Verdict(NamedTuple):
    """What is to be done with one object, and why.

    `kind` and `reason` are words of `Kind` and `Reason`, or a function's own. `age_seconds` is set where the decision
    depended on the age, `eligible_in_seconds` where time alone will change the verdict, `pod_uid` for a part of a pod.
    `superseded_by`: the id of the newer copy that lets an older one be removed, and that must still be there then.
    `state`: a container's when the plan was made. `rule`: whose rule decided. `identity`: a part of a pod's, as listed.
    """

    kind: str
    id: str
    name: str
    action: Action
    reason: str
    size_bytes: int | None = None
    age_seconds: float | None = None
    pod_uid: str = ""
    eligible_in_seconds: float | None = None
    superseded_by: str = ""
    state: ContainerState | None = None
    rule: Rule = Rule.KUBELET
    identity: Identity | None = None

    def kept(self, reason: str, rule: Rule = Rule.GUARD) -> Verdict:
        """The verdict of the object when it was to be removed, and is kept for this reason."""
        return self._replace(action=Action.KEEP, reason=reason, eligible_in_seconds=None, rule=rule)


@dataclass(frozen=True, slots=True)
class Plan:
    """Every listed object with its verdict; those to remove are in the order in which they are removed.

    `list_seconds`: how long what it is made of took to read.
    """

    remove: tuple[Verdict, ...] = ()
    keep: tuple[Verdict, ...] = ()
    list_seconds: float = 0.0

    @property
    def nominal_bytes(self) -> int:
        """The sizes that the runtime reports for what is to be removed; shared layers count once per image."""
        return sum(verdict.size_bytes or 0 for verdict in self.remove)

    @property
    def eligible_in_seconds(self) -> float | None:
        """Seconds until the next kept object is old enough to be removed; None if age keeps none."""
        waits = [verdict.eligible_in_seconds for verdict in self.keep if verdict.eligible_in_seconds is not None]
        return min(waits, default=None)


class Result(StrEnum):
    """How one removal ended; `PARKED`: it has not, and its pass went on without it."""

    REMOVED = "removed"
    ALREADY_GONE = "already_gone"
    IN_USE = "in_use"
    FAILED = "failed"
    PLANNED = "planned"
    UNANSWERED = "unanswered"
    PARKED = "parked"


@dataclass(frozen=True, slots=True)
class Outcome:
    """One object after a pass.

    `result` is None for what was kept. `freed_bytes` and `freed_inodes` are what the filesystem had gained right after
    the removal, at least 0: late space counts where it arrives, and what others wrote meanwhile is subtracted. Both are
    0 in a dry run. `may_have_gone`: it does not count as removed, but the call may have removed it all the same; an
    object of this id would then be a new one. `call_seconds`: of its duration, the call alone; 0 if none was sent.
    """

    verdict: Verdict
    result: Result | None = None
    error: str = ""
    duration_seconds: float = 0.0
    freed_bytes: int = 0
    freed_inodes: int = 0
    may_have_gone: bool = False
    call_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Usage:
    """What is free on the filesystems concerned: inodes, and bytes by both counts of statvfs."""

    available_bytes: int = 0
    free_bytes: int = 0
    inodes_free: int = 0

    def gained_since(self, before: Usage) -> tuple[int, int]:
        """Bytes and inodes gained; negative when others used more than was freed.

        Of the two counts of bytes the larger gain counts: on an ext4 that was filled into its reserve the
        available count stays 0 while the free count already rises.
        """
        gained_bytes = max(self.available_bytes - before.available_bytes, self.free_bytes - before.free_bytes)
        return gained_bytes, self.inodes_free - before.inodes_free


class DiskVerdict(StrEnum):
    """Whether removals go on after a measurement of the disk.

    `UNREADABLE`: a reading is missing, so it cannot be told whether the disk is relieved, and nothing more is removed.
    """

    GO_ON = "go_on"
    RELIEVED = "relieved"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class DiskState:
    """The disk between two removals. `usage`: None where it is not measured. `seconds_left`: the urgency, until it
    reaches what must not be reached as fast as it fills now."""

    usage: Usage | None
    verdict: DiskVerdict
    seconds_left: float = NEVER

    def gained_since(self, before: DiskState) -> tuple[int, int]:
        """Bytes and inodes, as of `Usage`; 0 where it is not measured."""
        if self.usage is None or before.usage is None:
            return 0, 0
        return self.usage.gained_since(before.usage)


MeasureDisk = Callable[[int], DiskState]
"""Measures the disk; the argument is a credit in bytes that counts as free (a dry run, removals in flight)."""


@dataclass(frozen=True, slots=True)
class ReclaimResult:
    """What one reclaim function did.

    `error` is set if it could not do its work: then nothing was removed, or only what `outcomes` says. `relieved`: the
    disk is relieved, or cannot be read any more, so that nothing else may be removed. `skipped`: why the function was
    not called, empty if it was.
    """

    operation: str
    outcomes: tuple[Outcome, ...] = ()
    kept: tuple[Outcome, ...] = ()
    nominal_bytes: int = 0
    relieved: bool = False
    eligible_in_seconds: float | None = None
    error: str = ""
    list_seconds: float = 0.0
    plan_seconds: float = 0.0
    remove_seconds: float = 0.0
    skipped: str = ""

    @property
    def freed_bytes(self) -> int:
        """What the filesystems had gained right after its removals, in bytes."""
        return sum(o.freed_bytes for o in self.outcomes)

    @property
    def freed_inodes(self) -> int:
        """The same in inodes."""
        return sum(o.freed_inodes for o in self.outcomes)

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.list_seconds + self.plan_seconds + self.remove_seconds

    def count(self, result: Result) -> int:
        """How many removals ended this way."""
        return sum(1 for outcome in self.outcomes if outcome.result is result)


class EventReason(StrEnum):
    """The kubelet's reasons of events about its node that concern garbage collection and eviction
    (`pkg/kubelet/events/event.go`, `pkg/kubelet/eviction/eviction_manager.go`). All are warnings."""

    EVICTION_THRESHOLD_MET = "EvictionThresholdMet"
    CONTAINER_GC_FAILED = "ContainerGCFailed"
    IMAGE_GC_FAILED = "ImageGCFailed"
    INVALID_DISK_CAPACITY = "InvalidDiskCapacity"
    FREE_DISK_SPACE_FAILED = "FreeDiskSpaceFailed"


@dataclass(frozen=True, slots=True)
class GCEvent:
    """An event about the node: the sentence, and the numbers in it by name (bytes, percent).

    `repeated`: the same state was announced before, and lasts.
    """

    reason: EventReason
    message: str
    values: Mapping[str, int] = field(default_factory=dict)
    repeated: bool = False
