"""Whether the kubelet's directories are believed: only while they explain what the runtime holds.

A `pods` directory can be readable and yet not be the kubelet's: its disk is not mounted after a boot, the kubelet runs
with another `--root-dir`, or a CSI driver has made an empty one. Then every pod would look gone. So belief is earned at
each pass, and without it nothing counts as gone:

* Everything of a kubelet's pod that runs (a RUNNING container, a READY sandbox) has its directory. The kubelet makes
  the directory first and removes it last (`pkg/kubelet/kubelet.go`, SyncPod; `kubelet_volumes.go`,
  cleanupOrphanedPodDirs), and it is read before and after the runtime's lists, so this needs no minimum age.
* At least one pod that the runtime holds, in whatever state, has its directory. After a reboot, when everything is dead
  and its directories are there, that is the case. Where it is not, as on a drained node, only the kubelet's own list
  can explain it: if it contains a pod of the API server, so that it is complete, and no live pod that is held.
* If the kubelet's list is known: of the live pods in it that the runtime holds, at least one has its directory.
* Root and `pods` are the directories that were believed before (device and inode). Others must first explain something
  that has run for `SETTLE_SECONDS`: by then the kubelet has made the directories of its other pods too. A restart of
  this program forgets the earlier ones.

Covers: the decision. Does not cover: reading (`kubelet_directories`), and when it is made (`believed_pods`).
"""

from __future__ import annotations

from collections.abc import Collection

from reclaim.pods.states import Doubt, PodStates, RootIdentity, Why, doubt, is_pod_uid
from reclaim.types import Container, ContainerState, Listing, PodSandbox, PodSandboxState

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
