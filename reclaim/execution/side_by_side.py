"""Whose removal is next where the plans of several functions are executed side by side.

On a disk that fills, what frees nothing must not go first: hundreds of dead containers may free not a byte, or late,
while an image frees at its answer. So the plans share the removals in flight:

* The plan whose removals have freed most, each, leads. Before any of them has freed anything, and among equals, the
  plan that is named first leads.
* Every eighth removal is another plan's. So what it frees is seen too, however little was expected of it: one dead
  container may hold more than all images.

Only plans of which no object needs one of another are executed side by side: an image that a dead container pins is in
no plan before that container is gone.

Covers: the choice of the plan (values in, an index out). Does not cover: which of its objects is next (the plan, or
`order`), how many may be in flight (`in_flight`), what was freed (`freed_space`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

ANOTHERS_TURN = 8  # every so many-th removal belongs to a plan that does not lead


@dataclass(frozen=True, slots=True)
class Standing:
    """How far one plan is. `has_more`: whether an object is left. `freed_each`: bytes that one of its
    removals has freed in this execution, 0 as long as nothing has come."""

    has_more: bool
    freed_each: float = 0.0


def next_plan(standings: Sequence[Standing], started: int) -> int | None:
    """The index of the plan whose removal is next; None if no plan has one. `started`: removals that were started so
    far, of all plans together."""
    left = sorted(
        (index for index, standing in enumerate(standings) if standing.has_more),
        key=lambda index: -standings[index].freed_each,  # stable: of equals the one that is named first
    )
    if not left:
        return None
    turns, into_turn = divmod(started, ANOTHERS_TURN)
    if len(left) == 1 or into_turn < ANOTHERS_TURN - 1:
        return left[0]
    others = sorted(left[1:])
    return others[turns % len(others)]
