"""`reclaimd drill`: tests eviction paths, on an embedded node or on a real one.

`--observe` only measures and changes nothing. `NAME --runtime ENDPOINT --fill DIR` applies a
scenario's pressure to this node, after asking; the daemon's loop in this process relieves it, or
with `--observe` another component.
"""

import io
import json
import math
import os
import signal
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from functools import partial
from importlib.util import find_spec
from typing import NoReturn

from eviction.cli.options import LOGGING, configuration_flags, configuration_of, log_of
from eviction.cli.output import answer, answer_lines, columns, exit_on, exit_unread, exit_with
from eviction.cli.parser import OUTPUT, Parser
from eviction.cli.process import block_termination, hold_node, on_signals, termination_let_through
from eviction.cli.progress import Progress, print_message
from eviction.cli.streams import write_err
from eviction.configuration.effective import Configuration
from eviction.configuration.text_forms import read_duration
from eviction.drill.judge import DrillResult, Response
from eviction.drill.observer import Limits, NodeObservation, Observation, without_margin
from eviction.drill.private_mounts import EmbeddedNodeError, enter_private_mounts
from eviction.drill.real import FillFailed, foreign_entries, run_in_directory, traces
from eviction.drill.real_fill_plan import FillPlan, plan_fill, plan_lines
from eviction.drill.report.document import (
    DrillReportJson,
    before_rows,
    checks_table,
    report_of,
    row_lines,
    story_rows,
    verdict_rows,
)
from eviction.drill.report.page import junit_xml, page
from eviction.drill.scenario import Scenario, ScenarioError, find_scenario, library, read_scenario
from eviction.drill.schedule import describe_pressure
from eviction.engine.hold_off import held_off_since_boot
from eviction.engine.node import Node
from eviction.exit_codes import (
    EXIT_HELD,
    EXIT_INTERRUPTED,
    EXIT_NOT_RELIEVED,
    EXIT_OK,
    EXIT_RUNTIME,
    EXIT_USAGE,
)
from eviction.records.json_shapes import to_json
from eviction.records.passes import Pass
from eviction.wording.bars import bar
from eviction.wording.explain import amount, ladder, pass_lines, signals_table
from eviction.wording.log import Log
from reclaim.types import RuntimeUnavailable
from signals.mounts import filesystem_id
from signals.quantity import counted, format_bytes, format_duration, reason_of
from signals.types import Signal

GONE = {"compare": "each drill writes its figures to a JSON document, to compare with jq"}
DEFAULT = "pressured-node"
QUIET_SECONDS = 0.3  # how long a node must be quiet at the end
OBSERVED_QUIET_SECONDS = 5.0
CALM_SECONDS = 60.0
ON_EMBEDDED_NODE = {
    "scenario* SCENARIO": f"names or files ({DEFAULT})",
    "--all": "run every built-in scenario",
    "--list": "list the built-in scenarios with their reasons",
    "--check FILE": "check a scenario file without running it",
    "--report DIR": ("where to write the reports (report)", None, "report"),
    "--observe": "only measure: another component relieves the node",
}
ON_REAL_NODE = {
    "--fill DIR": "on a real node: files in DIR cause the pressure",
    "--yes": "do not ask before filling the node",
    "--allow-other-data": "fill a filesystem even if it holds other data",
    "--for DURATION": ("observe for at most this long", read_duration),
    "--quiet DURATION": (
        "end when relieved and quiet so long (observing: 1m)",
        read_duration,
    ),
    "--with-margin": "observe reclaimd's marks, not the kubelet's own",
    **OUTPUT,
}
EMBEDDED_OPTIONS = ("all", "list", "check")


def add_arguments(parser: Parser) -> None:
    parser.add_rows(ON_EMBEDDED_NODE)
    parser.add_argument(
        "--runtime",
        metavar="ENDPOINT",
        dest="container_runtime_endpoint",
        help="the real runtime: unix:///path/to.sock",
    )
    parser.add_rows(ON_REAL_NODE)
    parser.add_rows(*LOGGING)


