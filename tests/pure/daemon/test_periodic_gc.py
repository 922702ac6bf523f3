"""The periodic loops: when they run, and what they announce after a failure.

Source: kubelet, `StartGarbageCollection` in `pkg/kubelet/kubelet.go`.
"""

from __future__ import annotations

from functools import partial
from io import StringIO

import pytest

from eviction.daemon.periodic_gc import (
    CONTAINER,
    CONTAINER_GC_PERIOD_SECONDS,
    IMAGE,
    IMAGE_GC_PERIOD_SECONDS,
    PeriodicLoop,
)
from eviction.reporting.log import Log
from eviction.telemetry.announcements import log_event
from reclaim.types import GCEvent
from tests.pure.values import SteppedClock, SteppedEvent


class Story:
    """A loop whose passes take as long, and end, as the story says; time is stepped."""

    def __init__(self, *passes: tuple[float, str], period: float = 60.0, images: bool = False, verbosity: int = 0):
        self.clock = SteppedClock()
        self.stopping = SteppedEvent(self.clock)
        self.began: list[float] = []
        self.out = StringIO()
        self._passes = list(passes)
        self.held_until = 0.0
        log = Log(self.clock.wall, stream=self.out, verbosity=verbosity)
        what = IMAGE if images else CONTAINER
        self._log_event = partial(log_event, log)
        self.raises: dict[str, BaseException] = {}  # once each: by a pass, `may_act` or `event`
        self.loop = PeriodicLoop(what, period, self._pass, log, self._event, self.stopping, self._may_act)

    def _raise(self, where: str) -> None:
        if where in self.raises:
            raise self.raises.pop(where)

    def _event(self, event: GCEvent) -> None:
        self._raise("event")
        self._log_event(event)

    def _may_act(self) -> str | None:
        self._raise("may_act")
        return "held off" if self.clock.monotonic() - 1000.0 < self.held_until else None

    def _pass(self) -> str:
        self._raise("pass")
        self.began.append(self.clock.monotonic() - 1000.0)
        seconds, error = self._passes.pop(0)
        self.clock.step(seconds)
        if not self._passes:
            self.stopping.set()
        if error == "defect":
            raise KeyError("defect")
        return error

    def tell(self) -> list[str]:
        """Runs it; what was said, without the time."""
        self.loop.run()
        return [line.split(" ", 1)[1].strip() for line in self.out.getvalue().splitlines()]


def test_the_first_pass_comes_at_once_and_the_next_a_period_after_the_last_one_ended() -> None:
    """A slow pass shifts the next one: 0, 10 + 60, 70 + 5 + 60 seconds."""
    story = Story((10.0, ""), (5.0, ""), (0.0, ""))
    story.tell()
    assert story.began == [0.0, 70.0, 135.0]


def test_the_periods_are_a_minute_and_five() -> None:
    """Kubelet: ContainerGCPeriod and ImageGCPeriod."""
    assert (CONTAINER_GC_PERIOD_SECONDS, IMAGE_GC_PERIOD_SECONDS) == (60.0, 300.0)


def test_every_failure_of_the_container_loop_is_an_event() -> None:
    """The first one too; the success after it is announced, further ones are not."""
    said = Story((0.0, "a"), (0.0, "b"), (0.0, ""), (0.0, ""), (0.0, "c"), (0.0, "")).tell()
    assert said == [
        "warning container garbage collection failed: a event=ContainerGCFailed",
        "warning container garbage collection failed: b event=ContainerGCFailed",
        "info    container garbage collection succeeded again",
        "warning container garbage collection failed: c event=ContainerGCFailed",
    ]


def test_of_the_image_loop_the_first_failure_in_a_row_is_no_event() -> None:
    """It is logged, because statistics may not be available yet; every further one is an event."""
    said = Story((0.0, "a"), (0.0, "b"), (0.0, "c"), (0.0, ""), (0.0, "d"), (0.0, ""), images=True).tell()
    assert said == [
        "error   image garbage collection failed once; statistics may not be there yet: a",
        "warning image garbage collection failed again: b event=ImageGCFailed",
        "warning image garbage collection failed again: c event=ImageGCFailed",
        "info    image garbage collection succeeded again",
        "error   image garbage collection failed once; statistics may not be there yet: d",
    ]


def test_a_success_after_a_success_is_a_debug_line() -> None:
    """With `-v 1`."""
    assert Story((0.0, ""), (0.0, ""), verbosity=1).tell() == ["debug   container garbage collection succeeded"]


def test_a_defect_in_a_pass_does_not_end_the_loop() -> None:
    """It is a failure like any other."""
    said = Story((0.0, "defect"), (0.0, "")).tell()
    assert said == ["warning container garbage collection failed: KeyError: 'defect' event=ContainerGCFailed"]


@pytest.mark.regression
@pytest.mark.parametrize(
    ("where", "raised"),
    [
        ("pass", SystemExit(1)),
        ("may_act", KeyError("defect")),
        ("may_act", SystemExit(1)),
        ("event", KeyError("defect")),
        ("event", SystemExit(1)),
    ],
)
def test_whatever_is_raised_beside_a_pass_is_logged_and_the_loop_goes_on(where: str, raised: BaseException) -> None:
    """A period later. A failure that could not be announced was one all the same."""
    story = Story((0.0, "a"), (0.0, ""), (0.0, ""))
    story.raises[where] = raised
    said = story.tell()
    failed = "warning container garbage collection failed: a event=ContainerGCFailed"
    assert said == [
        f"error   container garbage collection: {type(raised).__name__}: {raised}",
        *([failed] if where != "event" else []),
        "info    container garbage collection succeeded again",
    ]
    assert story.began == ([0.0, 60.0, 120.0] if where == "event" else [60.0, 120.0, 180.0])


def test_while_everything_is_held_off_no_pass_runs() -> None:
    """It begins a second after at the latest."""
    story = Story((0.0, ""))
    story.held_until = 90.5
    story.tell()
    assert story.began == [91.0]
