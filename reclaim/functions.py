"""The table of reclaim functions: what a row of the reclaim table can call, by name.

`DeleteAllUnusedContainers` and `DeleteUnusedImages` are the kubelet's. `ReleaseSpeculativePreallocation` is ours and
removes nothing, so it has no stages: the caller has XFS give space back before the others are called, and between their
removals (`reclaim.xfs.release`). Neither of the kubelet's looks at an image GC percentage or waits
for a periodic loop. Daemon, commands, dry run, drill and tests call them through the one `Collector`.

A reclaim function is a sequence of stages. Each stage reads, plans, and names the remover; `execution` does the rest in
the same way for all of them: it checks, removes, measures, stops when the disk is relieved, and reports. One more
function is a folder or module with its plan and remover, one more entry in `FUNCTIONS`, and its name in a row of
`eviction.decision.reclaim_table`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Final

from reclaim.clock import Clock
from reclaim.containers.gc import ContainerGC, Observed
from reclaim.containers.policy import ContainerGCPolicy
from reclaim.execution.executor import Executor
from reclaim.execution.remover import Stage as OneStage
from reclaim.execution.rest import FunctionRests
from reclaim.execution.stages import Stage, as_callable, joined, never_relieved, run_side_by_side, run_stages
from reclaim.images.gc import UnusedImageGC, detect_images
from reclaim.images.lister import GivenUp, Lister
from reclaim.images.plan import ImageGCPolicy
from reclaim.images.pod_startup import Sightings, parts_of_pods
from reclaim.images.records import ImageRecords
from reclaim.images.removal_order import ImageRemovalOrder, RemovalHistory
from reclaim.pod_logs.names import LogPaths
from reclaim.pods.states import PodStateProvider
from reclaim.services import ImageService, RuntimeService
from reclaim.types import Kind, MeasureDisk, ReclaimResult

CONTAINER_GC = "GarbageCollect"
READ_AHEAD_SECONDS = 0.75  # how old what was read ahead may be; planned on, it is not older than `FRESH_SECONDS`


class Filesystem(StrEnum):
    """What a filesystem is to the node; the kubelet's words."""

    NODEFS = "nodefs"
    IMAGEFS = "imagefs"
    CONTAINERFS = "containerfs"


@dataclass(frozen=True, slots=True)
class Policies:
    """What may be removed of each kind of object."""

    containers: ContainerGCPolicy
    images: ImageGCPolicy


@dataclass(slots=True)
class ReclaimContext:
    """What the stages of a reclaim function may use of their node.

    `policies` are replaced when the configuration is reloaded, never while a function runs. `image_order` learns from
    pass to pass, and `sightings` remember since when parts of pods are there. `read_ahead`: what the stages
    that are made next may plan on instead of reading.
    """

    runtime: RuntimeService
    images: ImageService
    pods: PodStateProvider
    records: ImageRecords
    executor: Executor
    clock: Clock
    policies: Policies
    log_paths: LogPaths
    lister: Lister = field(init=False)
    image_order: ImageRemovalOrder = field(init=False)
    sightings: Sightings = field(init=False)
    read_ahead: Observed | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.lister = Lister(self.runtime, self.images, self.clock, self.pods.named_images)
        self.sightings = Sightings(self.clock)
        self.image_order = ImageRemovalOrder(RemovalHistory(), self.executor.parallel)


@dataclass(frozen=True, slots=True)
class ReclaimFunction:
    """One entry of the table.

    `frees`: the filesystem on which it frees space, one of `Filesystem` or one of the configuration's; a dry run
    credits promised sizes there; None: on any, and it promises nothing. `kinds`: of the objects that it removes, for
    metrics. `stages`: makes the stages of one call. `side_by_side`: whether no object of its first stage needs that one
    of another function goes before, so that on a disk that fills they may go side by side; None if not, else the place
    in the order in which such functions lead until more is known. `cooldown_seconds`: how long it rests after each call
    (`execution.rest`); None: it never rests.
    """

    name: str
    frees: str | None
    kinds: tuple[str, ...]
    stages: Callable[[ReclaimContext], tuple[Stage | OneStage, ...]]
    side_by_side: int | None = None
    cooldown_seconds: float | None = None


def _container_stages(context: ReclaimContext, *, evict_non_deleted_pods: bool = True) -> tuple[Stage, ...]:
    gc = ContainerGC(
        context.runtime,
        context.pods,
        context.lister,
        context.executor,
        context.clock,
        context.policies.containers,
        context.log_paths,
        context.read_ahead,
        evict_non_deleted_pods=evict_non_deleted_pods,
    )
    return gc.stages


def _image_stages(context: ReclaimContext) -> tuple[Stage, ...]:
    gc = UnusedImageGC(
        context.runtime,
        context.images,
        context.pods,
        context.lister,
        context.records,
        context.image_order,
        context.sightings,
        context.executor,
        context.clock,
        context.policies.images,
    )
    return (gc.unused_images,)


def _first(stages: Sequence[Stage | OneStage]) -> Stage:
    first = stages[0]
    return first if callable(first) else as_callable(first)


