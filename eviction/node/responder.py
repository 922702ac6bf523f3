"""One response to pressure: observe, decide, reclaim, observe again. Used by daemon, `reclaimd reclaim`, dry run, drill
and tests.

A pass calls every function of the row in order, as the kubelet does; an error of one does not stop the next. With
`extent: enough` it stops once every threshold that the function can relieve is clear with its minimum reclaim.
On a disk that is full within a minute, and unless `extent: all` is configured, it begins with the objects that need
nothing of each other, side by side (`reclaim.execution.side_by_side`), and goes on with the row if that is not enough.
Where a filesystem under pressure is XFS, it gives back what it allocated ahead before any list is asked from the
runtime, and again between removals (`node.giving_back`).
How it ended is in `node.pass_result`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import takewhile

from eviction.configuration.effective import Extent
from eviction.decision.headroom import (
    FillRates,
    faster,
    met_soon_in_a_hurry,
    most_urgent_need,
    newest,
    update_fill_rates,
)
from eviction.decision.reclaim_table import (
    DELETE_ALL_UNUSED_CONTAINERS,
    DELETE_UNUSED_IMAGES,
    RELEASE_SPECULATIVE_PREALLOCATION,
)
from eviction.decision.synchronize import EvictionConfig, ManagerState, synchronize
from eviction.decision.thresholds import thresholds_met, usable
from eviction.node.giving_back import GivingBack, usage_of, xfs_mount_points
from eviction.node.history import History, HistoryEntry
from eviction.node.jump import ask_again
from eviction.node.pass_result import with_result
from eviction.reporting.pass_record import Pass, Timings, Trigger
from eviction.types import Decision, Threshold
from reclaim.functions import Collector
from reclaim.released import Released
from reclaim.types import DiskState, DiskVerdict, MeasureDisk, ReclaimResult, Result
from reclaim.xfs.release import PreallocationRelease
from signals.clock import Clock
from signals.types import FilesystemRole, SignalObservations, SummaryProvider

SETTLE_QUIET_SECONDS = 0.25
SETTLE_LIMIT_SECONDS = 5.0


BeginPass = Callable[[str, Threshold | None, tuple[Threshold, ...]], None]
"""Called when a pass begins: its id, the threshold that it acts on, and what it has to clear."""


@dataclass(frozen=True, slots=True)
class Request:
    """What a command asks for instead of the configured behaviour; None: as configured.

    `row`: call these functions whatever the pressure. `until`: thresholds to reach instead of the configured ones.
    `every_function`: also those that wait for a lower mark, to show what they would remove.
    """

    row: tuple[str, ...] | None = None
    until: tuple[Threshold, ...] | None = None
    extent: Extent | None = None
    every_function: bool = False


class Responder:
    """Observes one node and reclaims on it: `synchronize` for one thread at a time, and `reclaim` for one.

    `fill_rates`: written by `synchronize` alone; a pass that reads more often goes on from them for itself.
    """

    def __init__(
        self,
        summary: SummaryProvider,
        collector: Collector,
        config: EvictionConfig,
        clock: Clock,
        extent: Extent,
        release: PreallocationRelease | None = None,
        begin_pass: BeginPass = lambda *_: None,
    ):
        unknown = config.functions - collector.functions.keys()
        if unknown:
            raise ValueError(f"the reclaim table names functions that do not exist: {', '.join(sorted(unknown))}")
        self._summary = summary
        self._collector = collector
        self._clock = clock
        self._extent = extent
        self._release = release
        self._begin_pass = begin_pass
        self._giving_back = GivingBack(None, summary.observe)
        self.state = ManagerState(config)
        self.fill_rates: FillRates = {}
        self._asked_again: FillRates = {}  # those of the present pass, where a jump was asked about
        self.history = History()

    def set_config(self, config: EvictionConfig, extent: Extent) -> None:
        """Replaces the thresholds. The state of thresholds in both configurations is kept. Not while a pass runs."""
        self.state = replace(self.state, config=config)
        self._extent = extent

    def functions_here(self, observations: SignalObservations) -> tuple[str, ...]:
        """All functions that rows name and that have something to do on these filesystems."""
        xfs = self.state.config.on_xfs(observations)
        names = self._collector.functions
        away = {RELEASE_SPECULATIVE_PREALLOCATION} if not xfs else set()
        if observations.layout is None:
            away |= {DELETE_ALL_UNUSED_CONTAINERS, DELETE_UNUSED_IMAGES}
        return tuple(name for name in names if name in self.state.config.functions and name not in away)

    def synchronize(self) -> tuple[SignalObservations, Decision]:
        """Observes the node and decides; remembers both in the history."""
        observations = self._summary.observe()
        before = self.state
        self.state, decision = synchronize(before, observations, observations.time)
        self.fill_rates = update_fill_rates(self.fill_rates, observations)
        observations = replace(observations, polls={})  # they are in the fill rates
        self.history.add(HistoryEntry(before, observations, decision))
        return observations, decision

    def hurries_within(self, seconds: float, observations: SignalObservations) -> bool:
        """Whether a pass may begin within so many seconds that lists what the runtime has on a disk that fills fast."""
        config = self.state.config
        thresholds = config.in_layout(observations.layout)
        return self._extent is Extent.ENOUGH and any(
            threshold.hard
            and len(self._leading(config.row(threshold.signal, observations), observations, Request())) > 1
            for threshold in met_soon_in_a_hurry(thresholds, observations, self.fill_rates, seconds)
        )

    def reclaim(
        self, observations: SignalObservations, decision: Decision, trigger: Trigger, request: Request | None = None
    ) -> Pass:
        """Calls the functions of the row and observes again. Never raises for what the runtime or one object does."""
        request = request or Request()
        row = decision.row if request.row is None else request.row
        record = Pass(os.urandom(6).hex(), self._clock.wall(), trigger, observations, decision, row)
        gives_back = RELEASE_SPECULATIVE_PREALLOCATION in row
        jumped = 0 if gives_back else self._after_jump(observations, decision, request)
        began = self._clock.monotonic()
        before = usage_of(self._summary.observe())
        self._giving_back = self._giving_back_in(row)
        self._collector.start_row()
        self._begin_pass(
            record.id, decision.acted_on if request.row is None else None, self._whole_goal(row, observations, request)
        )
        given = [self._give_back(observations, request)] if gives_back else []
        functions = given
        if not any(each.relieved and self._stops_early(each.operation, observations, request) for each in given):
            jumped = self._after_jump(observations, decision, request) if gives_back else jumped
            functions = [*given, *self._remove(row, observations, request)]
        if given and not self._collector.executor.dry_run:
            functions[0] = replace(given[0], released=self._giving_back.released)
        after = self._settled(row, observations, functions, request)
        gained_bytes, gained_inodes = usage_of(after).gained_since(before)
        record = replace(
            record,
            functions=tuple(functions),
            jumped_bytes=jumped,
            measured_bytes=max(gained_bytes, 0),
            measured_inodes=max(gained_inodes, 0),
            written_bytes=max(-gained_bytes, 0),
            written_inodes=max(-gained_inodes, 0),
            after=after,
            still_met=self._still_met(after, request),
            timings=_timings(observations, began, self._clock.monotonic(), functions),
        )
        return with_result(record, dry_run=self._collector.executor.dry_run)

    def _after_jump(self, observations: SignalObservations, decision: Decision, request: Request) -> int:
        """Asks the disk again if the threshold was crossed by a jump (`eviction.node.jump`): the bytes of a jump that
        decided something. Not for what is requested, nor where the pass goes to the end of the row, nor a dry run."""
        executor = self._collector.executor
        if decision.acted_on is None or request != Request() or self._extent is not Extent.ENOUGH or executor.dry_run:
            return 0
        asked = ask_again(decision.acted_on, observations, self.fill_rates, self._summary, executor.stopping)
        self._asked_again = asked.fill_rates
        return asked.jumped_bytes

    def _giving_back_in(self, row: tuple[str, ...]) -> GivingBack:
        """What gives back in this pass: nothing in one whose row does not say so, and nothing in a dry run."""
        wanted = RELEASE_SPECULATIVE_PREALLOCATION in row and not self._collector.executor.dry_run
        return GivingBack(self._release if wanted else None, self._summary.observe)

    def _give_back(self, observations: SignalObservations, request: Request) -> ReclaimResult:
        """Has XFS give back what it allocated ahead: on the filesystems of the thresholds that are met, or, in a pass
        without one, on all. A dry run only says where."""
        name = RELEASE_SPECULATIVE_PREALLOCATION
        goal, began, now = self._goal(name, observations, request), self._clock.monotonic(), self._summary.observe()
        unmet = thresholds_met(goal, usable(now.signals), enforce_min_reclaim=True)
        mount_points = xfs_mount_points(now, [t.signal for t in unmet] or now.signals)
        if self._collector.executor.dry_run:
            return ReclaimResult(name, released=Released(mount_points=mount_points))
        after = self._giving_back.begin(now, mount_points, update_fill_rates(self._rates, now))
        relieved = not thresholds_met(goal, usable(after.signals), enforce_min_reclaim=True)
        seconds = self._clock.monotonic() - began
        stale = _has_stale_reading(goal, after)
        return ReclaimResult(name, relieved=relieved and not stale and bool(goal), remove_seconds=seconds)

    def _remove(self, row: tuple[str, ...], observations: SignalObservations, request: Request) -> list[ReclaimResult]:
        """Calls the functions of the row that remove until the disk is relieved; one result for each that it called."""
        row = tuple(name for name in row if name != RELEASE_SPECULATIVE_PREALLOCATION)
        done = {result.operation: result for result in self._side_by_side(row, observations, request)}
        if any(self._stops_early(name, observations, request) and result.relieved for name, result in done.items()):
            return list(done.values())
        for function in row:
            waits = self._waits(function, observations, request)
            skipped = self._skipped(function, observations) if waits else ""
            if skipped:
                done[function] = ReclaimResult(function, skipped=skipped)
                continue
            measure = self._measure_for(function, observations, request)
            done[function] = self._collector.call(function, measure, done.get(function))
            # one that waits for a lower mark is relieved there, which the thresholds may not be
            if not waits and self._stops_early(function, observations, request) and done[function].relieved:
                break
        return list(done.values())

    def _whole_goal(
        self, row: tuple[str, ...], observations: SignalObservations, request: Request
    ) -> tuple[Threshold, ...]:
        """What a requested pass has to clear: its own mark, else the thresholds of its row."""
        goals = (self._goal(name, observations, request) for name in row)
        return tuple(dict.fromkeys(threshold for goal in goals for threshold in goal))

    def _waits(self, function: str, observations: SignalObservations, request: Request) -> bool:
        """Whether this function is called only below a mark of its own, in this pass."""
        return not request.every_function and self.state.config.waits(function, observations)

    def _skipped(self, function: str, observations: SignalObservations) -> str:
        """Why a function that waits for a lower mark is not called yet; empty: it may be."""
        goal, now = self.state.config.goal(function, observations), self._summary.observe()
        if thresholds_met(goal, usable(now.signals), enforce_min_reclaim=True):
            return ""
        return f"{', '.join(f'{one.signal} is not below {one.value}' for one in goal)}"

    def _side_by_side(
        self, row: tuple[str, ...], observations: SignalObservations, request: Request
    ) -> tuple[ReclaimResult, ...]:
        """What the functions of the row that may go side by side have done so; nothing where there is time for the
        kubelet's order, or where they do not have the same thresholds to clear."""
        names = self._leading(row, observations, request)
        if self._extent is not Extent.ENOUGH or len(names) < 2:
            return ()
        if len({self._goal(name, observations, request) for name in names}) > 1:
            return ()
        measure = self._measure_for(names[0], observations, request)
        need = measure(0).need
        if need is None or not need.full_within_a_minute:
            return ()
        return self._collector.call_side_by_side(names, measure)

    def _leading(self, row: tuple[str, ...], observations: SignalObservations, request: Request) -> tuple[str, ...]:
        """The functions that remove with which the row begins and that may go side by side."""
        removing = (name for name in row if name != RELEASE_SPECULATIVE_PREALLOCATION)
        return self._collector.leading(
            tuple(takewhile(lambda name: not self._waits(name, observations, request), removing))
        )

    def _stops_early(self, function: str, observations: SignalObservations, request: Request) -> bool:
        goal = self._goal(function, observations, request)
        if self._waits(function, observations, request):
            return True
        return (request.extent or self._extent) is Extent.ENOUGH and bool(goal)

    def _measure_for(self, function: str, observations: SignalObservations, request: Request) -> MeasureDisk:
        stop = self._stops_early(function, observations, request)
        return self._measure(function, self._goal(function, observations, request), stop=stop)

    def _goal(self, function: str, observations: SignalObservations, request: Request) -> tuple[Threshold, ...]:
        """The thresholds that have to be clear before this function may stop; empty: it never stops early."""
        if request.until is not None and not self._waits(function, observations, request):
            return request.until
        return self.state.config.goal(function, observations)

    @property
    def _rates(self) -> FillRates:
        """The fill rates as they are known to the present pass."""
        return newest(self._asked_again, self.fill_rates)

    def _measure(self, name: str, goal: tuple[Threshold, ...], *, stop: bool) -> MeasureDisk:
        """Measures the disk between removals. `stop`: whether a disk on which the goal is reached is relieved."""
        function = self._collector.functions[name]
        freed = None if function.frees is None else FilesystemRole(function.frees)
        giving_back = self._giving_back
        begun = giving_back.rates_before
        fill_rates = self._rates
        # with `extent: all` the order of removals is the kubelet's, however fast the disk fills
        choice = self._extent is Extent.ENOUGH

        def met_with(
            observations: SignalObservations, credit_bytes: int
        ) -> tuple[SignalObservations, tuple[Threshold, ...]]:
            credited = _credited(observations, freed, credit_bytes)
            return credited, thresholds_met(goal, usable(credited.signals), enforce_min_reclaim=True)

        def measure(credit_bytes: int) -> DiskState:
            nonlocal begun, fill_rates
            observations = self._summary.observe()
            fill_rates = update_fill_rates(fill_rates, observations)
            begun = begun or fill_rates  # measured before the first removal: freed bytes hide a fill
            credited, unmet = met_with(observations, credit_bytes)
            if unmet and giving_back.may_help(observations, unmet):
                observations = giving_back.again(observations, unmet)
                credited, unmet = met_with(observations, credit_bytes)
            need = most_urgent_need(unmet, credited, faster(begun, fill_rates)) if choice and unmet else None
            verdict = DiskVerdict.GO_ON
            if stop and _has_stale_reading(goal, observations):
                verdict = DiskVerdict.UNREADABLE  # going on without a reading could remove everything
            elif stop and not unmet:
                verdict = DiskVerdict.RELIEVED
            return DiskState(giving_back.without(usage_of(observations)), verdict, need)

        return measure

    def _settled(
        self,
        row: tuple[str, ...],
        observations: SignalObservations,
        functions: list[ReclaimResult],
        request: Request,
    ) -> SignalObservations:
        """The observations at the end, after waiting for space that the runtime frees late."""
        if any(function.count(Result.REMOVED) for function in functions):
            called = [name for name in row if not self._waits(name, observations, request)] or [row[-1]]
            measure = self._measure(called[-1], self._goal(called[-1], observations, request), stop=True)
            self._collector.executor.settle(measure, SETTLE_QUIET_SECONDS, SETTLE_LIMIT_SECONDS)
        return self._summary.observe()

    def _still_met(self, after: SignalObservations, request: Request) -> tuple[Threshold, ...]:
        goal = self.state.config.in_layout(after.layout) if request.until is None else request.until
        return thresholds_met(goal, usable(after.signals), enforce_min_reclaim=True)


