"""A plan while it is executed: what is left of it, and what has become of the rest.

Covers: values and bookkeeping of one plan. Does not cover: which plan is next (`side_by_side`), removing (`executor`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from reclaim.execution.order import RemovalOrder
from reclaim.execution.remover import Remover
from reclaim.types import Action, Outcome, Plan, Reason, Result, Rule, Verdict


@dataclass(frozen=True, slots=True)
class Work:
    """A plan, what removes its objects, and an order that is not the plan's own.

    `patience_seconds`: how long one of its removals is waited for; None: as long as any other.
    """

    plan: Plan
    remover: Remover
    order: RemovalOrder | None = None
    patience_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class ExecutionResult:
    """What became of a plan.

    `relieved`: nothing more had to go, or nothing more may go as the disk cannot be read. `error`: why the rest was not
    attempted, if a failure cut it short.
    """

    outcomes: tuple[Outcome, ...]
    kept: tuple[Outcome, ...]
    relieved: bool
    error: str = ""


class PlanInExecution:
    """One of the plans of an execution. `pending`: what is left of it, in its order."""

    def __init__(self, work: Work):
        self.work = work
        self.pending = deque(work.plan.remove)
        self.kept = [Outcome(verdict) for verdict in work.plan.keep]
        self.outcomes: list[Outcome] = []
        self.promising = any(verdict.size_bytes for verdict in work.plan.remove)

    @property
    def may_free_late(self) -> bool:
        """Whether space may still come of what was removed, although none was promised."""
        return self.work.remover.frees_late and any(each.result is Result.REMOVED for each in self.outcomes)

    def keep(self, verdicts: Iterable[Verdict], reason: Reason) -> None:
        """Keeps what was to be removed."""
        self.kept += [Outcome(kept_by_guard(verdict, reason)) for verdict in verdicts]

    def leave_out(self, parked: Collection[str]) -> None:
        """Keeps the objects with these ids: an earlier removal of them has not ended."""
        self.keep((verdict for verdict in self.pending if verdict.id in parked), Reason.BEING_REMOVED)
        self.pending = deque(verdict for verdict in self.pending if verdict.id not in parked)


def kept_by_guard(verdict: Verdict, reason: Reason) -> Verdict:
    """The verdict of an object that was to be removed, and is kept for this reason."""
    return verdict._replace(action=Action.KEEP, reason=reason, eligible_in_seconds=None, rule=Rule.GUARD)
