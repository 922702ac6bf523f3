"""What the loop of the daemon announces, in the log and as events: pressure,
passes, and what it cannot read.

Each state is announced when it changes; a warning that repeats is written at most once a minute.
"""

from collections.abc import Mapping
from functools import partial

from eviction.configuration.effective import Configuration
from eviction.decision.thresholds import kubelets_met
from eviction.engine.node import Node
from eviction.engine.periodic import CONTAINER
from eviction.records.json_shapes import to_json
from eviction.records.pass_json import pass_summary
from eviction.records.passes import Pass, PassResult, PeriodicLoop, Trigger
from eviction.survey.space import sentence as attribution_sentence
from eviction.types import Decision, NodeCondition, Threshold
from eviction.wording import explain
from eviction.wording.configuration_warnings import warnings_on_node
from eviction.wording.log import Level, Log, ThrottledLog
from reclaim.evidence.states import NO_TROUBLE
from reclaim.removals import sent_claims
from reclaim.types import (
    EventReason,
    GCEvent,
    Kind,
    Outcome,
    ReclaimResult,
    Result,
    RuntimeUnavailable,
)
from signals.quantity import counted, format_bytes, format_duration
from signals.types import Signal, SignalObservation, SignalObservations

MOST_REMEMBERED = 10_000
ASK_EVERY_SECONDS = 10.0
OF_THE_RUNTIME = (Kind.CONTAINER, Kind.SANDBOX, Kind.IMAGE)


