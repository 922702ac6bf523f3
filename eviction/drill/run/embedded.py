"""A scenario being run: the daemon's own loop on the embedded node, pressures, faults, and an observer of its own.

The times that count are not the daemon's: the observer reads the filesystems every 2 ms, and the runtime writes down
when it really removed something.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

from eviction.configuration.effective import Configuration, load
from eviction.daemon.manager import Manager
from eviction.daemon.periodic_gc import PeriodicGC
from eviction.daemon.worker import DRAIN_SECONDS
from eviction.drill.judgement.judge import judge
from eviction.drill.judgement.restart_policy import would_start
from eviction.drill.judgement.result import DrillResult
from eviction.drill.measurement.measurements import LayerSeen, NamedObject, PassSeen, RemovalSeen, Seen
from eviction.drill.measurement.observer import Observer
from eviction.drill.node.embedded_node import EmbeddedDrillNode
from eviction.drill.node.wait_for_runtime import answered
from eviction.drill.pressure.embedded_growers import EmbeddedGrowers
from eviction.drill.pressure.fault_schedule import Faults
from eviction.drill.pressure.schedule import Pressures
from eviction.drill.scenario.types import Scenario
from eviction.node.hold_off import HoldOff
from eviction.node.node import Node
from eviction.reporting.log import Log
from eviction.reporting.pass_record import Pass
from eviction.telemetry.events import LogSink
from eviction.types import Decision
from reclaim.images.records import ImageRecords
from reclaim.types import Kind, RuntimeUnavailable
from signals.types import SignalObservations

SAMPLE_SECONDS = 0.002
PROGRESS_SECONDS = 0.04
QUIET_SECONDS = 0.3
LONGEST_SECONDS = 60.0
PATIENCE_SECONDS = 3.0  # at least so long is waited for a relief that does not come
START_SECONDS = 10.0
LOG = "log"
CONDITION_SECONDS = 1.0  # beyond the time in which a condition must go, until it is said that it did not


def configuration_of(scenario: Scenario, node: EmbeddedDrillNode) -> Configuration:
    """The daemon's configuration: the scenario's fields on the node that the drill made."""
    made = {
        "kubeletConfig": "",
        "rootDirectory": node.root_directory,
        "podLogsDir": node.pod_logs_directory,
        "containerLogsDir": node.container_logs_directory,
        "stateFile": "",
        "containerRuntimeEndpoint": node.endpoint,
        "controlSocket": "",
    }
    return load(None, {}, {**scenario.node.configuration, **made})


class Drill:
    """Runs one scenario. `show` is called with every pass, `progress` about 25 times a second."""

    def __init__(
        self,
        scenario: Scenario,
        embedded: EmbeddedDrillNode,
        log: Log,
        show: Callable[[Pass], None] = lambda _: None,
        progress: Callable[[float, SignalObservations], None] = lambda *_: None,
    ):
        self._scenario = scenario
        self._embedded = embedded
        self._show = show
        self._progress = progress
        self._began, self._began_wall = time.monotonic(), time.time()
        self._passes: list[PassSeen] = []
        self._logs_gone: dict[str, float] = {}
        self._watching = False
        configuration = configuration_of(scenario, embedded)
        self._nodes = [
            Node(configuration, reader=embedded.reader, records=ImageRecords(seed=embedded.population.records))
            for _ in range(scenario.node.collectors)
        ]
        self.node = self._nodes[0]
        self._observer = Observer(self.node.thresholds)
        # No kubelet answers on an embedded node, so a hold-off lasts its time.
        hold_off = HoldOff(configuration.hold_off_seconds, time.monotonic(), time.monotonic, lambda: False)
        self._managers = [
            Manager(
                node,
                log,
                may_act=hold_off.why,
                on_pass=self._on_pass_of(number),
                on_observation=self._on_observation if number == 1 else lambda *_: None,
            )
            for number, node in enumerate(self._nodes, 1)
        ]
        self._periodic = [
            PeriodicGC(node, log, LogSink(log), hold_off.why) for node in self._nodes if configuration.periodic_gc
        ]
        self._pressures = Pressures(scenario.pressures, EmbeddedGrowers(embedded))
        self._faults = Faults(scenario.faults, embedded.server)

    def run(self) -> DrillResult:
        """Puts the pressures on, watches until it is quiet, and judges."""
        daemons = [threading.Thread(target=manager.run, name="manager", daemon=True) for manager in self._managers]
        for daemon in daemons:
            daemon.start()
        self._wait_until(lambda: all(node.summary.paths.imagefs is not None for node in self._nodes), START_SECONDS)
        before, names = self._objects()
        started_before = self._would_start()
        self._began, self._began_wall = time.monotonic(), time.time()
        self._watching = True
        self._pressures.start(self._began)
        self._faults.start(self._began)
        for periodic in self._periodic:
            periodic.start()
        try:
            quiet_since, ended = self._watch()
        finally:
            self._pressures.stop()
            self._faults.stop()
            for manager in self._managers:
                manager.stop()
        for daemon in daemons:
            daemon.join()
        for periodic in self._periodic:
            periodic.drain(DRAIN_SECONDS)
        after, later_names = self._objects()
        observer = self._observer
        seen = Seen(
            filesystems=observer.filesystems,
            samples=tuple(observer.samples),
            thresholds=self.node.thresholds(
                None if observer.last_observations is None else observer.last_observations.layout
            ),
            observations=observer.last_observations,
            episodes=tuple(observer.episodes),
            bands=tuple(observer.bands),
            passes=tuple(sorted(self._passes, key=lambda one: one.seconds)),
            removals=self._removals({**later_names, **names}),
            periods=self._pressures.periods,
            strikes=self._faults.strikes,
            before=before,
            after=after,
            layers={
                name: tuple(LayerSeen(layer.digest, layer.size_bytes, layer.inodes) for layer in layers)
                for name, layers in self._embedded.population.layers.items()
            },
            restarted=tuple(sorted(self._would_start() - started_before)),
            new_pod=self._new_pod() if self._scenario.expect.new_pod_starts else None,
            quiet_since=quiet_since,
            ended=ended,
        )
        checks = judge(self._scenario.expect, seen)
        history = {} if all(check.held for check in checks) else self.node.responder.history.dump()
        for node in self._nodes:
            node.close()
        scenario, embedded = self._scenario, self._embedded
        return DrillResult(
            scenario.name,
            scenario.why,
            scenario.node.layout,
            embedded.describe(),
            embedded.simulated,
            seen,
            checks,
            history,
        )

    # ---- watching

    def _watch(self) -> tuple[float, float]:
        """Samples the filesystems until nothing has happened for a while. When the last thing happened, and the end."""
        quiet = max(QUIET_SECONDS, self._scenario.expect.quiet_seconds or 0.0)
        last_news, happened, next_progress = 0.0, 0, 0.0
        logs = self._logs()
        while True:
            observations = self.node.summary.observe()
            seconds = observations.time - self._began
            self._observer.sample(observations, seconds)
            self._logs_gone |= dict.fromkeys(logs - self._logs_gone.keys() - self._logs(), seconds)
            if seconds >= next_progress:
                self._progress(seconds, observations)
                next_progress = seconds + PROGRESS_SECONDS
            happenings = len(self._passes) + len(self._embedded.runtime.removals) + len(self._logs_gone)
            if happenings != happened or self._going_on(seconds):
                last_news, happened = seconds, happenings
            if seconds - last_news > quiet or seconds > LONGEST_SECONDS or self._given_up(seconds):
                return last_news, seconds
            time.sleep(SAMPLE_SECONDS)

    def _going_on(self, seconds: float) -> bool:
        """Whether something goes on, or is still awaited: relief, and a condition that has yet to go."""
        observer, expect = self._observer, self._scenario.expect
        if self._pressures.running or self._faults.lasting:
            return True
        if observer.waiting:
            return not expect.never_relieved
        limit, relieved = expect.condition.goes_within_seconds, observer.last_relief
        reported = any(band.ended is None for band in observer.bands)
        if limit is None or relieved is None or not reported:
            return False
        return seconds < relieved + limit + CONDITION_SECONDS

    def _given_up(self, seconds: float) -> bool:
        """Pressure that nothing relieves is an end too."""
        expect = self._scenario.expect
        if self._pressures.running or self._faults.lasting or not self._observer.waiting or expect.never_relieved:
            return False
        patience = max((expect.relieved_within_seconds or 0.0) * 2, PATIENCE_SECONDS)
        removals = self._embedded.runtime.removals
        news = [removals[-1].wall_seconds - self._began_wall] if removals else []
        news += [period.ended or 0.0 for period in self._pressures.periods]
        return seconds - max(news, default=0.0) > patience

    def _on_observation(self, observations: SignalObservations, decision: Decision) -> None:
        self._observer.conditions(decision.conditions, time.monotonic() - self._began)
        if self._watching:
            self._observer.sample(observations, observations.time - self._began)

    def _on_pass_of(self, collector: int) -> Callable[[Pass], None]:
        def on_pass(record: Pass) -> None:
            self._passes.append(PassSeen(record.started_wall - self._began_wall, record, collector))
            self._show(record)

        return on_pass

    def _wait_until(self, true: Callable[[], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not true() and time.monotonic() < deadline:
            time.sleep(0.005)

    # ---- looking at the node

    def _objects(self) -> tuple[frozenset[NamedObject], dict[str, str]]:
        """What the runtime lists, the logs, and names by id."""
        client, image_names = self.node.client, self._embedded.population.image_names
        found = [
            (Kind.IMAGE, image.id, image_names.get(image.id, image.title)) for image in answered(client.list_images)
        ]
        found += [(Kind.CONTAINER, each.id, each.title) for each in answered(client.list_containers)]
        found += [(Kind.SANDBOX, each.id, each.title) for each in answered(client.list_pod_sandboxes)]
        names = {object_id: name for _, object_id, name in found}
        objects = {NamedObject(str(kind), name) for kind, _, name in found}
        return frozenset(objects | {NamedObject(LOG, name) for name in self._logs()}), {**image_names, **names}

    def _logs(self) -> set[str]:
        """The directories of pods' logs."""
        return set(os.listdir(self._embedded.pod_logs_directory))

    def _removals(self, names: dict[str, str]) -> tuple[RemovalSeen, ...]:
        """What the runtime really removed, and the logs that the observer saw go."""
        removals = [
            RemovalSeen(each.wall_seconds - self._began_wall, each.kind, names.get(each.id, each.id), each.id)
            for each in self._embedded.runtime.removals
        ]
        removals += [RemovalSeen(seconds, LOG, name, name) for name, seconds in self._logs_gone.items()]
        return tuple(sorted(removals, key=lambda each: each.seconds))

    def _would_start(self) -> frozenset[str]:
        exit_codes = self._embedded.population.exit_codes
        return would_start(self._scenario.node.pods, answered(self.node.client.list_containers), exit_codes)

    def _new_pod(self) -> str:
        """Why no new pod starts; empty where one did."""
        node = self._scenario.node
        living = (pod.image for pod in node.pods if pod.state.lives)
        image = next(living, node.images[0].names[0])
        try:
            self._embedded.population.start_new_pod(image)
        except RuntimeUnavailable as error:
            return str(error)
        return ""
