"""One pass over a row of the reclaim table: measure; relieved? next candidate; check; send; measure.

A pass is an object that is made once and knows its row, what each function has to clear, how far it goes, and what it
is about. It calls the functions of the row in order, as the kubelet does; an error in one does not stop the next. With
`extent: enough` it stops once every threshold that the function can relieve is clear, minimum reclaim included. When it
is urgent, the pass begins with the functions whose objects do not depend on each other, side by side, and continues
with the row if that is not enough. What goes only as a last resort comes after the row, and only if everything else is
gone or must stay: after an error, or while a removal is not answered, it is not known that nothing else is enough. The
loop over candidates is in `reclaim.execution.executor`; how a pass ended is in `eviction.record`.

A pass removes by one configuration and in one layout: once another is loaded, or a filesystem is no longer where it was
when the pass began, it ends, and the next one decides anew. So it does if removals are paused.

A pass that the lead began (`eviction.decision.headroom`) removes one object of each function while its mark is not
reached, and ends when it is no longer urgent. Once the mark of the threshold that began it is reached, it is a pass
like any other; another threshold may be met all the while, in its grace period.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import TYPE_CHECKING

from eviction.decision.headroom import faster, update_fill_rates, urgency
from eviction.decision.synchronize import EvictionConfig
from eviction.decision.thresholds import thresholds_met
from eviction.record import Pass, Timings, Trigger, with_result
from eviction.types import Decision, Extent, Threshold
from reclaim.execution.executor import URGENT_SECONDS
from reclaim.function import NO_PRESSURE, Pressure
from reclaim.functions import Call
from reclaim.types import NEVER, DiskState, MeasureDisk, Reason, ReclaimResult, Result, Usage
from signals.types import FilesystemRole, SignalObservations

if TYPE_CHECKING:
    from eviction.node.node import Responder

RUN_SECONDS = 1.0  # how long a program is assumed to run: what is written meanwhile has to be freed as well


@dataclass(frozen=True, slots=True)
class Request:
    """What a command asks for in place of the configured behaviour; None: as configured.

    `row`: call these functions whatever the pressure. `until`: thresholds to reach in place of the configured ones.
    `every_function`: include those that wait for a lower mark, to show what they would remove. `now`: a pause that was
    begun before does not count.
    """

    row: tuple[str, ...] | None = None
    until: tuple[Threshold, ...] | None = None
    extent: Extent | None = None
    every_function: bool = False
    now: bool = False


@dataclass(frozen=True, slots=True)
class Entry:
    """One function of the row. `goal`: the thresholds that have to be clear before it may stop. `waits`: it is called
    only below a mark of its own. `stops`: whether it can stop early at all."""

    name: str
    goal: tuple[Threshold, ...]
    waits: bool
    stops: bool


@dataclass(frozen=True, slots=True)
class PassScope:
    """What the stages of one pass are bound by. What is called is asked again at each step.

    `config`: the thresholds it was made with; None: those of now. `pressure`: what it acts on. `gives_way`: whether
    another row of the same filesystem is waiting for it. `most`: how many objects of each function may be removed now;
    None: as many as it takes. `moved`: whether a filesystem is no longer where it was. `btrfs`: a path on each btrfs.
    `parallel`: removals side by side; None: as configured. `while_paused`: a pause that was begun before does not stop
    it. `dry_run`: it cannot remove anything, whatever is configured.
    """

    config: EvictionConfig | None = None
    pressure: Callable[[], Pressure] = lambda: NO_PRESSURE
    gives_way: Callable[[], bool] = lambda: False
    most: Callable[[], int | None] = lambda: None
    moved: Callable[[], bool] = lambda: False
    btrfs: Sequence[str] = ()
    parallel: int | None = None
    while_paused: bool = False
    dry_run: bool = False


class OnePass:
    """One pass, used once; until `run` it has done nothing. `run` is for one thread; any thread may read `progress_at`.

    `gives_way`: whether another row of the same filesystem is waiting for it.
    """

    def __init__(
        self,
        responder: Responder,
        observations: SignalObservations,
        decision: Decision,
        trigger: Trigger,
        request: Request | None = None,
        *,
        gives_way: Callable[[], bool] = lambda: False,
    ):
        self.id = os.urandom(6).hex()
        self._responder, self._clock = responder, responder.clock
        self._config = responder.state.config
        self._request = request = request or Request()
        self._extent = request.extent or responder.extent
        self._begun_rates = self._rates = responder.fill_rates
        self._observations = observations
        self._decision = decision
        self._trigger = trigger
        self._kubelets = self._config.kubelets_in_layout(observations.layout)
        self.row = decision.row if request.row is None else request.row
        self._entries = tuple(map(self._entry, self.row))
        self._crossed = trigger is not Trigger.LEAD
        found = (identity for identity, _ in observations.filesystems.values() if identity.type == "btrfs")
        btrfs = tuple({each.device_id: each.path for each in found}.values())
        scope = PassScope(
            config=self._config,
            pressure=self.pressure,
            gives_way=gives_way,
            most=lambda: None if self._crossed else 1,
            moved=self._moved,
            btrfs=btrfs,
            while_paused=request.now,
        )
        self._context = responder.context(scope)
        self._executor = self._context.executor

    @property
    def progress_at(self) -> float:
        """When it last made progress (monotonic seconds): a stage's call was answered, or a removal ended."""
        return self._executor.progress.at

    def run(self) -> Pass:
        """Calls the functions of the row and observes again. Never raises because of the runtime or a single object."""
        began, started_wall = self._clock.monotonic(), self._clock.wall()
        before = usage_of(self._responder.observe())
        functions = self._call_functions()
        after = self._settled(functions)
        gained_bytes, gained_inodes = usage_of(after).gained_since(before)
        record = Pass(
            self.id,
            started_wall,
            self._trigger,
            self._observations,
            self._decision,
            self.row,
            functions,
            measured_bytes=max(gained_bytes, 0),
            measured_inodes=max(gained_inodes, 0),
            written_bytes=max(-gained_bytes, 0),
            written_inodes=max(-gained_inodes, 0),
            after=after,
            still_met=self._still_met(after),
            timings=Timings(
                detect_seconds=max(began - self._observations.time, 0.0),
                list_seconds=sum((each.list_seconds for each in functions), 0.0),
                plan_seconds=sum((each.plan_seconds for each in functions), 0.0),
                remove_seconds=sum((each.remove_seconds for each in functions), 0.0),
                total_seconds=self._clock.monotonic() - began,
            ),
        )
        return with_result(record, dry_run=self._executor.dry_run)

    def _call_functions(self) -> tuple[ReclaimResult, ...]:
        """Calls the functions until the disk is relieved. One result for each that was called or skipped."""
        calls = self._side_by_side()
        if calls and (not self._crossed or any(call.result.relieved for call in calls.values())):
            return tuple(call.result for call in calls.values())
        results = {name: call.result for name, call in calls.items()}
        for entry in self._entries:
            why_not = self._why_not(entry)
            if why_not:
                results[entry.name] = ReclaimResult(entry.name, skipped=why_not)
                continue
            call = calls[entry.name] = calls.get(entry.name) or self._call(entry)
            result = results[entry.name] = call.run(self._measure(entry))
            if result.outcomes and not self._executor.dry_run:
                cooldown_seconds = self._responder.functions[entry.name].cooldown_seconds
                self._responder.cooling_until[entry.name] = self._clock.monotonic() + cooldown_seconds
            # a function that waits for a lower mark is relieved at that mark, but the thresholds may not be
            if (entry.stops and not entry.waits and result.relieved) or self._executor.braked is not None:
                break
        else:
            if self._last_resort_allowed(results.values()):
                for entry in (each for each in self._entries if each.name in calls):
                    results[entry.name] = calls[entry.name].run(self._measure(entry), last_resort=True)
        return tuple(results.values())

    def _last_resort_allowed(self, results: Iterable[ReclaimResult]) -> bool:
        """Whether nothing else is left that could still be enough."""
        if not self._crossed or self._executor.removals.begun:
            return False
        return all(result.settled for result in results)

    def _side_by_side(self) -> dict[str, Call]:
        """If it is urgent: the functions at the start of the row whose objects do not depend on each other, provided
        that they have the same thresholds to clear. Their first stages take turns."""
        functions = self._responder.functions
        first = list(takewhile(lambda one: functions[one.name].side_by_side and not one.waits, self._entries))
        if self._extent is Extent.ALL or len(first) < 2 or len({entry.goal for entry in first}) > 1:
            return {}
        measure = self._measure(first[0])
        if measure(0).seconds_left >= URGENT_SECONDS:
            return {}
        calls = {entry.name: self._call(entry) for entry in first}
        works = [work for call in calls.values() if (work := call.first()) is not None]
        self._executor.execute(works, measure)
        return calls

    def _call(self, entry: Entry) -> Call:
        return Call(self._responder.functions[entry.name], self._context)

    def _entry(self, name: str) -> Entry:
        waits = not self._request.every_function and self._config.waits(name, self._observations)
        goal = self._config.goal(name, self._observations)
        if self._request.until is not None and not waits:
            goal = self._request.until
        return Entry(name, goal, waits, waits or (self._extent is Extent.ENOUGH and bool(goal)))

    def _why_not(self, entry: Entry) -> str:
        """Why a function is not called; empty if it is."""
        if entry.waits:
            now = self._responder.observe()
            if not thresholds_met(entry.goal, now.signals, enforce_min_reclaim=True):
                return ", ".join(f"{one.signal} is not below {one.value}" for one in entry.goal)
        left = self._responder.cooling_until.get(entry.name, 0.0) - self._clock.monotonic()
        return f"its cooldown lasts another {left:.0f} s" if left > 0 and not self._executor.dry_run else ""

    def _measure(self, entry: Entry) -> MeasureDisk:
        """Measures the disk between the removals of this function."""
        role = self._responder.functions[entry.name].frees

        def measure(promised_bytes: int) -> DiskState:
            observations = self._responder.observe()
            self._rates = update_fill_rates(self._rates, observations)
            seen = _with_promised(observations, role, promised_bytes)
            unmet = thresholds_met(entry.goal, seen.signals, enforce_min_reclaim=True)
            seconds_left = self._urgency(entry, observations)
            began_it = () if self._decision.acted_on is None else (self._decision.acted_on,)
            self._crossed = self._crossed or bool(
                thresholds_met(began_it, observations.signals, enforce_min_reclaim=False)
            )
            relieved = not unmet if self._crossed else seconds_left >= self._responder.lead_seconds
            stop = None
            if _moved(self._observations, observations):
                stop = Reason.LAYOUT_CHANGED
            elif entry.stops and _has_stale_reading(entry.goal, observations):
                stop = Reason.UNREADABLE  # going on without a reading could remove everything
            elif entry.stops and relieved:
                stop = Reason.RELIEVED
            return DiskState(usage_of(observations), stop, seconds_left)

        return measure

    def _moved(self) -> bool:
        """Whether a filesystem is no longer where it was when the pass began."""
        return _moved(self._observations, self._responder.observe())

    def _urgency(self, entry: Entry, observations: SignalObservations) -> float:
        """By the present fill rate or the one at the beginning of the pass, whichever is faster, because freed bytes
        hide a fill. With `extent: all` nothing is urgent."""
        if self._extent is Extent.ALL:
            return NEVER
        return urgency(entry.goal, observations, faster(self._begun_rates, self._rates), self._kubelets)

    def pressure(self) -> Pressure:
        """What the pass acts on, and how much is missing for it now, including the minimum reclaim and what is written
        while a program runs."""
        acted_on = self._decision.acted_on if self._request.row is None else None
        goal = dict.fromkeys(threshold for entry in self._entries for threshold in entry.goal)
        acted_on = acted_on or next(iter(goal), None)
        if acted_on is None:
            return replace(NO_PRESSURE, pass_id=self.id)
        observation = self._responder.observe().signals.get(acted_on.signal)
        if observation is None:
            return Pressure(signal=str(acted_on.signal), pass_id=self.id)
        missing = max(acted_on.mark_with_min_reclaim(observation.capacity) - observation.available, 0)
        inodes, where = acted_on.signal.counts_inodes, observation.filesystem
        fill = None if where is None else self._rates.get((where.device_id, inodes))
        if missing and fill is not None:
            missing += int(fill.steady_rate * RUN_SECONDS)
        return Pressure(
            signal=str(acted_on.signal),
            filesystem="" if where is None else where.mount_point or where.path,
            available=observation.available,
            mark=acted_on.mark(observation.capacity),
            missing_bytes=0 if inodes else missing,
            missing_inodes=missing if inodes else 0,
            pass_id=self.id,
        )

    def _settled(self, functions: Sequence[ReclaimResult]) -> SignalObservations:
        """The observations at the end, after waiting for space that the runtime frees late."""
        if self._entries and any(function.count(Result.REMOVED) for function in functions):
            called = [entry for entry in self._entries if not entry.waits] or [self._entries[-1]]
            measure = self._measure(replace(called[-1], stops=True))
            self._executor.settle(measure)
        return self._responder.observe()

    def _still_met(self, after: SignalObservations) -> tuple[Threshold, ...]:
        until = self._request.until
        goal = self._config.in_layout(after.layout) if until is None else until
        return thresholds_met(goal, after.signals, enforce_min_reclaim=True)


