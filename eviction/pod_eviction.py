"""Which pods the kubelet would evict for disk: for which signal and in which order, and which for exceeding a limit.

Pure: it parses two of the kubelet's answers, its pods and the usage of each, and returns a ranking.

`GET /pods` (Kubernetes, tag v1.36.0):

* Active pods are those that have not terminated (`pkg/kubelet/kubelet_pods.go`, filterOutInactivePods), as
  `reclaim.pods.pod_list` proves it.
* The request for ephemeral storage (`pkg/api/v1/resource/helpers.go`, GetResourceRequestQuantity): the sum of the
  containers and the restartable init containers; at least what each init container needs together with the restartable
  ones that were started before it; plus the overhead, if the rest is not 0. A pod with pod-level resources
  (`spec.resources` with cpu, memory or huge pages) requests none, because those replace the containers' and have no
  ephemeral storage.
* The limit is computed in the same way (`component-helpers/resource/helpers.go`, PodLimits), whatever the pod-level
  resources.
* A static pod has a source other than the API server; a mirror pod has an annotation that says so
  (`pkg/kubelet/types/pod_update.go`).
* Local volumes: hostPath, gitRepo, configMap, and emptyDir with the default medium (`pkg/kubelet/eviction/helpers.go`,
  localVolumeNames; `pkg/volume/util/util.go`, IsLocalEphemeralVolume).

`GET /stats/summary` (`staging/src/k8s.io/kubelet/pkg/apis/stats/v1alpha1/types.go`, Summary, tag v1.36.0):

* Every number may be absent. The kubelet's own evictions use the same numbers: only CPU and memory are refreshed for
  them (`pkg/kubelet/server/stats/summary.go`, Get). Those of containers are as old as the runtime's, those of volumes
  up to a minute old (`volumeStatsAggPeriod`).

The order of pods for a signal (kubelet, tag v1.36.0; functions of `pkg/kubelet/eviction/helpers.go` unless another
file is named):

* Every active pod is ranked; pods that are never evicted are skipped only when their turn comes
  (`eviction_manager.go`, synchronize, evictPod).
* First the pods that the summary does not contain (exceedDiskRequests, disk).
* Then the pods whose usage exceeds their request (exceedDiskRequests). For an inode signal that is a request for
  `inodes`, which no pod can have: so every pod that uses one inode exceeds it.
* Then lower priority first (priority).
* Then the larger usage above the request first (disk). Here the request is that for ephemeral storage even for inode
  signals: inodes minus bytes. So of two pods over one inode, the one that requests no storage comes before the other.
* What counts as usage depends on signal and layout (`counted_kinds`). Images count for no pod (podDiskUsage): in the
  split layout imagefs signals rank by priority and request alone.
* Never evicted: static pods, mirror pods, and pods with a priority of 2000000000 or more
  (`pkg/kubelet/types/pod_update.go`, IsCriticalPod; `pkg/apis/scheduling/types.go`, SystemCriticalPriority).

The kubelet's sort is not stable, so the order of pods that are equal in all of this is undefined. They share a rank
here, and are listed by namespace and name.

Limits (`eviction_manager.go`, localStorageEviction) are checked before any signal, for each active pod that the summary
contains: the first limit that a pod exceeds evicts it, and one pass may evict several pods. If it evicts any, it evicts
none for a signal. `localStorageCapacityIsolation: false` switches this off.

* emptyDirLimitEviction: an emptyDir, even in memory, above its `sizeLimit`.
* podEphemeralStorageLimitEviction: all ephemeral storage above the sum of the containers' limits.
* containerEphemeralStorageLimitEviction: a container's logs, plus its writable layer unless images have a filesystem of
  their own, above its limit.

If several thresholds are met, the kubelet does not define which one it acts on (byEvictionPriority). Here a hard one
comes before a soft one, whose grace period may not be over; after that the order is reclaimd's own
(`decision.thresholds`, by_priority).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fractions import Fraction
from typing import Literal, NamedTuple

from eviction.decision.thresholds import by_priority, thresholds_met, usable
from eviction.reporting.json_shapes import Count
from eviction.types import Threshold
from reclaim.pods.pod_list import API_SERVER, CONFIG_SOURCE, Field, parse_answer, parse_pod_list
from reclaim.types import Worded
from signals.quantity import QuantityError, parse_quantity, whole
from signals.types import FilesystemRole, FsLayout, Signal, SignalObservations

LARGEST_INT64 = 2**63 - 1
MIRROR = "kubernetes.io/config.mirror"
STORAGE = "ephemeral-storage"
OF_A_POD = frozenset({"cpu", "memory"})  # pod-level resources, besides the huge pages of each size
HUGE_PAGES = "hugepages-"
INT32 = 2**31
SYSTEM_CRITICAL_PRIORITY = 2_000_000_000
_BYTES = Signal.NODEFS_AVAILABLE  # any signal that counts bytes


class FsUsage(NamedTuple):
    """Bytes and inodes that are used; None where the kubelet does not say. Each is between 0 and 2**64 - 1."""

    used_bytes: int | None = None
    inodes_used: int | None = None

    def amount(self, signal: Signal) -> int:
        """The usage in the unit of the signal, as the kubelet counts it: 0 if absent, and converted to int64, so 2**63
        and more become negative (`pkg/kubelet/eviction/helpers.go`, diskUsage, inodeUsage)."""
        used = (self.inodes_used if signal.counts_inodes else self.used_bytes) or 0
        return used if used <= LARGEST_INT64 else used - 2**64


NOT_SAID = FsUsage()


class ContainerUsage(NamedTuple):
    """A container's writable layer and logs."""

    name: str
    rootfs: FsUsage = NOT_SAID
    logs: FsUsage = NOT_SAID


