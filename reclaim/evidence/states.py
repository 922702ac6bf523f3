"""Which pods exist on the node and in which state, and whether the kubelet's
directories are trusted to say so.

**The directories are trusted** only while they explain what the runtime holds. A `pods` directory
can be readable and yet not be the kubelet's: its disk is not mounted after a boot, the kubelet runs
with another `--root-dir`, or a CSI driver has created an empty one. Every pod would then look gone.
So trust is earned anew with each comparison, and without it nothing counts as gone:

* Every pod of the kubelet that is running (a RUNNING container, a READY sandbox) has its directory.
  The kubelet makes the directory first and removes it last (`pkg/kubelet/kubelet.go`, SyncPod;
  `kubelet_volumes.go`, cleanupOrphanedPodDirs), and it is read before and after the runtime's
  lists, so no minimum age is needed.
* At least one pod that the runtime holds, in whatever state, has its directory. That is so after a
  reboot, when everything is dead but the directories are there. If it is not so, as on a drained
  node, only the kubelet's own list can explain it: if it contains a pod of the API server, and so
  is complete, and contains no live pod that the runtime holds.
* If the kubelet's list is known: at least one of its live pods that the
  runtime holds has its directory.
* Root and `pods` are the directories that were trusted before (by device and inode). Others must
  first explain something that has run for `SETTLE_SECONDS`: by then the kubelet has made the
  directories of its other pods too. Restarting this program forgets the earlier ones.

Does not cover: the sources, which are the kubelet's pod directories and its own list (`pod_list`),
and combining them (`kubelet_pods`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, Protocol

from reclaim.types import Container, ContainerState, FileIdentity, Listing, PodSandboxState

_UID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}", re.ASCII)


def is_pod_uid(uid: str) -> bool:
    """Whether text from the runtime can be the UID of a pod, and thus the name of its directory."""
    return _UID.fullmatch(uid) is not None


class PodState(NamedTuple):
    """A pod that the kubelet knows (`pkg/kubelet/pod_workers.go`).

    `terminated`: all its containers have stopped for good; a pod that ran to completion
    is terminated without being deleted. `deleted`: its deletion was requested.
    `evicted`: the kubelet evicted it. All three are final. `static`: it comes from a
    file or a URL, not from the API server.
    """

    terminated: bool = False
    deleted: bool = False
    evicted: bool = False
    static: bool = False

    def agreeing_with(self, other: PodState) -> PodState:
        """The state of a pod that is listed twice: only what both entries agree on."""
        return PodState(
            terminated=self.terminated and other.terminated,
            deleted=self.deleted and other.deleted,
            evicted=self.evicted and other.evicted,
            static=self.static or other.static,
        )


class RootIdentity(NamedTuple):
    """Device and inode of the kubelet's root directory, and of `pods` in it."""

    root: FileIdentity
    pods: FileIdentity


class PodDirectory(NamedTuple):
    """When a pod's directory last changed, and the directory of each of its containers, in wall
    seconds. The kubelet makes the latter, and in it a file for each attempt, right before it makes
    the container (`pkg/kubelet/kubelet_pods.go`, GenerateRunContainerOptions;
    `kuberuntime_container.go`, makeMounts)."""

    changed: float
    containers: Mapping[str, float] = {}


PodDirectories = Mapping[str, PodDirectory]
"""Those of all pods, by UID."""


class Why(StrEnum):
    """Why the kubelet's directories are not trusted; `docs/functions.md` documents each word."""

    UNREADABLE = "unreadable"
    NOT_COMPARED = "not_compared"
    NOTHING_HELD = "nothing_held"
    RUNS_WITHOUT = "runs_without"
    EXPLAINS_NOTHING = "explains_nothing"
    EXCHANGED = "exchanged"


NO_TROUBLE = frozenset({Why.NOT_COMPARED, Why.NOTHING_HELD})
"""Reasons that require no action: trouble with the runtime is reported elsewhere, and if it holds
no pod, only logs are kept needlessly."""


class Distrust(NamedTuple):
    """Why the kubelet's directories are not trusted: one word, and one sentence for people."""

    why: Why
    sentence: str


