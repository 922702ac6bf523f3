"""The ladder of marks on a filesystem, and which of ours come later than the kubelet's.

A disk that fills goes down the ladder: first our marks, then the kubelet's image garbage collection, then its soft and
hard thresholds. A mark of ours below the kubelet's own for the same signal means that the kubelet acts first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from eviction.types import Threshold
from signals.types import FilesystemRole, Signal, SignalObservation


@dataclass(frozen=True, slots=True)
class Rung:
    """One mark: bytes or inodes of the signal, what it is, and whose (`reclaimd` or `kubelet`)."""

    signal: Signal
    mark: int
    what: str
    whose: str


@dataclass(frozen=True, slots=True)
class Later:
    """A threshold of ours that acts later than the kubelet's of the same signal, with both marks."""

    ours: Threshold
    kubelets: Threshold
    our_mark: int
    kubelet_mark: int


def ladder(
    ours: Iterable[Threshold],
    kubelets: Iterable[Threshold],
    image_gc: tuple[int, int] | None,
    observations: Mapping[Signal, SignalObservation],
) -> tuple[Rung, ...]:
    """All marks of the observed signals, the highest first in each signal (a disk that fills meets it first).

    `image_gc`: the kubelet's high and low percentage, None where its periodic image GC is off or not known; it
    acts on imagefs when `usage >= high`, and usage is rounded up (kubelet, `pkg/kubelet/images/image_gc_manager.go`).
    """
    rungs = [
        Rung(t.signal, int(t.effective(observations[t.signal].capacity)), f"{_kind(t)} {t.text()}", whose)
        for whose, thresholds in (("reclaimd", ours), ("kubelet", kubelets))
        for t in thresholds
        if t.signal in observations
    ]
    images = observations.get(Signal.IMAGEFS_AVAILABLE)
    if image_gc is not None and images is not None:
        high, low = image_gc
        rungs.append(
            Rung(images.signal, image_gc_mark(high, images.capacity), f"image GC starts at {high}%", "kubelet")
        )
        rungs.append(Rung(images.signal, images.capacity * (100 - low) // 100, f"image GC frees to {low}%", "kubelet"))
    order = list(Signal)
    return tuple(sorted(rungs, key=lambda rung: (order.index(rung.signal), -rung.mark, rung.whose, rung.what)))


def image_gc_mark(high: int, capacity: int) -> int:
    """The most that can be available while `100 - available * 100 // capacity >= high` holds."""
    return (capacity * (101 - high) - 1) // 100


def later_than_kubelet(
    ours: Iterable[Threshold], kubelets: Iterable[Threshold], observations: Mapping[Signal, SignalObservation]
) -> tuple[Later, ...]:
    """Each of the kubelet's thresholds that no threshold of ours comes before, at the capacities observed.

    Ours comes before when its mark is not lower and its grace not longer. Where none of ours is on the signal the
    kubelet is alone with it, and that is not a matter of later. Nor is containerfs: what the kubelet's file says of it
    never takes effect.
    """
    mine = list(ours)
    found: list[Later] = []
    for kubelet in kubelets:
        if kubelet.signal.filesystem is FilesystemRole.CONTAINERFS:
            continue
        observation = observations.get(kubelet.signal)
        same = [threshold for threshold in mine if threshold.signal is kubelet.signal]
        if observation is None or not same:
            continue
        mark = int(kubelet.effective(observation.capacity))
        marks = {threshold: int(threshold.effective(observation.capacity)) for threshold in same}
        if not any(marks[t] >= mark and t.grace_seconds <= kubelet.grace_seconds for t in same):
            as_quick = [threshold for threshold in same if threshold.grace_seconds <= kubelet.grace_seconds]
            nearest = max(as_quick or same, key=lambda threshold: marks[threshold])
            found.append(Later(nearest, kubelet, marks[nearest], mark))
    return tuple(found)


def _kind(threshold: Threshold) -> str:
    return "hard" if threshold.hard else f"soft ({threshold.grace_seconds:g} s grace)"
