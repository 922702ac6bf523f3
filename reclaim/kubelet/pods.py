"""The kubelet's pods, from its directories and from its own list of them, if it can be asked.

The kubelet makes `<root-dir>/pods/<UID>` before it makes a log directory or a sandbox, and
removes it only when the pod is gone for good and none of its containers runs
(`pkg/kubelet/kubelet_volumes.go`, cleanupOrphanedPodDirs). So once it is missing the pod is gone,
provided that the directories are the kubelet's (`states`). A stage compares them with the runtime's
lists before it plans. Before the first comparison, and while they cannot be read, nothing is gone.

The list adds which pods have terminated, were evicted or were deleted while their directory still
exists. It cannot prove that a pod does not exist: right after a kubelet starts, it contains only
static pods, or nothing (kubernetes/kubernetes#112119), and does not say so. Therefore:

* A pod counts as gone only if both sources lack it, so an incomplete list removes nothing.
* What the list says about a pod it contains holds, even if it lacks others, and even if the
  directories that were read are not trusted. Without directories it is not read.
* `sources_ready` is true once the list contains a pod from the API server: the kubelet takes over
  all pods of a source at once. The only other proof is a list from the socket of a kubelet that
  gives none before (`pods_api`). Where there is neither, log directories, which require all
  sources, are not removed.

Covers: reading, remembering, and the checks right before a removal. Does not cover: the decisions
(`states`).
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from reclaim.cri.inventory import SharedReading
from reclaim.evidence.directories import KubeletDirectories
from reclaim.evidence.pod_list import (
    KubeletAnswerError,
    KubeletLate,
    KubeletUnavailable,
    NotYet,
    PodList,
    parse_pod_list,
)
from reclaim.evidence.starts import FRESH_SECONDS
from reclaim.evidence.states import (
    Distrust,
    PodDirectories,
    PodStates,
    RootIdentity,
    Why,
    distrust,
    distrust_of,
    exchanged,
    not_compared,
)
from reclaim.types import Listing
from signals.clock import Clock


class _Comparison(NamedTuple):
    """What the last comparison found, or a check since."""

    doubt: Distrust | None
    trusted: RootIdentity | None = None
    """The directories trusted last, kept while there is a doubt."""


@dataclass(eq=False)
class KubeletPods:
    """A PodStateProvider. Thread-safe.

    `ask`: returns the body of `GET /pods` or raises KubeletUnavailable; None: the kubelet is not
    asked. `list_problem`: why the list was unavailable when it was last read, in a sentence with
    the remedy; None if it was available or is not requested.

    All callers share the last comparison: a doubt found by one keeps what
    another was about to remove.
    """

    directories: KubeletDirectories
    clock: Clock
    ask: Callable[[], bytes] | None = None
    list_problem: str | None = None

    def __post_init__(self) -> None:
        self._ask_from = float("-inf")
        self._late = ""  # the problem to report until the next request is allowed
        self._read_at = float("-inf")
        self._cost_seconds = 0.0
        # from the last complete list, for each pod as long as it has a directory: while there is no
        # list, they still count, which only ever keeps an image
        self._images: Mapping[str, frozenset[str]] = {}
        self._listed = frozenset[str]()  # in the list that was read last
        # Stays: one look serves all who ask while another is under way.
        self._looking = threading.Lock()
        self._looks = SharedReading(self.directories.pod_directories, self.clock)
        # Replaced as a whole: of two replacements at once one is lost, and the next check
        # finds a lost doubt again.
        self._comparison = _Comparison(not_compared(self.directories.path))

    @property
    def doubt(self) -> Distrust | None:
        """Why no pod counts as gone, by the last comparison or check; None while it may."""
        return self._comparison.doubt

    def pod_states(self) -> PodStates:
        """The pods that exist now, `marked`."""
        return self.marked(self.read())

    def marked(self, states: PodStates) -> PodStates:
        """These states with the doubt from the last comparison, or of other directories."""
        return replace(states, doubt=states.doubt or self._doubt_now(states.identity))

    def read(self) -> PodStates:
        """The pods that exist now: the directories, then the list.

        If `kubelet` is None although it is asked, `list_problem` says why.
        """
        states = self.directories.pod_states()
        if self.ask is None:
            return states
        asked_at = self.clock.monotonic()
        pods = self._list(self.ask, states.present)
        self._read_at = asked_at
        self._cost_seconds = self.clock.monotonic() - asked_at
        self._listed = frozenset(pods.states if pods is not None else ())
        return (
            states
            if pods is None
            else replace(states, kubelet=pods.states, sources_ready=pods.from_api_server)
        )

    def compared(self, states: PodStates, listing: Listing | None) -> PodStates:
        """Compares what was read.

        Without lists, the last comparison still applies to checks right before removals.
        """
        now_ns = int(self.clock.wall() * 1e9)
        trusted = self._comparison.trusted
        doubted = distrust_of(states, listing, trusted, path=self.directories.path, now_ns=now_ns)
        if listing is not None:
            self._comparison = _Comparison(doubted, trusted if doubted else states.identity)
        return replace(states, doubt=doubted)

    def gone(self, uid: str) -> bool:
        """Whether the pod is known not to exist, in the trusted directories.

        If they have changed, that becomes a doubt. No request is sent; the list that was read last
        is used. Only static pods reuse a UID, and every pod has its directory before it has
        anything that could be removed, so the directory is proof enough.
        """
        if self._comparison.doubt is not None:
            return False
        states = self.directories.pod_states()
        doubt_now = self._doubt_now(states.identity)
        if doubt_now is not None:
            self._comparison = self._comparison._replace(doubt=doubt_now)
            return False
        return uid not in self._listed and states.gone(uid)

    def pod_directories(self, since: float | None = None) -> PodDirectories | None:
        """As they are now, or were at `since` (monotonic) or later; None if they cannot be read.

        One look serves all who ask while another is under way: sixteen removals are sent at a time.
        """
        asked_at = self.clock.monotonic() if since is None else since
        with self._looking:
            return self._looks.read(asked_at).answer

    def named_images(self, since: float | None = None) -> Mapping[str, frozenset[str]]:
        """What specs name, by the last complete list, whether or not the directories are trusted.
        Everything is read again if the list was read before `since`; without `since`, if that is
        longer ago than its rest."""
        if since is None:
            since = self.clock.monotonic() - _rest_seconds(self._cost_seconds)
        if self.ask is not None and self._read_at < since:
            self.read()
        return self._images

    def _list(self, ask: Callable[[], bytes], present: frozenset[str] | None) -> PodList | None:
        """The list; None if there is none, and `list_problem` says why."""
        if present is None:
            self.list_problem = (
                "the kubelet's directory of pods cannot be read, and its list alone does not say"
                " which pods are gone"
            )
            return None
        self._images = {uid: named for uid, named in self._images.items() if uid in present}
        asked_at = self.clock.monotonic()
        if asked_at < self._ask_from:
            self.list_problem = self._late
            return None
        try:
            pods = parse_pod_list(ask())
        except KubeletUnavailable as error:
            self.list_problem = str(error)
            # A disk under pressure slows kubelets down, and each request would delay relief by the
            # whole deadline. Not to know the list can only keep objects.
            if isinstance(error, (KubeletLate, NotYet)):
                now = self.clock.monotonic()
                self._late = str(error)
                self._ask_from = now + _rest_seconds(now - asked_at)
            return None
        except KubeletAnswerError as error:
            self.list_problem = f"the kubelet's list of pods is not used: {error}"
            return None
        self._images = pods.images
        self.list_problem = None
        return pods

    def _doubt_now(self, identity: RootIdentity | None) -> Distrust | None:
        """The doubt from the last comparison, or that these directories are not the trusted."""
        last = self._comparison
        path = self.directories.path
        if last.doubt is not None:
            return last.doubt
        if identity is None:
            return distrust(Why.UNREADABLE, f"{path} cannot be opened any more")
        return None if identity == last.trusted else exchanged(path)


def _rest_seconds(cost_seconds: float) -> float:
    """How long no list is asked for after one that took so long: a large one costs seconds."""
    return max(FRESH_SECONDS, 4 * cost_seconds)
