"""What a node holds, as its runtime lists it, and what went from one list to the next: by reading alone.

A node that a drill did not build writes nothing down for it. So the lists are asked for again and again, on a thread of
their own and in a connection of their own: what is in one and not in the next has gone in between.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

from eviction.drill.measurement.measurements import EndedPod, NamedObject, RemovalSeen
from eviction.drill.pressure.schedule import Strike
from reclaim.services import ImageService, RuntimeService
from reclaim.types import Kind, PodSandboxState, RuntimeUnavailable

LOG = "log"
SHORTEST_PAUSE_SECONDS = 0.02
CALM_PAUSE_SECONDS = 1.0
SHARE = 4.0  # of the time at most a fifth is spent asking: a runtime with thousands of objects has other work


class Lists(RuntimeService, ImageService, Protocol):
    """Both services of one runtime; only their lists are asked for."""


@dataclass(frozen=True, slots=True)
class Inventory:
    """Everything at one moment. `objects`: (kind, id) -> name, of logs the directory is both. `ready_pods`: by UID the
    name of each pod with a sandbox that is READY."""

    objects: dict[tuple[str, str], str] = field(default_factory=dict)
    ready_pods: dict[str, str] = field(default_factory=dict)

    @property
    def named(self) -> frozenset[NamedObject]:
        """The objects by kind and name."""
        return frozenset(NamedObject(kind, name) for (kind, _), name in self.objects.items())


def take_inventory(runtime: Lists, pod_logs_directory: str) -> Inventory:
    """One look at all lists. Raises RuntimeUnavailable unless all of them are complete."""
    sandboxes = runtime.list_pod_sandboxes()
    objects = {(str(Kind.IMAGE), each.id): each.title for each in runtime.list_images()}
    objects |= {(str(Kind.CONTAINER), each.id): each.title for each in runtime.list_containers()}
    objects |= {(str(Kind.SANDBOX), each.id): each.title for each in sandboxes}
    try:
        objects |= {(LOG, name): name for name in os.listdir(pod_logs_directory)}
    except OSError:
        pass  # without logs of pods there is nothing to see
    ready = (each for each in sandboxes if each.state is PodSandboxState.READY)
    return Inventory(objects, {each.pod_uid: f"{each.pod_namespace}/{each.pod_name}" for each in ready})


class ListWatch:
    """Asks for the lists until it is stopped: often while `pressed` says so, once a second otherwise.

    Making it takes the first inventory, and raises RuntimeUnavailable. From a later one that fails nothing follows; the
    first of each row of them is kept as a strike. `apart_seconds`: how far two answers were apart at most.
    """

    def __init__(self, runtime: Lists, pod_logs_directory: str, pressed: Callable[[], bool]):
        self._runtime = runtime
        self._pod_logs_directory = pod_logs_directory
        self._pressed = pressed
        self.first = self.last = take_inventory(runtime, pod_logs_directory)
        self._began = self._answered = time.monotonic()
        self._silent = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lists", daemon=True)
        self.removals: list[RemovalSeen] = []
        self.ended_pods: list[EndedPod] = []
        self.strikes: list[Strike] = []
        self.apart_seconds = 0.0

    @property
    def news(self) -> int:
        """A number that grows with everything that goes."""
        return len(self.removals) + len(self.ended_pods)

    def start(self, began: float) -> None:
        """`began`: monotonic seconds from which all times are counted."""
        self._began = began
        self._thread.start()

    def stop(self) -> None:
        """One more look, so that nothing is missed at the end, and no more."""
        self._stopping.set()
        self._thread.join()
        self._look()

    def _run(self) -> None:
        while True:
            took = self._look()
            now = time.monotonic()
            rested_at, calm_until = now + max(SHARE * took, SHORTEST_PAUSE_SECONDS), now + CALM_PAUSE_SECONDS
            while now < rested_at or (now < calm_until and not self._pressed()):
                if self._stopping.wait(SHORTEST_PAUSE_SECONDS):
                    return
                now = time.monotonic()

    def _look(self) -> float:
        """Asks once and compares with what was there before; how long the answer took."""
        asked = time.monotonic()
        try:
            found = self._as_known(take_inventory(self._runtime, self._pod_logs_directory))
        except RuntimeUnavailable as error:
            if not self._silent:
                self.strikes.append(Strike(f"the runtime's lists are not there: {error}", asked - self._began))
            self._silent = True
            return time.monotonic() - asked
        answered, self._silent = time.monotonic(), False
        self.apart_seconds = max(self.apart_seconds, answered - self._answered)
        self._answered = answered
        seconds = answered - self._began
        for (kind, object_id), name in self.last.objects.items():
            if (kind, object_id) not in found.objects:
                self.removals.append(RemovalSeen(seconds, kind, name, object_id))
        self.ended_pods += [
            EndedPod(seconds, name, uid) for uid, name in self.last.ready_pods.items() if uid not in found.ready_pods
        ]
        self.last = found
        return answered - asked

    def _as_known(self, found: Inventory) -> Inventory:
        """A runtime takes the names of an image away before the image: it keeps the one that it was known by."""
        known = self.last.objects
        named = {key: known.get(key, name) if name == key[1] else name for key, name in found.objects.items()}
        return replace(found, objects=named)
