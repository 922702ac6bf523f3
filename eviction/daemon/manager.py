"""The only loop: wait, look, decide, act, look again.

* Looks are taken on this loop's thread and never wait for the runtime. Whatever asks the runtime runs on one worker
  thread, one thing at a time; while it runs the loop keeps looking and keeps its heartbeat.
* The next look is due when a filesystem could have reached its mark (`signals.interval`); a watcher may ask for an
  earlier one.
* A pass that freed nothing makes the next one of the same row wait longer, up to a minute, or until the next object is
  old enough; other rows are served meanwhile. A runtime that is away is tried again every second.
* After SIGTERM nothing new is started; a removal that was sent is waited for, up to 30 s.

Nothing in a pass or in a look ends the loop: a defect is said, at most once a minute, and a second later it goes on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from eviction.configuration.effective import Configuration
from eviction.control.reclaim import HookAnswer, HookRefused, respond_for_another
from eviction.control.reclaim_queue import HookRequests, Ticket
from eviction.daemon.recent_passes import LastPasses
from eviction.daemon.row_backoff import RETRY_SECONDS, Pause
from eviction.decision.headroom import levels_to_watch, nothing_fills, observation_interval
from eviction.decision.ladder import later_than_kubelet
from eviction.node.node import Node
from eviction.reporting.disk_survey import explained
from eviction.reporting.explain import below_sentence, later_sentence, reclaiming_sentence
from eviction.reporting.log import Log
from eviction.reporting.observations_json import observations_json
from eviction.reporting.pass_record import Pass, PassResult, Trigger, pass_summary
from eviction.reporting.status import Mark, Standing, marks_in_force, marks_json
from eviction.reporting.throttled_log import News
from eviction.telemetry.events import EventSink, LogEvents
from eviction.types import Decision, NodeCondition
from reclaim.types import EventReason, GCEvent, Result, RuntimeUnavailable
from signals.quantity import format_duration
from signals.types import Signal, SignalObservations

REFRESH_SECONDS = 60.0  # where the images are, and who uses them, for the records
DRAIN_SECONDS = 30.0
LEAVE_SECONDS = 1.5
TICK_SECONDS = 0.25
STILL_SECONDS = 1.0
SLOW_SECONDS = 10.0


@dataclass(slots=True)
class _Work:
    """What the worker thread is doing."""

    what: str
    started: float
    done: threading.Event


class Manager:
    """Runs one node until it is told to stop.

    `look_now` and `stop` may be called from any thread. `may_act`: asked before each pass; a text says why not.
    `on_pass` is called with every pass that did or tried anything; `on_detected` when the records of images have been
    brought up to date, unless the disk is under pressure. `event` makes what is waited on until the next look.
    """

    def __init__(
        self,
        node: Node,
        log: Log,
        *,
        may_act: Callable[[], str | None] = lambda: None,
        on_pass: Callable[[Pass], None] = lambda _: None,
        on_look: Callable[[SignalObservations, Decision], None] = lambda *_: None,
        on_detected: Callable[[], None] = lambda: None,
        events: EventSink | None = None,
        event: Callable[[], threading.Event] = threading.Event,
    ):
        self._node = node
        self._log = log
        self._may_act = may_act
        self._on_pass = on_pass
        self._on_look = on_look
        self._on_detected = on_detected
        self._events = events or LogEvents(log)
        self._wake = event()
        self._urgent = event()  # waited for where an ordinary wake may not be heard
        self._asked = False
        self._conditions: frozenset[NodeCondition] = frozenset()
        self._announced: set[Signal] = set()  # whose event was sent, until the pressure is over
        self._pauses: dict[tuple[str, ...], Pause] = {}
        self._refresh_due = float("-inf")
        self._work: _Work | None = None
        self._next_configuration: Configuration | None = None
        self._last_look: SignalObservations | None = None
        self._passes = LastPasses()
        self._news = News(log, node.clock)
        self._late_marks_told = self._explained = False
        self.heartbeat = node.clock.monotonic()
        self._look_due = self.heartbeat
        self.requests = HookRequests(self._look_at_once, self.doing)

    def doing(self) -> str | None:
        """What the worker does now, in words; None for nothing. Any thread."""
        work = self._work
        return None if work is None else work.what

    def look_now(self) -> None:
        """Asks for an earlier look."""
        self._asked = True
        self._wake.set()

    def _look_at_once(self) -> None:  # a mark was crossed, or somebody waits
        self._urgent.set()
        self._wake.set()

    def brief(self) -> dict[str, Any]:
        """What the daemon is doing, for the control socket; without the past. Any thread."""
        now, look = self._node.clock.monotonic(), self._last_look
        return {
            "heartbeat_age_seconds": round(now - self.heartbeat, 3),
            "pods_problem": self._node.pods_problem,
            "doing": self.doing(),
            "requests_waiting": self.requests.waiting,
            "paused_for_seconds": round(max([0.0, *(pause.until - now for pause in list(self._pauses.values()))]), 3),
            "conditions": sorted(str(condition) for condition in self._conditions),
            "layout": None if look is None or look.layout is None else str(look.layout),
            "observations": [] if look is None else observations_json(look),
            "thresholds": [] if look is None else marks_json(self._marks(look), look),
            "passes": list(self._passes.all()),
        }

    def status(self) -> dict[str, Any]:
        """The same with the last looks and what was decided on them."""
        return {**self.brief(), "history": self._node.responder.history.dump()}

    def standing(self) -> Standing:
        """Where the node stands now. Any thread; costs no look."""
        now, look = self._node.clock.monotonic(), self._last_look
        marks = () if look is None else self._marks(look)
        return Standing(look, self._conditions, marks, now - self.heartbeat, now - self._look_due, now)

    def _marks(self, look: SignalObservations) -> tuple[Mark, ...]:
        return marks_in_force(self._node.thresholds(look.layout), look, self._node.responder.fill_rates)

    def reconfigure(self, configuration: Configuration) -> tuple[str, ...]:
        """Takes another configuration into force before the next look; the fields that need a restart for it stay, and
        are returned. Any thread."""
        self._next_configuration = configuration
        self._wake.set()
        return self._node.needs_restart(configuration)

    def stop(self) -> None:
        """Ends the loop: nothing new is started."""
        self._node.stopping.set()
        self._look_at_once()

    def run(self) -> None:
        """Looks and acts until `stop`. Returns when what was in flight has finished, or after 30 s."""
        while not self._node.stopping.is_set():
            try:
                self._turn()
            except Exception as error:  # noqa: BLE001 # a defect in one look must not end the daemon
                self._news.say(f"looking at the node: {type(error).__name__}: {error}", key="defect in a look")
                self._node.stopping.wait(RETRY_SECONDS)
        self.requests.close()
        self._drain()

    def _turn(self) -> None:
        """One turn of the loop: a look, what follows from it, and the wait for the next one."""
        asked, self._asked = self._asked, False
        self._wake.clear()
        self._reconfigure()
        observations, decision = self._look()
        now = self._node.clock.monotonic()
        decision = self._serve_another(decision, now)
        if self._work is None and (ticket := self.requests.take()) is not None:
            self._serve(ticket, observations, decision)
        elif self._work is None and decision.row and now >= self._pause_of(decision).until:
            self._respond(observations, decision, Trigger.WATCH if asked else Trigger.INTERVAL)
        elif self._work is None and now >= self._refresh_due:
            self._start("asking the runtime where its images are", self._refresh)
        seconds = self._next_look_in(observations, decision)
        self._look_due = self._node.clock.monotonic() + seconds
        self._wait(seconds)

    def _reconfigure(self) -> None:
        """On the loop's own thread and between two passes, so that nothing is half old and half new."""
        configuration = self._next_configuration
        if configuration is None or self._work is not None:
            return
        self._next_configuration = None
        fixed = self._node.reconfigure(configuration)
        self._late_marks_told = False
        if fixed:
            self._log.warning(f"reloaded, but {' and '.join(fixed)} need a restart and stay as they were")
        else:
            self._log.info("the configuration was reloaded")

    # ---- looking

    def _look(self) -> tuple[SignalObservations, Decision]:
        observations, decision = self._node.responder.look()
        self.heartbeat = self._node.clock.monotonic()
        self._last_look = observations
        self._report(observations, decision)
        self._on_look(observations, decision)
        return observations, decision

    def _next_look_in(self, observations: SignalObservations, decision: Decision) -> float:
        policy = self._node.poll_policy()
        floor = policy.floor_seconds
        thresholds, fill_rates = self._node.thresholds(observations.layout), self._node.responder.fill_rates
        interval = observation_interval(thresholds, observations, fill_rates, policy)
        now = self._node.clock.monotonic()
        if self._work is not None:
            return min(interval, TICK_SECONDS)
        if decision.acted_on is not None and not decision.row:
            return RETRY_SECONDS  # nothing here relieves it; looking more often would change nothing
        if decision.acted_on is not None:  # under pressure, and nothing to be done before the pause is over
            pause = self._pause_of(decision).until - now
            return min(pause, RETRY_SECONDS) if pause > 0 else floor
        seldom = STILL_SECONDS if nothing_fills(fill_rates, policy) else TICK_SECONDS
        if interval < seldom:  # the probes poll meanwhile
            for path, levels in levels_to_watch(thresholds, observations, fill_rates, policy).items():
                self._node.probes.watch(path, levels, self._look_at_once)
            interval = seldom
        if decision.thresholds_met:  # a grace period is running, or the layout is not known yet
            interval = min(interval, TICK_SECONDS)
        return min(interval, max(self._refresh_due - now, floor))

    def _wait(self, seconds: float) -> None:
        """Waits for the next look; woken earlier by a watcher, but by that never more often than the floor."""
        floor = self._node.configuration.poll_floor_seconds
        if not self._urgent.wait(min(floor, seconds)) and seconds > floor:
            self._wake.wait(seconds - floor)
        self._urgent.clear()

    def _report(self, observations: SignalObservations, decision: Decision) -> None:
        for unavailable in observations.unavailable:
            if unavailable.reason == self._node.summary.imagefs_problem:
                continue  # that the runtime cannot be asked is said where it is asked
            self._news.say(f"{unavailable.role}: {unavailable.reason}", signal=str(unavailable.role))
        self._warn_of_late_marks(observations)
        work = self._work
        if work is not None and (took := self.heartbeat - work.started) > SLOW_SECONDS:
            self._news.say(f"{work.what}: the runtime has not answered for {format_duration(took)}", key="slow")
        if decision.conditions == self._conditions:
            return
        self._conditions = decision.conditions
        if decision.conditions:
            met = ", ".join(below_sentence(threshold, observations) for threshold in decision.thresholds_met)
            self._log.warning(f"DiskPressure: {met}", condition="DiskPressure", status=True)
        else:
            self._announced.clear()
            self._explained = False
            self._log.info("no DiskPressure any more", condition="DiskPressure", status=False)

    def _warn_of_late_marks(self, observations: SignalObservations) -> None:
        """Said once for each configuration: what acts later than the kubelet's own thresholds."""
        kubelet = self._node.configuration.kubelet
        if kubelet is None or observations.layout is None or self._late_marks_told:
            return
        self._late_marks_told = True
        ours = self._node.thresholds(observations.layout)
        for later in later_than_kubelet(ours, kubelet.thresholds.thresholds, observations.signals):
            self._log.warning(later_sentence(later))

    # ---- acting

    def _respond(self, observations: SignalObservations, decision: Decision, trigger: Trigger) -> None:
        held = self._may_act()
        if held is not None:
            self._news.say(f"held off: {held}", key="held off", reason="held_off")
            self._pause_of(decision).until = self._node.clock.monotonic() + RETRY_SECONDS
            return

        if decision.acted_on is not None and decision.acted_on.signal not in self._announced:
            self._announced.add(decision.acted_on.signal)
            self._events.warn(GCEvent(EventReason.EVICTION_THRESHOLD_MET, reclaiming_sentence(decision.acted_on)))

        def respond() -> None:
            self._pause_of(decision).until = self._node.clock.monotonic() + RETRY_SECONDS  # should it end in a defect
            record = self._node.responder.act(observations, decision, trigger)
            self._pause_of(decision).after(record, self._node.clock.monotonic())
            summary = pass_summary(record)
            self._passes.keep(summary)
            self._report_pass(record, summary)
            self._node.whereabouts.follow(record, self._report_attribution)
            self._on_pass(record)

        self._start(f"relieving {decision.acted_on.signal if decision.acted_on else ''}", respond)

    def _serve(self, ticket: Ticket, observations: SignalObservations, decision: Decision) -> None:
        """What the hook asked for, with the look that was taken for it; on the worker, like every pass."""

        def serve() -> None:
            try:
                ticket.finish(self._requested(ticket, observations, decision))
            except HookRefused as refusal:
                ticket.refuse(str(refusal))
            finally:
                ticket.refuse("its pass ended in a defect")

        self._start("relieving on request", serve)

    def _requested(self, ticket: Ticket, observations: SignalObservations, decision: Decision) -> HookAnswer:
        answer = respond_for_another(ticket.options, self._node, observations, decision)
        if answer.record is not None and not ticket.options.dry_run:
            summary = pass_summary(answer.record)
            self._passes.keep(summary)
            self._report_pass(answer.record, summary)
            self._on_pass(answer.record)
        return answer

    def _serve_another(self, decision: Decision, now: float) -> Decision:
        """The same decision, or for another threshold while the row of the first is paused."""
        layout = decision.layout
        if layout is None or now >= self._pause_of(decision).until:
            return decision
        config = self._node.responder.state.config
        for threshold in decision.others:
            other = replace(decision, acted_on=threshold, row=config.row(threshold.signal, layout))
            if other.row and now >= self._pause_of(other).until:
                return other
        return decision

    def _pause_of(self, decision: Decision) -> Pause:
        return self._pauses.setdefault(decision.row, Pause())

    def _report_pass(self, record: Pass, summary: dict[str, Any]) -> None:
        fields = {"pass": record.id, "result": str(record.result), "record": summary}
        acted_on = record.decision.acted_on
        head = f"{acted_on.signal if acted_on else 'request'}: {record.reason}"
        head = f"{head}; took {format_duration(record.timings.total_seconds)}"
        if record.result is PassResult.SATISFIED:
            self._log.info(head, **fields)
        elif any(outcome.result is Result.REMOVED for outcome in record.removals):
            self._log.warning(head, **fields)
        else:
            self._news.say(head, key=f"{record.result} {acted_on.signal if acted_on else ''}", **fields)

    def _report_attribution(self, record: Pass) -> None:
        """Why it was not enough: where the bytes are. Comes some seconds after the pass; told once until it is over."""
        self._passes.keep(pass_summary(record))
        if not self._explained:
            self._explained = True
            for why, fields in explained(record):
                self._log.warning(why, **fields)

    def _refresh(self) -> None:
        """Where the images are, and who uses which: first seen and last used are kept up by this.

        Under pressure only where they are: the second takes a question for each container on some runtimes, minutes
        for thousands of them, and the pass that waits for this thread asks it itself where it needs to.
        """
        problem, pressed = self._node.locate(), bool(self._conditions)
        if problem is None and not pressed:
            try:
                self._node.collector.detect_images()
            except RuntimeUnavailable as error:
                problem = str(error)
        if self._node.stopping.is_set():
            return
        if problem is None and not self._conditions:
            self._on_detected()
        if (pods_problem := self._node.pods_problem) is not None:
            self._news.say(pods_problem, key="pods")
        if problem is not None:
            self._news.say(f"the container runtime cannot be asked: {problem}", key="runtime")
        elif self._news.over("runtime"):
            self._log.info("the container runtime answers again")
        wait = REFRESH_SECONDS if problem is None and not pressed else RETRY_SECONDS
        self._refresh_due = self._node.clock.monotonic() + wait

    def _start(self, what: str, do: Callable[[], None]) -> None:
        work = _Work(what, self._node.clock.monotonic(), threading.Event())
        self._work = work

        def run() -> None:
            try:
                do()
            except Exception as error:  # noqa: BLE001 # a defect in one pass must not end the daemon
                self._log.error(f"{what}: {type(error).__name__}: {error}")
                self._refresh_due = self._node.clock.monotonic() + RETRY_SECONDS
            finally:
                self._work = None
                work.done.set()
                self._wake.set()

        threading.Thread(target=run, name="runtime", daemon=True).start()

    def _drain(self) -> None:
        clock, began = self._node.clock, self._node.clock.monotonic()
        while (work := self._work) is not None:
            limit = DRAIN_SECONDS if self._node.executor.in_flight else LEAVE_SECONDS
            if clock.monotonic() - began >= limit:
                self._log.warning(f"leaving while {work.what}: the runtime has not answered")
                return
            work.done.wait(TICK_SECONDS)
