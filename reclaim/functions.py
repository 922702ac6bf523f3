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
from typing import Final

from reclaim.execution.executor import Executor, Work, never_relieved, result_of
from reclaim.execution.removals import Stage
from reclaim.function import ReclaimContext, ReclaimFunction
from reclaim.types import (
    DELETE_ALL_UNUSED_CONTAINERS,
    DELETE_UNUSED_IMAGES,
    FREES,
    Kind,
    MeasureDisk,
    Plan,
    Reason,
    ReclaimError,
    ReclaimResult,
)
from reclaim.unused_containers import container_stages
from reclaim.unused_images import UnusedImages

CONTAINER_GC: Final = "GarbageCollect"

FunctionTable = Mapping[str, ReclaimFunction]


def table_of(*functions: ReclaimFunction) -> FunctionTable:
    """The functions by name; no two share one (`eviction.configuration.effective`)."""
    return {function.name: function for function in functions}


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
        last_resort=lambda context: (UnusedImages(context, last_resort=True),),
    ),
)


class Call:
    """One call of a function: its stages, in order, until the disk is relieved."""

    def __init__(self, function: ReclaimFunction, context: ReclaimContext):
        self._name = function.name
        self._executor: Executor = context.executor
        self._stages = function.stages(context)
        self._last_resort = function.last_resort(context)
        self._works: list[Work] = []

    @property
    def result(self) -> ReclaimResult:
        """What it has done so far."""
        return result_of(self._name, self._works)

    def first(self) -> Work | None:
        """Plans the first stage, to be executed alongside those of other functions. None: there is nothing to remove,
        or planning failed."""
        return self._planned(1, self._stages[0])

    def run(self, measure: MeasureDisk, *, last_resort: bool = False) -> ReclaimResult:
        """Runs every stage until the disk is relieved; or, if it has held something back, those of the last resort.
        Never raises ReclaimError: the result's `error` holds all errors."""
        kept = (outcome.verdict.reason for work in self._works for outcome in work.kept)
        if last_resort and Reason.NOT_PULLED not in kept:
            return self.result
        for earlier in self._works:
            earlier.kept.clear()  # the later plan says what is kept
        for number, stage in enumerate(self._last_resort if last_resort else self._stages, 1):
            work = self._planned(number, stage)
            if work is not None:
                self._executor.execute([work], measure)
                if work.relieved:
                    break
        return self.result

    def _planned(self, number: int, stage: Stage) -> Work | None:
        try:
            work = self._executor.plan(f"{self._name}, stage {number}", stage)
        except ReclaimError as error:
            self._works.append(Work(stage, Plan(), error=str(error)))
            return None
        if work is not None:
            self._works.append(work)
        return work


def garbage_collect_containers(context: ReclaimContext) -> ReclaimResult:
    """Runs all stages of DeleteAllUnusedContainers, as the periodic loop does: dead containers of terminated pods that
    still exist are kept. Never raises. `error` is set if a list failed, never because of a single object."""
    policy = replace(context.policies.containers, evict_non_deleted_pods=False)
    context = replace(context, policies=replace(context.policies, containers=policy))
    function = replace(FUNCTIONS[DELETE_ALL_UNUSED_CONTAINERS], name=CONTAINER_GC)
    return Call(function, context).run(never_relieved)
