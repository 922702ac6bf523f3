"""The drill's own measurement of a node: its filesystems, its objects, and what the daemon reports.

`Observer` turns readings and reported conditions into samples, pressure episodes and condition
periods. An `Observation` reads a node until nothing changes any more, while the loop of a daemon in
this process, or another component, relieves the node. It only reads.

A node that the drill did not build has no record of its removals. So a thread with its own
connection polls the runtime's lists (`InventoryPoller`): an object that is in one list and not in
the next was removed in between. The filesystems of such a node are read every 2 ms in the first
half minute of pressure and every 20 ms otherwise, so that it costs little to observe it for hours.
"""

import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from eviction.configuration.effective import Configuration
from eviction.decision.thresholds import thresholds_met
from eviction.drill.measurements import (
    ConditionPeriod,
    Episode,
    MeasuredFilesystem,
    MeasuredRemoval,
    Measurements,
    Sample,
    downsample,
)
from eviction.drill.scenario import LOG
from eviction.drill.schedule import FaultOccurrence, Schedule
from eviction.engine.node import Node
from eviction.records.passes import Pass
from eviction.surface.daemon import Daemon
from eviction.survey.filesystem_facts import roles_by_device
from eviction.types import Decision, NodeCondition, Thresholds
from reclaim.cri.client import CriClient
from reclaim.types import Containers, Kind, PodSandboxState, RuntimeUnavailable
from signals.types import FilesystemRole, FsLayout, Signal, SignalObservations

PRESSURE_INTERVAL_SECONDS = 0.002
CALM_INTERVAL_SECONDS = 0.02
CLOSE_OBSERVATION_SECONDS = 30.0  # in a longer episode milliseconds do not matter
FEW_SAMPLES = 20  # if all are equal, nothing changes
START_SECONDS = 10.0
NEVER_CROSSED_SECONDS = 5.0
SHORTEST_PAUSE_SECONDS = 0.02
CALM_PAUSE_SECONDS = 1.0
# a pause is four times as long as the poll before it, so at most a fifth of the time is polling
PAUSE_PER_POLL = 4.0
RELIEF_RISE = (1 << 20, 32)
"""A rise by this many bytes, or inodes, counts as relief. Smaller changes happen on any node."""
LARGEST_SAMPLES = 40_000


