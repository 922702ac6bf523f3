"""The daemon around one node: what is announced of it, what it says of itself, what is
asked of it, and its end.
"""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from eviction.configuration.effective import Configuration
from eviction.decision.headroom import FillRates, headroom_seconds
from eviction.engine.node import DRAIN_SECONDS, Node
from eviction.engine.step import stalled_seconds, what_of
from eviction.records.json_shapes import (
    Count,
    Document,
    ObservationJson,
    PodDirectories,
    Seconds,
    ThresholdJson,
    Time,
    Versioned,
    observations_json,
    pod_directories,
    threshold_json,
    timestamp,
    to_json,
)
from eviction.records.pass_json import (
    BytesJson,
    FunctionJson,
    KindWord,
    PassJson,
    function_json,
    pass_summary,
)
from eviction.records.passes import Pass
from eviction.surface.announcements import Announcements, Shadow
from eviction.surface.requests import Requests
from eviction.types import Json, NodeCondition, Threshold
from eviction.wording.configuration_warnings import configuration_warnings
from eviction.wording.explain import LadderMark, disk_pressure, ladder, unreachable_sentences
from eviction.wording.log import Log
from reclaim.removals import StageId, late, oldest_seconds
from reclaim.types import NEVER, Amounts
from signals.types import FsLayout, SignalObservations

# observing three filesystems that all hang takes 6 s; a loop that is another 2 s late hangs itself
LARGEST_DELAY_SECONDS = 8.0
# a pass that has made no progress for this many times `removalPatience` is stuck
STALLED_PATIENCES = 3.0
SHORTEST_STALL_SECONDS = 90.0  # and never sooner: a stage that reads is given up after 60 s
KEPT_PASSES = 20
SUMMED = ("removed", "measured", "nominal", "seconds")
LISTENERS_SECONDS = 1.0  # at the end, for what they have not been told yet


# ---- what it tells of itself


class ThresholdStatusJson(ThresholdJson):
    """A threshold with the time that is left."""

    headroom_seconds: Seconds | None
    """Until it would be met at the present fill rate.

    0: it is met. null: nothing fills the filesystem.
    """


class Parked(Document):
    """A removal that was sent, and that no pass waits for any longer."""

    kind: KindWord
    """What is being removed."""
    id: str
    """The runtime's id for it."""
    name: str
    """Its name, for people."""
    seconds: float
    """How long ago the removal was sent."""


class LastCallJson(FunctionJson):
    """The last call of a reclaim function."""

    started: Time
    """When the pass began."""


class FunctionTotalJson(Document):
    """What a reclaim function has done since the daemon started."""

    calls: Count
    """How often it was called."""
    removed: Count
    """How many objects it removed."""
    measured: Amounts
    """What the filesystems gained."""
    nominal: BytesJson
    """The reported sizes of the removed objects."""
    seconds: Seconds
    """How long its calls took together."""
    last: LastCallJson
    """Its last call."""


class Status(Versioned):
    """What the daemon sees and does: the answer of `reclaimd status`."""

    configuration: dict[str, list[list[object]]]
    """The fingerprint of the configuration: its files with time and size, its flags and
    environment. The same configuration has the same fingerprint."""
    heartbeat_age_seconds: Seconds
    """How long ago the last observation was."""
    next_look_seconds: Seconds | None
    """How long until the node is observed again; null while it is."""
    next_look_why: str
    """Why then, for people."""
    pods_problem: str | None
    """Why the kubelet gave no list of its pods; null if it did, or is not asked."""
    pod_directories: PodDirectories
    """Whether the kubelet's pod directories are believed."""
    reload_problem: str | None
    """Why the last reload was rejected, so that an older configuration is in
    force; null if it was accepted.
    """
    warnings: list[str]
    """What is wrong or doubtful about the configuration, such as a kubelet that was not found."""
    dry_run: bool
    """Whether removals are only reported, and not made."""
    held_off: str | None
    """Why nothing may be removed now; null if removals are allowed."""
    pause_left_seconds: Seconds
    """How much longer an operator's pause lasts; 0 without one."""
    doing: str | None
    """What it is doing; null while it only watches."""
    stalled_seconds: Seconds
    """How long that has made no progress."""
    parked: list[Parked]
    """Removals that no pass waits for any longer."""
    events_dropped: Count
    """Events that log, metrics and history were not told of, because too many waited."""
    listener_failures: Count
    """How often one of these has failed, and lost an event."""
    requests_waiting: Count
    """Commands that wait for a pass."""
    paused_for_seconds: Seconds
    """How long until a row that was not enough is tried again."""
    lead_seconds: Seconds
    """What removals have lately taken: what is written within that time has to fit above the
    kubelet's mark, or a pass begins. 0: lead is 0s, or extent all.
    """
    conditions: frozenset[NodeCondition]
    """The node conditions that are reported:

    ReclaimPressure is ours, DiskPressure the kubelet's.
    """
    disk_pressure: bool | None
    """Whether the kubelet would report DiskPressure now; null if its thresholds are not known."""
    layout: FsLayout | None
    """How the roles are spread over filesystems; null while that is not known."""
    observations: list[ObservationJson]
    """The last observations, in the order of the signals."""
    thresholds: list[ThresholdStatusJson]
    """The thresholds in force."""
    ladder: tuple[LadderMark, ...]
    """Our marks and the kubelet's, as a filling filesystem reaches them."""
    functions: dict[str, FunctionTotalJson]
    """What each reclaim function has done, by its name."""
    passes: list[PassJson]
    """The last 20 passes, the oldest first."""


