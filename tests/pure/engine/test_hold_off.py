"""After a start nothing is removed until the kubelet is healthy or the time is over."""

from __future__ import annotations

import pytest

from eviction.engine.effects import KubeletHealthy
from eviction.engine.world import Pause
from tests.inline import Inline
from tests.pure.values import SteppedClock


def held(clock: SteppedClock, seconds: float = 300.0) -> Inline:
    """A node whose hold-off began now."""
    node = Inline(clock, {}, lambda _: pytest.fail("no stage is made"))
    node.world = node.world._replace(hold_off_until=clock.monotonic() + seconds)
    return node


def why(node: Inline) -> str:
    """Why nothing may be removed now."""
    return node.world._replace(now=node.clock.monotonic(), wall=node.clock.wall()).held_off()


def test_without_a_healthy_kubelet_it_lasts_its_time() -> None:
    """300 s: held at 299 s with a sentence that says how long, free at 300 s."""
    clock = SteppedClock()
    node = held(clock)
    clock.step(299.0)
    assert (
        why(node)
        == "the kubelet does not answer on /healthz; nothing is removed for another 1 s after the"
        " start"
    )
    clock.step(1.0)
    assert why(node) == ""


def test_a_healthy_kubelet_ends_it() -> None:
    """As soon as it answers; a kubelet that stops answering later, as in an
    upgrade, does not start it again.
    """
    node = held(SteppedClock())
    assert why(node)
    node.events.append(KubeletHealthy())
    node.turn()
    assert why(node) == ""


def test_a_pause_ends_by_itself_or_when_it_is_ended() -> None:
    """It says until when, by the time of day."""
    clock = SteppedClock()
    assert (
        Pause().why(clock.monotonic(), clock.wall()),
        Pause().left_seconds(clock.monotonic()),
    ) == ("", 0.0)
    pause = Pause().begun(clock.monotonic(), 60.0)
    why = "paused until 2027-01-15T08:01:00Z (reclaimd resume ends it)"
    assert pause.why(clock.monotonic(), clock.wall()) == why
    clock.step(59.0)
    assert pause.left_seconds(clock.monotonic()) == 1.0
    clock.step(1.0)
    assert pause.why(clock.monotonic(), clock.wall()) == ""
    again = pause.begun(clock.monotonic(), 60.0)
    assert again.ended().why(clock.monotonic(), clock.wall()) == ""


def test_a_pause_that_is_forgotten_ends_after_a_day() -> None:
    """However long it was asked for."""
    clock = SteppedClock()
    pause = Pause().begun(clock.monotonic(), 10 * 86_400.0)
    assert pause.left_seconds(clock.monotonic()) == 86_400.0
