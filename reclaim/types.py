"""Listed objects, verdicts, plans, outcomes and events; and what the container runtime is asked.

The objects are those of the Container Runtime Interface (CRI v1,
https://github.com/kubernetes/cri-api), reduced to what a decision needs. Sizes are in bytes; times
reported by the runtime are in nanoseconds since the epoch.

The calls of `Runtime` are named as in CRI (RuntimeService and ImageService), and made over gRPC by
`reclaim.cri.client`. Reads raise RuntimeUnavailable if there is no complete answer. Removals raise
RemovalFailed if the runtime answered with an error; nothing is known then, so ask again. A removal
returns False if the runtime has no such object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, Protocol, Self, TypeVar

from signals.types import FilesystemRole

NEVER = float("inf")


class ReclaimError(Exception):
    """The root of everything that can go wrong while reclaiming. The message is one sentence.

    `reclaim/README.md`, *Errors*, has the family.
    """


class RuntimeUnavailable(ReclaimError):
    """The container runtime gave no complete answer. What that means for a pass:

    * this class and all below it but `AnsweredWithError`: the runtime is silent, so
      no further object of the stage is removed. `ConnectionLost` is asked again at
      once, `AnsweredLate` is not.
    * `AnsweredWithError`: this object fails, and nothing is known about others. `RequestRefused`:
      nor would it help to ask again.
    """


class ConnectionLost(RuntimeUnavailable):
    """The connection was refused or lost: the same call may succeed a moment later."""


class AnsweredLate(RuntimeUnavailable):
    """The call's deadline passed."""


class AnsweredWithError(RuntimeUnavailable):
    """The runtime answered with an error of its own, or with something that cannot be used."""


class RequestRefused(AnsweredWithError):
    """The runtime answered with an error of its own about what was asked."""


class RemovalFailed(ReclaimError):
    """The runtime or the filesystem refused a removal, or failed to carry it out.

    The message is its own.
    """


class PolicyError(ReclaimError, ValueError):
    """A garbage collection policy that contradicts itself.

    The message names the value and what is allowed.
    """


DELETE_ALL_UNUSED_CONTAINERS = "DeleteAllUnusedContainers"
DELETE_UNUSED_IMAGES = "DeleteUnusedImages"
FREES = {
    DELETE_ALL_UNUSED_CONTAINERS: FilesystemRole.CONTAINERFS,
    DELETE_UNUSED_IMAGES: FilesystemRole.IMAGEFS,
}
"""The filesystem on which each of the kubelet's functions frees space, by the function's
name in the reclaim table.
"""


class ContainerState(StrEnum):
    """States of a container in CRI.

    `EXITED` is final; a `CREATED` container may start at any moment.
    """

    CREATED = "CREATED"
    RUNNING = "RUNNING"
    EXITED = "EXITED"
    UNKNOWN = "UNKNOWN"


class PodSandboxState(StrEnum):
    """States of a pod sandbox in CRI."""

    READY = "READY"
    NOTREADY = "NOTREADY"


class Kind(StrEnum):
    """Kinds of objects that the kubelet's own functions remove.

    Other functions may define kinds of their own.
    """

    CONTAINER = "container"
    SANDBOX = "sandbox"
    IMAGE = "image"
    POD_LOG = "pod_log"
    LOG_SYMLINK = "log_symlink"


class Worded(StrEnum):
    """A closed list of words for programs.

    `words`: what each says, for people. `remedy`: what can be done about it; empty where there is
    nothing to be done.
    """

    words: str
    remedy: str

    def __new__(cls, word: str, words: str = "", remedy: str = "") -> Self:
        member = str.__new__(cls, word)
        member._value_ = word
        member.words = words
        member.remedy = remedy
        return member