@dataclass(frozen=True, slots=True)
class PodUsage:
    """A pod in the kubelet's summary. `volumes`: by name, of every kind. `ephemeral_storage`: the summary's total of
    containers and local volumes."""

    containers: tuple[ContainerUsage, ...] = ()
    volumes: Mapping[str, FsUsage] = field(default_factory=dict)
    ephemeral_storage: FsUsage = NOT_SAID


@dataclass(frozen=True, slots=True)
class EvictablePod:
    """The properties of an active pod that matter for evictions. Requests and limits are bytes of ephemeral storage.

    `priority`: 0 if the pod has none (`component-helpers/scheduling/corev1`, PodPriority). `static`: the kubelet has
    the pod from a file or a URL. `mirror`: it represents a static pod in the API. `deleted`: its deletion was
    requested.
    `local_volumes`: names of the volumes on the node's own disk. `limit`: the sum of the containers' limits; None if
    there is none. `container_limits`, `volume_limits`: by name, those above 0.
    """

    uid: str
    namespace: str
    name: str
    priority: int = 0
    static: bool = False
    mirror: bool = False
    deleted: bool = False
    request: Fraction = Fraction()
    local_volumes: tuple[str, ...] = ()
    limit: Fraction | None = None
    container_limits: Mapping[str, Fraction] = field(default_factory=dict)
    volume_limits: Mapping[str, Fraction] = field(default_factory=dict)


def parse_active_pods(body: bytes) -> tuple[EvictablePod, ...]:
    """The pods that have not terminated, in the order of the answer.

    Raises KubeletAnswerError, and nothing else, unless the answer is a complete list of pods.
    """
    listed = parse_pod_list(body)
    states = ((item, listed.states[item.get("metadata").get("uid").text()]) for item in listed.items)
    return tuple(_evictable_pod(item, deleted=state.deleted) for item, state in states if not state.terminated)


def _evictable_pod(item: Field, *, deleted: bool) -> EvictablePod:
    metadata, spec = item.get("metadata"), item.get("spec")
    annotations = metadata.get("annotations")
    source = annotations.get(CONFIG_SOURCE)
    volumes = list(spec.get("volumes").elements())
    containers = list(spec.get("containers").elements())
    return EvictablePod(
        uid=metadata.get("uid").text(),
        namespace=metadata.get("namespace").text(),
        name=metadata.get("name").text(),
        priority=spec.get("priority").integer(-INT32, INT32 - 1) or 0,
        static=source.present and source.text() != API_SERVER,
        mirror=MIRROR in annotations.names(),
        deleted=deleted,
        request=(None if _has_resources(spec) else _total(spec, "requests")) or Fraction(),
        local_volumes=tuple(volume.get("name").text() for volume in volumes if _is_local(volume)),
        limit=_total(spec, "limits"),
        container_limits=_above_0({each.get("name").text(): _storage(each, "limits") for each in containers}),
        volume_limits=_above_0(
            {each.get("name").text(): _quantity(each.get("emptyDir").get("sizeLimit")) for each in volumes}
        ),
    )


def _total(spec: Field, kind: str) -> Fraction | None:
    """The request or limit of the pod; None if no container has one."""
    found = [_storage(each, kind) for each in spec.get("containers").elements()]
    total, restartable, most_of_init = sum(filter(None, found), Fraction()), Fraction(), Fraction()
    for each in spec.get("initContainers").elements():
        found.append(_storage(each, kind))
        needed = restartable + (found[-1] or 0)
        most_of_init = max(most_of_init, needed)
        if each.get("restartPolicy").text() == "Always":
            total, restartable = total + needed - restartable, needed
    if all(each is None for each in found):
        return None
    total = max(total, most_of_init)
    return total + (_quantity(spec.get("overhead").get(STORAGE)) or 0) if total else total


