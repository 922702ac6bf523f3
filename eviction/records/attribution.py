"""What uses the bytes of a filesystem, as values: `eviction.survey.space` finds it out."""

from dataclasses import dataclass, field
from enum import StrEnum

from eviction.records.json_shapes import Count, RoleName
from reclaim.types import Worded


class Use(Worded):
    """What bytes are used for; a closed list. `words`: what it is called.

    `remedy`: what can be done about it.
    """

    IMAGES_IN_USE = "images_in_use", "images in use", "move pods away, or use smaller images"
    IMAGES_MAY_GO = (
        "images_may_go",
        "images that may go",
        "reclaimd removes them under pressure; now: reclaim --signal imagefs.available --all",
    )
    IMAGES_TOO_YOUNG = (
        "images_too_young",
        "images that are too young",
        "wait, or lower imageMinimumGCAge",
    )
    IMAGES_KEPT = (
        "images_kept",
        "images that are pinned or kept",
        "look at keepImages and at what the runtime pins",
    )
    IMAGES_UNJUDGED = (
        "images_unjudged",
        "images (not judged in this pass)",
        "reclaimd plan tells them apart",
    )
    CONTAINERS_LIVE = (
        "containers_live",
        "writable layers of containers",
        "limit ephemeral-storage, or write to a volume",
    )
    CONTAINERS_DEAD = (
        "containers_dead",
        "writable layers of dead containers",
        "one copy of each is kept while its pod exists: delete pods",
    )
    LOGS_LIVE = (
        "logs_live",
        "logs of live pods",
        "lower the kubelet's containerLogMaxSize, or log less",
    )
    LOGS_ROTATED = (
        "logs_rotated",
        "rotated logs",
        "DeleteRotatedLogs in reclaimFunctions removes them; or lower containerLogMaxFiles",
    )
    LOGS_OF_GONE_PODS = (
        "logs_of_gone_pods",
        "logs of pods that are gone",
        "container garbage collection removes them",
    )
    VOLUMES = "volumes", "volumes of pods (emptyDir)", "set sizeLimit on emptyDir, or delete pods"
    CHECKPOINTS = (
        "checkpoints",
        "checkpoints",
        "no kubelet removes them: DeleteCheckpoints in reclaimFunctions does",
    )
    BEING_FREED = (
        "being_freed",
        "removed, and being freed",
        "nothing: the runtime frees it within seconds, or with its next collection",
    )
    HIDDEN = (
        "hidden",
        "content that CRI does not show",
        "ctr namespaces ls; prune build caches and other namespaces",
    )
    DELETED_OPEN = (
        "deleted_open",
        "deleted files that are still open",
        "stop the processes that hold them, named below",
    )
    ELSE = (
        "else",
        "everything else",
        "not the runtime's or the kubelet's: du -xh on the filesystem shows it",
    )


class About(StrEnum):
    """What a remark is about; a closed list."""

    DELETED_OPEN = "deleted_open"
    PROCESSES_NOT_SEEN = "processes_not_seen"
    PREALLOCATED = "preallocated"
    RESERVE = "reserve"
    PROJECT_QUOTA = "project_quota"
    CACHE = "cache"


@dataclass(frozen=True)
class Share:
    """One part of a filesystem."""

    use: Use
    """What the bytes are used for."""
    bytes: int
    """How many bytes."""
    objects: Count | None = None
    """How many images or containers; null if none are counted."""
    at_least: bool = False
    """Whether `bytes` is a lower bound."""
    reclaimable: Count = 0
    """How many of the bytes reclaimd may free now, as far as that is known."""
    by: tuple[str, ...] = ()
    """The reclaim functions that do it."""
    remedy: str = field(init=False, default="")
    """What can be done about them."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "remedy", self.use.remedy)


@dataclass(frozen=True)
class Remark:
    """Something that the parts do not show."""

    about: About
    """What it is about."""
    bytes: int | None
    """The amount that it is about; null if there is none."""
    at_least: bool = field(kw_only=True, default=False)
    """Whether `bytes` is a lower bound."""
    sentence: str
    """The remark, for people."""


@dataclass(frozen=True)
class Attribution:
    """What uses the bytes of one filesystem; the parts add up to the used bytes."""

    path: str
    """Where it is mounted, or read."""
    filesystems: tuple[RoleName, ...]
    """Its roles."""
    capacity: Count
    """In bytes."""
    used: Count
    """In bytes."""
    shares: tuple[Share, ...]
    """The parts, the largest first, everything else last."""
    remarks: tuple[Remark, ...] = ()
    """What the parts do not show; the bytes of a remark are already counted
    in the parts, or are free.
    """
