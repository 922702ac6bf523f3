"""The pods of the node as they are believed: the kubelet's directories, its list, and the last comparison of the
directories with the runtime.

A stage compares what it has read with the runtime's lists before it plans. Right before a removal the directories are
read again, and must be those on which belief was given: on others no pod is gone, and nothing is until the next
comparison. Before the first comparison nothing is gone either.

Covers: reading, remembering, and the checks right before a removal. Does not cover: the decisions (`belief`,
`evidence`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from reclaim.pods.belief import doubt_about, exchanged, not_compared
from reclaim.pods.evidence import Observation, Watched, stopped_pods, watched
from reclaim.pods.kubelet_directories import KubeletDirectories
from reclaim.pods.states import Doubt, PodStates, RootIdentity, Why, doubt
from reclaim.services import Clock
from reclaim.types import Listing

if TYPE_CHECKING:
    from reclaim.pods.kubelet_pods import KubeletPods

HealthySince = Callable[[], float | None]
"""Since when (monotonic) one and the same kubelet has answered healthy; None if it does not now. Does not wait."""


class Directories(Protocol):
    """The kubelet's directories of pods, whether they are believed or not; see `KubeletDirectories`."""

    def pod_states(self) -> PodStates:
        """The pods that have a directory. Never raises."""

    def gone(self, uid: str, on: RootIdentity | None = None) -> bool:
        """Whether this pod is known to have none; with `on`, in those very directories."""

    def start_times(self) -> Mapping[str, float] | None:
        """When each pod was started, wall seconds by UID; None where that cannot be told."""


class TerminatedPods:
    """Observes what shows that a pod has terminated, each time the runtime's lists are compared with the directories.

    May be used from several threads. `age_seconds`: how long it must have been seen.
    """

    def __init__(self, directories: KubeletDirectories, healthy_since: HealthySince, age_seconds: float, clock: Clock):
        self._directories = directories
        self._healthy_since = healthy_since
        self._age_seconds = age_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._watched: Watched | None = None

    def observed(self, listing: Listing, on: RootIdentity | None) -> frozenset[str]:
        """The pods that have terminated, with these complete lists as one more observation. `on`: the directories of
        pods; None if they are not believed, by which the count starts anew."""
        if on is None:
            with self._lock:
                self._watched = None
            return frozenset()
        stopped = stopped_pods(listing)
        torn_down = self._directories.torn_down(stopped.keys(), on) if stopped else frozenset[str]()
        with self._lock:
            now, wall = self._clock.monotonic(), self._clock.wall()
            seen = Observation(now, wall, self._healthy_since(), listing, stopped, torn_down)
            self._watched = watched(self._watched, seen)
            return self._terminated()

    def still(self, uid: str, on: RootIdentity) -> bool:
        """Whether the pod counts as terminated now, right before a removal: the kubelet mounts the volumes of a pod
        before it makes anything of it in the runtime."""
        with self._lock:
            known = self._watched
            if known is None or uid not in self._terminated() or self._healthy_since() != known.kubelet_since:
                return False
        return uid in self._directories.torn_down((uid,), on)

    def _terminated(self) -> frozenset[str]:
        return frozenset() if self._watched is None else self._watched.terminated(self._age_seconds)


class BelievedPods:
    """A PodStateProvider. `where`: the path of `pods`, for sentences. `terminated`: observes with each comparison which
    pods have terminated, where that is wanted. `listed`: the kubelet's list, where it is asked for. May be used from
    several threads.

    Two callers share the last comparison: a doubt of one keeps what the other was about to remove.
    """

    def __init__(
        self,
        directories: Directories,
        where: str,
        clock: Clock,
        terminated: TerminatedPods | None = None,
        listed: KubeletPods | None = None,
    ):
        self.listed = listed
        self._directories = directories
        self._terminated = terminated
        self._where = where
        self._clock = clock
        self._lock = threading.Lock()
        self._believed: RootIdentity | None = None  # on which belief was given last, also while there is a doubt
        self._doubt: Doubt | None = not_compared(where)

    @property
    def doubt(self) -> Doubt | None:
        """Why no pod counts as gone, by the last comparison or check; None while the directories are believed."""
        return self._doubt

    def pod_states(self) -> PodStates:
        """The pods that exist now, `marked`."""
        return self.marked(self.read())

    def marked(self, states: PodStates) -> PodStates:
        """These states with the doubt of the last comparison, or that they are of other directories."""
        with self._lock:
            return replace(states, doubt=states.doubt or self._doubt or self._other(states.identity))

    def read(self) -> PodStates:
        """The pods that exist now: the directories, and then the list."""
        states = self._directories.pod_states()
        return states if self.listed is None else self.listed.joined(states)

    def compared(self, states: PodStates, listing: Listing | None) -> PodStates:
        """What was read, compared anew. Without lists the last comparison stands for those who check a removal."""
        now_ns = int(self._clock.wall() * 1e9)
        with self._lock:
            found = doubt_about(states, listing, self._believed, self._where, now_ns)
            if listing is not None:
                self._doubt = found
                self._believed = self._believed if found else states.identity
        shown = frozenset[str]()
        if self._terminated is not None and listing is not None:
            shown = self._terminated.observed(listing, None if found else states.identity)
        return replace(states, doubt=found, by_evidence=shown)

    def shown_terminated(self, uid: str) -> bool:
        """Whether what was seen still shows that the pod has terminated, in the directories that are believed."""
        with self._lock:
            believed = None if self._doubt is not None else self._believed
        return believed is not None and self._terminated is not None and self._terminated.still(uid, believed)

    def gone(self, uid: str) -> bool:
        """Whether the pod is known not to exist, in the directories that are believed. A change of them is a doubt.

        No request is sent: by the list that was read last. Only static pods reuse a UID, and every pod has its
        directory before it has anything that could be removed, so the directory is proof enough.
        """
        with self._lock:
            if self._doubt is not None:
                return False
            believed = self._believed
        is_listed = self.listed is not None and self.listed.lists(uid)
        if not is_listed and self._directories.gone(uid, believed):
            return True
        identity = self._directories.pod_states().identity  # it may take a while, so not under the lock
        with self._lock:
            self._doubt = self._doubt or self._other(identity)
        return False

    def start_times(self) -> Mapping[str, float] | None:
        """From the directories: a pod has one before it has anything else."""
        return self._directories.start_times()

    def named_images(self, since: float | None = None) -> Mapping[str, frozenset[str]]:
        """What specs name, by the last complete list, whether or not the directories are believed. All is read anew if
        the list is older than `since`, or without it than lately."""
        if self.listed is None:
            return {}
        if self.listed.is_older(since):
            self.read()
        return self.listed.images

    def _other(self, identity: RootIdentity | None) -> Doubt | None:
        """The doubt about directories that are not those on which belief was given."""
        if identity is None:
            return doubt(Why.UNREADABLE, f"{self._where} cannot be opened any more")
        return None if identity == self._believed else exchanged(self._where)
