"""`CollectContainerdGarbage`: asks containerd to collect its own garbage now, and waits for it.

What a pull that was interrupted has left, and what tools have put into containerd without keeping a reference, is in no
list of CRI. containerd deletes it with its next garbage collection, which comes after a deletion or 100 changes, and
on a node where neither happens does not come: an expired lease alone does not start one
(https://github.com/containerd/containerd/issues/6294, and for snapshots that outlive their containers
https://github.com/containerd/containerd/issues/13416). What is garbage is containerd's decision: it is the run that
containerd itself makes after each removal of an image.

* A run stops containerd's other changes while it marks, and answers when what it has deleted is gone
  (`plugins/gc/scheduler.go` ScheduleAndWait, `core/metadata/db.go` GarbageCollect). Giving it up changes nothing:
  containerd goes on. So, unlike a removal over CRI, it has a deadline.
* A lease of ours that an earlier run has left is deleted first.

Covers: the function of the table. Does not cover: the calls (`cri.leases`).
"""

from __future__ import annotations

import secrets
from typing import Final

from reclaim.cri.client import LONGEST_DETAILS, READ_DEADLINE_SECONDS
from reclaim.cri.containerd import ID_PREFIX, Leases
from reclaim.cri.retry import retried
from reclaim.cri.status import CallError, Code
from reclaim.execution.remover import Ready, Stage
from reclaim.function import ReclaimFunction
from reclaim.services import RuntimeService
from reclaim.types import Action, Plan, ReclaimError, RemovalFailed, RuntimeUnavailable, Verdict
from signals.clock import Clock
from signals.types import FilesystemRole

CONTENT: Final = "content"
UNREFERENCED: Final = "unreferenced"
OBJECT_ID: Final = "containerd-garbage"
EXPIRES_AFTER_SECONDS = 60.0
SPARE_SECONDS = 5.0  # the call has ended by its deadline before it is waited for no longer


class CannotCollect(ReclaimError):
    """This runtime cannot be asked for a garbage collection. The message is one sentence."""


def collect_garbage_function(name: str, deadline_seconds: float, frees: FilesystemRole) -> ReclaimFunction:
    """The entry of the table. `deadline_seconds`: how long one garbage collection is waited for, more than 0. `frees`:
    the filesystem on which containerd has its root."""
    return ReclaimFunction(
        name,
        frees,
        (CONTENT,),
        lambda context: (GarbageCollection(name, context.runtime, context.clock, deadline_seconds),),
        examine=lambda runtime, _: examine(name, runtime),
    )


def examine(name: str, runtime: RuntimeService) -> None:
    """Raises CannotCollect if the function `name` can do nothing on this node, and RuntimeUnavailable where the runtime
    does not say. Changes nothing."""
    version = retried(runtime.version)
    if version.name != "containerd":
        raise CannotCollect(f"{name} is for containerd, but the runtime is {version.name or 'one without a name'}")
    try:
        Leases(runtime).ours(READ_DEADLINE_SECONDS)
    except CallError as error:
        if error.code is Code.UNIMPLEMENTED:
            why = f"containerd {version.version} does not serve it here"
            raise CannotCollect(f"{name} needs containerd's leases service, but {why}") from error
        raise RuntimeUnavailable(f"containerd's leases cannot be listed: {_sentence(error)}") from error


class GarbageCollection(Stage):
    """Has containerd collect its garbage, once: the content is there until a run of the collector has ended."""

    def __init__(self, name: str, runtime: RuntimeService, clock: Clock, deadline_seconds: float):
        self.patience_seconds = deadline_seconds + SPARE_SECONDS
        self._name = name
        self._runtime = runtime
        self._clock = clock
        self._deadline_seconds = deadline_seconds
        self._collected = False

    def plan(self) -> Plan:
        """One object without a promised size: only containerd knows what it would delete. Raises CannotCollect, and
        RuntimeUnavailable: the runtime may be another one than at the start."""
        examine(self._name, self._runtime)
        return Plan((Verdict(CONTENT, OBJECT_ID, "content that nothing refers to", Action.REMOVE, UNREFERENCED),))

    def check(self, _: Verdict) -> Ready:
        """containerd itself finds out what nothing refers to."""
        return Ready(self._clock.monotonic())

    def remove(self, _: Verdict) -> bool:
        """The run. Always True. Raises RemovalFailed, also after the deadline, which is one for all calls."""
        ends = self._clock.monotonic() + self._deadline_seconds

        def left() -> float:
            return max(ends - self._clock.monotonic(), 0.0)

        leases, lease_id = Leases(self._runtime), ID_PREFIX + secrets.token_hex(8)
        try:
            for earlier in leases.ours(left()):
                leases.delete(earlier, left())
            leases.create(lease_id, self._clock.wall() + EXPIRES_AFTER_SECONDS, left())
            leases.delete_and_collect(lease_id, left())
        except CallError as error:
            if error.code is Code.DEADLINE_EXCEEDED:
                sentence = f"not answered within {self._deadline_seconds:g} s; one that has begun goes on"
            else:
                sentence = _sentence(error)
            raise RemovalFailed(f"containerd's garbage collection: {sentence}") from error
        self._collected = True
        return True

    def present(self, _: Verdict) -> bool:
        """Whether no run has ended yet."""
        return not self._collected


def _sentence(error: CallError) -> str:
    return f"{error.code.name}: {error.details[:LONGEST_DETAILS]}"
