"""Everything that happened in one pass, as one value, and how it ended. Pure.

Log lines, metrics, events, answers on the control socket and the timeline of a drill are all made
from it (`eviction.records.pass_json` has its JSON form). As in the kubelet, a pass succeeds when no
configured threshold is met any more, including its minimum reclaim and ignoring grace periods.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from eviction.decision.thresholds import short_of_min_reclaim
from eviction.records.attribution import Attribution
from eviction.records.json_shapes import Document
from eviction.types import Decision, Row, Threshold, Thresholds
from reclaim.types import BRAKES, NO_GAIN, Amounts, Outcomes, Reason, ReclaimResult, Result
from signals.quantity import counted, format_bytes
from signals.types import Signal, SignalObservations, in_order


class Trigger(StrEnum):
    """What started the pass: the polling interval, inotify, a command, the lead (before the mark is
    reached), or a periodic loop."""

    INTERVAL = "interval"
    WATCH = "watch"
    REQUEST = "request"
    LEAD = "lead"
    PERIODIC = "periodic"


MOST_REPORTED = 32  # removals of one pass in a log line and in an answer of the daemon

OF_PASSES = (Trigger.INTERVAL, Trigger.WATCH, Trigger.REQUEST, Trigger.LEAD)
"""Of the passes that are told and counted as such; what a periodic loop does is told otherwise."""


class PeriodicLoop(NamedTuple):
    """One of the kubelet's two loops."""

    what: str
    period_seconds: float
    due: float
    """When its next pass begins (monotonic seconds)."""
    failed: bool = False
    """Whether its last pass failed."""


class PassResult(StrEnum):
    """How a pass ended."""

    IDLE = "idle"
    SATISFIED = "satisfied"
    NOT_ENOUGH = "not_enough"
    DRY_RUN = "dry_run"
    FAILED = "failed"


class Timings(Document):
    """Where the time of a pass went."""

    detect_seconds: float = 0.0
    """From the observation that met the threshold to the start of the pass."""
    list_seconds: float = 0.0
    """The runtime's lists."""
    plan_seconds: float = 0.0
    """The verdicts."""
    remove_seconds: float = 0.0
    """The removals."""
    total_seconds: float = 0.0
    """The whole pass."""


@dataclass(frozen=True)
class Pass:
    """Everything that happened in one pass.

    `measured`: what the filesystems gained, 0 if they have less than before;
    `written_meanwhile` is then how much less. `after`: the observations at the end.
    `started_wall`: seconds since the epoch. `attributions`: what uses the bytes of each
    filesystem, measured when reclaim was not enough. `foreseen`: of a dry run, the observations as
    they would be at its end. `seconds_to_eviction`: how far the kubelet's hard mark was away when
    it began, at the fill rate then; 0: reached; None: it is not known, or nothing was filled.
    """

    id: str
    started_wall: float
    trigger: Trigger
    observations: SignalObservations
    decision: Decision
    after: SignalObservations
    row: Row = ()
    functions: tuple[ReclaimResult, ...] = ()
    measured: Amounts = NO_GAIN
    written_meanwhile: Amounts = NO_GAIN
    result: PassResult = PassResult.IDLE
    reason: str = ""
    timings: Timings = Timings()  # noqa: RUF009 # a frozen one
    still_met: Thresholds = ()
    attributions: tuple[Attribution, ...] = ()
    foreseen: SignalObservations | None = None
    seconds_to_eviction: float | None = None

    @property
    def removals(self) -> Outcomes:
        """The objects that were to be removed, by function, in the order of the plans."""
        return tuple(outcome for function in self.functions for outcome in function.outcomes)

    @property
    def kept(self) -> Outcomes:
        return tuple(outcome for function in self.functions for outcome in function.kept)

    def count(self, result: Result) -> int:
        return sum(function.count(result) for function in self.functions)

    @property
    def nominal_bytes(self) -> int:
        """Sum of the sizes that the runtime reported for the removed objects."""
        return sum(function.nominal_bytes for function in self.functions)

    @property
    def errors(self) -> tuple[str, ...]:
        """Why functions failed, each sentence once."""
        return _each_once(function.error for function in self.functions)

    @property
    def failures(self) -> tuple[str, ...]:
        """Why removals failed, or could not be checked, each sentence once."""
        return _each_once(
            outcome.error for outcome in self.removals if outcome.result is Result.FAILED
        )


def _each_once(sentences: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(filter(None, sentences)))


def with_result(record: Pass, *, dry_run: bool) -> Pass:
    """The record with its result, and the reason in one sentence."""
    result, reason = _result_of_dry_run(record) if dry_run else _result(record)
    return replace(record, result=result, reason=reason + remarks_on(record))


def remarks_on(record: Pass) -> str:
    """What else to say of a pass: that last resorts went, and that the lead started it."""
    remarks = ""
    last_resorts = sum(
        outcome.verdict.last_resort
        for outcome in record.removals
        if outcome.result in (Result.REMOVED, Result.PLANNED)
    )
    if last_resorts:
        remarks += (
            f"; nothing else was enough, so {counted(last_resorts, 'image')} went that the kubelet"
            " had not pulled"
        )
    if record.trigger is Trigger.LEAD:
        remarks += (
            "; started by the lead, before the mark was reached: removals have lately taken longer"
            " than the time left"
        )
    return remarks


