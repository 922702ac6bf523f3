"""`reclaimd reclaim` without a daemon: the command itself runs one pass, or does
nothing if there is no pressure.

`ask_daemon` runs first: a running daemon does the pass faster.
"""

from __future__ import annotations

import argparse
import threading
from collections.abc import Sequence
from contextlib import closing
from functools import partial

from eviction.cli.options import (
    add_output,
    columns,
    configuration_of,
    mention,
    observe,
    print_answer,
)
from eviction.cli.process import on_signals
from eviction.cli.progress import Progress
from eviction.configuration.effective import Configuration
from eviction.engine.node import DRAIN_SECONDS, Node
from eviction.records.listener import Listener
from eviction.records.passes import Pass
from eviction.surface.pause import PauseFile
from eviction.surface.requests import read_options, respond
from reclaim.types import Outcome
from signals.clock import SystemClock


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_output(parser)
    option, flag = parser.add_argument, partial(parser.add_argument, action="store_true")
    option(
        "--signal",
        metavar="SIGNAL",
        help="run its row whatever the pressure: until it is clear, or all of it",
    )
    option(
        "--until",
        metavar="VALUE",
        help="with --signal: the mark to reach, a quantity or a percentage",
    )
    option("--room", metavar="AMOUNT", help="make so much available, and no more")
    option(
        "--on", metavar="FILESYSTEM", help="with --room: nodefs, imagefs, containerfs or your own"
    )
    flag("--all", help="continue to the end of the row, as the kubelet does")
    flag("--dry-run", help="show what would be removed; remove nothing")
    flag("--now", help="do not hold off shortly after a boot")
    flag("--standalone", help="run the pass in this process; ask no daemon")


LISTENERS_SECONDS = 1.0  # for removals that have ended at last


class _Parked(Listener):
    """Collects the outcomes of parked removals, for the history."""

    def __init__(self, ended: list[Outcome]):
        self._ended = ended

    def parked_ended(self, outcome: Outcome) -> None:
        self._ended.append(outcome)


def run(arguments: argparse.Namespace) -> int:
    """Exit 0 relieved, nothing to do, or the room is there; 1 pressure remains, or room is missing;
    2 usage or configuration; 3 no runtime; 4 no reading; 6 paused.

    Example: reclaimd reclaim --dry-run --signal imagefs.available --until 30%
    """
    configuration = configuration_of(arguments)
    names = ("signal", "until", "room", "on", "all", "dry_run", "now", "output")
    given = {"width": columns(), **{name: getattr(arguments, name) for name in names}}
    options = read_options(given, configuration.signals)
    stopping = threading.Event()
    on_signals(stopping.set)
    ended: list[Outcome] = []
    with closing(Node(configuration, dry_run=options.dry_run, stopping=stopping)) as node:
        node.listeners.add(_Parked(ended))
        if not (options.now or options.dry_run):
            PauseFile(configuration.state_file, node.clock).restore(node)
        if node.endpoint.found:
            mention(node.endpoint.remark)
        problem, observations, decision = observe(node)
        with Progress("reclaiming", lambda: removing(node)):
            answer = respond(options, node, observations, decision=decision, problem=problem)
        with Progress("waiting for removals that were not answered", lambda: removing(node)):
            node.owner.drained(DRAIN_SECONDS)  # leaving would cancel them
        node.listeners.done(LISTENERS_SECONDS)
        if answer.record is not None and not node.dry_run:
            write_history(configuration, answer.record, ended)
    return print_answer(answer)


def write_history(configuration: Configuration, record: Pass, ended: Sequence[Outcome]) -> None:
    """Records the pass and the outcomes of removals that it parked, within 1 s.

    Problems go to stderr.
    """
    # only now, so that relief does not wait for the import
    from eviction.records.history import HistoryRecorder

    problems: list[str] = []
    size_bytes = configuration.history_size_bytes
    history = HistoryRecorder(
        configuration.history_file, size_bytes, SystemClock(), warn=problems.append
    )
    history.passed(record)
    for outcome in ended:
        history.parked_ended(outcome)
    written = history.finish()
    mention(
        "; ".join(problems)
        or "the history is not written: its disk does not answer" * (not written)
    )


def removing(node: Node) -> str:
    """The objects that are being removed now, as text."""
    return ", ".join(
        f"{removal.verdict.kind} {removal.verdict.name}" for removal in node.world.removals.values()
    )