RELEASE_SPECULATIVE_PREALLOCATION: Final = ReclaimFunction("ReleaseSpeculativePreallocation", None, (), lambda _: ())
DELETE_ALL_UNUSED_CONTAINERS: Final = ReclaimFunction(
    "DeleteAllUnusedContainers",
    Filesystem.CONTAINERFS,
    (Kind.CONTAINER, Kind.SANDBOX, Kind.POD_LOG, Kind.LOG_SYMLINK),
    _container_stages,
    side_by_side=1,  # a container may free nothing, or late
)
DELETE_UNUSED_IMAGES: Final = ReclaimFunction(
    "DeleteUnusedImages",
    Filesystem.IMAGEFS,
    (Kind.IMAGE,),
    _image_stages,
    side_by_side=0,  # an image says what it promises, and frees it
)

FunctionTable = Mapping[str, ReclaimFunction]


def table_of(*functions: ReclaimFunction) -> FunctionTable:
    """The functions by name. Raises ValueError for two of one name."""
    table = {function.name: function for function in functions}
    if len(table) != len(functions):
        raise ValueError(f"two reclaim functions have one name: {', '.join(each.name for each in functions)}")
    return table


FUNCTIONS: Final = table_of(RELEASE_SPECULATIVE_PREALLOCATION, DELETE_ALL_UNUSED_CONTAINERS, DELETE_UNUSED_IMAGES)


class Collector:
    """Calls the reclaim functions on one node. Not for two callers at a time."""

    def __init__(self, context: ReclaimContext, functions: FunctionTable = FUNCTIONS):
        self._context = context
        self._rests = FunctionRests()
        self.functions = functions

    @property
    def executor(self) -> Executor:
        """What executes the plans."""
        return self._context.executor

    def set_policies(self, policies: Policies) -> None:
        """Other policies from now on. Not while a function runs."""
        self._context.policies = policies

    def start_row(self) -> None:
        """A new row starts: what an earlier dry run planned is forgotten."""
        self._context.executor.forget_planned()

    def detect_images(self, goes_on: Callable[[], bool] = lambda: True) -> None:
        """Lists images and who uses them, for the records only, beside whatever function is called. `goes_on`: asked
        from time to time; where it says no, GivenUp is raised. Raises RuntimeUnavailable."""
        context = self._context
        listing = context.lister.everything_now(goes_on)
        if not goes_on():  # an image that a pass has removed meanwhile must not be known again by an older list
            raise GivenUp("something more urgent has begun")
        detect_images(listing, context.records, context.clock)
        began = context.pods.start_times() or {}
        context.sightings.ages(parts_of_pods(listing.containers, listing.sandboxes, began))

    def call(self, name: str, measure: MeasureDisk, before: ReclaimResult | None = None) -> ReclaimResult:
        """Calls one function of the table. Never raises for what the runtime or one object does: `error` says it.

        `before`: what it did side by side with others in this row. Raises KeyError if the table has no such function.
        """
        function, executor = self.functions[name], self._context.executor
        self._context.read_ahead = None
        rests = function.cooldown_seconds is not None and not executor.dry_run
        why_not = self._rests.why_not(name, executor.clock.monotonic()) if rests else ""
        if why_not:
            return ReclaimResult(name, skipped=why_not)
        stages = [each if callable(each) else as_callable(each) for each in function.stages(self._context)]
        result = run_stages(name, stages, executor, measure)
        if rests:
            self._rests.record(name, function.cooldown_seconds or 0.0, result, executor.clock.monotonic())
        return result if before is None else joined(before, result)

    def read_ahead(self) -> Observed:
        """What the runtime has, and the pods before that, for a pass that may begin in a moment: give it to
        `keep_read_ahead`. Any thread. Raises RuntimeUnavailable."""
        context, at = self._context, self._context.clock.monotonic()
        before = context.pods.read()
        return Observed(context.lister.everything_now(), before, at)

    def keep_read_ahead(self, observed: Observed) -> None:
        """The next functions that are called side by side plan on this, if they are called within 0.75 s of its
        beginning, and nothing else was called before. Every removal is checked by fresh answers all the same."""
        self._context.read_ahead = observed

    def leading(self, row: Sequence[str]) -> tuple[str, ...]:
        """Those functions with which a row begins that may go side by side, the one that leads first; fewer than two:
        none may."""
        places: dict[str, int] = {}
        for name in row:
            place = self.functions[name].side_by_side
            if place is None:
                break
            places[name] = place
        return tuple(sorted(places, key=places.__getitem__))

    def call_side_by_side(self, names: Sequence[str], measure: MeasureDisk) -> tuple[ReclaimResult, ...]:
        """Calls the first stages of these functions side by side, where the first function leads; their results in the
        order in which they went.

        Never raises, as `call`. Raises KeyError if the table has no such function.
        """
        context = self._context
        ahead = context.read_ahead
        if ahead is not None and context.clock.monotonic() - ahead.at > READ_AHEAD_SECONDS:
            ahead = context.read_ahead = None
        leader, *others = ((name, _first(self.functions[name].stages(context))) for name in names)
        context.read_ahead = None
        listing = None if ahead is None else ahead.listing
        shared_reading = partial(context.lister.shared_reading, listing)
        return run_side_by_side(leader, dict(others), context.executor, measure, shared_reading)

    def garbage_collect_containers(self) -> ReclaimResult:
        """The stages of DeleteAllUnusedContainers to their end, as the periodic loop runs them: the dead containers of
        terminated pods that still exist are kept. Never raises. `error` is set if a list failed, never by one object.
        """
        self._context.read_ahead = None
        stages = _container_stages(self._context, evict_non_deleted_pods=False)
        return run_stages(CONTAINER_GC, stages, self._context.executor, never_relieved)
