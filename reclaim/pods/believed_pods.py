"""The pods of the node as they are believed: a source of pod states, and the last comparison with the runtime.

A stage compares what it has read with the runtime's lists before it plans. Right before a removal the directories are
read again, and must be those on which belief was given: on others no pod is gone, and nothing is until the next
comparison. Before the first comparison nothing is gone either.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace

from reclaim.clock import Clock
from reclaim.pods.belief import doubt_about, exchanged, not_compared
from reclaim.pods.states import Doubt, PodSource, PodStates, RootIdentity, Why, doubt
from reclaim.pods.terminated_pods import TerminatedPods
from reclaim.types import Listing


class BelievedPods:
    """A PodStateProvider. `where`: the path of `pods`, for sentences. `terminated`: observes with each comparison which
    pods have terminated, where that is wanted. May be used from several threads.

    Two callers share the last comparison: a doubt of one keeps what the other was about to remove.
    """

    def __init__(self, source: PodSource, where: str, clock: Clock, terminated: TerminatedPods | None = None):
        self.source = source
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
        """The pods that exist now, as the source says."""
        return self.source.pod_states()

    def compared(self, states: PodStates, listing: Listing | None) -> PodStates:
        """What was read, compared anew. Without lists the last comparison stands for those who check a removal."""
        now_ns = int(self._clock.wall() * 1e9)
        with self._lock:
            found = doubt_about(states, listing, self._believed, self._where, now_ns)
            if listing is not None:
                self._doubt = found
                self._believed = self._believed if found else states.identity
        return replace(states, doubt=found, by_evidence=self._by_evidence(states.identity, listing, found))

    def _by_evidence(self, on: RootIdentity | None, listing: Listing | None, found: Doubt | None) -> frozenset[str]:
        if self._terminated is None or listing is None:
            return frozenset()
        if found is not None:
            self._terminated.interrupted()
            return frozenset()
        return self._terminated.observed(listing, on)

    def shown_terminated(self, uid: str) -> bool:
        """Whether what was seen still shows that the pod has terminated, in the directories that are believed."""
        with self._lock:
            believed = None if self._doubt is not None else self._believed
        return believed is not None and self._terminated is not None and self._terminated.still(uid, believed)

    def gone(self, uid: str) -> bool:
        """Whether the pod is known not to exist, in the directories that are believed. A change of them is a doubt."""
        with self._lock:
            if self._doubt is not None:
                return False
            believed = self._believed
        if self.source.gone(uid, believed):
            return True
        identity = self.source.identity()  # it may take a while, so not under the lock
        with self._lock:
            self._doubt = self._doubt or self._other(identity)
        return False

    def start_times(self) -> Mapping[str, float] | None:
        """As the source says."""
        return self.source.start_times()

    def named_images(self, since: float | None = None) -> Mapping[str, frozenset[str]]:
        """As the source says, whether or not its directories are believed."""
        return self.source.named_images(since)

    def _other(self, identity: RootIdentity | None) -> Doubt | None:
        """The doubt about directories that are not those on which belief was given."""
        if identity is None:
            return doubt(Why.UNREADABLE, f"{self._where} cannot be opened any more")
        return None if identity == self._believed else exchanged(self._where)
