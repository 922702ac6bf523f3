"""One observation of the node: what was published of each filesystem becomes the kubelet's signals.

Rules (kubelet, `pkg/kubelet/eviction/helpers.go`, makeSignalObservations):

* `*.available` is `f_bavail`, `*.inodesFree` is `f_ffree`; the capacity is read
  anew for each observation.
* A filesystem that does not count inodes (total 0) has no inode signal,
  rather than one with 0 % free.
* Paths on one filesystem share its numbers. They are read one after another, and a fill in between
  would make the signals of one filesystem differ, so its latest reading counts for all of them.
  (The kubelet's numbers come from two providers.) Different sizes on one device stay different: a
  filesystem that the configuration adds is read at its path, where under a project quota `statvfs`
  answers for the directory.
* If a reading is late or fails, the last numbers are kept and marked as stale; they count neither
  as pressure nor as its end. Without earlier numbers the signal is left out. Either way the reason
  is recorded. What is late or fails says nothing about other filesystems.
"""

import queue
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from signals.clock import LATE_SECONDS, Clock
from signals.filesystems import FilesystemPaths, Reading, layout_of
from signals.samplers import Sample, Samplers
from signals.types import (
    KUBELET_ROLES,
    FilesystemIdentity,
    FilesystemRole,
    FsStats,
    Signal,
    SignalObservation,
    SignalObservations,
    Unavailable,
    signals_about,
)


class Published(NamedTuple):
    """What is known of one path."""

    last: Sample | None = None
    """The last sample with a reading; None: it was never read."""
    problem: str = ""
    """Why the last attempt failed; empty if it did not."""
    asked_at: float | None = None
    """Since when an answer is awaited (monotonic seconds); None: nobody waits."""

    def late(self, now: float) -> bool:
        """Whether it has been awaited for too long."""
        return self.asked_at is not None and now >= self.asked_at + LATE_SECONDS

    def tried_since(self, then: float, now: float) -> bool:
        """Whether a reading that began then or later has succeeded, or none can be had now."""
        read = self.last is not None and self.last.begun_at >= then
        return read or bool(self.problem) or self.late(now)


PublishedReadings = Mapping[str, Published]
"""By path. A path that is missing was never asked for."""


def asked(readings: PublishedReadings, paths: Iterable[str], now: float) -> PublishedReadings:
    """The same, once a reading of these paths was asked for.

    The first unanswered question counts.
    """
    after = dict(readings)
    for path in paths:
        known = after.get(path, Published())
        after[path] = known._replace(asked_at=now if known.asked_at is None else known.asked_at)
    return after


def answered(readings: PublishedReadings, sample: Sample) -> PublishedReadings:
    """The same with an answer."""
    known = readings.get(sample.path, Published())
    last = known.last if sample.reading is None else sample
    return {**readings, sample.path: Published(last, sample.problem)}


def observations_of(
    paths: FilesystemPaths,
    readings: PublishedReadings,
    now: float,
    *,
    wall: float,
    imagefs_problem: str,
) -> SignalObservations:
    """The signals of now. `wall`: seconds since the epoch.

    `imagefs_problem`: why it is not known where images are.
    """
    known = _one_per_filesystem(
        published.last for published in readings.values() if published.last is not None
    )
    signals: dict[Signal, SignalObservation] = {}
    unavailable: list[Unavailable] = []
    filesystems: dict[FilesystemRole, tuple[FilesystemIdentity, FsStats]] = {}
    polls: dict[FilesystemRole, tuple[FsStats, ...]] = {}
    limits: dict[FilesystemRole, FsStats] = {}
    for role, path in paths.by_role().items():
        if path is None:
            unavailable.append(Unavailable(role, imagefs_problem))
            continue
        problem = _problem(path, readings.get(path) or Published(), now)
        if problem:
            unavailable.append(Unavailable(role, problem))
        if path not in known:
            continue
        identity, reading = known[path]
        filesystems[role] = identity, reading.stats
        polls[role] = () if problem else reading.polls
        if reading.in_directory is not None:
            limits[role] = reading.in_directory
        signals.update(signals_of(role, identity, reading.stats, stale=bool(problem)))
    devices = [filesystems[role][0].device_id for role in KUBELET_ROLES if role in filesystems]
    return SignalObservations(
        signals=signals,
        layout=layout_of(*devices) if len(devices) == len(KUBELET_ROLES) else None,
        time=now,
        wall_time=wall,
        unavailable=tuple(unavailable),
        filesystems=filesystems,
        polls=polls,
        limits=limits,
    )


