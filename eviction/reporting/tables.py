"""Amounts, aligned tables and the table of signals, for people. Decides nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from eviction.decision.thresholds import thresholds_met, usable
from eviction.reporting.log import escaped
from eviction.types import Threshold
from signals.quantity import format_bytes, format_duration
from signals.types import KUBELET_ROLES, Signal, SignalObservations, in_order

GAP = "  "
INDENT = "    "
ROOM = 24  # for a long cell at the end of a line


def amount(signal: Signal, value: int) -> str:
    """An amount of a signal as text: `1.4GiB`, `17 inodes`."""
    return f"{value} inodes" if signal.counts_inodes else format_bytes(value)


def distinguishable(signal: Signal, first: int, second: int) -> tuple[str, str]:
    """Two amounts as texts that differ if the amounts differ: in bytes where rounding would make them the same."""
    texts = amount(signal, first), amount(signal, second)
    return texts if texts[0] != texts[1] or first == second else (f"{first}B", f"{second}B")


def table(rows: Iterable[Sequence[str]], width: int | None = None) -> list[str]:
    """Rows as lines with aligned columns; the first row is the head.

    Where a line would be wider than `width` characters, the columns on the right are moved to a second, indented line
    of each row, so that a narrow terminal breaks no word. Only a cell at the end of a line may exceed the width.
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


def signals_table(
    observations: SignalObservations, thresholds: Sequence[Threshold], width: int | None = None
) -> list[str]:
    """Each signal with its thresholds, headroom and state, then layout and filesystems."""
    met = thresholds_met(thresholds, usable(observations.signals), enforce_min_reclaim=False)
    rows = [["SIGNAL", "AVAILABLE", "CAPACITY", "MARK", "HEADROOM", "STATE", "FILESYSTEM"]]
    for signal in in_order({*observations.signals, *(threshold.signal for threshold in thresholds)}):
        observation = observations.signals.get(signal)
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
            mark = threshold.mark(observation.capacity)
            shown = f"{threshold.text()} = {amount(signal, mark)}"
            state = "stale" if observation.stale else _state(threshold, threshold in met)
            rows.append([*seen, shown, amount(signal, observation.available - mark), state, where])
    lines = table(rows, width)
    unknown = [unavailable.role for unavailable in observations.unavailable]
    lines.append(f"layout: {layout_in_words(observations.layout, (*observations.filesystems, *unknown))}")
    lines += [f"{role}: {escaped(identity.path)}" for role, (identity, _) in observations.filesystems.items()]
    lines += [
        f"{unavailable.role}: not readable: {escaped(unavailable.reason)}" for unavailable in observations.unavailable
    ]
    return lines


def layout_in_words(layout: str | None, roles: Iterable[str]) -> str:
    """The layout; without one, whether it will be known. `roles`: the filesystems of the node, or their signals."""
    if layout is not None:
        return layout
    kubelets = [role.partition(".")[0] in KUBELET_ROLES for role in roles]
    return "none, as there is no runtime" if kubelets and not any(kubelets) else "not known yet"


def _state(threshold: Threshold, met: bool) -> str:
    if threshold.hard:
        return "UNDER PRESSURE" if met else "clear"
    grace = f"soft, grace {format_duration(threshold.grace_seconds)}"
    return f"UNDER PRESSURE ({grace})" if met else f"clear ({grace})"
