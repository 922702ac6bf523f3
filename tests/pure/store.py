"""A disk and a runtime in memory for the executor: what is removed frees space, at once, late, or never."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from reclaim.execution.executor import Executor, Work
from reclaim.execution.removals import Ready, Refused, Removals, Wait

from reclaim.types import (
    NEVER,
    Action,
    DiskState,
    Kind,
    Plan,
    Reason,
    RemovalFailed,
    Result,
    RuntimeUnavailable,
    Usage,
    Verdict,
)
from tests.pure.values import MIB, SteppedClock, SteppedEvent


class Disk:
    """Free space that is wanted to reach a mark, and space that is still to come."""

    def __init__(self, clock: SteppedClock, wanted_bytes: int):
        self._clock = clock
        self._wanted_bytes = wanted_bytes
        self._lock = threading.Lock()
        self._coming: list[tuple[float, int]] = []
        self.freed_bytes = 0
        self.seconds_left = NEVER
        self.credits: list[int] = []

    def free(self, size_bytes: int, after_seconds: float = 0.0) -> None:
        """Space comes back, at once or late."""
        with self._lock:
            self._coming.append((self._clock.monotonic() + after_seconds, size_bytes))

    def measure(self, credit_bytes: int) -> DiskState:
        """What is free, and whether it is enough with so many bytes more."""
        with self._lock:
            now = self._clock.monotonic()
            self.freed_bytes += sum(size for due, size in self._coming if due <= now)
            self._coming = [(due, size) for due, size in self._coming if due > now]
            self.credits.append(credit_bytes)
            usage = Usage(self.freed_bytes, self.freed_bytes, 1000)
            relieved = self.freed_bytes + credit_bytes >= self._wanted_bytes
            return DiskState(usage, Reason.RELIEVED if relieved else None, self.seconds_left)


class Store:
    """A stage over objects in memory; each way to go wrong is a set of ids."""

    fresh_seconds = 1.0
    frees_late = False
    patience_seconds: float | None = None

    def __init__(self, disk: Disk, clock: SteppedClock, sizes: Mapping[str, int]):
        self.disk = disk
        self.clock = clock
        self.sizes = dict(sizes)
        self.sent: list[str] = []
        self.checked: list[str] = []
        self.refused: dict[str, Refused] = {}
        self.waits: dict[str, list[float]] = {}  # what it asks to wait before its next checks
        self.errors: dict[str, str] = {}  # the call ends with this error, the object goes nevertheless
        self.stuck: set[str] = set()  # the call does not take the object away
        self.silent_checks: set[str] = set()
        self.silent_presence: set[str] = set()
        self.late_seconds = 0.0
        self.check_seconds = 0.0
        self.on_check: Callable[[str], None] = lambda _: None
        self.on_remove: Callable[[str], None] = lambda _: None

    def plan(self) -> Plan:
        """Everything, in order."""
        return plan_of(self.sizes)

    def check(self, verdict: Verdict) -> Ready | Refused | Wait:
        """Checks the object, then takes `check_seconds`."""
        self.checked.append(verdict.id)
        self.on_check(verdict.id)
        if verdict.id in self.silent_checks:
            raise RuntimeUnavailable("the runtime does not answer")
        if self.waits.get(verdict.id):
            return Wait(self.waits[verdict.id].pop(0))
        answer = self.refused.get(verdict.id, Ready(self.clock.monotonic()))
        self.clock.step(self.check_seconds)
        return answer

    def remove(self, verdict: Verdict) -> bool:
        """The one call; whether there was such an object."""
        self.sent.append(verdict.id)
        self.on_remove(verdict.id)
        was_there = verdict.id in self.sizes
        if verdict.id not in self.stuck:
            self.disk.free(self.sizes.pop(verdict.id), self.late_seconds)
        if verdict.id in self.errors:
            raise RemovalFailed(self.errors[verdict.id])
        return was_there

    def present(self, verdict: Verdict) -> bool:
        """Whether the object is still there."""
        if verdict.id in self.silent_presence:
            raise RuntimeUnavailable("the runtime has gone away")
        return verdict.id in self.sizes


def plan_of(sizes: Mapping[str, int], *, sized: bool = True) -> Plan:
    """A plan that removes these in order; without sizes it promises nothing, as for containers."""
    kind = Kind.IMAGE if sized else Kind.CONTAINER
    return Plan(
        tuple(
            Verdict(kind, name, f"name of {name}", Action.REMOVE, Reason.UNUSED, size if sized else None)
            for name, size in sizes.items()
        )
    )


def objects(count: int, size_bytes: int = 10 * MIB) -> dict[str, int]:
    """So many objects of one size: a, b, c …"""
    return {chr(ord("a") + number): size_bytes for number in range(count)}


class Site:
    """An executor with its clock, disk and objects."""

    def __init__(self, count: int, wanted_mib: int, *, size_mib: int = 10, parallel: int = 1, dry_run: bool = False):
        self.clock = SteppedClock()
        self.stopping = SteppedEvent(self.clock)
        self.disk = Disk(self.clock, wanted_mib * MIB)
        self.sizes = objects(count, size_mib * MIB)
        self.store = Store(self.disk, self.clock, self.sizes)
        self.executor = Executor(Removals(self.clock, self.stopping, parallel), parallel=parallel, dry_run=dry_run)

    def execute(self, plan: Plan | None = None, *, sized: bool = True) -> Work:
        """A plan, by default to remove everything, executed as far as needed."""
        work = Work(self.store, plan_of(self.sizes, sized=sized) if plan is None else plan)
        self.executor.execute([work], self.disk.measure)
        assert self.executor.removals.ids == self.executor.removals.parked.keys()
        return work


def results(executed: Work) -> dict[str, Result | None]:
    """What became of what was tried."""
    return {outcome.verdict.id: outcome.result for outcome in executed.outcomes}


def reasons(executed: Work) -> dict[str, str]:
    """Why the rest was kept."""
    assert all(outcome.verdict.action is Action.KEEP for outcome in executed.kept)
    return {outcome.verdict.id: outcome.verdict.reason for outcome in executed.kept}