def distrust(why: Why, what: str) -> Distrust:
    """`what`: the main clause, which says what is wrong with which directory."""
    return Distrust(why, f"{what}, so which pods are gone is not known")


@dataclass(frozen=True)
class PodStates:
    """The pods of the node, from two sources.

    `present`: the UIDs that have a kubelet directory; None if unknown. `kubelet`: the pods in the
    kubelet's list by UID; None if it was not requested or not complete. `sources_ready`: whether
    every source of pods has delivered at least once. `identity`: of the directories that `present`
    was read from. `doubt`: why they are not trusted; None if they are.

    With a doubt, no pod is gone. What the list says about a pod it contains still holds, as it does
    not depend on the directories.

    With `kubelet`, the methods decide as the kubelet does; without it, only the objects of pods
    that certainly no longer exist may be removed.
    """

    present: frozenset[str] | None = None
    kubelet: Mapping[str, PodState] | None = None
    sources_ready: bool = True
    identity: RootIdentity | None = field(default=None, compare=False)
    doubt: Distrust | None = field(default=None, compare=False)

    @property
    def known(self) -> bool:
        """Whether the kubelet's list is known."""
        return self.kubelet is not None

    def listed(self, uid: str) -> PodState | None:
        """What the kubelet's list says about the pod; None if nothing."""
        return None if self.kubelet is None else self.kubelet.get(uid)

    def gone(self, uid: str) -> bool:
        """Whether the pod does not exist. Without the kubelet's list, an invalid UID never counts
        as gone; with it, an unlisted UID is that of a removed pod, even an empty one."""
        if self.doubt is not None:
            return False
        if self.kubelet is None:
            return is_pod_uid(uid) and self.present is not None and uid not in self.present
        return uid not in self.kubelet and uid not in (self.present or ())

    def unknown(self, uid: str) -> bool:
        """Whether only the doubt keeps what is left of the pod: neither source has it."""
        return (
            self.doubt is not None and self.listed(uid) is None and uid not in (self.present or ())
        )

    def content_should_be_removed(self, uid: str) -> bool:
        """Whether everything of the pod may be removed, including its logs: evicted, deleted
        and terminated, or gone."""
        state = self.listed(uid)
        if state is None:
            return self.gone(uid)
        return state.evicted or (state.deleted and state.terminated)

    def runtime_should_be_removed(self, uid: str) -> bool:
        """Whether its containers and sandboxes may be removed under pressure:
        terminated, or gone.
        """
        state = self.listed(uid)
        return self.gone(uid) if state is None else state.terminated

    def only_runtime_remembers(self, uid: str) -> bool:
        """Whether only its dead containers would tell a restarting kubelet that the pod has run: a
        static pod comes without a status (`pkg/kubelet/kubelet_pods.go`, generateAPIPodStatus)."""
        state = self.listed(uid)
        return state is not None and state.static

    def merge(self, other: PodStates) -> PodStates:
        """Two observations as one, `other` being the later one.

        A pod exists if either has it; a source that is unknown in either is unknown; a
        pod in both lists has its later state. If they were read from different
        directories, `present` is unknown.
        """
        present = None
        if self.present is not None and other.present is not None:
            present = self.present | other.present
        doubt = self.doubt or other.doubt
        if present is not None and self.identity != other.identity:
            present = None
            doubt = distrust(
                Why.EXCHANGED, "the kubelet's directory of pods was exchanged while it was read"
            )
        kubelet = None
        if self.kubelet is not None and other.kubelet is not None:
            kubelet = {**self.kubelet, **other.kubelet}
        return PodStates(
            present,
            kubelet,
            self.sources_ready and other.sources_ready,
            identity=other.identity,
            doubt=doubt,
        )