def _has_resources(spec: Field) -> bool:
    """Whether the pod has pod-level resources (IsPodLevelResourcesSet)."""
    resources = spec.get("resources")
    names = (*resources.get("requests").names(), *resources.get("limits").names())
    return any(name in OF_A_POD or name.startswith(HUGE_PAGES) for name in names)


def _storage(container: Field, kind: str) -> Fraction | None:
    return _quantity(container.get("resources").get(kind).get(STORAGE))


def _quantity(field: Field) -> Fraction | None:
    if not field.present:
        return None
    try:
        return parse_quantity(field.text())
    except QuantityError:
        raise field.error("is not a Kubernetes quantity") from None


def _is_local(volume: Field) -> bool:
    if any(volume.get(kind).present for kind in ("hostPath", "gitRepo", "configMap")):
        return True
    return volume.get("emptyDir").present and not volume.get("emptyDir").get("medium").text()


def _above_0(limits: Mapping[str, Fraction | None]) -> dict[str, Fraction]:
    return {name: limit for name, limit in limits.items() if limit is not None and limit > 0}


def parse_stats_summary(body: bytes) -> Mapping[str, PodUsage]:
    """The usage of each pod by UID. Raises KubeletAnswerError, and nothing else, unless the answer is a summary.

    If a UID occurs twice, the last one counts (`pkg/kubelet/eviction/helpers.go`, cachedStatsFunc); of two volumes with
    one name, the first (podLocalVolumeUsage).
    """
    summary = parse_answer(body)
    if not summary.get("node").names():
        raise summary.get("node").error("is not there")
    return dict(_pod_usage(pod) for pod in summary.get("pods").elements())


def _pod_usage(pod: Field) -> tuple[str, PodUsage]:
    uid = pod.get("podRef").get("uid")
    if not uid.text():
        raise uid.error("is not there")
    volumes: dict[str, FsUsage] = {}
    for volume in pod.get("volume").elements():
        volumes.setdefault(volume.get("name").text(), _used(volume))
    containers = tuple(
        ContainerUsage(each.get("name").text(), _used(each.get("rootfs")), _used(each.get("logs")))
        for each in pod.get("containers").elements()
    )
    return uid.text(), PodUsage(containers, volumes, _used(pod.get("ephemeral-storage")))


def _used(statistics: Field) -> FsUsage:
    return FsUsage(statistics.get("usedBytes").integer(), statistics.get("inodesUsed").integer())


class Measured(StrEnum):
    """A kind of usage (fsStatsType, without images, which count for no pod)."""

    WRITABLE_LAYERS = "writable_layers"
    LOGS = "logs"
    LOCAL_VOLUMES = "local_volumes"


COUNTED = tuple(Measured)


def counted_kinds(layout: FsLayout, role: FilesystemRole) -> tuple[Measured, ...]:
    """The kinds of usage that count for the signals of a filesystem (buildSignalToRankFunc)."""
    if layout is FsLayout.DEDICATED_IMAGEFS:
        if role is FilesystemRole.NODEFS:
            return (Measured.LOGS, Measured.LOCAL_VOLUMES)
        return (Measured.WRITABLE_LAYERS,)
    return () if layout is FsLayout.SPLIT and role is FilesystemRole.IMAGEFS else COUNTED


class Reason(Worded):
    """Why a pod has its rank, or is never evicted; `eviction/README.md` documents each word."""

    NO_STATISTICS = "no_statistics", "the kubelet has no statistics for it"
    OVER_REQUEST = "over_request", "uses more than it requests"
    WITHIN_REQUEST = "within_request", "uses no more than it requests"
    STATIC = "static", "never evicted: a static pod"
    MIRROR = "mirror", "never evicted: represents a static pod"
    CRITICAL_PRIORITY = "critical_priority", "never evicted: its priority is critical"


@dataclass(frozen=True, slots=True)
class RankedPod:
    """A pod in the kubelet's order of eviction."""

    rank: Count | None
    """Its position in the order of eviction, from 1; null for a pod that is never evicted."""
    namespace: str
    """Its namespace."""
    name: str
    """Its name."""
    uid: str
    """Its UID."""
    verdict: Literal["keep", "evict"]
    """Whether the kubelet may evict it."""
    reason: Reason
    """Why it has this rank, or none."""
    priority: int
    """The pod's priority; higher ones are evicted later."""
    used: int | None
    """The usage that counts, in bytes or inodes as the signal is; from 2**63 on negative, as in the kubelet; null
    without statistics."""
    request: int
    """The bytes of ephemeral storage that it requests."""
    over_request: int | None
    """Usage minus request, negative if it uses less; null without statistics."""
    usage: Mapping[Measured, int] | None
    """Its usage of each kind, counted or not; null without statistics."""
    deleted: bool
    """Whether it is being deleted."""


