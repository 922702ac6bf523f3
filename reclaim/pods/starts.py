"""Whether a pod is being made right now: while one is, no image is removed.

A kubelet makes the pod's directory and the sandbox, and then, for each container, checks whether its image is there and
makes the container (`pkg/kubelet/kuberuntime/kuberuntime_manager.go`, SyncPod). Between that check and the container,
nothing in the runtime shows that the image is about to be used. That takes milliseconds, and the steps before it can be
observed. A pod counts as being made

* for a hold-off after its directory, its sandbox, or the first run of a container was made;
* while its sandbox is ready and holds no container, or its directory exists without a sandbox, for up to half a minute:
  a sandbox may take seconds, and a pull even longer.

A pod whose spec the kubelet has listed is not waited for: what it needs is known and in use (`images.references`).

Image removals wait for the others, but in one pass for at most twice the hold-off, however fast the disk fills. If new
pods keep coming, images are removed all the same, each based on a list of containers of its own.

Parts of pods are dated by the wall clock, which may be set at any time. So the date is read once, when a part is first
seen; from then on its age is counted on the monotonic clock (`PartAges`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from reclaim.pods.states import PodStateProvider
from reclaim.types import NEVER, Container, PodSandbox, PodSandboxState
from signals.clock import Clock

PATIENCE_HOLD_OFFS = 2.0
UNFINISHED_HOLD_OFFS = 30.0  # how long a pod that lacks its next part counts as being made
AGAIN_HOLD_OFFS = 0.1  # pause before checking for that part again
STEP_SECONDS = 0.5  # if the clocks drift apart by so much between two looks, one was set
LATE_SECONDS = 1.0  # how much older than a look its list may be (`inventory.FRESH_SECONDS`)

Part = tuple[str, float]
"""A part of a pod, and the wall time it is dated with."""


@dataclass(frozen=True, slots=True)
class Directories:
    """The directories of pods as they were at one moment. The kubelet makes a pod's directory before anything else of
    it.

    Evidence that was begun right after that moment says nothing about a pod that has begun since.
    """

    parts: frozenset[Part]
    pods: PodStateProvider = field(repr=False, compare=False)

    def no_pod_has_begun_since(self) -> bool:
        """The last look: reads the directories once more. False if they cannot be read. Asks no runtime."""
        now = look(self.pods)
        return now is not None and now.parts <= self.parts


def look(pods: PodStateProvider) -> Directories | None:
    """The directories of all pods now; None if they cannot be read. Asks no runtime."""
    times = pods.start_times()
    return None if times is None else Directories(frozenset(times.items()), pods)


class PartAges:
    """Since when each part of a pod has existed. Kept from pass to pass. Thread-safe.

    When a part is first seen, its age is what its date says, if that can be true: the date is not in the future, the
    part is not older than the previous look, at which it was missing, and the wall clock was not set in between.
    Otherwise its age counts from when it was first seen, which waits at most a hold-off too long. At the very first
    look, every date that is not in the future counts.
    """

    def __init__(self, clock: Clock):
        self._clock = clock
        self._lock = threading.Lock()
        self._made_at: dict[Part, float] = {}  # on the monotonic clock
        self._last_look: tuple[float, float] | None = None  # in both clocks

    def ages(self, parts: Iterable[Part]) -> dict[Part, float]:
        """Seconds since each of these parts was made. Parts that no longer exist are forgotten."""
        with self._lock:
            now, wall = self._clock.monotonic(), self._clock.wall()
            oldest_seconds = self._oldest_new_part(now, wall)
            known: dict[Part, float] = {}
            for part in parts:
                made_at = self._made_at.get(part)
                if made_at is None:
                    age = wall - part[1]
                    made_at = now - age if 0 <= age <= oldest_seconds else now
                known[part] = made_at
            self._made_at, self._last_look = known, (now, wall)
            return {part: now - made_at for part, made_at in known.items()}

    def _oldest_new_part(self, now: float, wall: float) -> float:
        """How old a part that was not seen before can be by its date; below 0 if dates say nothing."""
        if self._last_look is None:
            return NEVER
        seconds, by_wall = now - self._last_look[0], wall - self._last_look[1]
        return seconds + LATE_SECONDS if abs(seconds - by_wall) < STEP_SECONDS else -1.0


@dataclass(eq=False)
class PodStarts:
    """How long to wait for pods that are being made. For one pass; not for concurrent callers.

    `list_sandboxes`: asks the runtime. `hold_off_seconds`: how long after a part of a pod was made its containers may
    need an image; 0: never wait. `part_ages`: what earlier passes have seen. `under_way`: whether a pod was being made
    when this was last checked.
    """

    list_sandboxes: Callable[[], Sequence[PodSandbox]]
    pods: PodStateProvider
    clock: Clock
    hold_off_seconds: float
    part_ages: PartAges
    under_way: bool = False
    waiting_until: float = float("-inf")

    def __post_init__(self) -> None:
        self._patience_seconds = PATIENCE_HOLD_OFFS * self.hold_off_seconds

    def wait_seconds(self, containers: Sequence[Container]) -> float:
        """How long to wait before checking again; 0 if no pod is being made. `containers`: as just listed.

        Raises RuntimeUnavailable.
        """
        if self.hold_off_seconds <= 0:
            return 0.0
        now = self.clock.monotonic()
        if now < self.waiting_until:  # a concurrent removal waits for the same pod
            return self.waiting_until - now
        sandboxes = self.list_sandboxes()
        longest = max(self._waits(containers, sandboxes), default=0.0)
        self.under_way = longest > 0
        wait = min(longest, self._patience_seconds)
        self._patience_seconds -= wait
        self.waiting_until = now + wait
        return wait

    def _waits(self, containers: Sequence[Container], sandboxes: Sequence[PodSandbox]) -> Iterator[float]:
        """Seconds to wait for each pod that is being made."""
        directories, known = self.pods.start_times() or {}, self.pods.named_images()
        ages = self.part_ages.ages(parts_of_pods(containers, sandboxes, directories))
        occupied = {container.sandbox_id for container in containers}
        with_sandbox = {sandbox.pod_uid for sandbox in sandboxes}
        for container in containers:
            if container.attempt == 0 and container.pod_uid not in known:
                yield self._wait(ages[_part(container)])
        for sandbox in sandboxes:
            if sandbox.state is PodSandboxState.READY and sandbox.pod_uid not in known:
                yield self._wait(ages[_part(sandbox)], unfinished=sandbox.id not in occupied)
        for uid in directories.keys() - known.keys():
            yield self._wait(ages[uid, directories[uid]], unfinished=uid not in with_sandbox)

    def _wait(self, age: float, *, unfinished: bool = False) -> float:
        if age < self.hold_off_seconds:
            return self.hold_off_seconds - age
        if unfinished and age < UNFINISHED_HOLD_OFFS * self.hold_off_seconds:
            return AGAIN_HOLD_OFFS * self.hold_off_seconds
        return 0.0


def parts_of_pods(
    containers: Iterable[Container], sandboxes: Iterable[PodSandbox], directories: Mapping[str, float]
) -> list[Part]:
    """The parts whose age counts: directories, ready sandboxes, and first runs of containers."""
    return [
        *directories.items(),
        *(_part(sandbox) for sandbox in sandboxes if sandbox.state is PodSandboxState.READY),
        *(_part(container) for container in containers if container.attempt == 0),
    ]


def _part(made: Container | PodSandbox) -> Part:
    return made.id, made.created_at_ns / 1e9
