"""`reclaimd drill` on a real node, relieved by another component or by the
daemon's loop in this process.

`--observe` only measures and changes nothing. `NAME --runtime ENDPOINT --fill DIR` applies a
scenario's pressure, after asking.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import NoReturn

from eviction.cli import write_err
from eviction.cli.drill_output import answer_result, drill_log, pass_shower, progress, shown_by
from eviction.cli.options import configuration_of, log_of
from eviction.cli.output import exit_unread, exit_with
from eviction.cli.process import block_termination, hold_node, on_signals, termination_let_through
from eviction.cli.progress import print_message
from eviction.configuration.effective import Configuration
from eviction.drill.judgement.judge import Response
from eviction.drill.measurement.observer import Limits, NodeObservation, without_margin
from eviction.drill.pressure.real_fill_plan import FillPlan, plan_fill, plan_lines
from eviction.drill.run.real import (
    QUIET_SECONDS,
    DrillStillRunning,
    FillFailed,
    foreign_entries,
    remove_leftovers,
    result_of,
    run_in_directory,
)
from eviction.drill.scenario import Scenario, ScenarioError
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
from eviction.wording.tables import signals_table
from reclaim.types import RuntimeUnavailable
from signals.mounts import filesystem_id
from signals.quantity import format_duration
from signals.types import Signal

OBSERVED = "node"  # an observation in its report
CALM_SECONDS = 60.0  # how long a node must be quiet at the end of an observation
OBSERVED_QUIET_SECONDS = 5.0
SURE = frozenset({"y", "yes"})


def fill(scenario: Scenario, arguments: argparse.Namespace) -> int:
    """Runs one scenario on a real node. The fill is always removed.

    Exit 0: every expectation that can be checked held; 1: not; 2: the fill is refused;
    3: runtime unreachable; 4: reading unavailable; 75: another instance holds the node;
    130: stopped by a signal.
    """
    directory = os.path.realpath(arguments.fill)
    if not os.path.isdir(directory):
        _refuse(f"--fill: {arguments.fill}: is not a directory")
    calm = OBSERVED_QUIET_SECONDS if arguments.observe else QUIET_SECONDS
    limits = _limits(arguments, max(calm, scenario.expect.quiet_seconds or 0.0))
    configuration = configuration_of(arguments).model_copy(
        update={"control_socket": "", "metrics_address": None, "periodic_gc": False}
    )
    if arguments.observe and not arguments.with_margin:
        configuration = without_margin(configuration)
    show = shown_by(arguments)
    block_termination()
    with ExitStack() as held:  # released in reverse order, however the command ends
        if not arguments.observe:
            held.enter_context(hold_node(configuration, log_of(arguments)))
        observation = held.enter_context(observation_of(configuration))
        response, problem = Response.OBSERVED, ""
        if not arguments.observe:
            _refuse_while_held_off(configuration)
            response, problem = Response.OURS, observation.node.restore_image_records()
        plan = _plan(scenario, observation, directory, arguments=arguments)
        for line in _head(
            scenario, observation, plan, directory=directory, observed=arguments.observe
        ):
            show(line)
        if problem:
            print_message(f"reclaimd: {problem}")
        _ask(arguments)
        _remove_leftovers(directory, show)
        on_signals(observation.stopping.set)
        observation.show = pass_shower(arguments)
        log = drill_log(arguments)
        try:
            with progress(scenario.pressures[0].signal, observation, arguments):
                result = run_in_directory(
                    scenario,
                    plan,
                    directory,
                    observation=observation,
                    response=response,
                    log=log,
                    limits=limits,
                )
        except FillFailed as error:
            exit_with(EXIT_NOT_RELIEVED, str(error))
        if result is None:
            exit_with(EXIT_INTERRUPTED, "stopped by a signal; the fill was removed")
    answer_result(result, arguments)
    return EXIT_OK if result.held else EXIT_NOT_RELIEVED


def _refuse_while_held_off(configuration: Configuration) -> None:
    """Exits with 2 while the daemon holds off shortly after a boot, as there would be no relief."""
    reason = held_off_since_boot(configuration.hold_off_seconds, configuration.kubelet_healthz)
    if reason is not None:
        _refuse(f"held off: {reason}")


def _plan(
    scenario: Scenario,
    observation: NodeObservation,
    directory: str,
    *,
    arguments: argparse.Namespace,
) -> FillPlan:
    """The plan of the fill.

    Exits with 2 if it is refused, with 4 if a filesystem cannot be read.
    """
    node = observation.node
    configuration, paths = node.configuration, node.summary.paths
    observations = node.summary.observe()
    if any(each.stale for each in observations.signals.values()):
        exit_unread(observations)
    try:
        plan = plan_fill(
            scenario,
            observations,
            node.thresholds(observations.layout),
            device_id=filesystem_id(directory),
        )
        stores = [
            os.path.dirname(path) for path in (paths.imagefs, paths.containerfs) if path is not None
        ]
        own = [
            configuration.root_directory,
            configuration.pod_logs_dir,
            configuration.container_logs_dir,
            *stores,
        ]
        foreign = [] if arguments.allow_other_data else foreign_entries(directory, own)
    except ScenarioError as error:
        _refuse(str(error))
    except OSError as error:
        _refuse(f"{error.filename}: {error.strerror}")
    if foreign:
        _refuse(
            f"the filesystem of {directory} holds other data ({', '.join(foreign)});"
            " --allow-other-data fills it anyway"
        )
    return plan


def _head(
    scenario: Scenario,
    observation: NodeObservation,
    plan: FillPlan,
    *,
    directory: str,
    observed: bool,
) -> Iterable[str]:
    """What will happen, in lines shown before the confirmation."""
    node = observation.node
    yield f"{scenario.name}: {scenario.why}"
    yield f"  runtime     {node.endpoint.runtime}, a real one"
    if observed:
        yield "  relief      by another component; the drill itself removes nothing"
    else:
        yield (
            "  relief      by reclaimd, in this process: it really removes dead containers and"
            " unused images"
        )
    kubelet = (
        ()
        if node.configuration.kubelet is None
        else node.configuration.kubelet.thresholds.thresholds
    )
    for line in (
        *marks_table(observation),
        *plan_lines(plan, directory, node.summary.observe(), kubelet=kubelet),
    ):
        yield f"  {line}"


def _ask(arguments: argparse.Namespace) -> None:
    """Asks for confirmation. Exits with 2 without a terminal, and with 1 if the answer is no."""
    if arguments.yes:
        return
    if not sys.stdin.isatty():
        _refuse("there is no terminal to ask on; --yes confirms the fill")
    with termination_let_through():
        write_err("continue? [y/N] ")
        answer = sys.stdin.readline().strip().lower()
    if answer not in SURE:
        exit_with(EXIT_NOT_RELIEVED, "nothing was changed")


def _remove_leftovers(directory: str, show: Callable[[str], None]) -> None:
    """Removes the files of an earlier drill that was killed together with its fill process."""
    try:
        removed = remove_leftovers(directory)
    except DrillStillRunning as error:
        exit_with(EXIT_HELD, str(error))
    except OSError as error:
        _refuse(f"{directory}: {error.strerror}")
    if removed:
        show(f"an earlier drill was killed: removed {removed} entries that it had left")


def _refuse(why: str) -> NoReturn:
    exit_with(EXIT_USAGE, f"{why}; nothing was changed")


def observe(arguments: argparse.Namespace) -> int:
    """Measures what the component that relieves the node does. Exit 0; 3: runtime unreachable;
    4: reading unavailable."""
    limits = _limits(arguments, CALM_SECONDS)
    configuration = configuration_of(arguments)
    if not arguments.with_margin:
        configuration = without_margin(configuration)
    show = shown_by(arguments)
    block_termination()
    with observation_of(configuration) as observation:
        on_signals(observation.stopping.set)
        longest = (
            ""
            if limits.longest_seconds is None
            else f"after {format_duration(limits.longest_seconds)}, "
        )
        show(f"observing {observation.node.endpoint.runtime}; nothing is changed")
        for line in marks_table(observation):
            show(f"  {line}")
        show(
            f"ends {longest}when relieved and quiet for {format_duration(limits.quiet_seconds)}, or"
            " with Ctrl-C"
        )
        with progress(Signal.NODEFS_AVAILABLE, observation, arguments):
            observation.watch(limits)
        why = f"What happens under pressure on the node of {observation.node.endpoint.runtime}."
        result = result_of(observation, OBSERVED, why, filesystem="the filesystems of a real node")
    answer_result(result, arguments)
    return EXIT_OK


def _limits(arguments: argparse.Namespace, quiet_seconds: float) -> Limits:
    """When an observation ends. `quiet_seconds`: the default of --quiet."""
    return Limits(
        quiet_seconds if arguments.quiet is None else arguments.quiet, vars(arguments)["for"]
    )


@contextmanager
def observation_of(configuration: Configuration) -> Iterator[NodeObservation]:
    """An observation of this node; its connections are closed at the end. Exits with 3 if the
    runtime cannot be reached, with 4 if no filesystem can be read."""
    with closing(Node(configuration)) as node:
        if node.endpoint.remark:
            print_message(node.endpoint.remark)
        try:
            observation = NodeObservation(node)
        except RuntimeUnavailable as error:
            exit_with(EXIT_RUNTIME, f"the container runtime cannot be reached: {error}")
        with closing(observation):
            observations = node.summary.observe()
            if observations.layout is None:
                exit_unread(observations)
            yield observation


def marks_table(observation: NodeObservation) -> list[str]:
    """A table of the signals and their marks."""
    observations = observation.node.summary.observe()
    return signals_table(observations, observation.node.thresholds(observations.layout))