def _problem(path: str, published: Published, now: float) -> str:
    """Why the path cannot be read at present; empty if it can."""
    if published.late(now):
        return f"{path}: the filesystem did not answer statvfs within {LATE_SECONDS:g} s"
    if published.last is None and not published.problem:
        return f"{path}: it has not been read yet"
    return published.problem


@dataclass(eq=False)
class NodeSummary:
    """Where the filesystems are, and how all but the owner of the state observe them.

    Any thread may call. `locate` replaces the paths once the runtime says where its images are.
    """

    paths: FilesystemPaths
    samplers: Samplers
    clock: Clock
    imagefs_problem: str = "the container runtime has not said where its images are"

    def locate(self, paths: FilesystemPaths) -> None:
        """Observes these paths from now on and closes the samplers of all others."""
        self.paths = paths
        self.samplers.keep_only(paths.distinct())

    def observe(self) -> SignalObservations:
        """One observation, without memory of earlier ones.

        Each distinct path is read once, and all of them together are waited for at most 2 s.
        """
        paths = self.paths
        awaited = paths.distinct()
        # each is answered once, perhaps when nobody waits any more
        answers = queue.SimpleQueue[Sample]()
        began = self.clock.monotonic()
        readings = asked({}, awaited, began)
        self.samplers.ask(sorted(awaited), answers.put)
        now = began
        for _ in awaited:
            try:
                sample = answers.get(timeout=max(began + LATE_SECONDS - now, 0.0))
            except queue.Empty:
                now = began + LATE_SECONDS
                break
            readings = answered(readings, sample)
            now = self.clock.monotonic()
        return observations_of(
            paths, readings, now, wall=self.clock.wall(), imagefs_problem=self.imagefs_problem
        )


def _one_per_filesystem(samples: Iterable[Sample]) -> dict[str, tuple[FilesystemIdentity, Reading]]:
    """For each path, the latest reading of its filesystem, with the polls of all paths on it: only
    one of them is polled."""
    filesystems: dict[tuple[int, int, int], list[tuple[Sample, Reading]]] = {}
    for sample in samples:
        if sample.reading is not None:
            stats = sample.reading.stats
            size = sample.reading.device_id, stats.capacity_bytes, stats.inodes_total
            filesystems.setdefault(size, []).append((sample, sample.reading))
    latest = {}
    for read in filesystems.values():
        stats = max((reading.stats for _, reading in read), key=_time_of)
        polled = {poll.time: poll for _, reading in read for poll in reading.polls}
        polls = tuple(sorted(polled.values(), key=_time_of))
        for sample, reading in read:
            identity = sample.identity or FilesystemIdentity(sample.path, reading.device_id)
            latest[sample.path] = identity, reading._replace(stats=stats, polls=polls)
    return latest


def _time_of(stats: FsStats) -> float:
    return stats.time


def signals_of(
    role: FilesystemRole, identity: FilesystemIdentity, stats: FsStats, *, stale: bool
) -> dict[Signal, SignalObservation]:
    """The signals of one filesystem in one role: bytes, and inodes if it counts them."""
    available, inodes_free = signals_about(role)
    numbers = {available: (stats.available_bytes, stats.capacity_bytes)}
    if stats.inodes_total > 0:
        numbers[inodes_free] = (stats.inodes_free, stats.inodes_total)
    return {
        signal: SignalObservation(
            signal, left, total, time=stats.time, filesystem=identity, stale=stale
        )
        for signal, (left, total) in numbers.items()
    }
