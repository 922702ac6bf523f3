"""What people read: amounts, tables, reasons. Words and columns only; nothing here decides."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from eviction.attribution import WORDS, Attribution
from eviction.ladder import Later
from eviction.log import escaped
from eviction.record import Pass, PassResult, shortened
from eviction.thresholds import thresholds_met, usable
from eviction.types import Threshold
from reclaim.types import Outcome, Reason, Result
from signals.quantity import format_bytes, format_duration
from signals.types import FilesystemRole, Signal, SignalObservations

REASONS: dict[Reason, str] = {
    Reason.OLDER_COPY: "a newer dead copy of it stays",
    Reason.OVER_LIMIT: "beyond the number of dead copies to keep",
    Reason.POD_GONE: "its pod is gone",
    Reason.POD_TERMINATED: "its pod has terminated for good",
    Reason.POD_EVICTED: "its pod was evicted",
    Reason.OLDER_SANDBOX: "a newer sandbox of its pod stays",
    Reason.UNUSED: "no container uses it",
    Reason.MAXIMUM_AGE: "not used for longer than the maximum age",
    Reason.DANGLING: "points to nothing",
    Reason.RUNNING: "is running",
    Reason.CREATED: "may start at any moment",
    Reason.UNKNOWN_STATE: "the runtime does not know its state",
    Reason.NOT_KUBELETS: "carries no pod UID: not made by a kubelet",
    Reason.NEWEST_OF_LIVE_POD: "is how the kubelet knows that it has run",
    Reason.TOO_YOUNG: "is too young",
    Reason.READY: "is ready",
    Reason.HAS_CONTAINERS: "still has containers",
    Reason.NEWEST_SANDBOX: "is the newest sandbox of its pod",
    Reason.POD_ALIVE: "its pod has appeared again",
    Reason.IN_USE: "a container uses it",
    Reason.PINNED: "is pinned",
    Reason.KEEP_LIST: "is on the keep-list",
    Reason.SANDBOX_IMAGE: "no pod starts without it",
    Reason.SANDBOX_IMAGE_UNKNOWN: "nothing says which image pod sandboxes need",
    Reason.UNRESOLVED_IMAGE: "a container uses an image that cannot be told",
    Reason.ROTATING: "its container lives: the log may be rotating",
    Reason.TARGET_EXISTS: "points to a log that exists",
    Reason.ENOUGH_FREED: "the low threshold is reached without it",
    Reason.WITHIN_LIMIT: "within what may stay: a number of dead copies, or the maximum age",
    Reason.RELIEVED: "not needed any more",
    Reason.UNREADABLE: "the filesystem could not be read any more",
    Reason.HELD_OFF: "held off after the start",
    Reason.STOPPING: "the agent was stopping",
    Reason.INCOMPLETE_LISTING: "the runtime gave no complete answer",
}


GAP = "  "
INDENT = "    "
FREED = 5  # the column of outcomes that is empty where nothing went
ROOM = 24  # for a long cell at the end of a line


def amount(signal: Signal, value: int) -> str:
    """An amount of a signal for people: `1.4GiB`, `17 inodes`."""
    return f"{value} inodes" if signal.counts_inodes else format_bytes(value)


def apart(signal: Signal, first: int, second: int) -> tuple[str, str]:
    """Two amounts that differ, as texts that differ: where rounding makes them one, in plain bytes."""
    texts = amount(signal, first), amount(signal, second)
    return texts if texts[0] != texts[1] or first == second else (f"{first}B", f"{second}B")


def table(rows: Iterable[Sequence[str]], width: int | None = None) -> list[str]:
    """Rows as lines with aligned columns; the first row is the head.

    Where that is wider than `width` characters, the columns on the right stand in a second line of each row, indented,
    so that a narrow terminal breaks no line in the middle of a word. Only a cell at the end of a line may be too long.
    """
    cells = [[escaped(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    first = len(widths)
    if width is not None and sum(widths) + len(GAP) * (first - 1) > width:
        first -= 1
        while first > 1 and sum(widths[: first - 1]) + len(GAP) * (first - 1) + min(widths[first - 1], ROOM) > width:
            first -= 1
    lines = []
    for row in cells:
        padded = [cell.ljust(size) for cell, size in zip(row, widths, strict=True)]
        lines.append(GAP.join(padded[:first]).rstrip())
        if first < len(widths):
            lines.append(INDENT + GAP.join(padded[first:]).rstrip())
    return lines


def signals_table(look: SignalObservations, thresholds: Sequence[Threshold], width: int | None = None) -> list[str]:
    """What a look found: each signal with its marks, headroom and state."""
    met = thresholds_met(thresholds, usable(look.signals), enforce_min_reclaim=False)
    rows = [["SIGNAL", "AVAILABLE", "CAPACITY", "MARK", "HEADROOM", "STATE", "FILESYSTEM"]]
    for signal in Signal:
        observation = look.signals.get(signal)
        mine = [threshold for threshold in thresholds if threshold.signal is signal]
        if observation is None:
            rows += [[str(signal), "-", "-", threshold.text(), "-", "unknown", "-"] for threshold in mine]
            continue
        filesystem = observation.filesystem
        where = f"{filesystem.type or '?'} on {filesystem.device or '?'}" if filesystem else "-"
        seen = [str(signal), amount(signal, observation.available), amount(signal, observation.capacity)]
        if not mine:
            rows.append([*seen, "-", "-", "stale" if observation.stale else "no threshold", where])
        for threshold in mine:
            mark = int(threshold.effective(observation.capacity))
            shown = f"{threshold.text()} = {amount(signal, mark)}"
            state = "stale" if observation.stale else _state(threshold, threshold in met)
            rows.append([*seen, shown, amount(signal, observation.available - mark), state, where])
    lines = table(rows, width)
    lines.append(f"layout: {look.layout or 'not known yet'}")
    lines += [f"{role}: {escaped(identity.path)}" for role, (identity, _) in look.filesystems.items()]
    lines += [f"{unavailable.role}: not readable: {escaped(unavailable.reason)}" for unavailable in look.unavailable]
    return lines


def _state(threshold: Threshold, met: bool) -> str:
    if threshold.hard:
        return "UNDER PRESSURE" if met else "clear"
    grace = f"soft, grace {format_duration(threshold.grace_seconds)}"
    return f"UNDER PRESSURE ({grace})" if met else f"clear ({grace})"


def later_sentence(later: Later) -> str:
    """Why a threshold of ours is too late, with both numbers."""
    signal = later.ours.signal
    ours = f"{later.ours.text()} = {amount(signal, later.our_mark)}"
    kubelets = f"{later.kubelets.text()} = {amount(signal, later.kubelet_mark)}"
    grace = "" if later.our_mark < later.kubelet_mark else " with its longer grace period"
    return f"{signal}: the mark of {ours}{grace} acts later than the kubelet's of {kubelets}"


def no_effect_sentences(thresholds: Iterable[Threshold]) -> list[str]:
    """What is configured on containerfs, and what counts instead (kubelet, UpdateContainerFsThresholds)."""
    return [
        f"{one.signal}: {one.text()} has no effect: its threshold follows from nodefs, "
        "or from imagefs where that is dedicated"
        for one in thresholds
        if one.signal.filesystem is FilesystemRole.CONTAINERFS
    ]


def reclaiming_sentence(threshold: Threshold) -> str:
    """The message of the kubelet's event before it reclaims: inodes, or the storage that pods ask for."""
    return f"Attempting to reclaim {'inodes' if threshold.signal.counts_inodes else 'ephemeral-storage'}"