def usage_of(observations: SignalObservations) -> Usage:
    """Available and free bytes and free inodes, summed over the distinct filesystems."""
    by_device = {identity.device_id: stats for identity, stats in observations.filesystems.values()}
    return Usage(
        sum(stats.available_bytes for stats in by_device.values()),
        sum(stats.free_bytes for stats in by_device.values()),
        sum(stats.inodes_free for stats in by_device.values()),
    )


def _moved(before: SignalObservations, now: SignalObservations) -> bool:
    """Whether the layout, or the device of a filesystem, is another one. What cannot be read has not moved."""
    if None not in (before.layout, now.layout) and before.layout is not now.layout:
        return True
    both = before.filesystems.keys() & now.filesystems.keys()
    return any(before.filesystems[role][0].device_id != now.filesystems[role][0].device_id for role in both)


def _has_stale_reading(thresholds: tuple[Threshold, ...], observations: SignalObservations) -> bool:
    """Whether the signal of one of these thresholds could not be read just now."""
    signals = observations.signals
    return any(threshold.signal in signals and signals[threshold.signal].stale for threshold in thresholds)


def _with_promised(observations: SignalObservations, role: FilesystemRole, promised_bytes: int) -> SignalObservations:
    """The observations as if this many more bytes were available on the filesystem of this role."""
    if not promised_bytes or role not in observations.filesystems:
        return observations
    device = observations.filesystems[role][0].device_id
    signals = dict(observations.signals)
    for signal, seen in signals.items():
        if seen.filesystem is not None and seen.filesystem.device_id == device and not signal.counts_inodes:
            signals[signal] = replace(seen, available=seen.available + promised_bytes)
    return replace(observations, signals=signals)
