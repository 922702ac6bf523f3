"""Runs a scenario on the embedded node: the daemon's loop, pressures, faults, an observer.

No measured time comes from the daemon: the observer reads the filesystems every 2 ms where
anything changes, and the runtime records when it really removed something.
"""

import math
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from grpc import StatusCode

from eviction.configuration.effective import Configuration, load
from eviction.drill.embedded_node import EmbeddedNode
from eviction.drill.judge import DrillResult, judge, would_start
from eviction.drill.measurements import MeasuredRemoval, Objects
from eviction.drill.observer import Limits, Observation, take_inventory
from eviction.drill.runtime import EmbeddedServer, Failpoint, first_half
from eviction.drill.scenario import Fault, FaultAction, ImageSpec, Pressure
from eviction.drill.schedule import (
    Bytes,
    FaultOccurrence,
    Files,
    Grower,
    PressureSchedule,
    Schedule,
)
from eviction.engine.node import DRAIN_SECONDS, Node
from eviction.surface.daemon import Daemon
from eviction.types import Json
from eviction.wording.log import Log
from reclaim.cri.inventory import retried
from reclaim.images.records import ImageRecords
from signals.quantity import counted, format_duration

QUIET_SECONDS = 0.3
LONGEST_SECONDS = 60.0
SHORTEST_WAIT_SECONDS = 3.0  # wait at least this long for relief that does not come
CONDITION_SLACK_SECONDS = 1.0  # wait this much longer than a condition may last

FAULTS: Mapping[FaultAction, tuple[str, Json]] = {
    "fail": ("fails ({code})", {"acts": False}),
    "act-then-fail": ("acts and then fails ({code})", {}),
    "pretend": ("does nothing and reports success", {"acts": False, "code": None}),
    "cut": ("breaks off its list ({code})", {"change": first_half}),
    "delay": ("answers {delay} late", {"code": None}),
    "hang": ("hangs", {"seconds": None, "code": None}),
    "restart": ("restarts", {}),
    "away": ("is down", {}),
}
"""Each fault as text, and how one of a method differs from a failure that is late and acts."""


def configuration_of(node: EmbeddedNode) -> Configuration:
    """The daemon's configuration: the fields of the scenario, with the node's paths."""
    spec = node.scenario.node
    made = {
        "kubeletConfig": "",
        "rootDirectory": node.root_directory,
        "podLogsDir": node.pod_logs_directory,
        "containerLogsDir": node.container_logs_directory,
        "stateFile": "",
        "historyFile": "",
        "containerRuntimeEndpoint": node.endpoint,
        "controlSocket": "",
        **spec.tables(node.path_of),
    }
    return load(None, {}, {**made, **spec.configuration})


# ---- faults


def describe_fault(fault: Fault) -> str:
    """A fault as text."""
    who = fault.method or "the runtime"
    words = FAULTS[fault.action][0].format(
        code=fault.code, delay=format_duration(fault.by_seconds or 0.0)
    )
    times = "" if fault.times is None else f", {counted(fault.times, 'time')}"
    lasts = "" if fault.lasts_seconds is None else f" for {format_duration(fault.lasts_seconds)}"
    return f"{who} {words}{times}{lasts}"


def failpoint_of(fault: Fault) -> Failpoint:
    """The failpoint of a fault that concerns one method."""
    point = Failpoint(
        seconds=fault.by_seconds or 0.0,
        code=StatusCode[fault.code],
        message=fault.message,
        times=fault.times,
    )
    return replace(point, **FAULTS[fault.action][1])


class FaultSchedule(Schedule):
    """Injects each fault of a scenario into an embedded runtime when it is due, and adds it to
    `triggered`."""

    def __init__(
        self, injected: tuple[Fault, ...], server: EmbeddedServer, triggered: list[FaultOccurrence]
    ):
        super().__init__()
        self._server = server
        self._triggered = triggered
        # a restart must not run while another fault keeps the runtime down
        self._whole_runtime = threading.Lock()
        for fault in injected:
            self._add(self._run, fault)

    def stop(self) -> None:
        """Injects no more, releases calls that hang, and leaves the runtime running."""
        super().stop()
        self._server.failpoints.clear()

    def _run(self, fault: Fault) -> None:
        """Waits until the fault is due, and injects it unless the run ends first."""
        if self._stopping.wait(self._began + fault.at_seconds - time.monotonic()):
            return
        self._triggered.append(
            FaultOccurrence(describe_fault(fault), time.monotonic() - self._began)
        )
        failpoints = self._server.failpoints
        if fault.method is not None:
            point = failpoints[fault.method] = failpoint_of(fault)
            if fault.lasts_seconds is not None:
                self._stopping.wait(fault.lasts_seconds)
                # no later fault has replaced it
                if failpoints.get(fault.method) is point:
                    del failpoints[fault.method]
            return
        with self._whole_runtime:
            self._server.stop()
            self._stopping.wait(fault.lasts_seconds or 0.0)
            self._server.start()


# ---- what grows


