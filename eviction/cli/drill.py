"""`reclaimd drill`: a test of eviction paths on an embedded node."""

from __future__ import annotations

import argparse
import io
import sys
import time
from collections.abc import Callable

from eviction.cli import EXIT_NOT_RELIEVED, EXIT_OK, EXIT_USAGE
from eviction.cli.options import add_logging, add_output, answer_json, answer_lines, leave, log_of, say
from eviction.drill.scenario import Scenario, ScenarioError, find_scenario, library, read_scenario
from eviction.log import Log
from reclaim.embedded.filesystem import EmbeddedNodeError, enter_private_mounts
from signals.quantity import format_bytes
from signals.types import FilesystemRole, SignalObservations

DEFAULT = "pressured-node"
BAR = 40


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("scenario", nargs="?", default=DEFAULT, help=f"a name or a file (default {DEFAULT})")
    parser.add_argument("--list", action="store_true", help="name the built-in scenarios, and why each is there")
    parser.add_argument("--report", metavar="DIR", default="report", help="where the report is written (report)")
    add_output(parser)
    add_logging(parser)


def run(arguments: argparse.Namespace) -> int:
    """Exit 0 everything held, 1 not, 2 the scenario is refused."""
    try:
        if arguments.list:
            answer_lines(f"{name:24} {read_scenario(path).why}" for name, path in library().items())
            return EXIT_OK
        scenario = find_scenario(arguments.scenario)
    except ScenarioError as error:
        leave(EXIT_USAGE, str(error))
    mounts = enter_private_mounts()  # before the first thread: see there
    # Imported late: these bring gRPC, and with it threads.
    from eviction.drill.embedded_node import EmbeddedDrillNode
    from eviction.drill.report import result_json, verdict_lines, write_report
    from eviction.drill.run import Drill
    from eviction.explain import outcomes_table, pass_lines

    tell = say if arguments.output == "json" else _tell
    tell(f"{scenario.name}: {scenario.why}")
    try:
        with EmbeddedDrillNode(scenario, mounts) as embedded:
            screen = _Screen(scenario, tell)
            for line in _head(scenario, embedded.describe()):
                tell(line)
            drill = Drill(
                scenario,
                embedded,
                log_of(arguments) if arguments.verbosity else Log(time.time, stream=io.StringIO()),
                lambda record: screen.lines(["", *pass_lines(record, with_kept=False)]),
                screen.progress,
            )
            result = drill.run()
            screen.end()
    except EmbeddedNodeError as error:
        leave(EXIT_NOT_RELIEVED, str(error))
    if arguments.output == "json":
        answer_json(result_json(result))
    else:
        kept = {o.verdict.id: o for record in result.passes for o in record.kept}
        gone = {o.verdict.id for record in result.passes for o in record.removals}
        answer_lines(["", "what stayed, and why:", *outcomes_table(o for i, o in kept.items() if i not in gone)])
        answer_lines(["", *verdict_lines(result)])
    try:
        tell(f"report: {write_report(result, arguments.report)}")
    except OSError as error:
        say(f"the report could not be written: {error}")
    return EXIT_OK if result.held else EXIT_NOT_RELIEVED


def _head(scenario: Scenario, filesystem: str) -> list[str]:
    pressure = scenario.pressure
    images = sum(image.count for image in scenario.images)
    rate = f"{pressure.rate} files" if pressure.inodes else format_bytes(pressure.rate)
    amount = f"{pressure.amount} files" if pressure.inodes else format_bytes(pressure.amount)
    return [
        f"  filesystem  {format_bytes(scenario.size_bytes)}, {scenario.inodes} inodes; {filesystem}",
        f"  runtime     embedded, CRI v1 over a unix socket; {images} images, {len(scenario.pods)} pods",
        f"  thresholds  {', '.join(f'{signal}<{value}' for signal, value in scenario.eviction_hard.items())}",
        "  periodic GC off, image GC high threshold 100: only pressure reclaims here",
        f"  pressure    a process writes {amount} at {rate} a second",
    ]


def _tell(line: str) -> None:
    """The story of a drill is its data: on stdout, in order with the tables."""
    print(line, flush=True)  # noqa: T201 # data on stdout


class _Screen:
    """Progress on one line of a terminal; lines that stay everywhere."""

    def __init__(self, scenario: Scenario, tell: Callable[[str], None]):
        self._tell = tell
        self._live = sys.stderr.isatty()
        self._inodes = scenario.pressure.inodes

    def progress(self, seconds: float, look: SignalObservations) -> None:
        found = look.filesystems.get(FilesystemRole.NODEFS)
        if not self._live or found is None:
            return
        stats = found[1]
        free, total = (
            (stats.inodes_free, stats.inodes_total) if self._inodes else (stats.available_bytes, stats.capacity_bytes)
        )
        full = BAR - free * BAR // max(total, 1)
        shown = f"{free} inodes" if self._inodes else format_bytes(free)
        print(  # noqa: T201 # progress, on a terminal only
            f"\r\x1b[K  {seconds:5.1f} s  [{'█' * full}{'·' * (BAR - full)}]  {shown} available",
            end="",
            file=sys.stderr,
            flush=True,
        )

    def lines(self, lines: list[str]) -> None:
        self.end()
        for line in lines:
            self._tell(line)

    def end(self) -> None:
        if self._live:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)  # noqa: T201 # clears the progress line