def run(arguments: Namespace) -> int:
    """Exit 0 all held; 1 not; 2 refused; 3 no runtime; 4 no reading; 75 node held.

    Example: reclaimd drill rollout-pull -v 1
    """
    names: list[str] = arguments.scenario
    if arguments.fill is not None:
        _refuse_options(arguments, EMBEDDED_OPTIONS, "with --fill; nothing was changed")
    elif arguments.observe:
        _refuse_options(arguments, EMBEDDED_OPTIONS, "with --observe")
        if names:
            _exit_usage(
                "--observe takes a scenario only together with --fill; alone it only measures"
            )
        return _observe(arguments)
    else:
        _refuse_options(
            arguments,
            [
                *configuration_flags(arguments),
                "config",
                "config-dir",
                "yes",
                "allow-other-data",
                "with-margin",
                "for",
                "quiet",
            ],
            "on the embedded node; --fill or --observe selects a real one",
        )
    if names and (arguments.all or arguments.list or arguments.check is not None):
        _exit_usage("--all, --list and --check go without SCENARIO")
    if arguments.list:
        answer_lines(f"{name:24} {read_scenario(path).why}" for name, path in library().items())
        return EXIT_OK
    if arguments.check is not None:
        scenario = read_scenario(arguments.check)
        answer_lines([f"{arguments.check}: the scenario {scenario.name} is valid"])
        return EXIT_OK
    chosen = library() if arguments.all else names or [DEFAULT]
    scenarios = [find_scenario(name) for name in chosen]
    if len(scenarios) > 1 and arguments.output != "table":
        _exit_usage(
            f"-o {arguments.output} prints one document, so it takes one scenario; several write"
            " their reports"
        )
    if arguments.fill is None:
        return _drill_embedded(scenarios, arguments)
    if len(scenarios) != 1 or arguments.container_runtime_endpoint is None:
        _refuse("--fill takes one scenario, and --runtime names the runtime")
    return _fill(scenarios[0], arguments)


def _exit_usage(why: str) -> NoReturn:
    exit_with(EXIT_USAGE, why)


def _refuse(why: str) -> NoReturn:
    _exit_usage(f"{why}; nothing was changed")


def _refuse_options(arguments: Namespace, options: Iterable[str], where: str) -> None:
    """Exits with 2 for options that do not apply there."""
    given = []
    for name in options:
        value = vars(arguments).get(name.replace("-", "_"))
        if value is not None and value is not False:  # but 0s
            given.append(f"--{name}")
    if given:
        _exit_usage(f"{', '.join(given)}: not allowed {where}")


# ---- on the embedded node


def _drill_embedded(scenarios: Sequence[Scenario], arguments: Namespace) -> int:
    """Runs each scenario on its own embedded node.

    Exits with 2 if the extra `drill` is not installed, or no filesystem may be mounted.
    """
    if find_spec("grpc") is None:
        _exit_usage(
            "the embedded runtime needs grpcio, which is not installed:"
            " pip install 'reclaimd[drill]', or uvx 'reclaimd[drill]' drill"
        )
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # like Ctrl-C: the node is removed
    with exit_on(EXIT_USAGE, EmbeddedNodeError, "the embedded node needs filesystems of its own: "):
        mounted = enter_private_mounts()  # must be called before the first thread starts
    with exit_on(EXIT_USAGE, OSError, "--report: "):
        os.makedirs(arguments.report, exist_ok=True)
    held = [_drill(scenario, mounted, arguments) for scenario in scenarios]
    if len(held) > 1:
        answer_lines(["", f"{sum(held)} of {len(held)} scenarios held"])
    elif not arguments.verbosity:
        again = " ".join((sys.argv[0], "drill", *arguments.scenario))
        _shown_by(arguments)(
            f"next: {again} -v 1 shows each pass, object and expectation; --list: more scenarios"
        )
    return EXIT_OK if all(held) else EXIT_NOT_RELIEVED


def _drill(scenario: Scenario, mounted: str, arguments: Namespace) -> bool:
    """Runs one scenario and writes its report. True if everything held."""
    # Imported here: these import grpcio, which starts threads.
    from eviction.drill.embedded import Drill, describe_fault
    from eviction.drill.embedded_node import EmbeddedNode

    show = _shown_by(arguments)
    show(f"{scenario.name}: {scenario.why}")
    with (
        exit_on(EXIT_NOT_RELIEVED, (EmbeddedNodeError, RuntimeUnavailable)),
        EmbeddedNode(scenario, mounted) as embedded,
    ):
        node = _node(scenario, embedded.describe())
        pressures = map(describe_pressure, scenario.pressures)
        for line in row_lines(before_rows(node, pressures, map(describe_fault, scenario.faults))):
            show(line)
        drill = Drill(embedded, _drill_log(arguments))
        drill.show = partial(_show_pass, arguments=arguments)
        with _progress(scenario.pressures[0].signal, drill, arguments):
            result = drill.run()
    _answer_result(result, arguments)
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


# ---- on a real node


