"""The objects that the runtime of a node lists, and what was removed between one list and the next. Reads only.

A node that the drill did not build keeps no record of its removals. So a thread with a connection of its own asks for
the lists again and again: an object that is in one list and not in the next was removed in between.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

from eviction.drill.measurement.measurements import EndedPod, MeasuredRemoval, NamedObject
from eviction.drill.pressure.schedule import FaultOccurrence
from reclaim.services import ImageService, RuntimeService
from reclaim.types import Kind, PodSandboxState, RuntimeUnavailable

LOG = "log"
SHORTEST_PAUSE_SECONDS = 0.02
CALM_PAUSE_SECONDS = 1.0
PAUSE_PER_POLL = 4.0  # a pause is four times as long as the poll before it, so at most a fifth of the time is polling


class Lists(RuntimeService, ImageService, Protocol):
    """Both services of one runtime; only their lists are asked for."""


@dataclass(frozen=True, slots=True)
class Inventory:
    """Everything on the node at one moment.

    `objects`: (kind, id) -> name; of a log directory, its name is both. `ready_pods`: by UID, the name of each pod
    whose sandbox is READY.
    """

    objects: dict[tuple[str, str], str] = field(default_factory=dict)
    ready_pods: dict[str, str] = field(default_factory=dict)

    @property
    def named(self) -> frozenset[NamedObject]:
        """The objects by kind and name."""
        return frozenset(NamedObject(kind, name) for (kind, _), name in self.objects.items())


def take_inventory(runtime: Lists, pod_logs_directory: str) -> Inventory:
    """Reads all lists once. Raises RuntimeUnavailable unless all of them are complete."""
    sandboxes = runtime.list_pod_sandboxes()
    objects = {(str(Kind.IMAGE), each.id): each.title for each in runtime.list_images()}
    objects |= {(str(Kind.CONTAINER), each.id): each.title for each in runtime.list_containers()}
    objects |= {(str(Kind.SANDBOX), each.id): each.title for each in sandboxes}
    try:
        objects |= {(LOG, name): name for name in os.listdir(pod_logs_directory)}
    except OSError:
        pass  # no directory, no logs
    ready = (each for each in sandboxes if each.state is PodSandboxState.READY)
    return Inventory(objects, {each.pod_uid: f"{each.pod_namespace}/{each.pod_name}" for each in ready})


class InventoryPoller:
    """Polls the runtime's lists until it is stopped: often while `under_pressure` returns True, else once a second.

    The constructor takes the first inventory, and raises RuntimeUnavailable if it fails. A later failure changes
    nothing; the first failure of each series is kept in `outages`. `longest_gap_seconds`: the longest time between two
    complete answers.
    """

    def __init__(self, runtime: Lists, pod_logs_directory: str, under_pressure: Callable[[], bool]):
        self._runtime = runtime
        self._pod_logs_directory = pod_logs_directory
        self._under_pressure = under_pressure
        self.first = self.last = take_inventory(runtime, pod_logs_directory)
        self._began = self._answered = time.monotonic()
        self._unreachable = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lists", daemon=True)
        self.removals: list[MeasuredRemoval] = []
        self.ended_pods: list[EndedPod] = []
        self.outages: list[FaultOccurrence] = []
        self.longest_gap_seconds = 0.0

    @property
    def changes(self) -> int:
        """How many removals and ended pods have been seen so far."""
        return len(self.removals) + len(self.ended_pods)

    def start(self, began: float) -> None:
        """`began`: monotonic seconds from which all times are counted."""
        self._began = began
        self._thread.start()

    def stop(self) -> None:
        """Ends polling, after one last poll so that no removal at the end is missed."""
        self._stopping.set()
        self._thread.join()
        self._poll()

    def _run(self) -> None:
        while True:
            took = self._poll()
            now = time.monotonic()
            paused_until, calm_until = (
                now + max(PAUSE_PER_POLL * took, SHORTEST_PAUSE_SECONDS),
                now + CALM_PAUSE_SECONDS,
            )
            while now < paused_until or (now < calm_until and not self._under_pressure()):
                if self._stopping.wait(SHORTEST_PAUSE_SECONDS):
                    return
                now = time.monotonic()

    def _poll(self) -> float:
        """Takes one inventory and compares it with the last one. Returns the seconds that the answer took."""
        asked = time.monotonic()
        try:
            found = self._with_known_names(take_inventory(self._runtime, self._pod_logs_directory))
        except RuntimeUnavailable as error:
            if not self._unreachable:
                self.outages.append(
                    FaultOccurrence(f"the runtime's lists are not available: {error}", asked - self._began)
                )
            self._unreachable = True
            return time.monotonic() - asked
        answered, self._unreachable = time.monotonic(), False
        self.longest_gap_seconds = max(self.longest_gap_seconds, answered - self._answered)
        self._answered = answered
        seconds = answered - self._began
        for (kind, object_id), name in self.last.objects.items():
            if (kind, object_id) not in found.objects:
                self.removals.append(MeasuredRemoval(seconds, kind, name, object_id))
        self.ended_pods += [
            EndedPod(seconds, name, uid) for uid, name in self.last.ready_pods.items() if uid not in found.ready_pods
        ]
        self.last = found
        return answered - asked

    def _with_known_names(self, found: Inventory) -> Inventory:
        """A runtime removes the names of an image before the image. Such an image keeps the name of the last poll."""
        known = self.last.objects
        named = {key: known.get(key, name) if name == key[1] else name for key, name in found.objects.items()}
        return replace(found, objects=named)