class NodeStatus(NamedTuple):
    """The daemon at one moment."""

    document: Status
    """Its answer to `status`."""
    observations: SignalObservations | None
    """The last ones; None before the first."""
    now: float
    """Monotonic seconds."""
    wall: float
    """The same moment, in seconds since the epoch."""
    removal_in_flight_seconds: float
    """Since the oldest unanswered removal was sent."""
    threads_not_started: int
    """How many starts of a thread have failed."""
    accepted_wall: float | None
    """When a configuration was accepted last, in seconds since the epoch."""


def hanging_sentences(hanging: Iterable[StageId]) -> Iterator[str]:
    """One sentence for each stage whose plan hangs."""
    for stage in sorted(hanging):
        yield (
            f"{stage.function}, stage {stage.number}: its plan hangs on a thread that is left"
            " behind; no pass asks for it again until it has ended"
        )


def threshold_statuses(
    thresholds: Iterable[Threshold], observations: SignalObservations, fill_rates: FillRates
) -> list[ThresholdStatusJson]:
    """Each with the seconds until it would be met."""
    return [
        ThresholdStatusJson.of(
            threshold_json(threshold, observations),
            headroom_seconds=headroom_seconds(threshold, observations, fill_rates),
        )
        for threshold in thresholds
    ]


# ---- the daemon


class Totals:
    """The last passes, and sums for each reclaim function, since the start. Any thread may read:
    what it has is replaced, never changed."""

    def __init__(self) -> None:
        self._passes: dict[str, PassJson] = {}
        self.functions: Json = {}
        """By name, as `FunctionTotalJson`: the sums, and the last call as
        in the record of its pass.
        """

    def passed(self, record: Pass) -> None:
        """Keeps the summary of the pass, and adds up what its functions have done."""
        self.attributed(record)
        for function in record.functions:
            last = to_json(
                LastCallJson.of(function_json(function), started=timestamp(record.started_wall))
            )
            sums = {"calls": int(not function.skipped), **{name: last[name] for name in SUMMED}}
            if before := self.functions.get(function.operation):
                sums = _sum(before, sums)
            self.functions = {**self.functions, function.operation: {**sums, "last": last}}

    def attributed(self, record: Pass) -> None:
        """Keeps the summary of a pass, or replaces the one with the same id."""
        passes = {**self._passes, record.id: pass_summary(record)}
        self._passes = dict([*passes.items()][-KEPT_PASSES:])

    def passes(self) -> list[PassJson]:
        """The summaries, the oldest first."""
        return list(self._passes.values())


def _sum(total: Any, more: Any) -> Any:
    """The sum of two numbers, or of each number in two records; what is not known stays so."""
    if isinstance(more, dict):
        return {name: _sum(total[name], value) for name, value in more.items()}
    return None if total is None else round(total + more, 6)


