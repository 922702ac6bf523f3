"""The reclaim functions of a configuration, as entries of the table, and why one cannot be called as things are.

Covers: which function an entry of `reclaimFunctions` is, and what a program is told of the pressure. Does not cover:
what the functions do (`reclaim`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import assert_never

from eviction.configuration.effective import Configuration
from eviction.configuration.functions import ConfiguredFunction, FunctionKind
from eviction.decision.headroom import FillRates
from eviction.types import FunctionUnusable, Threshold
from reclaim import containerd_garbage, rotated_logs
from reclaim.ballast import release
from reclaim.ballast.file import BallastSettings
from reclaim.execution.readings import in_time
from reclaim.functions import FUNCTIONS, FunctionTable, ReclaimFunction, table_of
from reclaim.plugins.function import PluginFailed, plugin_function
from reclaim.plugins.loader import load
from reclaim.pressure import Pressure
from reclaim.programs import program_file
from reclaim.programs.function import LogLine, ProgramSettings, program_function
from reclaim.programs.program_file import ProgramUser
from reclaim.services import RuntimeService
from reclaim.types import ReclaimError, RuntimeUnavailable
from signals.types import SignalObservations

PLUGIN_SECONDS = 30.0  # for the import and the constructor of one
RUN_SECONDS = 1.0  # so long a program is taken to run


@dataclass(slots=True)
class PressureOfPass:
    """What a program is told of the pass that starts it. `begin` is called on the thread of the pass; the object is
    called on that of the removal.

    `observe`: a new observation, so that the program is told of the disk as it is. `fill_rates`: how fast the disks
    fill: what a fill writes while the program runs has to come free as well.
    """

    observe: Callable[[], SignalObservations]
    fill_rates: Callable[[], FillRates] = dict
    _pass_id: str = ""
    _goal: tuple[Threshold, ...] = ()
    _acted_on: Threshold | None = None

    def begin(self, pass_id: str, acted_on: Threshold | None, goal: tuple[Threshold, ...]) -> None:
        """A pass begins. `goal`: what it has to clear; empty if it was requested without a mark."""
        self._pass_id, self._acted_on, self._goal = pass_id, acted_on, goal

    def __call__(self) -> Pressure:
        """The signal that the pass acts on, and what is missing for it now, with its minimum reclaim."""
        acted_on = self._acted_on or next(iter(self._goal), None)
        if acted_on is None:
            return Pressure(pass_id=self._pass_id)
        observation = self.observe().signals.get(acted_on.signal)
        if observation is None:
            return Pressure(signal=str(acted_on.signal), pass_id=self._pass_id)
        missing = max(acted_on.mark_with_min_reclaim(observation.capacity) - observation.available, 0)
        inodes, where = acted_on.signal.counts_inodes, observation.filesystem
        fill = None if where is None else self.fill_rates().get((where.device_id, inodes))
        if missing and fill is not None:
            missing += int(fill.steady_rate * RUN_SECONDS)
        return Pressure(
            signal=str(acted_on.signal),
            filesystem="" if where is None else where.mount_point or where.path,
            available=observation.available,
            mark=acted_on.mark(observation.capacity),
            missing_bytes=0 if inodes else missing,
            missing_inodes=missing if inodes else 0,
            pass_id=self._pass_id,
        )


def functions_of(configuration: Configuration, pressure: PressureOfPass, log: LogLine) -> FunctionTable:
    """The built-in functions, and those of the configuration. Plugins are imported and constructed here.

    `log`: takes each line that a program prints. Raises FunctionUnusable.
    """
    return table_of(*FUNCTIONS.values(), *(_made(function, pressure, log) for function in configuration.functions))


def _made(function: ConfiguredFunction, pressure: PressureOfPass, log: LogLine) -> ReclaimFunction:
    name, frees = function.name, str(function.frees)
    match function.kind:
        case FunctionKind.PROGRAM:
            settings = ProgramSettings(function.argv, function.timeout_seconds, _user(function), function.asks_plan)
            made = program_function(name, settings, frees, pressure=pressure, log=log)
        case FunctionKind.PLUGIN:
            try:
                options = dict(function.options)
                plugin = in_time(lambda: load(function.entry_point, function.distribution, options), PLUGIN_SECONDS)
                made = plugin_function(name, plugin, frees)
            except (OSError, PluginFailed) as error:
                why = (error.strerror if isinstance(error, OSError) else None) or str(error)
                raise FunctionUnusable(f"reclaimFunctions: {name}: {why}") from None
        case FunctionKind.BALLAST:
            ballast = BallastSettings(function.path, function.size_bytes)
            made = release.release_ballast_function(name, ballast, frees)
        case FunctionKind.ROTATED_LOGS:
            made = rotated_logs.delete_rotated_logs_function(name, function.keep, frees)
        case FunctionKind.CONTAINERD_GARBAGE:
            made = containerd_garbage.collect_garbage_function(name, function.timeout_seconds, frees)
        case _:
            assert_never(function.kind)
    return replace(made, cooldown_seconds=function.cooldown_seconds)


def _user(function: ConfiguredFunction) -> ProgramUser | None:
    return None if function.user is None else ProgramUser(function.user.uid, function.user.gid)


def problems_of(configuration: Configuration, runtime: RuntimeService) -> tuple[tuple[str, str], ...]:
    """Functions of the configuration that cannot be called as things are: the name, and one sentence why. Asks the
    runtime only for those that need a certain one, and says nothing of them while it does not answer."""
    found = ((function.name, _problem(function, configuration, runtime)) for function in configuration.functions)
    return tuple((name, problem) for name, problem in found if problem)


def _problem(function: ConfiguredFunction, configuration: Configuration, runtime: RuntimeService) -> str:
    try:
        match function.kind:
            case FunctionKind.PROGRAM:
                program_file.examine(function.argv[0], _user(function))
            case FunctionKind.BALLAST:
                release.examine(BallastSettings(function.path, function.size_bytes))
            case FunctionKind.ROTATED_LOGS:
                rotated_logs.examine(configuration.pod_logs_dir)
            case FunctionKind.CONTAINERD_GARBAGE:
                containerd_garbage.examine(function.name, runtime)
            case FunctionKind.PLUGIN:
                pass  # it was loaded, or the node was not made
            case _:
                assert_never(function.kind)
    except RuntimeUnavailable:
        return ""
    except ReclaimError as error:
        return str(error)
    return ""
