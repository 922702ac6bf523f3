"""Sentences and tables about passes and marks, for people. Decides nothing.

The ladder lists all marks of a filesystem in the order in which a filling disk reaches them: ours
first, as it should be, then the kubelet's image garbage collection, then the kubelet's soft and
hard thresholds. Where our mark is below the kubelet's for the same signal, the kubelet acts first;
`later_than_kubelet` finds these.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from eviction.decision.thresholds import is_coming, short_of_min_reclaim
from eviction.printable import escaped
from eviction.records.attribution import Attribution
from eviction.records.json_shapes import Count, shortened
from eviction.records.pass_json import MOST_REPORTED
from eviction.records.passes import Pass, PassResult, remarks_on
from eviction.types import Threshold
from eviction.wording.tables import against_its_mark, amount, table
from reclaim.types import Kind, Outcome, Reason, Result
from signals.quantity import counted, format_bytes, format_duration
from signals.types import FilesystemRole, Signal, SignalObservation, SignalObservations, order_of

REASONS: dict[str, str] = {reason: reason.words for reason in Reason} | {
    "set_aside": "was set aside to be freed under pressure",
    "rotated": "a newer rotated log of its container is kept",
    "left_behind": "was left behind by a rotation that did not finish",
    "unreferenced": "nothing in containerd refers to it",
    "in_table": "the reclaim table names it",
    "listed_by_program": "the program says that it would remove it",
    "current": "its container is writing to it",
    "newest_rotated": "is among the newest rotated logs of its container",
    "being_rotated": "its rotation may not be finished",
    "replaced": "has been replaced since it was planned",
    "cached": "can be made again, and has not been used lately",
    "over_limit_of_cache": "is over the maxSize of its directory, and has not been used lately",
    "interrupted": "is left of a removal that was interrupted",
    "used_lately": "was used within minAge (a read is noted once a day, with noatime never)",
    "open": "a process has it open, mapped, locked or as its directory",
    "mounted": "something is mounted in it",
    "not_tagged": "its directory has no CACHEDIR.TAG any more",
    "newest_checkpoint": "is among the newest checkpoints of its container",
}
"""What each reason says, also those of the functions that are off until they are named."""


PARTS = ("WHAT", "HOW MANY", "SIZE", "RECLAIMABLE", "BY, OR WHAT TO DO")
FORESEEN_SECONDS = 3600.0  # beyond that, no fill goes on as it is
WHICH: Mapping[str, str] = {Kind.CONTAINER: "dead ", Kind.SANDBOX: "dead ", Kind.IMAGE: "unused "}


def lead_sentence(lead_seconds: float) -> str:
    """When a pass begins before its mark is reached; empty if none does."""
    if lead_seconds <= 0:
        return ""
    near = format_duration(round(lead_seconds, 2))
    return (
        f"a pass begins before its mark when the kubelet's is less than {near} away (removals take"
        " that long)"
    )


@dataclass(frozen=True)
class LadderMark:
    """One mark of the ladder."""

    signal: Signal
    """The signal that reaches it."""
    mark: Count
    """Bytes or inodes that are available when it is reached."""
    what: str
    """What happens then, for people."""
    whose: str
    """Who does it: reclaimd or the kubelet."""


def ladder(
    ours: Iterable[Threshold],
    kubelets: Iterable[Threshold],
    image_gc: tuple[int, int] | None,
    *,
    observations: Mapping[Signal, SignalObservation],
) -> tuple[LadderMark, ...]:
    """All marks of the observed signals, in the order of the signals, the highest first.

    `image_gc`: the kubelet's high and low threshold in percent, None if its periodic image GC is
    off or not known. It acts on imagefs when `usage >= high`, with the usage rounded up
    (`pkg/kubelet/images/image_gc_manager.go`).
    """
    marks = [
        LadderMark(
            threshold.signal,
            threshold.mark(observations[threshold.signal].capacity),
            f"{_hard_or_soft(threshold)} {threshold.text()}",
            whose=whose,
        )
        for whose, thresholds in (("reclaimd", ours), ("kubelet", kubelets))
        for threshold in thresholds
        if threshold.signal in observations
    ]
    images = observations.get(Signal.IMAGEFS_AVAILABLE)
    if image_gc is not None and images is not None:
        high, low = image_gc
        for mark, what in (
            (image_gc_mark(high, images.capacity), f"image GC starts at {high}%"),
            (images.capacity * (100 - low) // 100, f"image GC frees to {low}%"),
        ):
            marks.append(LadderMark(images.signal, mark, what, whose="kubelet"))
    marks.sort(key=lambda mark: (order_of(mark.signal), -mark.mark, mark.whose, mark.what))
    return tuple(marks)


def image_gc_mark(high: int, capacity: int) -> int:
    """The most bytes that can be available while `100 - available * 100 //
    capacity >= high` holds.
    """
    return (capacity * (101 - high) - 1) // 100


def later_than_kubelet(
    ours: Sequence[Threshold],
    kubelets: Iterable[Threshold],
    observations: Mapping[Signal, SignalObservation],
) -> Iterator[str]:
    """A sentence for each of the kubelet's thresholds on which it acts before us, with both marks:
    that of our nearest threshold on the same signal, too.

    We act first if one of our thresholds has a mark that is not lower, at the observed capacity,
    and a grace period that is not longer. Signals on which we have no threshold are left out, and
    so is containerfs, whose thresholds in the kubelet's file never take effect.
    """
    for kubelet in kubelets:
        signal = kubelet.signal
        observation = observations.get(signal)
        same = [threshold for threshold in ours if threshold.signal is signal]
        if observation is None or not same or signal.filesystem is FilesystemRole.CONTAINERFS:
            continue
        capacity = observation.capacity
        as_quick = [each for each in same if each.grace_seconds <= kubelet.grace_seconds]
        nearest = max(as_quick or same, key=lambda threshold: threshold.mark(capacity))
        mark = nearest.mark(capacity)
        kubelets_mark = kubelet.mark(capacity)
        if mark < kubelets_mark or not as_quick:
            grace = "" if mark < kubelets_mark else " with its longer grace period"
            yield (
                f"{signal}: the mark of {nearest.text()} = {amount(signal, mark)}{grace} acts"
                f" later than the kubelet's of {kubelet.text()} = {amount(signal, kubelets_mark)}"
            )


def _hard_or_soft(threshold: Threshold) -> str:
    return "hard" if threshold.hard else f"soft ({threshold.grace_seconds:g} s grace)"


def unreachable_sentences(
    thresholds: Iterable[Threshold], observations: SignalObservations
) -> Iterator[str]:
    """One sentence for each threshold for which the disk is too small: in itself, with its margin,
    or with its minimum reclaim, which are then left out."""
    for threshold in thresholds:
        observation = observations.signals.get(threshold.signal)
        if observation is None or observation.stale or observation.capacity == 0:
            continue
        capacity = observation.capacity
        mark = Fraction(0)
        for name, more in (
            ("", threshold.value),
            ("margin", threshold.margin),
            ("minimum reclaim", threshold.min_reclaim),
        ):
            wanted = mark if more is None else mark + more.amount(capacity)
            if wanted < capacity:
                mark = wanted
                continue
            mark_of = threshold.text()
            so = "it is never cleared"
            if name:
                mark_of = f"{mark_of} with its {name}"
                so = f"the {name} is left out"
            signal = threshold.signal
            yield (
                f"{signal}: the mark of {mark_of} is {amount(signal, math.ceil(wanted))}, not below"
                f" the {amount(signal, capacity)} that the filesystem has, so {so}"
            )
            if not name:
                break


def no_effect_sentences(thresholds: Iterable[Threshold]) -> list[str]:
    """A warning for each configured threshold of containerfs, which the kubelet derives from others
    (`UpdateContainerFsThresholds`)."""
    return [
        f"{threshold.signal}: {threshold.text()} has no effect: its threshold follows from nodefs, "
        "or from imagefs where that is dedicated"
        for threshold in thresholds
        if threshold.signal.filesystem is FilesystemRole.CONTAINERFS
    ]


def reclaiming_sentence(threshold: Threshold, observation: SignalObservation | None) -> str:
    """The message of the event before a pass: the kubelet's message, with its names for the
    resources, and whose mark it was. `observation`: of the signal, None if there is none."""
    resource = "inodes" if threshold.signal.counts_inodes else "ephemeral-storage"
    why = "below reclaimd's own mark"
    if observation is not None and is_coming(threshold, {threshold.signal: observation}):
        why = "what is coming would reach the kubelet's mark"
    elif observation is not None and short_of_min_reclaim(threshold, observation):
        why = "short of the minimum reclaim above reclaimd's own mark"
    return f"Attempting to reclaim {resource} (ReclaimPressure: {why})"


def relief_sentence(record: Pass, acted_on: Threshold) -> str:
    """What a pass that has relieved its threshold did, and how soon the kubelet would have
    evicted."""
    left = record.seconds_to_eviction
    was = "below reclaimd's own mark"
    if left == 0:
        was = "at the kubelet's mark for eviction"
    elif left is not None and left < FORESEEN_SECONDS:
        was = f"{format_duration(round(left, 1))} from eviction"
    kinds = Counter(
        outcome.verdict.kind for outcome in record.removals if outcome.result is Result.REMOVED
    )
    things = ", ".join(
        counted(number, f"{WHICH.get(kind, '')}{kind.replace('_', ' ')}")
        for kind, number in kinds.items()
    )
    signal = acted_on.signal
    gained = record.measured.inodes if signal.counts_inodes else record.measured.bytes
    took = format_duration(record.timings.total_seconds)
    removed = f"{things}, {amount(signal, gained)}, removed in {took}"
    return f"{signal.filesystem} was {was}; {removed}{remarks_on(record)}"


def names_of_removed(outcomes: Iterable[Outcome], result: Result = Result.REMOVED) -> str:
    """What was removed, such as `image a, image b and 12 more`, with at most 32 names and 18 KiB;
    empty if nothing was. `result`: PLANNED for what a dry run would have removed."""
    removed = [outcome.verdict for outcome in outcomes if outcome.result is result]
    names = ", ".join(
        f"{verdict.kind} {shortened(escaped(verdict.name))}" for verdict in removed[:MOST_REPORTED]
    )
    more = len(removed) - MOST_REPORTED
    return f"{names} and {more} more" if more > 0 else names


def reason_in_words(reason: str) -> str:
    """A reason; a function may have its own."""
    return REASONS.get(reason, reason.replace("_", " "))


def frees_in_words(result: str | None, *, freed: int, frees: int | None, size: int | None) -> str:
    """What the disk has gained by the removal of an object, measured; or would gain: `~` where only
    the runtime's size is known, which counts shared layers for each image."""
    if result == Result.REMOVED:
        return format_bytes(freed)
    if result != Result.PLANNED or size is frees is None:
        return "-"
    return f"~{format_bytes(size or 0)}" if frees is None else format_bytes(frees)


