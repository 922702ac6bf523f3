"""A node that is there, being observed: its filesystems, what its runtime lists, and when relief came.

Reads, and nothing else: whoever relieves the node is somebody else, or runs beside this (`real_run`). The filesystems
are read every 2 ms in the first half minute of pressure and every 20 ms otherwise, so that an observer of hours costs
little.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from eviction.configuration.effective import Configuration
from eviction.drill.measurement.inventory import ListWatch
from eviction.drill.measurement.measurements import Seen
from eviction.drill.measurement.observer import Observer
from eviction.node.node import Node
from reclaim.cri.client import CriClient
from reclaim.types import RuntimeUnavailable
from signals.types import SignalObservations

PRESSED_SECONDS = 0.002
CALM_SECONDS = 0.02
CLOSELY_SECONDS = 30.0  # what has lasted for so long is not told in milliseconds
PROGRESS_SECONDS = 0.04


@dataclass(frozen=True, slots=True)
class Limits:
    """When an observation ends: `longest_seconds` after its begin (None: never by itself), or when pressure was
    relieved and nothing has happened for `quiet_seconds` since."""

    quiet_seconds: float
    longest_seconds: float | None = None


class Observation:
    """Observes one node from its making on. Raises RuntimeUnavailable where the runtime cannot be asked at its start.

    `progress` is told of looks, about 25 times a second.
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
            self.lists = ListWatch(self._client, node.configuration.pod_logs_dir, lambda: self.observer.waiting)
        except RuntimeUnavailable:
            self._client.close()
            raise
        self.stopping = threading.Event()
        self.began = time.monotonic()

    def watch(
        self,
        limits: Limits,
        going_on: Callable[[], bool] = lambda: False,
        given_up: Callable[[float], bool] = lambda _: False,
    ) -> tuple[float, float]:
        """Observes until the limits are reached, `stopping` is set, or `given_up` (asked with the seconds) says so.

        While `going_on` there is no quiet. When the last thing happened, and when it ended, in seconds.
        """
        self.lists.start(self.began)
        last_news, happened, next_progress = 0.0, 0, 0.0
        while True:
            observations = self.node.summary.observe()
            seconds = observations.time - self.began
            self.observer.sample(observations, seconds)
            if seconds >= next_progress:
                self._progress(seconds, observations)
                next_progress = seconds + PROGRESS_SECONDS
            happenings = self.lists.news + len(self.observer.episodes)
            if happenings != happened or self.observer.waiting or going_on():
                last_news, happened = seconds, happenings
            relieved = self.observer.last_relief is not None
            too_long = limits.longest_seconds is not None and seconds >= limits.longest_seconds
            if too_long or (relieved and seconds - last_news > limits.quiet_seconds) or given_up(seconds):
                break
            if self.stopping.wait(self._pause(seconds)):
                break
        ended = time.monotonic() - self.began
        self.lists.stop()
        return last_news, ended

    def _pause(self, seconds: float) -> float:
        """Until the next look."""
        observer = self.observer
        closely = observer.waiting and seconds - observer.episodes[-1].crossed < CLOSELY_SECONDS
        return PRESSED_SECONDS if closely else CALM_SECONDS

    def seen(self, quiet_since: float, ended: float) -> Seen:
        """What was seen, without what a responder tells of itself."""
        observer, lists = self.observer, self.lists
        return Seen(
            filesystems=observer.filesystems,
            samples=tuple(observer.samples),
            thresholds=self.node.thresholds(
                None if observer.last_observations is None else observer.last_observations.layout
            ),
            observations=observer.last_observations,
            episodes=tuple(observer.episodes),
            bands=tuple(observer.bands),
            removals=tuple(lists.removals),
            ended_pods=tuple(lists.ended_pods),
            strikes=tuple(lists.strikes),
            before=lists.first.named,
            after=lists.last.named,
            quiet_since=quiet_since,
            ended=ended,
        )

    def close(self) -> None:
        """Closes the connection for the lists."""
        self._client.close()


def without_what_we_add(configuration: Configuration) -> Configuration:
    """The configuration with the marks as a kubelet knows them: without our margin and our default minimum reclaim."""
    ours = {name for name, origin in configuration.origins.items() if origin == "default"}
    thresholds = tuple(
        replace(
            threshold,
            margin=None,
            min_reclaim=None if f"evictionMinimumReclaim.{threshold.signal}" in ours else threshold.min_reclaim,
        )
        for threshold in configuration.thresholds
    )
    return replace(configuration, thresholds=thresholds)
