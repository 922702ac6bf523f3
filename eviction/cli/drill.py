"""`reclaimd drill`: tests eviction paths.

Covers the options, the drill on the embedded node, and the output of every drill. Observing and
filling a real node is in `drill_real`.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Iterable, Sequence
from functools import partial

from eviction.cli.drill_output import answer_result, drill_log, pass_shower, progress, shown_by
from eviction.cli.options import add_logging, configuration_flags, reading
from eviction.cli.output import answer_lines, exit_with
from eviction.cli.parser import OUTPUT, Parser
from eviction.configuration.text_forms import read_duration
from eviction.drill.pressure.schedule import describe_pressure
from eviction.drill.report.lines import before_rows, row_lines
from eviction.drill.runtime.private_mounts import (
    EmbeddedNodeError,
    PrivateMounts,
    enter_private_mounts,
    missing_extra,
)
from eviction.drill.scenario import (
    Scenario,
    find_scenario,
    library,
    read_scenario,
)
from eviction.exit_codes import EXIT_NOT_RELIEVED, EXIT_OK, EXIT_USAGE
from reclaim.types import RuntimeUnavailable
from signals.quantity import counted, format_bytes

GONE = {"compare": "each drill writes its figures to a JSON document, to compare with jq"}
DEFAULT = "pressured-node"
EMBEDDED_OPTIONS = ("all", "list", "check")
REAL_NODE_OPTIONS = (
    "config",
    "config-dir",
    "yes",
    "allow-other-data",
    "with-margin",
    "for",
    "quiet",
)


def add_arguments(parser: Parser) -> None:
    option, flag = parser.add_argument, partial(parser.add_argument, action="store_true")
    option(
        "scenario", metavar="SCENARIO", nargs="*", default=[], help=f"names or files ({DEFAULT})"
    )
    flag("--all", help="run every built-in scenario")
    flag("--list", help="list the built-in scenarios with their reasons")
    option("--check", metavar="FILE", help="check a scenario file without running it")
    option("--report", metavar="DIR", default="report", help="where to write the reports (report)")
    # for a drill on a real node
    flag("--observe", help="only measure: another component relieves the node")
    real = "the real runtime: unix:///path/to.sock"
    option("--runtime", metavar="ENDPOINT", dest="container_runtime_endpoint", help=real)
    option("--fill", metavar="DIR", help="on a real node: files in DIR cause the pressure")
    flag("--yes", help="do not ask before filling the node")
    flag("--allow-other-data", help="fill a filesystem even if it holds other data")
    duration = partial(option, metavar="DURATION", type=reading(read_duration))
    duration("--for", help="observe for at most this long")
    duration("--quiet", help="end when relieved and quiet so long (observing: 1m)")
    flag("--with-margin", help="observe reclaimd's marks, not the kubelet's own")
    parser.add_rows(OUTPUT)
    add_logging(parser)


def run(arguments: argparse.Namespace) -> int:
    """Exit 0 all held; 1 not; 2 refused; 3 no runtime; 4 no reading; 75 node held.

    Example: reclaimd drill rollout-pull -v 1
    """
    names: list[str] = arguments.scenario
    if arguments.fill is not None:
        _refuse(arguments, EMBEDDED_OPTIONS, "with --fill; nothing was changed")
    elif arguments.observe:
        _refuse(arguments, EMBEDDED_OPTIONS, "with --observe")
        if names:
            exit_with(
                EXIT_USAGE,
                "--observe takes a scenario only together with --fill; alone it only measures",
            )
        from eviction.cli.drill_real import observe

        return observe(arguments)
    else:
        real = "on the embedded node; --fill or --observe selects a real one"
        _refuse(arguments, [*configuration_flags(arguments), *REAL_NODE_OPTIONS], real)
    if arguments.list:
        answer_lines(f"{name:24} {read_scenario(path).why}" for name, path in library().items())
        return EXIT_OK
    if arguments.check is not None:
        scenario = read_scenario(arguments.check)
        answer_lines([f"{arguments.check}: the scenario {scenario.name} is valid"])
        return EXIT_OK
    scenarios = [
        find_scenario(name) for name in (library() if arguments.all else names or [DEFAULT])
    ]
    if len(scenarios) > 1 and arguments.output == "json":
        exit_with(
            EXIT_USAGE,
            "-o json prints one document, so it takes one scenario; several write their reports",
        )
    if arguments.fill is not None:
        if len(scenarios) != 1 or arguments.container_runtime_endpoint is None:
            exit_with(
                EXIT_USAGE,
                "--fill takes one scenario, and --runtime names the runtime; nothing was changed",
            )
        from eviction.cli.drill_real import fill

        return fill(scenarios[0], arguments)
    return _drill_embedded(scenarios, arguments)


def _drill_embedded(scenarios: Sequence[Scenario], arguments: argparse.Namespace) -> int:
    """Runs each scenario on its own embedded node.

    Exits with 2 if the extra `drill` is not installed.
    """
    if (missing := missing_extra()) is not None:
        exit_with(EXIT_USAGE, missing)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # like Ctrl-C: the node is removed
    mounts = enter_private_mounts()  # must be called before the first thread starts
    held = [_drill(scenario, mounts, arguments) for scenario in scenarios]
    if len(held) > 1:
        answer_lines(["", f"{sum(held)} of {len(held)} scenarios held"])
    elif not arguments.verbosity:
        again = " ".join((sys.argv[0], "drill", *arguments.scenario))
        shown_by(arguments)(
            f"next: {again} -v 1 shows each pass, object and expectation; --list: more scenarios"
        )
    return EXIT_OK if all(held) else EXIT_NOT_RELIEVED


def _refuse(arguments: argparse.Namespace, options: Iterable[str], where: str) -> None:
    """Exits with 2 for options that do not apply there."""
    values = {name: vars(arguments).get(name.replace("-", "_")) for name in options}
    # but 0s
    given = [
        f"--{name}" for name, value in values.items() if value is not None and value is not False
    ]
    if given:
        exit_with(EXIT_USAGE, f"{', '.join(given)}: not allowed {where}")


def _drill(scenario: Scenario, mounts: PrivateMounts, arguments: argparse.Namespace) -> bool:
    """Runs one scenario and writes its report. True if everything held."""
    # Imported here: these import grpcio, which starts threads.
    from eviction.drill.node.embedded_node import EmbeddedNode
    from eviction.drill.run.embedded import Drill, describe_fault

    show = shown_by(arguments)
    show(f"{scenario.name}: {scenario.why}")
    try:
        with EmbeddedNode(scenario, mounts) as embedded:
            pressures, faults = (
                map(describe_pressure, scenario.pressures),
                map(describe_fault, scenario.faults),
            )
            for line in row_lines(
                before_rows(_node(scenario, embedded.describe()), pressures, faults)
            ):
                show(line)
            drill = Drill(scenario, embedded, drill_log(arguments), show=pass_shower(arguments))
            with progress(scenario.pressures[0].signal, drill, arguments):
                result = drill.run()
    except (EmbeddedNodeError, RuntimeUnavailable) as error:
        exit_with(EXIT_NOT_RELIEVED, str(error))
    answer_result(result, arguments)
    return result.held


def _node(scenario: Scenario, filesystem: str) -> str:
    """What the node has."""
    node = scenario.node
    sizes = [
        f"{role} of {format_bytes(spec.size_bytes)}" for role, spec in node.filesystems.items()
    ]
    images = counted(sum(image.count for image in node.images), "image")
    pods = counted(sum(pod.count for pod in node.pods), "pod")
    return (
        f"{', '.join(sizes)} ({filesystem}); {images} and {pods} on a CRI runtime in this process"
    )
