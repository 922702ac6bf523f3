"""The table of reclaim functions: what a row of the reclaim table can call, by name.

`DeleteAllUnusedContainers` and `DeleteUnusedImages` are the kubelet's. Neither looks at an image GC
percentage or waits for a periodic loop. The daemon, commands, dry runs, drills and tests all call
them through the one engine.

A reclaim function is a sequence of stages (`function.Stage`). A stage is one object: it offers
candidates in order, checks one, removes one, and looks whether it is gone. `eviction.engine` does
everything else, the same way for all: it takes the next candidate, measures, stops once the disk is
relieved, and reports. To add a function, write a module with its stages, add an entry to the table,
and name it in a row of `eviction.decision.reclaim_table`.

A stage that fails does not stop the next one, and all errors are reported, as in the
kubelet (`pkg/kubelet/kuberuntime/kuberuntime_gc.go`, GarbageCollect). No further stage runs
once the disk is relieved.
"""

from collections.abc import Mapping
from functools import partial

from reclaim.function import ReclaimContext, ReclaimFunction, Stages
from reclaim.functions.unused_containers import container_stages
from reclaim.functions.unused_images import UnusedImages, unused_images
from reclaim.types import DELETE_ALL_UNUSED_CONTAINERS, DELETE_UNUSED_IMAGES, FREES, Kind

CONTAINER_GC = "GarbageCollect"

FunctionTable = Mapping[str, ReclaimFunction]


def table_of(*functions: ReclaimFunction) -> FunctionTable:
    """The functions by name; no two share one (`eviction.configuration.effective`)."""
    return {function.name: function for function in functions}


FUNCTIONS = table_of(
    ReclaimFunction(
        DELETE_ALL_UNUSED_CONTAINERS,
        FREES[DELETE_ALL_UNUSED_CONTAINERS],
        (Kind.CONTAINER, Kind.SANDBOX, Kind.POD_LOG, Kind.LOG_SYMLINK),
        stages=container_stages,
        side_by_side=True,
    ),
    ReclaimFunction(
        DELETE_UNUSED_IMAGES,
        FREES[DELETE_UNUSED_IMAGES],
        (Kind.IMAGE,),
        stages=lambda context: (UnusedImages(context),),
        side_by_side=True,
        last_resort=lambda context: (UnusedImages(context, partial(unused_images, last=True)),),
    ),
)


def _stages_of_gc(context: ReclaimContext) -> Stages:
    policy = context.policies.containers._replace(evict_non_deleted_pods=False)
    return container_stages(context._replace(policies=context.policies._replace(containers=policy)))


PERIODIC_CONTAINERS = FUNCTIONS[DELETE_ALL_UNUSED_CONTAINERS]._replace(
    name=CONTAINER_GC, stages=_stages_of_gc
)
"""All stages of DeleteAllUnusedContainers, as in the periodic loop: dead containers of terminated
pods that still exist are kept."""
