"""`reclaimd drill NAME --runtime ENDPOINT --fill DIR`: a scenario's pressure on a real node, after asking."""

from __future__ import annotations

import argparse
import io
import os
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import NoReturn

from eviction.cli import EXIT_HELD, EXIT_INTERRUPTED, EXIT_NOT_RELIEVED, EXIT_OK, EXIT_READING, EXIT_USAGE
from eviction.cli.drill_node import limits_of, marks_table, observation_of
from eviction.cli.drill_screen import Screen, tell, write_report
from eviction.cli.options import answer_json, answer_lines, columns, configuration_of, exit_with, log_of, print_words
from eviction.cli.run import hold_node
from eviction.cli.termination import block_termination, on_signals, termination_let_through
from eviction.configuration.effective import Configuration
from eviction.drill.measurement.real_node import Limits, Observation, without_what_we_add
from eviction.drill.pressure.foreign_data import other_data
from eviction.drill.pressure.leftovers import DrillGoesOn, remove_leftovers
from eviction.drill.pressure.real_fill_plan import FillPlan, plan_fill, plan_lines
from eviction.drill.report.to_json import observation_lines, result_json, verdict_lines
from eviction.drill.run.real import QUIET_SECONDS, FillFailed, Interrupted, RealDrill
from eviction.drill.scenario.amounts import ScenarioError
from eviction.drill.scenario.types import Scenario
from eviction.node.hold_off import HoldOff, kubelet_is_healthy
from eviction.reporting.explain import pass_lines
from eviction.reporting.log import Log
from eviction.reporting.tables import amount

OBSERVED_QUIET_SECONDS = 5.0
SURE = frozenset({"y", "yes"})


def fill(scenario: Scenario, arguments: argparse.Namespace) -> int:
    """Exit 0 what could be judged held; 1 not; 2 it may not or cannot be done; 3 runtime unreachable; 4 reading
    unavailable; 75 another instance holds the node; 130 told to stop. What was filled is given back in every case."""
    directory = os.path.realpath(arguments.fill)
    if not os.path.isdir(directory):
        exit_with(EXIT_USAGE, f"--fill: {arguments.fill}: is no directory; nothing was touched")
    limits = _limits(scenario, arguments)
    configuration = replace(configuration_of(arguments), control_socket="", metrics_address="", periodic_gc=False)
    if arguments.observe and not arguments.with_margin:
        configuration = without_what_we_add(configuration)
    story = print_words if arguments.output == "json" else tell
    first = scenario.pressures[0]
    block_termination()
    lock = None if arguments.observe else hold_node(configuration.root_directory)
    screen = Screen(first.where, story, inodes=first.counts_inodes)
    observation = observation_of(configuration, screen.progress)
    hold_off = None if arguments.observe else _hold_off(configuration)
    forgotten = "" if arguments.observe else observation.node.restore_image_records()
    plan = _plan(scenario, observation, directory, arguments)
    for line in _head(scenario, observation, plan, directory, observed=arguments.observe):
        story(line)
    if forgotten:
        print_words(f"reclaimd: {forgotten}")
    _ask(arguments)
    _remove_leftovers(directory, story)
    on_signals(observation.stopping.set)
    drill = RealDrill(
        scenario,
        plan,
        directory,
        observation,
        hold_off,
        log_of(arguments) if arguments.verbosity else Log(time.time, stream=io.StringIO()),
        limits,
        lambda record: screen.lines(["", *pass_lines(record, with_kept=False, width=columns())]),
    )
    try:
        result = drill.run()
    except FillFailed as error:
        exit_with(EXIT_NOT_RELIEVED, str(error))
    except Interrupted:
        exit_with(EXIT_INTERRUPTED, "told to stop; what was filled has been given back")
    finally:
        screen.end()
        observation.close()
        observation.node.close()
        if lock is not None:
            os.close(lock)
    document = result_json(result)
    if arguments.output == "json":
        answer_json(document)
    else:
        answer_lines(["", *observation_lines(result.seen), "", *verdict_lines(result)])
    write_report(document, arguments.report, story)
    return EXIT_OK if result.held else EXIT_NOT_RELIEVED


def _limits(scenario: Scenario, arguments: argparse.Namespace) -> Limits:
    """How long is waited: as the scenario says, unless an option says otherwise."""
    calm = OBSERVED_QUIET_SECONDS if arguments.observe else QUIET_SECONDS
    return limits_of(arguments, max(calm, scenario.expect.quiet_seconds or 0.0))


