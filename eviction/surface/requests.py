"""One pass on request (`reclaimd reclaim`), run by the daemon or by the command itself with the
same answer, and the daemon's queue of such requests.

The daemon runs one pass at a time on each filesystem, and its own go first, so a request that
arrives during a pass waits, at most 30 s; at most four wait. A dry run waits for other dry runs
only. The client gets a line at once, then a heartbeat of one line a second, and the result when
the pass has ended. A client that disconnects before its turn is removed from the queue; a pass
that has begun is finished.

The pass itself is in `engine.relief`.
"""

from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field, replace

from eviction.configuration.fingerprint import Fingerprint
from eviction.configuration.threshold_config import read_mark
from eviction.decision.synchronize import EvictionConfig
from eviction.decision.thresholds import highest_mark, unreadable, usable
from eviction.engine.effects import PassWanted, Request
from eviction.engine.hold_off import held_off_since_boot
from eviction.engine.node import Node
from eviction.exit_codes import (
    EXIT_NOT_RELIEVED,
    EXIT_OK,
    EXIT_PAUSED,
    EXIT_READING,
    EXIT_RUNTIME,
    EXIT_USAGE,
)
from eviction.records.json_shapes import LEFT_OUT, observations_json, to_json
from eviction.records.pass_json import NothingToDo, Room, pass_json, room_of
from eviction.records.passes import Pass, PassResult, Trigger
from eviction.surface import answer as answers
from eviction.surface.answer import Answer, HeldRoom, OptionRefused, Output
from eviction.types import Decision, Extent, Fields, Json, Threshold
from eviction.wording.explain import amount, pass_lines, signals_table
from reclaim.workers import NoThread, Workers
from signals.types import AVAILABLE, KUBELET_SIGNALS, FilesystemRole, Signal, SignalObservations

LEAST_BYTES = 1 << 20  # less was meant to have another unit
MOST_WAITING = 4
REQUEST_THREADS = 6  # for those that wait, a pass and a dry run
TURN_SECONDS = 30.0  # a request is refused if its turn has not come by then
HEARTBEAT_SECONDS = 1.0


class WrongOption(OptionRefused):
    """An option has a wrong value, whoever would do the work."""


@dataclass(frozen=True)
class ReclaimOptions(Output):
    """The options of the command."""

    signal: Signal | None = None
    """Its row is called whatever the pressure."""
    until: Threshold | None = None
    """The mark to reach for the signal."""
    all: bool = False
    """Do not stop early."""
    dry_run: bool = False
    now: bool = False
    """Skip the hold-off."""
    room: str | None = None
    """The amount to make available, which is the mark then."""
    on: str | None = None
    """The filesystem of that, whose signal is meant then."""


def read_options(given: Fields, signals: Sequence[Signal] = KUBELET_SIGNALS) -> ReclaimOptions:
    """The options, from their names on the command line (`-` as `_`). `signals`:
    those that the node can have.

    Raises OptionRefused, with one sentence.
    """
    name = given.get("signal")
    until = given.get("until")
    room = given.get("room")
    on = given.get("on")
    flag = "--until"
    if room is not None or on is not None:
        filesystems = tuple(dict.fromkeys(signal.filesystem for signal in signals))
        if not isinstance(room, str):
            raise WrongOption("--on goes with --room AMOUNT, which is missing")
        if on not in filesystems:
            was = "is missing" if on is None else f"was {on!r}"
            raise WrongOption(f"--on: must be one of {', '.join(filesystems)}, but it {was}")
        if name or until or given.get("all"):
            raise WrongOption(
                "--room says what to reach, so --signal, --until and --all do not go with it"
            )
        name = f"{on}.{AVAILABLE}"
        until = room
        flag = "--room"
    if name is not None and name not in signals:
        raise WrongOption(f"--signal: {name!r} is none of {', '.join(signals)}")
    signal = None if name is None else Signal(name)
    mark = None
    if until is not None:
        if signal is None:
            raise WrongOption(
                "--until sets the mark of the signal named by --signal, and that is missing"
            )
        try:
            mark = Threshold(signal, read_mark(until), origin=flag)
        except ValueError as error:
            raise WrongOption(f"{flag}: {error}") from None
        if signal.endswith(AVAILABLE) and (mark.value.quantity or LEAST_BYTES) < LEAST_BYTES:
            raise WrongOption(f"{flag}: must be a percentage or at least 1Mi, but it was {until!r}")
    return answers.read_options(
        ReclaimOptions, "reclaim", {**given, "signal": signal, "until": mark}
    )