class Daemon:
    """Runs one node until `stop`, and reports what happens to the node's
    listeners. Any thread may call.

    `hold_off_seconds`: for how long after now nothing is removed unless the kubelet is healthy
    before.
    """

    def __init__(self, node: Node, log: Log, hold_off_seconds: float = 0.0):
        self.node = node
        announcements = Announcements(node, log)
        self._totals = Totals()
        shadow = Shadow(node, log)
        node.shadow = shadow.look
        self.reload_problem: str | None = None
        """Why the last reload was rejected, in a sentence, as whoever has tried it says; None if it
        was accepted."""
        self._accepted_wall = node.clock.wall()
        node.listeners.add(announcements, self._totals, shadow)
        self.requests = Requests(node, self.doing)
        node.begin_on_its_own(hold_off_seconds)

    def prepare(self) -> None:
        """Starts the thread of a request; more are started when they are needed.

        Raises NoThread.
        """
        self.requests.threads.prepare(1)

    def run(self) -> None:
        """Observes and reclaims until `stop`, then waits for removals that were
        sent, at most 30 s.
        """
        node = self.node
        node.owner.run()
        if not node.owner.drained(DRAIN_SECONDS):
            node.listeners.tell("left_unanswered")
        node.owner.refuse_the_rest()
        self.requests.threads.close()
        node.listeners.done(LISTENERS_SECONDS)

    def stop(self) -> None:
        """Ends the loop: nothing new is started."""
        self.node.owner.stop()

    def reconfigure(self, configuration: Configuration) -> tuple[str, ...]:
        """Has another configuration come into force, except for the fields that need a restart;
        returns those that differ once it is in force. From then on, no pass of the present one
        removes anything more."""
        need_restart = self.node.reconfigure(configuration)
        self.reload_problem = None
        self._accepted_wall = self.node.clock.wall()
        return need_restart

    def doing(self) -> str | None:
        """What is being done now, in words, passes first; None if nothing is."""
        world = self.node.world
        passes = sorted(world.passes.values(), key=lambda the: (the.dry_run, the.began_at))
        if passes:
            return what_of(passes[0])
        asks = world.asking.locating_since is not None or world.asking.refreshing_since is not None
        return "asking the runtime where its images are" if asks else None

    def stalled_seconds(self) -> float:
        """How long the pass that has been stuck longest has made no progress."""
        world = self.node.present
        return max((stalled_seconds(the, world) for the in world.passes.values()), default=0.0)

    def why_not_alive(self) -> str | None:
        """Why the daemon should be restarted, in a sentence; None if it works.

        A pass that waits for the runtime makes progress: each call is answered or times out, and a
        slow removal is parked. A pass that makes none is stuck in something else.
        """
        node = self.node
        late = node.clock.monotonic() - node.owner.due_at  # also if its thread has ended
        if not node.stopping.is_set():  # turns that end in no look observe nothing
            late = max(late, self._heartbeat_age() - node.configuration.poll_ceiling_seconds)
        if late > LARGEST_DELAY_SECONDS:
            return f"the next observation is {late:.1f} s late"
        patience = STALLED_PATIENCES * node.configuration.removal_patience_seconds
        stalled = self.stalled_seconds()
        if stalled > max(patience, SHORTEST_STALL_SECONDS):
            return f"the pass has made no progress for {stalled:.0f} s"
        return None

    def _heartbeat_age(self) -> float:
        """Since the last observation; before the first one, since it began to be waited for."""
        node = self.node
        looked_at = node.world.looked_at if node.world.looks else node.owner.began_at
        return node.clock.monotonic() - looked_at

    def status(self) -> NodeStatus:
        """What the daemon sees and does, as of the last observation."""
        node = self.node
        world = node.present
        now = world.now
        seen = world.observations  # empty before the first look
        thresholds = node.thresholds(seen.layout) if world.looks else ()
        conditions = world.decision.conditions
        back_offs = [row for lane in world.lanes.values() for row in lane.back_offs.values()]
        paused_until = max((row.until for row in back_offs), default=now)
        document = Status.of(
            configuration={},
            heartbeat_age_seconds=self._heartbeat_age(),
            next_look_seconds=None if world.look_due == NEVER else max(world.look_due - now, 0.0),
            next_look_why=world.look_why,
            pods_problem=node.pods_problem,
            pod_directories=pod_directories(node.pods_doubt),
            reload_problem=self.reload_problem,
            warnings=[
                *configuration_warnings(node.configuration),
                *unreachable_sentences(thresholds, seen),
                *hanging_sentences(world.hanging),
                *filter(None, (node.owner.occupied(),)),
            ],
            dry_run=node.dry_run,
            held_off=world.held_off() or None,
            pause_left_seconds=world.pause_left_seconds(),
            doing=self.doing(),
            stalled_seconds=self.stalled_seconds(),
            parked=[
                # since it was sent, or since its check began
                Parked.of(
                    claim.verdict, seconds=round(now - (claim.sent_at or claim.claimed_at), 3)
                )
                for claim in late(world.removals)
            ],
            events_dropped=node.listeners.dropped,
            listener_failures=node.listeners.failed,
            requests_waiting=len(world.wanted),
            paused_for_seconds=max(paused_until - now, 0.0),
            lead_seconds=world.lead_seconds,
            conditions=conditions,
            disk_pressure=disk_pressure(conditions, world.config.kubelets),
            layout=seen.layout,
            observations=observations_json(seen),
            thresholds=threshold_statuses(thresholds, seen, world.fill_rates),
            ladder=ladder(
                thresholds,
                world.config.kubelets_in_layout(seen.layout),
                None,
                observations=seen.signals,
            ),
            functions=self._totals.functions,
            passes=self._totals.passes(),
        )
        return NodeStatus(
            document,
            observations=seen if world.looks else None,
            now=now,
            wall=world.wall,
            removal_in_flight_seconds=oldest_seconds(world.removals.values(), now),
            threads_not_started=node.threads_not_started,
            accepted_wall=self._accepted_wall,
        )
