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
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from eviction.configuration import Configuration
from eviction.events import EventSink, LogEvents
from eviction.explain import amount, later_sentence
from eviction.ladder import later_than_kubelet
from eviction.log import Log
from eviction.node import Node
from eviction.reclaim_table import row
from eviction.record import Pass, PassResult, Trigger, observations_json, pass_summary, threshold_json
from eviction.types import Decision, NodeCondition, ReclaimFunction, Threshold
from reclaim.types import EventReason, GCEvent, Result, RuntimeUnavailable
from signals.interval import ASSUMED_INODES_PER_SECOND, Fill, next_fill, next_interval
from signals.quantity import format_duration
from signals.types import SignalObservations

REFRESH_SECONDS = 60.0  # where the images are, and who uses them, for the records
RETRY_SECONDS = 1.0  # while the runtime is away
LONGEST_PAUSE_SECONDS = 60.0
DRAIN_SECONDS = 30.0
LEAVE_SECONDS = 1.5
TICK_SECONDS = 0.25
SAME_NEWS_SECONDS = 60.0
SLOW_SECONDS = 10.0
KEPT_PASSES = 20


@dataclass(slots=True)
class _Work:
    """What the worker thread is doing."""

    what: str
    started: float
    done: threading.Event


@dataclass(slots=True)
class _Pause:
    """How long a row is left alone. `until`: monotonic seconds."""

    until: float = float("-inf")
    seconds: float = 0.0

    def after(self, record: Pass, now: float) -> None:
        """None after success, a second while the runtime is away; else growing while nothing is freed."""
        if record.result is PassResult.SATISFIED:
            self.seconds = 0.0
        elif record.result is PassResult.FAILED or any(f.count(Result.REMOVED) for f in record.functions):
            self.seconds = RETRY_SECONDS
        else:
            self.seconds = min(max(self.seconds * 2, RETRY_SECONDS), LONGEST_PAUSE_SECONDS)
        waits = [max(f.eligible_in_seconds, 0.0) for f in record.functions if f.eligible_in_seconds is not None]
        self.until = now + min([self.seconds, *waits])


