"""One look at the node: every filesystem read once, turned into the kubelet's signals.

Rules (kubelet, `pkg/kubelet/eviction/helpers.go`, makeSignalObservations):

* `*.available` counts `f_bavail`, `*.inodesFree` counts `f_ffree`; capacity is read anew at each look.
* A filesystem that counts no inodes (total 0) has no inode signal: that is not "0 % free".
* Paths on one filesystem have one number. Each is read at a moment of its own, and a fill in between would make one
  signal of the filesystem worse than the other; the latest reading counts for all (ours: the kubelet's come from two
  providers). Two sizes on one device are two numbers: a project quota answers for its directory alone.
* A reading that is late or fails is stale: the last numbers, marked, neither pressure nor health. Without earlier
  numbers the signal is left out. Either way the reason is kept for people.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Protocol

from signals.clock import Clock
from signals.filesystems import FilesystemPaths, describe_mount, layout_of
from signals.statvfs import Probes, Reading
from signals.types import (
    FilesystemIdentity,
    FilesystemRole,
    FsStats,
    ReadingUnavailable,
    Signal,
    SignalObservation,
    SignalObservations,
    Unavailable,
)


class SummaryProvider(Protocol):
    """Where observations come from."""

    def observe(self) -> SignalObservations:
        """One look at the node. Never raises for a filesystem that does not answer."""


class NodeSummary:
    """Looks at the filesystems of this node.

    `paths` is replaced (`locate`) when the runtime says where its images are. `device` and `type` are looked up
    when a device is seen for the first time, so a look costs one statvfs for each distinct path. Looks and `locate` may
    come from any thread: a look is at the paths that counted when it began.
    """

    def __init__(self, paths: FilesystemPaths, probes: Probes, clock: Clock):
        self._paths = paths
        self._probes = probes
        self._clock = clock
        self._lock = threading.Lock()  # over `_paths` and `_last` together; never held while a filesystem is read
        self._last: Mapping[str, Reading] = {}
        self._described: dict[tuple[str, int], tuple[str, str]] = {}
        self.imagefs_problem = "the container runtime has not said where its images are"

    @property
    def paths(self) -> FilesystemPaths:
        """Where the filesystems are looked for."""
        return self._paths

    def locate(self, paths: FilesystemPaths) -> None:
        """Looks at these paths from now on."""
        with self._lock:
            self._paths = paths
            self._last = {path: reading for path, reading in self._last.items() if path in paths.distinct()}
        self._probes.keep_only(paths.distinct())

    def observe(self) -> SignalObservations:
        """One look. Each distinct path is read once and waits at most the probe's limit."""
        paths = self._paths
        readings: dict[str, Reading | str] = {}
        for path in sorted(paths.distinct()):
            try:
                readings[path] = self._probes.read(path)
            except ReadingUnavailable as error:
                readings[path] = str(error)
        fresh = _one_a_filesystem({path: it for path, it in readings.items() if isinstance(it, Reading)})
        last = self._last_with(fresh)
        signals: dict[Signal, SignalObservation] = {}
        unavailable: list[Unavailable] = []
        filesystems: dict[FilesystemRole, tuple[FilesystemIdentity, FsStats]] = {}
        for role, where in _roles(paths).items():
            if where is None:
                unavailable.append(Unavailable(role, self.imagefs_problem))
                continue
            answer, known = readings[where], last.get(where)
            if isinstance(answer, str):
                unavailable.append(Unavailable(role, answer))
            if known is None:
                continue
            identity = self._identity(where, known.device_id)
            filesystems[role] = (identity, known.stats)
            signals.update(signals_of(role, identity, known.stats, stale=where not in fresh))
        devices = [identity.device_id for identity, _ in filesystems.values()]
        return SignalObservations(
            signals=signals,
            layout=layout_of(*devices) if len(devices) == len(FilesystemRole) else None,
            time=self._clock.monotonic(),
            wall_time=self._clock.wall(),
            unavailable=tuple(unavailable),
            filesystems=filesystems,
        )

    def _last_with(self, fresh: Mapping[str, Reading]) -> Mapping[str, Reading]:
        """The last readings with those of this look; of them only the paths that still count are kept for the next."""
        with self._lock:
            last = {**self._last, **fresh}
            self._last = {path: reading for path, reading in last.items() if path in self._paths.distinct()}
        return last

    def _identity(self, path: str, device_id: int) -> FilesystemIdentity:
        if (path, device_id) not in self._described:
            self._described[path, device_id] = describe_mount(path)
        device, kind = self._described[path, device_id]
        return FilesystemIdentity(path, device_id, device, kind)


def _one_a_filesystem(readings: Mapping[str, Reading]) -> dict[str, Reading]:
    """The same readings, with the latest of each filesystem for all paths on it."""
    latest: dict[tuple[int, int, int], Reading] = {}
    for reading in readings.values():
        size = _size(reading)
        if size not in latest or reading.stats.time >= latest[size].stats.time:
            latest[size] = reading
    return {path: latest[_size(reading)] for path, reading in readings.items()}


def _size(reading: Reading) -> tuple[int, int, int]:
    return reading.device_id, reading.stats.capacity_bytes, reading.stats.inodes_total


def _roles(paths: FilesystemPaths) -> Mapping[FilesystemRole, str | None]:
    return {
        FilesystemRole.NODEFS: paths.nodefs,
        FilesystemRole.IMAGEFS: paths.imagefs,
        FilesystemRole.CONTAINERFS: paths.containerfs,
    }


def signals_of(
    role: FilesystemRole, identity: FilesystemIdentity, stats: FsStats, *, stale: bool
) -> dict[Signal, SignalObservation]:
    """The one or two signals of one filesystem in one role."""
    available, inodes_free = Signal(f"{role}.available"), Signal(f"{role}.inodesFree")
    found = {
        available: SignalObservation(
            available, stats.available_bytes, stats.capacity_bytes, stats.time, stale, identity
        )
    }
    if stats.inodes_total > 0:
        found[inodes_free] = SignalObservation(
            inodes_free, stats.inodes_free, stats.inodes_total, stats.time, stale, identity
        )
    return found