class Announcements:
    """Writes the log lines of a node. `conditions`: those announced last."""

    def __init__(self, node: Node, log: Log):
        self._node = node
        self.log = log
        self._throttled_log = ThrottledLog(log, node.clock)
        self.conditions: frozenset[NodeCondition] = frozenset()
        # keys of the warnings about passes during this pressure
        self._unsuccessful: set[str] = set()
        # what was announced to be reclaimed during this pressure
        self._reclaiming: set[str] = set()
        self._explained = False
        self._examined: Configuration | None = None
        self._signals: Mapping[Signal, SignalObservation] = {}  # when they were observed last
        self._pods_problem: str | None = None

    def _event(self, event: GCEvent, level: Level = Level.WARNING, **fields: object) -> None:
        """Logs an event, with the reason as a field, and tells who sends it."""
        self.log.event(level, event.message, event=str(event.reason), **event.values, **fields)
        if not self._node.dry_run:
            self._node.listeners.tell("warned", event)

    def observed(self, observations: SignalObservations, decision: Decision) -> None:
        """Announces unreadable filesystems, and each condition when it changes."""
        self._signals = observations.signals
        for unavailable in observations.unavailable:
            if unavailable.reason == self._node.world.imagefs_problem:
                continue  # `runtime_asked` announces it
            self._throttled_log.warn(
                f"{unavailable.role}: {unavailable.reason}", signal=str(unavailable.role)
            )
        self._warn_of_the_configuration(observations)
        if not decision.thresholds_met:
            for key in self._unsuccessful:
                self._throttled_log.resolved(key)
            self._unsuccessful.clear()
        changed = self.conditions ^ decision.conditions
        self.conditions = decision.conditions
        # ours first: the kubelet's mark is the lower one
        for condition in sorted(changed, reverse=True):
            if condition in decision.conditions:
                met = decision.thresholds_met
                if condition is NodeCondition.DISK_PRESSURE:
                    config = self._node.world.config
                    met = kubelets_met(
                        config.kubelets_in_layout(observations.layout), observations.signals
                    )
                self.log.warning(
                    explain.condition_begins(condition, met, observations),
                    condition=str(condition),
                    status=True,
                )
                continue
            if condition is NodeCondition.RECLAIM_PRESSURE:
                self._reclaiming.clear()
                self._explained = False
            self.log.info(explain.IS_OVER[condition], condition=str(condition), status=False)

    def _warn_of_the_configuration(self, observations: SignalObservations) -> None:
        """Once per configuration, when the layout is known: about rows that cannot relieve their
        signal, and thresholds that act later than the kubelet's own."""
        configuration = self._node.configuration
        unknown = configuration.has_runtime and observations.layout is None
        if unknown or self._examined is configuration:
            return
        self._examined = configuration
        for sentence in warnings_on_node(configuration, observations):
            self.log.warning(sentence)

    def takes_long(self, what: str, seconds: float) -> None:
        """A pass has made no progress for this long."""
        self._throttled_log.warn(
            f"{what}: no call was answered and nothing has ended for {format_duration(seconds)}",
            key=f"slow {what}",
        )

    def reconfigured(self) -> None:
        """Another configuration has come into force."""
        if self._node.dry_run:
            self.log.warning(explain.NOTHING_IS_REMOVED)

    def defect(self, error: Exception) -> None:
        """An exception was raised while the node was observed, or something was decided."""
        self._throttled_log.warn(
            f"observing the node: {type(error).__name__}: {error}", key="defect while observing"
        )

    def listener_failed(self, listener: str, error: BaseException) -> None:
        """Lines, numbers or records of it are missing."""
        self._throttled_log.warn(
            f"{listener} has lost an event: {type(error).__name__}: {error}",
            key=f"failed {listener}",
        )

    def events_dropped(self, count: int) -> None:
        """Log, metrics and history are incomplete."""
        self._throttled_log.warn(
            f"{counted(count, 'event')} since the start went unnoticed, as too many waited to be"
            " told",
            key="events dropped",
        )

    def not_begun(self, why: str) -> None:
        """Instead of a pass."""
        self._throttled_log.warn(f"held off: {why}", key="held off", reason="held_off")

    def reclaiming(self, threshold: Threshold) -> None:
        """Before every pass: an event, or only a log line if the filesystem is not one of the
        kubelet's. Until the pressure is over, an equal event is logged at debug level."""
        if not threshold.signal.filesystem.kubelets:
            self._throttled_log.warn(
                f"attempting to reclaim {threshold.signal}", key=f"reclaiming {threshold.signal}"
            )
            return
        sentence = explain.reclaiming_sentence(threshold, self._signals.get(threshold.signal))
        level = Level.DEBUG if sentence in self._reclaiming else Level.WARNING
        self._reclaiming.add(sentence)
        self._event(GCEvent(EventReason.THRESHOLD_MET, sentence), level)

    def program_line(self, function: str, line: str) -> None:
        """A line that a configured program has printed. May be called from any thread."""
        self.log.info(f"{function}: {line}", function=function)

    def passed(self, record: Pass) -> None:
        """One line per pass, and an event if it has relieved pressure. One that removed nothing
        and did not succeed is a repeating warning."""
        fields = {
            "pass": record.id,
            "result": str(record.result),
            "record": to_json(pass_summary(record)),
        }
        acted_on = record.decision.acted_on
        about = record.decision.signal or "request"
        has_removed = record.count(Result.REMOVED) > 0
        took = format_duration(record.timings.total_seconds)
        sentence = f"{about}: {record.reason}; took {took}"
        if removed := explain.names_of_removed(record.removals):
            self.log.in_text(f"removed {removed}", **{"pass": record.id})
        if record.result is PassResult.SATISFIED:
            if acted_on is not None and acted_on.signal.filesystem.kubelets and has_removed:
                relieved = explain.relief_sentence(record, acted_on)
                self._event(GCEvent(EventReason.RELIEVED, relieved), Level.INFO, **fields)
            else:
                self.log.info(sentence, **fields)
        elif has_removed:
            self.log.warning(sentence, **fields)
        else:
            key = f"{record.result} {about}"
            self._unsuccessful.add(key)  # to be logged again at the next pressure
            logged = self._throttled_log.warn(sentence, key=key, **fields)
            if logged and (planned := explain.names_of_removed(record.removals, Result.PLANNED)):
                self.log.in_text(f"would remove {planned}", **{"pass": record.id})
        self._pods_compared()
        if record.trigger is not Trigger.REQUEST:  # a command measures by itself
            self._node.disk_survey.explain_later(
                record, partial(self._node.listeners.tell, "attributed")
            )

    def parked(self, outcome: Outcome) -> None:
        """A pass continues without waiting for this removal."""
        self.log.warning(
            f"{outcome.verdict.kind} {outcome.verdict.name}: {outcome.error}", id=outcome.verdict.id
        )

    def parked_ended(self, outcome: Outcome) -> None:
        """A parked removal has been answered at last."""
        verdict = outcome.verdict
        took = format_duration(outcome.duration_seconds)
        how = ": ".join(filter(None, (outcome.result or "nothing was sent", outcome.error)))
        self.log.info(
            f"{verdict.kind} {verdict.name}: the parked removal has ended after {took}: {how}",
            id=verdict.id,
        )

    def left_unanswered(self) -> None:
        """At exit: the removals that were sent and are still unanswered after the longest wait."""
        for claim in sent_claims(self._node.world.removals):
            self.log.warning(
                f"leaving while {claim.verdict.kind} {claim.verdict.name} is being removed"
            )

    def _pods_compared(self) -> None:
        """The kubelet's directories were compared with what the runtime holds."""
        doubt = self._node.pods_doubt
        if doubt is None:
            self._throttled_log.resolved(
                "directories", "the kubelet's pod directories are trusted again"
            )
        elif doubt.why not in NO_TROUBLE:
            self._throttled_log.warn(doubt.sentence, key="directories", why=str(doubt.why))

    def attributed(self, record: Pass) -> None:
        """Some seconds after a pass that was not enough: what takes the bytes;
        once per pressure.
        """
        if self._explained:
            return
        self._explained = True
        pressed = {threshold.signal.filesystem for threshold in record.still_met}
        for attribution in record.attributions:
            if pressed.intersection(attribution.filesystems):
                self.log.warning(
                    f"why it was not enough: {attribution_sentence(attribution)}",
                    **{"pass": record.id, "attribution": to_json(attribution)},
                )

    def collection_ended(
        self, loop: PeriodicLoop, result: ReclaimResult, event: GCEvent | None
    ) -> None:
        """How a periodic pass is reported depends on whether the previous one failed."""
        collection = f"{loop.what} garbage collection"
        if event is not None:
            self._event(event)
        self._removals_of(collection, result)
        if not result.error:
            level = Level.INFO if loop.failed else Level.DEBUG
            self.log.event(level, f"{collection} succeeded{' again' if loop.failed else ''}")
        elif loop.what == CONTAINER:
            self._event(
                GCEvent(EventReason.CONTAINER_GC_FAILED, f"{collection} failed: {result.error}")
            )
        elif loop.failed:
            self._event(
                GCEvent(EventReason.IMAGE_GC_FAILED, f"{collection} failed again: {result.error}")
            )
        else:
            self.log.error(
                f"{collection} failed once; statistics may not be there yet: {result.error}"
            )

    def _removals_of(self, collection: str, result: ReclaimResult) -> None:
        removed = 0
        for outcome in result.outcomes:
            removed += outcome.result is Result.REMOVED
            if outcome.result is Result.FAILED:
                verdict = outcome.verdict
                self.log.error(
                    f"{verdict.kind} {verdict.name} could not be removed: {outcome.error}"
                )
        if removed:
            nominal = result.nominal_bytes
            size = f" of nominally {format_bytes(nominal)}" if nominal else ""
            names = explain.names_of_removed(result.outcomes)
            self.log.info(f"{collection}: removed {counted(removed, 'object')}{size}: {names}")

    def runtime_asked(self, problem: str) -> None:
        """After a refresh. `problem`: why the runtime did not answer; empty if it did."""
        # there may never be a way to ask the kubelet, so each message is logged once
        pods_problem = self._node.pods_problem
        if pods_problem != self._pods_problem:
            self._pods_problem = pods_problem
            if pods_problem is not None:
                self.log.warning(pods_problem)
            else:
                self.log.info("the kubelet lists its pods again")
        if problem:
            self._throttled_log.warn(
                f"the container runtime cannot be asked: {problem}", key="runtime"
            )
        else:
            self._throttled_log.resolved("runtime", "the container runtime answers again")
        self._pods_compared()