def _result_of_dry_run(record: Pass) -> tuple[PassResult, str]:
    errors = "; ".join((*record.errors, *record.failures))
    planned = [each.verdict for each in record.removals if each.result is Result.PLANNED]
    if errors and not planned:
        return PassResult.FAILED, errors
    frees = format_bytes(sum(verdict.promised_bytes for verdict in planned))
    about = "~" if any(verdict.frees_bytes is None for verdict in planned) else ""
    objects = counted(len(planned), "object")
    would = f"would free {about}{frees} with {objects}{_foreseen_in_words(record)}"
    if errors:
        would = f"could not read everything: {errors}; of the rest it {would}"
    return PassResult.DRY_RUN, would


def _foreseen_in_words(record: Pass) -> str:
    """What would be available where most is missing for a mark, and whether that is enough; with no
    mark met, where something is gained."""
    after = record.after
    foreseen = record.foreseen
    if foreseen is None:
        return ""
    missing: list[tuple[int, Signal]] = []
    for threshold in record.still_met:
        seen = foreseen.signals[threshold.signal]
        wanted = max(threshold.mark_with_min_reclaim(seen.capacity), seen.needed * threshold.hard)
        if threshold.signal.counts_inodes:
            return ": how many inodes is not known"  # the runtime reports none
        missing.append((wanted - seen.available, threshold.signal))
    gains = (each for each, seen in after.signals.items() if seen != foreseen.signals[each])
    short, signal = max(missing, default=(0, next(gains, None)))
    if signal is None:
        return ""
    enough = "enough" if missing else "clear already"
    if short > 0:
        enough = f"{format_bytes(short)} short"
    before, then = (
        f"{100 * seen.signals[signal].available // max(seen.signals[signal].capacity, 1)}%"
        for seen in (after, foreseen)
    )
    return f": {signal.filesystem} {before} → {then} available, {enough}"


def _result(record: Pass) -> tuple[PassResult, str]:
    errors = "; ".join(record.errors)
    blind = _unreadable(record)
    relieved = not record.still_met and not blind
    removed = record.count(Result.REMOVED)
    # Without pressure, no threshold is met whether or not the request succeeded.
    if errors and not removed and (record.decision.acted_on is None or not relieved):
        return PassResult.FAILED, errors
    freed = freed_in_words(record.measured, record.written_meanwhile)
    reason = f"removed {counted(removed, 'object')}, {freed}"
    if relieved:
        return PassResult.SATISFIED, f"{reason}; no threshold is met any more"
    unmet = [_still_met(threshold, record) for threshold in record.still_met]
    unmet += [f"{signal} is not readable" for signal in blind]
    reason += f"; still under pressure: {', '.join(unmet)}; {errors or _why_not_more(record)}"
    return PassResult.NOT_ENOUGH, reason


def _still_met(threshold: Threshold, record: Pass) -> str:
    after = record.after.signals.get(threshold.signal)
    if after is not None and short_of_min_reclaim(threshold, after):
        return f"{threshold.signal} (above its mark, short of its minimum reclaim)"
    return str(threshold.signal)


def _unreadable(record: Pass) -> list[Signal]:
    """Signals without a usable reading at the end: stale, or missing although
    they were under pressure.
    """
    after = record.after.signals
    pressed = {threshold.signal for threshold in record.decision.thresholds_met}
    stale = {signal for signal, observation in after.items() if observation.stale}
    return list(in_order((pressed - after.keys()) | stale))


def _why_not_more(record: Pass) -> str:
    if not record.row:
        return "nothing in this layout relieves it: its row of the reclaim table is empty"
    parts = []
    if failed := record.count(Result.FAILED):
        parts.append(": ".join((f"{counted(failed, 'removal')} failed", *record.failures[:1])))
    if parked := record.count(Result.PARKED):
        parts.append(f"{counted(parked, 'removal')} not answered yet")
    waits = [f.eligible_in_seconds for f in record.functions if f.eligible_in_seconds is not None]
    if waits:
        parts.append(f"the next object is old enough in {min(waits):.0f} s")
    parts += [f"{f.operation} was not called: {f.skipped}" for f in record.functions if f.skipped]
    kept_because = {outcome.verdict.reason for outcome in record.kept}
    parts += [brake.words for brake in BRAKES if brake in kept_because]
    if Reason.RELIEVED in kept_because:
        parts.append("the rest was not needed for what its row relieves")
    return ", ".join(parts) or "everything else is in use or protected"


def freed_in_words(measured: Amounts, written: Amounts) -> str:
    """The gain of a pass as text. If a filesystem has less than before, it was written to
    meanwhile; no negative amount is called freed."""
    freed = f"freed {format_bytes(measured.bytes)} and {counted(measured.inodes, 'inode')}"
    less = [format_bytes(written.bytes)] if written.bytes else []
    if written.inodes:
        less.append(counted(written.inodes, "inode"))
    return f"{freed}, as {' and '.join(less)} were written meanwhile" if less else freed
