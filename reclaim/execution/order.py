"""The order of removals where it is not the plan's own: the protocol that an order implements.

`reclaim.images.removal_order` is the one implementation. Without an order a plan is executed as it was made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from reclaim.disk_need import Need, OrderDecision
from reclaim.types import Outcome, Verdict


class RemovalOrder(Protocol):
    """Chooses the next object while a plan is executed, and learns from each removal."""

    @property
    def decision(self) -> OrderDecision | None:
        """Which order was chosen, and why; None before the first choice."""

    @property
    def freed_per_promised_byte(self) -> float | None:
        """Bytes that earlier removals freed for each byte that the runtime had promised; None before the first one."""

    @property
    def seconds_each(self) -> float:
        """How long one removal takes."""

    def next_index(self, pending: Sequence[Verdict], need: Need | None) -> int:
        """The index of the object to remove next; `pending` is in the order of the plan, and not empty."""

    def expected_yield(self, verdict: Verdict, *, inodes: bool) -> float:
        """Bytes or inodes that removing this object is expected to free; 0 if its size is not known."""

    def record_removal(self, outcome: Outcome) -> None:
        """One removal has ended."""