class Reason(Worded):
    """Why an object is removed or kept.

    `docs/functions.md` documents each word; other functions may define their own.
    """

    # removed
    OLDER_COPY = "older_copy", "a newer dead copy of it is kept"
    OVER_LIMIT = "over_limit", "beyond the number of dead copies to keep"
    POD_GONE = "pod_gone", "its pod is gone"
    POD_TERMINATED = "pod_terminated", "its pod has terminated for good"
    POD_EVICTED = "pod_evicted", "its pod was evicted"
    OLDER_SANDBOX = "older_sandbox", "a newer sandbox of its pod is kept"
    UNUSED = "unused", "no container uses it"
    MAXIMUM_AGE = "maximum_age", "not used for longer than the maximum age"
    DANGLING = "dangling", "points to nothing"
    # kept
    RUNNING = "running", "is running"
    CREATED = "created", "may start at any moment"
    UNKNOWN_STATE = "unknown_state", "the runtime does not know its state"
    NOT_KUBELETS = "not_kubelets", "has no pod UID: not created by a kubelet"
    NEWEST_OF_LIVE_POD = "newest_of_live_pod", "is how the kubelet knows that it has run"
    TOO_YOUNG = "too_young", "is too young"
    READY = "ready", "is ready"
    HAS_CONTAINERS = "has_containers", "still has containers"
    NEWEST_SANDBOX = "newest_sandbox", "is the newest sandbox of its pod"
    ROTATING = "rotating", "its container is running: the log may be rotating"
    TARGET_EXISTS = "target_exists", "points to a log that exists"
    POD_ALIVE = "pod_alive", "its pod exists"
    POD_UNKNOWN = "pod_unknown", "its pod may still exist"
    IN_USE = "in_use", "a pod uses it"
    PINNED = "pinned", "is pinned"
    KEEP_LIST = "keep_list", "is on the keep-list"
    NEWEST_OF_REPOSITORY = "newest_of_repository", "is one of the newest of its repository"
    NOT_PULLED = "not_pulled", "the kubelet did not pull it, so it may not come back"
    SANDBOX_IMAGE = "sandbox_image", "no pod starts without it"
    SANDBOX_IMAGE_UNKNOWN = (
        "sandbox_image_unknown",
        "the image that pod sandboxes need is not known",
    )
    UNRESOLVED_IMAGE = "unresolved_image", "a container uses an image that cannot be identified"
    WITHIN_LIMIT = (
        "within_limit",
        "within the limit: the number of dead copies to keep, or the maximum age",
    )
    RELIEVED = "relieved", "enough was freed without it"
    UNREADABLE = "unreadable", "the filesystem could no longer be read"
    HELD_OFF = "held_off", "removals are held off after startup"
    STOPPING = "stopping", "the agent was stopping"
    PAUSED = "paused", "removals were paused"
    RECONFIGURED = "reconfigured", "another configuration was loaded"
    LAYOUT_CHANGED = "layout_changed", "a filesystem is no longer where it was"
    INCOMPLETE_LISTING = "incomplete_listing", "the runtime's answer was incomplete"
    BEING_REMOVED = "being_removed", "its removal was sent earlier and is not answered yet"
    RUNTIME_STUCK = "runtime_stuck", "too many removals are unanswered to send another"


BRAKES = (Reason.STOPPING, Reason.PAUSED, Reason.RECONFIGURED, Reason.LAYOUT_CHANGED)
"""Why nothing is sent any more by a pass that has begun: it ends, and the next one decides anew."""

UNSETTLED = (
    *BRAKES,
    Reason.BEING_REMOVED,
    Reason.INCOMPLETE_LISTING,
    Reason.RUNTIME_STUCK,
    Reason.UNREADABLE,
)
"""Reasons that say nothing about the object that is kept: it may go once they are over."""


class Rule(Worded):
    """Whose rule a verdict follows; the words hold for what goes and for what stays.

    `KUBELET`: the kubelet, knowing what is known here, would decide the same. `GUARD`:
    one of our guards decided; it is stricter than the kubelet, or stands in for
    something only the kubelet knows.
    """

    KUBELET = "kubelet", "kubelet too"
    GUARD = "guard", "reclaimd only"


FileIdentity = tuple[int, int]
"""The device and inode of a file."""

Identity = tuple[str, str, int]
"""Identifies an object in the kubelet's terms: pod UID, name (of the container or the pod),
attempt. The status of an id must report the same identity as the list did."""


