"""Pod states from both sources: the kubelet's pod list and its pod directories.

The list adds which pods have terminated, were evicted or deleted while their directory still exists. It cannot prove
that a pod does not exist: right after a start of the kubelet it contains only static pods, or nothing
(kubernetes/kubernetes#112119), and does not say so. Therefore:

* A pod counts as gone only if both sources lack it, so an incomplete list removes nothing: a live pod has a directory
  before it has a container, and keeps it until it is gone.
* Without readable directories nothing is known; the list does not replace them.
* Directories that are read but not believed (`belief`) make no pod gone. What the list says of a pod that it contains
  holds all the same: terminated and evicted pods give up what they hold, as the kubelet itself says so.
* The state of a listed pod is the one in the list, whatever pods the list lacks. So `synced` needs no proof.
* `sources_ready` is true once a pod from the API server is in the list, the only proof that exists: the kubelet takes
  over the pods of a source all at once. The price: where no pod comes from an API server, log directories, which need
  all sources, are not removed.

Each call reads both sources anew, with one exception that can only keep objects: after a late answer no request is sent
for 10 s. A disk under pressure makes kubelets slow, and each request would delay the relief by the whole deadline.

The list also names the images that pods need whose containers are not made yet. That only ever keeps an image, so what
the last complete list named counts on while no list can be had, for each pod as long as it has a directory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from reclaim.clock import Clock
from reclaim.pods.kubelet_client import KubeletUnavailable
from reclaim.pods.kubelet_json import KubeletAnswerError
from reclaim.pods.pod_list import parse_pod_list
from reclaim.pods.states import PodSource, PodState, PodStates, RootIdentity

PAUSE_SECONDS = 10.0
NAMED_SECONDS = 1.0  # how old the list may be that names images, as that of containers; and four times what it took


class KubeletPods:
    """A PodSource of both sources. `ask` gives the body of `GET /pods` or raises KubeletUnavailable."""

    def __init__(self, directories: PodSource, ask: Callable[[], bytes], clock: Clock):
        self._directories = directories
        self._ask = ask
        self._clock = clock
        self._known: Mapping[str, PodState] = {}  # from the last call of `pod_states`
        self._late = ""  # the problem until the next request is allowed
        self._ask_from = float("-inf")
        self._problem: str | None = None
        self._images: Mapping[str, frozenset[str]] = {}  # by UID
        self._read_at = float("-inf")
        self._cost_seconds = 0.0

    @property
    def problem(self) -> str | None:
        """Why the last `pod_states` has no kubelet state, in a sentence with the remedy; None if it has."""
        return self._problem

    def pod_states(self) -> PodStates:
        """The pods of both sources now. Never raises; where `kubelet` is None, `problem` says why."""
        asked_at = self._clock.monotonic()
        states, self._problem = self._read()
        self._known = states.kubelet or {}
        self._read_at, self._cost_seconds = asked_at, self._clock.monotonic() - asked_at
        return states

    def gone(self, uid: str, on: RootIdentity | None = None) -> bool:
        """Whether the pod has no directory now and was not in the list of the last `pod_states`.

        No request is sent. Only static pods reuse a UID, and every pod has its directory before it has anything that
        could be removed, so the directory is proof enough.
        """
        return uid not in self._known and self._directories.gone(uid, on)

    def identity(self) -> RootIdentity | None:
        """Of the directories."""
        return self._directories.identity()

    def start_times(self) -> Mapping[str, float] | None:
        """From the directories: a pod has one before it has anything else."""
        return self._directories.start_times()

    def named_images(self, since: float | None = None) -> Mapping[str, frozenset[str]]:
        """What specs name by the last complete list. The sources are read anew if that was before `since`; without it,
        if it is more than 1 s ago and more than four times what it took."""
        lately = self._clock.monotonic() - max(NAMED_SECONDS, 4 * self._cost_seconds)
        if self._read_at < (lately if since is None else since):
            self.pod_states()
        return self._images

    def _read(self) -> tuple[PodStates, str | None]:
        states = self._directories.pod_states()
        if states.present is not None:
            self._images = {uid: named for uid, named in self._images.items() if uid in states.present}
        if states.present is None:
            return (
                states,
                "the kubelet's directory of pods cannot be read, and its list alone does not say which pods are gone",
            )
        if self._clock.monotonic() < self._ask_from:
            return states, self._late
        try:
            pods = parse_pod_list(self._ask())
        except KubeletUnavailable as error:
            if error.late:
                self._late, self._ask_from = str(error), self._clock.monotonic() + PAUSE_SECONDS
            return states, str(error)
        except KubeletAnswerError as error:
            return states, f"the kubelet's list of pods is not used: {error}"
        self._images = pods.images
        return replace(states, kubelet=pods.states, sources_ready=pods.from_api_server), None
