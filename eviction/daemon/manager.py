"""The loop of the daemon: wait, observe, decide, reclaim, observe again.

* The loop's thread never waits for the runtime. Passes run in lanes, one for each filesystem (`lanes`); the loop keeps
  observing meanwhile, and keeps its heartbeat.
* Nothing stands before a pass that may wait: a client's request comes after it, and a dry run and the periodic question
  who uses what (`refresh`) have workers of their own.
* A pass begins when its threshold is met; where removals have lately taken longer than there is time, before that
  (`decision.headroom.begins_by_lead`).
* The next observation is due when a filesystem could have reached its mark (`signals.interval`); the threshold notifier
  or inotify may ask for an earlier one.
* After a pass that freed nothing the next one of the same row waits longer, up to a minute, or until the next object is
  old enough (`row_backoff`); other rows are served meanwhile. A runtime that does not answer is asked every second.
* After SIGTERM nothing new is started; a removal that was sent is waited for, up to 30 s.

No exception in a pass or an observation ends the loop: it is logged, at most once a minute, and a second later the loop
goes on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

from eviction.configuration.effective import Configuration, needing_restart, poll_policy
from eviction.control.answer import RequestRefused
from eviction.control.reclaim import respond_to_client
from eviction.control.reclaim_queue import ReclaimQueue, Ticket
from eviction.daemon.lanes import Lane, Lanes
from eviction.daemon.refresh import Refresh
from eviction.daemon.row_backoff import RETRY_SECONDS
from eviction.decision.headroom import begins_by_lead, levels_to_watch, nothing_fills, observation_interval
from eviction.node.node import DRAIN_SECONDS, Node
from eviction.record import Trigger
from eviction.reporting.conditions import disk_pressure
from eviction.reporting.configuration_warnings import configuration_warnings
from eviction.reporting.log import Log
from eviction.reporting.observations_json import observations_json
from eviction.reporting.status import (
    NodeStatus,
    Status,
    parked_removal,
    pod_directories,
    threshold_statuses,
    why_not_alive,
)
from eviction.telemetry.announcements import Announcements
from eviction.telemetry.done import Done
from eviction.telemetry.events import EventSink, LogSink
from eviction.types import Decision, EvictionError, Threshold
from reclaim.execution.workers import Workers
from signals.types import KUBELET_ROLES, SignalObservations

STALLED_PATIENCES = 3.0  # a pass that has not gone forward for so many times `removalPatience` is stuck
BESIDE_FILESYSTEMS = 4  # a request without a filesystem, a dry run, a refresh, and its question for places
SHORTEST_STALL_SECONDS = 90.0  # and never before: a stage that reads is left behind after 60 s
TICK_SECONDS = 0.25  # the longest interval while a pass runs, or a threshold is in its grace period
STILL_SECONDS = 1.0  # the longest interval near a mark while nothing fills the filesystem


class Manager:
    """Runs one node until `stop`.

    `may_act`: called before each pass; returns why no pass may run now, or None. What happens the node's listeners
    hear. `event`: makes the events on which the loop waits.
    """

    def __init__(
        self,
        node: Node,
        log: Log,
        *,
        may_act: Callable[[], str | None] = lambda: None,
        events: EventSink | None = None,
        event: Callable[[], threading.Event] = threading.Event,
    ):
        self._node = node
        self._may_act = may_act
        self._wake = event()
        self._urgent = event()  # cuts even the shortest interval, in which the loop does not wait for `_wake`
        self._announcements = Announcements(node, log, events or LogSink(log))
        self._done = Done()
        for listener in (self._announcements, self._done):
            node.listeners.add(listener)
        self._threads = Workers("lanes", len(KUBELET_ROLES) + len(node.configuration.filesystems) + BESIDE_FILESYSTEMS)

        def lane() -> Lane:
            return Lane(self._threads, node.clock, log, self._wake.set)

        self._lanes, self._refresher, self._dry_runs = Lanes(lane), lane(), lane()
        self._refresh = Refresh(node, self._announcements, self._threads, lambda: sum(one.begun for one in self._lanes))
        self._asked = False
        self._next_configuration: Configuration | None = None
        self._last_observations: SignalObservations | None = None
        self.heartbeat = node.clock.monotonic()
        self._observation_due = self.heartbeat
        self.requests = ReclaimQueue(self._observe_at_once, self.doing, signals=node.configuration.signals)

    def prepare(self) -> None:
        """Starts the threads of the lanes. Raises NoThread."""
        self._threads.prepare(self._threads.most)

    def doing(self) -> str | None:
        """What is done now, in words, a pass before anything else; None for nothing. Any thread."""
        tasks = (*self._lanes.tasks, self._refresher.task, self._dry_runs.task)
        return next((task.what for task in tasks if task is not None), None)

    def why_not_alive(self) -> str | None:
        """Why the daemon should be started anew, as a sentence; None if it works. Any thread."""
        patience_seconds = self._node.configuration.removal_patience_seconds
        limit_seconds = max(STALLED_PATIENCES * patience_seconds, SHORTEST_STALL_SECONDS)
        now = self._node.clock.monotonic()
        return why_not_alive(now - self._observation_due, self._lanes.stalled_seconds(now), limit_seconds)

    def observe_now(self) -> None:
        """Asks for an observation before the next one is due. Any thread."""
        self._asked = True
        self._wake.set()

    def _observe_at_once(self) -> None:  # a threshold was crossed, or a client waits
        self._urgent.set()
        self._wake.set()

    def status(self) -> NodeStatus:
        """What the daemon sees and does, from the last observations. Any thread."""
        node, responder, seen = self._node, self._node.responder, self._last_observations
        now, conditions = node.clock.monotonic(), self._announcements.conditions
        thresholds = () if seen is None else node.thresholds(seen.layout)
        document = Status(
            heartbeat_age_seconds=round(now - self.heartbeat, 3),
            pods_problem=node.pods_problem,
            pod_directories=pod_directories(node.pods_doubt),
            warnings=list(configuration_warnings(node.configuration)),
            dry_run=node.dry_run,
            held_off=self._may_act(),
            doing=self.doing(),
            stalled_seconds=round(self._lanes.stalled_seconds(now), 3),
            parked=[parked_removal(removal, now) for removal in node.removals.parked.values()],
            requests_waiting=self.requests.waiting,
            paused_for_seconds=round(self._lanes.paused_seconds(now), 3),
            lead_seconds=round(responder.lead_seconds, 3),
            conditions=conditions,
            disk_pressure=disk_pressure(conditions, responder.state.config.kubelets),
            layout=None if seen is None else seen.layout,
            observations=[] if seen is None else observations_json(seen),
            thresholds=[] if seen is None else threshold_statuses(thresholds, seen, responder.fill_rates),
            functions=self._done.functions(),
            passes=self._done.passes(),
        )
        return NodeStatus(document, seen, now, node.removals.oldest_seconds, node.threads_not_started)

    def reconfigure(self, configuration: Configuration) -> tuple[str, ...]:
        """Applies another configuration before the next observation, except for the fields that need a restart; returns
        those that differ. Any thread."""
        self._next_configuration = configuration
        self._wake.set()
        return needing_restart(self._node.configuration, configuration)

    def stop(self) -> None:
        """Ends the loop: nothing new is started. Any thread."""
        self._node.stopping.set()
        self._observe_at_once()

    def run(self) -> None:
        """Observes and reclaims until `stop`; then waits for removals that were sent, at most 30 s."""
        while not self._node.stopping.is_set():
            try:
                self._turn()
            except Exception as error:  # noqa: BLE001 # a defect in one turn must not end the daemon
                self._announcements.defect(error)
                self._node.stopping.wait(RETRY_SECONDS)
        self.requests.close()
        if not self._node.removals.wait(DRAIN_SECONDS):
            self._announcements.left_unanswered()
        for lane in self._lanes:
            lane.leave()
        self._threads.close()  # what else is being done removes nothing, and may go on until the process ends

    def _turn(self) -> None:
        """One turn of the loop: observe, start what follows from it, and wait for the next observation."""
        asked, self._asked = self._asked, False
        self._wake.clear()
        self._apply_configuration()
        observations, decision = self._observe()
        now = self._node.clock.monotonic()
        if decision.acted_on is not None and not decision.row:
            self._announcements.row_is_empty(decision.acted_on, now)
        trigger = Trigger.WATCH if asked else Trigger.INTERVAL
        for each in self._alternatives(observations, decision):
            self._begin_where_due(each, observations, trigger, now)
        for each in self._by_lead(observations, decision):
            self._begin_where_due(each, observations, Trigger.LEAD, now)
        self._serve_requests(observations, decision)
        if not self._lanes.tasks and self._refresher.free and now >= self._refresh.due:
            self._refresh.due = now + RETRY_SECONDS  # if it cannot begin, or raises
            self._refresher.start("asking the runtime where its images are", self._refresh.run)
        seconds = self._next_observation_in(observations, decision)
        self._observation_due = self._node.clock.monotonic() + seconds
        self._wait(seconds)

    def _apply_configuration(self) -> None:
        """Between two passes, so that none runs with half of the old configuration."""
        configuration = self._next_configuration
        if configuration is None or self._lanes.tasks:
            return
        self._next_configuration = None
        self._announcements.reloaded(self._node.reconfigure(configuration))

    # ---- observing

    def _observe(self) -> tuple[SignalObservations, Decision]:
        observations, decision = self._node.responder.synchronize()
        self.heartbeat = self._node.clock.monotonic()
        self._last_observations = observations
        self._lanes.observed(decision.thresholds_met, observations)
        self._node.listeners.observed(observations, decision)
        for task in self._lanes.tasks:
            self._announcements.takes_long(task.what, self.heartbeat - task.started)
        return observations, decision

    def _next_observation_in(self, observations: SignalObservations, decision: Decision) -> float:
        policy = poll_policy(self._node.configuration)
        floor = policy.floor_seconds
        thresholds = self._node.responder.state.config.marks_to_watch(observations.layout)
        fill_rates = self._node.responder.fill_rates
        interval = observation_interval(thresholds, observations, fill_rates, policy)
        now = self._node.clock.monotonic()
        if self._lanes.tasks:
            return min(interval, TICK_SECONDS)
        longest = policy.ceiling_seconds
        if decision.acted_on is not None:  # under pressure, and its row is empty or paused: the others are watched on
            lane = self._lanes.of(decision.acted_on.signal, observations)
            pause = lane.backoff(decision.row).until - now if decision.row else RETRY_SECONDS
            if pause <= 0:
                return floor
            longest = min(pause, RETRY_SECONDS)
        seldom = STILL_SECONDS if nothing_fills(fill_rates, policy) else TICK_SECONDS
        if interval < seldom:  # the probes poll meanwhile
            for path, levels in levels_to_watch(thresholds, observations, fill_rates, policy).items():
                self._node.probes.watch(path, levels, self._observe_at_once)
            interval = seldom
        in_grace = decision.acted_on is None and decision.thresholds_met  # or the layout is not known yet
        if in_grace:
            interval = min(interval, TICK_SECONDS)
        if self._refresher.free:
            longest = min(longest, max(self._refresh.due - now, floor))
        return min(interval, longest)

    def _wait(self, seconds: float) -> None:
        """Waits for the next observation. `observe_now` ends the wait, but not before the floor; `_observe_at_once` at
        any time."""
        floor = self._node.configuration.poll_floor_seconds
        if not self._urgent.wait(min(floor, seconds)) and seconds > floor:
            self._wake.wait(seconds - floor)
        self._urgent.clear()

    # ---- reclaiming

    def _alternatives(self, observations: SignalObservations, decision: Decision) -> Iterator[Decision]:
        """The decision, and those for the other thresholds that are met: in each lane the first one is acted on whose
        row is not empty and not paused."""
        yield decision
        yield from (self._acting_on(threshold, observations, decision) for threshold in decision.others)

    def _by_lead(self, observations: SignalObservations, decision: Decision) -> Iterator[Decision]:
        """Decisions for thresholds that are not met, and whose passes begin before that."""
        responder = self._node.responder
        config = responder.state.config
        soon = begins_by_lead(
            config.in_layout(observations.layout),
            observations,
            responder.fill_rates,
            config.kubelets_in_layout(observations.layout),
            responder.lead_seconds,
        )
        for threshold in soon:
            lane = self._lanes.of(threshold.signal, observations)
            if lane.free and not lane.led:
                lane.led = True
                yield self._acting_on(threshold, observations, decision)

    def _acting_on(self, threshold: Threshold, observations: SignalObservations, decision: Decision) -> Decision:
        row = self._node.responder.state.config.row(threshold.signal, observations)
        return replace(decision, acted_on=threshold, row=row)

    def _begin_where_due(
        self, decision: Decision, observations: SignalObservations, trigger: Trigger, now: float
    ) -> None:
        """Begins the pass in its lane, unless nothing is to be acted on, its row rests, or the lane is at work."""
        acted_on = decision.acted_on
        if acted_on is None:
            return
        lane, row = self._lanes.of(acted_on.signal, observations), decision.row
        backoff, clock = lane.backoff(row), self._node.clock
        if not row or now < backoff.until:
            return
        if not lane.free:
            lane.another_waits = lane.another_waits or row != lane.row
            return
        backoff.until = clock.monotonic() + RETRY_SECONDS  # if it is held off, cannot begin, or raises
        why_not = self._may_act()
        if why_not is not None:
            self._announcements.held_off(why_not)
            return
        self._announcements.reclaiming(acted_on)
        running = self._node.responder.begin(observations, decision, trigger, gives_way=lambda: lane.another_waits)

        def relieve() -> None:
            record = running.run()
            if trigger is not Trigger.LEAD:  # which has nothing to reach before its mark is met
                backoff.record(record, clock.monotonic())
            else:
                backoff.until = float("-inf")
            self._node.listeners.passed(record)
            self._node.disk_survey.explain_later(record, self._node.listeners.attributed)

        lane.start(f"relieving {acted_on.signal}", relieve, row, running)

    def _serve_requests(self, observations: SignalObservations, decision: Decision) -> None:
        """A request that removes waits for the lane of its signal, and goes before nothing there; a dry run is beside
        all lanes."""

        def lane_of(ticket: Ticket) -> Lane:
            acted_on = None if decision.acted_on is None else decision.acted_on.signal
            return self._lanes.of(ticket.options.signal or acted_on, observations)

        if self._dry_runs.free and (ticket := self.requests.take(lambda each: each.options.dry_run)) is not None:
            self._serve(self._dry_runs, ticket, observations, decision)
        ticket = self.requests.take(lambda each: not each.options.dry_run and lane_of(each).free)
        if ticket is not None:
            self._serve(lane_of(ticket), ticket, observations, decision)

    def _serve(self, lane: Lane, ticket: Ticket, observations: SignalObservations, decision: Decision) -> None:
        """A client's request, on the observations of this turn."""

        def serve() -> None:
            try:
                answer = respond_to_client(ticket.options, self._node, observations, decision)
                if answer.record is not None and not ticket.options.dry_run:
                    self._node.listeners.passed(answer.record)
                ticket.answer.set_result(answer)
            except EvictionError as refusal:
                ticket.answer.set_exception(refusal)
            except BaseException:
                ticket.answer.set_exception(RequestRefused("its pass ended in a defect"))
                raise

        if not lane.start("relieving on request", serve):
            ticket.answer.set_exception(RequestRefused("no thread is free for its pass"))
