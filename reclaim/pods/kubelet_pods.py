"""The kubelet's own list of its pods, joined with its pod directories.

The list adds which pods have terminated, were evicted or deleted while their directory still exists. It cannot prove
that a pod does not exist: right after a start of the kubelet it contains only static pods, or nothing
(kubernetes/kubernetes#112119), and does not say so. Therefore:

* A pod counts as gone only if both sources lack it, so an incomplete list removes nothing: a live pod has a directory
  before it has a container, and keeps it until it is gone.
* Without readable directories nothing is known; the list does not replace them.
* Directories that are read but not believed (`belief`) make no pod gone. What the list says of a pod that it contains
  holds all the same: terminated and evicted pods give up what they hold, as the kubelet itself says so.
* The state of a listed pod is the one in the list, whatever pods the list lacks. So it need not be known whether the
  kubelet has synced its pods once.
* `sources_ready` is true once a pod from the API server is in the list, the only proof that exists: the kubelet takes
  over the pods of a source all at once. The price: where no pod comes from an API server, log directories, which need
  all sources, are not removed.

Each call asks for the list anew, with one exception that can only keep objects: after a late answer no request is sent
for 10 s. A disk under pressure makes kubelets slow, and each request would delay the relief by the whole deadline.

The list also names the images that pods need whose containers are not made yet. That only ever keeps an image, so what
the last complete list named counts on while no list can be had, for each pod as long as it has a directory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from reclaim.pods.kubelet_client import KubeletUnavailable
from reclaim.pods.pod_list import KubeletAnswerError, PodList, parse_pod_list
from reclaim.pods.states import PodState, PodStates
from reclaim.services import Clock

PAUSE_SECONDS = 10.0
NAMED_SECONDS = 1.0  # how old the list may be that names images, as that of containers; and four times what it took


class KubeletPods:
    """`ask` gives the body of `GET /pods` or raises KubeletUnavailable.

    `problem`: why the list was not known when it was last read, in a sentence with the remedy; None if it was.
    `images`: what the specs of pods that have not terminated name, by UID, by the last complete list.
    """

    def __init__(self, ask: Callable[[], bytes], clock: Clock):
        self.problem: str | None = None
        self.images: Mapping[str, frozenset[str]] = {}
        self._ask = ask
        self._clock = clock
        self._known: Mapping[str, PodState] = {}  # as it was read last
        self._late = ""  # the problem until the next request is allowed
        self._ask_from = float("-inf")
        self._read_at = float("-inf")
        self._cost_seconds = 0.0

    def joined(self, directories: PodStates) -> PodStates:
        """What was just read of the directories, with the list. Never raises; where `kubelet` is None, `problem` says
        why."""
        asked_at = self._clock.monotonic()
        pods, self.problem = self._read(directories.present)
        self._read_at, self._cost_seconds = asked_at, self._clock.monotonic() - asked_at
        self._known = {} if pods is None else pods.states
        if pods is None:
            return directories
        return replace(directories, kubelet=pods.states, sources_ready=pods.from_api_server)

    def lists(self, uid: str) -> bool:
        """Whether the list that was read last has this pod."""
        return uid in self._known

    def is_older(self, since: float | None) -> bool:
        """Whether the list was read before that moment (monotonic seconds); None: more than 1 s ago, and more than four
        times what it took."""
        lately = self._clock.monotonic() - max(NAMED_SECONDS, 4 * self._cost_seconds)
        return self._read_at < (lately if since is None else since)

    def _read(self, present: frozenset[str] | None) -> tuple[PodList | None, str | None]:
        """The list, or why there is none."""
        if present is None:
            why = "the kubelet's directory of pods cannot be read, and its list alone does not say which pods are gone"
            return None, why
        self.images = {uid: named for uid, named in self.images.items() if uid in present}
        if self._clock.monotonic() < self._ask_from:
            return None, self._late
        try:
            pods = parse_pod_list(self._ask())
        except KubeletUnavailable as error:
            if error.late:
                self._late, self._ask_from = str(error), self._clock.monotonic() + PAUSE_SECONDS
            return None, str(error)
        except KubeletAnswerError as error:
            return None, f"the kubelet's list of pods is not used: {error}"
        self.images = pods.images
        return pods, None
