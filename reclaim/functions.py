"""The table of reclaim functions: what a row of the reclaim table can call, by name.

`DeleteAllUnusedContainers` and `DeleteUnusedImages` are the kubelet's. Neither looks at an image GC percentage or waits
for a periodic loop. The daemon, commands, dry runs, drills and tests all call them through `Call`.

A reclaim function is a sequence of stages (`execution.removals.Stage`). A stage is one object: it offers candidates in
order, checks one, removes one, and looks whether it is gone. `execution` does everything else, the same way for all: it
takes the next candidate, measures, stops once the disk is relieved, and reports. To add a function, write a module with
its stages, add an entry to the table, and name it in a row of `eviction.decision.reclaim_table`.

A stage that fails does not stop the next one, and all errors are reported, as in the kubelet
(`pkg/kubelet/kuberuntime/kuberuntime_gc.go`, GarbageCollect). No further stage runs once the disk is relieved.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from reclaim.execution.executor import Executor, Work, aggregate, never_relieved
from reclaim.execution.removals import Stage
from reclaim.function import ReclaimContext, ReclaimFunction
from reclaim.types import (
    DELETE_ALL_UNUSED_CONTAINERS,
    DELETE_UNUSED_IMAGES,
    FREES,
    Kind,
    MeasureDisk,
    ReclaimError,
    ReclaimResult,
    Result,
)
from reclaim.unused_containers import container_stages
from reclaim.unused_images import UnusedImages

CONTAINER_GC: Final = "GarbageCollect"

FunctionTable = Mapping[str, ReclaimFunction]


def table_of(*functions: ReclaimFunction) -> FunctionTable:
    """The functions by name. Raises ValueError if two share a name."""
    table = {function.name: function for function in functions}
    if len(table) != len(functions):
        raise ValueError(f"two reclaim functions have one name: {', '.join(each.name for each in functions)}")
    return table


FUNCTIONS: Final = table_of(
    ReclaimFunction(
        DELETE_ALL_UNUSED_CONTAINERS,
        FREES[DELETE_ALL_UNUSED_CONTAINERS],
        (Kind.CONTAINER, Kind.SANDBOX, Kind.POD_LOG, Kind.LOG_SYMLINK),
        container_stages,
        side_by_side=True,
    ),
    ReclaimFunction(
        DELETE_UNUSED_IMAGES,
        FREES[DELETE_UNUSED_IMAGES],
        (Kind.IMAGE,),
        lambda context: (UnusedImages(context),),
        side_by_side=True,
    ),
)


class Call:
    """One call of a function: its stages, in order, until the disk is relieved. `result`: what it has done so far."""

    def __init__(self, function: ReclaimFunction, context: ReclaimContext):
        self.function = function
        self.result = ReclaimResult(function.name)
        self._executor: Executor = context.executor
        self._stages = function.stages(context)

    def first(self) -> Work | None:
        """Plans the first stage, to be executed alongside those of other functions; pass the result to `ended`. None:
        there is nothing to remove, or planning failed."""
        return self._planned(1, self._stages[0])

    def ended(self, work: Work) -> None:
        """Adds the outcomes of a stage to the result."""
        waits = [wait for wait in (self.result.eligible_in_seconds, work.plan.eligible_in_seconds) if wait is not None]
        gone = (Result.REMOVED, Result.PLANNED)
        self.result = replace(
            self.result,
            outcomes=self.result.outcomes + tuple(work.outcomes),
            kept=self.result.kept + tuple(work.kept),
            nominal_bytes=self.result.nominal_bytes
            + sum(each.verdict.size_bytes or 0 for each in work.outcomes if each.result in gone),
            relieved=work.relieved,
            eligible_in_seconds=min(waits, default=None),
            error=aggregate((self.result.error, work.error)),
            list_seconds=self.result.list_seconds + work.plan.list_seconds,
            plan_seconds=self.result.plan_seconds + work.plan_seconds - work.plan.list_seconds,
            remove_seconds=self.result.remove_seconds + work.seconds,
        )

    def run(self, measure: MeasureDisk) -> ReclaimResult:
        """Runs every stage until the disk is relieved. Never raises ReclaimError: the result's `error` holds all
        errors."""
        tried = {outcome.verdict.id: outcome for outcome in self.result.outcomes}
        self.result = replace(self.result, kept=())  # the later plan says what is kept
        for number, stage in enumerate(self._stages, 1):
            work = self._planned(number, stage)
            if work is None:
                continue
            self._executor.execute([work], measure)
            self.ended(work)
            if work.relieved:
                break
        again = {outcome.verdict.id for outcome in self.result.outcomes[len(tried) :]}
        if again & tried.keys():
            outcomes = self.result.outcomes
            earlier = tuple(one for one in outcomes[: len(tried)] if one.verdict.id not in again)
            self.result = replace(self.result, outcomes=earlier + outcomes[len(tried) :])
        return self.result

    def _planned(self, number: int, stage: Stage) -> Work | None:
        try:
            return self._executor.plan(f"{self.function.name}, stage {number},", stage)
        except ReclaimError as error:
            self.result = replace(self.result, error=aggregate((self.result.error, str(error))))
            return None


def garbage_collect_containers(context: ReclaimContext) -> ReclaimResult:
    """Runs all stages of DeleteAllUnusedContainers, as the periodic loop does: dead containers of terminated pods that
    still exist are kept. Never raises. `error` is set if a list failed, never because of a single object."""
    periodic = partial(container_stages, evict_non_deleted_pods=False)
    function = ReclaimFunction(CONTAINER_GC, FREES[DELETE_ALL_UNUSED_CONTAINERS], (), periodic)
    return Call(function, context).run(never_relieved)