# Lists hold tens of thousands of these: creating a named tuple is three times as
# fast as a frozen dataclass.
class Container(NamedTuple):
    """A container as the runtime lists it.

    `pod_uid`: the label `io.kubernetes.pod.uid`; empty if no kubelet made the container.
    `image_references`: everything the runtime says about its image (`image_id`,
    `image_ref`, `image.image`, `user_specified_image`), without empty values. Image volumes
    are in `Listing.image_volumes`.
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
        """Which copy of which container of which pod this is."""
        return self.pod_uid, self.name, self.attempt

    @property
    def title(self) -> str:
        """For display: `namespace/pod/container#attempt`."""
        pod = f"{self.pod_namespace}/{self.pod_name}/" if self.pod_name else ""
        return f"{pod}{self.name}#{self.attempt}"


class PodSandbox(NamedTuple):
    """A pod sandbox as the runtime lists it.

    `pod_uid`: from its metadata. `labelled`: whether it also carries the kubelet's
    label `io.kubernetes.pod.uid`.
    """

    id: str
    state: PodSandboxState
    created_at_ns: int
    pod_uid: str = ""
    pod_name: str = ""
    pod_namespace: str = ""
    attempt: int = 0
    labelled: bool = True

    @property
    def identity(self) -> Identity:
        """Which sandbox of which pod this is."""
        return self.pod_uid, self.pod_name, self.attempt

    @property
    def title(self) -> str:
        """For display: `namespace/pod#attempt`."""
        return f"{self.pod_namespace}/{self.pod_name}#{self.attempt}"


class Image(NamedTuple):
    """An image as the runtime lists it. `size_bytes` counts shared layers once for each image.

    `runtime_handler`: the handler it was pulled for; empty if the runtime does not say. An id may
    be listed once for each handler.
    """

    id: str
    repo_tags: tuple[str, ...] = ()
    repo_digests: tuple[str, ...] = ()
    size_bytes: int = 0
    pinned: bool = False
    runtime_handler: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """Its tags, then its digests."""
        return self.repo_tags + self.repo_digests

    @property
    def title(self) -> str:
        """For display: the first tag, else the first digest, else the id."""
        return next(iter(self.names), self.id)


Images = tuple[Image, ...]
Containers = tuple[Container, ...]
Sandboxes = tuple[PodSandbox, ...]
ImageVolumes = tuple[tuple[str, ...], ...]
"""The images that a container mounts, each with all its references."""
Listed = TypeVar("Listed", Image, Container, PodSandbox)


class Listing(NamedTuple):
    """Complete answers from the runtime. Images are listed first, containers after them, so that a
    container that starts in between is seen.

    `sandbox_image_references`: the image of pod sandboxes; None if no source names it.
    `image_volumes`: by container id, the images it mounts as volumes, each with all its references.
    `resolved`: the runtime's answers for references that no listed image carries: an image id, or
    None if it has no such image; a reference is missing if the runtime answered with a different
    image than the one meant. `runtime`: the runtime's name. `named_images`: images named by the
    specs of pods that have not terminated, where the kubelet lists them.
    """

    images: Images = ()
    containers: Containers = ()
    sandboxes: Sandboxes = ()
    sandbox_image_references: frozenset[str] | None = None
    image_volumes: Mapping[str, ImageVolumes] = {}
    resolved: Mapping[str, str | None] = {}
    runtime: str = ""
    named_images: frozenset[str] = frozenset()

    @property
    def parts(self) -> tuple[Container | PodSandbox, ...]:
        """All that is of pods."""
        return *self.containers, *self.sandboxes

    def without(self, removed: Iterable[Verdict]) -> Listing:
        """The listing without these objects: how a dry run goes on after planning them."""
        gone = {(verdict.kind, verdict.id) for verdict in removed}

        def left(kind: Kind, listed: Iterable[Listed]) -> tuple[Listed, ...]:
            return tuple(each for each in listed if (kind, each.id) not in gone)

        return self._replace(
            images=left(Kind.IMAGE, self.images),
            containers=left(Kind.CONTAINER, self.containers),
            sandboxes=left(Kind.SANDBOX, self.sandboxes),
        )


@dataclass(frozen=True)
class ImageRecord:
    """What is remembered about an image, in monotonic seconds: when it was first detected, and last
    seen in use (None: never).

    `first_listed`: when we first saw it in a list, if that was at another time than
    `first_detected`: if another source dates it earlier, or an entry for another runtime handler
    was added later. `uses`: spells of use seen: how often it was in use, and had not been at the
    detection before. `returned`: how often it came back after we had removed it. Both outlive its
    removal. `pulled`: whether the kubelet has pulled it; None: not known (`images.pull_records`).
    `counted_since`: since when uses count, if that is before `first_detected`. `handlers`: the
    runtime handlers of its entries. `tag`: its first one, or empty. `removed`: of an image that has
    gone: whether we removed it.
    """

    first_detected: float
    last_used: float | None = None
    first_listed: float | None = None
    uses: int = 0
    returned: int = 0
    pulled: bool | None = None
    counted_since: float | None = None
    handlers: tuple[str, ...] = ("",)
    tag: str = ""
    removed: bool = False

    @property
    def not_pulled(self) -> bool:
        """Whether pods have used it and the kubelet has not pulled it.

        One that no pod has used may still be wanted.
        """
        return self.pulled is False and self.last_used is not None

    @property
    def last_use(self) -> float:
        """When it was last used; minus infinity if it never was."""
        return float("-inf") if self.last_used is None else self.last_used

    @property
    def used_at(self) -> float:
        """When it was last used, or came if that was later."""
        return max(self.first_detected, self.last_use)

    @property
    def listed_since(self) -> float:
        """When it first appeared in a list, which is all that the kubelet knows."""
        return self.first_detected if self.first_listed is None else self.first_listed

    @property
    def uses_since(self) -> float:
        """Since when its uses are counted."""
        counted = self.first_detected if self.counted_since is None else self.counted_since
        return min(counted, self.first_detected)


Records = Mapping[str, ImageRecord]
"""Those of images, by id."""


class Layers(NamedTuple):
    """What takes the bytes of images on the disk: layers in whatever form the runtime keeps them,
    each by a name of its own. Two images with the same name among theirs share it.

    `of_images`: bytes by layer, by image id; an image that is missing is not known. `held`: layers
    that something else than a listed image keeps.
    """

    of_images: Mapping[str, Mapping[str, int]] = {}
    held: frozenset[str] = frozenset()


NO_LAYERS = Layers()


class ImageOrder(StrEnum):
    """Which image goes first: the least recently used, or the one that costs the least."""

    LRU = "lru"
    COST = "cost"


class Action(StrEnum):
    """The two verdicts."""

    REMOVE = "remove"
    KEEP = "keep"


class Verdict(NamedTuple):
    """What happens to one object, and why.

    `kind` and `reason`: words of `Kind` and `Reason`, or of the function that planned it.
    `age_seconds`: set if the decision depended on the age. `eligible_in_seconds`: set if time alone
    will change the verdict. `pod_uid`: set for parts of a pod. `superseded_by`: the id of the newer
    copy that makes an older one removable, and that must still exist at the removal. `state`: a
    container's state when the plan was made. `rule`: whose rule decided. `identity`: of a part of a
    pod, as listed. `frees_bytes`: what its removal frees once all that go before it are gone; None:
    not known. `needed_in_seconds`: set if the order depended on when it is expected to be needed
    again. `last_resort`: held back until nothing else is enough.
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
    frees_bytes: int | None = None
    needed_in_seconds: float | None = None
    last_resort: bool = False

    @property
    def promised_bytes(self) -> int:
        """What a pass counts on until its removal has ended: what it frees, else its size.

        0 if neither is known.
        """
        return (self.size_bytes if self.frees_bytes is None else self.frees_bytes) or 0

    @property
    def removed(self) -> bool:
        """Whether it goes."""
        return self.action is Action.REMOVE

    def kept(self, reason: str) -> Verdict:
        """The verdict when the object was to be removed but is kept for this reason."""
        return self._replace(
            action=Action.KEEP, reason=reason, eligible_in_seconds=None, rule=Rule.GUARD
        )


