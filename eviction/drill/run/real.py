"""A scenario being run on a node that is there: pressure made by files in a directory, on whoever responds.

The daemon's own loop responds in this process, or somebody else does and is only observed. What is filled is held by
processes of its own, and given back at the end, whatever the end is.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace

from eviction.daemon.manager import Manager
from eviction.drill.judgement.judge_real import judge_real
from eviction.drill.judgement.result import DrillResult, Response
from eviction.drill.measurement.measurements import PassSeen
from eviction.drill.measurement.real_node import Limits, Observation
from eviction.drill.pressure.real_fill import HeldGrowers
from eviction.drill.pressure.real_fill_plan import FillPlan
from eviction.drill.pressure.schedule import Pressures
from eviction.drill.scenario.types import Grows, Scenario
from eviction.node.hold_off import HoldOff
from eviction.reporting.log import Log
from eviction.reporting.pass_record import Pass
from eviction.types import Decision, EvictionError
from signals.types import SignalObservations

QUIET_SECONDS = 0.3
PATIENCE_SECONDS = 10.0  # at least so long is waited for a relief of ours that does not come
OBSERVED_PATIENCE_SECONDS = 120.0  # a kubelet looks every 10 s, at statistics that may be as old
NEVER_CROSSED_SECONDS = 5.0
START_SECONDS = 10.0
TICK_SECONDS = 0.01


class FillFailed(EvictionError):
    """What was to fill the disk could not. The message is its own."""


class Interrupted(Exception):
    """The drill was told to stop; everything has been given back."""


class RealDrill:
    """Runs one scenario in a directory of a node. `show` is called with every pass of ours.

    `hold_off`: why nothing may be removed yet, where our own daemon responds; None: somebody else does.
    """

    def __init__(
        self,
        scenario: Scenario,
        plan: FillPlan,
        directory: str,
        observation: Observation,
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
        self._looked = threading.Event()
        self._watching = False
        self._passes: list[PassSeen] = []
        self._growers = HeldGrowers(directory, lambda pressure: plan.leave[pressure.counts_inodes])
        self._pressures = Pressures(plan.pressures, self._growers)
        self._manager = (
            None
            if hold_off is None
            else Manager(
                observation.node, log, may_act=hold_off.why, on_pass=self._on_pass, on_observation=self._on_observation
            )
        )

    @property
    def response(self) -> Response:
        """Who relieves the node."""
        return Response.OBSERVED if self._manager is None else Response.OURS

    def run(self) -> DrillResult:
        """Sets aside, presses, watches, gives back, judges.

        Raises FillFailed, and Interrupted when told to stop; everything has been given back then, too.
        """
        observation, manager = self._observation, self._manager
        daemon = None if manager is None else threading.Thread(target=manager.run, name="manager", daemon=True)
        try:
            self._set_aside()
            if daemon is not None:
                daemon.start()
                self._looked.wait(START_SECONDS)
            observation.began, self._began_wall = time.monotonic(), time.time()
            self._watching = True
            self._pressures.start(observation.began)
            try:
                quiet_since, ended = observation.watch(self._limits, lambda: self._pressures.running, self._given_up)
                self._refuse_a_failed_fill()
            finally:
                self._pressures.stop()
        finally:
            if manager is not None:
                manager.stop()
            if daemon is not None and daemon.is_alive():
                daemon.join()
            self._growers.give_back()
        if observation.stopping.is_set():
            raise Interrupted
        return self._result(quiet_since, ended)

    # ---- filling

    def _set_aside(self) -> None:
        """What comes before the clock starts. The filesystems are read meanwhile by nobody."""
        for inodes, amount in self._plan.aside.items():
            grows = Grows.INODES if inodes else Grows.BYTES
            held = self._growers.hold(grows, 0, amount, self._plan.leave[inodes])
            while held.running and not self._observation.stopping.is_set():
                time.sleep(TICK_SECONDS)
        if self._observation.stopping.is_set():
            raise Interrupted
        self._refuse_a_failed_fill()

    def _refuse_a_failed_fill(self) -> None:
        problem = self._growers.problem
        if problem:
            raise FillFailed(f"the disk was not filled as it should: {problem}")

    # ---- watching

    def _given_up(self, seconds: float) -> bool:
        """Pressure that nobody relieves is an end too, and so is a mark that was never crossed."""
        if self._growers.problem:
            return True
        if self._pressures.running:
            return False
        ended = max((period.ended or 0.0 for period in self._pressures.periods), default=0.0)
        observer = self._observation.observer
        if not observer.episodes:
            return seconds - ended > NEVER_CROSSED_SECONDS
        if not observer.waiting:
            return False
        within = self._scenario.expect.relieved_within_seconds or 0.0
        patience = PATIENCE_SECONDS if self.response is Response.OURS else OBSERVED_PATIENCE_SECONDS
        removals = self._observation.lists.removals
        news = max(ended, removals[-1].seconds if removals else 0.0)
        return seconds - news > max(within * 2, patience)

    def _on_observation(self, observations: SignalObservations, decision: Decision) -> None:
        if self._watching:
            self._observation.observer.sample(observations, observations.time - self._observation.began)
        self._looked.set()
        self._observation.observer.conditions(decision.conditions, time.monotonic() - self._observation.began)

    def _on_pass(self, record: Pass) -> None:
        self._passes.append(PassSeen(record.started_wall - self._began_wall, record))
        self._show(record)

    # ---- judging

    def _result(self, quiet_since: float, ended: float) -> DrillResult:
        scenario, observation, identity = self._scenario, self._observation, self._plan.identity
        seen = replace(
            observation.seen(quiet_since, ended), passes=tuple(self._passes), periods=self._pressures.periods
        )
        checks = judge_real(scenario.expect, seen, self.response)
        failed = any(check.held is False for check in checks)
        return DrillResult(
            name=scenario.name,
            why=scenario.why,
            layout=None if seen.observations is None else seen.observations.layout,
            filesystem=f"{identity.type or 'the filesystem'} of {identity.path}, on a node that is there",
            simulated=False,
            seen=seen,
            checks=checks,
            history=observation.node.responder.history.dump() if failed and self._manager is not None else {},
            response=self.response,
            lists_apart_seconds=observation.lists.apart_seconds,
        )
