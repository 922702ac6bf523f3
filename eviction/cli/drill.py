"""`reclaimd drill`: a test of eviction paths. This module has the options, the drill on the embedded node, and
`compare`.

A real node is observed and filled by `drill_real`.
"""

from __future__ import annotations

import argparse
import signal
from collections.abc import Sequence
from typing import TYPE_CHECKING

from eviction.cli.drill_output import ProgressDisplay, answer_result, drill_log, shown_by
from eviction.cli.options import (
    add_configuration,
    add_logging,
    add_output,
    answer_lines,
    columns,
    configuration_flags,
    exit_with,
    print_words,
)
from eviction.drill.runtime.private_mounts import EmbeddedNodeError, PrivateMounts, enter_private_mounts, missing_extra
from eviction.drill.scenario import (
    ON_LOOP_DEVICES,
    FilesystemType,
    Scenario,
    ScenarioError,
    find_scenario,
    library,
    on_filesystems,
    read_scenario,
)
from eviction.exit_codes import EXIT_NOT_RELIEVED, EXIT_OK, EXIT_USAGE
from reclaim.types import RuntimeUnavailable
from signals.quantity import counted, format_bytes

if TYPE_CHECKING:
    from eviction.drill.judgement.judge import DrillResult  # not imported at run time: it imports gRPC

DEFAULT = "pressured-node"
COMPARE = "compare"
QUIET = "1m"
REAL_NODE_OPTIONS = ("config", "config-dir", "yes", "allow-other-data", "with-margin", "name", "for", "quiet")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    what = f"names or files (default {DEFAULT}); or: {COMPARE} A.json B.json"
    parser.add_argument("scenario", nargs="*", default=[], help=what)
    parser.add_argument("--all", action="store_true", help="run every built-in scenario")
    parser.add_argument("--list", action="store_true", help="list the built-in scenarios with their reasons")
    parser.add_argument("--check", metavar="FILE", help="check a scenario file without running it")
    parser.add_argument("--report", metavar="DIR", default="report", help="where the reports are written (report)")
    parser.add_argument(
        "--filesystem-type",
        metavar="TYPE",
        choices=[FilesystemType.TMPFS, *ON_LOOP_DEVICES],
        help="of the embedded node instead of tmpfs: ext4, xfs or btrfs on loop devices, as root",
    )
    _add_real_node(parser)
    add_configuration(parser)
    add_output(parser)
    add_logging(parser)


def _add_real_node(parser: argparse.ArgumentParser) -> None:
    """The options of a drill on a real node."""
    parser.add_argument(
        "--observe", action="store_true", help="measure only, change nothing: another component relieves the node"
    )
    parser.add_argument(
        "--runtime",
        metavar="ENDPOINT",
        dest="container_runtime_endpoint",
        help="the real runtime: unix:///path/to.sock",
    )
    parser.add_argument("--fill", metavar="DIR", help="run one scenario on a real node: files in DIR make its pressure")
    parser.add_argument("--yes", action="store_true", help="do not ask before the node is filled")
    parser.add_argument(
        "--allow-other-data", action="store_true", help="fill a filesystem that also holds foreign data"
    )
    parser.add_argument("--name", help="what the report of an observation calls it (node)")
    parser.add_argument("--for", metavar="DURATION", help="observe for this long at most")
    parser.add_argument(
        "--quiet", metavar="DURATION", help=f"end when relieved and quiet for this long (observing: {QUIET})"
    )
    parser.add_argument(
        "--with-margin",
        action="store_true",
        help="observe the marks of a reclaimd with this configuration, not the kubelet's own",
    )


def run(arguments: argparse.Namespace) -> int:
    """Runs the command. Exit 0: everything held; 1: not; 2: a scenario or a report is refused, or the extra `drill` is
    not installed."""
    words: list[str] = arguments.scenario
    if words[:1] == [COMPARE]:
        return compare(words[1:], arguments)
    if arguments.observe and arguments.fill is None:
        if words or arguments.all or arguments.list or arguments.check is not None:
            exit_with(EXIT_USAGE, "--observe takes a scenario only together with --fill; alone it only measures")
        from eviction.cli.drill_real import observe

        return observe(arguments)
    if arguments.fill is None:
        _refuse_real_node_options(arguments)
    try:
        if arguments.list:
            answer_lines(f"{name:24} {read_scenario(path).why}" for name, path in library().items())
            return EXIT_OK
        if arguments.check is not None:
            scenario = read_scenario(arguments.check)
            answer_lines([f"{arguments.check}: the scenario {scenario.name} can be used"])
            return EXIT_OK
        scenarios = [_scenario(name, arguments) for name in (library() if arguments.all else words or [DEFAULT])]
    except ScenarioError as error:
        exit_with(EXIT_USAGE, str(error))
    if len(scenarios) > 1 and arguments.output == "json":
        exit_with(EXIT_USAGE, "-o json prints one document, so it takes one scenario; the reports of several are files")
    if arguments.fill is not None:
        if len(scenarios) != 1 or arguments.container_runtime_endpoint is None:
            exit_with(EXIT_USAGE, "--fill takes one scenario, and --runtime names the runtime; nothing was changed")
        if arguments.name is not None:
            exit_with(EXIT_USAGE, "--name is for --observe alone; with --fill the report has the scenario's name")
        from eviction.cli.drill_real import fill

        return fill(scenarios[0], arguments)
    return _drill_embedded(scenarios, arguments)


