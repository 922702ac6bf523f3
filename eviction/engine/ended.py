"""The record of a pass that has ended, from what it has become. Pure."""

from collections.abc import Iterable
from dataclasses import replace
from math import fsum

from eviction.decision.headroom import headroom_seconds
from eviction.decision.synchronize import EvictionConfig
from eviction.decision.thresholds import as_shown, thresholds_met
from eviction.engine.relief import with_promised
from eviction.engine.world import RunningPass, StageRun, World
from eviction.records.passes import Pass, Timings, with_result
from reclaim.types import Amounts, Outcome, ReclaimResult, Usage


def record_of(begun: Pass, running: RunningPass, world: World) -> Pass:
    """Everything that happened in a pass that was made like this, and how it ended."""
    functions = tuple(results_of(running))
    gained_bytes, gained_inodes = running.gained.gained_since(Usage())
    after = world.observations
    config = world.config
    goal = running.request.until
    if goal is None:
        goal = config.in_layout(after.layout)
    record = replace(
        begun,
        functions=functions,
        measured=Amounts(max(gained_bytes, 0), max(gained_inodes, 0)),
        written_meanwhile=Amounts(max(-gained_bytes, 0), max(-gained_inodes, 0)),
        foreseen=with_promised(after, running.assumed),
        still_met=thresholds_met(goal, after.signals, enforce_min_reclaim=True),
        timings=Timings(
            detect_seconds=max(running.began_at - running.observations.time, 0.0),
            list_seconds=fsum(result.list_seconds for result in functions),
            plan_seconds=fsum(result.plan_seconds for result in functions),
            remove_seconds=fsum(result.remove_seconds for result in functions),
            total_seconds=world.now - running.began_at,
        ),
        seconds_to_eviction=seconds_to_eviction(running, config),
    )
    return with_result(record, dry_run=running.dry_run)


def seconds_to_eviction(running: RunningPass, config: EvictionConfig) -> float | None:
    """As in the record."""
    seen = running.observations
    shown = seen._replace(signals=as_shown(seen.signals))
    return next(
        (
            headroom_seconds(each, shown, running.begun_rates)
            for each in config.kubelets_in_layout(seen.layout)
            if each.hard and each.signal == running.decision.signal
        ),
        None,
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
            outcomes.pop(tried, None)  # it goes to the end
            outcomes[tried] = outcome
    plans = [stage.plan for stage in stages if stage.plan is not None]
    waits = [plan.eligible_in_seconds for plan in plans]
    list_seconds = fsum(plan.list_seconds for plan in plans)
    errors = list(dict.fromkeys(stage.error for stage in stages if stage.error))
    return ReclaimResult(
        function,
        outcomes=tuple(outcomes.values()),
        kept=tuple(kept),
        relieved=any(stage.relieved for stage in stages),
        eligible_in_seconds=min((wait for wait in waits if wait is not None), default=None),
        # as in Kubernetes: a single one as it is, several as a bracketed list
        error=f"[{', '.join(errors)}]" if len(errors) > 1 else "".join(errors),
        list_seconds=list_seconds,
        plan_seconds=fsum(stage.plan_seconds for stage in stages) - list_seconds,
        remove_seconds=fsum(max(stage.ended_at - stage.planned_at, 0.0) for stage in stages),
    )


def in_order_of_plan(stage: StageRun) -> list[Outcome]:
    """The outcomes of a stage in the order of its plan, not in that in which the removals ended."""
    # a pass may end while a plan is awaited
    planned = () if stage.plan is None else stage.plan.remove
    place = {verdict.id: number for number, verdict in enumerate(planned)}
    return sorted(stage.outcomes, key=lambda outcome: place.get(outcome.verdict.id, 0))
