"""Runs the stages of a reclaim function, one after another: each reads, plans, and has its plan executed.

A stage that fails does not stop the next one, and all their errors are reported, as in the kubelet
(`pkg/kubelet/kuberuntime/kuberuntime_gc.go`, GarbageCollect). Once the disk is relieved no further stage is run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from reclaim.clock import Clock
from reclaim.execution.executor import ExecutionResult, Executor
from reclaim.execution.order import RemovalOrder
from reclaim.execution.remover import Remover
from reclaim.types import DiskState, DiskVerdict, MeasureDisk, Plan, ReclaimError, ReclaimResult, Result, Usage

Answer = TypeVar("Answer")


def _nothing_to_remember(_: ExecutionResult) -> None:
    """For stages that remember nothing of what was removed."""


@dataclass(frozen=True, slots=True)
class StagePlan:
    """What a stage wants removed, and how.

    `order`: chooses another order than the plan's. `remember`: called with what became of the plan. `list_seconds` and
    `plan_seconds`: how long reading and planning took.
    """

    plan: Plan
    remover: Remover
    order: RemovalOrder | None = None
    remember: Callable[[ExecutionResult], None] = _nothing_to_remember
    list_seconds: float = 0.0
    plan_seconds: float = 0.0


Stage = Callable[[MeasureDisk], StagePlan | None]
"""Reads and plans; removes nothing. None: there is nothing to plan. Raises ReclaimError if it cannot read what it
needs. What it has read is released when it returns, before the plan is executed."""


class Stopwatch:
    """Adds up the seconds of several calls."""

    def __init__(self, clock: Clock):
        self._clock = clock
        self.seconds = 0.0

    def time(self, read: Callable[[], Answer]) -> Answer:
        """What `read` returns. Raises what it raises."""
        started = self._clock.monotonic()
        try:
            return read()
        finally:
            self.seconds += self._clock.monotonic() - started


def never_relieved(_credit_bytes: int) -> DiskState:
    """Measures nothing and never says that the disk is relieved: for passes that run to their end."""
    return DiskState(Usage(), DiskVerdict.GO_ON)


def run_stages(operation: str, stages: Iterable[Stage], executor: Executor, measure: MeasureDisk) -> ReclaimResult:
    """Runs these stages until the disk is relieved. Never raises ReclaimError: the result's `error` has all of them."""
    result = ReclaimResult(operation)
    errors: list[str] = []
    for number, stage in enumerate(stages, 1):
        try:
            planned = executor.read(f"{operation}, stage {number},", partial(stage, measure))
        except ReclaimError as error:
            errors.append(str(error))
            continue
        if planned is None:
            continue
        started = executor.clock.monotonic()
        executed = executor.execute(planned.plan, planned.remover, measure, planned.order)
        result = _sum(result, planned, executed, executor.clock.monotonic() - started)
        planned.remember(executed)
        errors.append(executed.error)
        if executed.relieved:
            break
    return replace(result, error=aggregate(errors))


def aggregate(errors: Iterable[str]) -> str:
    """Several errors as one text, as Kubernetes does it: one gives its own, more a bracketed list; each once."""
    distinct = list(dict.fromkeys(error for error in errors if error))
    return distinct[0] if len(distinct) == 1 else f"[{', '.join(distinct)}]" if distinct else ""


def _sum(result: ReclaimResult, planned: StagePlan, executed: ExecutionResult, seconds: float) -> ReclaimResult:
    waits = [wait for wait in (result.eligible_in_seconds, planned.plan.eligible_in_seconds) if wait is not None]
    gone = (Result.REMOVED, Result.PLANNED)
    nominal = sum(o.verdict.size_bytes or 0 for o in executed.outcomes if o.result in gone)
    return replace(
        result,
        outcomes=result.outcomes + executed.outcomes,
        kept=result.kept + executed.kept,
        nominal_bytes=result.nominal_bytes + nominal,
        relieved=executed.relieved,
        eligible_in_seconds=min(waits, default=None),
        list_seconds=result.list_seconds + planned.list_seconds,
        plan_seconds=result.plan_seconds + planned.plan_seconds,
        remove_seconds=result.remove_seconds + seconds,
        order=result.order if planned.order is None else planned.order.decision,
    )
