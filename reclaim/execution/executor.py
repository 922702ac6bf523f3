"""Executes stages: measure; relieved? next candidate; check; send; measure.

* The filesystem is measured after every removal. Once it is relieved, nothing more is started.
* Urgency is one number: the seconds until the filesystem reaches the level it must not reach. It decides how many
  removals are in flight, how long each is waited for, and whether space that arrives late is waited for; nothing else.
* While removals are in flight, another one is started only if what the runtime promises for them is not enough.
* A removal that was sent is never cancelled, neither on relief nor on a stop: an interrupted RemoveImage can leave a
  record behind that pins its bytes forever. Removals in flight finish; one that is not answered in time is parked
  (`removals`), and the others go on.
* Objects that another lane of the node is already removing are left to it.
* An object counts as removed if it is absent when asked afterwards, whatever the call answered.
* An error about one object is that object's outcome. Only a runtime that does not answer ends a stage.
* What must stop a pass (a stop, a pause, another configuration, a filesystem that moved) is asked before each object
  and once more right before its call; then nothing more is started.
* A stage that hangs while reading is abandoned (`workers`).
* A dry run takes the same path minus the one call: promised sizes of what would be removed count as free instead.

Covers: the loop, threads, stopping, measuring. Does not cover: which objects (the plans), whether one may be removed
now (`removals` and the stages).
"""

from __future__ import annotations

import fcntl
import os
import queue
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, replace

from reclaim.execution.removals import Brake, Removal, Removals, Stage, most_in_flight, remove_one
from reclaim.execution.workers import NoThread, Progress, ReadingHangs
from reclaim.types import (
    BRAKES,
    NEVER,
    DiskState,
    MeasureDisk,
    Outcome,
    Plan,
    Reason,
    ReclaimResult,
    Result,
    Verdict,
)

URGENT_SECONDS = 60.0  # a minute: some hundred removals one after another, or ten that wait for a busy disk
PATIENCE_SECONDS = 30.0  # how long to wait for a removal that was sent; kubelet: 2 minutes (runtimeRequestTimeout)
URGENT_PATIENCE_SECONDS = 5.0  # the same if it is urgent
LOOK_SECONDS = 0.25  # how often to measure while waiting for removals: it may have become urgent
STILL_SECONDS = 0.25  # late space: after this long without a rise, nothing more is coming for now
SETTLE_SECONDS = 5.0  # wait no longer than this: something else may keep freeing space
VAIN_WAITS = 2  # in a row: then this pass assumes that the runtime frees before it answers
FIRST_SECONDS = 1.0  # assumed duration of a removal on a disk under full write load, until one is known
REMEMBERED = 8  # removals whose durations count
BTRFS_IOC_START_SYNC, BTRFS_IOC_WAIT_SYNC = 0x8008_9418, 0x4008_9416  # <linux/btrfs.h>
TURNS = 8  # side by side, one removal in this many promises no size: 500 dead containers may hold nothing


class Experience:
    """How long the removals on one node have taken, for objects whose size the runtime promises. Thread-safe."""

    def __init__(self) -> None:
        self._seconds: deque[float] = deque(maxlen=REMEMBERED)

    def removed(self, seconds: float) -> None:
        """Records how long one removal took."""
        self._seconds.append(seconds)

    @property
    def seconds(self) -> float:
        """How long removals have lately taken: the slowest of the last few, capped at how long one is waited for."""
        return min(max(self._seconds, default=FIRST_SECONDS), URGENT_PATIENCE_SECONDS)


@dataclass(slots=True)
class Work:
    """One stage while it is executed. `pending`: what is left of its plan, in order; `begun`: how many removals have
    begun."""

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
        """Whether the next object's removal promises a size."""
        return bool(self.pending and self.pending[0].size_bytes)

    def keep(self, verdicts: Sequence[Verdict], reason: Reason) -> None:
        """Keeps objects that were to be removed."""
        self.kept += [Outcome(verdict.kept(reason)) for verdict in verdicts]

    def leave_out(self, ids: frozenset[str]) -> None:
        """Keeps the objects that are already being removed."""
        self.keep([verdict for verdict in self.pending if verdict.id in ids], Reason.BEING_REMOVED)
        self.pending = deque(verdict for verdict in self.pending if verdict.id not in ids)


