"""The engine of a real small node on a stepped clock: while something is under way, time hardly
passes; otherwise it is at once what is due next."""

from eviction.engine.node import Node
from eviction.engine.step import next_deadline
from tests.pure.values import SteppedClock

UNDER_WAY_SECONDS = 0.01  # so that a wait for late space ends


def turn(node: Node, clock: SteppedClock, until: float) -> None:
    """One turn of the node's owner; time passes until then at the most."""
    world = node.world
    asks = world.asking.locating_since is not None or world.asking.refreshing_since is not None
    reads = any(one.asked_at is not None for one in world.readings.values())
    if asks or reads or world.passes or world.look is not None:
        clock.step(UNDER_WAY_SECONDS)
    else:
        clock.step(max(min(next_deadline(world), until) - clock.monotonic(), 0.0))
    node.owner.turn()