def respond(
    options: ReclaimOptions,
    node: Node,
    problem: str = "",
    *,
    wanted: Callable[[PassWanted], None] = lambda _: None,
) -> Answer:
    """Looks at the node and runs the request. `problem`: why the runtime cannot be reached; empty
    if it can. `wanted`: told of the pass that it waits for."""
    observations, decision = node.look()
    unavailable = "; ".join(dict.fromkeys(each.reason for each in observations.unavailable))
    if not observations.signals:
        return Answer(EXIT_READING, unavailable or "no filesystem could be read")
    room = _room(options, node, observations)
    if room is not None and not room.missing:
        return _nothing_to_do(options, node, observations, room=room)
    if problem:
        return Answer(EXIT_RUNTIME, f"the container runtime cannot be reached: {problem}")
    if options.room and room is None:
        return Answer(EXIT_READING, unavailable or f"{options.signal} cannot be read")
    request = request_of(options, observations, decision, config=node.world.config)
    if request is None and decision.acted_on is None:
        if unreadable(observations, node.thresholds(observations.layout)):
            return Answer(EXIT_READING, unavailable)
        return _nothing_to_do(options, node, observations)
    if not (options.now or options.dry_run) and (held := _held_off(node)) is not None:
        return held
    request = (request or Request())._replace(now=options.now, dry_run=options.dry_run)
    asked = node.want(
        observations, decision, Trigger.REQUEST, request=request, signal=options.signal
    )
    wanted(asked)
    node.owner.until(asked.record.done)
    record = asked.record.result()
    if record is None:
        return respond(options, node, wanted=wanted)
    return _answer(options, node, node.disk_survey.with_attribution(record))


def _answer(options: ReclaimOptions, node: Node, record: Pass) -> Answer:
    code = exit_code(record)
    document = pass_json(record)
    sentence = ""
    if node.pods_problem is not None:
        sentence = f"the states of pods are from the kubelet's directories: {node.pods_problem}"
    lines = pass_lines(record, width=options.width)
    after = record.after
    held = None
    if options.room:
        planned = record.removals if options.dry_run else ()
        room = _room(
            options,
            node,
            after,
            promised=sum(outcome.verdict.promised_bytes for outcome in planned),
        )
        if room is None:
            code = EXIT_READING
        else:
            document = replace(document, room=room)
            lines.append(room.sentence)
            code = max(code, EXIT_NOT_RELIEVED) if room.missing else EXIT_OK
            held = None if room.missing or options.dry_run else held_room(room, after)
    if options.as_json:
        return Answer(code, sentence, document=to_json(document), record=record, room=held)
    return Answer(code, sentence, lines=tuple(lines), record=record, room=held)


def held_room(room: Room, observations: SignalObservations) -> HeldRoom:
    """What can be held of a room that is there."""
    seen = observations.filesystems[FilesystemRole(room.filesystem)]
    spare = min(max(room.available - room.kept_free, 0), room.asked)
    return HeldRoom(seen[0].path, spare, room.asked)


def _room(
    options: ReclaimOptions, node: Node, observations: SignalObservations, *, promised: int = 0
) -> Room | None:
    """The room that there is, or would be with what a dry run promises; None without a reading, or
    if no room was asked for."""
    signal = options.signal
    until = options.until
    if not options.room or signal is None or until is None:
        return None
    seen = usable(observations.signals).get(signal)
    if seen is None:
        return None
    return room_of(
        signal.filesystem,
        until.mark(seen.capacity),
        seen.available + promised,
        kept_free=highest_mark(
            node.thresholds(observations.layout), observations, signal.filesystem
        ),
        dry_run=options.dry_run,
    )


def request_of(
    options: ReclaimOptions,
    observations: SignalObservations,
    decision: Decision,
    *,
    config: EvictionConfig,
) -> Request | None:
    """What the pass is asked for; None: a pass as the signals and the configuration decide. Raises
    WrongOption for a mark beyond the capacity: a wrong unit would cost everything that may go."""
    until = options.until
    if until is not None and (seen := observations.signals.get(until.signal)) is not None:
        has = f"the {amount(until.signal, seen.capacity)} that {until.signal.filesystem} has"
        if until.mark(seen.capacity) > seen.capacity:
            raise WrongOption(f"{until.origin}: must be at most {has}, but it was {until.text()}")
    extent = Extent.ALL if options.all else None
    if options.signal is None:
        return None if extent is None or decision.acted_on is None else Request(extent=extent)
    if observations.layout is None and options.signal.filesystem.kubelets:
        return Request(row=())
    met = {threshold.signal for threshold in decision.thresholds_met}
    if options.room:
        extent = Extent.ENOUGH
    elif options.until is None and options.signal not in met:
        extent = Extent.ALL  # there is no mark at which to stop
    return Request(
        config.row(options.signal, observations), None if until is None else (until,), extent
    )


