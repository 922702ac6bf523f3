"""What the product's stages talk to: the runtime's two services and the kubelet's
directories, each call taking time.

A call is on its way, is answered as of one moment, and the answer is on its way back. What it
does is done in the runtime at that moment, whatever has become of who sent it: a removal goes on
when the daemon is killed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

from reclaim.cri.status import CallError, Code
from reclaim.evidence.states import PodDirectory, PodStates, RootIdentity, Why, distrust
from reclaim.types import (
    NEVER,
    NO_STATUS,
    AnsweredLate,
    ConnectionLost,
    Container,
    ContainerState,
    ContainerStatus,
    Image,
    ImageFsInfo,
    PodSandbox,
    PodSandboxStatus,
    RemovalFailed,
    RequestRefused,
    RuntimeVersion,
)
from tests.simulation.machine import PAUSE_IMAGE, Machine
from tests.simulation.scheduler import Scheduler

if TYPE_CHECKING:
    from tests.simulation.judge import Judge

READ_DEADLINE_SECONDS = 10.0
DIRECTORY_SECONDS = 2.0
OURS, ANOTHER = RootIdentity((1, 2), (1, 3)), RootIdentity((1, 2), (7, 2))

ERROR, DONE_AND_ERROR, PRETENDS, NO_ANSWER = "error", "done and error", "pretends", "no answer"


@dataclass(slots=True)
class Mood:
    """How the runtime and the directories are at present. `factor`: how much slower than usual."""

    factor: float = 1.0
    factor_until: float = 0.0
    away_until: float = 0.0
    frozen_until: float = 0.0
    errors: float = 0.0
    errors_until: float = 0.0
    removals_hang: list[tuple[float, str]] = field(default_factory=list)
    """For the next removals: for how long, and how they end."""
    lists_hang: list[float] = field(default_factory=list)
    """For the next lists: for how long, whatever their deadline."""
    lies: list[str] = field(default_factory=list)
    """How the next removals are answered."""
    look_seconds: float = 0.0005
    look_until: float = 0.0
    directories: str = ""
    """What is in their place: "" the kubelet's own, "empty", "missing"."""
    version: int = 20
    connections: int = 1