def in_words(reason: str, result: Result | None, *, needed_in_seconds: float | None) -> str:
    """Why an object is removed or kept; of one that would be removed also when it is expected to be
    needed again, if that had a say in its place."""
    words = reason_in_words(reason)
    if result == Result.PLANNED and needed_in_seconds is not None:
        words += f"; expected to be needed again in {format_duration(round(needed_in_seconds))}"
    return words


def outcome_cells(outcome: Outcome) -> dict[str, str]:
    """One object of a pass or a plan, by the heads of the table."""
    verdict = outcome.verdict
    result = outcome.result
    why = in_words(verdict.reason, result, needed_in_seconds=verdict.needed_in_seconds)
    return {
        "RESULT": result or verdict.action,
        "KIND": verdict.kind,
        "NAME": shortened(verdict.name),
        "SIZE": "-" if verdict.size_bytes is None else format_bytes(verdict.size_bytes),
        "AGE": "-" if verdict.age_seconds is None else format_duration(verdict.age_seconds),
        "FREES": frees_in_words(
            result,
            freed=outcome.freed.bytes,
            frees=verdict.frees_bytes,
            size=verdict.size_bytes,
        ),
        "REASON": verdict.reason,
        "RULE": verdict.rule.words,
        "IN WORDS": f"{why}; {outcome.error}" if outcome.error else why,
    }


