"""Runs a scenario: the daemon's own loop on the embedded node, pressures, faults, and an independent observer.

The measured times do not come from the daemon: the observer reads the filesystems every 2 ms, and the runtime records
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
from eviction.drill.judgement.judge import DrillResult, judge
from eviction.drill.judgement.restart_policy import would_start
from eviction.drill.measurement.measurements import ImageLayer, MeasuredPass, MeasuredRemoval, Measurements, NamedObject
from eviction.drill.measurement.observer import Observer
from eviction.drill.node.embedded_node import EmbeddedNode, until_answered
from eviction.drill.pressure.embedded_growers import EmbeddedGrowers
from eviction.drill.pressure.fault_schedule import FaultSchedule
from eviction.drill.pressure.schedule import PressureSchedule
from eviction.drill.scenario import Scenario
from eviction.listener import Listener
from eviction.node.hold_off import HoldOff
from eviction.node.node import DRAIN_SECONDS, Node
from eviction.record import Pass
from eviction.reporting.log import Log
from eviction.telemetry.events import LogSink
from eviction.types import Decision
from reclaim.images.records import ImageRecords
from reclaim.types import Kind, RuntimeUnavailable
from signals.types import SignalObservations

SAMPLE_SECONDS = 0.002
PROGRESS_SECONDS = 0.04
QUIET_SECONDS = 0.3
LONGEST_SECONDS = 60.0
SHORTEST_WAIT_SECONDS = 3.0  # how long to wait at least for relief that does not come
START_SECONDS = 10.0
LOG = "log"
FILE = "file"
CONDITION_SLACK_SECONDS = 1.0  # waited beyond the time in which a condition must end


def configuration_of(scenario: Scenario, node: EmbeddedNode) -> Configuration:
    """The daemon's configuration: the fields of the scenario, with the paths of the embedded node."""
    made = {
        "kubeletConfig": "",
        "rootDirectory": node.root_directory,
        "podLogsDir": node.pod_logs_directory,
        "containerLogsDir": node.container_logs_directory,
        "stateFile": "",
        "historyFile": "",
        "containerRuntimeEndpoint": node.endpoint,
        "controlSocket": "",
        **scenario.node.tables(node.path_of),
    }
    return load(None, {}, {**made, **scenario.node.configuration})


