"""Observation of a real node: its filesystems, what its runtime lists, and when pressure was relieved.

Reads only. Another component relieves the node, or the daemon's loop runs beside the observation (`run.real`). The
filesystems are read every 2 ms in the first half minute of pressure and every 20 ms otherwise, so that observing a node
for hours costs little.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from eviction.configuration.effective import Configuration
from eviction.drill.measurement.inventory import InventoryPoller
from eviction.drill.measurement.measurements import Measurements
from eviction.drill.measurement.observer import Observer
from eviction.node.node import Node
from reclaim.cri.client import CriClient
from reclaim.types import RuntimeUnavailable
from signals.types import SignalObservations

PRESSURE_INTERVAL_SECONDS = 0.002
CALM_INTERVAL_SECONDS = 0.02
CLOSE_OBSERVATION_SECONDS = 30.0  # of a longer episode the milliseconds do not matter
PROGRESS_SECONDS = 0.04


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