@dataclass(eq=False)
class Executor:
    """Executes the stages of one pass. Not for concurrent callers.

    `removals`: those of the node, by any pass; their clock and stop are the executor's too. `parallel`: removals side
    by side, at least 1; more if it is urgent. (A dry run, which relies on promised sizes, takes one at a time.)
    `btrfs`: a path on each btrfs of the node, which commits what was removed before a removal counts as ended: by
    itself it does so every 30 s, and shows until then that nothing was freed. `most`: how many removals of each stage
    may be begun; None: as many as needed. `gives_way`: whether another row of the same filesystem is waiting for this
    pass; a removal with its own patience, such as a program, is then parked at once. `brake`: a pause, or another
    configuration; it does not wait. `moved`: whether a filesystem of the pass is no longer where it was; it reads.
    `progress`: marked whenever a removal ends, and while one is within its own patience. `planned`: what a dry run
    would have removed so far. `seconds_left`: as measured last (`DiskState`). `began_at`: when the executor was
    created. `vain_waits`: how often in a row it waited for late space that did not come.
    """

    removals: Removals
    _: KW_ONLY
    parallel: int = 2
    dry_run: bool = False
    patience_seconds: float = PATIENCE_SECONDS
    btrfs: Sequence[str] = ()
    most: Callable[[], int | None] = lambda: None
    gives_way: Callable[[], bool] = lambda: False
    brake: Brake = lambda: None
    moved: Callable[[], bool] = lambda: False
    experience: Experience = field(default_factory=Experience)
    planned: tuple[Verdict, ...] = field(default=(), init=False)
    seconds_left: float = field(default=NEVER, init=False)

    def __post_init__(self) -> None:
        self.clock, self.stopping = self.removals.clock, self.removals.stopping
        self.parallel = 1 if self.dry_run else max(self.parallel, 1)
        self.began_at = self.clock.monotonic()
        self.progress = Progress(self.clock)
        self.vain_waits = 0

    @property
    def braked(self) -> Reason | None:
        """Why nothing more is begun, whatever the disk says; None if it may go on. A pause and another configuration do
        not stop a dry run."""
        if self.stopping.is_set():
            return Reason.STOPPING
        return None if self.dry_run else self.brake()

    def plan(self, what: str, stage: Stage) -> Work | None:
        """Has a stage plan. None: there is nothing to plan. Raises ReclaimError if it cannot plan, or hangs."""
        began = self.clock.monotonic()
        try:
            plan = self.removals.readings_of(what)(stage.plan, self.progress)
        except ReadingHangs as error:
            raise ReadingHangs(f"{what} cannot plan: {error}") from error
        return None if plan is None else Work(stage, plan, self.clock.monotonic() - began)

    def execute(self, works: Sequence[Work], measure: MeasureDisk) -> None:
        """Removes what the plans name until `measure` says that the disk is relieved. Several plans take turns; no
        object of one may depend on an object of another. Never raises because an object fails: each work holds its
        outcomes."""
        began = self.clock.monotonic()
        execution = _Execution(self, works, measure)
        try:
            execution.run()
        finally:
            while execution.in_flight:  # only after a bug: wait for what was sent all the same
                execution.next_outcome(self.patience_seconds)
        for work in works:
            work.seconds = self.clock.monotonic() - began
            self.planned += tuple(each.verdict for each in work.outcomes if each.result is Result.PLANNED)

    def remove(self, verdict: Verdict, stage: Stage) -> Outcome:
        """Removes a single object, for a caller that decides after each removal whether to continue.

        While the runtime is stuck or no thread is available, the outcome is UNANSWERED.
        """
        work = Work(stage, Plan((verdict,)))
        self.execute([work], never_relieved)
        if work.error and not work.outcomes:
            return Outcome(verdict, Result.UNANSWERED, work.error)
        return (*work.outcomes, *work.kept)[0]

    def patience(self, works: Sequence[Work], disk: DiskState) -> float:
        """How long to wait for a removal that was sent, in seconds."""
        own = [work.stage.patience_seconds for work in works if work.stage.patience_seconds is not None]
        if own:
            return 0.0 if self.gives_way() else max(own)
        urgent = disk.seconds_left < URGENT_SECONDS
        return min(self.patience_seconds, URGENT_PATIENCE_SECONDS if urgent else NEVER)

    def settle(self, measure: MeasureDisk) -> DiskState:
        """Watches the disk while late space still arrives: until nothing has risen for 0.25 s, the disk is relieved, or
        5 s have passed."""
        latest = best = measure(0)
        started = quiet_since = self.clock.monotonic()
        while latest.stop is None and not self.stopping.is_set():
            now = self.clock.monotonic()
            left = min(quiet_since + STILL_SECONDS, started + SETTLE_SECONDS) - now
            if left <= 0:
                break
            self.stopping.wait(min(STILL_SECONDS / 8, left))
            latest = measure(0)
            gained_bytes, gained_inodes = latest.gained_since(best)
            if gained_bytes > 0 or gained_inodes > 0:
                best, quiet_since = latest, self.clock.monotonic()
        return latest


