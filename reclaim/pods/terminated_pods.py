"""Observes what shows that a pod has terminated, each time the runtime's lists are compared with the directories.

Covers: gathering one observation, and the check right before a removal. Does not cover: the decision (`evidence`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import Protocol

from reclaim.clock import Clock
from reclaim.pods.evidence import API_SOURCE, Observation, Watched, watched
from reclaim.pods.states import RootIdentity
from reclaim.pods.stopped_pods import stopped_pods
from reclaim.types import Listing, PodSandboxState

HealthySince = Callable[[], float | None]
"""Since when (monotonic) one and the same kubelet has answered healthy; None if it does not now. Does not wait."""


class Volumes(Protocol):
    """What knows whether the kubelet has torn down the volumes of pods."""

    def torn_down(self, uids: Collection[str], on: RootIdentity | None) -> frozenset[str]:
        """Those of these pods that had volumes and have none now, in these very directories. Never raises."""


class TerminatedPods:
    """May be used from several threads. `age_seconds`: how long it must have been seen."""

    def __init__(self, volumes: Volumes, healthy_since: HealthySince, age_seconds: float, clock: Clock):
        self._volumes = volumes
        self._healthy_since = healthy_since
        self._age_seconds = age_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._watched: Watched | None = None

    def observed(self, listing: Listing, on: RootIdentity | None) -> frozenset[str]:
        """The pods that have terminated, with these complete lists as one more observation. `on`: the directories of
        pods, which are believed."""
        stopped = stopped_pods(listing)
        torn_down = self._volumes.torn_down(stopped.keys(), on) if stopped else frozenset[str]()
        with self._lock:
            seen = Observation(
                self._clock.monotonic(),
                self._clock.wall(),
                self._healthy_since(),
                stopped,
                torn_down,
                frozenset(each.pod_uid for each in listing.sandboxes if each.state is PodSandboxState.READY),
                frozenset(each.id for each in listing.sandboxes if each.config_source == API_SOURCE),
            )
            self._watched = watched(self._watched, seen)
            return self._terminated()

    def interrupted(self) -> None:
        """The directories are not believed: the count starts anew."""
        with self._lock:
            self._watched = None

    def still(self, uid: str, on: RootIdentity | None) -> bool:
        """Whether the pod counts as terminated now, right before a removal: the kubelet mounts the volumes of a pod
        before it makes anything of it in the runtime."""
        with self._lock:
            known = self._watched
            if known is None or uid not in self._terminated() or self._healthy_since() != known.kubelet_since:
                return False
        return uid in self._volumes.torn_down((uid,), on)

    def _terminated(self) -> frozenset[str]:
        return frozenset() if self._watched is None else self._watched.terminated(self._age_seconds)