class Shadow:
    """Logs when something else, such as the kubelet, has removed objects that a dry run would have
    removed: what reclaimd would have done, and how much earlier, before it is allowed to do
    anything. Otherwise the daemon may have removed them itself.
    """

    def __init__(self, node: Node, log: Log) -> None:
        self._node = node
        self._log = log
        # by id; when it would have gone first
        self._planned: dict[str, tuple[Outcome, float]] = {}
        self._asked_at = float("-inf")

    def observed(self, _: SignalObservations, __: Decision) -> None:
        """Forgets everything once the daemon removes things itself."""
        if not self._node.dry_run:
            self._planned = {}

    def passed(self, record: Pass) -> None:
        """Remembers what a dry run would have removed."""
        now = self._node.clock.monotonic()
        for outcome in record.removals if self._node.dry_run else ():
            verdict = outcome.verdict
            if outcome.result is Result.PLANNED and verdict.kind in OF_THE_RUNTIME:
                if len(self._planned) == MOST_REMEMBERED:
                    return
                self._planned.setdefault(verdict.id, (outcome, now))

    def look(self) -> None:
        """Logs which of the objects are gone by now, and forgets them.

        Asks the runtime every 10 s at most. Called on a worker.
        """
        planned = self._planned
        now = self._node.clock.monotonic()
        if not self._node.dry_run or not planned or now - self._asked_at < ASK_EVERY_SECONDS:
            return
        self._asked_at = now
        inventory = self._node.inventory
        try:
            listed = (inventory.images(now), inventory.containers(now), inventory.sandboxes(now))
        except RuntimeUnavailable:
            return
        there = {each.id for objects in listed for each in objects}
        # a copy, as passes are told on another thread
        gone = [planned.pop(object_id) for object_id in list(planned) if object_id not in there]
        if gone:
            shown = explain.names_of_removed((outcome for outcome, _ in gone), Result.PLANNED)
            earliest = format_duration(round(now - min(at for _, at in gone), 1))
            self._log.info(
                f"something else has removed {shown}; reclaimd would have begun {earliest} earlier"
            )
