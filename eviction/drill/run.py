"""A scenario being run: the daemon's own loop on the embedded node, a fill, and an observer of its own.

The times that count are not the daemon's: a sampler reads the filesystem every 2 ms and the runtime writes down when
it really removed something.
"""

from __future__ import annotations

import fnmatch
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from eviction.configuration import Configuration, load
from eviction.drill.embedded_node import EmbeddedDrillNode
from eviction.drill.scenario import Scenario
from eviction.explain import amount
from eviction.log import Log
from eviction.manager import Manager
from eviction.node import Node
from eviction.record import Pass, PassResult
from eviction.threshold_config import KUBELET_EVICTION_HARD
from eviction.thresholds import thresholds_met, usable
from eviction.types import Decision, NodeCondition
from reclaim.records import ImageRecords
from reclaim.types import RuntimeUnavailable
from signals.types import SignalObservations

SAMPLE_SECONDS = 0.002
QUIET_SECONDS = 0.5
LONGEST_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Check:
    """One expectation: what was expected, what was seen, whether it held."""

    name: str
    expected: str
    seen: str
    held: bool


@dataclass(frozen=True, slots=True)
class Sample:
    """One reading of the observer: seconds since the fill began, bytes, inodes."""

    seconds: float
    available_bytes: int
    inodes_free: int


@dataclass(slots=True)
class DrillResult:
    """Everything that a drill saw. Times in seconds since the fill began; None = did not happen."""

    scenario: Scenario
    filesystem: str
    simulated: bool
    passes: list[Pass] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    crossed_seconds: float | None = None
    first_removal_seconds: float | None = None
    relieved_seconds: float | None = None
    condition_seen: bool = False
    checks: list[Check] = field(default_factory=list)
    history: dict[str, Any] = field(default_factory=dict)

    @property
    def held(self) -> bool:
        """Whether every expectation held."""
        return all(check.held for check in self.checks)

    @property
    def to_relief_seconds(self) -> float | None:
        """From crossing the mark to every threshold clear."""
        if self.crossed_seconds is None or self.relieved_seconds is None:
            return None
        return self.relieved_seconds - self.crossed_seconds

    @property
    def to_first_removal_seconds(self) -> float | None:
        """From crossing the mark to the first object gone."""
        if self.crossed_seconds is None or self.first_removal_seconds is None:
            return None
        return self.first_removal_seconds - self.crossed_seconds


def configuration_of(scenario: Scenario, node: EmbeddedDrillNode) -> Configuration:
    """The daemon's configuration: the scenario's thresholds; the image GC percentage at 100 and no periodic loop."""
    thresholds = dict.fromkeys(KUBELET_EVICTION_HARD, "0%")  # the kubelet's way to switch a default off
    return load(
        None,
        {},
        {
            "kubeletConfig": "",
            "rootDirectory": node.root_directory,
            "podLogsDir": f"{node.root_directory}/log/pods",
            "containerLogsDir": f"{node.root_directory}/log/containers",
            "stateFile": "",
            "containerRuntimeEndpoint": node.endpoint,
            "evictionHard": {**{str(s): off for s, off in thresholds.items()}, **scenario.eviction_hard},
            "evictionMinimumReclaim": dict(scenario.minimum_reclaim),
            "imageGCHighThresholdPercent": 100,
            "holdOffAfterStart": "0s",
        },
    )


