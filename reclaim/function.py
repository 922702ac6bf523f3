"""What a reclaim function is, and what its stages may use of their node."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from reclaim.containers import ContainerGCPolicy
from reclaim.execution.executor import Executor
from reclaim.execution.removals import Stage
from reclaim.images.plan import ImageGCPolicy
from reclaim.images.records import ImageRecords
from reclaim.inventory import FRESH_SECONDS, Inventory
from reclaim.pod_logs.names import LogPaths
from reclaim.pods.starts import PartAges
from reclaim.pods.states import PodStateProvider
from reclaim.services import ImageService, RuntimeService
from reclaim.types import Verdict
from signals.clock import Clock
from signals.types import FilesystemRole


@dataclass(frozen=True, slots=True)
class Policies:
    """What may be removed, by kind of object."""

    containers: ContainerGCPolicy
    images: ImageGCPolicy


@dataclass(frozen=True, slots=True)
class Pressure:
    """What a program learns about the pass that starts it, as far as it is known.

    `signal`, `pass_id`: the caller's words. `filesystem`: the mount point that is short of space. `available`, `mark`:
    in the signal's unit, bytes or inodes; None: not known. `missing_bytes`, `missing_inodes`: how much must be freed,
    including what is written in the meantime; 0 if there is no shortage.
    """

    signal: str = ""
    filesystem: str = ""
    available: int | None = None
    mark: int | None = None
    missing_bytes: int = 0
    missing_inodes: int = 0
    pass_id: str = ""


NO_PRESSURE: Final = Pressure()


@dataclass(frozen=True, slots=True)
class ReclaimContext:
    """What the stages of a reclaim function may use of their node during one pass.

    `part_ages`: remembers, across passes, since when parts of pods have existed. `executor`: the pass's own.
    `pressure`: measured when it is called.
    """

    runtime: RuntimeService
    images: ImageService
    pods: PodStateProvider
    inventory: Inventory
    records: ImageRecords
    part_ages: PartAges
    clock: Clock
    policies: Policies
    log_paths: LogPaths
    executor: Executor
    pressure: Callable[[], Pressure] = lambda: NO_PRESSURE

    @property
    def planned(self) -> tuple[Verdict, ...]:
        """What this pass, if it is a dry run, would have removed so far. It counts as gone."""
        return self.executor.planned

    def not_older_than(self) -> float:
        """The oldest lists a plan may use: at most a second old, read during this pass, and after the last removal on
        the node."""
        executor = self.executor
        return max(executor.began_at, executor.removals.ended_at, self.clock.monotonic() - FRESH_SECONDS)


@dataclass(frozen=True, slots=True)
class ReclaimFunction:
    """One entry of the table.

    `frees`: the filesystem on which it frees space; a dry run counts promised sizes there. `kinds`: of the objects it
    removes, for metrics. `stages`: creates the stages of one call. `cooldown_seconds`: the pause after each call.
    `side_by_side`: whether, when it is urgent, objects of its first stage may be removed alongside those of other such
    functions, regardless of their order in the row. `examine`: raises ReclaimError, with one sentence, if the function
    could do nothing on this node as it is, and RuntimeUnavailable if the runtime does not say; None: nothing can be
    wrong. `last_resort`: creates stages that come only if the whole row was not enough.
    """

    name: str
    frees: FilesystemRole
    kinds: tuple[str, ...]
    stages: Callable[[ReclaimContext], tuple[Stage, ...]]
    cooldown_seconds: float = 0.0
    side_by_side: bool = False
    examine: Callable[[RuntimeService, LogPaths], object] | None = None
    last_resort: Callable[[ReclaimContext], tuple[Stage, ...]] = lambda _: ()
