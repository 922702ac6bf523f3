"""Pods that the kubelet evicts for limits of their own, before it looks at any signal.

Rules (kubelet, tag v1.36.0, `pkg/kubelet/eviction/eviction_manager.go`, localStorageEviction): each active pod of which
the summary says something is checked, the first limit that it exceeds evicts it, and several pods may go in one pass.
If one went, nothing is evicted for a signal in that pass. Switched off by `localStorageCapacityIsolation: false`.

* emptyDirLimitEviction: an emptyDir, in memory too, above its `sizeLimit`.
* podEphemeralStorageLimitEviction: all ephemeral storage above the limits of the containers together.
* containerEphemeralStorageLimitEviction: a container's logs, and its writable layer unless images have a filesystem of
  their own, above its limit.
"""

from __future__ import annotations

from eviction.pod_eviction.ranking import never_evicted
from eviction.pod_eviction.types import EvictablePod, PodUsage
from signals.types import FsLayout, Signal

_BYTES = Signal.NODEFS_AVAILABLE  # any signal that counts bytes


def exceeded_limit(pod: EvictablePod, usage: PodUsage | None, layout: FsLayout) -> str | None:
    """The limit of its own for which the kubelet evicts the pod now, as a clause; None if there is none."""
    if usage is None or never_evicted(pod) is not None:
        return None
    for name, limit in pod.volume_limits.items():
        volume = usage.volumes.get(name)
        if volume is not None and volume.amount(_BYTES) > limit:
            return f"its emptyDir {name} is above its sizeLimit"
    if pod.limit is not None and usage.ephemeral_storage.amount(_BYTES) > pod.limit:
        return "its ephemeral storage is above the limits of its containers together"
    for container in usage.containers:
        used = container.logs.amount(_BYTES)
        if layout is FsLayout.SINGLE:
            used += container.rootfs.amount(_BYTES)
        if container.name in pod.container_limits and used > pod.container_limits[container.name]:
            return f"its container {container.name} is above its limit of ephemeral storage"
    return None
