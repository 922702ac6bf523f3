"""Pods and what they use, as the kubelet's eviction manager looks at them: values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

from signals.types import Signal

LARGEST_INT64 = 2**63 - 1


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
