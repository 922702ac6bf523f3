"""Which pods exist on the node, and in which state: values, and the protocol by which those who remove ask for them.

Does not cover: the sources, which are the kubelet's pod directories (`kubelet_directories`) and its own list
(`pod_list`); whether the directories are believed (`belief`); both joined (`believed_pods`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, Protocol

from reclaim.types import Container, ContainerState, Listing, PodSandbox, PodSandboxState

_UID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}", re.ASCII)


def is_pod_uid(uid: str) -> bool:
    """Whether a text from the runtime can be the UID of a pod, and so the name of its directory."""
    return _UID.fullmatch(uid) is not None


@dataclass(frozen=True, slots=True)
class PodState:
    """A pod that the kubelet knows (`pkg/kubelet/pod_workers.go`).

    `terminated`: all its containers are stopped for good; a pod that ran to completion is terminated without being
    deleted. `deleted`: its deletion was requested. `evicted`: the kubelet evicted it. All three are final.
    `static`: it is not of the API server, but of a file or a URL.
    """

    terminated: bool = False
    deleted: bool = False
    evicted: bool = False
    static: bool = False


class RootIdentity(NamedTuple):
    """Device and inode of the kubelet's root directory, and of `pods` in it."""

    root: tuple[int, int]
    pods: tuple[int, int]


class Why(StrEnum):
    """Why the kubelet's directories are not believed; `reclaim/README.md` documents each word."""

    UNREADABLE = "unreadable"
    NOT_COMPARED = "not_compared"
    NOTHING_HELD = "nothing_held"
    RUNS_WITHOUT = "runs_without"
    EXPLAINS_NOTHING = "explains_nothing"
    EXCHANGED = "exchanged"


NO_TROUBLE = frozenset({Why.NOT_COMPARED, Why.NOTHING_HELD})
"""Doubts that ask for nothing: the runtime's own trouble is told elsewhere, and without a pod only logs can be lost."""


class Doubt(NamedTuple):
    """Why the kubelet's directories are not believed: one word, and one sentence for people."""

    why: Why
    sentence: str


def doubt(why: Why, what: str) -> Doubt:
    """A doubt. `what`: the main clause, which says what is wrong with which directory."""
    return Doubt(why, f"{what}, so which pods are gone is not known")


@dataclass(frozen=True, slots=True)
class PodStates:
    """The pods of the node, from two sources.

    `present`: the UIDs that have a directory of the kubelet; None when that is unknown.
    `kubelet`: the pods in the kubelet's list by UID; None when it was not requested or not complete.
    `sources_ready`: whether every source of pods has delivered at least once.
    `by_evidence`: the pods that have terminated by what was seen over time (`evidence`); where the kubelet's list is
    known, that counts instead.
    `identity`: of the directories that `present` was read from. `doubt`: why they are not believed, None if they are.

    With a doubt no pod is gone. What the list says of a pod that it contains still holds: that the kubelet says so does
    not depend on its directories.

    With `kubelet` the methods decide as the kubelet does; without it only the objects of a pod that certainly does not
    exist any more may be removed.
    """

    present: frozenset[str] | None = None
    kubelet: Mapping[str, PodState] | None = None
    sources_ready: bool = True
    by_evidence: frozenset[str] = frozenset()
    identity: RootIdentity | None = field(default=None, compare=False)
    doubt: Doubt | None = field(default=None, compare=False)

    @property
    def known(self) -> bool:
        """Whether the kubelet's list is known."""
        return self.kubelet is not None

    def listed(self, uid: str) -> PodState | None:
        """What the kubelet's list says of the pod; None if that is not known, or it is not in it."""
        return None if self.kubelet is None else self.kubelet.get(uid)

    def gone(self, uid: str) -> bool:
        """Whether the pod does not exist. Without the kubelet's list an invalid UID never counts as gone; with it, an
        unlisted UID is that of a removed pod, the empty one included."""
        if self.doubt is not None:
            return False
        if self.kubelet is None:
            return is_pod_uid(uid) and self.present is not None and uid not in self.present
        return uid not in self.kubelet and uid not in (self.present or ())

    def unknown(self, uid: str) -> bool:
        """Whether only the doubt keeps what is left of the pod: neither source has it."""
        return self.doubt is not None and self.listed(uid) is None and uid not in (self.present or ())

    def content_should_be_removed(self, uid: str) -> bool:
        """Whether everything of the pod may be removed, its logs included: evicted, deleted and terminated, or gone."""
        state = self.listed(uid)
        return self.gone(uid) if state is None else state.evicted or (state.deleted and state.terminated)

    def runtime_should_be_removed(self, uid: str) -> bool:
        """Whether its containers and sandboxes may be removed under pressure: terminated, or gone."""
        state = self.listed(uid)
        return self.gone(uid) or self.shown_terminated(uid) if state is None else state.terminated

    def shown_terminated(self, uid: str) -> bool:
        """Whether the pod exists and has terminated by what was seen of it, without a word of the kubelet."""
        return self.kubelet is None and self.doubt is None and uid in self.by_evidence and uid in (self.present or ())

    def only_runtime_remembers(self, uid: str) -> bool:
        """Whether nothing but its dead containers would tell a kubelet that restarts that the pod has run: a static
        pod comes without a status (`pkg/kubelet/kubelet_pods.go`, generateAPIPodStatus)."""
        state = self.listed(uid)
        return state is not None and state.static

    def merge(self, other: PodStates) -> PodStates:
        """Two observations as one, `other` being the later one.

        A pod exists if it is in either; a source that is unknown in either is unknown; a pod in both lists has its
        later state. What was read from two different directories is unknown.
        """
        present = None if self.present is None or other.present is None else self.present | other.present
        found = self.doubt or other.doubt
        if present is not None and self.identity != other.identity:
            present = None
            found = doubt(Why.EXCHANGED, "the kubelet's directory of pods was exchanged while it was read")
        kubelet = None if self.kubelet is None or other.kubelet is None else {**self.kubelet, **other.kubelet}
        ready = self.sources_ready and other.sources_ready
        return PodStates(present, kubelet, ready, self.by_evidence & other.by_evidence, other.identity, found)


