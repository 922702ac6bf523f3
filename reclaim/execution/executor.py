"""Executes stages: measure; relieved? next candidate; check; send; measure.

* After every removal the filesystem is measured. Once it is relieved nothing more is started.
* How urgent it is, is one number: the seconds until the filesystem reaches what must not be reached. It decides how
  many removals are in flight, how long one is waited for, and whether space that comes late is; nothing else.
* While removals are in flight another one is started only if what they are expected to free is not enough. What a byte
  is worth that the runtime promises, is learned from removal to removal (`Experience`).
* A removal that was sent is never cancelled: not on relief, not on a stop. An interrupted RemoveImage can leave a
  record behind that pins its bytes for ever. The ones in flight finish; one that is not answered in time is parked
  (`removals`), and the others go on.
* What another lane of the node is removing already is left to it.
* An object counts as removed if it is absent when asked afterwards, whatever the call answered.
* A stage that reads is left behind when it hangs (`readings`).
* A dry run is this path minus the one call: what would be removed is credited with its promised size instead.

Covers: the loop, threads, stopping, measuring. Does not cover: which objects (the plans), whether one may be removed
now (`remover` and the stages).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from reclaim.execution.readings import Progress, Readings
from reclaim.execution.removals import AwaitedRemovals, Removals, most_in_flight
from reclaim.execution.remover import Stage, remove_one
from reclaim.execution.workers import NoThread
from reclaim.services import Clock
from reclaim.types import (
    Action,
    DiskState,
    DiskVerdict,
    MeasureDisk,
    Outcome,
    Plan,
    Reason,
    Result,
    Rule,
    Usage,
    Verdict,
)

URGENT_SECONDS = 60.0  # a minute: some hundred removals one after another, or ten that wait for a busy disk
PATIENCE_SECONDS = 30.0  # how long a removal that was sent is waited for; kubelet: 2 minutes (runtimeRequestTimeout)
URGENT_PATIENCE_SECONDS = 5.0  # the same where it is urgent
LOOK_SECONDS = 0.25  # while removals are waited for the disk is measured so often: it may have become urgent
STILL_SECONDS = 0.25  # space that comes late: no rise for so long, and nothing more is coming for now
LATE_LIMIT_SECONDS = 0.5  # at most so long between two removals
VAIN_WAITS = 2  # in succession: then the runtime is taken to free before it answers, as containerd does but for 2.0.0-4
FIRST_WORTH = 2.0  # containerd promises the compressed layers, and frees what was unpacked from them too
FIRST_SECONDS = 1.0  # what a removal takes on a disk that is written as fast as it can, before one is known
FADING = 0.9  # of what earlier removals have shown, at each one
REMEMBERED = 8  # whose seconds count
TURNS = 8  # side by side one of so many is of what promises nothing: 500 dead containers may hold nothing

Answer = TypeVar("Answer")


class Experience:
    """What the removals of one node have shown, of objects whose size the runtime promises. Any thread."""

    def __init__(self) -> None:
        self._promised, self._freed = 1.0, FIRST_WORTH
        self._seconds: deque[float] = deque(maxlen=REMEMBERED)
        self._in_vain = 0

    def record(self, promised: int, freed: float, seconds: float) -> None:
        """One removal that promised so many bytes has freed so many, and taken so long."""
        self._promised = self._promised * FADING + promised
        self._freed = self._freed * FADING + max(freed, 0.0)
        self._seconds.append(seconds)

    def worth(self, promised: int) -> int:
        """The bytes that so many promised ones are expected to free: at least as many, as what shared layers have kept
        back so far may come with the next."""
        return max(int(promised * self._freed / self._promised), promised)

    @property
    def frees_late(self) -> bool:
        """Whether less than was promised is waited for: until that was in vain twice in succession."""
        return self._in_vain < VAIN_WAITS

    def waited(self, *, came: bool) -> None:
        """Whether space came late."""
        self._in_vain = 0 if came else self._in_vain + 1

    @property
    def seconds(self) -> float:
        """What removals have lately taken: the slowest of the last ones, as far as one is waited for."""
        return min(max(self._seconds, default=FIRST_SECONDS), URGENT_PATIENCE_SECONDS)


@dataclass(slots=True)
class Work:
    """One stage while it is executed. `pending`: what is left of its plan, in its order; `begun`: how many are not."""

    stage: Stage
    plan: Plan
    plan_seconds: float = 0.0
    pending: deque[Verdict] = field(default_factory=deque)
    outcomes: list[Outcome] = field(default_factory=list)
    kept: list[Outcome] = field(default_factory=list)
    begun: int = 0
    error: str = ""
    relieved: bool = False
    seconds: float = 0.0

    def __post_init__(self) -> None:
        self.pending.extend(self.plan.remove)
        self.kept.extend(map(Outcome, self.plan.keep))

    @property
    def promises(self) -> bool:
        """Whether the next object says what its removal promises to free."""
        return bool(self.pending and self.pending[0].size_bytes)

    def keep(self, verdicts: Sequence[Verdict], reason: Reason) -> None:
        """Keeps what was to be removed."""
        self.kept += [Outcome(kept_by_guard(verdict, reason)) for verdict in verdicts]

    def leave_out(self, ids: frozenset[str]) -> None:
        """Keeps the objects that are being removed already."""
        self.keep([verdict for verdict in self.pending if verdict.id in ids], Reason.BEING_REMOVED)
        self.pending = deque(verdict for verdict in self.pending if verdict.id not in ids)


def kept_by_guard(verdict: Verdict, reason: Reason) -> Verdict:
    """The verdict of an object that was to be removed, and is kept for this reason."""
    return verdict._replace(action=Action.KEEP, reason=reason, eligible_in_seconds=None, rule=Rule.GUARD)


class Executor:
    """Executes the stages of one pass. For one caller at a time.

    `removals`: those of the node, by whatever pass; None: this is the only one. `parallel`: removals side by side, at
    least 1; more where it is urgent. (A dry run, which goes by promised sizes, takes one after another.) `most`: how
    many removals of each stage may be begun; None: as many as are needed. `stopping`: set when nothing new may start.
    `gives_way`: whether another row of the same filesystem waits for this pass: then what has a patience of its own, a
    program say, is parked at once. `progress`: marked
    whenever a removal ends. `planned`: what a dry run would have removed so far. `began_at`: when it was made.
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
        most: Callable[[], int | None] = lambda: None,
        gives_way: Callable[[], bool] = lambda: False,
        experience: Experience | None = None,
    ):
        self.clock = clock
        self.stopping = stopping
        self.dry_run = dry_run
        self.parallel = 1 if dry_run else max(parallel, 1)
        self.removals = removals or Removals(clock, stopping, self.parallel)
        self.patience_seconds = patience_seconds
        self.began_at = clock.monotonic()
        self.progress = Progress(clock)
        self.planned: tuple[Verdict, ...] = ()
        self._most = most
        self._gives_way = gives_way
        self.experience = experience or Experience()
        self._awaited = AwaitedRemovals(self.removals, clock)
        self._readings = Readings(clock, self.removals.workers, self.progress)

    @property
    def in_flight(self) -> dict[str, Verdict]:
        """What is being removed for this pass, by id: checked, or sent and not answered."""
        return self._awaited.verdicts

    def may_begin(self, work: Work) -> bool:
        """Whether another removal of this stage may be begun at all."""
        most = self._most()
        return bool(work.pending) and (most is None or work.begun < most)

    def plan(self, what: str, stage: Stage) -> Work | None:
        """Has a stage plan. None: there is nothing to plan. Raises ReclaimError if it cannot, or hangs."""
        began = self.clock.monotonic()
        plan = self._readings.read(what, stage.plan)
        return None if plan is None else Work(stage, plan, self.clock.monotonic() - began)

    def execute(self, works: Sequence[Work], measure: MeasureDisk) -> None:
        """Removes what the plans name until `measure` says that the disk is relieved. Several plans, of which no object
        needs one of another, take turns. Never raises for one object that fails: each work has its outcomes."""
        began = self.clock.monotonic()
        try:
            _Execution(self, works, measure).run()
        finally:
            while self.in_flight:  # only after a defect: what was sent is waited for all the same
                self._awaited.next_outcome(self.patience_seconds)
        for work in works:
            work.seconds = self.clock.monotonic() - began
            self.planned += tuple(each.verdict for each in work.outcomes if each.result is Result.PLANNED)

    def begin(self, verdict: Verdict, stage: Stage) -> None:
        """Begins to remove one object on a thread; `next_outcome` has its outcome. Raises NoThread."""

        def remove(may_send: Callable[[], bool]) -> Outcome:
            try:
                return remove_one(
                    verdict,
                    stage,
                    self.clock,
                    self.stopping,
                    dry_run=self.dry_run,
                    may_send=may_send,
                )
            except Exception as error:  # noqa: BLE001 # a defect in one removal must end as an outcome, not as a hang
                return Outcome(verdict, Result.FAILED, f"{type(error).__name__}: {error}")
            finally:
                self.progress.mark()

        self._awaited.begin(verdict, remove)

    def next_outcome(self, works: Sequence[Work], disk: DiskState) -> Outcome | None:
        """The next removal that ends, or is parked; None: for a moment none did, and the disk is to be measured."""
        until = self.clock.monotonic() + LOOK_SECONDS
        return self._awaited.next_outcome_until(until, self.patience(works, disk))

    def patience(self, works: Sequence[Work], disk: DiskState) -> float:
        """How long a removal that was sent is waited for, in seconds."""
        own = [work.stage.patience_seconds for work in works if work.stage.patience_seconds is not None]
        if own:
            return 0.0 if self._gives_way() else max(own)
        if disk.seconds_left < URGENT_SECONDS:
            return min(self.patience_seconds, URGENT_PATIENCE_SECONDS)
        return self.patience_seconds

    def room_for_another(self, disk: DiskState, measure: Callable[[int], DiskState]) -> bool:
        """Whether another removal may be started beside those in flight, of which parked ones are some still.
        `measure`: with so many bytes more."""
        flying = self.in_flight
        if not flying:
            return True
        bound = most_in_flight(self.parallel) if disk.seconds_left < URGENT_SECONDS else self.parallel
        bound -= 0 if self.dry_run else len(self.removals.parked)
        expected = self.experience.worth(sum(verdict.size_bytes or 0 for verdict in flying.values()))
        return len(flying) < bound and measure(expected).verdict is DiskVerdict.GO_ON

    def learn(self, outcome: Outcome, freed: float) -> None:
        """What a removal has freed of what the runtime had promised, and how long it took."""
        if outcome.verdict.size_bytes:
            self.experience.record(outcome.verdict.size_bytes, freed, outcome.duration_seconds)

    def remove(self, verdict: Verdict, stage: Stage) -> Outcome:
        """Removes one object, alone. For a caller that decides after each removal whether it goes on.

        While the runtime is stuck or no thread can be had, the outcome is UNANSWERED.
        """
        if verdict.id in self.removals.ids:
            return Outcome(kept_by_guard(verdict, Reason.BEING_REMOVED))
        if self.removals.stuck and not self.dry_run:
            return Outcome(verdict, Result.UNANSWERED, self.removals.stuck_sentence)
        try:
            self.begin(verdict, stage)
        except NoThread as error:
            return Outcome(verdict, Result.UNANSWERED, str(error))
        return self._awaited.next_outcome(self.patience_seconds)

    def settle(self, measure: MeasureDisk, quiet_seconds: float, limit_seconds: float) -> DiskState:
        """Watches the disk while late space still arrives: until nothing rose for `quiet_seconds`, it is relieved, or
        `limit_seconds` have passed."""
        latest = measure(0)
        best = latest.usage
        started = quiet_since = self.clock.monotonic()
        while latest.verdict is DiskVerdict.GO_ON and not self.stopping.is_set():
            now = self.clock.monotonic()
            left = min(quiet_since + quiet_seconds, started + limit_seconds) - now
            if left <= 0:
                break
            self.stopping.wait(min(quiet_seconds / 8, left))
            latest = measure(0)
            gained_bytes, gained_inodes = latest.usage.gained_since(best)
            if gained_bytes > 0 or gained_inodes > 0:
                best, quiet_since = latest.usage, self.clock.monotonic()
        return latest