def _scenario(name: str, arguments: argparse.Namespace) -> Scenario:
    """A built-in scenario or that of a file, on the type of filesystem that is asked for. Raises ScenarioError."""
    scenario = find_scenario(name)
    if arguments.filesystem_type is None:
        return scenario
    if arguments.fill is not None:
        raise ScenarioError("--filesystem-type is for the embedded node; --fill uses the filesystem of its directory")
    return on_filesystems(scenario, FilesystemType(arguments.filesystem_type))


def _drill_embedded(scenarios: Sequence[Scenario], arguments: argparse.Namespace) -> int:
    """Runs each scenario on an embedded node of its own. Exits with 2 if the extra `drill` is not installed."""
    if (missing := missing_extra()) is not None:
        exit_with(EXIT_USAGE, missing)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: the node is removed again
    mounts = enter_private_mounts()  # must be called before the first thread starts
    held = [_drill(scenario, mounts, arguments) for scenario in scenarios]
    if len(held) > 1:
        answer_lines(["", f"{sum(held)} of {len(held)} scenarios held"])
    return EXIT_OK if all(held) else EXIT_NOT_RELIEVED


def _refuse_real_node_options(arguments: argparse.Namespace) -> None:
    """Exits with 2 if an option is given that only a real node has: the scenario configures the embedded node."""
    given = [f"--{name}" for name, value in configuration_flags(arguments).items() if value is not None]
    given += [f"--{name}" for name in REAL_NODE_OPTIONS if vars(arguments)[name.replace("-", "_")]]
    if given:
        exit_with(
            EXIT_USAGE, f"{', '.join(given)}: not allowed on the embedded node; --fill or --observe choose a real one"
        )


def compare(paths: Sequence[str], arguments: argparse.Namespace) -> int:
    """Compares two reports: a table, a page and a picture. Exit 2 if a file is not a report."""
    from eviction.drill.report.compare import comparison_table
    from eviction.drill.report.document import ReportError, read_report
    from eviction.drill.report.write import write_comparison

    if len(paths) != 2:
        exit_with(EXIT_USAGE, f"{COMPARE} takes two reports, A.json and B.json, but was given {len(paths)}")
    try:
        first, second = (read_report(path) for path in paths)
        lines = comparison_table(first, second, columns())
        paths_written = write_comparison(first, second, arguments.report)
    except ReportError as error:
        exit_with(EXIT_USAGE, str(error))
    except OSError as error:
        exit_with(EXIT_USAGE, f"the comparison could not be written: {error}")
    answer_lines(lines)
    print_words(f"comparison: {', '.join(paths_written)}")
    return EXIT_OK


def _drill(scenario: Scenario, mounts: PrivateMounts, arguments: argparse.Namespace) -> bool:
    """Runs one scenario and writes its report. True if everything held."""
    # Imported here: these import grpcio, which starts threads.
    from eviction.drill.node.embedded_node import EmbeddedNode
    from eviction.drill.run.embedded import Drill

    show = shown_by(arguments)
    show(f"{scenario.name}: {scenario.why}")
    try:
        with EmbeddedNode(scenario, mounts) as embedded:
            first = scenario.pressures[0]
            display = ProgressDisplay(scenario.node.role(first.where), show, inodes=first.counts_inodes)
            for line in _head(scenario, embedded.describe()):
                show(line)
            result = Drill(scenario, embedded, drill_log(arguments), display.show_pass, display.progress).run()
            display.end()
    except (EmbeddedNodeError, RuntimeUnavailable) as error:
        exit_with(EXIT_NOT_RELIEVED, str(error))
    answer_result(result, _lines(result), arguments)
    return result.held


def _lines(result: DrillResult) -> list[str]:
    """What was kept and why, then every expectation."""
    from eviction.drill.report.lines import verdict_lines
    from eviction.reporting.explain import outcomes_table

    passes = [one.record for one in result.measurements.passes]
    kept = {o.verdict.id: o for record in passes for o in record.kept}
    gone = {o.verdict.id for record in passes for o in record.removals}
    left = outcomes_table((o for i, o in kept.items() if i not in gone), columns())
    kept_lines = ["", "what stayed, and why:", *left] if left else []
    return [*kept_lines, "", *verdict_lines(result, columns())]


def _head(scenario: Scenario, filesystem: str) -> list[str]:
    from eviction.drill.pressure.fault_schedule import describe_fault
    from eviction.drill.pressure.schedule import describe_pressure

    node = scenario.node
    sizes = [
        f"{role} of {format_bytes(spec.size_bytes)} and {counted(spec.inodes, 'inode')}"
        for role, spec in node.filesystems.items()
    ]
    images = counted(sum(image.count for image in node.images), "image")
    pods = counted(sum(pod.count for pod in node.pods), "pod")
    marks = [
        f"{signal}<{value}"
        for name in ("evictionHard", "evictionSoft")
        for signal, value in node.configuration[name].items()
        if value != "0%"
    ]
    collectors = f"; {node.collectors} collectors" if node.collectors > 1 else ""
    return [
        f"  filesystem  {', '.join(sizes)} (layout {node.layout}); {filesystem}",
        f"  runtime     embedded, CRI v1 over a unix socket; {images}, {pods}{collectors}",
        f"  thresholds  {', '.join(marks)}",
        *(f"  pressure    {describe_pressure(pressure)}" for pressure in scenario.pressures),
        *(f"  fault       {describe_fault(fault)}" for fault in scenario.faults),
    ]