class ChosenSignal(NamedTuple):
    """The signal, the kubelet's threshold for it (None: it has none), and whether it is met (None: not known)."""

    signal: Signal
    threshold: Threshold | None
    met: bool | None


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
    """The active pods in the kubelet's order, followed by those that are never evicted, in the same order. `usages`: by
    UID."""
    counted = counted_kinds(layout, signal.filesystem)
    found = [_placed(pod, usages.get(pod.uid), signal, counted) for pod in pods]
    found.sort(key=lambda each: (each[0], each[1].namespace, each[1].name, each[1].uid))
    ranked: list[RankedPod] = []
    before: _Place | None = None
    for place, pod in found:
        if pod.verdict == "evict":
            ranked.append(replace(pod, rank=ranked[-1].rank if place == before else len(ranked) + 1))
            before = place
    return (*ranked, *(pod for _, pod in found if pod.verdict == "keep"))


_Place = tuple[int, int, Fraction]  # compared in turn: exceedDiskRequests, priority, disk
_BY_REASON = (Reason.NO_STATISTICS, Reason.OVER_REQUEST, Reason.WITHIN_REQUEST)


def _placed(
    pod: EvictablePod, usage: PodUsage | None, signal: Signal, counted: Iterable[Measured]
) -> tuple[_Place, RankedPod]:
    """The pod without its rank, and its place in the kubelet's order."""
    never, reason, over_request = never_evicted(pod), Reason.NO_STATISTICS, Fraction()
    of_each, used = None, None
    if usage is not None:
        volumes = [usage.volumes[name] for name in pod.local_volumes if name in usage.volumes]
        of_each = {  # podDiskUsage
            Measured.WRITABLE_LAYERS: sum(each.rootfs.amount(signal) for each in usage.containers),
            Measured.LOGS: sum(each.logs.amount(signal) for each in usage.containers),
            Measured.LOCAL_VOLUMES: sum(each.amount(signal) for each in volumes),
        }
        used = sum(of_each[kind] for kind in counted)
        over_request = used - pod.request
        exceeds = used > (0 if signal.counts_inodes else pod.request)
        reason = Reason.OVER_REQUEST if exceeds else Reason.WITHIN_REQUEST
    ranked = RankedPod(
        rank=None,
        namespace=pod.namespace,
        name=pod.name,
        uid=pod.uid,
        verdict="evict" if never is None else "keep",
        reason=never or reason,
        priority=pod.priority,
        used=used,
        request=whole(pod.request),
        over_request=None if used is None else whole(over_request),
        usage=of_each,
        deleted=pod.deleted,
    )
    return (_BY_REASON.index(reason), pod.priority, -over_request), ranked


def exceeded_limit(pod: EvictablePod, usage: PodUsage | None, layout: FsLayout) -> str | None:
    """The limit that the pod exceeds, for which the kubelet evicts it now, as a clause; None if there is none."""
    if usage is None or never_evicted(pod) is not None:
        return None
    for name, limit in pod.volume_limits.items():
        volume = usage.volumes.get(name)
        if volume is not None and volume.amount(_BYTES) > limit:
            return f"its emptyDir {name} is above its sizeLimit"
    if pod.limit is not None and usage.ephemeral_storage.amount(_BYTES) > pod.limit:
        return "its ephemeral storage is above the sum of its containers' limits"
    for container in usage.containers:
        used = container.logs.amount(_BYTES)
        if layout is FsLayout.SINGLE:
            used += container.rootfs.amount(_BYTES)
        if container.name in pod.container_limits and used > pod.container_limits[container.name]:
            return f"its container {container.name} is above its limit of ephemeral storage"
    return None


def choose_signal(
    thresholds: Sequence[Threshold], observations: SignalObservations, asked: Signal | None = None
) -> ChosenSignal | None:
    """The signal `asked`, else the one whose threshold is met, else the one nearest to its threshold; None if no
    threshold can be evaluated.

    `thresholds`: the kubelet's, with those of containerfs derived.
    """
    mine = [threshold for threshold in thresholds if asked in (None, threshold.signal)]
    readable = usable(observations.signals)
    judged = [one for one in mine if one.signal in readable and one.mark(readable[one.signal].capacity) > 0]
    met = thresholds_met(judged, readable, enforce_min_reclaim=False)
    for candidates in ([each for each in met if each.hard], met, judged):
        if candidates:
            first = by_priority(candidates, readable)[0]
            return ChosenSignal(first.signal, first, bool(met))
    return None if asked is None else ChosenSignal(asked, mine[0] if mine else None, None)