class _Execution:
    """Plans being executed."""

    def __init__(self, executor: Executor, works: Sequence[Work], measure: MeasureDisk):
        self._executor = executor
        self._works = works
        self._measure = measure
        self._work_of: dict[str, Work] = {}  # by id, of what was started
        self._credit = 0  # bytes that a dry run has planned to free
        self._error = ""
        self._measured_at = executor.clock.monotonic()

    def run(self) -> None:
        executor = self._executor
        for each in self._works:
            each.leave_out(executor.removals.ids)
        disk = self._now()
        while True:
            while (work := self._next(disk)) is not None and self._begin(work):
                pass
            if not executor.in_flight:
                break
            outcome = executor.next_outcome(self._works, disk)
            disk = self._now() if outcome is None else self._after(outcome, disk)
        order = {object_id: number for number, object_id in enumerate(self._work_of)}
        for each in self._works:
            if each.stage.frees_late and any(outcome.result is Result.REMOVED for outcome in each.outcomes):
                disk = self._late_space(disk)
            each.outcomes.sort(key=lambda outcome: order[outcome.verdict.id])
            each.keep(each.pending, self._why_stopped(disk))
            each.relieved, each.error = disk.verdict is not DiskVerdict.GO_ON, self._error

    def _now(self) -> DiskState:
        self._measured_at = self._executor.clock.monotonic()
        return self._measure(self._credit)

    def _next(self, disk: DiskState) -> Work | None:
        """Whose object is started next; None: nothing is, for now or at all. Of several works those whose objects
        promise a size have most of the turns: what promises nothing may free nothing, or much."""
        executor = self._executor
        left = [work for work in self._works if executor.may_begin(work)]
        if not left or executor.stopping.is_set() or self._error or disk.verdict is not DiskVerdict.GO_ON:
            return None
        if executor.removals.stuck and not executor.dry_run:
            self._error = executor.removals.stuck_sentence
            return None
        if not executor.room_for_another(disk, lambda more: self._measure(self._credit + more)):
            return None
        promising = [work for work in left if work.promises]
        others = [work for work in left if not work.promises]
        take_others = not promising or (others and len(self._work_of) % TURNS == 0)
        return min(others if take_others else promising, key=lambda work: work.begun)

    def _begin(self, work: Work) -> bool:
        """Whether it could be; without a thread the next removal that ends makes room."""
        verdict = work.pending.popleft()
        try:
            self._executor.begin(verdict, work.stage)
        except NoThread as error:
            work.pending.appendleft(verdict)
            self._error = "" if self._executor.in_flight else str(error)
            return False
        self._work_of[verdict.id] = work
        work.begun += 1
        return True

    def _after(self, outcome: Outcome, before: DiskState) -> DiskState:
        """Records what one removal has freed; returns the disk as it is now."""
        work, since = self._work_of[outcome.verdict.id], self._measured_at
        promised = outcome.verdict.size_bytes or 0
        experience = self._executor.experience
        self._executor.progress.mark()
        if outcome.result is None or outcome.result is Result.IN_USE:
            work.kept.append(outcome)
            return before
        if outcome.result is Result.PLANNED:
            self._credit += promised
        elif outcome.result is Result.UNANSWERED:
            self._error = self._error or outcome.error
        disk = self._now()
        if outcome.result is Result.REMOVED:  # else what others freed is not ours
            gained, _ = disk.usage.gained_since(before.usage)
            if gained * 2 < promised and experience.frees_late:
                disk = self._late_space(disk)
                experience.waited(came=disk.usage.gained_since(before.usage)[0] > gained)
            gained, inodes = disk.usage.gained_since(before.usage)
            outcome = replace(outcome, freed_bytes=max(gained, 0), freed_inodes=max(inodes, 0))
            self._executor.learn(outcome, gained + disk.fill_per_second * (self._measured_at - since))
        work.outcomes.append(outcome)
        return disk

    def _late_space(self, disk: DiskState) -> DiskState:
        """The disk once what comes late has come; at once where it is urgent, or relieved."""
        if disk.seconds_left < URGENT_SECONDS or disk.verdict is not DiskVerdict.GO_ON:
            return disk
        return self._executor.settle(lambda _: self._now(), STILL_SECONDS, LATE_LIMIT_SECONDS)

    def _why_stopped(self, disk: DiskState) -> Reason:
        if self._executor.stopping.is_set():
            return Reason.STOPPING
        if self._executor.removals.stuck and self._error:
            return Reason.RUNTIME_STUCK
        if self._error:
            return Reason.INCOMPLETE_LISTING
        if disk.verdict is DiskVerdict.UNREADABLE:
            return Reason.UNREADABLE
        return Reason.RELIEVED


def aggregate(errors: Sequence[str]) -> str:
    """Several errors as one text, as Kubernetes does it: one gives its own, more a bracketed list; each once."""
    distinct = list(dict.fromkeys(error for error in errors if error))
    return distinct[0] if len(distinct) == 1 else f"[{', '.join(distinct)}]" if distinct else ""


def never_relieved(_credit_bytes: int) -> DiskState:
    """Measures nothing and never says that the disk is relieved: for passes that run to their end."""
    return DiskState(Usage(), DiskVerdict.GO_ON)
