"""Runs a scenario on the embedded node: the daemon's own loop, pressures, faults,
and an independent observer.

No measured time comes from the daemon: the observer reads the filesystems every 2 ms, and the
runtime records when it really removed something.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

from eviction.configuration.effective import Configuration, load
from eviction.drill.judgement.judge import DrillResult, judge, would_start
from eviction.drill.measurement.measurements import MeasuredRemoval
from eviction.drill.measurement.observer import LOG, Inventory, Limits, Observation, take_inventory
from eviction.drill.node.embedded_node import EmbeddedNode, until_answered
from eviction.drill.pressure.fill_program import Order
from eviction.drill.pressure.schedule import (
    FaultOccurrence,
    Fill,
    Fills,
    Grower,
    PressureSchedule,
    Schedule,
)
from eviction.drill.runtime import faults
from eviction.drill.runtime.private_mounts import EmbeddedNodeError
from eviction.drill.runtime.server import EmbeddedServer
from eviction.drill.scenario import Fault, FaultAction, Grows, ImageSpec, Pressure, Scenario
from eviction.engine.node import DRAIN_SECONDS, Node
from eviction.records.passes import Pass
from eviction.surface.daemon import Daemon
from eviction.wording.log import Log
from reclaim.images.records import ImageRecords
from signals.quantity import counted, format_duration

QUIET_SECONDS = 0.3
LONGEST_SECONDS = 60.0
SHORTEST_WAIT_SECONDS = 3.0  # wait at least this long for relief that does not come
FILE = "file"
CONDITION_SLACK_SECONDS = 1.0  # wait this much longer than a condition may last
WRITE_BYTES = 256 * 1024  # a container writes this much at a time
LEAST_WRITES_A_SECOND = 100  # or more at a fast rate: it can write every 5 ms at most
# an image that does not fit is pulled again, as by the kubelet, but sooner
PULL_AGAIN_SECONDS = 0.05
WAIT_SECONDS = 0.05

FAULTS: dict[FaultAction, tuple[str, type[faults.Failpoint] | None]] = {
    FaultAction.FAIL: ("fails ({code})", faults.Fail),
    FaultAction.ACT_THEN_FAIL: ("acts and then fails ({code})", faults.ActThenFail),
    FaultAction.PRETEND: ("does nothing and reports success", faults.Pretend),
    FaultAction.CUT: ("breaks off its list ({code})", faults.Cut),
    FaultAction.DELAY: ("answers {delay} late", faults.Delay),
    FaultAction.HANG: ("hangs", faults.Hang),
    FaultAction.RESTART: ("restarts", None),
    FaultAction.AWAY: ("is down", None),
}
"""Each fault as text, and as a failpoint if it concerns one method."""


def configuration_of(scenario: Scenario, node: EmbeddedNode) -> Configuration:
    """The daemon's configuration: the fields of the scenario, with the paths of
    the embedded node.
    """
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


def starts(node: EmbeddedNode) -> frozenset[str]:
    """The containers (`pod/container`) that a kubelet would start now.

    Raises RuntimeUnavailable.
    """
    return would_start(node.pods, until_answered(node.client.list_containers), node.exit_codes)


# ---- faults


def describe_fault(fault: Fault) -> str:
    """A fault as text."""
    who = fault.method or "the runtime"
    delay = format_duration(fault.by_seconds or 0.0)
    words = FAULTS[fault.action][0].format(code=fault.code, delay=delay)
    times = "" if fault.times is None else f", {counted(fault.times, 'time')}"
    lasts = "" if fault.lasts_seconds is None else f" for {format_duration(fault.lasts_seconds)}"
    return f"{who} {words}{times}{lasts}"


def failpoint_of(fault: Fault) -> faults.Failpoint:
    """The failpoint of a fault that concerns one method."""
    kind = FAULTS[fault.action][1]
    assert kind is not None  # a fault of the whole runtime names no method
    known: dict[str, Any] = {
        "code": faults.CODES[fault.code],
        "message": fault.message,
        "times": fault.times,
        "seconds": fault.by_seconds or 0.0,
    }
    return kind(**{field.name: known[field.name] for field in fields(kind) if field.init})


class FaultSchedule(Schedule):
    """Injects each fault of a scenario into an embedded runtime when it is due: some time after the
    first pressure began, or with a certain call."""

    def __init__(self, injected: tuple[Fault, ...], server: EmbeddedServer):
        super().__init__()
        self._server = server
        self.triggered: list[FaultOccurrence] = []
        """The faults injected so far, in order."""
        # a restart must not run while another fault keeps the runtime down
        self._whole_runtime = threading.Lock()
        self._active = {
            number for number, fault in enumerate(injected) if fault.at_seconds is not None
        }
        self._calls_before = server.failpoints.calls
        for number, fault in enumerate(injected):
            self._add(self._run, number, fault)

    @property
    def active(self) -> bool:
        """True while a fault is in force or due at a later time. A fault that waits for a call does
        not count: the call may never come."""
        return bool(self._active)

    def start(self, began: float) -> None:
        """Starts, and counts calls from now on."""
        self._calls_before = self._server.failpoints.calls
        super().start(began)

    def stop(self) -> None:
        """Injects no more, releases calls that hang, and leaves the runtime running."""
        super().stop()
        self._server.failpoints.clear()

    def _run(self, number: int, fault: Fault) -> None:
        """Waits until the fault is due, and injects it unless the run ends first."""
        if fault.on_call is not None:
            method, arrived = fault.on_call.method, self._server.failpoints.wait_for_calls
            wanted = self._calls_before[method] + fault.on_call.count
            while not (self._stopping.is_set() or arrived(method, wanted, WAIT_SECONDS)):
                pass
        else:
            self._stopping.wait(
                max(self._began + (fault.at_seconds or 0.0) - time.monotonic(), 0.0)
            )
        if not self._stopping.is_set():
            self._active.add(number)
            self._inject(fault)
        self._active.discard(number)

    def _inject(self, fault: Fault) -> None:
        self.triggered.append(
            FaultOccurrence(describe_fault(fault), time.monotonic() - self._began)
        )
        if fault.method is not None:
            point = self._server.failpoints[fault.method] = failpoint_of(fault)
            if fault.lasts_seconds is not None:
                self._stopping.wait(fault.lasts_seconds)
                # no later fault has replaced it
                if self._server.failpoints.get(fault.method) is point:
                    del self._server.failpoints[fault.method]
            return
        with self._whole_runtime:
            self._server.stop()
            if fault.action is FaultAction.AWAY:
                self._stopping.wait(fault.lasts_seconds)
            self._server.start()


# ---- what grows


class EmbeddedGrowers(Fills):
    """Starts the pressures of one embedded node. Bytes, files and logs are written by a process
    each; writable layers and pulls grow through the runtime, on the thread of their pressure."""

    def __init__(self, node: EmbeddedNode):
        super().__init__()
        self._node = node

    def __call__(self, pressure: Pressure, number: int) -> Grower:
        match pressure.grows:
            case Grows.BYTES | Grows.INODES:
                return self._fill(
                    pressure, os.path.join(self._node.disk(pressure.where), "grown", str(number))
                )
            case Grows.LOG:
                return self._fill(pressure, self._node.log_files[pressure.pod])
            case Grows.WRITABLE:
                container = self._node.running[pressure.pod]
                return _ThroughRuntime(
                    pressure, lambda most: self._node.runtime.write_to_container(container, most)
                )
            case Grows.PULL:
                assert pressure.image is not None
                image, names = pressure.image, list(pressure.image.names)
                return _ThroughRuntime(pressure, lambda _: self._pull(image, names))

    def _fill(self, pressure: Pressure, path: str) -> Fill:
        order = Order(
            path,
            pressure.grows,
            pressure.rate,
            pressure.amount,
            0,
            pressure.file_bytes,
            pressure.file,
        )
        return self.start(order._replace(until_full=pressure.until_full, remains=pressure.remains))

    def _pull(self, image: ImageSpec, names: list[str]) -> int:
        """Pulls the next image.

        Returns the bytes pulled, 0 if it did not fit, -1 if none is left.
        """
        if not names:
            return -1
        try:
            self._node.pull(image, names[0])
        except OSError:
            return 0
        names.pop(0)
        return image.size_bytes


class _ThroughRuntime:
    """Writes through the runtime at a steady rate. `write` takes the most bytes that it may write
    and returns the number written: 0 if there was no space, -1 at the end."""

    def __init__(self, pressure: Pressure, write: Callable[[int], int]):
        self._pressure = pressure
        self._write = write
        self._written = 0
        self._began = self._due = time.monotonic()

    def goes_on(self) -> bool:
        """Writes if more is due. False at the end."""
        now = time.monotonic()
        if now < self._due:
            return True
        most = max(WRITE_BYTES, self._pressure.rate // LEAST_WRITES_A_SECOND)
        left = most if self._pressure.amount is None else self._pressure.amount - self._written
        wrote = self._write(min(left, most)) if left > 0 else -1
        if wrote < 0 or (wrote == 0 and self._pressure.until_full):
            return False
        self._written += wrote
        self._due = (
            now + PULL_AGAIN_SECONDS
            if wrote == 0
            else self._began + self._written / self._pressure.rate
        )
        return True

    def stop(self) -> int:
        return self._written

    def free(self) -> None:
        """Does nothing: a runtime's files are not removed behind its back.

        No scenario may ask for it.
        """


# ---- the run


class Drill(Observation):
    """Runs one scenario on an embedded node. `show` is called with every pass."""

    def __init__(
        self,
        scenario: Scenario,
        embedded: EmbeddedNode,
        log: Log,
        *,
        show: Callable[[Pass], None] = lambda _: None,
    ):
        self._scenario = scenario
        self._embedded = embedded
        self._paths_before: set[tuple[str, str]] = set()
        self._removed_paths: dict[tuple[str, str], float] = {}
        configuration = configuration_of(scenario, embedded)
        nodes = [
            Node(configuration, reader=embedded.reader, records=ImageRecords(seed=embedded.records))
            for _ in range(scenario.node.collectors)
        ]
        super().__init__(nodes[0], show)
        # No kubelet answers on an embedded node, so a hold-off always lasts its full time.
        self._daemons = {
            node: Daemon(node, log, hold_off_seconds=configuration.hold_off_seconds)
            for node in nodes
        }
        self._growers = EmbeddedGrowers(embedded)
        self._pressures = PressureSchedule(scenario.pressures, self._growers)
        self._faults = FaultSchedule(scenario.faults, embedded.server)

    def run(self) -> DrillResult:
        """Applies the pressures and faults, observes until nothing changes any
        more, and judges the run.
        """
        scenario, embedded = self._scenario, self._embedded
        quiet = max(QUIET_SECONDS, scenario.expect.quiet_seconds or 0.0)
        with self.beside(self._daemons):
            before, starts_before = self._inventory(), starts(embedded)
            self._paths_before = self._paths()
            self.watch(Limits(quiet, LONGEST_SECONDS), self._give_up, self._pressures, self._faults)
        for node in self._daemons:
            node.owner.drained(DRAIN_SECONDS)
        after = self._inventory()
        names = {
            object_id: name for (_, object_id), name in {**after.objects, **before.objects}.items()
        }
        measured = self.measured
        measured.passes.sort(key=lambda one: one.seconds)
        measured.removals = self._removals({**names, **embedded.image_names})
        measured.pressures, measured.faults = self._pressures.periods, self._faults.triggered
        measured.before, measured.after = before.objects, after.objects
        measured.layers = embedded.layers
        measured.would_restart = sorted(starts(embedded) - starts_before)
        if scenario.expect.new_pod_starts:
            measured.new_pod_problem = self._new_pod_problem()
        checks = judge(scenario.expect, measured, len(scenario.faults))
        history = {} if all(check.held for check in checks) else self.node.history.dump()
        self._growers.free()
        for node in self._daemons:
            node.close()
        name, why, layout = scenario.name, scenario.why, scenario.node.layout
        return DrillResult(
            name, why, layout, embedded.describe(), embedded.simulated, measured, checks, history
        )

    # ---- observing

    def changes(self, seconds: float) -> int:
        """The number of passes, of removals in the runtime's record, and of
        paths that are missing.
        """
        missing = self._paths_before - self._removed_paths.keys() - self._paths()
        self._removed_paths |= dict.fromkeys(missing, seconds)
        return (
            len(self.measured.passes)
            + len(self._embedded.runtime.removals)
            + len(self._removed_paths)
        )

    def in_progress(self, seconds: float) -> bool:
        """True while a pressure or a fault lasts, or while relief or the end
        of a condition is awaited.
        """
        measured, expect = self.measured, self._scenario.expect
        if self._pressures.running or self._faults.active:
            return True
        if measured.under_pressure:
            return not expect.never_relieved
        limit, relieved = expect.condition.goes_within_seconds, measured.last_relief
        reported = any(period.to_seconds is None for period in measured.conditions)
        if limit is None or relieved is None or not reported:
            return False
        return seconds < relieved + limit + CONDITION_SLACK_SECONDS

    def _give_up(self, seconds: float) -> bool:
        """True once pressure has lasted too long without a removal."""
        expect = self._scenario.expect
        if (
            self._pressures.running
            or self._faults.active
            or not self.measured.under_pressure
            or expect.never_relieved
        ):
            return False
        longest = max((expect.relieved_within_seconds or 0.0) * 2, SHORTEST_WAIT_SECONDS)
        removals = self._embedded.runtime.removals
        last_removal = removals[-1].wall_seconds - self.began_wall if removals else 0.0
        return seconds - max(last_removal, self._pressures.ended) > longest

    # ---- reading the node

    def _inventory(self) -> Inventory:
        """The objects that the runtime lists, the log directories, and the files that the
        configuration's functions may remove."""
        found = until_answered(
            lambda: take_inventory(self._embedded.client, self._embedded.pod_logs_directory)
        )
        names = self._embedded.image_names
        listed = {key: names.get(key[1], name) for key, name in found.objects.items()}
        return replace(
            found, objects={**listed, **{(FILE, name): name for name in self._embedded.files}}
        )

    def _paths(self) -> set[tuple[str, str]]:
        """Kind and name of the log directories and files, which no runtime lists."""
        logs = {(LOG, name) for name in os.listdir(self._embedded.pod_logs_directory)}
        return logs | {(FILE, name) for name in self._embedded.files}

    def _removals(self, names: dict[str, str]) -> tuple[MeasuredRemoval, ...]:
        """The removals in the runtime's record, and the paths that the observer saw disappear."""
        removals = [
            MeasuredRemoval(
                each.wall_seconds - self.began_wall, each.kind, names.get(each.id, each.id), each.id
            )
            for each in self._embedded.runtime.removals
        ]
        paths = self._removed_paths.items()
        removals += [MeasuredRemoval(seconds, kind, name, name) for (kind, name), seconds in paths]
        return tuple(sorted(removals, key=lambda each: each.seconds))

    def _new_pod_problem(self) -> str:
        """Why a new pod could not start; empty if it did."""
        node = self._scenario.node
        known = (pod.image for pod in node.pods if pod.state.known_to_kubelet)
        try:
            self._embedded.start_new_pod(next(known, node.images[0].names[0]))
        except (EmbeddedNodeError, OSError) as error:
            return str(error)
        return ""