class Drill:
    """Runs one scenario. `show` is called with every pass, `progress` about 25 times a second."""

    def __init__(
        self,
        scenario: Scenario,
        embedded: EmbeddedDrillNode,
        log: Log,
        show: Callable[[Pass], None],
        progress: Callable[[float, SignalObservations], None],
    ):
        self._scenario = scenario
        self._embedded = embedded
        self._show = show
        self._progress = progress
        self._began = 0.0
        self._began_wall = 0.0
        self._result = DrillResult(scenario, embedded.describe(), embedded.simulated)
        configuration = configuration_of(scenario, embedded)
        self.node = Node(configuration, reader=embedded.reader, records=ImageRecords(seed=embedded.records))
        self._manager = Manager(self.node, log, on_pass=self._on_pass, on_look=self._on_look)

    def run(self) -> DrillResult:
        """Fills, watches until it is quiet, and judges."""
        daemon = threading.Thread(target=self._manager.run, name="manager", daemon=True)
        daemon.start()
        self._wait_until(lambda: self.node.summary.paths.imagefs is not None, 10.0)
        self._began, self._began_wall = time.monotonic(), time.time()
        self._embedded.start_fill(self._scenario.pressure)
        self._watch()
        self._embedded.stop_fill()
        self._manager.stop()
        daemon.join()
        self._result.checks = self._judge()
        if not self._result.held:
            self._result.history = self.node.responder.history.dump()
        self.node.close()
        return self._result

    def _watch(self) -> None:
        """Samples the filesystem until the fill has ended and nothing has happened for half a second."""
        last_news, passes, next_progress = time.monotonic(), 0, 0.0
        while True:
            look = self.node.summary.observe()
            now = time.monotonic()
            seconds = now - self._began
            self._sample(look, seconds)
            if now >= next_progress:
                self._progress(seconds, look)
                next_progress = now + 0.04
            if self._embedded.filling or len(self._result.passes) != passes or self._under_pressure(look):
                last_news, passes = now, len(self._result.passes)
            if now - last_news > QUIET_SECONDS or seconds > LONGEST_SECONDS or self._given_up(seconds):
                return
            time.sleep(SAMPLE_SECONDS)

    def _given_up(self, seconds: float) -> bool:
        """Pressure that nothing relieves any more is an end too."""
        crossed = self._result.crossed_seconds
        latest = self._result.passes[-1] if self._result.passes else None
        return (
            crossed is not None
            and not self._embedded.filling
            and latest is not None
            and latest.result is not PassResult.SATISFIED
            and seconds - crossed > max(self._scenario.expect.relieved_within_seconds * 2, 3.0)
        )

    def _under_pressure(self, look: SignalObservations) -> bool:
        thresholds = self.node.thresholds(look.layout)
        return bool(thresholds_met(thresholds, usable(look.signals), enforce_min_reclaim=False))

    def _sample(self, look: SignalObservations, seconds: float) -> None:
        stats = next(iter(look.filesystems.values()), None)
        if stats is None:
            return
        result = self._result
        result.samples.append(Sample(seconds, stats[1].available_bytes, stats[1].inodes_free))
        if result.crossed_seconds is None:
            if self._under_pressure(look):
                result.crossed_seconds = seconds
        elif result.relieved_seconds is None:
            thresholds = self.node.thresholds(look.layout)
            if not thresholds_met(thresholds, usable(look.signals), enforce_min_reclaim=True):
                result.relieved_seconds = seconds

    def _on_look(self, _: SignalObservations, decision: Decision) -> None:
        if NodeCondition.DISK_PRESSURE in decision.conditions:
            self._result.condition_seen = True

    def _on_pass(self, record: Pass) -> None:
        self._result.passes.append(record)
        self._show(record)

    def _wait_until(self, true: Callable[[], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not true() and time.monotonic() < deadline:
            time.sleep(0.005)

    # ---- judging

    def _judge(self) -> list[Check]:
        result, expect = self._result, self._scenario.expect
        removals = self._embedded.runtime.removals
        if removals:
            result.first_removal_seconds = removals[0].wall_seconds - self._began_wall
        there, gone = self._objects()
        took = result.to_relief_seconds
        images_left = sum(1 for name in there if name in self._embedded.image_names.values())
        checks = [
            Check("condition", "DiskPressure appears", _yes(result.condition_seen), result.condition_seen),
            Check(
                "relieved",
                f"within {expect.relieved_within_seconds:g} s of crossing the mark",
                "not relieved" if took is None else f"after {took:.3f} s",
                took is not None and took <= expect.relieved_within_seconds,
            ),
            Check(
                "images left",
                f"at least {expect.images_left_at_least}",
                str(images_left),
                images_left >= expect.images_left_at_least,
            ),
        ]
        checks += [_gone(pattern, there, gone) for pattern in expect.goes]
        checks += [_there(pattern, there) for pattern in expect.stays]
        if expect.new_pod_starts:
            checks.append(self._new_pod())
        return checks

    def _objects(self) -> tuple[set[str], set[str]]:
        """Names of images and containers that are there, as the runtime lists them; and of those that are not."""
        listed_images = {image.id for image in self.node.client.list_images()}
        there = {name for image_id, name in self._embedded.image_names.items() if image_id in listed_images}
        gone = set(self._embedded.image_names.values()) - there
        there |= {container.title for container in self.node.client.list_containers()}
        gone |= {outcome.verdict.name for record in self._result.passes for outcome in record.removals} - there
        return there, gone

    def _new_pod(self) -> Check:
        try:
            self._embedded.start_new_pod()
        except RuntimeUnavailable as error:
            return Check("new pod", "starts afterwards", str(error), held=False)
        return Check("new pod", "starts afterwards", "started", held=True)


def _gone(pattern: str, there: set[str], gone: set[str]) -> Check:
    left = fnmatch.filter(there, pattern)
    held = not left and bool(fnmatch.filter(gone, pattern))
    return Check(pattern, "goes", f"still there: {', '.join(left)}" if left else "gone" if held else "never was", held)


def _there(pattern: str, there: set[str]) -> Check:
    held = bool(fnmatch.filter(there, pattern))
    return Check(pattern, "stays", "there" if held else "gone", held)


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def lowest(result: DrillResult) -> str:
    """The lowest point of the signal that was filled, for people."""
    inodes = result.scenario.pressure.inodes
    values = [sample.inodes_free if inodes else sample.available_bytes for sample in result.samples]
    met = next((p.decision.acted_on.signal for p in result.passes if p.decision.acted_on is not None), None)
    return "-" if not values or met is None else amount(met, min(values))