@dataclass(frozen=True)
class Plan:
    """Every listed object with its verdict. `remove` is in the order of removal.

    `target_bytes`: what is wanted of it: once as much was promised by what was removed, nothing
    more is; None: all of it. `event_of`: the event of having removed what promised so many bytes,
    as the kubelet's periodic pass announces it. `list_seconds`: how long it took to read what the
    plan is based on (`Stage.listed_at`).
    """

    remove: tuple[Verdict, ...] = ()
    keep: tuple[Verdict, ...] = ()
    target_bytes: int | None = None
    event_of: Callable[[int], GCEvent | None] | None = field(default=None, compare=False)
    list_seconds: float = 0.0

    @classmethod
    def of(cls, verdicts: Iterable[Verdict]) -> Plan:
        """The plan made of these verdicts, given in the order of removal.

        What is kept is sorted by name.
        """
        given = tuple(verdicts)
        kept = [verdict for verdict in given if not verdict.removed]
        return cls(
            tuple(verdict for verdict in given if verdict.removed),
            tuple(sorted(kept, key=lambda verdict: (verdict.name, verdict.id))),
        )

    @property
    def eligible_in_seconds(self) -> float | None:
        """Seconds until the next kept object is old enough; None if no age keeps one."""
        waits = (verdict.eligible_in_seconds for verdict in self.keep)
        return min((wait for wait in waits if wait is not None), default=None)


