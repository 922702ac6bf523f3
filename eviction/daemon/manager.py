"""The loop of the daemon: wait, observe, decide, reclaim, observe again.

* The loop's thread never waits for the runtime. Passes run on a worker, one at a time; the loop keeps observing
  meanwhile, and keeps its heartbeat.
* Nothing stands before a pass that may wait: a client's request comes after it, and a dry run and the periodic question
  who uses what (`refresh`) have workers of their own.
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

from eviction.configuration.effective import Configuration
from eviction.control.reclaim import ReclaimAnswer, ReclaimRefused, respond_to_client
from eviction.control.reclaim_queue import ReclaimQueue, Ticket
from eviction.daemon.announcements import Announcements
from eviction.daemon.function_totals import FunctionTotals
from eviction.daemon.reading_ahead import ReadingAhead
from eviction.daemon.recent_passes import RecentPasses
from eviction.daemon.refresh import Refresh
from eviction.daemon.row_backoff import RETRY_SECONDS, RowBackoffs
from eviction.daemon.shadow import Shadow
from eviction.daemon.worker import TICK_SECONDS, Worker
from eviction.decision.headroom import levels_to_watch, nothing_fills, observation_interval
from eviction.node.configuration_warnings import configuration_warnings
from eviction.node.node import DRAIN_SECONDS, Node
from eviction.reporting.conditions import disk_pressure
from eviction.reporting.log import Log
from eviction.reporting.observations_json import observations_json
from eviction.reporting.pass_record import Pass, Trigger, pass_summary
from eviction.reporting.status import (
    NodeStatus,
    StatusFieldsJson,
    ThresholdStatus,
    parked_json,
    pod_directories_json,
    threshold_statuses,
    threshold_statuses_json,
    why_not_alive,
)
from eviction.telemetry.events import EventSink, LogSink
from eviction.types import Decision
from reclaim.execution.workers import Workers
from signals.types import SignalObservations

STALLED_PATIENCES = 3.0  # a pass that has not gone forward for so many times `removalPatience` is stuck
SHORTEST_STALL_SECONDS = 90.0  # and never before: a stage that reads is left behind after 60 s
READINGS = 2  # the places of images, and lists ahead of a mark: each has a thread even while the other one hangs
STILL_SECONDS = 1.0  # the longest interval near a mark while nothing fills the filesystem


class Manager:
    """Runs one node until `stop`.

    `may_act`: called before each pass; returns why no pass may run now, or None. `on_pass`: called after every pass;
    `on_observation`: after every observation; `on_detected`: when the image records have been updated, unless the disk
    is under pressure. `event`: makes the events on which the loop waits.
    """

    def __init__(
        self,
        node: Node,
        log: Log,
        *,
        may_act: Callable[[], str | None] = lambda: None,
        on_pass: Callable[[Pass], None] = lambda _: None,
        on_observation: Callable[[SignalObservations, Decision], None] = lambda *_: None,
        on_detected: Callable[[], None] = lambda: None,
        events: EventSink | None = None,
        event: Callable[[], threading.Event] = threading.Event,
    ):
        self._node = node
        self._may_act = may_act
        self._on_pass = on_pass
        self._on_observation = on_observation
        self._announcements = Announcements(node, log, events or LogSink(log))
        self._wake = event()
        self._shadow = Shadow()
        self._reading_threads = Workers("what is asked outside of passes", READINGS)
        self._refresh = Refresh(
            node, self._announcements, self._shadow, self._reading_threads, on_detected, lambda: self._worker.begun
        )
        self._reading_ahead = ReadingAhead(node, self._reading_threads)
        self._worker = Worker("passes", node.clock, log, self._refresh.retry, self._wake.set)
        self._refresher = Worker("refreshes", node.clock, log, self._refresh.retry, self._wake.set)
        self._dry_runs = Worker("dry runs", node.clock, log, lambda: None, self._wake.set)
        self._row: tuple[str, ...] = ()  # that of the pass that runs, or ran last
        self._another_waits = False
        node.executor.gives_way = lambda: self._another_waits
        self._urgent = event()  # cuts even the shortest interval, in which the loop does not wait for `_wake`
        self._asked = False
        self._backoffs = RowBackoffs()
        self._next_configuration: Configuration | None = None
        self._last_observations: SignalObservations | None = None
        self._passes = RecentPasses()
        self._functions = FunctionTotals()
        self.heartbeat = node.clock.monotonic()
        self._observation_due = self.heartbeat
        self.requests = ReclaimQueue(self._observe_at_once, self.doing, signals=node.configuration.signals)
        node.removals.on_parked = self._announcements.parked
        node.on_parked_ended = self._announcements.parked_ended
        node.on_program_line = self._announcements.program_line

    def prepare(self) -> None:
        """Starts the workers' threads. Raises NoThread."""
        for worker in (self._worker, self._refresher, self._dry_runs):
            worker.prepare()
        self._reading_threads.prepare(READINGS)

    def doing(self) -> str | None:
        """What is done now, in words, a pass before anything else; None for nothing. Any thread."""
        tasks = (worker.task for worker in (self._worker, self._refresher, self._dry_runs))
        return next((task.what for task in tasks if task is not None), None)

    def stalled_seconds(self) -> float:
        """How long the pass has not gone forward: none of its own calls of the runtime was answered, and no removal
        ended or was parked. 0 without a pass. Any thread."""
        task, now = self._worker.task, self._node.clock.monotonic()
        return 0.0 if task is None else max(now - max(task.started, self._node.executor.progress.at), 0.0)

    def why_not_alive(self) -> str | None:
        """Why the daemon should be started anew, as a sentence; None if it works. Any thread."""
        patience_seconds = self._node.configuration.removal_patience_seconds
        limit_seconds = max(STALLED_PATIENCES * patience_seconds, SHORTEST_STALL_SECONDS)
        return why_not_alive(self.late_seconds(), self.stalled_seconds(), limit_seconds)

    def late_seconds(self) -> float:
        """How long the next observation is overdue; negative before it is due. Any thread."""
        return self._node.clock.monotonic() - self._observation_due

    def observe_now(self) -> None:
        """Asks for an observation before the next one is due. Any thread."""
        self._asked = True
        self._wake.set()

    def _observe_at_once(self) -> None:  # a threshold was crossed, or a client waits
        self._urgent.set()
        self._wake.set()

    def brief(self) -> StatusFieldsJson:
        """What the daemon is doing, for the control socket, without the history. Any thread."""
        now, observations = self._node.clock.monotonic(), self._last_observations
        return {
            "heartbeat_age_seconds": round(now - self.heartbeat, 3),
            "pods_problem": self._node.pods_problem,
            "pod_directories": pod_directories_json(self._node.pods_doubt),
            "xfs_helper": {
                "problem": self._node.preallocation.problem or None,
                "calls": {str(result): count for result, count in self._node.preallocation.counts.items()},
            },
            "warnings": list(configuration_warnings(self._node.configuration)),
            "dry_run": self._node.dry_run,
            "held_off": self._may_act(),
            "doing": self.doing(),
            "stalled_seconds": round(self.stalled_seconds(), 3),
            "parked": [parked_json(removal, now) for removal in self._node.removals.parked.values()],
            "requests_waiting": self.requests.waiting,
            "paused_for_seconds": round(self._backoffs.longest(now), 3),
            "conditions": sorted(map(str, self._announcements.conditions)),
            "disk_pressure": disk_pressure(self._announcements.conditions, self._node.responder.state.config.kubelets),
            "layout": None if observations is None or observations.layout is None else str(observations.layout),
            "observations": [] if observations is None else observations_json(observations),
            "thresholds": []
            if observations is None
            else threshold_statuses_json(self._thresholds(observations), observations),
            "functions": self._functions.all(),
            "passes": list(self._passes.all()),
        }

    def status(self) -> StatusFieldsJson:
        """The same with the last observations and the decisions on them."""
        return {**self.brief(), "history": self._node.responder.history.dump()}

    def node_status(self) -> NodeStatus:
        """The status of the node from the last observations. Any thread."""
        now, observations = self._node.clock.monotonic(), self._last_observations
        return NodeStatus(
            observations,
            self._announcements.conditions,
            () if observations is None else self._thresholds(observations),
            heartbeat_age_seconds=now - self.heartbeat,
            late_seconds=self.late_seconds(),
            now=now,
            stalled_seconds=self.stalled_seconds(),
            removal_in_flight_seconds=self._node.removals.oldest_seconds,
            parked=len(self._node.removals.parked),
            threads_not_started=self._node.threads_not_started,
            doubt=self._node.pods_doubt,
            xfs_releases=dict(self._node.preallocation.counts),
            dry_run=self._node.dry_run,
            kubelets_marks_known=self._node.responder.state.config.kubelets is not None,
        )

    def _thresholds(self, observations: SignalObservations) -> tuple[ThresholdStatus, ...]:
        return threshold_statuses(
            self._node.thresholds(observations.layout), observations, self._node.responder.fill_rates
        )

    def reconfigure(self, configuration: Configuration) -> tuple[str, ...]:
        """Applies another configuration before the next observation, except for the fields that need a restart; returns
        those that differ. Any thread."""
        self._next_configuration = configuration
        self._wake.set()
        return self._node.needs_restart(configuration)

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
        self._worker.leave()
        self._refresher.leave_at_once()
        self._dry_runs.leave_at_once()
        self._reading_threads.close()

    def _turn(self) -> None:
        """One turn of the loop: observe, start what follows from it, and wait for the next observation."""
        asked, self._asked = self._asked, False
        self._wake.clear()
        self._apply_configuration()
        observations, decision = self._observe()
        now = self._node.clock.monotonic()
        if decision.acted_on is not None and not decision.row:
            self._announcements.row_is_empty(decision.acted_on, now)
        due = [each for each in self._alternatives(observations, decision) if self._is_due(each.row, now)]
        self._another_waits = self._worker.task is not None and any(each.row != self._row for each in due)
        decision = next(iter(due), decision)
        if due and self._worker.task is None:
            self._respond(observations, decision, Trigger.WATCH if asked else Trigger.INTERVAL)
        for worker, dry_run in ((self._worker, False), (self._dry_runs, True)):
            if worker.task is None and (ticket := self.requests.take(dry_run=dry_run)) is not None:
                self._serve(worker, ticket, observations, decision)
        if self._worker.task is None and self._reads_ahead(observations, now):
            self._worker.start("listing what the runtime has, as a mark is near", self._reading_ahead.read)
        elif self._worker.task is None and self._refresher.task is None and now >= self._refresh.due:
            self._refresher.start("asking the runtime where its images are", self._refresh.run)
        seconds = self._next_observation_in(observations, decision)
        self._observation_due = self._node.clock.monotonic() + seconds
        self._wait(seconds)

    def _apply_configuration(self) -> None:
        """Between two passes, so that none runs with half of the old configuration."""
        configuration = self._next_configuration
        if configuration is None or self._worker.task is not None:
            return
        self._next_configuration = None
        self._announcements.reloaded(self._node.reconfigure(configuration))
        if not self._node.dry_run:
            self._shadow.forget()

    # ---- observing

    def _observe(self) -> tuple[SignalObservations, Decision]:
        observations, decision = self._node.responder.synchronize()
        self.heartbeat = self._node.clock.monotonic()
        self._last_observations = observations
        if not decision.thresholds_met:
            self._backoffs.pressure_is_over()
        self._announcements.observed(observations, decision, self._worker.task, self.heartbeat)
        self._on_observation(observations, decision)
        return observations, decision

    def _next_observation_in(self, observations: SignalObservations, decision: Decision) -> float:
        policy = self._node.poll_policy()
        floor = policy.floor_seconds
        thresholds = self._node.responder.state.config.marks_to_watch(observations.layout)
        fill_rates = self._node.responder.fill_rates
        interval = observation_interval(thresholds, observations, fill_rates, policy)
        now = self._node.clock.monotonic()
        if self._worker.task is not None:
            return min(interval, TICK_SECONDS)
        longest = policy.ceiling_seconds
        if decision.acted_on is not None:  # under pressure, and its row is empty or paused: the others are watched on
            pause = self._backoffs.of(decision.row).until - now if decision.row else RETRY_SECONDS
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
        if self._refresher.task is None:
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

    def _respond(self, observations: SignalObservations, decision: Decision, trigger: Trigger) -> None:
        why_not = self._may_act()
        if why_not is not None:
            self._announcements.held_off(why_not)
            self._backoffs.of(decision.row).until = self._node.clock.monotonic() + RETRY_SECONDS
            return
        if decision.acted_on is not None:
            self._announcements.reclaiming(decision.acted_on)

        self._reading_ahead.pass_begins()

        def respond() -> None:
            self._backoffs.of(decision.row).until = self._node.clock.monotonic() + RETRY_SECONDS  # in case it raises
            record = self._node.responder.reclaim(observations, decision, trigger)
            self._backoffs.of(decision.row).record(record, self._node.clock.monotonic())
            self._keep_and_announce(record)
            self._node.disk_survey.explain_later(record, self._keep_attributed)
            self._on_pass(record)

        self._row = decision.row
        self._worker.start(f"relieving {decision.acted_on.signal if decision.acted_on else ''}", respond)

    def _serve(self, worker: Worker, ticket: Ticket, observations: SignalObservations, decision: Decision) -> None:
        """A client's request, on the observations of this turn."""

        def serve() -> None:
            try:
                ticket.finish(self._requested(ticket, observations, decision))
            except ReclaimRefused as refusal:
                ticket.refuse(str(refusal))
            finally:
                ticket.refuse("its pass ended in a defect")

        if not ticket.options.dry_run:
            self._row = ()
        worker.start("relieving on request", serve)

    def _requested(self, ticket: Ticket, observations: SignalObservations, decision: Decision) -> ReclaimAnswer:
        answer = respond_to_client(ticket.options, self._node, observations, decision)
        if answer.record is not None and not ticket.options.dry_run:
            self._keep_and_announce(answer.record)
            self._on_pass(answer.record)
        return answer

    def _reads_ahead(self, observations: SignalObservations, now: float) -> bool:
        """Whether what the runtime has is listed now, for a pass that may begin in a moment."""
        has_runtime = self._node.configuration.has_runtime
        return has_runtime and self._reading_ahead.due(observations, now) and self._may_act() is None

    def _is_due(self, row: tuple[str, ...], now: float) -> bool:
        return bool(row) and now >= self._backoffs.of(row).until

    def _alternatives(self, observations: SignalObservations, decision: Decision) -> Iterator[Decision]:
        """The decision, and those for the other thresholds that are met: the first one is acted on whose row is not
        empty and not paused."""
        yield decision
        config = self._node.responder.state.config
        for threshold in decision.others:
            yield replace(decision, acted_on=threshold, row=config.row(threshold.signal, observations))

    def _keep_and_announce(self, record: Pass) -> None:
        summary = pass_summary(record)
        self._passes.keep(summary)
        self._functions.add(record)
        if self._node.dry_run:
            self._shadow.planned(record, self._node.clock.monotonic())
        self._announcements.passed(record, summary)
        self._announcements.pods_compared(self._node.pods_doubt)

    def _keep_attributed(self, record: Pass) -> None:
        """Replaces the record of a pass by the one with attributions; on the thread of the disk survey."""
        self._passes.keep(pass_summary(record))
        self._announcements.attributed(record)