def exit_code(record: Pass) -> int:
    """The exit code for the result of a pass. A dry run that could not read everything has no
    complete answer, and exits as if the runtime were unreachable."""
    incomplete = record.result is PassResult.DRY_RUN and (record.errors or record.failures)
    if incomplete or record.result is PassResult.FAILED:
        return EXIT_RUNTIME
    return EXIT_NOT_RELIEVED if record.result is PassResult.NOT_ENOUGH else EXIT_OK


def _held_off(node: Node) -> Answer | None:
    """Why nothing may be removed: a pause of the daemon, or a recent boot."""
    configuration = node.configuration
    paused = node.present.paused()
    why = paused or held_off_since_boot(
        configuration.hold_off_seconds, configuration.kubelet_healthz
    )
    if not why:
        return None
    code = EXIT_PAUSED if paused else EXIT_NOT_RELIEVED
    return Answer(code, f"held off: {why} (--now skips the hold-off)")


def _nothing_to_do(
    options: ReclaimOptions,
    node: Node,
    observations: SignalObservations,
    *,
    room: Room | None = None,
) -> Answer:
    sentence = "nothing is under pressure; nothing was done" if room is None else room.sentence
    held = None if room is None else held_room(room, observations)
    if not options.as_json:
        lines = signals_table(observations, node.thresholds(observations.layout), options.width)
        return Answer(EXIT_OK, lines=(*lines, sentence), room=held)
    nothing = NothingToDo(
        reason=sentence,
        observations=observations_json(observations),
        layout=observations.layout,
        room=room or LEFT_OUT,
    )
    return Answer(EXIT_OK, document=to_json(nothing), room=held)


@dataclass(eq=False)
class Requests:
    """The requests of a daemon's clients. Any thread may call."""

    node: Node
    doing: Callable[[], str | None]
    """What the daemon is doing now, in words; None if nothing."""
    turn_seconds: float = TURN_SECONDS
    threads: Workers = field(default_factory=lambda: Workers("requests", REQUEST_THREADS))

    def respond(self, options: ReclaimOptions, wanted: Callable[[PassWanted], None]) -> Answer:
        """The answer, once the pass has ended."""
        return respond(options, self.node, wanted=wanted)

    def converse(self, request: Fields, loaded: Fingerprint) -> Generator[Json, None, None]:
        """The JSON lines of the answer. `loaded`: the daemon's configuration, which must be the
        client's too. Raises OptionRefused for what the command may do by itself."""
        node = self.node
        given = answers.options_of_client(request, loaded, node)
        if node.stopping.is_set():
            raise OptionRefused("it is stopping")
        if len(node.world.wanted) >= MOST_WAITING:
            raise OptionRefused(f"{MOST_WAITING} requests are waiting already")
        answer: Future[Answer] = Future()
        wanted: list[PassWanted] = []

        def serve() -> None:
            try:
                answer.set_result(
                    self.respond(read_options(given, node.configuration.signals), wanted.append)
                )
            except WrongOption as error:
                answer.set_result(Answer(EXIT_USAGE, str(error)))
            except Exception as error:  # noqa: BLE001 # raised where the client is answered
                answer.set_exception(error)

        try:
            self.threads.run(serve)
        except NoThread:
            raise OptionRefused("no thread is free for its pass") from None
        waited = 0.0
        try:
            while True:
                busy = self.doing()
                yield {"accepted": True, "busy": busy}
                if wait([answer], HEARTBEAT_SECONDS).done:
                    break
                waited += HEARTBEAT_SECONDS
                if waited >= self.turn_seconds and any(map(node.withdraw, wanted)):
                    raise OptionRefused(
                        f"its turn did not come within {self.turn_seconds:g} s: it is"
                        f" {busy or 'busy'}"
                    )
            yield answer.result().line()
        finally:
            if not answer.done():
                any(map(node.withdraw, wanted))