class Result(StrEnum):
    """How a removal ended. `PARKED`: it has not ended, and its pass went on without it.

    Only `UNANSWERED` says anything about other objects: the runtime is silent.
    """

    REMOVED = "removed"
    ALREADY_GONE = "already_gone"
    IN_USE = "in_use"
    FAILED = "failed"
    PLANNED = "planned"
    UNANSWERED = "unanswered"
    PARKED = "parked"


OPEN = (Result.FAILED, Result.UNANSWERED, Result.PARKED)
"""After one of these it is not known that nothing else can be removed."""


@dataclass(frozen=True)
class Amounts:
    """What a filesystem has gained."""

    bytes: int = 0
    """At least 0."""
    inodes: int = 0
    """At least 0."""


NO_GAIN = Amounts()


class Outcome(NamedTuple):
    """One object after a pass.

    `result`: None if it was kept. `freed`: what the filesystem had gained right after the removal;
    nothing in a dry run. Space that arrives late counts when it arrives, and what others write in
    the meantime is subtracted.
    """

    verdict: Verdict
    result: Result | None = None
    error: str = ""
    duration_seconds: float = 0.0
    freed: Amounts = NO_GAIN

    @property
    def kept(self) -> bool:
        """Whether somebody uses it, or a guard keeps it."""
        return self.result in (None, Result.IN_USE)


Outcomes = tuple[Outcome, ...]


class Usage(NamedTuple):
    """Free space on the filesystems concerned: inodes, and bytes by both counts of statvfs."""

    available_bytes: int = 0
    free_bytes: int = 0
    inodes_free: int = 0

    def gained_since(self, before: Usage) -> tuple[int, int]:
        """Bytes and inodes gained; negative if others used more than was freed.

        The larger gain of the two byte counts is used: on an ext4 filesystem filled into its
        reserve, the available count stays at 0 while the free count already rises.
        """
        return max(
            self.available_bytes - before.available_bytes, self.free_bytes - before.free_bytes
        ), self.inodes_free - before.inodes_free


@dataclass(frozen=True)
class ReclaimResult:
    """What one reclaim function did.

    `error`: set if it could not do its work; then nothing was removed, or only what `outcomes`
    lists. `relieved`: the disk is relieved or can no longer be read, or the pass is braked, so
    nothing else may be removed. `skipped`: why the function was not called; empty if it was.
    """

    operation: str
    outcomes: Outcomes = ()
    kept: Outcomes = ()
    relieved: bool = False
    eligible_in_seconds: float | None = None
    error: str = ""
    list_seconds: float = 0.0
    plan_seconds: float = 0.0
    remove_seconds: float = 0.0
    skipped: str = ""

    @property
    def nominal_bytes(self) -> int:
        """The sizes, by the runtime, of what was removed or would be in a dry run."""
        return sum(
            outcome.verdict.size_bytes or 0
            for outcome in self.outcomes
            if outcome.result in (Result.REMOVED, Result.PLANNED)
        )

    @property
    def measured(self) -> Amounts:
        """What the filesystems had gained right after its removals."""
        freed = [outcome.freed for outcome in self.outcomes]
        return Amounts(sum(each.bytes for each in freed), sum(each.inodes for each in freed))

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.list_seconds + self.plan_seconds + self.remove_seconds

    def count(self, result: Result) -> int:
        """How many removals ended this way."""
        return sum(outcome.result is result for outcome in self.outcomes)


class EventReason(StrEnum):
    """The reasons of events about the node: two of our own, whose names nobody takes for the
    kubelet's, and the kubelet's for its garbage collection. All but RELIEVED are warnings.

    Source: `pkg/kubelet/events/event.go`.
    """

    THRESHOLD_MET = "ReclaimdThresholdMet"
    RELIEVED = "ReclaimdRelieved"
    CONTAINER_GC_FAILED = "ContainerGCFailed"
    IMAGE_GC_FAILED = "ImageGCFailed"
    INVALID_DISK_CAPACITY = "InvalidDiskCapacity"
    FREE_DISK_SPACE_FAILED = "FreeDiskSpaceFailed"


class GCEvent(NamedTuple):
    """An event about the node: a sentence, and the numbers in it by name (bytes, percent)."""

    reason: EventReason
    message: str
    values: Mapping[str, int] = {}


# ---- what the runtime answers


