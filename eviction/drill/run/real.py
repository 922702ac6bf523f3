"""Runs a scenario on a real node: files in a directory make the pressure.

The daemon's own loop relieves the node in this process, or another component does and is only observed. Processes of
their own keep the disk filled; everything they filled is freed at the end, in every case.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace

from eviction.daemon.manager import Manager
from eviction.drill.judgement.judge import DrillResult, Response, judge_real
from eviction.drill.measurement.measurements import MeasuredPass
from eviction.drill.measurement.real_node import Limits, NodeObservation
from eviction.drill.pressure.fill import RealGrowers
from eviction.drill.pressure.real_fill_plan import FillPlan
from eviction.drill.pressure.schedule import PressureSchedule
from eviction.drill.scenario import Grows, Scenario
from eviction.listener import Listener
from eviction.node.hold_off import HoldOff
from eviction.record import Pass
from eviction.reporting.log import Log
from eviction.types import Decision, EvictionError
from signals.types import SignalObservations

QUIET_SECONDS = 0.3
SHORTEST_WAIT_SECONDS = 10.0  # how long to wait at least for relief by our own daemon
OBSERVED_WAIT_SECONDS = 120.0  # a kubelet observes every 10 s, and its statistics may be as old
NEVER_CROSSED_SECONDS = 5.0
START_SECONDS = 10.0
TICK_SECONDS = 0.01


class FillFailed(EvictionError):
    """The disk could not be filled. The message says why."""


class Interrupted(Exception):
    """The drill was stopped by a signal. Everything has been freed."""


class RealDrill(Listener):
    """Runs one scenario in a directory of a node. `show` is called with every pass of the daemon in this process.

    `hold_off`: when that daemon may begin to remove. None: no daemon runs here, another component is observed.
    """

    def __init__(
        self,
        scenario: Scenario,
        plan: FillPlan,
        directory: str,
        observation: NodeObservation,
        hold_off: HoldOff | None,
        log: Log,
        limits: Limits,
        show: Callable[[Pass], None] = lambda _: None,
    ):
        self._scenario = scenario
        self._plan = plan
        self._observation = observation
        self._show = show
        self._limits = limits
        self._began_wall = time.time()
        self._observed = threading.Event()
        self._measuring = False
        self._passes: list[MeasuredPass] = []
        self._growers = RealGrowers(directory, lambda pressure: plan.reserve[pressure.counts_inodes])
        self._pressures = PressureSchedule(plan.pressures, self._growers)
        self._manager = None if hold_off is None else Manager(observation.node, log, may_act=hold_off.why)
        observation.node.listeners.add(self)

    @property
    def response(self) -> Response:
        """What relieves the node."""
        return Response.OBSERVED if self._manager is None else Response.OURS

    def run(self) -> DrillResult:
        """Prefills, applies the pressures, observes, frees, and judges.

        Raises FillFailed, or Interrupted if `observation.stopping` is set; everything has been freed then, too.
        """
        observation, manager = self._observation, self._manager
        daemon = None if manager is None else threading.Thread(target=manager.run, name="manager", daemon=True)
        try:
            self._prefill()
            if daemon is not None:
                daemon.start()
                self._observed.wait(START_SECONDS)
            observation.began, self._began_wall = time.monotonic(), time.time()
            self._measuring = True
            self._pressures.start(observation.began)
            try:
                last_change, ended = observation.watch(self._limits, lambda: self._pressures.running, self._give_up)
                self._raise_if_failed()
            finally:
                self._pressures.stop()
        finally:
            if manager is not None:
                manager.stop()
            if daemon is not None and daemon.is_alive():
                daemon.join()
            self._growers.free()
        if observation.stopping.is_set():
            raise Interrupted
        return self._result(last_change, ended)

    # ---- filling

    def _prefill(self) -> None:
        """Writes the prefill, before the clock starts and before anything is measured."""
        for inodes, amount in self._plan.prefill.items():
            grows = Grows.INODES if inodes else Grows.BYTES
            fill = self._growers.start(grows, 0, amount, self._plan.reserve[inodes])
            while fill.running and not self._observation.stopping.is_set():
                time.sleep(TICK_SECONDS)
        if self._observation.stopping.is_set():
            raise Interrupted
        self._raise_if_failed()

    def _raise_if_failed(self) -> None:
        problem = self._growers.problem
        if problem:
            raise FillFailed(f"the disk was not filled as planned: {problem}")

    # ---- observing

    def _give_up(self, seconds: float) -> bool:
        """True if the fill failed, if no mark was crossed, or if pressure has lasted too long without a removal."""
        if self._growers.problem:
            return True
        if self._pressures.running:
            return False
        ended = max((period.to_seconds or 0.0 for period in self._pressures.periods), default=0.0)
        observer = self._observation.observer
        if not observer.episodes:
            return seconds - ended > NEVER_CROSSED_SECONDS
        if not observer.under_pressure:
            return False
        within = self._scenario.expect.relieved_within_seconds or 0.0
        longest = SHORTEST_WAIT_SECONDS if self.response is Response.OURS else OBSERVED_WAIT_SECONDS
        removals = self._observation.inventory.removals
        last_change = max(ended, removals[-1].seconds if removals else 0.0)
        return seconds - last_change > max(within * 2, longest)

    def observed(self, observations: SignalObservations, decision: Decision) -> None:
        """The daemon has observed the node."""
        if self._measuring:
            self._observation.observer.sample(observations, observations.time - self._observation.began)
        self._observed.set()
        self._observation.observer.record_conditions(decision.conditions, time.monotonic() - self._observation.began)

    def passed(self, record: Pass) -> None:
        """A pass of the daemon has ended."""
        self._passes.append(MeasuredPass(record.started_wall - self._began_wall, record))
        self._show(record)

    # ---- judging

    def _result(self, last_change: float, ended: float) -> DrillResult:
        scenario, observation, identity = self._scenario, self._observation, self._plan.identity
        measured = replace(
            observation.measurements(last_change, ended),
            passes=tuple(self._passes),
            pressure_periods=self._pressures.periods,
        )
        observations = measured.observations
        checks = judge_real(scenario.expect, measured, self.response)
        failed = any(check.held is False for check in checks)
        return DrillResult(
            name=scenario.name,
            why=scenario.why,
            layout=None if observations is None else observations.layout,
            filesystem=f"{identity.type or 'the filesystem'} of {identity.path}, on a real node",
            simulated=False,
            measurements=measured,
            checks=checks,
            history=observation.node.responder.history.dump() if failed and self._manager is not None else {},
            response=self.response,
            lists_apart_seconds=observation.inventory.longest_gap_seconds,
        )