class PodStateProvider(Protocol):
    """The states of pods, for everything that removes objects."""

    @property
    def doubt(self) -> Distrust | None:
        """Why no pod counts as gone now; None if the directories are trusted."""

    def pod_states(self) -> PodStates:
        """The pods that exist now, with the doubt from the last comparison.

        Never raises: an unknown part is None.
        """

    def read(self) -> PodStates:
        """The pods that exist now, to be compared; before that, none of them is gone."""

    def compared(self, states: PodStates, listing: Listing | None) -> PodStates:
        """Decides whether what was read before and after complete lists of the runtime is trusted;
        None: there are no lists."""

    def gone(self, uid: str) -> bool:
        """Whether this pod is known not to exist; checked right before a removal."""

    def pod_directories(self, since: float | None = None) -> PodDirectories | None:
        """The directories of all pods by UID; None if they are unknown.

        As they are now, or at `since` (monotonic) or later.
        """

    def named_images(self, since: float | None = None) -> Mapping[str, frozenset[str]]:
        """What the specs of pods that have not terminated name, by UID, according to the
        kubelet's list; pods it does not know are left out. Asked for at `since` (monotonic) or
        later; None: lately. Never raises."""


# ---- whether the directories are trusted

# what was made, or written to, within this time may still be part of what is being made
SETTLE_SECONDS = 10.0
LONGEST_NAME = 63 + 1 + 253  # of namespace and pod in Kubernetes; a runtime may report longer ones


def distrust_of(
    states: PodStates,
    listing: Listing | None,
    trusted: RootIdentity | None,
    *,
    path: str,
    now_ns: int,
) -> Distrust | None:
    """Why these directories are not trusted; None if they are.

    `states`: as read before and after the lists, with the kubelet's list if it is known. `listing`:
    None if the runtime gave no complete lists. `trusted`: the directories that were trusted last.
    `path`: of `pods`, for the sentence. `now_ns`: wall time in nanoseconds since the epoch, by the
    same clock as the runtime's times.
    """
    if states.present is None:
        return states.doubt or distrust(Why.UNREADABLE, f"{path} cannot be read")
    if listing is None:
        return not_compared(path)
    parts = [
        part
        for part in listing.parts
        # a kubelet has not made what has no UID of a pod, or a sandbox without its label
        if is_pod_uid(part.pod_uid) and (isinstance(part, Container) or part.labelled)
    ]
    running = [
        part for part in parts if part.state in (ContainerState.RUNNING, PodSandboxState.READY)
    ]
    without = sorted(
        {
            f"{part.pod_namespace}/{part.pod_name}"[:LONGEST_NAME]
            for part in running
            if part.pod_uid not in states.present
        }
    )
    if without:
        more = f" (and {len(without) - 1} more)" if len(without) > 1 else ""
        return distrust(
            Why.RUNS_WITHOUT, f"the pod {without[0]}{more} runs without a directory in {path}"
        )
    held = {part.pod_uid for part in parts}
    listed = states.kubelet or {}
    alive = {uid for uid in held if uid in listed and not listed[uid].terminated}
    if alive and states.present.isdisjoint(alive):
        return distrust(
            Why.EXPLAINS_NOTHING,
            f"{path} has a directory of none of the {len(alive)} live pods that kubelet and runtime"
            " know",
        )
    if states.present.isdisjoint(held) and not (states.known and states.sources_ready):
        if not held:
            return distrust(
                Why.NOTHING_HELD,
                f"the runtime holds nothing of a pod by which {path} could be believed",
            )
        return distrust(
            Why.EXPLAINS_NOTHING,
            f"{path} has a directory of none of the pods of which the runtime holds parts"
            f" ({len(held)})",
        )
    if trusted is None or states.identity == trusted:
        return None
    # the latest creation of something with a directory; 0 is unknown
    latest_ns = now_ns - SETTLE_SECONDS * 1e9
    explained = any(0 < part.created_at_ns <= latest_ns for part in running)
    return None if explained else exchanged(path)


def not_compared(path: str) -> Distrust:
    """The doubt before the first comparison, and while the runtime gives no complete lists."""
    return distrust(
        Why.NOT_COMPARED, f"{path} has not been compared with complete lists of the runtime"
    )


def exchanged(path: str) -> Distrust:
    """The doubt about a directory other than the trusted one."""
    return distrust(
        Why.EXCHANGED,
        f"{path} is another directory than before and explains nothing that has run for a while",
    )