class Manager:
    """Runs one node until it is told to stop.

    `look_now` and `stop` may be called from any thread. `may_act`: asked before each pass; a text
    says why not (hold-off).
    `on_pass` is called with every pass that did or tried anything; `on_detected` when the records of images have been
    brought up to date, unless the disk is under pressure.
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
    ):
        self._node = node
        self._log = log
        self._may_act = may_act
        self._on_pass = on_pass
        self._on_look = on_look
        self._on_detected = on_detected
        self._events = events or LogEvents(log)
        self._wake = threading.Event()
        self._fills: dict[tuple[int, bool], Fill] = {}
        self._conditions: frozenset[NodeCondition] = frozenset()
        self._pauses: dict[tuple[ReclaimFunction, ...], _Pause] = {}
        self._refresh_due = float("-inf")
        self._work: _Work | None = None
        self._next_configuration: Configuration | None = None
        self._last_look: SignalObservations | None = None
        self._passes: deque[dict[str, Any]] = deque(maxlen=KEPT_PASSES)
        self._said: dict[str, float] = {}
        self.heartbeat = node.clock.monotonic()

    def look_now(self) -> None:
        """Asks for an earlier look."""
        self._wake.set()

    def status(self) -> dict[str, Any]:
        """What the daemon is doing, for the control socket. Any thread."""
        now, work = self._node.clock.monotonic(), self._work
        look = self._last_look
        return {
            "heartbeat_age_seconds": round(now - self.heartbeat, 3),
            "pods_problem": self._node.pods_problem,
            "doing": None if work is None else work.what,
            "paused_for_seconds": round(max([0.0, *(pause.until - now for pause in list(self._pauses.values()))]), 3),
            "conditions": sorted(str(condition) for condition in self._conditions),
            "layout": None if look is None or look.layout is None else str(look.layout),
            "observations": [] if look is None else observations_json(look),
            "thresholds": [] if look is None else self._thresholds_json(look),
            "passes": list(self._passes),
            "history": self._node.responder.history.dump(),
        }

    def _thresholds_json(self, look: SignalObservations) -> list[dict[str, Any]]:
        """Each threshold in force, with the seconds until its mark could be reached at the fill seen lately."""
        documents = []
        for threshold in self._node.thresholds(look.layout):
            observation, fill = look.signals.get(threshold.signal), None
            if observation is not None and observation.filesystem is not None:
                fill = self._fills.get((observation.filesystem.device_id, threshold.signal.counts_inodes))
            headroom = None
            if observation is not None and fill is not None and fill.fastest > 0:
                distance = observation.available - int(threshold.effective(observation.capacity))
                headroom = round(max(distance, 0) / fill.fastest, 3)
            documents.append({**threshold_json(threshold, look), "headroom_seconds": headroom})
        return documents

    def reconfigure(self, configuration: Configuration) -> None:
        """Takes another configuration into force before the next look, unless it needs a restart. Any thread."""
        self._next_configuration = configuration
        self._wake.set()

    def stop(self) -> None:
        """Ends the loop: nothing new is started."""
        self._node.stopping.set()
        self._wake.set()

    def run(self) -> None:
        """Looks and acts until `stop`. Returns when what was in flight has finished, or after 30 s."""
        while not self._node.stopping.is_set():
            try:
                self._turn()
            except Exception as error:  # noqa: BLE001 # a defect in one look must not end the daemon
                self._say_once(f"looking at the node: {type(error).__name__}: {error}", key="defect in a look")
                self._node.stopping.wait(RETRY_SECONDS)
        self._drain()

    def _turn(self) -> None:
        """One turn of the loop: a look, what follows from it, and the wait for the next one."""
        asked = self._wake.is_set()
        self._wake.clear()
        self._reconfigure()
        observations, decision = self._look()
        now = self._node.clock.monotonic()
        decision = self._serve_another(decision, now)
        if self._work is None and decision.row and now >= self._pause_of(decision).until:
            self._respond(observations, decision, Trigger.WATCH if asked else Trigger.INTERVAL)
        elif self._work is None and now >= self._refresh_due:
            self._start("asking the runtime where its images are", self._refresh)
        self._wait(self._next_look_in(observations, decision))

    def _reconfigure(self) -> None:
        """On the loop's own thread and between two passes, so that nothing is half old and half new."""
        configuration = self._next_configuration
        if configuration is None or self._work is not None:
            return
        self._next_configuration = None
        fixed = self._node.reconfigure(configuration)
        self._said.pop("later", None)
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
        for identity, stats in observations.filesystems.values():
            for inodes, available in ((False, stats.available_bytes), (True, stats.inodes_free)):
                key = (identity.device_id, inodes)
                self._fills[key] = next_fill(self._fills.get(key), available, stats.time)
        return observations, decision

    def _next_look_in(self, observations: SignalObservations, decision: Decision) -> float:
        configuration = self._node.configuration
        headrooms: list[tuple[int, float]] = []
        for threshold in self._node.thresholds(observations.layout):
            observation = observations.signals.get(threshold.signal)
            if observation is None or observation.filesystem is None:
                continue
            inodes = threshold.signal.counts_inodes
            fill = self._fills.get((observation.filesystem.device_id, inodes))
            assumed = ASSUMED_INODES_PER_SECOND if inodes else float(configuration.assumed_fill_rate)
            headroom = observation.available - int(threshold.effective(observation.capacity))
            headrooms.append((headroom, max(assumed, fill.fastest if fill else 0.0)))
        interval = next_interval(headrooms, configuration.poll_floor_seconds, configuration.poll_ceiling_seconds)
        now = self._node.clock.monotonic()
        if self._work is not None:
            return min(max(interval, configuration.poll_floor_seconds), TICK_SECONDS)
        if decision.acted_on is not None and not decision.row:
            return RETRY_SECONDS  # nothing here relieves it; looking more often would change nothing
        if decision.acted_on is not None:  # under pressure, and nothing to be done before the pause is over
            pause = self._pause_of(decision).until - now
            return min(pause, RETRY_SECONDS) if pause > 0 else configuration.poll_floor_seconds
        return min(interval, max(self._refresh_due - now, configuration.poll_floor_seconds))

    def _wait(self, seconds: float) -> None:
        """Waits for the next look; woken earlier by a watcher, but never more often than the floor."""
        floor = self._node.configuration.poll_floor_seconds
        if not self._node.stopping.wait(min(floor, seconds)) and seconds > floor:
            self._wake.wait(seconds - floor)

    def _report(self, observations: SignalObservations, decision: Decision) -> None:
        for unavailable in observations.unavailable:
            if unavailable.reason == self._node.summary.imagefs_problem:
                continue  # that the runtime cannot be asked is said where it is asked
            self._say_once(f"{unavailable.role}: {unavailable.reason}", signal=str(unavailable.role))
        self._warn_of_late_marks(observations)
        work = self._work
        if work is not None and (took := self.heartbeat - work.started) > SLOW_SECONDS:
            self._say_once(f"{work.what}: the runtime has not answered for {format_duration(took)}", key="slow")
        if decision.conditions == self._conditions:
            return
        self._conditions = decision.conditions
        if decision.conditions:
            met = ", ".join(_below(threshold, observations) for threshold in decision.thresholds_met)
            self._log.warning(f"DiskPressure: {met}", condition="DiskPressure", status=True)
        else:
            self._log.info("no DiskPressure any more", condition="DiskPressure", status=False)

    def _warn_of_late_marks(self, observations: SignalObservations) -> None:
        """Said once for each configuration: what acts later than the kubelet's own thresholds."""
        kubelet = self._node.configuration.kubelet
        if kubelet is None or observations.layout is None or "later" in self._said:
            return
        self._said["later"] = float("inf")
        ours = self._node.thresholds(observations.layout)
        for later in later_than_kubelet(ours, kubelet.thresholds.thresholds, observations.signals):
            self._log.warning(later_sentence(later))

    # ---- acting

    def _respond(self, observations: SignalObservations, decision: Decision, trigger: Trigger) -> None:
        held = self._may_act()
        if held is not None:
            self._say_once(f"held off: {held}", key="held off", reason="held_off")
            self._pause_of(decision).until = self._node.clock.monotonic() + RETRY_SECONDS
            return

        if decision.acted_on is not None and self._news("event", decision.acted_on.signal):
            self._events.warn(GCEvent(EventReason.EVICTION_THRESHOLD_MET, reclaiming(decision.acted_on)))

        def respond() -> None:
            self._pause_of(decision).until = self._node.clock.monotonic() + RETRY_SECONDS  # should it end in a defect
            record = self._node.responder.act(observations, decision, trigger)
            self._pause_of(decision).after(record, self._node.clock.monotonic())
            summary = pass_summary(record)
            self._passes.append(summary)
            self._report_pass(record, summary)
            self._on_pass(record)

        self._start(f"relieving {decision.acted_on.signal if decision.acted_on else ''}", respond)

    def _serve_another(self, decision: Decision, now: float) -> Decision:
        """The same decision, or for another threshold while the row of the first is paused."""
        layout = decision.layout
        if layout is None or now >= self._pause_of(decision).until:
            return decision
        for threshold in decision.others:
            other = replace(decision, acted_on=threshold, row=row(threshold.signal, layout))
            if other.row and now >= self._pause_of(other).until:
                return other
        return decision

    def _pause_of(self, decision: Decision) -> _Pause:
        return self._pauses.setdefault(decision.row, _Pause())

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
            self._say_once(head, key=f"{record.result} {acted_on.signal if acted_on else ''}", **fields)

    def _refresh(self) -> None:
        """Where the images are, and who uses which: first seen and last used are kept up by this.

        Under pressure only where they are: the second takes a question for each container on some runtimes, minutes
        for thousands of them, and the pass that waits for this thread asks it itself where it needs to.
        """
        problem, pressed = self._node.locate(), bool(self._conditions)
        if problem is None and not pressed:
            try:
                self._node.collector.detect()
            except RuntimeUnavailable as error:
                problem = str(error)
        if self._node.stopping.is_set():
            return
        if problem is None and not self._conditions:
            self._on_detected()
        if (pods_problem := self._node.pods_problem) is not None:
            self._say_once(pods_problem, key="pods")
        if problem is not None:
            self._say_once(f"the container runtime cannot be asked: {problem}", key="runtime")
        elif self._said.pop("runtime", None) is not None:
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

    def _say_once(self, sentence: str, key: str = "", **fields: object) -> None:
        """A warning, but the same news at most once a minute."""
        if self._news(key or sentence):
            self._log.warning(sentence, **fields)

    def _news(self, *key: str) -> bool:
        """Whether it was not said within the last minute."""
        now, name = self._node.clock.monotonic(), " ".join(key)
        if now - self._said.get(name, float("-inf")) < SAME_NEWS_SECONDS:
            return False
        self._said[name] = now
        return True


def reclaiming(threshold: Threshold) -> str:
    """The message of the kubelet's event before it reclaims: inodes, or the storage that pods ask for."""
    return f"Attempting to reclaim {'inodes' if threshold.signal.counts_inodes else 'ephemeral-storage'}"


def _below(threshold: Threshold, observations: SignalObservations) -> str:
    observation = observations.signals[threshold.signal]
    mark = int(threshold.effective(observation.capacity))
    return f"{threshold.signal} {amount(threshold.signal, observation.available)} < {amount(threshold.signal, mark)}"
