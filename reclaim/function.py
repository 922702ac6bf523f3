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
from reclaim.pods.starts import Sightings
from reclaim.pods.states import PodStateProvider
from reclaim.services import ImageService, RuntimeService
from reclaim.types import Verdict
from signals.clock import Clock
from signals.types import FilesystemRole


@dataclass(frozen=True, slots=True)
class Policies:
    """What may be removed of each kind of object."""

    containers: ContainerGCPolicy
    images: ImageGCPolicy


@dataclass(frozen=True, slots=True)
class Pressure:
    """What a program is told of the pass that starts it, as far as it is known.

    `signal` and `pass_id`: words of the caller's. `filesystem`: the mount point where space is short. `available` and
    `mark` are in the unit of the signal, bytes or inodes; None: not known. `missing_bytes` and `missing_inodes`: what
    has to come free, with what is written meanwhile; 0 where it is not short of them.
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
    """What the stages of a reclaim function may use of their node, in one pass.

    `sightings` remember from pass to pass since when parts of pods are there. `executor`: that of the pass. `pressure`:
    what the pass is about, measured when it is called.
    """

    runtime: RuntimeService
    images: ImageService
    pods: PodStateProvider
    inventory: Inventory
    records: ImageRecords
    sightings: Sightings
    clock: Clock
    policies: Policies
    log_paths: LogPaths
    executor: Executor
    pressure: Callable[[], Pressure] = lambda: NO_PRESSURE

    @property
    def planned(self) -> tuple[Verdict, ...]:
        """What this pass, a dry run, would have removed so far: it counts as gone."""
        return self.executor.planned

    def not_older_than(self) -> float:
        """How old what a plan is made of may be: a second, of this pass, and of after the last removal on this node."""
        executor = self.executor
        return max(executor.began_at, executor.removals.ended_at, self.clock.monotonic() - FRESH_SECONDS)


@dataclass(frozen=True, slots=True)
class ReclaimFunction:
    """One entry of the table.

    `frees`: the filesystem on which it frees space; a dry run credits promised sizes there. `kinds`: of the objects
    that it removes, for metrics. `stages`: makes the stages of one call. `cooldown_seconds`: how long it rests after
    each call. `side_by_side`: whether, where it is urgent, the objects of its first stage may go side by side with
    those of other such functions, whatever their order in the row.
    `examine`: raises ReclaimError, with one sentence, if it could do nothing on this node as things are, and
    RuntimeUnavailable where the runtime does not say; None: there is nothing that could be wrong.
    """

    name: str
    frees: FilesystemRole
    kinds: tuple[str, ...]
    stages: Callable[[ReclaimContext], tuple[Stage, ...]]
    cooldown_seconds: float = 0.0
    side_by_side: bool = False
    examine: Callable[[RuntimeService, LogPaths], object] | None = None
