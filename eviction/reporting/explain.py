"""Sentences and tables about a pass and the marks, for people. Decides nothing.

The ladder has all marks of a filesystem in the order in which a filling disk meets them: ours first, as it should be,
then the kubelet's image garbage collection, then the kubelet's soft and hard thresholds. Where a mark of ours is below
the kubelet's own for the same signal, the kubelet acts first; `later_than_kubelet` finds these.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from eviction.decision.thresholds import short_of_min_reclaim
from eviction.record import Pass, PassResult
from eviction.reporting.json_shapes import Count
from eviction.reporting.log import escaped
from eviction.reporting.pass_record import MOST_REPORTED, shortened
from eviction.reporting.space import WORDS, Attribution
from eviction.reporting.tables import acted_on_sentence, amount, table
from eviction.types import Threshold
from reclaim.types import Outcome, Reason, Result
from signals.quantity import counted, format_bytes, format_duration
from signals.types import FilesystemRole, Signal, SignalObservation, SignalObservations, order_of

REASONS: dict[str, str] = {
    Reason.OLDER_COPY: "a newer dead copy of it is kept",
    Reason.OVER_LIMIT: "beyond the number of dead copies to keep",
    Reason.POD_GONE: "its pod is gone",
    Reason.POD_TERMINATED: "its pod has terminated for good",
    Reason.TERMINATED_BY_EVIDENCE: "its pod was seen to have terminated for good",
    Reason.POD_EVICTED: "its pod was evicted",
    Reason.OLDER_SANDBOX: "a newer sandbox of its pod is kept",
    Reason.UNUSED: "no container uses it",
    Reason.MAXIMUM_AGE: "not used for longer than the maximum age",
    "set_aside": "was set aside to be given up",
    "rotated": "a newer rotated log of its container stays",
    "left_behind": "a rotation that did not end has left it",
    Reason.DANGLING: "points to nothing",
    "unreferenced": "nothing in containerd refers to it",
    "in_table": "the reclaim table names it",
    "listed_by_program": "the program says that it would remove it",
    Reason.RUNNING: "is running",
    Reason.CREATED: "may start at any moment",
    Reason.UNKNOWN_STATE: "the runtime does not know its state",
    Reason.NOT_KUBELETS: "carries no pod UID: not made by a kubelet",
    Reason.NEWEST_OF_LIVE_POD: "is how the kubelet knows that it has run",
    Reason.TOO_YOUNG: "is too young",
    Reason.READY: "is ready",
    Reason.HAS_CONTAINERS: "still has containers",
    Reason.NEWEST_SANDBOX: "is the newest sandbox of its pod",
    Reason.POD_ALIVE: "its pod is there",
    Reason.POD_UNKNOWN: "whether its pod is gone is not known",
    Reason.IN_USE: "a pod uses it",
    Reason.PINNED: "is pinned",
    Reason.KEEP_LIST: "is on the keep-list",
    Reason.NEWEST_OF_REPOSITORY: "is one of the newest of its repository",
    Reason.SANDBOX_IMAGE: "no pod starts without it",
    Reason.SANDBOX_IMAGE_UNKNOWN: "nothing says which image pod sandboxes need",
    Reason.UNRESOLVED_IMAGE: "a container uses an image that cannot be identified",
    Reason.ROTATING: "its container lives: the log may be rotating",
    "current": "its container writes it",
    "newest_rotated": "is among the newest rotated logs of its container",
    "being_rotated": "its rotation may not have ended",
    "replaced": "is another one now than was planned",
    Reason.TARGET_EXISTS: "points to a log that exists",
    Reason.ENOUGH_FREED: "the low threshold is reached without it",
    Reason.WITHIN_LIMIT: "within what may stay: a number of dead copies, or the maximum age",
    Reason.RELIEVED: "not needed any more",
    Reason.UNREADABLE: "the filesystem could not be read any more",
    Reason.HELD_OFF: "held off after the start",
    Reason.STOPPING: "the agent was stopping",
    Reason.INCOMPLETE_LISTING: "the runtime gave no complete answer",
    Reason.BEING_REMOVED: "its removal was sent before and is not answered yet",
    Reason.RUNTIME_STUCK: "so many removals are not answered that no more is sent",
}

FREED = 5  # the column of freed bytes, left out where nothing was removed


def lead_sentence(lead_seconds: float) -> str:
    """When a pass begins before its mark is reached; empty where none does."""
    if lead_seconds <= 0:
        return ""
    near = format_duration(round(lead_seconds, 2))
    return f"a pass begins before its mark where the kubelet's would be reached within {near} (removals take so long)"


@dataclass(frozen=True, slots=True)
class LadderMark:
    """One mark of the ladder."""

    signal: Signal
    """On whose filesystem."""
    mark: Count
    """Bytes or inodes that are available when it is reached."""
    what: str
    """What happens there, for people."""
    whose: str
    """Who does it."""


@dataclass(frozen=True, slots=True)
class LateThreshold:
    """A threshold of ours that acts later than the kubelet's on the same signal, with both marks (bytes or inodes)."""

    ours: Threshold
    kubelets: Threshold
    our_mark: int
    kubelet_mark: int


