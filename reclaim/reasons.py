"""Why an object is removed or kept, and whose rule decides. Values only."""

from __future__ import annotations

from enum import StrEnum


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
