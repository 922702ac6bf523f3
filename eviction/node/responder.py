"""One response to pressure: observe, decide, reclaim, observe again. Used by daemon, `reclaimd reclaim`, dry run, drill
and tests.

A pass calls every function of the row in order, as the kubelet does; an error of one does not stop the next. With
`extent: enough` it stops once every threshold that the function can relieve is clear with its minimum reclaim.
On a disk that is full within a minute, and unless `extent: all` is configured, it begins with the objects that need
nothing of each other, side by side (`reclaim.execution.side_by_side`), and goes on with the row if that is not enough.
A pass succeeds, as in the kubelet, when no configured threshold is met any more, minimum reclaim included and grace
periods ignored.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from eviction.configuration.effective import Extent
from eviction.decision.headroom import FillRates, faster, most_urgent_need, update_fill_rates
from eviction.decision.reclaim_table import functions_of
from eviction.decision.synchronize import EvictionConfig, ManagerState, synchronize
from eviction.decision.thresholds import thresholds_met, usable
from eviction.node.history import History, HistoryEntry
from eviction.node.jump import ask_again
from eviction.reporting.pass_record import Pass, PassResult, Timings, Trigger, freed_in_words
from eviction.types import Decision, Threshold
from reclaim.functions import Collector
from reclaim.types import DiskState, DiskVerdict, MeasureDisk, ReclaimResult, Result, Usage
from signals.clock import Clock
from signals.quantity import format_bytes
from signals.summary import SummaryProvider
from signals.types import FilesystemRole, FsLayout, Signal, SignalObservations

SETTLE_QUIET_SECONDS = 0.25
SETTLE_LIMIT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Request:
    """What a command asks for instead of the configured behaviour; None: as configured.

    `row`: call these functions whatever the pressure. `until`: thresholds to reach instead of the configured ones.
    """

    row: tuple[str, ...] | None = None
    until: tuple[Threshold, ...] | None = None
    extent: Extent | None = None


class Responder:
    """Observes one node and reclaims on it. For one thread at a time."""

    def __init__(
        self, summary: SummaryProvider, collector: Collector, config: EvictionConfig, clock: Clock, extent: Extent
    ):
        unknown = functions_of(config.reclaim_table) - collector.functions.keys()
        if unknown:
            raise ValueError(f"the reclaim table names functions that do not exist: {', '.join(sorted(unknown))}")
        self._summary = summary
        self._collector = collector
        self._clock = clock
        self._extent = extent
        self.state = ManagerState(config)
        self.fill_rates: FillRates = {}
        self.history = History()

    def set_config(self, config: EvictionConfig, extent: Extent) -> None:
        """Replaces the thresholds. The state of thresholds in both configurations is kept. Not while a pass runs."""
        self.state = replace(self.state, config=config)
        self._extent = extent

    def synchronize(self) -> tuple[SignalObservations, Decision]:
        """Observes the node and decides; remembers both in the history."""
        observations = self._summary.observe()
        before = self.state
        self.state, decision = synchronize(before, observations, observations.time)
        self.fill_rates = update_fill_rates(self.fill_rates, observations)
        observations = replace(observations, polls={})  # they are in the fill rates
        self.history.add(HistoryEntry(before, observations, decision))
        return observations, decision

    def reclaim(
        self, observations: SignalObservations, decision: Decision, trigger: Trigger, request: Request | None = None
    ) -> Pass:
        """Calls the functions of the row and observes again. Never raises for what the runtime or one object does."""
        request = request or Request()
        row = decision.row if request.row is None else request.row
        record = Pass(os.urandom(6).hex(), self._clock.wall(), trigger, observations, decision, row)
        record = replace(record, jumped_bytes=self._after_jump(observations, decision, request))
        began = self._clock.monotonic()
        before = usage_of(self._summary.observe())
        self._collector.start_row()
        functions = self._reclaim_row(row, observations.layout, request)
        after = self._settled(row, observations.layout, functions, request)
        gained_bytes, gained_inodes = usage_of(after).gained_since(before)
        record = replace(
            record,
            functions=tuple(functions),
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
        self.fill_rates = asked.fill_rates
        return asked.jumped_bytes

    def _reclaim_row(self, row: tuple[str, ...], layout: FsLayout | None, request: Request) -> list[ReclaimResult]:
        """Calls the functions of the row until the disk is relieved; one result for each that was called."""
        done = {result.operation: result for result in self._side_by_side(row, layout, request)}
        if any(self._stops_early(name, layout, request) and result.relieved for name, result in done.items()):
            return list(done.values())
        for function in row:
            measure = self._measure_for(function, layout, request)
            done[function] = self._collector.call(function, measure, done.get(function))
            if self._stops_early(function, layout, request) and done[function].relieved:
                break
        return list(done.values())

    def _side_by_side(
        self, row: tuple[str, ...], layout: FsLayout | None, request: Request
    ) -> tuple[ReclaimResult, ...]:
        """What the functions of the row that may go side by side have done so; nothing where there is time for the
        kubelet's order, or where they do not have the same thresholds to clear."""
        names = self._collector.leading(row)
        if self._extent is not Extent.ENOUGH or len(names) < 2:
            return ()
        if len({self._goal(name, layout, request) for name in names}) > 1:
            return ()
        measure = self._measure_for(names[0], layout, request)
        need = measure(0).need
        if need is None or not need.full_within_a_minute:
            return ()
        return self._collector.call_side_by_side(names, measure)

    def _stops_early(self, function: str, layout: FsLayout | None, request: Request) -> bool:
        goal = self._goal(function, layout, request)
        return (request.extent or self._extent) is Extent.ENOUGH and bool(goal)

    def _measure_for(self, function: str, layout: FsLayout | None, request: Request) -> MeasureDisk:
        stop = self._stops_early(function, layout, request)
        return self._measure(function, self._goal(function, layout, request), stop=stop)

    def _goal(self, function: str, layout: FsLayout | None, request: Request) -> tuple[Threshold, ...]:
        """The thresholds that have to be clear before this function may stop; empty: it never stops early."""
        if request.until is not None:
            return request.until
        if layout is None:
            return ()
        return self.state.config.relieved_by(function, layout)

    def _measure(self, name: str, goal: tuple[Threshold, ...], *, stop: bool) -> MeasureDisk:
        """Measures the disk between removals. `stop`: whether a disk on which the goal is reached is relieved."""
        function = self._collector.functions[name]
        freed = FilesystemRole(function.frees)
        begun: FillRates | None = None
        fill_rates = self.fill_rates
        # with `extent: all` the order of removals is the kubelet's, however fast the disk fills
        choice = function.order_by_need and self._extent is Extent.ENOUGH

        def measure(credit_bytes: int) -> DiskState:
            nonlocal begun, fill_rates
            observations = self._summary.observe()
            fill_rates = update_fill_rates(fill_rates, observations)
            begun = begun or fill_rates  # measured before the first removal: freed bytes hide a fill
            credited = _credited(observations, freed, credit_bytes)
            unmet = thresholds_met(goal, usable(credited.signals), enforce_min_reclaim=True)
            need = most_urgent_need(unmet, credited, faster(begun, fill_rates)) if choice and unmet else None
            verdict = DiskVerdict.GO_ON
            if stop and _has_stale_reading(goal, observations):
                verdict = DiskVerdict.UNREADABLE  # going on without a reading could remove everything
            elif stop and not unmet:
                verdict = DiskVerdict.RELIEVED
            return DiskState(usage_of(observations), verdict, need)

        return measure

    def _settled(
        self,
        row: tuple[str, ...],
        layout: FsLayout | None,
        functions: list[ReclaimResult],
        request: Request,
    ) -> SignalObservations:
        """The observations at the end, after waiting for space that the runtime frees late."""
        if any(function.count(Result.REMOVED) for function in functions):
            goal = self._goal(row[-1], layout, request)
            measure = self._measure(row[-1], goal, stop=True)
            self._collector.executor.settle(measure, SETTLE_QUIET_SECONDS, SETTLE_LIMIT_SECONDS)
        return self._summary.observe()

    def _still_met(self, after: SignalObservations, request: Request) -> tuple[Threshold, ...]:
        goal = self.state.config.in_layout(after.layout) if request.until is None else request.until
        return thresholds_met(goal, usable(after.signals), enforce_min_reclaim=True)


