"""The ladder: all marks of a filesystem, ours and the kubelet's, in the order in which a filling disk meets them.

It should meet our marks first, then the kubelet's image garbage collection, then the kubelet's soft and hard
thresholds. Where a mark of ours is below the kubelet's own for the same signal, the kubelet acts first;
`later_than_kubelet` finds these.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from eviction.types import Threshold
from signals.types import FilesystemRole, Signal, SignalObservation, order_of


@dataclass(frozen=True, slots=True)
class LadderMark:
    """One mark: bytes or inodes of the signal, what happens there, and who acts (`reclaimd` or `kubelet`)."""

    signal: Signal
    mark: int
    what: str
    whose: str


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
        LadderMark(t.signal, t.mark(observations[t.signal].capacity), f"{_kind(t)} {t.text()}", whose)
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


def _kind(threshold: Threshold) -> str:
    return "hard" if threshold.hard else f"soft ({threshold.grace_seconds:g} s grace)"
