"""The one gate before every send. Pure.

Nothing is sent past it, by whomever: pass, request, periodic loop, last resort. It reads the world as it is when the
check has been answered, not as it was when the pass began or the object was claimed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eviction.engine.relief import RunningPass, moved, why_not
from reclaim.removals import Checked, Claim, State, stuck, too_old
from reclaim.types import Reason

if TYPE_CHECKING:
    from eviction.engine.world import World


def may_send(the: RunningPass | None, claim: Claim, checked: Checked, world: World) -> Reason | None:
    """Why a removal that was checked must not be sent now; None if it may. `the`: its pass; None: it has ended."""
    if the is None or claim.state is not State.CHECKING:
        return Reason.STOPPING
    if (reason := why_not(the, world)) is not None:
        return reason
    if world.keep.names(claim.verdict):
        return Reason.KEEP_LIST
    if moved(the.observations, world.observations):
        return Reason.LAYOUT_CHANGED
    if stuck(world.removals, world.parallel, world.now):
        return Reason.RUNTIME_STUCK
    return None


def again(claim: Claim, checked: Checked, fresh_seconds: float, now: float) -> bool:
    """Whether the object is checked once more, because the answer is too old by now."""
    return too_old(checked, fresh_seconds, now)
