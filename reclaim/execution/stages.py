"""Runs the stages of a reclaim function, one after another: each reads, plans, and has its plan executed.

A stage that fails does not stop the next one, and all their errors are reported, as in the kubelet
(`pkg/kubelet/kuberuntime/kuberuntime_gc.go`, GarbageCollect). Once the disk is relieved no further stage is run.

On a disk that fills, stages of several functions may be executed side by side (`run_side_by_side`); after that each
function runs as usual, on lists of its own. A few dead containers go before the images even then: they may be enough.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from reclaim.clock import Clock
from reclaim.execution.executor import Executor
from reclaim.execution.order import RemovalOrder
from reclaim.execution.plan_in_execution import ExecutionResult, Work
from reclaim.execution.remover import Remover
from reclaim.execution.remover import Stage as OneStage
from reclaim.types import DiskState, DiskVerdict, MeasureDisk, Plan, ReclaimError, ReclaimResult, Result, Usage

FEW = 4  # so many removals are one round; they do not keep the others waiting

Answer = TypeVar("Answer")


def _nothing_to_remember(_: ExecutionResult) -> None:
    """For stages that remember nothing of what was removed."""


@dataclass(frozen=True, slots=True)
class StagePlan:
    """What a stage wants removed, and how.

    `order`: chooses another order than the plan's. `remember`: called with what became of the plan. `list_seconds` and
    `plan_seconds`: how long reading and planning took. `patience_seconds`: how long one removal is waited for before it
    is parked, for removers that have a time limit of their own; None: as configured.
    """

    plan: Plan
    remover: Remover
    order: RemovalOrder | None = None
    remember: Callable[[ExecutionResult], None] = _nothing_to_remember
    list_seconds: float = 0.0
    plan_seconds: float = 0.0
    patience_seconds: float | None = None

    @property
    def work(self) -> Work:
        """What the executor needs of it."""
        return Work(self.plan, self.remover, self.order, self.patience_seconds)


Stage = Callable[[MeasureDisk], StagePlan | None]
"""Reads and plans; removes nothing. None: there is nothing to plan. Raises ReclaimError if it cannot read what it
needs. What it has read is released when it returns, before the plan is executed."""


def as_callable(stage: OneStage) -> Stage:
    """A stage that is one object, in the form in which stages are run."""

    def planned(_: MeasureDisk) -> StagePlan | None:
        plan = stage.plan()
        return None if plan is None else StagePlan(plan, stage, patience_seconds=stage.patience_seconds)

    return planned


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
            planned = executor.read(_what(operation, number), partial(stage, measure))
        except ReclaimError as error:
            errors.append(str(error))
            continue
        if planned is None:
            continue
        started = executor.clock.monotonic()
        executed = executor.execute_side_by_side([planned.work], measure)[0]
        result = _sum(result, planned, executed, executor.clock.monotonic() - started)
        planned.remember(executed)
        errors.append(executed.error)
        if executed.relieved:
            break
    return replace(result, error=aggregate(errors))


def run_side_by_side(
    leader: tuple[str, Stage],
    others: Mapping[str, Stage],
    executor: Executor,
    measure: MeasureDisk,
    shared_reading: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> tuple[ReclaimResult, ...]:
    """Runs these stages, each the first one of the function of its name, until the disk is relieved: one of the others
    that has only a `FEW` objects first and alone, then the leader and the rest side by side. In the order in which they
    went. Never raises ReclaimError.

    `shared_reading`: a context in which what several stages read is read once; nothing is removed in it.
    """
    run = _SideBySide(executor, measure)
    with shared_reading():
        for operation, stage in others.items():
            run.plan(operation, stage)
        few = [operation for operation, planned in run.planned.items() if len(planned.plan.remove) <= FEW]
        changes = any(run.planned[operation].plan.remove for operation in few)
        if not changes:
            run.plan(*leader)
    for operation in few:
        if run.execute_alone(operation):
            return tuple(run.results)
    if changes:  # what they have pinned is free by now
        run.plan(*leader)
    run.execute_together(leader[0])
    return tuple(run.results)


class _SideBySide:
    """Stages of several functions on their way: planned and not executed yet, and the results of the others."""

    def __init__(self, executor: Executor, measure: MeasureDisk):
        self.planned: dict[str, StagePlan] = {}
        self.results: list[ReclaimResult] = []
        self._executor = executor
        self._measure = measure

    def plan(self, operation: str, stage: Stage) -> None:
        """Reads and plans; an error is the result of the function."""
        try:
            planned = self._executor.read(_what(operation, 1), partial(stage, self._measure))
        except ReclaimError as error:
            self.results.append(ReclaimResult(operation, error=str(error)))
            return
        if planned is not None:
            self.planned[operation] = planned

    def execute_alone(self, operation: str) -> bool:
        """Executes one of them. Whether the disk is relieved."""
        planned, executor = self.planned.pop(operation), self._executor
        started = executor.clock.monotonic()
        executed = executor.execute_side_by_side([planned.work], self._measure)[0]
        self._keep(operation, planned, executed, executor.clock.monotonic() - started)
        return executed.relieved

    def execute_together(self, leader: str) -> None:
        """Executes the rest. Each has a share of the time, by how long its removals took."""
        names = sorted(self.planned, key=lambda name: name != leader)
        started = self._executor.clock.monotonic()
        executed = self._executor.execute_side_by_side([self.planned[name].work for name in names], self._measure)
        seconds = self._executor.clock.monotonic() - started
        taken = [sum(outcome.duration_seconds for outcome in each.outcomes) for each in executed]
        for name, each, own in zip(names, executed, taken, strict=True):
            self._keep(name, self.planned.pop(name), each, seconds * own / (sum(taken) or 1.0))

    def _keep(self, operation: str, planned: StagePlan, executed: ExecutionResult, seconds: float) -> None:
        planned.remember(executed)
        result = _sum(ReclaimResult(operation), planned, executed, seconds)
        self.results.append(replace(result, error=executed.error))


def joined(before: ReclaimResult, after: ReclaimResult) -> ReclaimResult:
    """One result of a function that ran side by side with others, and then as usual: of an object that both have tried,
    and of what is kept, the later one counts."""
    again = {outcome.verdict.id for outcome in after.outcomes}
    earlier = tuple(outcome for outcome in before.outcomes if outcome.verdict.id not in again)
    return replace(
        after,
        outcomes=earlier + after.outcomes,
        nominal_bytes=before.nominal_bytes + after.nominal_bytes,
        error=aggregate((before.error, after.error)),
        list_seconds=before.list_seconds + after.list_seconds,
        plan_seconds=before.plan_seconds + after.plan_seconds,
        remove_seconds=before.remove_seconds + after.remove_seconds,
        order=after.order or before.order,
    )


def _what(operation: str, number: int) -> str:
    return f"{operation}, stage {number},"


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
