"""The plans of a program: one object that stands for its run, or what it has said it would remove."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from reclaim.programs.planned_objects import PlannedObject
from reclaim.types import Action, Plan, Rule, Verdict

PROGRAM: Final = "program"
PROGRAM_OBJECT: Final = "program_object"
KINDS: Final = (PROGRAM, PROGRAM_OBJECT)


class ProgramReason(StrEnum):
    """Why a program is run, or why it would remove what it names."""

    IN_TABLE = "in_table"
    LISTED_BY_PROGRAM = "listed_by_program"


def plan_run(name: str, path: str, remark: str = "") -> Plan:
    """The run of the program at `path` as one object without a size. `remark`: for a dry run, why no more is known."""
    shown = f"{path} ({remark})" if remark else path
    return Plan((Verdict(PROGRAM, name, shown, Action.REMOVE, ProgramReason.IN_TABLE, rule=Rule.GUARD),))


def plan_objects(name: str, objects: Sequence[PlannedObject]) -> Plan:
    """What the program would remove, each with the program's own reason behind its name. For dry runs: nothing removes
    these objects one by one."""
    return Plan(
        tuple(
            Verdict(
                PROGRAM_OBJECT,
                f"{name}/{number}",
                f"{each.name} ({each.reason})" if each.reason else each.name,
                Action.REMOVE,
                ProgramReason.LISTED_BY_PROGRAM,
                size_bytes=each.size_bytes,
                rule=Rule.GUARD,
            )
            for number, each in enumerate(objects, 1)
        )
    )
