"""Whether a pod or one of its containers is being made right now: while one is, no image is
removed.

A kubelet makes the pod's directory and the sandbox, and then, for each container, checks
whether its image is there, makes the container's directory and a file in it, and makes the
container (`pkg/kubelet/kuberuntime/ kuberuntime_manager.go`, SyncPod;
`kuberuntime_container.go`, startContainer). Between that check and the container, nothing in
the runtime shows that the image is about to be used. That takes milliseconds, and the steps
before it can be observed. A pod counts as being made

* for a hold-off after its directory, its sandbox, or the first run of a container was made;
* while it is unfinished, for up to half a minute after that part was made: its directory
  exists without a sandbox, its sandbox is ready and holds no container, or a container's
  directory is younger than every listed container of this name.

Image removals wait for such pods, but not for those whose spec the kubelet has listed: what they
need is known and in use (`evidence.references`). In one pass they wait for at most twice the
hold-off, to which time that was lost to lists too old counts. Once that is used up, an image waits
only for the pods that were unfinished by then (`PodStarts.wait_seconds`); and what the last look
sees stops an image once: a list that was begun after it was asked about again is enough.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from reclaim.evidence.states import PodDirectories, PodStateProvider
from reclaim.types import NEVER, Container, PodSandbox, PodSandboxState
from signals.clock import Clock

# a hold-off that is shorter than a second, or 0, counts as one for what is lost
PATIENCE_HOLD_OFFS = 2.0
UNFINISHED_HOLD_OFFS = 30.0  # how long a pod that lacks its next part counts as being made
# how long an image waits for unfinished pods: much less than `removals.HANGS_SECONDS`
LONGEST_SECONDS = 30.0
AGAIN_HOLD_OFFS = 0.1  # pause before checking for that part again
STEP_SECONDS = 0.5  # if the clocks drift apart by so much between two looks, one was set
# how old the lists behind a plan may be; each removal is checked against newer ones
FRESH_SECONDS = 1.0
# a container made so long before its directory changed is of that attempt: clocks are coarse
SAME_SECONDS = 1.0


PartKey = tuple[str, float]
"""What a part is known by from one look to the next: its id, and its date."""


class Part(NamedTuple):
    """A part of a pod. `dated`: by the wall clock.

    `unfinished`: it lacks the next part. `held_off`: what comes next may need an image.
    """

    pod_uid: str
    id: str
    dated: float
    unfinished: bool = False
    held_off: bool = True

    @property
    def key(self) -> PartKey:
        return self.id, self.dated


def parts_of_pods(
    containers: Sequence[Container], sandboxes: Sequence[PodSandbox], directories: PodDirectories
) -> Iterator[Part]:
    """The parts whose age counts.

    Directories of pods and of containers, ready sandboxes, first runs of containers.
    """
    occupied = {container.sandbox_id for container in containers}
    with_sandbox = {sandbox.pod_uid for sandbox in sandboxes}
    for container in containers:
        if container.attempt == 0:
            yield Part(container.pod_uid, container.id, container.created_at_ns / 1e9)
    for sandbox in sandboxes:
        if sandbox.state is PodSandboxState.READY:
            yield Part(
                sandbox.pod_uid,
                sandbox.id,
                sandbox.created_at_ns / 1e9,
                unfinished=sandbox.id not in occupied,
            )
    making = set(being_made(directories, containers))
    for uid, directory in directories.items():
        yield Part(uid, uid, directory.changed, unfinished=uid not in with_sandbox)
        for name, changed in directory.containers.items():
            # its container comes within a moment
            unfinished = (uid, name) in making
            yield Part(uid, f"{uid}/{name}", changed, unfinished=unfinished, held_off=False)


def nothing_has_begun(
    before: PodDirectories, now: PodDirectories | None, containers: Sequence[Container]
) -> bool:
    """The last look. The kubelet makes the directories of a pod, and of each attempt of a
    container, before anything else of it: so a list of containers says nothing about what has begun
    since the look right before it.

    `before`: that look. `now`: another one; None: they cannot be read. `containers`: the
    list. What has only gone says nothing, nor does a pod's directory that was touched if all
    its containers are listed.
    """
    if now is None:
        return False
    changed = {uid: directory for uid, directory in now.items() if directory != before.get(uid)}
    for uid, directory in changed.items():
        known = before[uid].containers if uid in before else {}
        if not directory.containers or not directory.containers.items() <= known.items():
            return False
    return not any(being_made(changed, containers))


def being_made(
    directories: PodDirectories, containers: Iterable[Container]
) -> Iterator[tuple[str, str]]:
    """The directories of containers that none of these containers was made after, with the UID of
    the pod: the runtime was not asked for that attempt yet, or has not listed it."""
    made_at = defaultdict[tuple[str, str], float](lambda: float("-inf"))
    for container in containers:
        key = container.pod_uid, container.name
        made_at[key] = max(made_at[key], container.created_at_ns / 1e9)
    for uid, directory in directories.items():
        for name, changed in directory.containers.items():
            if made_at[uid, name] < changed - SAME_SECONDS:
                yield uid, name


class _Look(NamedTuple):
    """One look at all parts. Its time is on both clocks; `made_at` is on the monotonic one."""

    monotonic: float
    wall: float
    made_at: Mapping[PartKey, float]


class PartAges:
    """Since when each part of a pod has existed. Kept from pass to pass. Thread-safe.

    Parts are dated by the wall clock, which may be set at any time. So a date is read once, when
    the part is first seen; from then on its age is counted on the monotonic clock.

    When a part is first seen, its age is what its date says, if that can be true: the date is
    not in the future, the part is not older than the previous look, at which it was missing,
    and the wall clock was not set in between. Otherwise its age counts from when it was first
    seen, which waits at most a hold-off too long. At the very first look, every date that is
    not in the future counts.
    """

    def __init__(self, clock: Clock):
        self._clock = clock
        # replaced as a whole: of two looks at once, one is as if it had not been
        self._last: _Look | None = None

    def ages(self, parts: Iterable[Part]) -> dict[PartKey, float]:
        """Seconds since each of these parts was made, by its key. All others are forgotten."""
        last = self._last
        now = self._clock.monotonic()
        wall = self._clock.wall()
        known = {} if last is None else last.made_at
        oldest_seconds = NEVER  # by its date, of a part that was missing in the last look
        if last is not None:
            seconds = now - last.monotonic
            was_set = abs(seconds - (wall - last.wall)) >= STEP_SECONDS
            oldest_seconds = -1.0 if was_set else seconds + FRESH_SECONDS
        made_at: dict[PartKey, float] = {}
        for part in parts:
            age = wall - part.dated
            made_at[part.key] = known.get(
                part.key, now - age if 0 <= age <= oldest_seconds else now
            )
        self._last = _Look(now, wall, made_at)
        return {key: now - at for key, at in made_at.items()}


class _Wait(NamedTuple):
    """How long to wait for one pod. `unfinished`: it lacks its next part."""

    uid: str
    seconds: float
    unfinished: bool


@dataclass(eq=False)
class PodStarts:
    """How long to wait for pods that are being made. For one pass; not for concurrent callers.

    `list_sandboxes`: asks the runtime. `hold_off_seconds`: how long after a part of a pod was
    made its containers may need an image; 0: never wait. `part_ages`: what earlier passes have
    seen. `urgent`: whether relief must come first. `under_way`: whether a pod was being made
    when this was last checked.
    """

    list_sandboxes: Callable[[], Sequence[PodSandbox]]
    pods: PodStateProvider
    clock: Clock
    hold_off_seconds: float
    part_ages: PartAges
    urgent: Callable[[], bool]
    under_way: bool = False
    waiting_until: float = float("-inf")

    def __post_init__(self) -> None:
        self._spent_seconds = 0.0
        self._waited = False
        # image -> when it was asked about, its pods
        self._unfinished: dict[str, tuple[float, frozenset[str]]] = {}

    @property
    def patience_used_up(self) -> bool:
        """Whether so much was waited and lost that the last look stops no image twice."""
        return self._spent_seconds >= PATIENCE_HOLD_OFFS * max(self.hold_off_seconds, 1.0)

    def lost(self, seconds: float) -> None:
        """Evidence was in vain, after so many seconds."""
        self._spent_seconds += seconds

    def wait_seconds(self, containers: Sequence[Container], image_id: str) -> float:
        """How long to wait before asking again about this image; 0 if it need not wait.
        `containers`: as just listed.

        Raises RuntimeUnavailable.
        """
        if self.hold_off_seconds <= 0:
            return 0.0
        now = self.clock.monotonic()
        if now < self.waiting_until:  # a concurrent removal waits for the same pod
            return self.waiting_until - now
        if self._waited:  # the lists that were read anew for it are part of the wait
            self._spent_seconds += min(now - self.waiting_until, FRESH_SECONDS)
        waits = list(self._waits(containers, self.list_sandboxes()))
        self.under_way = bool(waits)
        unfinished = frozenset(wait.uid for wait in waits if wait.unfinished)
        patience = max(PATIENCE_HOLD_OFFS * self.hold_off_seconds - self._spent_seconds, 0.0)
        asked_at, pods = self._unfinished.get(image_id, (now, unfinished))
        # what begins while there is patience counts, too; after that, only what was unfinished by
        # then, or when this image was first asked about
        pods = unfinished if patience > 0 else pods & unfinished
        self._unfinished[image_id] = asked_at, pods
        seconds = min(max((wait.seconds for wait in waits), default=0.0), patience)
        self._spent_seconds += seconds
        # if it is urgent, a moment, in which a container that is being made is listed
        longest = self._again_seconds if self.urgent() else LONGEST_SECONDS
        if not seconds and pods and now - asked_at < longest:
            seconds = self._again_seconds
        self.waiting_until = now + seconds
        self._waited = seconds > 0
        return seconds

    @property
    def _again_seconds(self) -> float:
        return AGAIN_HOLD_OFFS * self.hold_off_seconds

    def _waits(
        self, containers: Sequence[Container], sandboxes: Sequence[PodSandbox]
    ) -> Iterator[_Wait]:
        """The pods that are being made."""
        directories = self.pods.pod_directories() or {}
        known = self.pods.named_images()
        parts = list(parts_of_pods(containers, sandboxes, directories))
        ages = self.part_ages.ages(parts)
        for part in parts:
            age = ages[part.key]
            if part.pod_uid in known:
                continue
            if part.held_off and age < self.hold_off_seconds:
                yield _Wait(part.pod_uid, self.hold_off_seconds - age, part.unfinished)
            elif part.unfinished and age < UNFINISHED_HOLD_OFFS * self.hold_off_seconds:
                yield _Wait(part.pod_uid, self._again_seconds, unfinished=True)
