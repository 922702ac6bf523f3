"""A program of the user's own as a reclaim function.

A pass runs the program once. A dry run starts it with `plan` as its last argument instead, and shows what it says; one
that does not answer that is shown as one object. A pass never asks for the plan, so a broken one keeps nobody from
running the program.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from reclaim.execution.stages import Stage, StagePlan, Stopwatch
from reclaim.functions import ReclaimContext, ReclaimFunction
from reclaim.programs.plan import KINDS, plan_objects, plan_run
from reclaim.programs.planned_objects import NoPlan
from reclaim.programs.process import LEFT_BEHIND_SECONDS
from reclaim.programs.program_file import ProgramRefused, problem_of
from reclaim.programs.remover import LogLine, Program, ProgramRemover
from reclaim.programs.settings import Pressure, ProgramSettings
from reclaim.types import MeasureDisk, Plan


def program_function(
    name: str, settings: ProgramSettings, frees: str, *, pressure: Callable[[], Pressure], log: LogLine
) -> ReclaimFunction:
    """The reclaim function that runs this program.

    `frees`: the filesystem on which it frees space. `pressure`: asked for what the program is told, right before each
    start and on the thread that starts it. `log`: takes each line that it prints.
    """
    program = Program(name, settings, pressure, log)

    def stages(context: ReclaimContext) -> tuple[Stage, ...]:
        return (partial(_stage, program, context),)

    return ReclaimFunction(name, frees, KINDS, stages)


def _stage(program: Program, context: ReclaimContext, _: MeasureDisk) -> StagePlan:
    """Raises ProgramRefused in a dry run; in a pass its removal fails."""
    watch, executor = Stopwatch(context.clock), context.executor
    plan = (
        watch.time(lambda: _dry_run_plan(program, context))
        if executor.dry_run
        else plan_run(program.name, program.path)
    )
    return StagePlan(
        plan,
        ProgramRemover(program, context.clock, executor.stopping),
        list_seconds=watch.seconds,
        patience_seconds=program.settings.timeout_seconds + LEFT_BEHIND_SECONDS,
    )


def _dry_run_plan(program: Program, context: ReclaimContext) -> Plan:
    """Raises ProgramRefused, and RemovalFailed if it could not be started."""
    if not program.settings.asks_plan:
        if (problem := problem_of(program.settings)) is not None:
            raise ProgramRefused(problem)
        return plan_run(program.name, program.path)
    try:
        return plan_objects(program.name, program.plan(context.clock, context.executor.stopping))
    except NoPlan as error:
        remark = f"asked for its plan it {error}"
        program.log_line(f"[{remark}]")
        return plan_run(program.name, program.path, remark)
