"""When XFS is asked to give back: the pauses after a gain, after nothing, after a problem."""

from __future__ import annotations

from reclaim.xfs.client import Answer, ReleaseResult
from reclaim.xfs.release import MOST_TAKEN_AGAIN, TAKEN_AGAIN, PreallocationRelease

from tests.pure.values import SteppedClock

MIB = 1 << 20
DISK = "/var/lib/containerd"
AWAY = Answer(ReleaseResult.NO_HELPER, "no XFS helper answers")


class Story:
    """A helper whose next answer is `answer`, and whose calls give back `gain` bytes."""

    def __init__(self) -> None:
        self.clock = SteppedClock()
        self.answer = Answer(ReleaseResult.RELEASED)
        self.gain = 0
        self.asked = 0
        self.release = PreallocationRelease(self._ask, self.clock)

    def _ask(self, mount_point: str) -> Answer:
        assert mount_point == DISK
        self.asked += 1
        return self.answer

    def call(self, *, first: bool = False) -> str | None:
        """One call, and what it gave."""
        why_not = self.release.call(DISK, first=first)
        if why_not is None:
            self.release.gained(DISK, self.gain)
        return why_not

    def calls_within(self, seconds: float, step: float = 0.005) -> int:
        """How many calls are really made in so many seconds, with an attempt each step."""
        before = self.asked
        for _ in range(round(seconds / step)):
            self.call()
            self.clock.step(step)
        return self.asked - before


def test_what_gives_back_is_called_again_10_ms_later() -> None:
    """Not before; the first call of a pass does not wait for that."""
    story = Story()
    story.gain = MIB
    assert story.call() is None
    assert (story.call(), story.asked) == ("", 1)
    assert (story.call(first=True), story.asked) == (None, 2)
    story.clock.step(0.0101)
    assert story.call() is None


def test_after_three_calls_in_vain_the_pauses_grow_and_the_first_call_of_a_pass_does_not_wait() -> None:
    """0.1 s, doubled up to 5 s; a gain ends it."""
    story = Story()
    story.gain = MIB - 1
    assert story.calls_within(10.0) < 12
    assert (story.call(), story.call(first=True)) == ("", None)
    story.gain = MIB
    assert story.call(first=True) is None
    story.clock.step(0.0101)
    assert story.call() is None
    assert (story.release.counts[ReleaseResult.RELEASED], story.release.problem) == (2, "")


def test_what_is_taken_again_at_once_is_left_alone_for_5_s() -> None:
    """A file that is being written has it again within a second, eight times; other functions then make the room."""
    story = Story()
    story.gain = 100 * MIB
    assert story.calls_within(1.0) == MOST_TAKEN_AGAIN + 1
    assert story.call(first=True) == TAKEN_AGAIN.format(DISK)
    story.clock.step(5.0)
    assert story.call() is None


def test_what_comes_back_slowly_is_given_back_for_ever() -> None:
    """A file that takes its space again after more than a second does not count as being written all the time."""
    story = Story()
    story.gain = 100 * MIB
    for _ in range(100):
        assert story.call() is None
        story.clock.step(1.01)


def test_after_a_problem_the_pauses_grow_to_a_minute_also_for_a_new_pass() -> None:
    """1, 2, 4 … s; its sentence is given all the time, and each attempt is counted."""
    story = Story()
    story.answer = AWAY
    for seconds in (1, 2, 4, 8, 16, 32, 60, 60):
        before = story.asked
        assert story.call(first=True) == AWAY.problem
        story.clock.step(seconds - 0.01)
        assert (story.call(first=True), story.asked) == (AWAY.problem, before + 1)
        story.clock.step(0.02)
    assert (story.release.counts[ReleaseResult.NO_HELPER], story.release.problem) == (8, AWAY.problem)
    story.answer = Answer(ReleaseResult.RELEASED)
    assert (story.call(), story.release.problem) == (None, "")
