"""What does not answer costs the owner of the state no turn, and a pass no end. Found by the simulation."""

from __future__ import annotations

from typing import Any

import pytest

from eviction.engine.effects import Effect, PassWanted, PauseSet, Plan, Read, Tick
from eviction.engine.step import next_deadline
from eviction.engine.world import Request
from eviction.record import Trigger
from eviction.types import Extent
from reclaim import types
from reclaim.function import Ready, Stage
from reclaim.types import Action, Kind, Reason, Verdict
from tests.inline import FUNCTION, Inline, function_of
from tests.pure.values import SteppedClock


class OneObject(Stage):
    """Removes one object."""

    def plan(self) -> types.Plan:
        """It."""
        return types.Plan((Verdict(Kind.IMAGE, "an-image", "an image", Action.REMOVE, Reason.UNUSED, 1),))

    def check(self, verdict: Verdict) -> Ready:
        """It may go."""
        return Ready(float("inf"))

    def remove(self, verdict: Verdict) -> bool:
        """It goes."""
        return True

    def present(self, verdict: Verdict) -> bool:
        """It has gone."""
        return False


class Hanging(Inline):
    """An engine whose filesystems answer nothing from some moment on."""

    hangs = False
    turns = 0

    def turn(self) -> None:
        """Counts."""
        self.turns += 1
        super().turn()

    def done(self, effect: Effect) -> Any:
        """All but readings."""
        return [] if self.hangs and isinstance(effect, Read) else super().done(effect)


@pytest.fixture
def engine() -> Hanging:
    """With one function of one stage."""
    nothing: Any = lambda facts: None  # noqa: E731 # its stage uses nothing of a node
    return Hanging(SteppedClock(), {FUNCTION: function_of(OneObject())}, nothing)


def ask(engine: Inline) -> PassWanted:
    """Asks for a pass to the end of its row, after a look."""
    observations, decision = engine.look()
    request = Request(row=(FUNCTION,), extent=Extent.ALL)
    wanted = PassWanted(observations, decision, Trigger.REQUEST, request, None, engine.clock.monotonic())
    engine.events.append(wanted)
    return wanted


def test_the_owner_rests_while_a_filesystem_hangs(engine: Hanging) -> None:
    """Once a reading is late, its deadline is over, and not due for as long as it hangs."""
    engine.look()
    engine.hangs = True
    engine.look()
    engine.clock.step(3.0)
    engine.events.append(Tick())
    engine.turn()
    assert all(one.late(engine.world.now) for one in engine.world.readings.values())
    assert next_deadline(engine.world) > engine.world.now


def test_a_pass_ends_although_the_filesystem_that_it_frees_hangs(engine: Hanging) -> None:
    """Its object goes, and what that gained is not known; the pass ends all the same."""
    engine.look()
    wanted = ask(engine)

    def hang_from_the_plan_on(effect: Effect) -> None:
        engine.hangs = engine.hangs or isinstance(effect, Plan)

    engine.before = hang_from_the_plan_on
    engine.until(wanted.record.done)
    record = wanted.record.result()
    assert record is not None
    assert [outcome.verdict.id for outcome in record.removals] == ["an-image"]
    assert engine.turns < 500


def test_a_pass_that_is_paused_while_it_plans_has_a_record(engine: Hanging) -> None:
    """The pause is taken in before the plan is there."""
    wanted = ask(engine)

    def pause(effect: Effect) -> None:
        if isinstance(effect, Plan):
            engine.events.append(PauseSet(60.0))

    engine.before = pause
    engine.until(wanted.record.done)
    record = wanted.record.result()
    assert record is not None
    assert not list(record.removals)
    assert record.functions[0].relieved
