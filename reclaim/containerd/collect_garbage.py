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
from dataclasses import dataclass
from functools import partial

from reclaim.clock import Clock
from reclaim.containerd.plan import CONTENT, PLAN
from reclaim.cri.client import LONGEST_DETAILS, READ_DEADLINE_SECONDS
from reclaim.cri.containerd import ID_PREFIX, Leases
from reclaim.cri.retry import retried
from reclaim.cri.status import CallError, Code
from reclaim.execution.remover import STATUS_FRESH_SECONDS, Ready
from reclaim.execution.stages import Stage, StagePlan, Stopwatch
from reclaim.functions import ReclaimContext, ReclaimFunction
from reclaim.services import RuntimeService
from reclaim.types import MeasureDisk, ReclaimError, RemovalFailed, RuntimeUnavailable, Verdict

DEADLINE_SECONDS = 60.0
EXPIRES_AFTER_SECONDS = 60.0
SPARE_SECONDS = 5.0  # the call has ended by its deadline before it is waited for no longer


@dataclass(frozen=True, slots=True)
class GarbageSettings:
    """How the function is called. `deadline_seconds`: how long one garbage collection is waited for, more than 0."""

    deadline_seconds: float = DEADLINE_SECONDS


class CannotCollect(ReclaimError):
    """This runtime cannot be asked for a garbage collection. The message is one sentence."""


def problem_of(name: str, runtime: RuntimeService) -> str | None:
    """Why the function `name` can do nothing on this node, as one sentence; None: it can. Changes nothing. Raises
    RuntimeUnavailable where the runtime does not say."""
    version = retried(runtime.version)
    if version.name != "containerd":
        return f"{name} is for containerd, but the runtime is {version.name or 'one without a name'}"
    try:
        Leases(runtime).ours(READ_DEADLINE_SECONDS)
    except CallError as error:
        if error.code is Code.UNIMPLEMENTED:
            return f"{name} needs containerd's leases service, but containerd {version.version} does not serve it here"
        raise RuntimeUnavailable(f"containerd's leases cannot be listed: {_sentence(error)}") from error
    return None


def collect_garbage_function(name: str, settings: GarbageSettings, frees: str) -> ReclaimFunction:
    """The function under this name. `frees`: the filesystem on which containerd has its root."""

    def stages(context: ReclaimContext) -> tuple[Stage, ...]:
        return (partial(_collect_garbage, context, name, settings),)

    return ReclaimFunction(name, frees, (CONTENT,), stages)


def _collect_garbage(context: ReclaimContext, name: str, settings: GarbageSettings, _: MeasureDisk) -> StagePlan:
    """The one stage. Raises CannotCollect, and RuntimeUnavailable: the runtime may be another one than at the start."""
    watch = Stopwatch(context.clock)
    problem = watch.time(partial(problem_of, name, context.runtime))
    if problem is not None:
        raise CannotCollect(problem)
    return StagePlan(
        PLAN,
        GarbageRemover(Leases(context.runtime), context.clock, settings.deadline_seconds),
        list_seconds=watch.seconds,
        patience_seconds=settings.deadline_seconds + SPARE_SECONDS,
    )


class GarbageRemover:
    """Has containerd collect its garbage, once: the content is there until a run of the collector has ended."""

    fresh_seconds = STATUS_FRESH_SECONDS
    frees_late = False  # containerd answers when it is deleted

    def __init__(self, leases: Leases, clock: Clock, deadline_seconds: float):
        self._leases = leases
        self._clock = clock
        self._deadline_seconds = deadline_seconds
        self._collected = False

    def check(self, _: Verdict) -> Ready:
        """containerd itself finds out what nothing refers to."""
        return Ready(self._clock.monotonic())

    def remove(self, _: Verdict) -> bool:
        """The run. Always True. Raises RemovalFailed, also after the deadline, which is one for all calls."""
        ends = self._clock.monotonic() + self._deadline_seconds

        def left() -> float:
            return max(ends - self._clock.monotonic(), 0.0)

        lease_id = ID_PREFIX + secrets.token_hex(8)
        try:
            for earlier in self._leases.ours(left()):
                self._leases.delete(earlier, left())
            self._leases.create(lease_id, self._clock.wall() + EXPIRES_AFTER_SECONDS, left())
            self._leases.delete_and_collect(lease_id, left())
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