class RuntimeVersion(NamedTuple):
    """Name and version of a runtime, such as `containerd` 1.6.20."""

    name: str
    version: str

    def mounts_images(self) -> bool:
        """Whether this runtime's containers may have image volumes. Assumed for
        unknown runtimes and versions.

        containerd supports them since 2.1 (containerd/containerd#10579). 2.0 counts
        too: its CRI has the field, and a container made by 2.1 keeps running when the
        runtime is downgraded to 2.0.
        """
        if self.name != "containerd":
            return True
        major = self.version.lstrip("v").partition(".")[0]
        return not major.isdigit() or int(major) >= 2


class ContainerStatus(NamedTuple):
    """One container as it is now: its state, the images it mounts as volumes, each with
    all its references, and what leads to its log files: the path the runtime writes to,
    and the names in its labels.

    `stop_grace_seconds`: how long the kubelet would give it to stop, at least 2.
    `identity`: None if not reported.
    """

    id: str
    state: ContainerState
    image_volumes: ImageVolumes = ()
    name: str = ""
    pod_name: str = ""
    pod_namespace: str = ""
    log_path: str = ""
    stop_grace_seconds: int = 2
    identity: Identity | None = None


NO_STATUS = ContainerStatus("", ContainerState.UNKNOWN)
"""The answer of a runtime that neither has a status nor says that there is no such container."""


class PodSandboxStatus(NamedTuple):
    """One sandbox as it is now. `identity`: None if not reported."""

    state: PodSandboxState
    identity: Identity | None


class ImageFsInfo(NamedTuple):
    """Where images and writable layers are stored: paths that the runtime calls
    mount points, in its order.

    `image_used_bytes`: what its images take on the first of them, by the runtime's own count
    (containerd includes writable layers, but not compressed content); None if not reported.
    """

    image_filesystems: tuple[str, ...] = ()
    container_filesystems: tuple[str, ...] = ()
    image_used_bytes: int | None = None


class Runtime(Protocol):
    """Containers, sandboxes and images."""

    @property
    def runtime_path(self) -> str:
        """The path of its socket; empty if it has none."""

    @property
    def connections_made(self) -> int:
        """How many connections have been made so far. While it stays the same, the same process
        answers; once it has grown, ask again what the runtime supports and how it is configured."""

    def version(self) -> RuntimeVersion:
        """Name and version of the runtime."""

    def sandbox_image(self) -> str | None:
        """The image of pod sandboxes in the runtime's configuration; None if it does not say."""

    def list_containers(self, *, sandbox_id: str = "", pod_uid: str = "") -> Containers:
        """All containers in every state; optionally only those of one sandbox, or of the pod with
        this UID in its label."""

    def list_pod_sandboxes(self) -> Sandboxes:
        """All sandboxes in every state."""

    def container_status(self, container_id: str) -> ContainerStatus | None:
        """The container as it is now; None if there is no such container."""

    def pod_sandbox_status(self, sandbox_id: str) -> PodSandboxStatus | None:
        """The sandbox with exactly this id as it is now; None if there is no such sandbox."""

    def image_of_sandbox(self, sandbox_id: str, within_seconds: float = NEVER) -> str | None:
        """The image that a sandbox was made from; None if the runtime does not
        say or the sandbox is gone.

        `within_seconds`: a shorter deadline than that of other reads.
        """

    def stop_container(self, container_id: str, grace_seconds: int) -> None:
        """Stops a container, killing it if it has not exited after the grace period. A container
        that is gone counts as stopped."""

    def remove_container(self, container_id: str) -> bool:
        """Removes a container. The runtime would kill it if it were running."""

    def stop_pod_sandbox(self, sandbox_id: str) -> None:
        """Stops what is left of a sandbox, including its network."""

    def remove_pod_sandbox(self, sandbox_id: str) -> bool:
        """Removes a sandbox. The runtime would remove its containers with it."""

    def call_service(self, method: str, request: bytes, seconds: float) -> bytes:
        """Calls a service other than CRI on the same socket and returns the answer's message;
        of a stream, all of them in one, as their repeated fields go on where the last one's
        ended. `seconds`: the deadline. Raises CallError (`cri.status`), with UNIMPLEMENTED if
        there is no such service."""

    def list_images(self) -> Images:
        """All images."""

    def image_status(self, reference: str) -> Image | None:
        """The image that a reference resolves to; None if the runtime has none."""

    def remove_image(self, image_id: str) -> bool:
        """Removes an image with all its tags.

        The runtime would remove it even if it were in use.
        """
