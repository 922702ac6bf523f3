"""The order in which the kubelet would evict pods for a disk signal.

Rules (kubelet, tag v1.36.0; functions of `pkg/kubelet/eviction/helpers.go` unless another file is named):

* Every active pod is ranked; the pods that it never evicts are passed over only when their turn comes
  (`eviction_manager.go`, synchronize, evictPod).
* First the pods of which the summary says nothing (exceedDiskRequests, disk).
* Then the pods whose usage exceeds their request (exceedDiskRequests). For an inode signal that is the request of
  `inodes`, which no pod can have: so every pod that uses one inode exceeds it.
* Then lower priority first (priority).
* Then the larger usage above the request (disk). Here the request is that of ephemeral storage for inode signals too:
  inodes minus bytes. So of two pods over one inode, the one that requests no storage goes before the one that does.
* What counts as usage depends on signal and layout (buildSignalToRankFunc): `MEASURED`. Local volumes are hostPath,
  gitRepo, configMap, and emptyDir on disk (localVolumeNames). Images are in the table, but nothing of a pod is counted
  for them (podDiskUsage): in the split layout imagefs signals rank by priority and request alone.
* Never evicted are static and mirror pods and a priority of 2000000000 and more (`pkg/kubelet/types/pod_update.go`,
  IsCriticalPod; `pkg/apis/scheduling/types.go`, SystemCriticalPriority).

The kubelet's sort is not stable, so the order of pods that are equal in all of this is open. They share a rank here,
and are given by namespace and name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from fractions import Fraction
from typing import NamedTuple

from eviction.pod_eviction.types import EvictablePod, PodUsage
from signals.types import KUBELET_ROLES, FilesystemRole, FsLayout, Signal

SYSTEM_CRITICAL_PRIORITY = 2_000_000_000


class Measured(StrEnum):
    """A kind of usage (fsStatsType)."""

    IMAGES = "images"
    WRITABLE_LAYERS = "writable_layers"
    LOGS = "logs"
    LOCAL_VOLUMES = "local_volumes"


_EVERYTHING = tuple(Measured)
_KUBELETS = (Measured.LOGS, Measured.LOCAL_VOLUMES)
_RUNTIMES = (Measured.IMAGES, Measured.WRITABLE_LAYERS)
_KUBELETS_AND_LAYERS = (Measured.WRITABLE_LAYERS, *_KUBELETS)

MEASURED: Mapping[FsLayout, Mapping[FilesystemRole, tuple[Measured, ...]]] = {
    FsLayout.SINGLE: dict.fromkeys(KUBELET_ROLES, _EVERYTHING),
    FsLayout.DEDICATED_IMAGEFS: {
        FilesystemRole.NODEFS: _KUBELETS,
        FilesystemRole.IMAGEFS: _RUNTIMES,
        FilesystemRole.CONTAINERFS: _RUNTIMES,
    },
    FsLayout.SPLIT: {
        FilesystemRole.NODEFS: _KUBELETS_AND_LAYERS,
        FilesystemRole.IMAGEFS: (Measured.IMAGES,),
        FilesystemRole.CONTAINERFS: _KUBELETS_AND_LAYERS,
    },
}


class Reason(StrEnum):
    """Why a pod stands where it stands, or why it is never evicted; `eviction/README.md` documents each word."""

    NO_STATISTICS = "no_statistics"
    OVER_REQUEST = "over_request"
    WITHIN_REQUEST = "within_request"
    STATIC = "static"
    MIRROR = "mirror"
    CRITICAL_PRIORITY = "critical_priority"


class RankedPod(NamedTuple):
    """A pod with its place. `rank`: from 1 on; None for a pod that is never evicted.

    `usage`: what it uses of each kind, in bytes or inodes, counted for this signal or not; None without statistics.
    `used`: what is counted. `over_request`: how much more than requested, negative below.
    """

    pod: EvictablePod
    rank: int | None
    reason: Reason
    usage: Mapping[Measured, int] | None = None
    used: int | None = None
    over_request: Fraction | None = None


def never_evicted(pod: EvictablePod) -> Reason | None:
    """Why the kubelet never evicts the pod under node pressure; None if it may."""
    if pod.static:
        return Reason.STATIC
    if pod.mirror:
        return Reason.MIRROR
    return Reason.CRITICAL_PRIORITY if pod.priority >= SYSTEM_CRITICAL_PRIORITY else None


def rank_pods(
    pods: Iterable[EvictablePod], usages: Mapping[str, PodUsage], signal: Signal, layout: FsLayout
) -> tuple[RankedPod, ...]:
    """The active pods in the kubelet's order, then those that it never evicts in the same order.

    `usages`: by UID of the pod.
    """
    counted = MEASURED[layout][signal.filesystem]
    found = sorted((_unranked(pod, usages.get(pod.uid), signal, counted) for pod in pods), key=_order)
    places: list[RankedPod] = []
    for each in found:
        if never_evicted(each.pod) is None:
            same = bool(places) and _kubelet_order(places[-1]) == _kubelet_order(each)
            places.append(each._replace(rank=places[-1].rank if same else len(places) + 1))
    critical = (each._replace(reason=why) for each in found if (why := never_evicted(each.pod)) is not None)
    return (*places, *critical)


def used_of_each_kind(pod: EvictablePod, usage: PodUsage, signal: Signal) -> Mapping[Measured, int]:
    """What the pod uses of each kind that the kubelet counts, in the unit of the signal (podDiskUsage)."""
    return {
        Measured.WRITABLE_LAYERS: sum(each.rootfs.amount(signal) for each in usage.containers),
        Measured.LOGS: sum(each.logs.amount(signal) for each in usage.containers),
        Measured.LOCAL_VOLUMES: sum(
            usage.volumes[name].amount(signal) for name in pod.local_volumes if name in usage.volumes
        ),
    }


def _unranked(pod: EvictablePod, usage: PodUsage | None, signal: Signal, counted: Iterable[Measured]) -> RankedPod:
    if usage is None:
        return RankedPod(pod, None, Reason.NO_STATISTICS)
    of_each = used_of_each_kind(pod, usage, signal)
    used = sum(of_each.get(kind, 0) for kind in counted)
    exceeds = used > (0 if signal.counts_inodes else pod.request)
    reason = Reason.OVER_REQUEST if exceeds else Reason.WITHIN_REQUEST
    return RankedPod(pod, None, reason, of_each, used, used - pod.request)


_BY_REASON = (Reason.NO_STATISTICS, Reason.OVER_REQUEST, Reason.WITHIN_REQUEST)


def _kubelet_order(each: RankedPod) -> tuple[int, int, Fraction]:
    return _BY_REASON.index(each.reason), each.pod.priority, -(each.over_request or Fraction())


def _order(each: RankedPod) -> tuple[tuple[int, int, Fraction], str, str, str]:
    return _kubelet_order(each), each.pod.namespace, each.pod.name, each.pod.uid
