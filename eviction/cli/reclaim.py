"""`reclaimd reclaim`: the emergency hook. One pass, now; nothing under pressure: nothing is done."""

from __future__ import annotations

import argparse
import threading
import time

from eviction.cli import EXIT_NOT_RELIEVED, EXIT_OK, EXIT_READING, EXIT_RUNTIME
from eviction.cli.check import unreadable
from eviction.cli.options import (
    add_configuration,
    add_output,
    answer_json,
    answer_lines,
    configuration_of,
    leave,
    say,
)
from eviction.cli.termination import block_termination, on_signals
from eviction.configuration import Configuration, Extent
from eviction.explain import pass_lines, signals_table
from eviction.hold_off import HoldOff, kubelet_is_healthy
from eviction.node import Node
from eviction.reclaim_table import row
from eviction.record import Pass, PassResult, Trigger, observations_json, pass_json
from eviction.responder import Request
from eviction.threshold_config import ThresholdConfigError, read_value
from eviction.types import Decision, Threshold
from signals.types import Signal, SignalObservations


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add_configuration(parser)
    add_output(parser)
    parser.add_argument(
        "--signal",
        choices=[str(signal) for signal in Signal],
        metavar="SIGNAL",
        help="act on the row of this signal whatever the pressure: until it is clear; to the end of the row if it is",
    )
    parser.add_argument("--until", metavar="VALUE", help="with --signal: the mark to reach, a quantity or a percentage")
    parser.add_argument("--all", action="store_true", help="go to the end of the row, as the kubelet does")
    parser.add_argument("--dry-run", action="store_true", help="say what would be removed; remove nothing")
    parser.add_argument("--now", action="store_true", help="do not hold off shortly after a boot")


def run(arguments: argparse.Namespace) -> int:
    """Exit 0 relieved or nothing to do, 1 pressure remains, 3 runtime unreachable, 4 reading unavailable."""
    configuration = configuration_of(arguments)
    until = _until(arguments)
    block_termination()
    stopping = threading.Event()
    on_signals(stopping.set)
    node = Node(configuration, dry_run=arguments.dry_run, stopping=stopping)
    if node.endpoint.found:
        say(f"reclaimd: no endpoint configured; using {node.endpoint.runtime}")
    forgotten = node.remember()
    if forgotten:
        say(f"reclaimd: {forgotten}")
    problem = node.locate()
    observations, decision = node.responder.look()
    if not observations.signals:
        leave(EXIT_READING, "; ".join(u.reason for u in observations.unavailable) or "no filesystem could be read")
    request = _request(arguments, observations, decision, until)
    if problem is not None:
        leave(EXIT_RUNTIME, f"the container runtime cannot be reached: {problem}")
    blind = unreadable(observations, node.thresholds(observations.layout))
    if request is None and decision.acted_on is None and blind:
        leave(EXIT_READING, "; ".join(dict.fromkeys(u.reason for u in observations.unavailable)))
    if request is None and decision.acted_on is None:
        return _nothing_to_do(arguments, node, observations, decision)
    held = _held_off(arguments, configuration)
    if held is not None:
        leave(EXIT_NOT_RELIEVED, f"held off: {held} (--now acts all the same)")
    record = node.whereabouts.attributed(node.responder.act(observations, decision, Trigger.REQUEST, request))
    _print(arguments, record)
    node.close()
    return exit_code(record)


def exit_code(record: Pass) -> int:
    """What the result of a pass is to a script."""
    match record.result:
        case PassResult.SATISFIED | PassResult.DRY_RUN | PassResult.IDLE:
            return EXIT_OK
        case PassResult.NOT_ENOUGH:
            return EXIT_NOT_RELIEVED
        case PassResult.FAILED:
            return EXIT_RUNTIME


def _until(arguments: argparse.Namespace) -> Threshold | None:
    if arguments.until is None:
        return None
    if arguments.signal is None:
        leave(2, "--until sets the mark of the signal named by --signal, and that is missing")
    try:
        value = read_value("--until", arguments.signal, arguments.until)
    except ThresholdConfigError as error:
        leave(2, str(error))
    return Threshold(Signal(arguments.signal), value, origin="--until")


def _request(
    arguments: argparse.Namespace, observations: SignalObservations, decision: Decision, until: Threshold | None
) -> Request | None:
    """What was asked for beyond what the signals say; None: only they count."""
    extent = Extent.ALL if arguments.all else None
    if arguments.signal is None:
        return None if extent is None or decision.acted_on is None else Request(extent=extent)
    signal = Signal(arguments.signal)
    if observations.layout is None:
        return Request(row=())
    if until is None and extent is None and all(t.signal is not signal for t in decision.thresholds_met):
        extent = Extent.ALL  # asked for although it is clear: no mark says where to stop
    return Request(row(signal, observations.layout), None if until is None else (until,), extent)


def _held_off(arguments: argparse.Namespace, configuration: Configuration) -> str | None:
    """After a boot everything looks dead; a dry run and an explicit `--now` are not held off."""
    if arguments.now or arguments.dry_run:
        return None

    def since_boot() -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    return HoldOff(configuration.hold_off_seconds, 0.0, since_boot, kubelet_is_healthy).why()


def _nothing_to_do(
    arguments: argparse.Namespace, node: Node, observations: SignalObservations, decision: Decision
) -> int:
    sentence = "nothing is under pressure; nothing was done"
    if arguments.output == "json":
        answer_json(
            {
                "result": str(PassResult.IDLE),
                "reason": sentence,
                "removals": [],
                "observations": observations_json(observations),
                "layout": None if decision.layout is None else str(decision.layout),
            }
        )
    else:
        answer_lines([*signals_table(observations, node.thresholds(observations.layout)), sentence])
    return EXIT_OK


def _print(arguments: argparse.Namespace, record: Pass) -> None:
    if arguments.output == "json":
        answer_json(pass_json(record))
    else:
        answer_lines(pass_lines(record))
