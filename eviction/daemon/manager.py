"""The loop of the daemon: wait, observe, decide, reclaim, observe again.

* The loop's thread never waits for the runtime. Passes run in lanes, one per filesystem (`Lane`); meanwhile the loop
  keeps observing and keeps its heartbeat.
* Nothing that may have to wait delays a pass: a client's request comes after it, and dry runs and the periodic question
  of who uses what (`Refresh`) have lanes of their own.
* A pass begins when its threshold is met, or earlier if removals have lately taken longer than the time that is left
  (`decision.headroom.begins_by_lead`).
* The next observation is due when a filesystem could have reached its mark (`signals.interval`); the threshold notifier
  or inotify may ask for an earlier one.
* After a pass that freed nothing, the next one of the same row waits longer, up to a minute, or until the next object
  is old enough (`RowBackoff`); other rows are served meanwhile. A runtime that does not answer is asked every second.
* Another configuration is in force with the next turn, whatever runs: passes that were made before send nothing more.
* After SIGTERM nothing new is started; removals that were sent are waited for, up to 30 s.

No exception in a pass or an observation ends the loop: it is logged, at most once a minute, and the loop goes on a
second later.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from eviction.configuration.effective import Configuration, needing_restart, poll_policy
from eviction.control.answer import RequestRefused
from eviction.control.reclaim import ReclaimQueue, Ticket, respond_to_client
from eviction.decision.headroom import begins_by_lead, levels_to_watch, nothing_fills, observation_interval
from eviction.node.node import DRAIN_SECONDS, Node
from eviction.node.one_pass import OnePass
from eviction.record import Pass, PassResult, Trigger
from eviction.reporting.configuration_warnings import configuration_warnings
from eviction.reporting.explain import unreachable_sentences
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
from eviction.reporting.tables import disk_pressure
from eviction.telemetry.announcements import Announcements, log_event
from eviction.telemetry.done import Done, ReloadState, Shadow
from eviction.types import Decision, EvictionError, Threshold
from reclaim.execution.workers import NoThread, ReadingHangs, ReadingsInTime, Workers
from reclaim.inventory import GivenUp
from reclaim.types import NEVER, GCEvent, Result, RuntimeUnavailable
from signals.clock import Clock
from signals.types import KUBELET_ROLES, Signal, SignalObservations

RETRY_SECONDS = 1.0  # while the runtime does not answer, and after a pass that freed something but not enough
LONGEST_PAUSE_SECONDS = 60.0
LEAVE_SECONDS = 1.5  # the longest wait for a task that removes nothing
REFRESH_SECONDS = 60.0  # between two refreshes
PLACES_SECONDS = 2.0  # the longest wait for the runtime to say where the images are
LONGEST_SECONDS = 30.0  # for one whole refresh; the next one does not ask again about containers already answered for
STALLED_PATIENCES = 3.0  # a pass that has made no progress for this many times `removalPatience` is stuck
BESIDE_FILESYSTEMS = 4  # a request without a filesystem, a dry run, a refresh, and its question where the images are
SHORTEST_STALL_SECONDS = 90.0  # and never sooner: a stage that reads is abandoned after 60 s
TICK_SECONDS = 0.25  # the longest interval while a pass runs, or a threshold is in its grace period
STILL_SECONDS = 1.0  # the longest interval near a mark while nothing fills the filesystem


@dataclass(slots=True)
class RowBackoff:
    """The pause of one row of the reclaim table after a pass. `until`: when it ends (monotonic seconds); `seconds`: how
    long it is."""

    until: float = float("-inf")
    seconds: float = 0.0

    def record(self, record: Pass, now: float) -> None:
        """Sets the pause after a pass: none after success, 1 s after a failure or any gain, else twice the last one, up
        to 60 s; never longer than until the next object is old enough. `now`: monotonic seconds."""
        if record.result is PassResult.SATISFIED:
            self.seconds = 0.0
        elif record.result is PassResult.FAILED or record.count(Result.REMOVED):
            self.seconds = RETRY_SECONDS
        else:
            self.seconds = min(max(self.seconds * 2, RETRY_SECONDS), LONGEST_PAUSE_SECONDS)
        waits = [max(f.eligible_in_seconds, 0.0) for f in record.functions if f.eligible_in_seconds is not None]
        self.until = now + min([self.seconds, *waits])


@dataclass(frozen=True, slots=True)
class Task:
    """What a lane is doing, in words; since when (monotonic seconds); `done` is set when it has ended."""

    what: str
    started: float
    done: threading.Event


class Lane:
    """Runs one task at a time, beside the loop and all other lanes. What is slow in one delays no other.

    Each filesystem, identified by its device, has a lane in which its passes run. What must not delay a pass has lanes
    of its own: the refresh, and the dry runs of clients. The threads are started in advance, and any lane may take any
    of them. Two lanes whose rows name the same function share its objects: what one is removing, the other leaves out.

    Only one thread may start tasks; any thread may read `task`. `on_done`: called on the lane's thread after each task.
    `begun`: how many tasks have begun so far. `running`: the pass that is running or ran last; None: it was something
    else, or a request that has not made a pass yet. `another_waits`: another row of this filesystem has become due
    meanwhile. `lead_used`: the lead has begun a pass since the mark was last reached; one is enough. `backoffs`: the
    pause of each of its rows.
    """

    def __init__(self, threads: Workers, clock: Clock, log: Log, on_done: Callable[[], None]):
        self._threads = threads
        self._clock = clock
        self._log = log
        self._on_done = on_done
        self.task: Task | None = None
        self.begun = 0
        self.running: OnePass | None = None
        self.another_waits = self.lead_used = False
        self.backoffs: dict[tuple[str, ...], RowBackoff] = {}

    @property
    def free(self) -> bool:
        return self.task is None

    def start(self, what: str, do: Callable[[], None], running: OnePass | None = None) -> bool:
        """Starts a task; none may be running. An exception in it is logged. Returns false if there is no thread for it;
        then nothing is started, which is logged too."""
        task = Task(what, self._clock.monotonic(), threading.Event())
        self.task, self.running, self.another_waits = task, running, False
        self.begun += 1

        def run() -> None:
            try:
                do()
            except Exception as error:  # noqa: BLE001 # a defect in one pass must not end the daemon
                self._log.error(f"{what}: {type(error).__name__}: {error}")

        def announce() -> None:
            self.task = None
            task.done.set()
            self._on_done()

        try:
            self._threads.run(run, announce)
        except NoThread as error:
            self.task = None
            self._log.error(f"{what}: {error}")
            return False
        return True

    def follow(self, running: OnePass) -> None:
        """The task has begun this pass, so that what it does is progress."""
        self.running = running

    def backoff(self, row: tuple[str, ...]) -> RowBackoff:
        return self.backoffs.setdefault(row, RowBackoff())

    def stalled_seconds(self, now: float) -> float:
        """How long its pass has made no progress: no call was answered, no removal ended or was parked, and no program
        is within its time."""
        task, running = self.task, self.running
        if task is None:
            return 0.0
        return max(now - max(task.started, task.started if running is None else running.progress_at), 0.0)

    def leave(self) -> None:
        """Waits until the task has ended, at most 1.5 s. Removals that were sent have been waited for by then."""
        task = self.task
        if task is not None and not task.done.wait(LEAVE_SECONDS):
            self._log.warning(f"leaving while {task.what}: it has not ended")


class Lanes:
    """The lanes of a node's filesystems. `of` is for one thread, the rest for any. `make`: makes one lane."""

    def __init__(self, make: Callable[[], Lane]):
        self._make = make
        self._lanes: dict[int | None, Lane] = {}

    def of(self, signal: Signal | None, observations: SignalObservations) -> Lane:
        """The lane of the filesystem that this signal is about now. What cannot be read has its own."""
        observation = None if signal is None else observations.signals.get(signal)
        where = None if observation is None else observation.filesystem
        about = None if where is None else where.device_id
        if about not in self._lanes:
            self._lanes = {**self._lanes, about: self._make()}  # replaced as a whole, because other threads read it
        return self._lanes[about]

    def __iter__(self) -> Iterator[Lane]:
        return iter(self._lanes.values())

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The running tasks, longest-running first."""
        running = (lane.task for lane in self)
        return tuple(sorted((task for task in running if task is not None), key=lambda task: task.started))

    def stalled_seconds(self, now: float) -> float:
        """How long the pass that has been stuck longest has made no progress."""
        return max((lane.stalled_seconds(now) for lane in self), default=0.0)

    def paused_seconds(self, now: float) -> float:
        """Seconds until the last pause of a row ends; 0 without one."""
        return max([0.0, *(each.until - now for lane in self for each in list(lane.backoffs.values()))])

    def observed(self, met: tuple[Threshold, ...], observations: SignalObservations) -> None:
        """After each observation. A lane with a threshold that is met may use the lead again next time. Once none of a
        lane is met, its pauses are forgotten, because whatever comes next is new pressure."""
        pressed = [self.of(threshold.signal, observations) for threshold in met]
        for lane in self:
            if lane in pressed:
                lane.lead_used = False
            else:
                lane.backoffs.clear()


class Refresh:
    """Asks from time to time where the images are and who uses them, alongside everything else.

    It updates the image records, and compares what the runtime holds with the kubelet's directories. It gives way as
    soon as a pass begins: it asks nothing more, and what it has read is not used.

    `run` asks, on one thread at a time. `due`: when to ask next (monotonic seconds), for any thread. `threads`: it
    takes one of them at most. `passes`: how many passes have begun so far.
    """

    def __init__(self, node: Node, announcements: Announcements, threads: Workers, passes: Callable[[], int]):
        self._passes = passes
        self._node = node
        self._announcements = announcements
        self._in_time = ReadingsInTime(threads, PLACES_SECONDS)
        self._shadow = Shadow(node, announcements.log)
        node.listeners.add(self._shadow)
        self.due = float("-inf") if node.configuration.has_runtime else NEVER

    def run(self) -> None:
        """Asks where the images are and who uses them.

        Under pressure it asks only where they are, every second, because nothing can be relieved in the wrong place.
        Who uses them takes a call for each container on some runtimes, minutes for thousands of them, and a pass asks
        for itself. After waiting for an answer in vain, it asks again a minute later; while nothing is known yet, every
        second.
        """
        node, announcements = self._node, self._announcements
        began, passes = node.clock.monotonic(), self._passes()
        problem, pressed, given_up = self._locate(), announcements.under_pressure, False
        lists = problem is None and not pressed

        def goes_on() -> bool:
            in_time = node.clock.monotonic() - began < LONGEST_SECONDS
            return in_time and self._passes() == passes and not node.stopping.is_set()

        if lists:
            try:
                node.compare_pods()
                node.detect_images(goes_on)
            except GivenUp:
                given_up = True
            except RuntimeUnavailable as error:
                problem = str(error)
        if node.stopping.is_set():
            return
        if problem is None:
            if lists and not given_up and not announcements.under_pressure:
                node.listeners.detected()
            self._shadow.look()
        announcements.runtime_asked(problem, node.pods_problem)
        now, known = node.clock.monotonic(), node.summary.paths.imagefs is not None
        silent = known and now - began >= PLACES_SECONDS
        soon = given_up or (not silent and (problem is not None or pressed))
        self.due = now + (RETRY_SECONDS if soon else REFRESH_SECONDS)

    def _locate(self) -> str | None:
        """Asks where the images are, for at most 2 s. Returns None, or the reason in a sentence if that is unknown."""
        try:
            return self._in_time(self._node.locate)
        except (ReadingHangs, NoThread) as error:
            return f"where its images are: {error}"


class Manager:
    """Runs one node until `stop`, and reports what happens to the node's listeners.

    `may_act`: called before each pass; returns why no pass may run now, or None. `events`: called with the kubelet's
    events; None: they are logged. `event`: makes the events that the loop waits for. `beside`: threads of the daemon
    that must not end before it does.
    """

    def __init__(
        self,
        node: Node,
        log: Log,
        *,
        may_act: Callable[[], str | None] = lambda: None,
        events: Callable[[GCEvent], None] | None = None,
        event: Callable[[], threading.Event] = threading.Event,
    ):
        self._node = node
        self._may_act = may_act
        self._wake = event()
        self._urgent = event()  # ends even the shortest interval, in which the loop does not wait for `_wake`
        self._announcements = Announcements(node, log, events or partial(log_event, log))
        self._done = Done()
        self.reloads = ReloadState(node.clock)
        for listener in (self._announcements, self._done):
            node.listeners.add(listener)
        self._threads = Workers("lanes", len(KUBELET_ROLES) + len(node.configuration.filesystems) + BESIDE_FILESYSTEMS)

        def lane() -> Lane:
            return Lane(self._threads, node.clock, log, self._wake.set)

        self._lanes, self._refresher, self._dry_runs = Lanes(lane), lane(), lane()
        self._refresh = Refresh(node, self._announcements, self._threads, lambda: sum(one.begun for one in self._lanes))
        self._asked = False
        self._in_force = threading.Event()  # set when a configuration has come into force, or a defect kept it out
        self._defect: Exception | None = None
        self._last_observations: SignalObservations | None = None
        self.beside: tuple[threading.Thread, ...] = ()
        self.heartbeat = node.clock.monotonic()
        self._observation_due = self.heartbeat
        self.requests = ReclaimQueue(self._observe_at_once, self.doing, signals=node.configuration.signals)

    def prepare(self) -> None:
        """Starts the threads of the lanes. Raises NoThread."""
        self._threads.prepare(self._threads.most)

    def doing(self) -> str | None:
        """What is being done now, in words, passes first; None if nothing is. Any thread may call."""
        tasks = (*self._lanes.tasks, self._refresher.task, self._dry_runs.task)
        return next((task.what for task in tasks if task is not None), None)

    def why_not_alive(self) -> str | None:
        """Why the daemon should be restarted, in a sentence; None if it works. Any thread may call."""
        ended = next((thread.name for thread in self.beside if not thread.is_alive()), None)
        if ended is not None and not self._node.stopping.is_set():
            return f"the thread of {ended} has ended"
        patience_seconds = self._node.configuration.removal_patience_seconds
        limit_seconds = max(STALLED_PATIENCES * patience_seconds, SHORTEST_STALL_SECONDS)
        now = self._node.clock.monotonic()
        return why_not_alive(now - self._observation_due, self._lanes.stalled_seconds(now), limit_seconds)

    def observe_now(self) -> None:
        """Asks for an observation before the next one is due. Any thread may call."""
        self._asked = True
        self._wake.set()

    def _observe_at_once(self) -> None:  # a threshold was crossed, or a client waits
        self._urgent.set()
        self._wake.set()

    def status(self) -> NodeStatus:
        """What the daemon sees and does, as of the last observation. Any thread may call."""
        node, responder, seen = self._node, self._node.responder, self._last_observations
        now, conditions = node.clock.monotonic(), self._announcements.conditions
        thresholds = () if seen is None else node.thresholds(seen.layout)
        document = Status(
            heartbeat_age_seconds=round(now - self.heartbeat, 3),
            pods_problem=node.pods_problem,
            pod_directories=pod_directories(node.pods_doubt),
            reload_problem=self.reloads.problem,
            warnings=[
                *configuration_warnings(node.configuration),
                *(() if seen is None else unreachable_sentences(thresholds, seen)),
            ],
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
        oldest_seconds, accepted_wall = node.removals.oldest_seconds, self.reloads.accepted_wall
        return NodeStatus(document, seen, now, oldest_seconds, node.threads_not_started, accepted_wall)

    def reconfigure(self, configuration: Configuration) -> tuple[str, ...]:
        """Has another configuration come into force, except for the fields that need a restart; returns those that
        differ once it is in force, or the daemon stops. From the beginning on, no pass of the present one removes
        anything more. For one thread at a time, and not the loop's. Raises what kept it from coming into force."""
        changed = needing_restart(self._node.configuration, configuration)
        self._in_force.clear()
        self._defect = None
        self._node.next_configuration = configuration
        self._observe_at_once()
        self._in_force.wait()
        if self._defect is not None:
            raise self._defect
        return changed

    def stop(self) -> None:
        """Ends the loop: nothing new is started. Any thread may call."""
        self._node.stopping.set()
        self._observe_at_once()

    def run(self) -> None:
        """Observes and reclaims until `stop`, then waits for removals that were sent, at most 30 s."""
        while not self._node.stopping.is_set():
            try:
                self._turn()
            except Exception as error:  # noqa: BLE001 # a defect in one turn must not end the daemon
                self._announcements.defect(error)
                self._node.stopping.wait(RETRY_SECONDS)
        self._in_force.set()
        self.requests.close()
        if not self._node.removals.wait(DRAIN_SECONDS):
            self._announcements.left_unanswered()
        for lane in self._lanes:
            lane.leave()
        self._threads.close()  # the other lanes remove nothing, and may go on until the process ends

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
        # each lane acts on the first threshold whose row is neither empty nor paused
        others = (self._acting_on(threshold, observations, decision) for threshold in decision.others)
        for each in (decision, *others):
            self._begin_where_due(each, observations, trigger, now)
        for each in self._by_lead(observations, decision):
            self._begin_where_due(each, observations, Trigger.LEAD, now)
        self._serve_requests(observations, decision)
        if not self._lanes.tasks and self._refresher.free and now >= self._refresh.due:
            self._refresh.due = now + RETRY_SECONDS  # in case it cannot begin, or raises
            self._refresher.start("asking the runtime where its images are", self._refresh.run)
        seconds = self._next_observation_in(observations, decision)
        self._observation_due = self._node.clock.monotonic() + seconds
        self._wait(seconds)

    def _apply_configuration(self) -> None:
        """Passes that still run with the one before send nothing more."""
        configuration = self._node.next_configuration
        if configuration is None:
            return
        try:
            self._node.reconfigure(configuration)
            self._announcements.reconfigured()
        except Exception as defect:
            self._defect = defect
            raise
        finally:
            self._node.next_configuration = None
            self._in_force.set()

    # ---- observing

    def _observe(self) -> tuple[SignalObservations, Decision]:
        observations, decision = self._node.responder.synchronize()
        self.heartbeat = self._node.clock.monotonic()
        self._last_observations = observations
        self._lanes.observed(decision.thresholds_met, observations)
        self._node.listeners.observed(observations, decision)
        for lane in self._lanes:
            if (task := lane.task) is not None:
                self._announcements.takes_long(task.what, lane.stalled_seconds(self.heartbeat))
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
        # under pressure, but the row is empty or paused: the other thresholds are still watched
        if decision.acted_on is not None:
            lane = self._lanes.of(decision.acted_on.signal, observations)
            pause = lane.backoff(decision.row).until - now if decision.row else RETRY_SECONDS
            if pause <= 0:
                return floor
            longest = min(pause, RETRY_SECONDS)
        seldom = STILL_SECONDS if nothing_fills(fill_rates, policy) else TICK_SECONDS
        if interval < seldom:  # the probes poll in between
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
        """Waits for the next observation. `observe_now` ends the wait, but not before the floor; `_observe_at_once`
        ends it at any time."""
        floor = self._node.configuration.poll_floor_seconds
        if not self._urgent.wait(min(floor, seconds)) and seconds > floor:
            self._wake.wait(seconds - floor)
        self._urgent.clear()

    # ---- reclaiming

    def _by_lead(self, observations: SignalObservations, decision: Decision) -> Iterator[Decision]:
        """Decisions for thresholds that are not met yet, but whose passes begin now."""
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
            if lane.free and not lane.lead_used:
                yield self._acting_on(threshold, observations, decision)

    def _acting_on(self, threshold: Threshold, observations: SignalObservations, decision: Decision) -> Decision:
        row = self._node.responder.state.config.row(threshold.signal, observations)
        return replace(decision, acted_on=threshold, row=row)

    def _begin_where_due(
        self, decision: Decision, observations: SignalObservations, trigger: Trigger, now: float
    ) -> None:
        """Begins the pass in its lane, unless there is nothing to act on, its row is empty or paused, or the lane is
        busy."""
        acted_on = decision.acted_on
        if acted_on is None:
            return
        lane, row = self._lanes.of(acted_on.signal, observations), decision.row
        backoff, clock = lane.backoff(row), self._node.clock
        if not row or now < backoff.until:
            return
        if not lane.free:
            lane.another_waits = lane.another_waits or lane.running is None or row != lane.running.row
            return
        backoff.until = clock.monotonic() + RETRY_SECONDS  # in case it is held off, cannot begin, or raises
        why_not = self._may_act()
        if why_not is not None:
            self._announcements.held_off(why_not)
            return
        lane.lead_used = lane.lead_used or trigger is Trigger.LEAD
        self._announcements.reclaiming(acted_on)
        gives_way = lambda: lane.another_waits  # noqa: E731 # evaluated at each call
        running = OnePass(self._node.responder, observations, decision, trigger, gives_way=gives_way)

        def relieve() -> None:
            record = running.run()
            if trigger is not Trigger.LEAD:  # a pass that the lead began has nothing to reach before its mark is met
                backoff.record(record, clock.monotonic())
            else:
                backoff.until = float("-inf")
            self._node.listeners.passed(record)
            self._node.disk_survey.explain_later(record, self._node.listeners.attributed)

        lane.start(f"relieving {acted_on.signal}", relieve, running)

    def _serve_requests(self, observations: SignalObservations, decision: Decision) -> None:
        """A request that removes waits for the lane of its signal, behind the passes there; dry runs have their own
        lane."""

        def lane_of(ticket: Ticket) -> Lane:
            acted_on = None if decision.acted_on is None else decision.acted_on.signal
            return self._lanes.of(ticket.options.signal or acted_on, observations)

        if self._dry_runs.free and (ticket := self.requests.take(lambda each: each.options.dry_run)) is not None:
            self._serve(self._dry_runs, ticket, observations, decision)
        ticket = self.requests.take(lambda each: not each.options.dry_run and lane_of(each).free)
        if ticket is not None:
            self._serve(lane_of(ticket), ticket, observations, decision)

    def _serve(self, lane: Lane, ticket: Ticket, observations: SignalObservations, decision: Decision) -> None:
        """Serves a client's request, with the observations of this turn."""

        def serve() -> None:
            try:
                answer = respond_to_client(ticket.options, self._node, observations, decision, lane.follow)
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
