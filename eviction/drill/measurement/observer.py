"""The drill's own measurement of a node: its filesystems, its objects, and what the
daemon reports of itself.

`Observer` turns readings and reported conditions into samples, pressure episodes and condition
periods. An `Observation` reads a node until nothing changes any more, while the loops of daemons in
this process, or another component, relieve the node. It only reads.

A node that the drill did not build has no record of its removals. So a thread with its own
connection polls the runtime's lists (`InventoryPoller`): an object that is in one list and not in
the next was removed in between. The filesystems of such a node are read every 2 ms in the first
half minute of pressure and every 20 ms otherwise, so that it costs little to observe it for hours.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol

from eviction.configuration.effective import Configuration
from eviction.decision.thresholds import thresholds_met, usable
from eviction.drill.measurement.measurements import (
    Available,
    ConditionPeriod,
    EndedPod,
    Episode,
    MeasuredFilesystem,
    MeasuredPass,
    MeasuredRemoval,
    Measurements,
    Sample,
    downsample,
)
from eviction.drill.pressure.schedule import FaultOccurrence, Schedule, came_true
from eviction.engine.node import Node
from eviction.records.listener import Listener
from eviction.records.passes import Pass
from eviction.surface.daemon import Daemon
from eviction.types import Decision, NodeCondition, Threshold
from reclaim.cri.client import CriClient
from reclaim.services import ImageService, RuntimeService
from reclaim.types import Kind, PodSandboxState, RuntimeUnavailable
from signals.types import FilesystemRole, FsLayout, SignalObservations

PRESSURE_INTERVAL_SECONDS = 0.002
CALM_INTERVAL_SECONDS = 0.02
CLOSE_OBSERVATION_SECONDS = 30.0  # in a longer episode milliseconds do not matter
START_SECONDS = 10.0
LOG = "log"
SHORTEST_PAUSE_SECONDS = 0.02
CALM_PAUSE_SECONDS = 1.0
# a pause is four times as long as the poll before it, so at most a fifth of the time is polling
PAUSE_PER_POLL = 4.0
RELIEF_RISE = (1 << 20, 32)
"""A rise by this many bytes, or inodes, counts as relief. Smaller changes happen on any node."""
LARGEST_SAMPLES = 40_000
FEWER_SAMPLES = 20_000


class Observer(Measurements):
    """The measurements of a run while it lasts: samples, episodes of pressure, and the
    conditions that the daemon reports.

    `thresholds` returns the thresholds in force in a layout. Call `record_conditions` from one
    thread only; `sample` may be called from any thread.
    """

    def __init__(self, thresholds: Callable[[FsLayout | None], tuple[Threshold, ...]]):
        super().__init__()
        self._thresholds = thresholds
        self.thresholds = thresholds(None)
        self._lock = threading.Lock()
        # (filesystem, inodes?) below a mark -> lowest since crossing
        self._lowest: dict[tuple[int, bool], int] = {}

    @property
    def under_pressure(self) -> bool:
        """True from the crossing of a mark until every threshold is clear with
        its minimum reclaim.
        """
        return bool(self.episodes) and self.episodes[-1].relieved is None

    @property
    def last_relief(self) -> float | None:
        """When pressure was last relieved; None before the first relief, and under pressure."""
        return self.episodes[-1].relieved if self.episodes else None

    def sample(self, observations: SignalObservations, seconds: float) -> None:
        """Takes one observation of the filesystems, the observer's own or the daemon's.

        Both count: on a busy machine one may miss a crossing that the other sees. Ignores
        observations in which a filesystem could not be read (a stale number proves no relief), and
        those older than the last sample.
        """
        unread = observations.layout is None or any(
            each.stale for each in observations.signals.values()
        )
        with self._lock:
            if not unread and (not self.samples or seconds >= self.samples[-1].seconds):
                self._sample(observations, seconds)

    def _sample(self, observations: SignalObservations, seconds: float) -> None:
        if not self.filesystems:
            self.filesystems = _measured_filesystems(observations)
        read = [
            observations.filesystems.get(FilesystemRole(each.name)) for each in self.filesystems
        ]
        available = tuple(
            (found[1].available_bytes, found[1].inodes_free) for found in read if found is not None
        )
        if len(available) < len(self.filesystems):
            return
        self.observations = observations
        self.thresholds = thresholds = self._thresholds(observations.layout)
        self.samples.append(Sample(seconds, available))
        if len(self.samples) > LARGEST_SAMPLES:  # a run of hours
            self.samples = downsample(self.samples, FEWER_SAMPLES)
        seen = usable(observations.signals)
        met = thresholds_met(thresholds, seen, enforce_min_reclaim=self.under_pressure)
        if met and not self.under_pressure:
            self.episodes.append(Episode(seconds))
            self._lowest = {}
        if (
            self.under_pressure
            and self.episodes[-1].first_rise is None
            and self._has_risen(available, met)
        ):
            self.episodes[-1] = replace(self.episodes[-1], first_rise=seconds)
        if self.under_pressure and not met:
            self.episodes[-1] = replace(self.episodes[-1], relieved=seconds)

    def _has_risen(self, available: tuple[Available, ...], met: tuple[Threshold, ...]) -> bool:
        """True if an amount that fell below its mark has risen from its lowest
        point since the crossing.
        """
        below = {
            (index, threshold.signal.counts_inodes)
            for threshold in met
            for index, filesystem in enumerate(self.filesystems)
            if threshold.signal.filesystem in filesystem.roles
        }
        risen = False
        for index, inodes in below | self._lowest.keys():
            amount = available[index][inodes]
            lowest = self._lowest[index, inodes] = min(
                amount, self._lowest.get((index, inodes), amount)
            )
            risen |= amount >= lowest + RELIEF_RISE[inodes]
        return risen

    def record_conditions(self, reported: frozenset[NodeCondition], seconds: float) -> None:
        """Takes the conditions that the daemon reports after one of its observations."""
        for index, period in enumerate(self.conditions):
            if period.to_seconds is None and period.condition not in reported:
                self.conditions[index] = replace(period, to_seconds=seconds)
        lasting = {period.condition for period in self.conditions if period.to_seconds is None}
        self.conditions += [
            ConditionPeriod(condition, seconds) for condition in sorted(reported - lasting)
        ]


def _measured_filesystems(observations: SignalObservations) -> tuple[MeasuredFilesystem, ...]:
    """The distinct filesystems of an observation, each named for its first role."""
    roles: dict[int, list[FilesystemRole]] = {}
    for role, (identity, _) in observations.filesystems.items():
        roles.setdefault(identity.device_id, []).append(role)
    stats = {names[0]: observations.filesystems[names[0]][1] for names in roles.values()}
    return tuple(
        MeasuredFilesystem(
            names[0], tuple(names), stats[names[0]].capacity_bytes, stats[names[0]].inodes_total
        )
        for names in roles.values()
    )


class Lists(RuntimeService, ImageService, Protocol):
    """Both services of one runtime. Only the lists are used."""


@dataclass(frozen=True, slots=True)
class Inventory:
    """Everything on the node at one moment. `ready_pods`:

    UID -> name of the pods whose sandbox is READY.
    """

    objects: dict[tuple[str, str], str] = field(default_factory=dict)
    ready_pods: dict[str, str] = field(default_factory=dict)


def take_inventory(runtime: Lists, pod_logs_directory: str) -> Inventory:
    """Reads all lists once.

    Raises RuntimeUnavailable unless all of them are complete, that of the logs, too.
    """
    sandboxes = runtime.list_pod_sandboxes()
    objects = {(str(Kind.IMAGE), each.id): each.title for each in runtime.list_images()}
    objects |= {(str(Kind.CONTAINER), each.id): each.title for each in runtime.list_containers()}
    objects |= {(str(Kind.SANDBOX), each.id): each.title for each in sandboxes}
    try:
        objects |= {(LOG, name): name for name in os.listdir(pod_logs_directory)}
    except FileNotFoundError:
        pass  # no directory, no logs
    except OSError as error:
        raise RuntimeUnavailable(f"{pod_logs_directory}: {error.strerror}") from None
    ready = (each for each in sandboxes if each.state is PodSandboxState.READY)
    return Inventory(
        objects, {each.pod_uid: f"{each.pod_namespace}/{each.pod_name}" for each in ready}
    )


class InventoryPoller(Schedule):
    """Polls the runtime's lists until it is stopped: often while `under_pressure` returns
    True, else once a second.

    The constructor takes the first inventory, and raises RuntimeUnavailable if it cannot. Later
    failures are skipped; the first one of each outage is recorded in `outages`.
    `longest_gap_seconds`: the longest time between two complete answers.
    """

    def __init__(self, runtime: Lists, pod_logs_directory: str, under_pressure: Callable[[], bool]):
        super().__init__()
        self._runtime = runtime
        self._pod_logs_directory = pod_logs_directory
        self._under_pressure = under_pressure
        self.first = self.last = take_inventory(runtime, pod_logs_directory)
        self._answered = time.monotonic()
        self._unreachable = False
        self._add(self._run)
        self.removals: list[MeasuredRemoval] = []
        self.ended_pods: list[EndedPod] = []
        self.outages: list[FaultOccurrence] = []
        self.longest_gap_seconds = 0.0

    @property
    def changes(self) -> int:
        """How many removals and ended pods have been seen so far."""
        return len(self.removals) + len(self.ended_pods)

    def stop(self) -> None:
        """Stops after one last poll, so that no late removal is missed."""
        super().stop()
        self._poll()

    def _run(self) -> None:
        polled = took = 0.0
        while not self._stopping.wait(SHORTEST_PAUSE_SECONDS):
            pause = time.monotonic() - polled
            if pause >= CALM_PAUSE_SECONDS or (
                pause >= PAUSE_PER_POLL * took and self._under_pressure()
            ):
                took = self._poll()
                polled = time.monotonic()

    def _poll(self) -> float:
        """Takes an inventory and compares it with the last one.

        Returns how many seconds that took.
        """
        asked = time.monotonic()
        try:
            found = take_inventory(self._runtime, self._pod_logs_directory)
        except RuntimeUnavailable as error:
            if not self._unreachable:
                outage = f"the runtime's lists are not available: {error}"
                self.outages.append(FaultOccurrence(outage, asked - self._began))
            self._unreachable = True
            return time.monotonic() - asked
        answered, self._unreachable = time.monotonic(), False
        for key, name in found.objects.items():
            # a runtime removes an image's names before the image: the last name is kept
            if name == key[1]:
                found.objects[key] = self.last.objects.get(key, name)
        self.longest_gap_seconds = max(self.longest_gap_seconds, answered - self._answered)
        self._answered = answered
        seconds = answered - self._began
        for (kind, object_id), name in self.last.objects.items():
            if (kind, object_id) not in found.objects:
                self.removals.append(MeasuredRemoval(seconds, kind, name, object_id))
        self.ended_pods += [
            EndedPod(seconds, name, uid)
            for uid, name in self.last.ready_pods.items()
            if uid not in found.ready_pods
        ]
        self.last = found
        return answered - asked


@dataclass(frozen=True, slots=True)
class Limits:
    """When an observation ends: `longest_seconds` after it began (None: no limit), or once
    nothing has changed for `quiet_seconds`, which on a node that the drill did not build
    counts only after relief."""

    quiet_seconds: float
    longest_seconds: float | None = None


class Observation:
    """Observes one node. `show` is called with every pass of the daemons beside it."""

    _until_relief = False

    def __init__(self, node: Node, show: Callable[[Pass], None] = lambda _: None):
        self.node = node
        self.measured = Observer(node.thresholds)
        self.show = show
        self.stopping = threading.Event()
        self.began, self.began_wall = time.monotonic(), time.time()
        self.measuring = False

    @contextmanager
    def beside(self, daemons: Mapping[Node, Daemon]) -> Iterator[None]:
        """Runs the loops of daemons while the block lasts.

        It begins once each has observed its node, or after 10 s.
        """
        collectors = [_Collector(self, number) for number in range(1, len(daemons) + 1)]
        loops = [
            threading.Thread(target=each.run, name="daemon", daemon=True)
            for each in daemons.values()
        ]
        for node, collector in zip(daemons, collectors, strict=True):
            node.listeners.add(collector)
        try:
            for loop in loops:
                loop.start()
            came_true(
                lambda: (
                    all(each.has_observed for each in collectors)
                    and all(node.summary.paths.imagefs is not None for node in daemons)
                ),
                START_SECONDS,
            )
            yield
        finally:
            for daemon in daemons.values():
                daemon.stop()
            for loop in loops:
                if loop.is_alive():
                    loop.join()

    def watch(
        self,
        limits: Limits,
        give_up: Callable[[float], bool] = lambda _: False,
        *meanwhile: Schedule,
    ) -> None:
        """Observes from now on, until a limit is reached, `stopping` is set, or
        `give_up(seconds)` returns True. All times count from now, and so do the daemon's
        observations. `meanwhile` runs until then."""
        self.began, self.began_wall = time.monotonic(), time.time()
        self.measuring = True
        for schedule in meanwhile:
            schedule.start(self.began)
        try:
            self._watch(limits, give_up)
        finally:
            for schedule in meanwhile:
                schedule.stop()

    def _watch(self, limits: Limits, give_up: Callable[[float], bool]) -> None:
        changes = 0
        while True:
            observations = self.node.summary.observe()
            seconds = observations.time - self.began
            self.measured.sample(observations, seconds)
            changes_now = self.changes(seconds)
            if changes_now != changes or self.in_progress(seconds):
                self.measured.last_change, changes = seconds, changes_now
            too_long = limits.longest_seconds is not None and seconds >= limits.longest_seconds
            relieved = not self._until_relief or self.measured.last_relief is not None
            quiet = relieved and seconds - self.measured.last_change > limits.quiet_seconds
            if too_long or quiet or give_up(seconds) or self.stopping.wait(self._interval(seconds)):
                break
        self.measured.ended = time.monotonic() - self.began

    def changes(self, _: float) -> int:
        """How much has happened so far: a number that grows."""
        return len(self.measured.episodes)

    def in_progress(self, _: float) -> bool:
        """While True, the node does not count as quiet."""
        return self.measured.under_pressure

    def _interval(self, _: float) -> float:
        """Seconds until the next reading."""
        return PRESSURE_INTERVAL_SECONDS


class _Collector(Listener):
    """Listens to one of the daemons. Only the observations of the first one count."""

    def __init__(self, observation: Observation, number: int):
        self._observation = observation
        self._number = number
        self.has_observed = False

    def passed(self, record: Pass) -> None:
        began = record.started_wall - self._observation.began_wall
        self._observation.measured.passes.append(MeasuredPass(began, record, self._number))
        self._observation.show(record)

    def observed(self, observations: SignalObservations, decision: Decision) -> None:
        observation, measured = self._observation, self._observation.measured
        if self._number == 1:
            measured.record_conditions(decision.conditions, time.monotonic() - observation.began)
            if observation.measuring:
                measured.sample(observations, observations.time - observation.began)
        self.has_observed = True


class NodeObservation(Observation):
    """Observes a node that the drill did not build. `fills` returns True while a pressure lasts.
    The constructor raises RuntimeUnavailable if the runtime cannot be reached."""

    _until_relief = True

    def __init__(self, node: Node):
        problem = node.locate()
        if problem is not None:
            raise RuntimeUnavailable(problem)
        super().__init__(node)
        self.fills: Callable[[], bool] = lambda: False
        self._client = CriClient(node.endpoint.runtime, node.endpoint.image)
        logs = node.configuration.pod_logs_dir
        self.inventory = InventoryPoller(self._client, logs, lambda: self.measured.under_pressure)

    def watch(
        self,
        limits: Limits,
        give_up: Callable[[float], bool] = lambda _: False,
        *meanwhile: Schedule,
    ) -> None:
        """As for any node, and polls the runtime's lists meanwhile."""
        inventory, measured = self.inventory, self.measured
        super().watch(limits, give_up, inventory, *meanwhile)
        measured.before, measured.after = inventory.first.objects, inventory.last.objects
        measured.removals, measured.ended_pods = inventory.removals, inventory.ended_pods
        measured.faults = inventory.outages

    def changes(self, _: float) -> int:
        return self.inventory.changes + len(self.measured.episodes)

    def in_progress(self, _: float) -> bool:
        return self.measured.under_pressure or self.fills()

    def _interval(self, seconds: float) -> float:
        measured = self.measured
        recent = (
            measured.under_pressure
            and seconds - measured.episodes[-1].crossed < CLOSE_OBSERVATION_SECONDS
        )
        return PRESSURE_INTERVAL_SECONDS if recent else CALM_INTERVAL_SECONDS

    def close(self) -> None:
        self._client.close()


def without_margin(configuration: Configuration) -> Configuration:
    """The configuration with the kubelet's own marks, without our margin and
    our default minimum reclaim.
    """
    ours = {name for name, origin in configuration.origins.items() if origin == "default"}
    thresholds = tuple(
        replace(
            threshold,
            margin=None,
            min_reclaim=(
                None
                if f"evictionMinimumReclaim.{threshold.signal}" in ours
                else threshold.min_reclaim
            ),
        )
        for threshold in configuration.thresholds
    )
    return configuration.model_copy(update={"thresholds": thresholds})
