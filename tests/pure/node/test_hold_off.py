"""After a start nothing is removed until the kubelet is healthy or the time is over."""

from __future__ import annotations

import pytest

from eviction.node.hold_off import HoldOff, Pause
from tests.pure.values import SteppedClock


class Kubelet:
    """A kubelet that is healthy or not; counts how often it is asked."""

    def __init__(self, *, healthy: bool = False):
        self.is_healthy = healthy
        self.asked = 0

    def healthy(self) -> bool:
        """True if its `/healthz` answers."""
        self.asked += 1
        return self.is_healthy


def held(clock: SteppedClock, kubelet: Kubelet, seconds: float = 300.0) -> HoldOff:
    """A hold-off that began now."""
    return HoldOff(seconds, clock.monotonic(), clock.monotonic, kubelet.healthy)


def test_without_a_healthy_kubelet_it_lasts_its_time() -> None:
    """300 s: held at 299 s with a sentence that says how long, free at 300 s."""
    clock = SteppedClock()
    hold_off = held(clock, Kubelet())
    clock.step(299.0)
    assert hold_off.why() == (
        "the kubelet does not answer on /healthz; nothing is removed for another 1 s after the start"
    )
    clock.step(1.0)
    assert hold_off.why() is None


def test_a_healthy_kubelet_ends_it() -> None:
    """As soon as it answers."""
    clock, kubelet = SteppedClock(), Kubelet()
    hold_off = held(clock, kubelet)
    assert hold_off.why() is not None
    kubelet.is_healthy = True
    assert hold_off.why() is None


def test_the_hold_off_ends_once() -> None:
    """A kubelet that stops answering later, as in an upgrade, does not start it again."""
    clock, kubelet = SteppedClock(), Kubelet(healthy=True)
    hold_off = held(clock, kubelet)
    hold_off.why()
    kubelet.is_healthy = False
    assert hold_off.why() is None
    assert kubelet.asked == 1


@pytest.mark.parametrize("seconds", [0.0, -1.0])
def test_a_hold_off_of_0_s_is_none(seconds: float) -> None:
    """The kubelet is not even asked."""
    clock, kubelet = SteppedClock(), Kubelet()
    assert held(clock, kubelet, seconds).why() is None
    assert kubelet.asked == 0


def test_a_pause_ends_by_itself_or_when_it_is_ended() -> None:
    """It says until when, by the time of day."""
    clock = SteppedClock()
    pause = Pause(clock.monotonic, clock.wall)
    assert (pause.why(), pause.left_seconds) == (None, 0.0)
    pause.begin(60.0)
    assert pause.why() == "paused until 2027-01-15T08:01:00Z (reclaimd resume ends it)"
    clock.step(59.0)
    assert pause.left_seconds == 1.0
    clock.step(1.0)
    assert pause.why() is None
    pause.begin(60.0)
    pause.end()
    assert pause.why() is None


def test_a_pause_that_is_forgotten_ends_after_a_day() -> None:
    """However long it was asked for."""
    clock = SteppedClock()
    pause = Pause(clock.monotonic, clock.wall)
    pause.begin(10 * 86_400.0)
    assert pause.left_seconds == 86_400.0
