"""The one gate before every send. Pure.

Nothing is sent past it, by whomever: pass, command, periodic loop, last resort. It
reads the world as it is when the check has been answered, not as it was when the pass
began or the object was claimed.
"""

from eviction.engine.relief import brake, disk_of, why_stuck
from eviction.engine.world import RunningPass, World
from reclaim.function import STATUS_FRESH_SECONDS
from reclaim.removals import Checked
from reclaim.types import Reason


def may_send(running: RunningPass | None, world: World) -> Reason | None:
    """Why nothing may be sent for this pass now; None if it may. `running`: None: it has ended."""
    if running is None or running.ended:
        return Reason.STOPPING
    if (braked := brake(running, world)) is not None:
        return braked
    if running.function and (stop := disk_of(running, world).stop) is not None:
        return stop
    return Reason.RUNTIME_STUCK if why_stuck(running, world) else None


def too_old(checked: Checked, world: World) -> bool:
    """Whether what a check has found says nothing about now any more, so that the object is checked
    again; always if it has found nothing."""
    return world.now - checked.looked_at > STATUS_FRESH_SECONDS
