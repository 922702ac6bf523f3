"""Whether what a pass reports is what has happened, by the ledger and the runtime's tables."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import grpc

from eviction.drill.runtime.faults import ActThenFail, Cut, Distort, Fail, Failpoint, Pretend
from eviction.record import Pass
from reclaim.types import Outcome, Result
from tests.model.truth import TrueRuntime

STATUS_CALLS = ("ContainerStatus", "ImageStatus", "PodSandboxStatus")


def wrong_outcomes(runtime: TrueRuntime, removals: Iterable[Outcome], removed: Collection[str]) -> list[str]:
    """What is said of single objects and is not so. `removed`: ids of what reclaimd has removed in the pass."""
    wrong = []
    for outcome in removals:
        there = runtime.has(outcome.verdict.id)
        if outcome.result is Result.REMOVED and there and outcome.verdict.id not in removed:
            wrong.append(f"{outcome.verdict.id} is reported as removed, and is there")
        if outcome.result is Result.FAILED and outcome.verdict.id in removed and not there:
            wrong.append(f"{outcome.verdict.id} is reported as failed, and was removed: {outcome.error}")
    return wrong


def unreported(removals: Iterable[Outcome], kept: Iterable[Outcome], removed: Collection[str]) -> list[str]:
    """What was removed, and is not said to be."""
    left = set(removed) - {outcome.verdict.id for outcome in removals}
    wrong = [f"{each.verdict.id} is reported as kept, and was removed" for each in kept if each.verdict.id in left]
    return wrong + [f"{each} was removed, and is not reported" for each in sorted(left)]


def wrong_nominal(record: Pass) -> list[str]:
    """Whether the sum of nominal sizes is that of what was removed."""
    nominal = sum(each.verdict.size_bytes or 0 for each in record.removals if each.result is Result.REMOVED)
    return (
        [] if record.nominal_bytes == nominal else [f"{record.nominal_bytes} nominal bytes are reported of {nominal}"]
    )


def answered_wrongly(triggered: Iterable[tuple[str, Failpoint]]) -> bool:
    """Whether a status reported an object that is there as absent, or the reverse. `triggered`: methods and faults."""
    return any(method in STATUS_CALLS and _is_wrong_answer(action) for method, action in triggered)


def _is_wrong_answer(action: Failpoint) -> bool:
    match action:
        case Pretend() | Distort():
            return True
        case Fail(code=code) | ActThenFail(code=code) | Cut(code=code):
            return code is grpc.StatusCode.NOT_FOUND
        case _:
            return False
