"""A plan while it is executed: what is left of it, and what has become of the rest.

Covers: values and bookkeeping of one plan. Does not cover: which plan is next (`side_by_side`), removing (`executor`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from reclaim.execution.order import RemovalOrder
from reclaim.execution.remover import Remover
from reclaim.types import Action, Outcome, Plan, Reason, ReclaimError, Result, Rule, Verdict


@dataclass(frozen=True, slots=True)
class Work:
    """A plan, what removes its objects, and an order that is not the plan's own."""

    plan: Plan
    remover: Remover
    order: RemovalOrder | None = None


MakeWork = Callable[[], Work | None]
"""Makes a plan when its first removal is due. None: there is nothing to plan. Raises ReclaimError if it cannot."""


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
    """One of the plans of an execution. `made`: whether it was tried to make it."""

    def __init__(self, make: MakeWork):
        self._make = make
        self.work: Work | None = None  # not made yet, or there is none
        self.pending: deque[Verdict] = deque()
        self.kept: list[Outcome] = []
        self.outcomes: list[Outcome] = []
        self.error = ""
        self.made = False

    def make(self) -> None:
        """Makes the plan, once."""
        self.made = True
        try:
            self.work = self._make()
        except ReclaimError as error:
            self.error = str(error)
            return
        if self.work is None:
            return
        self.pending.extend(self.work.plan.remove)
        self.kept += [Outcome(verdict) for verdict in self.work.plan.keep]

    @property
    def has_more(self) -> bool:
        """Whether an object is left, or may be."""
        return not self.made or bool(self.pending)

    @property
    def promising(self) -> bool:
        """Whether its objects have sizes; as far as it is known."""
        return self.work is not None and any(verdict.size_bytes for verdict in self.work.plan.remove[:1])

    @property
    def order(self) -> RemovalOrder | None:
        """The order, if it is not the plan's own."""
        return None if self.work is None else self.work.order

    @property
    def may_free_late(self) -> bool:
        """Whether space may still come of what was removed."""
        removed = any(outcome.result is Result.REMOVED for outcome in self.outcomes)
        return removed and self.work is not None and self.work.remover.frees_late

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