class PodStateProvider(Protocol):
    """The states of pods, for those who remove."""

    @property
    def doubt(self) -> Doubt | None:
        """Why no pod counts as gone now; None if the directories are believed."""

    def pod_states(self) -> PodStates:
        """The pods that exist now, with the doubt of the last comparison. Never raises: an unknown part is None."""

    def read(self) -> PodStates:
        """The pods that exist now, to be compared: by itself this does not say that any pod is gone."""

    def compared(self, states: PodStates, listing: Listing | None) -> PodStates:
        """What was read before and after complete lists of the runtime, believed or not; None: there are no lists."""

    def gone(self, uid: str) -> bool:
        """Whether this pod is known not to exist, checked right before a removal."""

    def shown_terminated(self, uid: str) -> bool:
        """Whether what was seen still shows that this pod has terminated, checked right before a removal."""

    def start_times(self) -> Mapping[str, float] | None:
        """When each pod was started, wall seconds by UID; None where that cannot be told."""

    def named_images(self, since: float | None = None) -> Mapping[str, frozenset[str]]:
        """What the specs of pods that have not terminated name, by UID, by the kubelet's list; without those of which
        that is not known. Asked for at `since` (monotonic seconds) or later; None: lately. Never raises."""


# ---- whether the directories are trusted

SETTLE_SECONDS = 10.0
LONGEST_NAME = 63 + 1 + 253  # of namespace and pod in Kubernetes; what a runtime reports may be longer


def doubt_about(
    states: PodStates,
    listing: Listing | None,
    believed: RootIdentity | None,
    where: str,
    now_ns: int,
) -> Doubt | None:
    """Why these directories are not believed; None if they are.

    `states`: as read before and after the lists, with the kubelet's list where it is known. `listing`: None if the
    runtime gave no complete lists. `believed`: on which root they were believed last. `where`: the path of `pods`, for
    the sentence. `now_ns`: wall time in nanoseconds since the epoch, as the runtime's.
    """
    if states.present is None:
        return states.doubt or doubt(Why.UNREADABLE, f"{where} cannot be read")
    if listing is None:
        return not_compared(where)
    parts = _parts(listing)
    running = [part for part in parts if part.state in (ContainerState.RUNNING, PodSandboxState.READY)]
    without = sorted({_pod(part) for part in running if part.pod_uid not in states.present})
    if without:
        more = f" (and {len(without) - 1} more)" if len(without) > 1 else ""
        return doubt(Why.RUNS_WITHOUT, f"the pod {without[0]}{more} runs without a directory in {where}")
    unexplained = _unexplained(states, {part.pod_uid for part in parts}, where)
    if unexplained is not None:
        return unexplained
    if believed is None or states.identity == believed:
        return None
    latest_ns = now_ns - SETTLE_SECONDS * 1e9  # of something with a directory; without a creation time it is not known
    explained = (part for part in running if part.pod_uid in states.present)
    return None if any(0 < part.created_at_ns <= latest_ns for part in explained) else exchanged(where)


def not_compared(where: str) -> Doubt:
    """The doubt before the first comparison, and while the runtime gives no complete lists."""
    return doubt(Why.NOT_COMPARED, f"{where} has not been compared with complete lists of the runtime")


def exchanged(where: str) -> Doubt:
    """The doubt about another directory than the believed one."""
    return doubt(
        Why.EXCHANGED, f"{where} is another directory than before and explains nothing that has run for a while"
    )


def _unexplained(states: PodStates, held: Collection[str], where: str) -> Doubt | None:
    """A doubt if the directories explain nothing of what is held, or nothing of what the kubelet says is alive."""
    present, kubelet = states.present or frozenset(), states.kubelet or {}
    alive = {uid for uid in held if uid in kubelet and not kubelet[uid].terminated}
    if alive and present.isdisjoint(alive):
        what = f"{where} has a directory of none of the {len(alive)} live pods that kubelet and runtime know"
        return doubt(Why.EXPLAINS_NOTHING, what)
    if not present.isdisjoint(held) or (states.known and states.sources_ready):
        return None
    if not held:
        return doubt(Why.NOTHING_HELD, f"the runtime holds nothing of a pod by which {where} could be believed")
    what = "has a directory of none of them" if present else "is empty"
    return doubt(
        Why.EXPLAINS_NOTHING, f"the runtime holds parts of {len(held)} pod{'s' * (len(held) != 1)} and {where} {what}"
    )


def _parts(listing: Listing) -> list[Container | PodSandbox]:
    """Containers and sandboxes that carry the kubelet's label with a valid UID; others are not a kubelet's."""
    parts: list[Container | PodSandbox] = [*listing.containers]
    parts += [sandbox for sandbox in listing.sandboxes if sandbox.labelled]
    return [part for part in parts if is_pod_uid(part.pod_uid)]


def _pod(part: Container | PodSandbox) -> str:
    return f"{part.pod_namespace}/{part.pod_name}"[:LONGEST_NAME]