def ladder(
    ours: Iterable[Threshold],
    kubelets: Iterable[Threshold],
    image_gc: tuple[int, int] | None,
    observations: Mapping[Signal, SignalObservation],
) -> tuple[LadderMark, ...]:
    """All marks of the observed signals, in the order of the signals and the highest first.

    `image_gc`: the kubelet's high and low threshold in percent, None where its periodic image GC is off or not known;
    it acts on imagefs when `usage >= high`, with the usage rounded up (`pkg/kubelet/images/image_gc_manager.go`).
    """
    marks = [
        LadderMark(t.signal, t.mark(observations[t.signal].capacity), f"{_hard_or_soft(t)} {t.text()}", whose)
        for whose, thresholds in (("reclaimd", ours), ("kubelet", kubelets))
        for t in thresholds
        if t.signal in observations
    ]
    images = observations.get(Signal.IMAGEFS_AVAILABLE)
    if image_gc is not None and images is not None:
        high, low = image_gc
        marks.append(
            LadderMark(images.signal, image_gc_mark(high, images.capacity), f"image GC starts at {high}%", "kubelet")
        )
        marks.append(
            LadderMark(images.signal, images.capacity * (100 - low) // 100, f"image GC frees to {low}%", "kubelet")
        )
    return tuple(sorted(marks, key=lambda mark: (order_of(mark.signal), -mark.mark, mark.whose, mark.what)))


def image_gc_mark(high: int, capacity: int) -> int:
    """The most bytes that can be available while `100 - available * 100 // capacity >= high` holds."""
    return (capacity * (101 - high) - 1) // 100


def later_than_kubelet(
    ours: Iterable[Threshold], kubelets: Iterable[Threshold], observations: Mapping[Signal, SignalObservation]
) -> tuple[LateThreshold, ...]:
    """For each of the kubelet's thresholds that it acts on before us: our nearest threshold on the same signal.

    We act first where the mark of one of ours is not lower, at the observed capacity, and its grace period not longer.
    Left out are signals on which we have no threshold, and containerfs, where the kubelet's file never takes effect.
    """
    mine = list(ours)
    found: list[LateThreshold] = []
    for kubelet in kubelets:
        if kubelet.signal.filesystem is FilesystemRole.CONTAINERFS:
            continue
        observation = observations.get(kubelet.signal)
        same = [threshold for threshold in mine if threshold.signal is kubelet.signal]
        if observation is None or not same:
            continue
        mark = kubelet.mark(observation.capacity)
        marks = {threshold: threshold.mark(observation.capacity) for threshold in same}
        if not any(marks[t] >= mark and t.grace_seconds <= kubelet.grace_seconds for t in same):
            as_quick = [threshold for threshold in same if threshold.grace_seconds <= kubelet.grace_seconds]
            nearest = max(as_quick or same, key=lambda threshold: marks[threshold])
            found.append(LateThreshold(nearest, kubelet, marks[nearest], mark))
    return tuple(found)


def _hard_or_soft(threshold: Threshold) -> str:
    return "hard" if threshold.hard else f"soft ({threshold.grace_seconds:g} s grace)"


def late_threshold_sentence(late: LateThreshold) -> str:
    """Why a threshold of ours is too late, with both marks."""
    signal = late.ours.signal
    ours = f"{late.ours.text()} = {amount(signal, late.our_mark)}"
    kubelets = f"{late.kubelets.text()} = {amount(signal, late.kubelet_mark)}"
    grace = "" if late.our_mark < late.kubelet_mark else " with its longer grace period"
    return f"{signal}: the mark of {ours}{grace} acts later than the kubelet's of {kubelets}"


def unreachable_sentences(thresholds: Iterable[Threshold], observations: SignalObservations) -> Iterator[str]:
    """For each threshold that the disk cannot be above, with what is reclaimed at least: it would be met for ever."""
    for threshold in thresholds:
        observation = observations.signals.get(threshold.signal)
        if observation is None or observation.stale:
            continue
        wanted, signal = threshold.mark_with_min_reclaim(observation.capacity), threshold.signal
        if wanted > observation.capacity:
            yield (
                f"{signal}: the mark of {threshold.text()} with its minimum reclaim is {amount(signal, wanted)}, more "
                f"than the {amount(signal, observation.capacity)} that the filesystem has, so it is never cleared"
            )


def no_effect_sentences(thresholds: Iterable[Threshold]) -> list[str]:
    """A warning for each configured threshold of containerfs: these are derived (UpdateContainerFsThresholds)."""
    return [
        f"{one.signal}: {one.text()} has no effect: its threshold follows from nodefs, "
        "or from imagefs where that is dedicated"
        for one in thresholds
        if one.signal.filesystem is FilesystemRole.CONTAINERFS
    ]


def reclaiming_sentence(threshold: Threshold, observation: SignalObservation | None) -> str:
    """The message of the event before a pass: the kubelet's, with its names of the resources, and whose mark it was.
    `observation`: of its signal, None if there is none."""
    resource = "inodes" if threshold.signal.counts_inodes else "ephemeral-storage"
    above = observation is not None and short_of_min_reclaim(threshold, observation)
    why = "short of the minimum reclaim above reclaimd's own mark" if above else "below reclaimd's own mark"
    return f"Attempting to reclaim {resource} (ReclaimPressure: {why})"


def names_of_removed(outcomes: Iterable[Outcome], result: Result = Result.REMOVED) -> str:
    """What was removed: `image a, image b and 12 more`, at most 32 names; empty if nothing was. At most 18 KiB.
    `result`: PLANNED for what a dry run would have removed."""
    removed = [outcome.verdict for outcome in outcomes if outcome.result is result]
    names = ", ".join(f"{verdict.kind} {shortened(escaped(verdict.name))}" for verdict in removed[:MOST_REPORTED])
    more = len(removed) - MOST_REPORTED
    return f"{names} and {more} more" if more > 0 else names


def outcome_row(outcome: Outcome) -> list[str]:
    """One object of a pass or a plan, as cells of the table."""
    verdict = outcome.verdict
    word = str(outcome.result) if outcome.result is not None else str(verdict.action)
    why = REASONS.get(verdict.reason, verdict.reason.replace("_", " "))  # a function may have words of its own
    if outcome.error:
        why = f"{why}; {outcome.error}"
    size = "-" if verdict.size_bytes is None else format_bytes(verdict.size_bytes)
    age = "-" if verdict.age_seconds is None else format_duration(verdict.age_seconds)
    freed = "-"
    if outcome.result is Result.REMOVED:
        freed = f"{format_bytes(outcome.freed_bytes)}, {counted(outcome.freed_inodes, 'inode')}"
    return [
        word,
        str(verdict.kind),
        shortened(verdict.name),
        size,
        age,
        freed,
        str(verdict.reason),
        str(verdict.rule),
        why,
    ]


def outcomes_table(outcomes: Iterable[Outcome], width: int | None = None) -> list[str]:
    """Removed and kept objects, each with the reason."""
    rows = [outcome_row(outcome) for outcome in outcomes]
    if not rows:
        return []
    table_of_all = [["RESULT", "KIND", "NAME", "SIZE", "AGE", "FREED", "REASON", "RULE", "IN WORDS"], *rows]
    if all(row[FREED] == "-" for row in rows):
        table_of_all = [row[:FREED] + row[FREED + 1 :] for row in table_of_all]
    return table(table_of_all, width, "objects")


def counts_table(kept: Iterable[Outcome], width: int | None = None) -> list[str]:
    """How many objects of each kind stay for which reason, the most first."""
    found: dict[tuple[str, str, str, str], list[int | None]] = {}
    for outcome in kept:
        _, kind, *_, reason, rule, words = outcome_row(outcome)
        found.setdefault((kind, reason, rule, words), []).append(outcome.verdict.size_bytes)
    rows = [["COUNT", "KIND", "SIZE", "REASON", "RULE", "IN WORDS"]]
    for (kind, *why), sizes in sorted(found.items(), key=lambda item: -len(item[1])):
        known = [size for size in sizes if size is not None]
        rows.append([str(len(sizes)), kind, format_bytes(sum(known)) if known else "-", *why])
    return table(rows, width, "counts")


def attribution_lines(attribution: Attribution, width: int | None = None) -> list[str]:
    """What the bytes of a filesystem are used for, and what can be done about each part."""
    used, capacity = attribution.used, attribution.capacity
    roles = ", ".join(attribution.filesystems)
    rows = [["ON DISK", "SHARE", "OBJECTS", "WHAT", "WHAT CAN BE DONE"]]
    for share in attribution.shares:
        words, remedy = WORDS[share.use]
        size = f"{'>= ' * share.at_least}{format_bytes(share.bytes)}"
        part = f"{100 * share.bytes / used:.0f}%" if used else "-"
        rows.append([size, part, "-" if share.objects is None else str(share.objects), words, remedy])
    head = f"where the bytes are: {format_bytes(used)} of {format_bytes(capacity)} used on {escaped(attribution.path)}"
    remarks = [f"note: {escaped(remark.sentence)}" for remark in attribution.remarks]
    return [f"{head} ({roles})", *table(rows, width, "uses"), *remarks]


def pass_lines(record: Pass, *, with_kept: bool = True, width: int | None = None) -> list[str]:
    """A pass for people: the threshold that was acted on, the removals, the result."""
    lines: list[str] = []
    if record.decision.acted_on is not None:
        acted_on = record.decision.acted_on
        lines.append(acted_on_sentence(acted_on, record.observations.signals[acted_on.signal]))
    if record.row:
        layout = f" (layout {record.decision.layout})" if record.decision.layout is not None else ""
        lines.append(f"row: {', '.join(str(function) for function in record.row)}{layout}")
    outcomes = record.removals + (record.kept if with_kept else ())
    lines += outcomes_table(outcomes, width)
    lines.append(f"{record.result}: {escaped(record.reason)}")
    if record.result in (PassResult.SATISFIED, PassResult.NOT_ENOUGH):
        lines.append(
            f"measured {format_bytes(record.measured_bytes)} and {counted(record.measured_inodes, 'inode')}, "
            f"nominal {format_bytes(record.nominal_bytes)}; "
            f"took {format_duration(record.timings.total_seconds)} "
            f"(lists {format_duration(record.timings.list_seconds)}, "
            f"removals {format_duration(record.timings.remove_seconds)})"
        )
    for attribution in record.attributions:
        lines += ["", *attribution_lines(attribution, width)]
    return lines
