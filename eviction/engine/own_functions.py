"""The reclaim functions of a node: the built-in ones, and those that its configuration names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import assert_never

from eviction.configuration.effective import Configuration
from eviction.configuration.file import FunctionEntry, FunctionKind
from reclaim.function import ReclaimFunction
from reclaim.functions.table import FUNCTIONS, FunctionTable, table_of

Log = Callable[[str, str], None]
"""Takes the name of a function, and a line that its program prints."""


def functions_of(configuration: Configuration, log: Log) -> FunctionTable:
    """All of them, by name."""
    if not configuration.functions:  # as on most nodes, which do not load what makes them
        return FUNCTIONS
    own = [
        replace(made(entry, log), cooldown_seconds=entry.cooldown_seconds)
        for entry in configuration.functions
    ]
    return table_of(*FUNCTIONS.values(), *own)


def made(entry: FunctionEntry, log: Log) -> ReclaimFunction:
    """A function of the configuration."""
    from reclaim.functions.ballast import BallastSettings, release_ballast_function
    from reclaim.functions.containerd_garbage import collect_garbage_function
    from reclaim.functions.rotated_logs import delete_rotated_logs_function
    from reclaim.program.function import Program, ProgramUser, program_function

    name, frees, timeout_seconds = entry.name, entry.frees, entry.timeout_seconds
    match entry.kind:
        case FunctionKind.PROGRAM:
            user = None if entry.user is None else ProgramUser(entry.user.uid, entry.user.gid)
            own_log, asks = partial(log, name), entry.asks_plan
            return program_function(
                Program(name, entry.argv, timeout_seconds, own_log, user, asks), frees
            )
        case FunctionKind.BALLAST:
            return release_ballast_function(
                name, BallastSettings(entry.path, entry.size_bytes), frees
            )
        case FunctionKind.ROTATED_LOGS:
            return delete_rotated_logs_function(name, entry.keep, frees)
        case FunctionKind.CONTAINERD_GARBAGE:
            return collect_garbage_function(name, timeout_seconds, frees)
        case _:
            assert_never(entry.kind)
