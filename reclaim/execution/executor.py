"""Carries out a plan: look again, remove, verify, measure, stop when relieved.

* After every removal the filesystem is measured. Once what was to be relieved is relieved nothing more is started.
* Removals run side by side up to a bound, but none is started that the ones in flight may make needless. The first
  goes alone: it shows what a byte that the runtime promises is worth (containerd frees about twice its figure, an
  image that shares its layers less).
* On a disk whose bytes are gone within a minute the bound is wider (`need`), and what is written while a removal goes
  on has to come free as well. There the first does not go alone: a promised byte is taken to free what it freed in
  earlier plans, and where there was none, four: a compressed layer, and what was unpacked from it.
* A removal that was sent is never cancelled: not on relief, not on a stop. An interrupted RemoveImage can leave a
  record behind that pins its bytes for ever. The ones in flight finish.
* A remover may ask to wait before an object is looked at again (a pod is being made). A stop ends the wait.
* Removed is what is absent when asked afterwards; what the call answered does not count.
* Space may come late. Where the filesystem shows less than the runtime had promised, it is watched for a short while
  before the next object goes; where such waits bring nothing, they are given up for the rest of the plan. What came
  ahead of the answer of one in flight (containerd frees for several in one pass) is not waited for again. The watch
  is longer where not a byte has come yet and nobody writes: some runtimes answer before they free.
  What the runtime gives no size for (containers) is waited for once, at the end, and only while nobody else writes:
  what comes late is worth waiting for on a disk that stands still, not on one that fills.
* Where the disk fills faster than the order of the plan makes room, the largest yield goes next (`yield_order`).
* After a removal that took far longer than usual nothing is sent for a while (`removal_pace`).
* A dry run is this path minus the one call: what would go is credited with its nominal size instead.

Covers: order, bounds, stopping, measuring. Does not cover: which objects (`*_gc`), whether one may go now
(`removers`).
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

from reclaim.clock import Clock
from reclaim.containers.removers import Ready, Refused, Remover, Wait
from reclaim.disk_need import Need
from reclaim.execution.slow_removals import RemovalPace
from reclaim.images.removal_order import YieldOrder
from reclaim.types import (
    Action,
    Kind,
    Look,
    Outcome,
    Plan,
    Reason,
    RemovalFailed,
    Result,
    Rule,
    RuntimeUnavailable,
    Verdict,
)

CHECK_ATTEMPTS = 5
LATE_QUIET_SECONDS = 0.02  # no rise for so long: nothing more is coming for now
LATE_LIMIT_SECONDS = 0.5  # at most so long between two removals
STILL_SECONDS = 0.25  # how long a disk that stands still is watched at the end of a plan
STILL_BYTES = 256 * 1024  # a loss of more than this is somebody writing
LATE_POLL_SECONDS = 0.002
FREED_LATE = (Kind.CONTAINER, Kind.SANDBOX)  # by a runtime, when it likes, and without a size before
MOST_WORTH = 4  # bytes that a promised one may free, before any removal has shown it
FRUITLESS_WAITS = 2  # after so many waits that brought nothing the runtime is taken to free before it answers

LookAgain = Callable[[int], Look]
"""Looks at the disk; the argument is a credit in bytes: what would be free besides (a dry run, removals in flight)."""


@dataclass(frozen=True, slots=True)
class Carried:
    """What became of a plan. `error` says why the rest was not attempted, if it was cut short by a failure."""

    outcomes: tuple[Outcome, ...]
    kept: tuple[Outcome, ...]
    relieved: bool
    error: str = ""


class Executor:
    """Carries out plans, one at a time.

    `parallel`: removals side by side, at least 1, more in a hurry (a dry run, which goes by nominal sizes, takes one
    after another).
    `stopping`: set when nothing new may start. `in_flight`: removals that were sent and have not been answered.
    """

    def __init__(self, clock: Clock, stopping: threading.Event, *, parallel: int = 2, dry_run: bool = False):
        self.clock = clock
        self.stopping = stopping
        self.parallel = 1 if dry_run else max(parallel, 1)
        self.dry_run = dry_run
        self.in_flight: dict[str, Verdict] = {}
        self.pace = RemovalPace()

    def carry_out(self, plan: Plan, remover: Remover, look: LookAgain, order: YieldOrder | None = None) -> Carried:
        """Removes what the plan names, in its order or as `order` says, until `look` says that it is relieved.

        Never raises for one object that fails.
        """
        return _Run(self, plan, remover, look, order).run()

    def settle(self, look: LookAgain, quiet_seconds: float, limit_seconds: float, *, while_still: bool = False) -> Look:
        """Watches the disk while late space still arrives: until nothing rose for `quiet_seconds`, it is relieved, or
        `limit_seconds` have passed; with `while_still` also until somebody writes."""
        latest = look(0)
        best = latest.usage
        began = quiet_since = self.clock.monotonic()
        while not latest.relieved and not self.stopping.is_set():
            now = self.clock.monotonic()
            if now - quiet_since >= quiet_seconds or now - began >= limit_seconds:
                break
            self.stopping.wait(LATE_POLL_SECONDS)
            latest = look(0)
            gained_bytes, gained_inodes = latest.usage.gained_since(best)
            if while_still and gained_bytes < -STILL_BYTES:
                break
            if gained_bytes > 0 or gained_inodes > 0:
                best, quiet_since = latest.usage, self.clock.monotonic()
        return latest


def remove_one(
    verdict: Verdict, remover: Remover, clock: Clock, stopping: threading.Event, *, dry_run: bool
) -> Outcome:
    """One object: look again, the one call, and ask whether it is gone."""
    started = clock.monotonic()

    def outcome(result: Result | None, error: str = "") -> Outcome:
        return Outcome(verdict, result, error, clock.monotonic() - started)

    try:
        refused = _refusal(verdict, remover, clock, stopping)
    except RuntimeUnavailable as error:
        return outcome(Result.UNANSWERED, str(error))
    if refused is not None:
        kept = verdict
        if refused.reason is not None:
            kept = replace(verdict, action=Action.KEEP, reason=refused.reason, eligible_in_seconds=None)
        return replace(outcome(refused.result), verdict=kept)
    if dry_run:
        return outcome(Result.PLANNED)
    failure, was_there = "", True
    try:
        was_there = remover.remove(verdict)
    except RemovalFailed as error:
        failure = str(error)
    try:
        if remover.present(verdict):
            failed = outcome(Result.FAILED, failure or "the runtime reported success but still has it")
            return replace(failed, may_have_gone=not failure)
    except RuntimeUnavailable as error:
        return replace(outcome(Result.UNANSWERED, failure or str(error)), may_have_gone=True)
    return outcome(Result.REMOVED if was_there else Result.ALREADY_GONE, failure)


def _refusal(verdict: Verdict, remover: Remover, clock: Clock, stopping: threading.Event) -> Refused | None:
    """None when the object may go now. Raises RuntimeUnavailable."""
    attempts = 0
    while attempts < CHECK_ATTEMPTS:
        answer = remover.check(verdict)
        match answer:
            case Refused():
                return answer
            case Wait():
                if stopping.wait(answer.seconds):
                    return Refused(Reason.STOPPING)
            case Ready():
                if clock.monotonic() - answer.checked_at <= remover.fresh_seconds:
                    return None
                attempts += 1
    raise RuntimeUnavailable(
        f"no look at it was fresher than {remover.fresh_seconds:g} s when the removal was to be sent"
    )


@dataclass(slots=True)
class _Worth:
    """What a promised byte has freed so far in this plan."""

    promised: int = 0
    gained: int = 0

    @property
    def known(self) -> bool:
        return self.promised > 0

    def learn(self, promised: int, gained: int) -> None:
        self.promised += promised
        self.gained += max(gained, 0)

    def of(self, promised: int) -> int:
        return promised * self.gained // self.promised if self.known else promised


class _Run:
    """One plan being carried out."""

    def __init__(self, executor: Executor, plan: Plan, remover: Remover, look: LookAgain, order: YieldOrder | None):
        self._executor = executor
        self._remover = remover
        self._look = look
        self._pending = deque(plan.remove)
        self._order = order
        self._turns: dict[str, int] = {}
        self._kept = [Outcome(verdict) for verdict in plan.keep]
        self._outcomes: list[Outcome] = []
        self._done: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
        self._credit = 0
        self._worth = _Worth()
        self._fruitless = 0
        self._ahead = 0  # bytes that came with an earlier answer and belong to removals in flight
        self._error = ""

    def run(self) -> Carried:
        try:
            return self._run()
        finally:
            while self._executor.in_flight:  # only after a defect: what was sent is waited for all the same
                self._executor.in_flight.pop(self._done.get().verdict.id, None)

    def _run(self) -> Carried:
        before = self._look(0)
        while True:
            self._launch(before)
            if not self._executor.in_flight:
                break
            outcome = self._done.get()
            del self._executor.in_flight[outcome.verdict.id]
            before = self._rested(outcome, self._account(outcome, before))
        if any(o.result is Result.REMOVED and o.verdict.kind in FREED_LATE for o in self._outcomes):
            before = self._executor.settle(self._look, STILL_SECONDS, LATE_LIMIT_SECONDS, while_still=True)
        reason = self._why_stopped(before)
        self._kept += [
            Outcome(replace(verdict, action=Action.KEEP, reason=reason, eligible_in_seconds=None, rule=Rule.GUARD))
            for verdict in self._pending
        ]
        self._outcomes.sort(key=lambda outcome: self._turns[outcome.verdict.id])
        return Carried(tuple(self._outcomes), tuple(self._kept), before.relieved, self._error)

    def _launch(self, latest: Look) -> None:
        executor = self._executor
        bound = executor.parallel if latest.need is None else latest.need.side_by_side(executor.parallel)
        while self._pending and len(executor.in_flight) < bound and self._more_is_needed(latest):
            place = 0 if self._order is None else self._order.next_of(self._pending, latest.need)
            verdict = self._pending[place]
            del self._pending[place]
            self._turns[verdict.id] = len(self._turns)
            executor.in_flight[verdict.id] = verdict
            threading.Thread(target=self._work, args=(verdict,), name=f"remove {verdict.kind}", daemon=True).start()

    def _work(self, verdict: Verdict) -> None:
        executor = self._executor
        try:
            outcome = remove_one(verdict, self._remover, executor.clock, executor.stopping, dry_run=executor.dry_run)
        except Exception as error:  # noqa: BLE001 # a defect in one removal must end as an outcome, not as a hang
            outcome = Outcome(verdict, Result.FAILED, f"{type(error).__name__}: {error}")
        self._done.put(outcome)

    def _more_is_needed(self, latest: Look) -> bool:
        if self._executor.stopping.is_set() or self._error:
            return False
        if latest.relieved:
            return False
        if not self._executor.in_flight:
            return True
        in_flight = self._executor.in_flight.values()
        promised, need = sum(verdict.size_bytes or 0 for verdict in in_flight), latest.need
        if promised and not self._worth.known and not (need is not None and need.hurry):
            return False
        if need is not None and need.inodes and self._order is not None:
            brings = self._order.experience.brings
            if sum(brings(verdict, inodes=True) for verdict in in_flight) >= need.missing:
                return False
        # what shared layers kept back so far may come with the next: at least what was promised is on its way
        under_way = max(self._worth_of(promised), promised) - self._filled_meanwhile(need)
        return not self._look(self._credit + under_way).relieved

    def _worth_of(self, promised: int) -> int:
        """Bytes that what was promised will free: as in this plan, else as in earlier ones, else the most there is."""
        if self._worth.known:
            return self._worth.of(promised)
        if self._order is not None and self._order.experience.known:
            return int(promised * self._order.experience.worth)
        return promised * MOST_WORTH

    def _filled_meanwhile(self, need: Need | None) -> int:
        """Bytes that are written in a hurry while one removal goes on."""
        if need is None or not need.hurry or self._order is None:
            return 0
        return int(need.fill_per_second * self._order.experience.seconds_each)

    def _account(self, outcome: Outcome, before: Look) -> Look:
        match outcome.result:
            case None | Result.IN_USE:
                self._kept.append(outcome)
                return before
            case Result.PLANNED:
                self._credit += outcome.verdict.size_bytes or 0
                self._outcomes.append(outcome)
                return self._look(self._credit)
            case Result.UNANSWERED:
                self._error = self._error or outcome.error
            case Result.REMOVED | Result.ALREADY_GONE | Result.FAILED:
                pass
        after = self._look(self._credit)
        if outcome.result is not Result.REMOVED:  # what others freed is not ours
            self._outcomes.append(outcome)
            return after
        size_bytes = outcome.verdict.size_bytes or 0
        after = self._wait_for_late_space(before, after, size_bytes)
        gained_bytes, gained_inodes = after.usage.gained_since(before.usage)
        self._learn(size_bytes, gained_bytes)
        outcome = replace(outcome, freed_bytes=max(gained_bytes, 0), freed_inodes=max(gained_inodes, 0))
        self._outcomes.append(outcome)
        if self._order is not None:
            self._order.learn(outcome)
        return after

    def _learn(self, promised: int, gained: int) -> None:
        """What this removal was worth; what came beyond that is of those in flight, up to what they are worth."""
        have = self._ahead + max(gained, 0)
        in_flight = sum(verdict.size_bytes or 0 for verdict in self._executor.in_flight.values())
        self._ahead = min(max(have - self._worth.of(promised), 0), self._worth.of(in_flight))
        self._worth.learn(promised, have - self._ahead)

    def _rested(self, outcome: Outcome, latest: Look) -> Look:
        """The disk after the rest that a slow removal asks for; a stop ends it."""
        seconds = self._executor.pace.rest_after(outcome)
        if not seconds or not self._pending or latest.relieved:
            return latest
        self._executor.stopping.wait(seconds)
        return self._look(self._credit)

    def _wait_for_late_space(self, before: Look, after: Look, nominal_bytes: int) -> Look:
        gained, _ = after.usage.gained_since(before.usage)
        if after.relieved or self._fruitless >= FRUITLESS_WAITS or (gained + self._ahead) * 2 >= nominal_bytes:
            return after
        if gained > 0:
            later = self._executor.settle(self._look, LATE_QUIET_SECONDS, LATE_LIMIT_SECONDS)
        else:  # not a byte yet: a runtime that frees after its answer (containerd 2.0.0 to 2.0.4)
            later = self._executor.settle(self._look, STILL_SECONDS, LATE_LIMIT_SECONDS, while_still=True)
        late, _ = later.usage.gained_since(after.usage)
        self._fruitless = self._fruitless + 1 if late * 4 < nominal_bytes - gained else 0
        return later

    def _why_stopped(self, latest: Look) -> Reason:
        if self._executor.stopping.is_set():
            return Reason.STOPPING
        if self._error:
            return Reason.INCOMPLETE_LISTING
        return Reason.UNREADABLE if latest.blind else Reason.RELIEVED
