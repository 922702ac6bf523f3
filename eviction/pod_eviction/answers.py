"""Parses two of the kubelet's answers: its pods, as far as an eviction for disk looks at them, and what each uses.

`GET /pods` (Kubernetes, tag v1.36.0):

* Active are the pods that have not terminated (`pkg/kubelet/kubelet_pods.go`, filterOutInactivePods): what has, as
  `reclaim.pods.pod_list` proves it, is left out.
* The request of ephemeral storage (`pkg/api/v1/resource/helpers.go`, GetResourceRequestQuantity): the containers and
  the restartable init containers together; at least what each init container needs with the restartable ones that
  were started before it; plus the overhead, if the rest is not 0. A pod with resources of its own (`spec.resources`
  with cpu, memory or huge pages) requests none, because those replace the containers' and have no ephemeral storage.
* The limit in the same way (`component-helpers/resource/helpers.go`, PodLimits), whatever resources the pod itself has.
* Static is a pod whose source is not the API server, mirror one with an annotation for it
  (`pkg/kubelet/types/pod_update.go`).
* Local volumes: hostPath, gitRepo, configMap, and emptyDir with the default medium (`pkg/kubelet/eviction/helpers.go`,
  localVolumeNames; `pkg/volume/util/util.go`, IsLocalEphemeralVolume).

`GET /stats/summary` (`staging/src/k8s.io/kubelet/pkg/apis/stats/v1alpha1/types.go`, Summary, tag v1.36.0):

* Every number may be absent. The kubelet's own evictions go by the same ones: what it renews for them is CPU and memory
  (`pkg/kubelet/server/stats/summary.go`, Get). Those of containers are as old as the runtime's, those of volumes up to
  a minute (`volumeStatsAggPeriod`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

from reclaim.pods.pod_list import API_SERVER, CONFIG_SOURCE, Field, parse_answer, parse_pod_list
from signals.quantity import QuantityError, parse_quantity
from signals.types import Signal

LARGEST_INT64 = 2**63 - 1
MIRROR = "kubernetes.io/config.mirror"
STORAGE = "ephemeral-storage"
OF_A_POD = frozenset({"cpu", "memory"})  # what a pod itself can have, besides the huge pages of each size
HUGE_PAGES = "hugepages-"
INT32 = 2**31


class FsUsage(NamedTuple):
    """Bytes and inodes that are used; None where the kubelet does not say. Each is between 0 and 2**64 - 1."""

    used_bytes: int | None = None
    inodes_used: int | None = None

    def amount(self, signal: Signal) -> int:
        """What is used in the unit of the signal, as the kubelet counts it.

        Nothing is said: 0. It converts to int64, so 2**63 and more become negative (`pkg/kubelet/eviction/helpers.go`,
        diskUsage, inodeUsage).
        """
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
    """What the kubelet's summary says of a pod. `volumes`: by name, of every kind. `ephemeral_storage`: its total of
    containers and local volumes."""

    containers: tuple[ContainerUsage, ...] = ()
    volumes: Mapping[str, FsUsage] = field(default_factory=dict)
    ephemeral_storage: FsUsage = NOT_SAID


@dataclass(frozen=True, slots=True)
class EvictablePod:
    """An active pod, as far as an eviction for disk looks at it. Requests and limits are bytes of ephemeral storage.

    `priority`: 0 where the pod has none (`component-helpers/scheduling/corev1`, PodPriority). `static`: the kubelet has
    the pod from a file or a URL. `mirror`: it stands for a static pod in the API. `deleted`: its deletion was
    requested.
    `local_volumes`: names of the volumes on the node's own disk. `limit`: of all containers together; None without one.
    `container_limits`, `volume_limits`: by name, those above 0.
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

    Raises KubeletAnswerError, and nothing else, for anything that is not a complete list of pods.
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
    """The request or limit of the pod; None where no container has one."""
    found = [_storage(each, kind) for each in spec.get("containers").elements()]
    total, restartable, most_of_init = sum(filter(None, found), Fraction()), Fraction(), Fraction()
    for each in spec.get("initContainers").elements():
        own = _storage(each, kind)
        found.append(own)
        if each.get("restartPolicy").text() == "Always":
            total += own or 0
            restartable += own or 0
            most_of_init = max(most_of_init, restartable)
        else:
            most_of_init = max(most_of_init, restartable + (own or 0))
    if all(each is None for each in found):
        return None
    total = max(total, most_of_init)
    return total + (_quantity(spec.get("overhead").get(STORAGE)) or 0) if total else total


def _has_resources(spec: Field) -> bool:
    """Whether the pod has resources of its own (IsPodLevelResourcesSet)."""
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
    """The usage of each pod by UID. Raises KubeletAnswerError, and nothing else, for anything that is no summary.

    Of a UID that is there twice the last one counts (`pkg/kubelet/eviction/helpers.go`, cachedStatsFunc), of a volume
    the first (podLocalVolumeUsage).
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