def outcomes_table(outcomes: Iterable[Outcome], width: int | None = None) -> list[str]:
    """Removed and kept objects, each with the reason."""
    rows = [outcome_cells(outcome) for outcome in outcomes]
    return table([[*rows[0]], *([*row.values()] for row in rows)], width) if rows else []


def counts_table(kept: Iterable[Outcome], width: int | None = None) -> list[str]:
    """How many objects of each kind are kept for each reason, the largest number first."""
    sizes_of: dict[tuple[str, ...], list[int | None]] = {}
    for outcome in kept:
        cells = outcome_cells(outcome)
        key = cells["KIND"], cells["REASON"], cells["RULE"], cells["IN WORDS"]
        sizes_of.setdefault(key, []).append(outcome.verdict.size_bytes)
    rows = [["COUNT", "KIND", "SIZE", "REASON", "RULE", "IN WORDS"]]
    for (kind, *why), sizes in sorted(sizes_of.items(), key=lambda item: -len(item[1])):
        known = [size for size in sizes if size is not None]
        rows.append([str(len(sizes)), kind, format_bytes(sum(known)) if known else "-", *why])
    return table(rows, width)


def attribution_lines(
    attributions: Iterable[Attribution], width: int | None = None
) -> Iterator[str]:
    """What uses the bytes of each filesystem, what may be freed of it and by which functions, and
    what to do about parts of which they free nothing."""
    for attribution in attributions:
        yield ""
        yield (
            f"where the bytes are: {format_bytes(attribution.used)} of"
            f" {format_bytes(attribution.capacity)} used on {escaped(attribution.path)}"
            f" ({', '.join(attribution.filesystems)})"
        )
        rows = [
            (
                share.use.words,
                "-" if share.objects is None else str(share.objects),
                f"{'>= ' if share.at_least else ''}{format_bytes(share.bytes)}",
                format_bytes(share.reclaimable) if share.reclaimable else "-",
                ", ".join(share.by) or share.remedy,
            )
            for share in attribution.shares
        ]
        yield from table([PARTS, *rows], width)
        for remark in attribution.remarks:
            yield f"note: {escaped(remark.sentence)}"


def pass_lines(record: Pass, width: int | None = None) -> list[str]:
    """A pass for people: the threshold that was acted on, what was removed and kept, the result."""
    lines: list[str] = []
    decision = record.decision
    timings = record.timings
    if decision.acted_on is not None:
        lines.append(against_its_mark(decision.acted_on, record.observations))
    if record.row:
        layout = f" (layout {decision.layout})" if decision.layout is not None else ""
        lines.append(f"row: {', '.join(map(str, record.row))}{layout}")
    lines += outcomes_table(record.removals + record.kept, width)
    lines.append(f"{record.result}: {escaped(record.reason)}")
    if record.result in (PassResult.SATISFIED, PassResult.NOT_ENOUGH):
        lines.append(
            f"took {format_duration(timings.total_seconds)} (lists"
            f" {format_duration(timings.list_seconds)}, removals"
            f" {format_duration(timings.remove_seconds)})"
        )
    return [*lines, *attribution_lines(record.attributions, width)]