def _fill(scenario: Scenario, arguments: Namespace) -> int:
    """Runs one scenario on a real node. The fill is always removed.

    Exit 0: every expectation that can be checked held; 1: not; 2: the fill is refused;
    3: runtime unreachable; 4: reading unavailable; 75: another instance holds the node;
    130: stopped by a signal.
    """
    directory = os.path.realpath(arguments.fill)
    if not os.path.isdir(directory):
        _refuse(f"--fill: {arguments.fill}: is not a directory")
    observed = arguments.observe
    calm = OBSERVED_QUIET_SECONDS if observed else QUIET_SECONDS
    limits = _limits(arguments, max(calm, scenario.expect.quiet_seconds or 0.0))
    configuration = configuration_of(arguments).model_copy(
        update={"control_socket": "", "metrics_address": None, "periodic_gc": False}
    )
    if observed and not arguments.with_margin:
        configuration = without_margin(configuration)
    show = _shown_by(arguments)
    block_termination()
    with ExitStack() as held:  # released in reverse order, however the command ends
        if not observed:
            held.enter_context(hold_node(configuration, log_of(arguments)))
        observation = held.enter_context(_observation_of(configuration))
        problem = ""
        if not observed:
            # no relief would come while the daemon holds off shortly after a boot
            reason = held_off_since_boot(
                configuration.hold_off_seconds, configuration.kubelet_healthz
            )
            if reason is not None:
                _refuse(f"held off: {reason}")
            problem = observation.node.restore_image_records()
        plan = _plan(scenario, observation, directory, arguments=arguments)
        show(f"{scenario.name}: {scenario.why}")
        for line in _head(observation, plan, directory, observed=observed):
            show(f"  {line}")
        if problem:
            print_message(f"reclaimd: {problem}")
        if not arguments.yes:
            _ask()
        on_signals(observation.stopping.set)
        observation.show = partial(_show_pass, arguments=arguments)
        with (
            exit_on(EXIT_NOT_RELIEVED, FillFailed, "the disk was not filled as planned: "),
            _progress(scenario.pressures[0].signal, observation, arguments),
        ):
            result = run_in_directory(
                scenario,
                plan,
                directory,
                observation=observation,
                response=Response.OBSERVED if observed else Response.OURS,
                log=_drill_log(arguments),
                limits=limits,
            )
        if result is None:
            exit_with(EXIT_INTERRUPTED, "stopped by a signal; the fill was removed")
    _answer_result(result, arguments)
    return EXIT_OK if result.held else EXIT_NOT_RELIEVED


def _plan(
    scenario: Scenario, observation: NodeObservation, directory: str, *, arguments: Namespace
) -> FillPlan:
    """The plan of the fill.

    Exits with 2 if it is refused, with 4 if a filesystem cannot be read, with 75 if another drill
    fills the directory.
    """
    node = observation.node
    configuration = node.configuration
    paths = node.summary.paths
    observations = node.summary.observe()
    if any(signal.stale for signal in observations.signals.values()):
        exit_unread(observations)
    own = [
        configuration.root_directory,
        configuration.pod_logs_dir,
        configuration.container_logs_dir,
        *[os.path.dirname(path) for path in (paths.imagefs, paths.containerfs) if path],
    ]
    try:
        plan = plan_fill(
            scenario,
            observations,
            node.thresholds(observations.layout),
            device_id=filesystem_id(directory),
        )
        foreign = [] if arguments.allow_other_data else foreign_entries(directory, own)
        others = traces(directory)
    except ScenarioError as error:
        _refuse(str(error))
    except OSError as error:
        _refuse(f"{error.filename}: {error.strerror}")
    if foreign:
        _refuse(
            f"the filesystem of {directory} holds other data ({', '.join(foreign)});"
            " --allow-other-data fills it anyway"
        )
    if others:
        remove = f"if it was killed, remove {', '.join(others)}"
        exit_with(EXIT_HELD, f"another drill is filling {directory}; {remove}")
    return plan


def _head(
    observation: NodeObservation, plan: FillPlan, directory: str, *, observed: bool
) -> Iterator[str]:
    """What will happen, in lines shown before the confirmation."""
    node = observation.node
    yield f"runtime     {node.endpoint.runtime}, a real one"
    if observed:
        yield "relief      by another component; the drill itself removes nothing"
    else:
        yield (
            "relief      by reclaimd, in this process: it really removes dead containers and"
            " unused images"
        )
    yield from _marks_table(observation)
    kubelet = node.configuration.kubelet
    yield from plan_lines(
        plan,
        directory,
        node.summary.observe(),
        kubelet=() if kubelet is None else kubelet.thresholds.thresholds,
    )


def _ask() -> None:
    """Asks for confirmation. Exits with 2 without a terminal, and with 1 if the answer is no."""
    if not sys.stdin.isatty():
        _refuse("there is no terminal to ask on; --yes confirms the fill")
    with termination_let_through():
        write_err("continue? [y/N] ")
        reply = sys.stdin.readline().strip().lower()
    if reply not in ("y", "yes"):
        exit_with(EXIT_NOT_RELIEVED, "nothing was changed")


