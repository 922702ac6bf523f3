"""The one gate before every send. Pure.

Nothing is sent past it, by whomever: pass, command, periodic loop, last resort. It
reads the world as it is when the check has been answered, not as it was when the pass
began or the object was claimed.
"""

from __future__ import annotations

from eviction.engine.relief import brake, disk_of, parallel_of
from eviction.engine.world import RunningPass, World
from reclaim.function import STATUS_FRESH_SECONDS
from reclaim.removals import Checked, stuck
from reclaim.types import Reason


def may_send(the: RunningPass | None, world: World) -> Reason | None:
    """Why nothing may be sent for this pass now; None if it may. `the`: None: it has ended."""
    if the is None or the.ended:
        return Reason.STOPPING
    if (braked := brake(the, world)) is not None:
        return braked
    if the.at < len(the.row) and (stop := disk_of(the, the.row[the.at], world).stop) is not None:
        return stop
    if not the.dry_run and stuck(world.removals, parallel_of(the, world), world.now):
        return Reason.RUNTIME_STUCK
    return None


def too_old(checked: Checked, world: World) -> bool:
    """Whether what a check has found says nothing about now any more, so that
    the object is checked again.
    """
    return checked.answer is None or world.now - checked.looked_at > STATUS_FRESH_SECONDS
