"""The values of the pure tests: stepped clocks, observations of a node, listed objects; and
something that another thread does in the middle of something else, at a given step, without
chance."""

import threading
from collections.abc import Callable, Mapping

import yaml

from eviction.types import Threshold, ThresholdValue
from reclaim.evidence.states import PodState, PodStates
from reclaim.types import Container, ContainerState, Image, PodSandbox, PodSandboxState
from signals.interval import Fall, FillRate
from signals.quantity import parse_percentage, parse_quantity
from signals.types import (
    FilesystemIdentity,
    FilesystemRole,
    FsLayout,
    FsStats,
    Signal,
    SignalObservation,
    SignalObservations,
)

KIB, MIB, GIB = 1024, 1024**2, 1024**3
SECOND_NS = 10**9
NOW_NS = 1_800_000_000 * SECOND_NS  # a wall time in 2027


class SteppedClock:
    """A clock that moves only with `step`. Times are seconds."""

    def __init__(self, at: float = 1000.0, wall_at: float = 1_800_000_000.0):
        self._at = at
        self._wall_at = wall_at

    def monotonic(self) -> float:
        """The stepped monotonic time."""
        return self._at

    def wall(self) -> float:
        """The stepped wall time."""
        return self._wall_at

    def step(self, seconds: float) -> None:
        """Lets time pass."""
        self._at += seconds
        self._wall_at += seconds

    def step_wall(self, seconds: float) -> None:
        """Somebody sets the wall clock."""
        self._wall_at += seconds


def value(text: str) -> ThresholdValue:
    """A threshold value as it would be written: `10%` or `1Gi`."""
    if text.endswith("%"):
        return ThresholdValue(percentage=parse_percentage(text))
    return ThresholdValue(quantity=parse_quantity(text))


def threshold(
    signal: Signal, text: str, *, grace_seconds: float = 0.0, min_reclaim: str = ""
) -> Threshold:
    """A threshold, its value and its minimum reclaim as they would be written."""
    return Threshold(
        signal, value(text), grace_seconds, value(min_reclaim) if min_reclaim else None
    )


def observation(
    signal: Signal,
    available: int,
    capacity: int = 100 * GIB,
    *,
    time: float = 0.0,
    stale: bool = False,
) -> SignalObservation:
    """One observation; `time` in monotonic seconds."""
    place = FilesystemIdentity(f"/{signal.filesystem}", 0, "/dev/sda1", "ext4")
    return SignalObservation(signal, available, capacity, time, place, stale)


def observations_of(
    *observations: SignalObservation, time: float = 0.0, layout: FsLayout | None = FsLayout.SINGLE
) -> SignalObservations:
    """The observations of a node, these and no others."""
    return SignalObservations({seen.signal: seen for seen in observations}, layout, time)


def stats(
    available_bytes: int = GIB,
    *,
    inodes_free: int = 500,
    inodes_total: int = 1000,
    time: float = 0.0,
) -> FsStats:
    """A reading of a filesystem of 10 GiB with nothing reserved for root."""
    return FsStats(available_bytes, available_bytes, 10 * GIB, inodes_free, inodes_total, time)


def filling(fill: FillRate, rate: float) -> FillRate:
    """The same amount, which has fallen by so many units a second in three readings."""
    fall = int(rate / 10)
    return fill._replace(
        falls=tuple(Fall(fill.time - ago / 10, 0.1, fall) for ago in (2, 1, 0) if fall)
    )


def seen_filesystems(
    found: Mapping[FilesystemRole, tuple[int, FsStats]],
) -> dict[FilesystemRole, tuple[FilesystemIdentity, FsStats]]:
    """Observed filesystems by role, from device ids and readings."""
    return {
        role: (FilesystemIdentity(f"/{role}", device), reading)
        for role, (device, reading) in found.items()
    }