def with_result(record: Pass, *, dry_run: bool) -> Pass:
    """The record with its result and the reason in one sentence, which includes why it did not keep to the row, why
    images were removed by yield, and that there was a jump."""
    ended = _with_result(record, dry_run=dry_run)
    order = "" if record.order is None else record.order.sentence
    return replace(ended, reason="; ".join(filter(None, (ended.reason, record.side_by_side, order, record.jump))))


def _with_result(record: Pass, *, dry_run: bool) -> Pass:
    counts = {result: sum(f.count(result) for f in record.functions) for result in Result}
    gained = record.measured_bytes - record.written_bytes, record.measured_inodes - record.written_inodes
    removed = f"removed {counts[Result.REMOVED]} objects, {freed_in_words(*gained)}"
    if dry_run:
        errors = "; ".join(record.errors)
        if errors and not counts[Result.PLANNED]:
            return replace(record, result=PassResult.FAILED, reason=errors)
        planned = f"{counts[Result.PLANNED]} objects of nominally {format_bytes(record.nominal_bytes)}"
        acted_on = record.decision.acted_on
        # The runtime reports no inodes, so a dry run cannot tell how many removals would be enough.
        most = "at most " if acted_on is not None and acted_on.signal.counts_inodes else ""
        would = f"would remove {most}{planned}"
        reason = f"could not read everything: {errors}; of the rest it {would}" if errors else would
        return replace(record, result=PassResult.DRY_RUN, reason=reason)
    blind = _unreadable(record)
    if record.errors and record.decision.acted_on is None and not counts[Result.REMOVED]:
        # requested without pressure: that no threshold is met does not mean that the request succeeded
        return replace(record, result=PassResult.FAILED, reason="; ".join(record.errors))
    if not record.still_met and not blind:
        return replace(record, result=PassResult.SATISFIED, reason=f"{removed}; no threshold is met any more")
    if record.errors and not counts[Result.REMOVED]:
        return replace(record, result=PassResult.FAILED, reason="; ".join(record.errors))
    unmet = ", ".join([*(str(t.signal) for t in record.still_met), *(f"{signal} is not readable" for signal in blind)])
    because = "; ".join(record.errors) or _why_not_more(record)
    return replace(record, result=PassResult.NOT_ENOUGH, reason=f"{removed}; still under pressure: {unmet}; {because}")