class Drill:
    """Runs one scenario on an embedded node. `show` is called with every pass, `progress` about 25 times a second."""

    def __init__(
        self,
        scenario: Scenario,
        embedded: EmbeddedNode,
        log: Log,
        show: Callable[[Pass], None] = lambda _: None,
        progress: Callable[[float, SignalObservations], None] = lambda *_: None,
    ):
        self._scenario = scenario
        self._embedded = embedded
        self._show = show
        self._progress = progress
        self._began, self._began_wall = time.monotonic(), time.time()
        self._passes: list[MeasuredPass] = []
        self._removed_paths: dict[tuple[str, str], float] = {}
        self._measuring = False
        configuration = configuration_of(scenario, embedded)
        self._nodes = [
            Node(configuration, reader=embedded.reader, records=ImageRecords(seed=embedded.population.records))
            for _ in range(scenario.node.collectors)
        ]
        self.node = self._nodes[0]
        self._observer = Observer(self.node.thresholds)
        # No kubelet answers on an embedded node, so a hold-off always lasts its full time.
        hold_off = HoldOff(configuration.hold_off_seconds, time.monotonic(), time.monotonic, lambda: False)
        self._managers = [Manager(node, log, may_act=hold_off.why) for node in self._nodes]
        for number, node in enumerate(self._nodes, 1):
            node.listeners.add(_Collector(self, number))
        self._periodic = [
            PeriodicGC(node, log, LogSink(log), hold_off.why) for node in self._nodes if configuration.periodic_gc
        ]
        self._growers = EmbeddedGrowers(embedded)
        self._pressures = PressureSchedule(scenario.pressures, self._growers)
        self._faults = FaultSchedule(scenario.faults, embedded.server)

    def run(self) -> DrillResult:
        """Applies the pressures and faults, observes until nothing changes any more, and judges."""
        daemons = [threading.Thread(target=manager.run, name="manager", daemon=True) for manager in self._managers]
        for daemon in daemons:
            daemon.start()
        self._wait_until(lambda: all(node.summary.paths.imagefs is not None for node in self._nodes), START_SECONDS)
        before, names = self._objects()
        would_start_before = self._would_start()
        self._began, self._began_wall = time.monotonic(), time.time()
        self._measuring = True
        self._pressures.start(self._began)
        self._faults.start(self._began)
        for periodic in self._periodic:
            periodic.start()
        try:
            last_change, ended = self._watch()
        finally:
            self._pressures.stop()
            self._faults.stop()
            for manager in self._managers:
                manager.stop()
        for daemon in daemons:
            daemon.join()
        for node in self._nodes:
            node.removals.wait(DRAIN_SECONDS)
        after, later_names = self._objects()
        scenario, embedded, population = self._scenario, self._embedded, self._embedded.population
        observer, observations = self._observer, self._observer.observations
        measured = Measurements(
            filesystems=observer.filesystems,
            samples=tuple(observer.samples),
            thresholds=self.node.thresholds(None if observations is None else observations.layout),
            observations=observations,
            episodes=tuple(observer.episodes),
            condition_periods=tuple(observer.condition_periods),
            passes=tuple(sorted(self._passes, key=lambda one: one.seconds)),
            removals=self._removals({**later_names, **names}),
            pressure_periods=self._pressures.periods,
            faults=self._faults.triggered,
            before=before,
            after=after,
            layers={
                name: tuple(ImageLayer(layer.digest, layer.size_bytes, layer.inodes) for layer in layers)
                for name, layers in population.layers.items()
            },
            would_restart=tuple(sorted(self._would_start() - would_start_before)),
            new_pod_problem=self._new_pod_problem() if scenario.expect.new_pod_starts else None,
            last_change=last_change,
            ended=ended,
        )
        checks = judge(scenario.expect, measured, len(scenario.faults))
        history = {} if all(check.held for check in checks) else self.node.responder.history.dump()
        self._growers.close()
        for node in self._nodes:
            node.close()
        name, why, layout = scenario.name, scenario.why, scenario.node.layout
        return DrillResult(name, why, layout, embedded.describe(), embedded.simulated, measured, checks, history)

    # ---- observing

    def _watch(self) -> tuple[float, float]:
        """Samples the filesystems until nothing has changed for a while. Returns the times of the last change and of
        the end, in seconds since the first pressure began."""
        quiet = max(QUIET_SECONDS, self._scenario.expect.quiet_seconds or 0.0)
        last_change, changes, next_progress = 0.0, 0, 0.0
        paths = self._paths()
        while True:
            observations = self.node.summary.observe()
            seconds = observations.time - self._began
            self._observer.sample(observations, seconds)
            self._removed_paths |= dict.fromkeys(paths - self._removed_paths.keys() - self._paths(), seconds)
            if seconds >= next_progress:
                self._progress(seconds, observations)
                next_progress = seconds + PROGRESS_SECONDS
            changes_now = len(self._passes) + len(self._embedded.runtime.removals) + len(self._removed_paths)
            if changes_now != changes or self._in_progress(seconds):
                last_change, changes = seconds, changes_now
            if seconds - last_change > quiet or seconds > LONGEST_SECONDS or self._give_up(seconds):
                return last_change, seconds
            time.sleep(SAMPLE_SECONDS)

    def _in_progress(self, seconds: float) -> bool:
        """True while a pressure or a fault lasts, or while relief or the end of a condition is still to come."""
        observer, expect = self._observer, self._scenario.expect
        if self._pressures.running or self._faults.active:
            return True
        if observer.under_pressure:
            return not expect.never_relieved
        limit, relieved = expect.condition.goes_within_seconds, observer.last_relief
        reported = any(period.to_seconds is None for period in observer.condition_periods)
        if limit is None or relieved is None or not reported:
            return False
        return seconds < relieved + limit + CONDITION_SLACK_SECONDS

    def _give_up(self, seconds: float) -> bool:
        """True once pressure has lasted too long without a removal: the run ends without relief."""
        expect = self._scenario.expect
        if self._pressures.running or self._faults.active or not self._observer.under_pressure or expect.never_relieved:
            return False
        longest = max((expect.relieved_within_seconds or 0.0) * 2, SHORTEST_WAIT_SECONDS)
        removals = self._embedded.runtime.removals
        changes = [removals[-1].wall_seconds - self._began_wall] if removals else []
        changes += [period.to_seconds or 0.0 for period in self._pressures.periods]
        return seconds - max(changes, default=0.0) > longest

    def observed(self, observations: SignalObservations, decision: Decision) -> None:
        """The first collector has observed the node."""
        self._observer.record_conditions(decision.conditions, time.monotonic() - self._began)
        if self._measuring:
            self._observer.sample(observations, observations.time - self._began)

    def passed(self, record: Pass, collector: int) -> None:
        """A pass of a collector has ended."""
        self._passes.append(MeasuredPass(record.started_wall - self._began_wall, record, collector))
        self._show(record)

    def _wait_until(self, condition: Callable[[], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not condition() and time.monotonic() < deadline:
            time.sleep(0.005)

    # ---- reading the node

    def _objects(self) -> tuple[frozenset[NamedObject], dict[str, str]]:
        """The objects that the runtime lists and the log directories; and the names of objects by id."""
        client, names = self.node.client, dict(self._embedded.population.image_names)
        found = [(Kind.IMAGE, each.id, each.title) for each in until_answered(client.list_images)]
        found += [(Kind.CONTAINER, each.id, each.title) for each in until_answered(client.list_containers)]
        found += [(Kind.SANDBOX, each.id, each.title) for each in until_answered(client.list_pod_sandboxes)]
        objects = {NamedObject(*each) for each in self._paths()}
        objects |= {NamedObject(str(kind), names.setdefault(object_id, title)) for kind, object_id, title in found}
        return frozenset(objects), names

    def _paths(self) -> set[tuple[str, str]]:
        """Kind and name of what no runtime knows: log directories of pods, and what functions of the configuration may
        remove."""
        logs = {(LOG, name) for name in os.listdir(self._embedded.pod_logs_directory)}
        return logs | {(FILE, name) for name in self._embedded.files}

    def _removals(self, names: dict[str, str]) -> tuple[MeasuredRemoval, ...]:
        """What the runtime recorded as removed, and the paths that the observer saw disappear."""
        removals = [
            MeasuredRemoval(each.wall_seconds - self._began_wall, each.kind, names.get(each.id, each.id), each.id)
            for each in self._embedded.runtime.removals
        ]
        paths = self._removed_paths.items()
        removals += [MeasuredRemoval(seconds, kind, name, name) for (kind, name), seconds in paths]
        return tuple(sorted(removals, key=lambda each: each.seconds))

    def _would_start(self) -> frozenset[str]:
        exit_codes = self._embedded.population.exit_codes
        return would_start(self._scenario.node.pods, until_answered(self.node.client.list_containers), exit_codes)

    def _new_pod_problem(self) -> str:
        """Why no new pod starts; empty if one did."""
        node = self._scenario.node
        known = (pod.image for pod in node.pods if pod.state.known_to_kubelet)
        image = next(known, node.images[0].names[0])
        try:
            self._embedded.population.start_new_pod(image)
        except RuntimeUnavailable as error:
            return str(error)
        return ""


class _Collector(Listener):
    """Hears one of the agents for the drill; only the first one's observations count."""

    def __init__(self, drill: Drill, number: int):
        self._drill = drill
        self._number = number

    def passed(self, record: Pass) -> None:
        self._drill.passed(record, self._number)

    def observed(self, observations: SignalObservations, decision: Decision) -> None:
        if self._number == 1:
            self._drill.observed(observations, decision)
