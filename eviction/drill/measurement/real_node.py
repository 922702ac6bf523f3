"""Observation of a real node: its filesystems, what its runtime lists, and when pressure was relieved.

Reads only. Another component relieves the node, or the daemon's loop runs beside the observation (`run.real`). The
filesystems are read every 2 ms in the first half minute of pressure and every 20 ms otherwise, so that observing a node
for hours costs little.

A node that the drill did not build keeps no record of its removals. So a thread with a connection of its own asks for
the lists again and again: an object that is in one list and not in the next was removed in between.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Protocol

from eviction.configuration.effective import Configuration
from eviction.drill.measurement.measurements import EndedPod, MeasuredRemoval, Measurements, NamedObject
from eviction.drill.measurement.observer import Observer
from eviction.drill.pressure.schedule import FaultOccurrence
from eviction.node.node import Node
from reclaim.cri.client import CriClient
from reclaim.services import ImageService, RuntimeService
from reclaim.types import Kind, PodSandboxState, RuntimeUnavailable
from signals.types import SignalObservations

PRESSURE_INTERVAL_SECONDS = 0.002
CALM_INTERVAL_SECONDS = 0.02
CLOSE_OBSERVATION_SECONDS = 30.0  # of a longer episode the milliseconds do not matter
PROGRESS_SECONDS = 0.04
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
    with suppress(OSError):  # no directory, no logs
        objects |= {(LOG, name): name for name in os.listdir(pod_logs_directory)}
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
        due = calm = 0.0  # when the next poll is due under pressure, and otherwise
        while not self._stopping.wait(SHORTEST_PAUSE_SECONDS):
            now = time.monotonic()
            if now >= calm or (now >= due and self._under_pressure()):
                took = self._poll()
                now = time.monotonic()
                due, calm = now + PAUSE_PER_POLL * took, now + CALM_PAUSE_SECONDS

    def _poll(self) -> float:
        """Takes one inventory and compares it with the last one. Returns the seconds that the answer took."""
        asked = time.monotonic()
        try:
            found = self._with_known_names(take_inventory(self._runtime, self._pod_logs_directory))
        except RuntimeUnavailable as error:
            if not self._unreachable:
                outage = f"the runtime's lists are not available: {error}"
                self.outages.append(FaultOccurrence(outage, asked - self._began))
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


@dataclass(frozen=True, slots=True)
class Limits:
    """When an observation ends: `longest_seconds` after it began (None: no limit), or once pressure was relieved and
    nothing has changed for `quiet_seconds` since."""

    quiet_seconds: float
    longest_seconds: float | None = None


class NodeObservation:
    """Observes one node. The constructor raises RuntimeUnavailable if the runtime cannot be reached.

    `progress` is called with the seconds and the observation, about 25 times a second.
    """

    def __init__(self, node: Node, progress: Callable[[float, SignalObservations], None] = lambda *_: None):
        problem = node.locate()
        if problem is not None:
            raise RuntimeUnavailable(problem)
        self.node = node
        self.observer = Observer(node.thresholds)
        self._progress = progress
        self._client = CriClient(node.endpoint.runtime, node.endpoint.image)
        try:
            self.inventory = InventoryPoller(
                self._client, node.configuration.pod_logs_dir, lambda: self.observer.under_pressure
            )
        except RuntimeUnavailable:
            self._client.close()
            raise
        self.stopping = threading.Event()
        self.began = time.monotonic()

    def watch(
        self,
        limits: Limits,
        in_progress: Callable[[], bool] = lambda: False,
        give_up: Callable[[float], bool] = lambda _: False,
    ) -> tuple[float, float]:
        """Observes until a limit is reached, `stopping` is set, or `give_up(seconds)` returns True.

        While `in_progress` returns True the node does not count as quiet. Returns when something changed for the last
        time and when the observation ended, both in seconds since its begin.
        """
        self.inventory.start(self.began)
        last_change, changes, next_progress = 0.0, 0, 0.0
        while True:
            observations = self.node.summary.observe()
            seconds = observations.time - self.began
            self.observer.sample(observations, seconds)
            if seconds >= next_progress:
                self._progress(seconds, observations)
                next_progress = seconds + PROGRESS_SECONDS
            changes_now = self.inventory.changes + len(self.observer.episodes)
            if changes_now != changes or self.observer.under_pressure or in_progress():
                last_change, changes = seconds, changes_now
            relieved = self.observer.last_relief is not None
            too_long = limits.longest_seconds is not None and seconds >= limits.longest_seconds
            if too_long or (relieved and seconds - last_change > limits.quiet_seconds) or give_up(seconds):
                break
            if self.stopping.wait(self._interval(seconds)):
                break
        ended = time.monotonic() - self.began
        self.inventory.stop()
        return last_change, ended

    def _interval(self, seconds: float) -> float:
        """Seconds until the next reading."""
        observer = self.observer
        recent = observer.under_pressure and seconds - observer.episodes[-1].crossed < CLOSE_OBSERVATION_SECONDS
        return PRESSURE_INTERVAL_SECONDS if recent else CALM_INTERVAL_SECONDS

    def measurements(self, last_change: float, ended: float) -> Measurements:
        """What was measured from outside; without what a daemon in this process reports of itself."""
        observer, inventory = self.observer, self.inventory
        observations = observer.observations
        return Measurements(
            filesystems=observer.filesystems,
            samples=tuple(observer.samples),
            thresholds=self.node.thresholds(None if observations is None else observations.layout),
            observations=observations,
            episodes=tuple(observer.episodes),
            condition_periods=tuple(observer.condition_periods),
            removals=tuple(inventory.removals),
            ended_pods=tuple(inventory.ended_pods),
            faults=tuple(inventory.outages),
            before=inventory.first.named,
            after=inventory.last.named,
            last_change=last_change,
            ended=ended,
        )

    def close(self) -> None:
        """Closes the connection for the lists."""
        self._client.close()


def without_margin(configuration: Configuration) -> Configuration:
    """The configuration with the kubelet's own marks: without our margin and our default minimum reclaim."""
    ours = {name for name, origin in configuration.origins.items() if origin == "default"}
    thresholds = tuple(
        replace(
            threshold,
            margin=None,
            min_reclaim=None if f"evictionMinimumReclaim.{threshold.signal}" in ours else threshold.min_reclaim,
        )
        for threshold in configuration.thresholds
    )
    return configuration.model_copy(update={"thresholds": thresholds})
