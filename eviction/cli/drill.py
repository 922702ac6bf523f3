"""`reclaimd drill`: a test of eviction paths on an embedded node."""

from __future__ import annotations

import argparse
import io
import signal
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from eviction.cli import EXIT_NOT_RELIEVED, EXIT_OK, EXIT_USAGE
from eviction.cli.options import add_logging, add_output, answer_json, answer_lines, columns, folded, leave, log_of, say
from eviction.cli.progress import StatusLine
from eviction.drill.library import find_scenario, library
from eviction.drill.scenario import read_scenario
from eviction.drill.texts import ScenarioError
from eviction.drill.types import Scenario
from eviction.log import Log
from reclaim.embedded.filesystem import EmbeddedNodeError, PrivateMounts, enter_private_mounts
from reclaim.types import RuntimeUnavailable
from signals.quantity import format_bytes
from signals.types import FilesystemRole, SignalObservations

if TYPE_CHECKING:
    from eviction.drill.run import DrillResult  # at run time imported late, with what it brings

DEFAULT = "pressured-node"
COMPARE = "compare"
BAR = 40


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument(
        "scenario",
        nargs="*",
        default=[DEFAULT],
        help=f"names or files (default {DEFAULT}); or: {COMPARE} A.json B.json",
    )
    parser.add_argument("--all", action="store_true", help="run every built-in scenario")
    parser.add_argument("--list", action="store_true", help="name the built-in scenarios, and why each is there")
    parser.add_argument("--check", metavar="FILE", help="read a scenario and say whether it can be used; run nothing")
    parser.add_argument("--report", metavar="DIR", default="report", help="where the reports are written (report)")
    add_output(parser)
    add_logging(parser)


def run(arguments: argparse.Namespace) -> int:
    """Exit 0 everything held, 1 not, 2 a scenario or a report is refused."""
    words: list[str] = arguments.scenario
    if words[0] == COMPARE:
        return compare(words[1:], arguments)
    try:
        if arguments.list:
            answer_lines(f"{name:24} {read_scenario(path).why}" for name, path in library().items())
            return EXIT_OK
        if arguments.check is not None:
            scenario = read_scenario(arguments.check)
            answer_lines([f"{arguments.check}: the scenario {scenario.name} can be used"])
            return EXIT_OK
        scenarios = [find_scenario(name) for name in (library() if arguments.all else words)]
    except ScenarioError as error:
        leave(EXIT_USAGE, str(error))
    if len(scenarios) > 1 and arguments.output == "json":
        leave(EXIT_USAGE, "-o json prints one document, so it takes one scenario; the reports of several are files")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: what was made is taken away again
    mounts = enter_private_mounts()  # before the first thread: see there
    held = [_drill(scenario, mounts, arguments) for scenario in scenarios]
    if len(held) > 1:
        answer_lines(["", f"{sum(held)} of {len(held)} scenarios held"])
    return EXIT_OK if all(held) else EXIT_NOT_RELIEVED


def compare(paths: Sequence[str], arguments: argparse.Namespace) -> int:
    """Two reports laid over each other: a table, and a page. Exit 2 for what is no report."""
    from eviction.drill.compare import comparison_table, write_comparison
    from eviction.drill.document import ReportError, read_report

    if len(paths) != 2:
        leave(EXIT_USAGE, f"{COMPARE} takes two reports, A.json and B.json, but was given {len(paths)}")
    try:
        first, second = (read_report(path) for path in paths)
        lines = comparison_table(first, second)
        page = write_comparison(first, second, arguments.report)
    except ReportError as error:
        leave(EXIT_USAGE, str(error))
    except OSError as error:
        leave(EXIT_USAGE, f"the comparison could not be written: {error}")
    answer_lines(lines)
    say(f"comparison: {page}")
    return EXIT_OK