def image_id(number: int) -> str:
    """The id of an image:

    64 hexadecimal digits behind their algorithm, distinguished by the first 8.
    """
    return "sha256:" + f"{number:08x}".ljust(64, "0")


def image(
    number: int,
    *tags: str,
    digests: tuple[str, ...] = (),
    size_bytes: int = MIB,
    pinned: bool = False,
) -> Image:
    """An image with these tags."""
    return Image(image_id(number), tags, digests, size_bytes, pinned)


def container(
    container_id: str,
    *,
    name: str = "app",
    state: ContainerState = ContainerState.EXITED,
    pod_uid: str = "uid-1",
    age_seconds: float = 3600.0,
    attempt: int = 0,
    sandbox_id: str = "",
    references: tuple[str, ...] = (),
) -> Container:
    """A container that was created `age_seconds` before NOW_NS."""
    created_at_ns = NOW_NS - int(age_seconds * SECOND_NS)
    return Container(
        container_id,
        name,
        state,
        created_at_ns,
        pod_uid,
        "pod",
        "default",
        sandbox_id,
        attempt,
        references,
    )


def sandbox(
    sandbox_id: str,
    *,
    state: PodSandboxState = PodSandboxState.NOTREADY,
    pod_uid: str = "uid-1",
    age_seconds: float = 3600.0,
    attempt: int = 0,
    labelled: bool = True,
) -> PodSandbox:
    """A pod sandbox that was created `age_seconds` before NOW_NS."""
    created_at_ns = NOW_NS - int(age_seconds * SECOND_NS)
    return PodSandbox(
        sandbox_id, state, created_at_ns, pod_uid, "pod", "default", attempt, labelled
    )


def pods_known(uid: str) -> dict[str, PodStates]:
    """What may be known of a pod, by a word: whether it has a directory (null: that cannot be
    read), and what the kubelet lists of it (null: there is no list)."""
    known = """
        alive: [[], {POD: {}}]
        terminated: [[], {POD: {terminated: true}}]
        static: [[], {POD: {terminated: true, static: true}}]
        deleted: [[], {POD: {deleted: true}}]
        over: [[], {POD: {deleted: true, terminated: true}}]
        evicted: [[], {POD: {evicted: true}}]
        not-ready: [[], {POD: {evicted: true}}]
        unlisted: [[], {}]
        unlisted-present: [[POD], {}]
        absent: [[], null]
        present: [[POD], null]
        unreadable: [null, null]
    """
    return {
        word: PodStates(
            None if present is None else frozenset(present),
            None if listed is None else {pod: PodState(**told) for pod, told in listed.items()},
            sources_ready=word != "not-ready",
        )
        for word, (present, listed) in yaml.safe_load(known.replace("POD", uid)).items()
    }


def on_new_thread(serve: Callable[[], None]) -> None:
    """Serves on a thread of its own, as a pool of the node does.

    Raises RuntimeError if none can be started.
    """
    threading.Thread(target=serve, name="statvfs", daemon=True).start()


MOMENT_SECONDS = 0.1


class Interruption:
    """Calls `do` once, on a thread of its own, at the step at which `come` is called. What is going
    on there continues when that has ended, or, if it holds a lock that keeps the other thread out,
    after a moment; `join` waits for it."""

    def __init__(self, do: Callable[[], object]):
        self._thread: threading.Thread | None = None
        self._do = do

    def come(self) -> None:
        """It is that step."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._do, daemon=True)
            self._thread.start()
            self._thread.join(MOMENT_SECONDS)

    def join(self) -> None:
        """It must have come; waits for its end."""
        assert self._thread is not None
        self._thread.join(60.0)
        assert not self._thread.is_alive()


class InterruptedClock(SteppedClock):
    """A clock whose next reader is interrupted by `interruption`."""

    interruption: Interruption | None = None

    def monotonic(self) -> float:
        """The stepped time, after the interruption."""
        if self.interruption is not None:
            self.interruption.come()
        return super().monotonic()