class _Execution:
    """Plans being executed. `in_flight`: the removals it waits for, by id: being checked, or sent and not answered."""

    def __init__(self, executor: Executor, works: Sequence[Work], measure: MeasureDisk):
        self._executor = executor
        self._clock = executor.clock
        self._works = works
        self._measure = measure
        self.in_flight: dict[str, Removal] = {}
        self._ended: queue.SimpleQueue[tuple[Removal, Outcome]] = queue.SimpleQueue()
        self._work_of: dict[str, Work] = {}  # by id, of what was started
        self._assumed = 0  # bytes that a dry run has planned to free
        self._error = ""

    def run(self) -> None:
        for each in self._works:
            each.leave_out(self._executor.removals.ids)
        disk = before = self._now()  # before: when a removal last ended, so that each gets only its own space
        while True:
            while (work := self._next(disk)) is not None and self._begin(work):
                pass
            if not self.in_flight:
                break
            outcome = self.next_outcome(self._executor.patience(self._works, disk))
            if outcome is None:
                if any(work.stage.patience_seconds is not None for work in self._works):
                    self._executor.progress.mark()  # it is within its own time, after which it is parked
                disk = self._now()
            elif outcome.result in (None, Result.IN_USE):
                self._work_of[outcome.verdict.id].kept.append(outcome)
                if outcome.verdict.reason in BRAKES:
                    disk = self._now()
            else:
                disk = before = self._after(outcome, before)
        order = {object_id: number for number, object_id in enumerate(self._work_of)}
        for each in self._works:
            if each.stage.frees_late and any(outcome.result is Result.REMOVED for outcome in each.outcomes):
                disk = self._late_space(disk)
            each.outcomes.sort(key=lambda outcome: order[outcome.verdict.id])
            each.keep(each.pending, self._why_stopped(disk))
            each.relieved, each.error = self._executor.braked is not None or disk.stop is not None, self._error

    def _now(self) -> DiskState:
        disk = self._measure(self._assumed)
        self._executor.seconds_left = disk.seconds_left
        return disk

    def _next(self, disk: DiskState) -> Work | None:
        """The work whose next object is started; None: none for now, or none at all. Among several works, those whose
        objects promise a size get most of the turns: an object that promises nothing may free nothing, or much."""
        executor, most = self._executor, self._executor.most()
        left = [work for work in self._works if work.pending and (most is None or work.begun < most)]
        if not left or executor.braked is not None or self._error or disk.stop is not None:
            return None
        if executor.removals.stuck and not executor.dry_run:
            self._error = executor.removals.stuck_sentence
            return None
        if self.in_flight and not self._has_room(disk):
            return None
        promising = [work for work in left if work.promises]
        others = [work for work in left if not work.promises]
        take_others = not promising or (others and len(self._work_of) % TURNS == 0)
        return min(others if take_others else promising, key=lambda work: work.begun)

    def _has_room(self, disk: DiskState) -> bool:
        """Whether another removal may be started: what those in flight promise is not enough, and there are not too
        many of them. Parked removals are still in flight and count."""
        executor = self._executor
        bound = most_in_flight(executor.parallel) if disk.seconds_left < URGENT_SECONDS else executor.parallel
        bound -= 0 if executor.dry_run else len(executor.removals.parked)
        promised = sum(removal.verdict.promised_bytes for removal in self.in_flight.values())
        return len(self.in_flight) < bound and self._measure(self._assumed + promised).stop is None

    def _begin(self, work: Work) -> bool:
        """Starts to remove the next object of a work on a thread. Returns whether it could; without a thread, the next
        removal that ends makes room."""
        verdict, executor = work.pending[0], self._executor

        def remove(brake: Brake) -> Outcome:
            try:
                outcome = remove_one(
                    verdict,
                    work.stage,
                    self._clock,
                    executor.stopping,
                    dry_run=executor.dry_run,
                    moved=executor.moved,
                    brake=brake,
                )
                if outcome.result is Result.REMOVED:
                    for path in executor.btrfs:
                        commit_btrfs(path)
            except Exception as error:  # noqa: BLE001 # a bug in one removal must end as an outcome, not as a hang
                return Outcome(verdict, Result.FAILED, f"{type(error).__name__}: {error}")
            finally:
                executor.progress.mark()
            return outcome

        try:
            ended = lambda *which: self._ended.put(which)  # noqa: E731 # of whatever this execution waits for
            removal = executor.removals.begin(verdict, remove, ended, executor.brake)
        except NoThread as error:
            self._error = "" if self.in_flight else str(error)
            return False
        self.in_flight[verdict.id], self._work_of[verdict.id] = removal, work
        work.pending.popleft()
        work.begun += 1
        return True

    def next_outcome(self, patience_seconds: float) -> Outcome | None:
        """The outcome of the next removal that ends, or whose call stays unanswered for longer than the patience and is
        then parked. None: neither happened within `LOOK_SECONDS`."""
        due = min(removal.overdue_at(patience_seconds) for removal in self.in_flight.values())
        try:
            seconds = max(min(due - self._clock.monotonic(), LOOK_SECONDS), 0.001)
            removal, outcome = self._ended.get(timeout=seconds)
        except queue.Empty:
            parked = self._parked(patience_seconds)
            if parked is None:
                return None
            removal, outcome = parked
        del self.in_flight[removal.verdict.id]
        return outcome

    def _parked(self, patience_seconds: float) -> tuple[Removal, Outcome] | None:
        """One that is overdue and has not just ended."""
        now = self._clock.monotonic()
        for removal in self.in_flight.values():
            if removal.overdue_at(patience_seconds) <= now:
                outcome = self._executor.removals.park(removal)
                if outcome is not None:
                    return removal, outcome
        return None

    def _after(self, outcome: Outcome, before: DiskState) -> DiskState:
        """Records what one removal has freed; returns the disk as it is now."""
        executor, promised = self._executor, outcome.verdict.promised_bytes
        executor.progress.mark()
        if outcome.result is Result.PLANNED:
            self._assumed += promised
        elif outcome.result is Result.UNANSWERED:
            self._error = self._error or outcome.error
        disk = self._now()
        if outcome.result is Result.REMOVED:  # otherwise it was freed by something else
            gained, inodes = disk.gained_since(before)
            if disk.usage is not None and gained * 2 < promised and executor.vain_waits < VAIN_WAITS:
                disk, at_once = self._late_space(disk), gained
                gained, inodes = disk.gained_since(before)
                executor.vain_waits = 0 if gained > at_once else executor.vain_waits + 1
            outcome = replace(outcome, freed_bytes=max(gained, 0), freed_inodes=max(inodes, 0))
            if outcome.verdict.size_bytes:
                executor.experience.removed(outcome.duration_seconds)
        self._work_of[outcome.verdict.id].outcomes.append(outcome)
        return disk

    def _late_space(self, disk: DiskState) -> DiskState:
        """The disk once late space has arrived; immediately if it is urgent, relieved or not measured."""
        if disk.seconds_left < URGENT_SECONDS or disk.stop is not None or disk.usage is None:
            return disk
        return self._executor.settle(lambda _: self._now())

    def _why_stopped(self, disk: DiskState) -> Reason:
        if (braked := self._executor.braked) is not None:
            return braked
        if self._executor.removals.stuck and self._error:
            return Reason.RUNTIME_STUCK
        if self._error:
            return Reason.INCOMPLETE_LISTING
        return disk.stop or Reason.RELIEVED


