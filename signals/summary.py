"""One observation of the node: every filesystem is read once, and the readings become the kubelet's signals.

Rules (kubelet, `pkg/kubelet/eviction/helpers.go`, makeSignalObservations):

* `*.available` is `f_bavail`, `*.inodesFree` is `f_ffree`; the capacity is read anew for each observation.
* A filesystem that does not count inodes (total 0) has no inode signal, rather than one with 0 % free.
* Paths on one filesystem share its numbers. They are read one after another, and a fill in between would make the
  signals of one filesystem differ, so its latest reading counts for all of them. (The kubelet's numbers come from two
  providers.) Different sizes on one device stay different: a filesystem that the configuration adds is read at its
  path, where under a project quota `statvfs` answers for the directory.
* If a reading is late or fails, the last numbers are kept and marked as stale; they count neither as pressure nor as
  its end. Without earlier numbers the signal is left out. Either way the reason is recorded.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace

from signals.clock import Clock
from signals.filesystems import FilesystemPaths, Reading, describe, layout_of
from signals.probe import Probes
from signals.types import (
    KUBELET_ROLES,
    FilesystemIdentity,
    FilesystemRole,
    FsStats,
    Poll,
    ReadingUnavailable,
    Signal,
    SignalObservation,
    SignalObservations,
    Unavailable,
    signals_about,
)


class NodeSummary:
    """Observes the filesystems of this node. Any thread may call.

    `locate` replaces the paths once the runtime says where its images are; an observation that has begun still reads
    the old paths. The device and type of a filesystem are looked up once, so an observation costs one reading per
    distinct path.
    """

    def __init__(self, paths: FilesystemPaths, probes: Probes, clock: Clock):
        self._paths = paths
        self._probes = probes
        self._clock = clock
        self._lock = threading.Lock()  # guards `_paths` and `_last` together; never held while a filesystem is read
        self._last: Mapping[str, Reading] = {}
        self._described: dict[tuple[str, int], FilesystemIdentity] = {}
        self.imagefs_problem = "the container runtime has not said where its images are"

    @property
    def paths(self) -> FilesystemPaths:
        """The paths that the next observation reads."""
        return self._paths

    def locate(self, paths: FilesystemPaths) -> None:
        """Observes these paths from now on and closes the probes of all others."""
        with self._lock:
            self._paths = paths
            self._last = {path: reading for path, reading in self._last.items() if path in paths.distinct()}
        self._probes.keep_only(paths.distinct())

    def observe(self) -> SignalObservations:
        """One observation. Each distinct path is read once and waits at most the probe's limit (2 s)."""
        paths = self._paths
        readings: dict[str, Reading | str] = {}
        for path in sorted(paths.distinct()):
            try:
                readings[path] = self._probes.read(path)
            except ReadingUnavailable as error:
                readings[path] = str(error)
        fresh = _one_per_filesystem({path: it for path, it in readings.items() if isinstance(it, Reading)})
        last = self._last_with(fresh)
        signals: dict[Signal, SignalObservation] = {}
        unavailable: list[Unavailable] = []
        filesystems: dict[FilesystemRole, tuple[FilesystemIdentity, FsStats]] = {}
        polls: dict[FilesystemRole, tuple[Poll, ...]] = {}
        limits: dict[FilesystemRole, FsStats] = {}
        for role, where in paths.by_role().items():
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
            polls[role] = fresh[where].polls if where in fresh else ()
            if known.in_directory is not None:
                limits[role] = known.in_directory
            signals.update(signals_of(role, identity, known.stats, stale=where not in fresh))
        devices = [filesystems[role][0].device_id for role in KUBELET_ROLES if role in filesystems]
        return SignalObservations(
            signals=signals,
            layout=layout_of(*devices) if len(devices) == len(KUBELET_ROLES) else None,
            time=self._clock.monotonic(),
            wall_time=self._clock.wall(),
            unavailable=tuple(unavailable),
            filesystems=filesystems,
            polls=polls,
            limits=limits,
        )

    def _last_with(self, fresh: Mapping[str, Reading]) -> Mapping[str, Reading]:
        """The last readings, updated with the fresh ones. Those of paths that were replaced meanwhile are not
        remembered."""
        with self._lock:
            last = {**self._last, **fresh}
            self._last = {path: reading for path, reading in last.items() if path in self._paths.distinct()}
        return last

    def _identity(self, path: str, device_id: int) -> FilesystemIdentity:
        if (path, device_id) not in self._described:
            self._described[path, device_id] = describe(path, device_id)
        return self._described[path, device_id]


def _one_per_filesystem(readings: Mapping[str, Reading]) -> dict[str, Reading]:
    """For each path, the latest reading of its filesystem, with the polls of all paths on it: only one of them is
    polled."""
    found = {}
    for path, reading in readings.items():
        here = [each for each in readings.values() if _size(each) == _size(reading)]
        latest = max(here, key=lambda each: each.stats.time)
        polls = sorted({poll for each in here for poll in each.polls})
        found[path] = replace(latest, polls=tuple(polls), in_directory=reading.in_directory)
    return found


def _size(reading: Reading) -> tuple[int, int, int]:
    return reading.device_id, reading.stats.capacity_bytes, reading.stats.inodes_total


def signals_of(
    role: FilesystemRole, identity: FilesystemIdentity, stats: FsStats, *, stale: bool
) -> dict[Signal, SignalObservation]:
    """The signals of one filesystem in one role: bytes, and inodes if it counts them."""
    available, inodes_free = signals_about(role)
    numbers = [(available, stats.available_bytes, stats.capacity_bytes)]
    if stats.inodes_total > 0:
        numbers.append((inodes_free, stats.inodes_free, stats.inodes_total))
    return {one: SignalObservation(one, left, total, stats.time, stale, identity) for one, left, total in numbers}
