"""Executes a plan: check, remove, verify, measure, and stop when the disk is relieved.

* After every removal the filesystem is measured. Once it is relieved nothing more is started.
* Removals run side by side up to a bound (`in_flight`), which is wider on a disk that is full within a minute.
* A removal that was sent is never cancelled: not on relief, not on a stop. An interrupted RemoveImage can leave a
  record behind that pins its bytes for ever. The ones in flight finish; one that is not answered in time is parked
  (`removals`), and the others go on.
* A remover may ask to wait before an object is checked again (a pod is being made). A stop ends the wait.
* An object counts as removed if it is absent when asked afterwards, whatever the call answered.
* Space may come late. Where the filesystem shows less than the runtime had promised, it is watched for a short while
  before the next object is removed (`freed_space`). After objects without a promised size (containers) it is watched
  once, at the end, and only as long as nobody else writes.
* Several plans may be executed side by side: they share the removals in flight, the measurements and what a promised
  byte is worth, and `side_by_side` says whose object is next.
* Where the disk fills faster than the order of the plan makes room, a `RemovalOrder` chooses another one.
* After a removal that took far longer than usual nothing is sent for a while (`slow_removals`).
* A dry run is this path minus the one call: what would be removed is credited with its promised size instead.

Covers: the loop, threads, stopping, measuring. Does not cover: which objects (the plans), whether one may be removed
now (`remover` and its implementations).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from reclaim.clock import Clock
from reclaim.disk_need import NEVER, Need
from reclaim.execution.freed_space import LATE_LIMIT_SECONDS, STILL_SECONDS, FreedSpace
from reclaim.execution.in_flight import expected_bytes, promised_bytes
from reclaim.execution.order import RemovalOrder
from reclaim.execution.plan_in_execution import ExecutionResult, PlanInExecution, Work, kept_by_guard
from reclaim.execution.readings import Progress, Readings
from reclaim.execution.removals import AwaitedRemovals, Removals
from reclaim.execution.remover import Remover, remove_one
from reclaim.execution.side_by_side import Standing, next_plan
from reclaim.execution.slow_removals import SlowRemovals
from reclaim.execution.workers import NoThread
from reclaim.types import (
    DiskState,
    DiskVerdict,
    MeasureDisk,
    Outcome,
    Plan,
    Reason,
    Result,
    Verdict,
)

LATE_POLL_SECONDS = 0.002  # the shortest pause between two readings of a disk that late space may still reach
LATE_POLL_SHARE = 0.1  # the pause as a share of the time without a rise: some forty readings in 0.25 s
STILL_BYTES = 256 * 1024  # a loss of more than this is somebody writing
PATIENCE_SECONDS = 30.0  # how long a removal that was sent is waited for; kubelet: 2 minutes (runtimeRequestTimeout)
HURRY_PATIENCE_SECONDS = 5.0  # the same on a disk that is full within a minute, and after a jump
LOOK_SECONDS = 0.25  # while removals are waited for the disk is measured so often: it may have become urgent
FIRST_ALONE_SECONDS = 0.15  # of the first removal in a hurry; with others beside it each waits for the syncs of all

Answer = TypeVar("Answer")


class Executor:
    """Executes plans, one after another or, of one call, side by side.

    `parallel`: removals side by side, at least 1; more on a disk that is full within a minute. (A dry run, which goes
    by promised sizes, takes one after another.) `stopping`: set when nothing new may start. `removals`: those of the
    node, by whatever executor; None: this executor is the only one. `patience_seconds`: how long a removal that was
    sent is waited for. `progress`: marked whenever a removal ends. `gives_way`: whether another row waits for this
    pass: then what has a patience of its own, a program say, is parked at once. `in_flight`: removals of the present
    plan that are being checked, or were sent and have not been answered. `planned`: what a dry run would have removed
    since `forget_planned`.
    """

    def __init__(
        self,
        clock: Clock,
        stopping: threading.Event,
        *,
        parallel: int = 2,
        dry_run: bool = False,
        removals: Removals | None = None,
        patience_seconds: float = PATIENCE_SECONDS,
    ):
        self.clock = clock
        self.stopping = stopping
        self.set_mode(dry_run=dry_run, parallel=parallel)
        self.removals = removals or Removals(clock, stopping, self.parallel)
        self.patience_seconds = patience_seconds
        self.progress = Progress(clock)
        self.gives_way: Callable[[], bool] = lambda: False
        self.awaited = AwaitedRemovals(self.removals, clock)
        self.slow_removals = SlowRemovals()
        self.planned: tuple[Verdict, ...] = ()
        self._readings = Readings(clock, self.removals.workers, self.progress)

    def set_mode(self, *, dry_run: bool, parallel: int) -> None:
        """From now on a dry run or not, with so many removals side by side. What was sent is not touched."""
        self.dry_run = dry_run
        self.parallel = 1 if dry_run else max(parallel, 1)

    def execute(
        self, plan: Plan, remover: Remover, measure: MeasureDisk, order: RemovalOrder | None = None
    ) -> ExecutionResult:
        """Removes what the plan names, in its order or as `order` chooses, until `measure` says that the disk is
        relieved. Never raises for one object that fails."""
        return self.execute_side_by_side([Work(plan, remover, order)], measure)[0]

    def execute_side_by_side(self, works: Sequence[Work], measure: MeasureDisk) -> tuple[ExecutionResult, ...]:
        """The same for several plans, of which no object needs one of another: one result for each. The first one leads
        until another has freed more."""
        results = _Execution(self, works, measure).run()
        self.planned += tuple(o.verdict for each in results for o in each.outcomes if o.result is Result.PLANNED)
        return results

    @property
    def in_flight(self) -> dict[str, Verdict]:
        """What is being removed for the present plan, by id: checked, or sent and not answered."""
        return self.awaited.verdicts

    def begin(self, verdict: Verdict, remover: Remover) -> None:
        """Begins to remove one object on a thread; `awaited` has its outcome. Raises NoThread."""

        def remove(may_send: Callable[[], bool]) -> Outcome:
            try:
                return remove_one(verdict, remover, self.clock, self.stopping, dry_run=self.dry_run, may_send=may_send)
            except Exception as error:  # noqa: BLE001 # a defect in one removal must end as an outcome, not as a hang
                return Outcome(verdict, Result.FAILED, f"{type(error).__name__}: {error}")
            finally:
                self.progress.mark()

        self.awaited.begin(verdict, remove)

    def patience(self, need: Need | None, works: Sequence[Work] = ()) -> float:
        """How long a removal that was sent is waited for, in seconds; `works`: those being executed."""
        own = [work.patience_seconds for work in works if work.patience_seconds is not None]
        if own:
            return 0.0 if self.gives_way() else max(own)
        if need is not None and (need.full_within_a_minute or need.after_jump):
            return min(self.patience_seconds, HURRY_PATIENCE_SECONDS)
        return self.patience_seconds

    def remove(self, verdict: Verdict, remover: Remover) -> Outcome:
        """Removes one object, alone. For a caller that decides after each removal whether it goes on.

        While the runtime is stuck or no thread can be had, the outcome is UNANSWERED.
        """
        if verdict.id in self.removals.parked:
            return Outcome(kept_by_guard(verdict, Reason.BEING_REMOVED))
        if self.removals.stuck and not self.dry_run:
            return Outcome(verdict, Result.UNANSWERED, self.removals.stuck_sentence)
        try:
            self.begin(verdict, remover)
        except NoThread as error:
            return Outcome(verdict, Result.UNANSWERED, str(error))
        return self.awaited.next_outcome(self.patience_seconds)

    def read(self, what: str, read: Callable[[], Answer]) -> Answer:
        """What `read` returns. Raises what it raises, and ReclaimError if it hangs: see `readings`."""
        return self._readings.read(what, read)

    def forget_planned(self) -> None:
        """A dry run starts over: everything is there again."""
        self.planned = ()

    def settle(
        self, measure: MeasureDisk, quiet_seconds: float, limit_seconds: float, *, while_still: bool = False
    ) -> DiskState:
        """Watches the disk while late space still arrives: until nothing rose for `quiet_seconds`, it is relieved, or
        `limit_seconds` have passed; with `while_still` also until somebody writes."""
        latest = measure(0)
        best = latest.usage
        started = quiet_since = self.clock.monotonic()
        while latest.verdict is DiskVerdict.GO_ON and not self.stopping.is_set():
            now = self.clock.monotonic()
            left = min(quiet_since + quiet_seconds, started + limit_seconds) - now
            if left <= 0:
                break
            self.stopping.wait(min(max(LATE_POLL_SECONDS, LATE_POLL_SHARE * (now - quiet_since)), left))
            latest = measure(0)
            gained_bytes, gained_inodes = latest.usage.gained_since(best)
            if while_still and gained_bytes < -STILL_BYTES:
                break
            if gained_bytes > 0 or gained_inodes > 0:
                best, quiet_since = latest.usage, self.clock.monotonic()
        return latest


class _Execution:
    """Plans being executed."""

    def __init__(self, executor: Executor, works: Sequence[Work], measure: MeasureDisk):
        self._executor = executor
        self._measure = measure
        self._plans = [PlanInExecution(work) for work in works]
        self._plan_of: dict[str, PlanInExecution] = {}  # by id, of what was started
        self._started: dict[str, int] = {}  # id -> the how many-th it was
        self._credit = 0
        self._freed = FreedSpace()
        self._error = ""
        self._alone_until = NEVER  # until when nothing is started beside the first removal; NEVER: something may be

    def run(self) -> tuple[ExecutionResult, ...]:
        try:
            return self._run()
        finally:
            while self._executor.in_flight:  # only after a defect: what was sent is waited for all the same
                self._executor.awaited.next_outcome(self._executor.patience_seconds)

    def _run(self) -> tuple[ExecutionResult, ...]:
        executor, works = self._executor, [plan.work for plan in self._plans]
        for plan in self._plans:
            plan.leave_out(executor.removals.parked)
        latest = seen = self._measure(0)  # after the last removal, and at the last look
        while True:
            self._start_removals(seen)
            if not executor.in_flight:
                break
            look_at = min(self._alone_until, executor.clock.monotonic() + LOOK_SECONDS)
            outcome = executor.awaited.next_outcome_until(look_at, executor.patience(seen.need, works))
            self._alone_until = NEVER
            if outcome is None:  # the first one takes long: the others begin beside it
                seen = self._measure(self._credit)
                continue
            executor.progress.mark()
            latest = seen = self._after_slow_removal(outcome, self._after_removal(outcome, latest))
        if any(plan.may_free_late for plan in self._plans):
            latest = executor.settle(self._measure, STILL_SECONDS, LATE_LIMIT_SECONDS, while_still=True)
        return tuple(self._result(plan, latest) for plan in self._plans)

    def _result(self, plan: PlanInExecution, latest: DiskState) -> ExecutionResult:
        plan.keep(plan.pending, self._why_stopped(latest))
        plan.outcomes.sort(key=lambda outcome: self._started[outcome.verdict.id])
        relieved = latest.verdict is not DiskVerdict.GO_ON
        return ExecutionResult(tuple(plan.outcomes), tuple(plan.kept), relieved, self._error)

    def _next_plan(self) -> PlanInExecution | None:
        """The plan whose object is next; None if nothing is left of any."""
        standings = [Standing(bool(p.pending), self._freed.each(promising=p.promising)) for p in self._plans]
        index = next_plan(standings, len(self._started))
        return None if index is None else self._plans[index]

    @property
    def _order(self) -> RemovalOrder | None:
        """What earlier plans have shown, of whichever plan has an order."""
        return next((plan.work.order for plan in self._plans if plan.work.order is not None), None)

    def _start_removals(self, latest: DiskState) -> None:
        executor = self._executor
        ordered = self._order is not None  # else how fast the disk fills says nothing of how many are good for it
        bound = latest.need.max_in_flight(executor.parallel) if latest.need and ordered else executor.parallel
        while len(executor.in_flight) < bound and self._may_start_another(latest):
            plan = self._next_plan()
            if plan is None:
                return
            order = plan.work.order
            index = 0 if order is None else order.next_index(plan.pending, latest.need)
            verdict = plan.pending[index]
            try:
                executor.begin(verdict, plan.work.remover)
            except NoThread as error:
                if not executor.in_flight:  # else the next one that ends makes room
                    self._error = str(error)
                return
            del plan.pending[index]
            self._plan_of[verdict.id] = plan
            self._started[verdict.id] = len(self._started)
            if len(self._started) == 1 and bound > executor.parallel and plan.promising:
                self._alone_until = executor.clock.monotonic() + FIRST_ALONE_SECONDS
                return

    def _may_start_another(self, latest: DiskState) -> bool:
        executor = self._executor
        if not any(plan.pending for plan in self._plans):
            return False
        if executor.stopping.is_set() or self._error or latest.verdict is not DiskVerdict.GO_ON:
            return False
        if executor.removals.stuck and not executor.dry_run:
            self._error = executor.removals.stuck_sentence
            return False
        if not executor.in_flight:
            return True
        expected = expected_bytes(executor.in_flight.values(), latest.need, self._freed, self._order)
        return expected is not None and self._measure(self._credit + expected).verdict is DiskVerdict.GO_ON

    def _after_removal(self, outcome: Outcome, before: DiskState) -> DiskState:
        """Records what one removal has freed; returns the disk as it is now."""
        plan = self._plan_of[outcome.verdict.id]
        match outcome.result:
            case None | Result.IN_USE:
                plan.kept.append(outcome)
                return before
            case Result.PLANNED:
                self._credit += outcome.verdict.size_bytes or 0
                plan.outcomes.append(outcome)
                return self._measure(self._credit)
            case Result.UNANSWERED:
                self._error = self._error or outcome.error
            case Result.REMOVED | Result.ALREADY_GONE | Result.FAILED | Result.PARKED:
                pass
        after = self._measure(self._credit)
        if outcome.result is not Result.REMOVED:  # what others freed is not ours
            plan.outcomes.append(outcome)
            return after
        promised = outcome.verdict.size_bytes or 0
        after = self._wait_for_late_space(before, after, promised)
        gained_bytes, gained_inodes = after.usage.gained_since(before.usage)
        own_bytes = self._freed.record(promised, gained_bytes, promised_bytes(self._executor.in_flight.values()))
        outcome = replace(outcome, freed_bytes=max(gained_bytes, 0), freed_inodes=max(gained_inodes, 0))
        plan.outcomes.append(outcome)
        if plan.work.order is not None:
            shared = len(self._plans) > 1  # then what the objects of other plans have freed teaches this one nothing
            plan.work.order.record_removal(replace(outcome, freed_bytes=own_bytes) if shared else outcome)
        return after

    def _wait_for_late_space(self, before: DiskState, after: DiskState, promised: int) -> DiskState:
        gained, _ = after.usage.gained_since(before.usage)
        wait = None if after.verdict is not DiskVerdict.GO_ON else self._freed.late_wait(promised, gained)
        if wait is None:
            return after
        later = self._executor.settle(
            self._measure, wait.quiet_seconds, LATE_LIMIT_SECONDS, while_still=wait.while_still
        )
        late, _ = later.usage.gained_since(after.usage)
        self._freed.waited(promised - gained, late)
        return later

    def _after_slow_removal(self, outcome: Outcome, latest: DiskState) -> DiskState:
        """The disk after the pause that a slow removal calls for; a stop ends the pause."""
        seconds = self._executor.slow_removals.pause_after(outcome)
        if not seconds or not any(plan.pending for plan in self._plans) or latest.verdict is not DiskVerdict.GO_ON:
            return latest
        self._executor.stopping.wait(seconds)
        return self._measure(self._credit)

    def _why_stopped(self, latest: DiskState) -> Reason:
        if self._executor.stopping.is_set():
            return Reason.STOPPING
        if self._executor.removals.stuck and self._error:
            return Reason.RUNTIME_STUCK
        if self._error:
            return Reason.INCOMPLETE_LISTING
        return Reason.UNREADABLE if latest.verdict is DiskVerdict.UNREADABLE else Reason.RELIEVED