def commit_btrfs(path: str) -> None:
    """Has the btrfs that a path is on commit its transaction, without data that is still to be written: some 5 ms. If
    it cannot, it commits as it would by itself."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            transaction = fcntl.ioctl(descriptor, BTRFS_IOC_START_SYNC, bytes(8))
            fcntl.ioctl(descriptor, BTRFS_IOC_WAIT_SYNC, transaction)
        finally:
            os.close(descriptor)


def result_of(operation: str, works: Sequence[Work]) -> ReclaimResult:
    """What these stages have done, in the order in which they were executed. An object that was tried again counts
    once, with its last outcome."""
    outcomes: dict[tuple[str, str], Outcome] = {}
    for outcome in (outcome for work in works for outcome in work.outcomes):
        tried = outcome.verdict.kind, outcome.verdict.id
        outcomes.pop(tried, None)
        outcomes[tried] = outcome
    waits = [work.plan.eligible_in_seconds for work in works]
    return ReclaimResult(
        operation,
        outcomes=tuple(outcomes.values()),
        kept=tuple(outcome for work in works for outcome in work.kept),
        relieved=any(work.relieved for work in works),
        eligible_in_seconds=min((wait for wait in waits if wait is not None), default=None),
        error=aggregate([work.error for work in works]),
        list_seconds=sum((work.plan.list_seconds for work in works), 0.0),
        plan_seconds=sum((work.plan_seconds - work.plan.list_seconds for work in works), 0.0),
        remove_seconds=sum((work.seconds for work in works), 0.0),
    )


def aggregate(errors: Sequence[str]) -> str:
    """Several errors as one text, as in Kubernetes: a single one as it is, several as a bracketed list, each once."""
    distinct = list(dict.fromkeys(error for error in errors if error))
    return distinct[0] if len(distinct) == 1 else f"[{', '.join(distinct)}]" if distinct else ""


def never_relieved(_assumed: int) -> DiskState:
    """Measures nothing and never says that the disk is relieved: for passes that run to their end."""
    return DiskState()
