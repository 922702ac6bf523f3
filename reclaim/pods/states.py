"""Which pods exist on the node, and in which state: values, and the protocol of their source.

Does not cover: the sources, which are the kubelet's pod directories (`kubelet_directories`) and the kubelet's own list
(`kubelet_pods`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

_UID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}", re.ASCII)


def is_pod_uid(uid: str) -> bool:
    """Whether a text from the runtime can be the UID of a pod, and so the name of its directory."""
    return _UID.fullmatch(uid) is not None


@dataclass(frozen=True, slots=True)
class PodState:
    """A pod that the kubelet knows (`pkg/kubelet/pod_workers.go`).

    `terminated`: all its containers are stopped for good; a pod that ran to completion is terminated without being
    deleted. `deleted`: its deletion was requested. `evicted`: the kubelet evicted it. All three are final.
    """

    terminated: bool = False
    deleted: bool = False
    evicted: bool = False


@dataclass(frozen=True, slots=True)
class PodStates:
    """The pods of the node, from two sources.

    `present`: the UIDs that have a directory of the kubelet; None when that is unknown.
    `kubelet`: the pods in the kubelet's list by UID; None when it was not requested or not complete.
    `synced`: whether the kubelet has synced its pods once; until then an unlisted pod may still appear.
    `sources_ready`: whether every source of pods has delivered at least once.

    With `kubelet` the methods decide as the kubelet does; without it only the objects of a pod that certainly does not
    exist any more may be removed.
    """

    present: frozenset[str] | None = None
    kubelet: Mapping[str, PodState] | None = None
    synced: bool = True
    sources_ready: bool = True

    @property
    def known(self) -> bool:
        """Whether the kubelet's list is known."""
        return self.kubelet is not None

    def gone(self, uid: str) -> bool:
        """Whether the pod does not exist. Without the kubelet's list an invalid UID never counts as gone; with it, an
        unlisted UID is that of a removed pod, the empty one included."""
        if self.kubelet is None:
            return is_pod_uid(uid) and self.present is not None and uid not in self.present
        return self.synced and uid not in self.kubelet and uid not in (self.present or ())

    def content_should_be_removed(self, uid: str) -> bool:
        """Whether everything of the pod may be removed, its logs included: evicted, deleted and terminated, or gone."""
        state = (self.kubelet or {}).get(uid)
        return self.gone(uid) if state is None else state.evicted or (state.deleted and state.terminated)

    def runtime_should_be_removed(self, uid: str) -> bool:
        """Whether its containers and sandboxes may be removed under pressure: terminated, or gone."""
        state = (self.kubelet or {}).get(uid)
        return self.gone(uid) if state is None else state.terminated

    def merge(self, other: PodStates) -> PodStates:
        """Two observations as one, `other` being the later one.

        A pod exists if it is in either; a source that is unknown in either is unknown; a pod in both lists has its
        later state.
        """
        present = None if self.present is None or other.present is None else self.present | other.present
        kubelet = None if self.kubelet is None or other.kubelet is None else {**self.kubelet, **other.kubelet}
        return PodStates(present, kubelet, self.synced and other.synced, self.sources_ready and other.sources_ready)


class PodStateProvider(Protocol):
    """A source of pod states."""

    def pod_states(self) -> PodStates:
        """The pods that exist now. Never raises: an unknown part is None."""

    def gone(self, uid: str) -> bool:
        """Whether this pod is known not to exist, checked right before a removal."""

    def start_times(self) -> Mapping[str, float]:
        """When each pod was started, wall seconds by UID; without those that are unknown."""