def _hold_off(configuration: Configuration) -> HoldOff:
    """After a boot everything looks dead: then nothing is tried, as nothing might be removed."""
    seconds = configuration.hold_off_seconds
    healthy = partial(kubelet_is_healthy, configuration.kubelet_healthz)
    hold_off = HoldOff(seconds, 0.0, lambda: time.clock_gettime(time.CLOCK_BOOTTIME), healthy)
    held = hold_off.why()
    if held is not None:
        _refuse(f"held off: {held}")
    return hold_off


def _plan(scenario: Scenario, observation: Observation, directory: str, arguments: argparse.Namespace) -> FillPlan:
    """What will be done. Leaves with exit 2 where it may not or cannot be."""
    node = observation.node
    configuration, paths = node.configuration, node.summary.paths
    observations = node.summary.observe()
    if any(seen.stale for seen in observations.signals.values()):
        exit_with(
            EXIT_READING, "; ".join(each.reason for each in observations.unavailable) or "a filesystem cannot be read"
        )
    try:
        plan = plan_fill(scenario, observations, node.thresholds(observations.layout), os.stat(directory).st_dev)
        stores = [os.path.dirname(path) for path in (paths.imagefs, paths.containerfs) if path is not None]
        own = [configuration.root_directory, configuration.pod_logs_dir, configuration.container_logs_dir, *stores]
        strangers = [] if arguments.allow_other_data else other_data(directory, own)
    except ScenarioError as error:
        _refuse(str(error))
    except OSError as error:
        _refuse(f"{error.filename}: {error.strerror}")
    if strangers:
        _refuse(
            f"the filesystem of {directory} holds other data ({', '.join(strangers)}); "
            "--allow-other-data fills it all the same"
        )
    return plan


def _head(
    scenario: Scenario, observation: Observation, plan: FillPlan, directory: str, *, observed: bool
) -> Iterable[str]:
    """What is going to happen, before anybody is asked."""
    node = observation.node
    yield f"{scenario.name}: {scenario.why}"
    yield f"  runtime     {node.endpoint.runtime}, a real one"
    if observed:
        yield "  responds    whoever is there; the drill itself removes nothing"
    else:
        yield "  responds    reclaimd, in this process: dead containers and unused images that it removes are gone"
    for line in marks_table(observation):
        yield f"  {line}"
    for line in plan_lines(plan, directory):
        yield f"  {line}"
    yield from (f"  {line}" for line in _kubelets_marks(observation, plan))


def _kubelets_marks(observation: Observation, plan: FillPlan) -> Iterable[str]:
    """The kubelet's own marks that would be crossed if nobody responded: beyond them it evicts pods."""
    kubelet = observation.node.configuration.kubelet
    observations = observation.node.summary.observe()
    for threshold in () if kubelet is None else kubelet.thresholds.thresholds:
        found = observations.signals.get(threshold.signal)
        inodes = threshold.signal.counts_inodes
        if found is None or found.filesystem is None or found.filesystem.device_id != plan.identity.device_id:
            continue
        mark = threshold.mark(found.capacity)
        if inodes in plan.crossed and max(plan.lowest[inodes], plan.leave[inodes]) < mark:
            shown = amount(threshold.signal, mark)
            yield f"below {shown} ({threshold.signal}) a kubelet evicts pods; that may be reached"


def _ask(arguments: argparse.Namespace) -> None:
    """Whoever started this has to want it. Leaves with exit 2 where nobody can be asked, with 1 after a no."""
    if arguments.yes:
        return
    if not sys.stdin.isatty():
        _refuse("nobody can be asked here; --yes says that it is wanted")
    with termination_let_through():
        print("go on? [y/N] ", end="", file=sys.stderr, flush=True)  # noqa: T201 # a question, on the terminal
        answer = sys.stdin.readline().strip().lower()
    if answer not in SURE:
        exit_with(EXIT_NOT_RELIEVED, "nothing was touched")


def _remove_leftovers(directory: str, story: Callable[[str], None]) -> None:
    """What an earlier drill left that was killed together with its helper."""
    try:
        removed = remove_leftovers(directory)
    except DrillGoesOn as error:
        exit_with(EXIT_HELD, str(error))
    except OSError as error:
        _refuse(f"{directory}: {error.strerror}")
    if removed:
        story(f"an earlier drill was killed: {removed} entries that it left were removed")


def _refuse(why: str) -> NoReturn:
    exit_with(EXIT_USAGE, f"{why}; nothing was touched")