def _has_stale_reading(thresholds: tuple[Threshold, ...], observations: SignalObservations) -> bool:
    """Whether the signal of one of these thresholds could not be read just now."""
    signals = observations.signals
    return any(threshold.signal in signals and signals[threshold.signal].stale for threshold in thresholds)


def _credited(observations: SignalObservations, role: FilesystemRole | None, credit_bytes: int) -> SignalObservations:
    """The observations as they would be with so many bytes more available on the filesystem of this role."""
    if not credit_bytes or role is None or role not in observations.filesystems:
        return observations
    device = observations.filesystems[role][0].device_id
    signals = {
        signal: replace(observation, available=observation.available + credit_bytes)
        if not signal.counts_inodes
        and observation.filesystem is not None
        and observation.filesystem.device_id == device
        else observation
        for signal, observation in observations.signals.items()
    }
    return replace(observations, signals=signals)


def _timings(observations: SignalObservations, began: float, ended: float, functions: list[ReclaimResult]) -> Timings:
    def total(name: str) -> float:
        return float(sum(getattr(function, name) for function in functions))

    return Timings(
        detect_seconds=max(began - observations.time, 0.0),
        list_seconds=total("list_seconds"),
        plan_seconds=total("plan_seconds"),
        remove_seconds=total("remove_seconds"),
        total_seconds=ended - began,
    )