def _drill(scenario: Scenario, mounts: PrivateMounts, arguments: argparse.Namespace) -> bool:
    """One scenario from its head to its report; whether everything held."""
    # Imported late: these bring gRPC, and with it threads.
    from eviction.drill.embedded_node import EmbeddedDrillNode
    from eviction.drill.report import result_json
    from eviction.drill.run import Drill
    from eviction.explain import pass_lines

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
                lambda record: screen.lines(["", *pass_lines(record, with_kept=False, width=columns())]),
                screen.progress,
            )
            result = drill.run()
            screen.end()
    except (EmbeddedNodeError, RuntimeUnavailable) as error:
        leave(EXIT_NOT_RELIEVED, str(error))
    document = result_json(result)
    if arguments.output == "json":
        answer_json(document)
    else:
        _say_verdict(result)
    _write(document, arguments.report, tell)
    return result.held


def _say_verdict(result: DrillResult) -> None:
    """What stayed and why, then every expectation."""
    from eviction.drill.report import verdict_lines
    from eviction.explain import outcomes_table

    passes = [one.record for one in result.seen.passes]
    kept = {o.verdict.id: o for record in passes for o in record.kept}
    gone = {o.verdict.id for record in passes for o in record.removals}
    left = outcomes_table((o for i, o in kept.items() if i not in gone), columns())
    if left:
        answer_lines(["", "what stayed, and why:", *left])
    answer_lines(["", *verdict_lines(result)])


def _write(document: dict[str, Any], directory: str, tell: Callable[[str], None]) -> None:
    from eviction.drill.written import write_reports

    try:
        tell(f"report: {', '.join(write_reports(document, directory))}")
    except OSError as error:
        say(f"the report could not be written: {error}")


def _head(scenario: Scenario, filesystem: str) -> list[str]:
    from eviction.drill.faults import words_of as words_of_fault
    from eviction.drill.pressure import words_of

    node = scenario.node
    sizes = [
        f"{role} of {format_bytes(spec.size_bytes)} and {spec.inodes} inodes" for role, spec in node.filesystems.items()
    ]
    images, pods = sum(image.count for image in node.images), sum(pod.count for pod in node.pods)
    marks = [
        f"{signal}<{value}"
        for name in ("evictionHard", "evictionSoft")
        for signal, value in node.configuration[name].items()
        if value != "0%"
    ]
    collectors = f"; {node.collectors} collectors" if node.collectors > 1 else ""
    return [
        f"  filesystem  {', '.join(sizes)} (layout {node.layout}); {filesystem}",
        f"  runtime     embedded, CRI v1 over a unix socket; {images} images, {pods} pods{collectors}",
        f"  thresholds  {', '.join(marks)}",
        *(f"  pressure    {words_of(pressure)}" for pressure in scenario.pressures),
        *(f"  fault       {words_of_fault(fault)}" for fault in scenario.faults),
    ]


def _tell(line: str) -> None:
    """The story of a drill is its data: on stdout, in order with the tables."""
    for part in folded([line], columns()):
        print(part, flush=True)  # noqa: T201 # data on stdout


class _Screen:
    """Progress on one line of a terminal; lines that stay everywhere."""

    def __init__(self, scenario: Scenario, tell: Callable[[str], None]):
        self._tell = tell
        self._line = StatusLine()
        first = scenario.pressures[0]
        self._inodes = first.counts_inodes
        self._role = scenario.node.role(first.where)

    def progress(self, seconds: float, look: SignalObservations) -> None:
        found = look.filesystems.get(self._role) or look.filesystems.get(FilesystemRole.NODEFS)
        if found is None:
            return
        stats = found[1]
        free, total = (
            (stats.inodes_free, stats.inodes_total) if self._inodes else (stats.available_bytes, stats.capacity_bytes)
        )
        full = BAR - free * BAR // max(total, 1)
        shown = f"{free} inodes" if self._inodes else format_bytes(free)
        self._line.rewrite(f"{seconds:5.1f} s  [{'█' * full}{'·' * (BAR - full)}]  {shown} available")

    def lines(self, lines: list[str]) -> None:
        self.end()
        for line in lines:
            self._tell(line)

    def end(self) -> None:
        self._line.erase()