def below_sentence(threshold: Threshold, observations: SignalObservations) -> str:
    """A mark that is crossed, with both numbers."""
    observation = observations.signals[threshold.signal]
    mark = int(threshold.effective(observation.capacity))
    return f"{threshold.signal} {' < '.join(apart(threshold.signal, observation.available, mark))}"


def outcome_row(outcome: Outcome) -> list[str]:
    """One object of a pass or a plan."""
    verdict = outcome.verdict
    word = str(outcome.result) if outcome.result is not None else str(verdict.action)
    why = REASONS[verdict.reason]
    if outcome.error:
        why = f"{why}; {outcome.error}"
    size = "-" if verdict.size_bytes is None else format_bytes(verdict.size_bytes)
    age = "-" if verdict.age_seconds is None else format_duration(verdict.age_seconds)
    freed = "-"
    if outcome.result is Result.REMOVED:
        freed = f"{format_bytes(outcome.freed_bytes)}, {outcome.freed_inodes} inodes"
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
    """What went and what stayed, and why."""
    rows = [outcome_row(outcome) for outcome in outcomes]
    if not rows:
        return []
    table_of_all = [["RESULT", "KIND", "NAME", "SIZE", "AGE", "FREED", "REASON", "RULE", "IN WORDS"], *rows]
    if all(row[FREED] == "-" for row in rows):
        table_of_all = [row[:FREED] + row[FREED + 1 :] for row in table_of_all]
    return table(table_of_all, width)


def attribution_lines(attribution: Attribution, width: int | None = None) -> list[str]:
    """Where the bytes of a filesystem are, and what can be done about each part."""
    used, capacity = attribution.used_bytes, attribution.capacity_bytes
    roles = ", ".join(attribution.roles)
    rows = [["SIZE", "SHARE", "OBJECTS", "WHAT", "WHAT CAN BE DONE"]]
    for share in attribution.shares:
        words, remedy = WORDS[share.use]
        size = f"{'>= ' * share.at_least}{format_bytes(share.bytes)}"
        part = f"{100 * share.bytes / used:.0f}%" if used else "-"
        rows.append([size, part, "-" if share.objects is None else str(share.objects), words, remedy])
    head = f"where the bytes are: {format_bytes(used)} of {format_bytes(capacity)} used on {escaped(attribution.path)}"
    return [f"{head} ({roles})", *table(rows, width)]


def pass_lines(record: Pass, *, with_kept: bool = True, width: int | None = None) -> list[str]:
    """A pass for people: what was seen, what was done, what came of it."""
    lines: list[str] = []
    if record.decision.acted_on is not None:
        signal = record.decision.acted_on.signal
        observation = record.observations.signals[signal]
        mark = int(record.decision.acted_on.effective(observation.capacity))
        seen, wanted = apart(signal, observation.available, mark)
        lines.append(f"{signal} is {seen}, below its mark of {record.decision.acted_on.text()} = {wanted}")
    if record.row:
        layout = f" (layout {record.decision.layout})" if record.decision.layout is not None else ""
        lines.append(f"row: {', '.join(str(function) for function in record.row)}{layout}")
    outcomes = record.removals + (record.kept if with_kept else ())
    lines += outcomes_table(outcomes, width)
    lines.append(f"{record.result}: {escaped(record.reason)}")
    if record.result in (PassResult.SATISFIED, PassResult.NOT_ENOUGH):
        lines.append(
            f"measured {format_bytes(record.measured_bytes)} and {record.measured_inodes} inodes, "
            f"nominal {format_bytes(record.nominal_bytes)}; "
            f"took {format_duration(record.timings.total_seconds)} "
            f"(lists {format_duration(record.timings.list_seconds)}, "
            f"removals {format_duration(record.timings.remove_seconds)})"
        )
    for attribution in record.attributions:
        lines += ["", *attribution_lines(attribution, width)]
    return lines
