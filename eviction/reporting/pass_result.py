"""How a pass ended, and why, from what its functions did and what is observed afterwards. Pure.

A pass succeeds, as in the kubelet, when no configured threshold is met any more, minimum reclaim included and grace
periods ignored.
"""

from __future__ import annotations

from dataclasses import replace

from eviction.decision.thresholds import short_of_min_reclaim
from eviction.record import Pass, PassResult, Trigger
from eviction.types import Threshold
from reclaim.types import Result
from signals.quantity import counted, format_bytes
from signals.types import Signal, in_order


def with_result(record: Pass, *, dry_run: bool) -> Pass:
    """The record with its result and the reason in one sentence, which says when it was the lead that began it."""
    ended = _with_result(record, dry_run=dry_run)
    lead = "begun by the lead, before the mark was reached: removals have lately taken longer than the time left"
    return replace(ended, reason=f"{ended.reason}; {lead}") if record.trigger is Trigger.LEAD else ended


def _with_result(record: Pass, *, dry_run: bool) -> Pass:
    counts = {result: sum(f.count(result) for f in record.functions) for result in Result}
    gained = record.measured_bytes - record.written_bytes, record.measured_inodes - record.written_inodes
    removed = f"removed {counted(counts[Result.REMOVED], 'object')}, {freed_in_words(*gained)}"
    if dry_run:
        errors = "; ".join(record.errors)
        if errors and not counts[Result.PLANNED]:
            return replace(record, result=PassResult.FAILED, reason=errors)
        planned = f"{counted(counts[Result.PLANNED], 'object')} of nominally {format_bytes(record.nominal_bytes)}"
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
    met = [_still_met(threshold, record) for threshold in record.still_met]
    unmet = ", ".join([*met, *(f"{signal} is not readable" for signal in blind)])
    because = "; ".join(record.errors) or _why_not_more(record)
    return replace(record, result=PassResult.NOT_ENOUGH, reason=f"{removed}; still under pressure: {unmet}; {because}")


def _still_met(threshold: Threshold, record: Pass) -> str:
    after = None if record.after is None else record.after.signals.get(threshold.signal)
    short = after is not None and short_of_min_reclaim(threshold, after)
    return f"{threshold.signal}{' (above its mark, short of its minimum reclaim)' * short}"


def _unreadable(record: Pass) -> list[Signal]:
    """Signals without a usable reading at the end: stale, or missing although they were under pressure."""
    after = record.after.signals if record.after is not None else {}
    pressed = {threshold.signal for threshold in record.decision.thresholds_met}
    gone, stale = pressed - after.keys(), {signal for signal, one in after.items() if one.stale}
    return list(in_order(gone | stale))


def _why_not_more(record: Pass) -> str:
    if not record.row:
        return "nothing in this layout relieves it: its row of the reclaim table is empty"
    skipped_functions = [f"{f.operation} was not called: {f.skipped}" for f in record.functions if f.skipped]
    waits = [f.eligible_in_seconds for f in record.functions if f.eligible_in_seconds is not None]
    failed = sum(f.count(Result.FAILED) for f in record.functions)
    parked = sum(f.count(Result.PARKED) for f in record.functions)
    parts = [f"{counted(failed, 'removal')} failed"] if failed else []
    parts += [f"{counted(parked, 'removal')} not answered, and waited for"] if parked else []
    if waits:
        parts.append(f"the next object is old enough in {min(waits):.0f} s")
    parts += skipped_functions
    return ", ".join(parts) or "everything else is in use or protected"


def freed_in_words(gained_bytes: int, gained_inodes: int) -> str:
    """The gain of a pass as text. A filesystem that has less than before was written to meanwhile: nothing is freed
    below zero."""
    if gained_bytes >= 0 and gained_inodes >= 0:
        return f"freed {format_bytes(gained_bytes)} and {counted(gained_inodes, 'inode')}"
    written = [format_bytes(-gained_bytes)] * (gained_bytes < 0)
    written += [counted(-gained_inodes, "inode")] * (gained_inodes < 0)
    freed = "nothing"
    if gained_bytes > 0:
        freed = f"{format_bytes(gained_bytes)} and no inodes"
    elif gained_inodes > 0:
        freed = f"{counted(gained_inodes, 'inode')} and no bytes"
    return f"freed {freed}, as {' and '.join(written)} were written meanwhile"
