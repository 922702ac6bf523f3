"""The one shape of a reclaim function: it offers candidates in order, checks one, removes one.

A container runtime protects nothing: it removes an image that is in use, kills a running container,
and accepts a prefix of an id. So every object is checked once more right before its removal, and
only full ids that a list has named are sent.

* `plan` reads, and offers candidates in order.
* `check` says that one may be removed *now*, and on what evidence. The last look is part of it: it
  reads the directories of pods once more, because what has begun since the evidence was read makes
  it worth nothing (`evidence.starts`).
* `remove` is the one call. It is sent only if the gate lets it pass (`eviction.engine.gate`).
* `present` asks whether the object still exists: a call that failed may have removed it, and one
  that succeeded may not have.

All four run on workers, may take as long as they need, and decide nothing about the pass: which
object is next, when it ends and what is waited for is decided in `eviction.engine.relief`, the
same way for all functions.
"""

import threading
from collections.abc import Callable
from typing import NamedTuple, Protocol

from reclaim.containers.plan import ContainerGCPolicy
from reclaim.cri.inventory import Inventory
from reclaim.evidence.starts import FRESH_SECONDS, PartAges
from reclaim.evidence.states import PodStateProvider
from reclaim.images.plan import ImageGCPolicy
from reclaim.images.records import ImageRecords
from reclaim.pod_logs.names import LogPaths
from reclaim.types import Plan, Result, Runtime, Verdict
from signals.clock import Clock
from signals.types import FilesystemRole

# how old an object's status, and the last look, may be when its removal is sent
STATUS_FRESH_SECONDS = 0.05


class Ready(NamedTuple):
    """The object may be removed, as of `checked_at` (monotonic seconds). `holds`: the last
    look: whether that still counts now; False if it is unknown. Always True for an object that
    no pod can start to use."""

    checked_at: float
    holds: Callable[[], bool] = lambda: True


class Wait(NamedTuple):
    """Not now: check again after `seconds`."""

    seconds: float


class Refused(NamedTuple):
    """The object is kept, already gone, or could not be checked (`error` says why)."""

    reason: str | None = None
    result: Result | None = None
    error: str = ""


GONE = Refused(result=Result.ALREADY_GONE)


class Stage(Protocol):
    """One step of a reclaim function. Created for one pass.

    Objects of one stage may be checked side by side.
    """

    fresh_seconds: float = STATUS_FRESH_SECONDS
    """How old a `Ready` may be when the removal is sent."""
    frees_late: bool = False
    """Whether space may arrive after the removal was answered, even if no size was promised."""
    patience_seconds: float | None = None
    """After how long the pass goes on without one of its removals; None: as configured."""
    listed_at: float | None = None
    """When it had read what its plan is based on (monotonic seconds); None: it took no time."""

    def plan(self) -> Plan | None:
        """Reads and plans; removes nothing. None: there is nothing to plan. Raises ReclaimError if
        it cannot read what it needs."""

    def check(self, verdict: Verdict) -> Ready | Refused | Wait:
        """Checks the object once more. Raises RuntimeUnavailable.

        The sum of all waits it asks for is bounded.
        """

    def remove(self, verdict: Verdict) -> bool:
        """The one call, after `check` returned Ready. False if the object no longer existed.

        Raises ReclaimError.
        """

    def present(self, verdict: Verdict) -> bool:
        """Whether the object still exists. Raises RuntimeUnavailable if that is unknown."""


Stages = tuple[Stage, ...]


class Policies(NamedTuple):
    """What may be removed, by kind of object."""

    containers: ContainerGCPolicy
    images: ImageGCPolicy


class Pressure(NamedTuple):
    """What a program learns about the pass that starts it, as far as it is known."""

    signal: str = ""
    filesystem: str = ""
    """The mount point that is short of space."""
    available: int | None = None
    """In the signal's unit, bytes or inodes; None: not known."""
    mark: int | None = None
    missing_bytes: int = 0
    """How much must be freed, including what is written in the meantime; 0 if there is no shortage.
    """
    missing_inodes: int = 0
    pass_id: str = ""


NO_PRESSURE = Pressure()


class PassFacts(NamedTuple):
    """What stages may know of their pass and of the disk, as last published by the owner."""

    dry_run: bool = False
    began_at: float = float("-inf")
    removal_ended_at: float = float("-inf")
    """When a removal last ended (monotonic seconds): an older list may name what is gone."""
    urgent: bool = False
    """Whether the disk, as it fills now, reaches the level it must not reach within a minute."""
    planned: tuple[Verdict, ...] = ()
    """What a dry run would have removed in the stages before. It counts as gone."""
    pressure: Pressure = NO_PRESSURE


class ReclaimContext(NamedTuple):
    """What the stages of a reclaim function may use of their node during one pass."""

    runtime: Runtime
    pods: PodStateProvider
    inventory: Inventory
    records: ImageRecords
    part_ages: PartAges
    """Remembers, across passes, since when parts of pods have existed."""
    clock: Clock
    policies: Policies
    log_paths: LogPaths
    stopping: threading.Event
    """Set when nothing new may start."""
    facts: Callable[[], PassFacts] = PassFacts

    def not_older_than(self) -> float:
        """The oldest lists a plan may use: at most a second old, read during this pass, and after
        the last removal on the node."""
        facts = self.facts()
        return max(facts.began_at, facts.removal_ended_at, self.clock.monotonic() - FRESH_SECONDS)


class ReclaimFunction(NamedTuple):
    """One entry of the table."""

    name: str
    frees: FilesystemRole
    """The filesystem on which it frees space; a dry run counts promised sizes there."""
    kinds: tuple[str, ...]
    """Of the objects it removes, for metrics."""
    stages: Callable[[ReclaimContext], Stages]
    """Creates the stages of one call."""
    cooldown_seconds: float = 0.0
    """The pause after each call."""
    side_by_side: bool = False
    """Whether, when it is urgent, objects of its first stage may be removed alongside those of
    other such functions, regardless of their order in the row."""
    examine: Callable[[Runtime, LogPaths], object] | None = None
    """Raises ReclaimError, with one sentence, if the function could do nothing on this node as it
    is, and RuntimeUnavailable if the runtime does not say; None: nothing can be wrong."""
    last_resort: Callable[[ReclaimContext], Stages] = lambda _: ()
    """Creates stages that come only if the whole row was not enough."""
    stops_on_failure: bool = False
    """Whether a failed removal ends the function after its stage, as in a periodic pass."""
