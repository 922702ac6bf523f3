"""The pods of the node as the kubelet itself knows them, joined with its directories.

What the kubelet's list adds to its directories: which pods have terminated, were evicted or deleted while their
directory is still there. What it cannot add is that a pod is gone, since right after a start of the kubelet its list
holds static pods alone, or nothing (kubernetes/kubernetes#112119), and does not say so. Therefore:

* A pod is gone when it is in neither, so a short list takes nothing away: a live pod has a directory before it has a
  container, and keeps it until it is gone.
* Directories that cannot be read are not replaced by the list: then nothing at all is known.
* A pod that is in the list is what the list says, whoever else is still missing in it. So `synced` needs no proof.
* `sources_ready` is true once a pod from the API server is in the list, which is the only proof there is: the kubelet
  takes the pods of a source all at once. The price: where no pod comes from an API server, what waits for all sources
  (the log directories) stays.

Nothing is remembered from one look for the next, with one exception that can only keep things: after an answer that
was late the kubelet is not asked again for 10 s. A disk under pressure makes kubelets slow, and each look would hold
up the relief by the whole deadline.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from reclaim.clock import Clock
from reclaim.pods.kubelet_client import KubeletUnavailable
from reclaim.pods.pod_list import PodListError, parse_pod_list
from reclaim.pods.states import PodState, PodStateProvider, PodStates

PAUSE_SECONDS = 10.0


class KubeletPods:
    """A PodStateProvider of both sources. `ask` gives the body of `GET /pods` or raises KubeletUnavailable."""

    def __init__(self, directories: PodStateProvider, ask: Callable[[], bytes], clock: Clock):
        self._directories = directories
        self._ask = ask
        self._clock = clock
        self._known: Mapping[str, PodState] = {}  # by the last look
        self._late = ""  # what is said until the kubelet is asked again
        self._ask_from = float("-inf")
        self._problem: str | None = None

    @property
    def problem(self) -> str | None:
        """Why the last look did not know the kubelet's own state, in a sentence with the remedy; None if it did."""
        return self._problem

    def look(self) -> PodStates:
        """Directories and list of this moment. Never raises; `kubelet` is None when `problem` says why."""
        states, self._problem = self._look()
        self._known = states.kubelet or {}
        return states

    def gone(self, uid: str) -> bool:
        """Whether the pod has no directory now and was not in the kubelet's list at the last look.

        The kubelet is not asked again. A UID does not come back, except that of a static pod; and whatever pod comes
        has its directory before it has anything that could be removed, so the directory tells.
        """
        return uid not in self._known and self._directories.gone(uid)

    def began(self) -> Mapping[str, float]:
        """As the directories tell: a pod has one before it has anything else."""
        return self._directories.began()

    def _look(self) -> tuple[PodStates, str | None]:
        states = self._directories.look()
        if states.present is None:
            return (
                states,
                "the kubelet's directory of pods cannot be read, and its list alone does not tell who is gone",
            )
        if self._clock.monotonic() < self._ask_from:
            return states, self._late
        try:
            pods = parse_pod_list(self._ask())
        except KubeletUnavailable as error:
            if error.late:
                self._late, self._ask_from = str(error), self._clock.monotonic() + PAUSE_SECONDS
            return states, str(error)
        except PodListError as error:
            return states, f"the kubelet's list of pods is not used: {error}"
        return replace(states, kubelet=pods.states, sources_ready=pods.from_api_server), None
