"""The reclaim functions of a configuration, as entries of the table.

Covers: which function an entry of `reclaimFunctions` is. Does not cover: what the functions do (`reclaim`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from eviction.configuration.effective import Configuration
from eviction.configuration.file import FunctionEntry, FunctionKind
from eviction.types import FunctionUnusable
from reclaim.ballast import BallastSettings, release_ballast_function
from reclaim.containerd_garbage import collect_garbage_function
from reclaim.execution.readings import in_time
from reclaim.function import ReclaimFunction
from reclaim.functions import FUNCTIONS, FunctionTable, table_of
from reclaim.plugins import PluginFailed, load, plugin_function
from reclaim.programs import LogLine, Program, ProgramUser, program_function
from reclaim.rotated_logs import delete_rotated_logs_function

PLUGIN_SECONDS = 30.0  # for the import and the constructor of one


def functions_of(configuration: Configuration, log: LogLine) -> FunctionTable:
    """The built-in functions, and those of the configuration. Plugins are imported and constructed here.

    `log`: takes each line that a program prints. Raises FunctionUnusable.
    """
    own = (replace(_made(each, log), cooldown_seconds=each.cooldown_seconds) for each in configuration.functions)
    return table_of(*FUNCTIONS.values(), *own)


def _made(function: FunctionEntry, log: LogLine) -> ReclaimFunction:
    name, frees, timeout_seconds = function.name, str(function.frees), function.timeout_seconds
    match function.kind:
        case FunctionKind.PROGRAM:
            user = None if function.user is None else ProgramUser(function.user.uid, function.user.gid)
            program = Program(name, function.argv, timeout_seconds, log, user, asks_plan=function.asks_plan)
            return program_function(program, frees)
        case FunctionKind.PLUGIN:
            try:
                options = dict(function.options)
                plugin = in_time(lambda: load(function.entry_point, function.distribution, options), PLUGIN_SECONDS)
                return plugin_function(name, plugin, frees)
            except (OSError, PluginFailed) as error:
                why = (error.strerror if isinstance(error, OSError) else None) or str(error)
                raise FunctionUnusable(f"reclaimFunctions: {name}: {why}") from None
        case FunctionKind.BALLAST:
            return release_ballast_function(name, BallastSettings(function.path, function.size_bytes), frees)
        case FunctionKind.ROTATED_LOGS:
            return delete_rotated_logs_function(name, function.keep, frees)
        case FunctionKind.CONTAINERD_GARBAGE:
            return collect_garbage_function(name, timeout_seconds, frees)
        case _:
            assert_never(function.kind)
