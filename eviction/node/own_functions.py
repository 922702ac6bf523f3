"""The reclaim functions of a node: the built-in ones, and those that its configuration names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import assert_never

from eviction.configuration.effective import Configuration
from eviction.configuration.file import FunctionEntry, FunctionKind
from reclaim.function import ReclaimFunction
from reclaim.functions import FUNCTIONS, FunctionTable, table_of

Log = Callable[[str, str], None]
"""Takes the name of a function, and a line that its program prints."""


def functions_of(configuration: Configuration, log: Log) -> FunctionTable:
    """All of them, by name."""
    if not configuration.functions:  # as on most nodes, which do not load what makes them
        return FUNCTIONS
    own = [replace(made(each, log), cooldown_seconds=each.cooldown_seconds) for each in configuration.functions]
    return table_of(*FUNCTIONS.values(), *own)


def made(function: FunctionEntry, log: Log) -> ReclaimFunction:
    """A function of the configuration."""
    from reclaim.ballast import BallastSettings, release_ballast_function
    from reclaim.containerd import collect_garbage_function
    from reclaim.programs import Program, ProgramUser, program_function
    from reclaim.rotated_logs import delete_rotated_logs_function

    name, frees, timeout_seconds = function.name, function.frees, function.timeout_seconds
    match function.kind:
        case FunctionKind.PROGRAM:
            user = None if function.user is None else ProgramUser(function.user.uid, function.user.gid)
            own_log, asks = partial(log, name), function.asks_plan
            return program_function(Program(name, function.argv, timeout_seconds, own_log, user, asks), frees)
        case FunctionKind.BALLAST:
            return release_ballast_function(name, BallastSettings(function.path, function.size_bytes), frees)
        case FunctionKind.ROTATED_LOGS:
            return delete_rotated_logs_function(name, function.keep, frees)
        case FunctionKind.CONTAINERD_GARBAGE:
            return collect_garbage_function(name, timeout_seconds, frees)
        case _:
            assert_never(function.kind)