def _observe(arguments: Namespace) -> int:
    """Measures what the component that relieves the node does.

    Exit 0; 3: runtime unreachable; 4: reading unavailable.
    """
    limits = _limits(arguments, CALM_SECONDS)
    configuration = configuration_of(arguments)
    if not arguments.with_margin:
        configuration = without_margin(configuration)
    show = _shown_by(arguments)
    block_termination()
    with _observation_of(configuration) as observation:
        on_signals(observation.stopping.set)
        runtime = observation.node.endpoint.runtime
        show(f"observing {runtime}; nothing is changed")
        for line in _marks_table(observation):
            show(f"  {line}")
        longest = limits.longest_seconds
        quiet = format_duration(limits.quiet_seconds)
        after = "" if longest == math.inf else f"after {format_duration(longest)}, "
        show(f"ends {after}when relieved and quiet for {quiet}, or with Ctrl-C")
        with _progress(Signal.NODEFS_AVAILABLE, observation, arguments):
            observation.watch(limits)
    _answer_result(
        DrillResult(
            "node",
            f"What happens under pressure on the node of {runtime}.",
            "the filesystems of a real node",
            measurements=observation.measured,
            response=Response.OBSERVED,
        ),
        arguments,
    )
    return EXIT_OK


def _limits(arguments: Namespace, quiet_seconds: float) -> Limits:
    """When an observation ends. `quiet_seconds`: the default of --quiet."""
    quiet = quiet_seconds if arguments.quiet is None else arguments.quiet
    longest = vars(arguments)["for"]
    return Limits(quiet, math.inf if longest is None else longest, until_relief=True)


@contextmanager
def _observation_of(configuration: Configuration) -> Iterator[NodeObservation]:
    """An observation of this node, whose connections are closed at the end.

    Exits with 3 if the runtime cannot be reached, with 4 if no filesystem can be read.
    """
    with closing(Node(configuration)) as node:
        if node.endpoint.found:
            print_message(node.endpoint.remark)
        with exit_on(EXIT_RUNTIME, RuntimeUnavailable, "the container runtime cannot be reached: "):
            observation = NodeObservation(node)
        with closing(observation):
            observations = node.summary.observe()
            if observations.layout is None:
                exit_unread(observations)
            yield observation


def _marks_table(observation: NodeObservation) -> list[str]:
    """A table of the signals and their marks."""
    observations = observation.node.summary.observe()
    return signals_table(observations, observation.node.thresholds(observations.layout))


# ---- what it shows


def _shown_by(arguments: Namespace) -> Callable[[str], None]:
    """A function that prints a line on stdout, or on stderr if stdout gets one document."""
    return print_message if arguments.output != "table" else lambda line: answer_lines([line])


def _drill_log(arguments: Namespace) -> Log:
    """The log of the daemon in a drill, shown only with `-v 2`."""
    return log_of(arguments) if arguments.verbosity > 1 else Log(time.time, stream=io.StringIO())


def _answer_result(result: DrillResult, arguments: Namespace) -> None:
    """Prints the document or the story of the run, and writes the report.

    Its paths are printed, or why it cannot be written.
    """
    report = report_of(result)
    details = ["", *checks_table(report, columns()), ""] if arguments.verbosity else []
    rows = [*story_rows(report), *verdict_rows(report)]
    answer(arguments, report, lambda: [*details, *row_lines(rows)])
    paths = {os.path.join(arguments.report, name): text for name, text in files_of(report).items()}
    try:
        os.makedirs(arguments.report, exist_ok=True)
        for path, text in paths.items():
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        print_message(f"the report could not be written: {reason_of(error)}")
    else:
        _shown_by(arguments)(f"report: {', '.join(paths)}")


def files_of(report: DrillReportJson) -> dict[str, str]:
    """The files of a report by name: the page, the JSON document and JUnit XML."""
    stem = f"drill-{report.scenario}"
    if report.response != "reclaimd":
        stem += "-observed"
    return {
        f"{stem}.html": page(report),
        f"{stem}.json": f"{json.dumps(to_json(report), indent=2)}\n",
        f"{stem}.xml": junit_xml(report),
    }


def _show_pass(record: Pass, arguments: Namespace) -> None:
    """Prints a pass, with `-v`."""
    if arguments.verbosity:
        for line in ("", *pass_lines(record, columns())):
            _shown_by(arguments)(line)


def _progress(
    signal: Signal, observation: Observation, arguments: Namespace
) -> AbstractContextManager[None]:
    """Shows on a terminal what is available of a signal, while a `with` block runs.

    With `-v` passes are shown instead.
    """

    def available() -> str:
        observations = observation.measured.observations
        if observations is None or signal not in observations.signals:
            return ""
        found = observations.signals[signal]
        kubelets = observation.node.world.config.kubelets_in_layout(observations.layout)
        ours = observation.measured.thresholds
        marks = ladder(ours, kubelets, None, observations={signal: found})
        drawn = bar(found.available, found.capacity, {each.whose: each.mark for each in marks})
        return f"{drawn} {amount(signal, found.available)} available"

    return nullcontext() if arguments.verbosity else Progress(str(signal), available)