class Observer(Measurements):
    """The measurements of a run while it lasts.

    `thresholds` returns the thresholds in force in a layout. Call `record_conditions` from one
    thread only; `sample` may be called from any thread.
    """

    def __init__(self, thresholds: Callable[[FsLayout | None], Thresholds]):
        super().__init__(thresholds=thresholds(None))
        self._thresholds = thresholds
        self._lock = threading.Lock()
        self._lowest: dict[Signal, int] = {}  # of each signal below its mark, since the crossing

    def sample(self, observations: SignalObservations, seconds: float) -> None:
        """Takes one observation of the filesystems, the observer's own or the daemon's.

        Both count: on a busy machine one may miss a crossing that the other sees. Ignores
        observations in which a filesystem could not be read (a stale number proves no relief), and
        those older than the last sample.
        """
        if observations.layout is None or any(each.stale for each in observations.signals.values()):
            return
        with self._lock:
            # the distinct ones, each named for its first role
            self.filesystems = self.filesystems or tuple(
                MeasuredFilesystem(
                    roles[0],
                    roles,
                    capacity_bytes=stats.capacity_bytes,
                    inodes_total=stats.inodes_total,
                )
                for roles in roles_by_device(observations).values()
                for _, stats in [observations.filesystems[roles[0]]]
            )
            found = [
                observations.filesystems.get(FilesystemRole(each.name)) for each in self.filesystems
            ]
            read = [each[1] for each in found if each]
            late = bool(self.samples) and seconds < self.samples[-1].seconds
            if late or len(read) < len(found):
                return
            self.observations = observations
            self.thresholds = self._thresholds(observations.layout)
            self.samples.append(
                Sample(seconds, tuple((each.available_bytes, each.inodes_free) for each in read))
            )
            if len(self.samples) > LARGEST_SAMPLES:  # a run of hours
                self.samples = downsample(self.samples, LARGEST_SAMPLES // 2)
            met = thresholds_met(
                self.thresholds, observations.signals, enforce_min_reclaim=self.under_pressure
            )
            if met and not self.under_pressure:
                self.episodes.append(Episode(seconds))
                self._lowest = {}
            if self.under_pressure:
                episode = self.episodes[-1]
                if episode.first_rise is None and self._has_risen(observations, met):
                    episode.first_rise = seconds
                if not met:
                    episode.relieved = seconds

    def _has_risen(self, observations: SignalObservations, met: Thresholds) -> bool:
        """True if a signal that fell below its mark has risen from its lowest point since then."""
        risen = False
        below = {threshold.signal for threshold in met} | self._lowest.keys()
        for signal in below & observations.signals.keys():
            available = observations.signals[signal].available
            lowest = min(available, self._lowest.get(signal, available))
            self._lowest[signal] = lowest
            risen |= available >= lowest + RELIEF_RISE[signal.counts_inodes]
        return risen

    def record_conditions(self, reported: frozenset[NodeCondition], seconds: float) -> None:
        """Takes the conditions that the daemon reports after one of its observations."""
        lasting = {each.condition: each for each in self.conditions if each.to_seconds is None}
        for condition in lasting.keys() - reported:
            lasting[condition].to_seconds = seconds
        self.conditions += [
            ConditionPeriod(condition, seconds) for condition in sorted(reported - lasting.keys())
        ]


class Taken(NamedTuple):
    """Everything on the node at one moment."""

    objects: dict[tuple[str, str], str]
    ready_pods: dict[str, str]
    """The pods with a READY sandbox, by UID."""
    containers: Containers


def take_inventory(runtime: Any, pod_logs_directory: str) -> Taken:
    """Reads the lists of a runtime, which has both services, and the log directories once.

    Raises RuntimeUnavailable unless all of them are complete.
    """
    sandboxes = runtime.list_pod_sandboxes()
    containers = runtime.list_containers()
    lists = (
        (Kind.IMAGE, runtime.list_images()),
        (Kind.CONTAINER, containers),
        (Kind.SANDBOX, sandboxes),
    )
    objects = {(str(kind), entry.id): entry.title for kind, listed in lists for entry in listed}
    try:
        objects |= {(LOG, name): name for name in os.listdir(pod_logs_directory)}
    except FileNotFoundError:
        pass  # no directory, no logs
    except OSError as error:
        raise RuntimeUnavailable(f"{pod_logs_directory}: {error.strerror}") from None
    ready_pods = {
        sandbox.pod_uid: f"{sandbox.pod_namespace}/{sandbox.pod_name}"
        for sandbox in sandboxes
        if sandbox.state is PodSandboxState.READY
    }
    return Taken(objects, ready_pods, containers)


class InventoryPoller(Schedule):
    """Polls the runtime's lists until it is stopped: often under pressure, else once a second.

    What it finds goes to `measured`. The constructor takes the first inventory, and raises
    RuntimeUnavailable if it cannot. Later failures are skipped; the first one of each outage is a
    fault.
    """

    running = False  # nothing waits for its end

    def __init__(self, runtime: Any, pod_logs_directory: str, measured: Measurements):
        super().__init__()
        self._take = partial(take_inventory, runtime, pod_logs_directory)
        self._measured = measured
        self._last = self._take()
        measured.before = measured.after = self._last.objects
        measured.lists_apart_seconds = 0.0
        self._answered = time.monotonic()
        self._unreachable = False
        self._add(self._run)

    def stop(self) -> None:
        """Stops after one last poll, so that no late removal is missed."""
        super().stop()
        self._poll()

    def _run(self) -> None:
        polled = took = 0.0
        while not self._stopping.wait(SHORTEST_PAUSE_SECONDS):
            asked = time.monotonic()
            wanted = PAUSE_PER_POLL * took if self._measured.under_pressure else CALM_PAUSE_SECONDS
            if asked - polled >= min(wanted, CALM_PAUSE_SECONDS):
                self._poll()
                polled = time.monotonic()
                took = polled - asked

    def _poll(self) -> None:
        """Takes an inventory and compares it with the last one."""
        measured = self._measured
        asked = time.monotonic()
        try:
            taken = self._take()
        except RuntimeUnavailable as error:
            if not self._unreachable:
                measured.faults.append(
                    FaultOccurrence(
                        f"the runtime's lists are not available: {error}", asked - self._began
                    )
                )
            self._unreachable = True
            return
        answered = time.monotonic()
        self._unreachable = False
        last, objects = self._last, taken.objects
        for key, name in objects.items():
            # a runtime removes an image's names before the image: the last name is kept
            if name == key[1]:
                objects[key] = last.objects.get(key, name)
        measured.lists_apart_seconds = max(
            measured.lists_apart_seconds or 0.0, answered - self._answered
        )
        self._answered = answered
        seconds = answered - self._began
        measured.removals += [
            MeasuredRemoval(seconds, kind, name, id=each)
            for (kind, each), name in last.objects.items()
            if (kind, each) not in objects
        ]
        measured.ended_pods += [
            MeasuredRemoval(seconds, "pod", name, id=uid)
            for uid, name in last.ready_pods.items()
            if uid not in taken.ready_pods
        ]
        measured.after = objects
        self._last = taken


class Limits(NamedTuple):
    """When an observation ends."""

    quiet_seconds: float
    """Once nothing has changed for so long."""
    longest_seconds: float = math.inf
    """So long after it began."""
    until_relief: bool = False
    """Quiet counts only after relief."""
    patience_seconds: float = math.inf
    """Once pressure has lasted so long without a removal. A node that the pressures have left above
    its marks is given 5 s."""


class Observation:
    """Observes one node, and takes what the daemon beside it reports. `show` is called with every
    pass of that."""

    follows_changes = True
    """Whether it reads often while anything changes, too, not only in the beginning of pressure."""

    def __init__(self, node: Node):
        self.node = node
        self.measured = Observer(node.thresholds)
        self.show: Callable[[Pass], None] = lambda _: None
        self.stopping = threading.Event()
        self.began = math.inf
        self._ready = threading.Event()

    def passed(self, record: Pass) -> None:
        self.measured.passes.append(record)
        self.show(record)

    def observed(self, observations: SignalObservations, decision: Decision) -> None:
        if self.node.summary.paths.imagefs is not None:
            self._ready.set()
        if self.began < math.inf:
            self.measured.record_conditions(decision.conditions, time.monotonic() - self.began)
            self.measured.sample(observations, observations.time - self.began)

    @contextmanager
    def beside(self, daemon: Daemon) -> Iterator[None]:
        """Runs the loop of the node's daemon while the block lasts.

        It begins once the daemon has observed the node, or after 10 s.
        """
        self.node.listeners.add(self)
        with ThreadPoolExecutor(1) as threads:
            # starts the thread: one that SIGINT finds starting would run on for ever
            threads.submit(int).result()
            try:
                loop = threads.submit(daemon.run)
                self._ready.wait(START_SECONDS)
                yield
            finally:
                daemon.stop()
        loop.result()

    def watch(self, limits: Limits, *meanwhile: Schedule) -> None:
        """Observes from now on, until a limit is reached or `stopping` is set.

        All times count from now, and so do the daemon's observations. `meanwhile` runs until then;
        what runs of it is no quiet, and is given as long as it takes.
        """
        measured = self.measured
        self.began = time.monotonic()
        measured.began_wall = time.time()
        before = (0, 0, 0)
        last_event = 0.0  # a removal, or a pressure or fault that lasted
        for schedule in meanwhile:
            schedule.start(self.began)
        try:
            while True:
                observations = self.node.summary.observe()
                seconds = observations.time - self.began
                measured.sample(observations, seconds)
                runs = any(schedule.running for schedule in meanwhile)
                now = (self.removed(seconds), len(measured.passes), len(measured.episodes))
                if runs or now[0] != before[0]:
                    last_event = seconds
                if runs or now != before or self.in_progress(seconds):
                    measured.last_change = seconds
                before = now
                relieved = measured.last_relief is not None
                patience = limits.patience_seconds
                if patience < math.inf and not measured.episodes:
                    patience = NEVER_CROSSED_SECONDS
                quiet = relieved or not limits.until_relief
                if (
                    seconds >= limits.longest_seconds
                    or (quiet and seconds - measured.last_change > limits.quiet_seconds)
                    or (not relieved and seconds - last_event > patience)
                    or self.stopping.wait(self._interval(seconds))
                ):
                    break
            measured.ended = time.monotonic() - self.began
        finally:
            for schedule in meanwhile:
                schedule.stop()

    def removed(self, _: float) -> int:
        """How much has been removed so far: a number that grows."""
        return len(self.measured.removals) + len(self.measured.ended_pods)

    def in_progress(self, _: float) -> bool:
        """While True, the node does not count as quiet."""
        return self.measured.under_pressure

    def _interval(self, seconds: float) -> float:
        """Seconds until the next reading."""
        measured = self.measured
        if (
            measured.under_pressure
            and seconds - measured.episodes[-1].crossed < CLOSE_OBSERVATION_SECONDS
        ):
            return PRESSURE_INTERVAL_SECONDS
        last = measured.samples[-FEW_SAMPLES:] if self.follows_changes else []
        changes = len({sample.available for sample in last}) > 1
        return PRESSURE_INTERVAL_SECONDS if changes else CALM_INTERVAL_SECONDS


class NodeObservation(Observation):
    """Observes a node that the drill did not build.

    The constructor raises RuntimeUnavailable if the runtime cannot be reached.
    """

    follows_changes = False  # something always does

    def __init__(self, node: Node):
        if problem := node.locate():
            raise RuntimeUnavailable(problem)
        super().__init__(node)
        self._client = CriClient(node.endpoint.runtime, node.endpoint.image)
        self._inventory = InventoryPoller(
            self._client, node.configuration.pod_logs_dir, self.measured
        )

    def watch(self, limits: Limits, *meanwhile: Schedule) -> None:
        """As for any node, and polls the runtime's lists meanwhile."""
        super().watch(limits, self._inventory, *meanwhile)

    def close(self) -> None:
        self._client.close()


def without_margin(configuration: Configuration) -> Configuration:
    """The configuration with the kubelet's own marks: no margin, no default minimum reclaim."""
    ours = {name for name, origin in configuration.origins.items() if origin == "default"}
    thresholds = tuple(
        replace(each, margin=None, min_reclaim=None)
        if f"evictionMinimumReclaim.{each.signal}" in ours
        else replace(each, margin=None)
        for each in configuration.thresholds
    )
    return configuration.model_copy(update={"thresholds": thresholds})
