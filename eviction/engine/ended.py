"""The record of a pass that has ended, from what it has become. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from eviction.decision.thresholds import thresholds_met
from eviction.engine.world import RunningPass, StageRun, World
from eviction.records.passes import Amounts, Pass, PassResult, Timings, with_result
from reclaim.types import Outcome, ReclaimResult, Usage


def record_of(running: RunningPass, world: World) -> Pass:
    """Everything that happened in a pass, and how it ended."""
    functions = tuple(results_of(running))
    gained_bytes, gained_inodes = running.gained.gained_since(Usage())
    after, until = world.observations, running.request.until
    goal = world.manager.config.in_layout(after.layout) if until is None else until
    record = Pass(
        running.id,
        running.started_wall,
        running.trigger,
        running.observations,
        running.decision,
        running.row,
        functions,
        measured=Amounts(max(gained_bytes, 0), max(gained_inodes, 0)),
        written_meanwhile=Amounts(max(-gained_bytes, 0), max(-gained_inodes, 0)),
        after=after,
        still_met=thresholds_met(goal, after.signals, enforce_min_reclaim=True),
        timings=Timings(
            detect_seconds=max(running.began_at - running.observations.time, 0.0),
            list_seconds=sum((each.list_seconds for each in functions), 0.0),
            plan_seconds=sum((each.plan_seconds for each in functions), 0.0),
            remove_seconds=sum((each.remove_seconds for each in functions), 0.0),
            total_seconds=world.now - running.began_at,
        ),
    )
    return with_result(record, dry_run=running.dry_run)


def record_of_defect(running: RunningPass, problem: str) -> Pass:
    """The record of a pass of which nothing more can be said because of this defect."""
    return Pass(
        running.id,
        running.started_wall,
        running.trigger,
        observations=running.observations,
        decision=running.decision,
        row=running.row,
        functions=tuple(ReclaimResult(name, error=problem) for name in running.row[:1]),
        result=PassResult.FAILED,
        reason=problem,
    )


def results_of(running: RunningPass) -> Iterable[ReclaimResult]:
    """What each function of the row has done, or why it was not called; nothing of
    those that were not reached.
    """
    for function in running.row:
        stages = [stage for stage in running.done if stage.id.function == function]
        if stages:
            yield result_of(function, stages)
        elif function in running.skipped:
            yield ReclaimResult(function, skipped=running.skipped[function])


def result_of(function: str, stages: list[StageRun]) -> ReclaimResult:
    """What these stages have done, in the order in which they ran. An object that was tried again
    counts once, with its last outcome; what is kept is what the last call of the function says."""
    outcomes: dict[tuple[str, str], Outcome] = {}
    kept: list[Outcome] = []
    for stage in stages:
        if stage.id.number == 1:
            kept.clear()  # the later plan says what is kept
        kept += stage.kept
        for outcome in in_order_of_plan(stage):
            tried = outcome.verdict.kind, outcome.verdict.id
            outcomes.pop(tried, None)
            outcomes[tried] = outcome
    plans = [stage.plan for stage in stages if stage.plan is not None]
    waits = [plan.eligible_in_seconds for plan in plans]
    list_seconds = sum((plan.list_seconds for plan in plans), 0.0)
    errors = dict.fromkeys(stage.error for stage in stages if stage.error)
    return ReclaimResult(
        function,
        outcomes=tuple(outcomes.values()),
        kept=tuple(kept),
        relieved=any(stage.relieved for stage in stages),
        eligible_in_seconds=min((wait for wait in waits if wait is not None), default=None),
        error=aggregate(list(errors)),
        list_seconds=list_seconds,
        plan_seconds=sum((stage.plan_seconds for stage in stages), 0.0) - list_seconds,
        remove_seconds=sum((max(stage.ended_at - stage.planned_at, 0.0) for stage in stages), 0.0),
    )


def in_order_of_plan(stage: StageRun) -> list[Outcome]:
    """The outcomes of a stage in the order of its plan, not in that in which the removals ended."""
    # a pass may end while a plan is awaited
    planned = () if stage.plan is None else stage.plan.remove
    place = {verdict.id: number for number, verdict in enumerate(planned)}
    return sorted(stage.outcomes, key=lambda outcome: place.get(outcome.verdict.id, 0))


def aggregate(errors: list[str]) -> str:
    """Several errors as one text, as in Kubernetes: a single one as it is,
    several as a bracketed list.
    """
    return errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]" if errors else ""