class Runtime:
    """Both services. `faults`: how many calls went wrong."""

    def __init__(self, machine: Machine, mood: Mood, clock: Scheduler, rng: Random, judge: Judge):
        self._machine = machine
        self._mood = mood
        self._clock = clock
        self._rng = rng
        self._judge = judge
        self.faults = 0
        self.called: Callable[[], None] = lambda: None

    @property
    def runtime_path(self) -> str:
        return ""

    @property
    def connections_made(self) -> int:
        return self._mood.connections

    def _seconds(self) -> float:
        """How long half a call takes: mostly a millisecond, seldom much more."""
        mood, draw = self._mood, self._rng.random()
        seconds = 0.0005 + 0.002 * draw if draw < 0.95 else 0.01 + (draw - 0.95) * 4
        return seconds * mood.factor if self._clock.now < mood.factor_until else seconds

    def _read(self, deadline: float = READ_DEADLINE_SECONDS) -> None:
        """A read is on its way; raises what becomes of it."""
        mood, clock = self._mood, self._clock
        if clock.now < mood.away_until:
            self.faults += 1
            clock.sleep(0.0005)
            raise ConnectionLost("the runtime is away")
        self._machine.mounts_images |= self._machine.replaced and mood.connections > 1
        seconds = self._seconds()
        if clock.now < mood.frozen_until:
            seconds = max(seconds, mood.frozen_until - clock.now)
        if seconds > deadline:
            self.faults += 1
            clock.sleep(deadline)
            raise AnsweredLate(f"it did not answer within {deadline:g} s")
        clock.sleep(seconds)
        if clock.now < mood.errors_until and self._rng.random() < mood.errors:
            self.faults += 1
            if self._rng.random() < 0.5:
                raise RequestRefused("unknown: an error of its own")
            raise ConnectionLost("the connection was lost")
        self._judge.answers()

    def _listed(self, table: str, *, whole: bool = True) -> tuple[Any, ...]:
        """A list, which may hang."""
        if self._mood.lists_hang:
            self.faults += 1
            self._clock.sleep(self._mood.lists_hang.pop(0))
            raise AnsweredLate("it did not answer for long")
        self._read()
        found = self._machine.listed(table)
        if whole:
            self._judge.lists(table)
        self._answered()
        return found

    def _answered(self) -> None:
        self._clock.sleep(self._seconds())
        self.called()

    # ---- RuntimeService

    def version(self) -> RuntimeVersion:
        self._read()
        release = "2.1" if self._machine.mounts_images else "1.6"
        found = RuntimeVersion("containerd", f"{release}.{self._mood.version}")
        self._answered()
        return found

    def call_service(self, method: str, request: bytes, seconds: float) -> bytes:
        raise CallError(Code.UNIMPLEMENTED, f"unknown service {method}")

    def sandbox_image(self) -> str | None:
        self._read()
        return PAUSE_IMAGE if self._machine.says_sandbox_image else None

    def list_containers(self, *, sandbox_id: str = "", pod_uid: str = "") -> tuple[Container, ...]:
        if not (sandbox_id or pod_uid):
            return self._listed("containers")
        return tuple(
            c
            for c in self._listed("containers", whole=False)
            if sandbox_id in ("", c.sandbox_id) and pod_uid in ("", c.pod_uid)
        )

    def list_pod_sandboxes(self) -> tuple[PodSandbox, ...]:
        return self._listed("sandboxes")

    def container_status(self, container_id: str) -> ContainerStatus | None:
        self._read()
        held = self._machine.containers.get(container_id)
        runs = held is not None and self._clock.now < held.runs_until
        state = (
            ContainerState.RUNNING
            if runs
            else ContainerState.EXITED
            if held is None
            else held.listed.state
        )
        odd = self._mood.lies and self._mood.lies[-1] == "no status" and self._mood.lies.pop()
        self._answered()
        if odd:
            self.faults += 1
            return NO_STATUS
        if held is None:
            return None
        volumes = tuple((each,) for each in held.mounts) if self._machine.mounts_images else ()
        return ContainerStatus(container_id, state, volumes, identity=held.listed.identity)

    def pod_sandbox_status(self, sandbox_id: str) -> PodSandboxStatus | None:
        self._read()
        found = self._machine.sandboxes.get(sandbox_id)
        self._answered()
        return None if found is None else PodSandboxStatus(found.state, found.identity)

    def image_of_sandbox(self, sandbox_id: str, within_seconds: float = NEVER) -> str | None:
        return PAUSE_IMAGE

    def stop_container(self, container_id: str, grace_seconds: int) -> None:
        self._remove("container stop", container_id, lambda: True)

    def remove_container(self, container_id: str) -> bool:
        return self._remove(
            "container", container_id, lambda: self._machine.remove_container(container_id)
        )

    def stop_pod_sandbox(self, sandbox_id: str) -> None:
        def stop() -> bool:
            self._machine.stop_sandbox(sandbox_id)
            return True

        self._remove("sandbox stop", sandbox_id, stop)

    def remove_pod_sandbox(self, sandbox_id: str) -> bool:
        return self._remove("sandbox", sandbox_id, lambda: self._machine.remove_sandbox(sandbox_id))

    # ---- ImageService

    def list_images(self) -> tuple[Image, ...]:
        return self._listed("images")

    def image_status(self, reference: str) -> Image | None:
        self._read()
        held = self._machine.found(reference)
        self._answered()
        if held is not None and held.listed.id in self._machine.bad_images:
            raise RequestRefused("unknown: its content is damaged")
        return None if held is None else held.listed

    def remove_image(self, image_id: str) -> bool:
        return self._remove("image", image_id, lambda: self._machine.remove_image(image_id))

    def image_fs_info(self) -> ImageFsInfo:
        self._read()
        self._answered()
        return ImageFsInfo(("/images",), ("/containers",))

    # ---- removals: without a deadline

    def _remove(self, kind: str, object_id: str, act: Callable[[], bool]) -> bool:
        mood, clock, judge = self._mood, self._clock, self._judge
        if clock.now < mood.away_until:
            self.faults += 1
            clock.sleep(0.0005)
            raise RemovalFailed("the runtime is away")
        way, before, after = "", self._seconds() + 0.003, self._seconds()
        if clock.now < mood.factor_until:
            before += self._rng.random() * mood.factor * 0.02
        if mood.removals_hang and kind in ("image", "container", "sandbox"):
            hangs, way = mood.removals_hang.pop(0)
            self.faults += 1
            if self._rng.random() < 0.5:
                before += hangs
            else:
                after += hangs
        elif (
            mood.lies and mood.lies[-1] != "no status" and kind in ("image", "container", "sandbox")
        ):
            way = mood.lies.pop()
            self.faults += 1
        elif clock.now < mood.errors_until and self._rng.random() < mood.errors:
            self.faults += 1
            way = self._rng.choice((ERROR, DONE_AND_ERROR))
        if clock.now < mood.frozen_until:
            before = max(before, mood.frozen_until - clock.now)
        sent, done = judge.sending(), [True]

        def happens() -> None:
            if way not in (ERROR, PRETENDS):
                judge.removes(kind, object_id, sent)
                done[0] = act()

        clock.after(before, happens)
        clock.sleep(before + after)
        if way == NO_ANSWER:
            clock.sleep(NO_ANSWER_SECONDS)
        if way in (ERROR, DONE_AND_ERROR, NO_ANSWER):
            raise RemovalFailed(f"the runtime answered with an error ({way})")
        return done[0]


NO_ANSWER_SECONDS = 600.0  # then the connection breaks


class Directories:
    """The kubelet's directories, for the product's KubeletPods."""

    path = "/var/lib/kubelet/pods"

    def __init__(self, machine: Machine, mood: Mood, clock: Scheduler, judge: Judge):
        self._machine = machine
        self._mood = mood
        self._clock = clock
        self._judge = judge

    def _look(self) -> bool:
        """A look is on its way; whether it is answered in time."""
        mood = self._mood
        seconds = mood.look_seconds if self._clock.now < mood.look_until else 0.0005
        self._clock.sleep(min(seconds, DIRECTORY_SECONDS) / 2)
        return seconds < DIRECTORY_SECONDS

    def pod_states(self) -> PodStates:
        answered = self._look()
        kind = self._mood.directories
        present = frozenset(uid for uid, pod in self._machine.pods.items() if pod.seen is not None)
        self._look()
        if not answered or kind == "missing":
            return PodStates(None, doubt=distrust(Why.UNREADABLE, f"{self.path} cannot be read"))
        if kind == "empty":
            return PodStates(frozenset(), identity=ANOTHER)
        return PodStates(present, identity=OURS)

    def pod_directories(self) -> Mapping[str, PodDirectory] | None:
        answered = self._look()
        kind = self._mood.directories
        found = {uid: pod.seen for uid, pod in self._machine.pods.items() if pod.seen is not None}
        if not kind and answered:
            self._judge.looks()
        else:
            self._judge.looks_in_vain()
        self._look()
        if not answered or kind == "missing":
            return None
        return {} if kind == "empty" else found