def _unreadable(record: Pass) -> list[Signal]:
    """Signals without a usable reading at the end: stale, or missing although they were under pressure."""
    after = record.after.signals if record.after is not None else {}
    pressed = {threshold.signal for threshold in record.decision.thresholds_met}
    return [s for s in Signal if (s in pressed and s not in after) or (s in after and after[s].stale)]


def _why_not_more(record: Pass) -> str:
    if not record.row:
        return "nothing in this layout relieves it: its row of the reclaim table is empty"
    waits = [f.eligible_in_seconds for f in record.functions if f.eligible_in_seconds is not None]
    failed = sum(f.count(Result.FAILED) for f in record.functions)
    parked = sum(f.count(Result.PARKED) for f in record.functions)
    parts = [f"{failed} removals failed"] if failed else []
    parts += [f"{parked} removals are not answered, and are waited for"] if parked else []
    if waits:
        parts.append(f"the next object is old enough in {min(waits):.0f} s")
    return ", ".join(parts) or "everything else is in use or protected"


def _has_stale_reading(thresholds: tuple[Threshold, ...], observations: SignalObservations) -> bool:
    """Whether the signal of one of these thresholds could not be read just now."""
    signals = observations.signals
    return any(threshold.signal in signals and signals[threshold.signal].stale for threshold in thresholds)


def usage_of(observations: SignalObservations) -> Usage:
    """Available and free bytes and free inodes, summed over the distinct filesystems."""
    by_device = {identity.device_id: stats for identity, stats in observations.filesystems.values()}
    return Usage(
        sum(stats.available_bytes for stats in by_device.values()),
        sum(stats.free_bytes for stats in by_device.values()),
        sum(stats.inodes_free for stats in by_device.values()),
    )


def _credited(observations: SignalObservations, role: FilesystemRole, credit_bytes: int) -> SignalObservations:
    """The observations as they would be with so many bytes more available on the filesystem of this role."""
    if not credit_bytes or role not in observations.filesystems:
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