def grower_on(node: EmbeddedNode, pressure: Pressure, number: int) -> Grower:
    """Starts a pressure of an embedded node."""
    options = {
        name: getattr(pressure, name)
        for name in ("file", "rate", "amount", "file_bytes", "until_full", "remains")
    }
    match pressure.grows:
        case "pull":
            assert pressure.image is not None
            return Pulls(node=node, image=pressure.image, path="", **options)
        case "writable":
            path = os.path.join(node.runtime.writable_layer(node.containers[pressure.pod]), "grown")
        case "log":
            path = node.log_files[pressure.pod]
        case _:
            path = os.path.join(node.disk(pressure.where), "grown", str(number))
    return (Files if pressure.counts_inodes else Bytes)(path=path, **options)


@dataclass(kw_only=True, eq=False)
class Pulls(Grower):
    """Images that are pulled, one after another."""

    node: EmbeddedNode
    image: ImageSpec
    retry_seconds: float = 0.05  # as the kubelet does, but sooner

    def _open(self) -> None:
        self._names = list(self.image.names)
        whole = self.image.size_bytes * self.image.count
        self.amount = min(self.amount or whole, whole)

    def _grow(self, _: int) -> int:
        self.node.pull(self.image, self._names[0])
        self._names.pop(0)
        return self.image.size_bytes


# ---- the run


class Drill(Observation):
    """Runs one scenario on an embedded node."""

    def __init__(self, embedded: EmbeddedNode, log: Log):
        self._scenario = embedded.scenario
        self._embedded = embedded
        self._paths: set[tuple[str, str]] = set()  # that are still there
        self._recorded = 0  # removals in the runtime's record that have been taken
        configuration = configuration_of(embedded)
        node = Node(configuration, records=ImageRecords(seed=embedded.records))
        # No kubelet answers on an embedded node, so a hold-off always lasts its full time.
        self._daemon = Daemon(node, log, configuration.hold_off_seconds)
        super().__init__(node)

    def run(self) -> DrillResult:
        """Applies pressures and faults, observes until nothing changes, and judges the run."""
        scenario = self._scenario
        embedded = self._embedded
        measured = self.measured
        expect = scenario.expect
        pressures = PressureSchedule(scenario.pressures, partial(grower_on, embedded))
        faulty = FaultSchedule(scenario.faults, embedded.server, measured.faults)
        patience = max((expect.relieved_within_seconds or 0.0) * 2, SHORTEST_WAIT_SECONDS)
        if expect.never_relieved:
            patience = math.inf
        limits = Limits(
            max(QUIET_SECONDS, expect.quiet_seconds or 0.0),
            LONGEST_SECONDS,
            patience_seconds=patience,
        )
        with self.beside(self._daemon):
            measured.before, starts_before = self._look()
            self._paths = embedded.paths
            self.watch(limits, pressures, faulty)
        self.node.owner.drained(DRAIN_SECONDS)
        measured.after, starts_after = self._look()
        self.removed(measured.ended)
        measured.removals.sort(key=lambda removal: removal.seconds)
        measured.pressures = pressures.periods
        measured.would_restart = sorted(starts_after - starts_before)
        if expect.new_pod_starts:
            measured.new_pod_problem = embedded.new_pod_problem()
        pressures.free()
        self.node.close()
        return DrillResult(
            scenario.name,
            scenario.why,
            embedded.describe(),
            measurements=measured,
            checks=judge(expect, measured, len(scenario.faults)),
        )

    # ---- observing

    def removed(self, seconds: float) -> int:
        """Takes the removals that the runtime has recorded meanwhile, and paths that are gone."""
        measured = self.measured
        missing = self._paths - self._embedded.paths
        self._paths -= missing
        gone = [(seconds, *path) for path in missing]
        recorded = self._embedded.runtime.removals[self._recorded :]
        self._recorded += len(recorded)
        gone += [(wall - measured.began_wall, kind, each) for wall, kind, each in recorded]
        for at, kind, each in gone:
            # one that was pulled meanwhile was not there before
            name = self._embedded.image_names.get(each) or measured.before.get((kind, each), each)
            measured.removals.append(MeasuredRemoval(at, kind, name, id=each))
        return len(measured.removals)

    def in_progress(self, seconds: float) -> bool:
        """True while relief or the end of a condition is awaited."""
        measured = self.measured
        expect = self._scenario.expect
        if measured.under_pressure:
            return not expect.never_relieved
        limit = expect.condition.goes_within_seconds
        relieved = measured.last_relief
        reported = any(period.to_seconds is None for period in measured.conditions)
        if limit is None or relieved is None or not reported:
            return False
        return seconds < relieved + limit + CONDITION_SLACK_SECONDS

    # ---- reading the node

    def _look(self) -> tuple[Objects, frozenset[str]]:
        """What the runtime lists, the log directories, and the files that functions may remove; and
        the containers (`pod/container`) that a kubelet would start now.

        Raises RuntimeUnavailable.
        """
        node = self._embedded
        taken = retried(lambda: take_inventory(node.client, node.pod_logs_directory))
        named = {key: node.image_names.get(key[1], name) for key, name in taken.objects.items()}
        starts = would_start(self._scenario.node.pods, taken.containers, node.exit_codes)
        return {**named, **{path: path[1] for path in node.paths}}, starts
