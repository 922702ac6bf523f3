"""The reclaim functions of a configuration, as entries of the table, and why one cannot be called as things are.

Covers: which function an entry of `reclaimFunctions` is. Does not cover: what the functions do (`reclaim`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from eviction.configuration.effective import Configuration
from eviction.configuration.functions import ConfiguredFunction, FunctionKind
from eviction.types import FunctionUnusable
from reclaim import containerd_garbage, rotated_logs
from reclaim.ballast import release
from reclaim.ballast.file import BallastSettings
from reclaim.execution.readings import in_time
from reclaim.function import ReclaimFunction
from reclaim.functions import FUNCTIONS, FunctionTable, table_of
from reclaim.plugins.function import PluginFailed, plugin_function
from reclaim.plugins.loader import load
from reclaim.programs import program_file
from reclaim.programs.function import LogLine, ProgramSettings, program_function
from reclaim.programs.program_file import ProgramUser
from reclaim.services import RuntimeService
from reclaim.types import ReclaimError, RuntimeUnavailable

PLUGIN_SECONDS = 30.0  # for the import and the constructor of one


def functions_of(configuration: Configuration, log: LogLine) -> FunctionTable:
    """The built-in functions, and those of the configuration. Plugins are imported and constructed here.

    `log`: takes each line that a program prints. Raises FunctionUnusable.
    """
    return table_of(*FUNCTIONS.values(), *(_made(function, log) for function in configuration.functions))


def _made(function: ConfiguredFunction, log: LogLine) -> ReclaimFunction:
    name, frees = function.name, str(function.frees)
    match function.kind:
        case FunctionKind.PROGRAM:
            settings = ProgramSettings(function.argv, function.timeout_seconds, _user(function), function.asks_plan)
            made = program_function(name, settings, frees, log=log)
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
