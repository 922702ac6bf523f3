"""Who listens never stands before relief: what happens is told on a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from eviction.records.listener import MOST_WAITING, Listener, Listeners
from tests.thread_limit import no_thread_starts

LONGEST_SECONDS = 60.0


class Heard(Listener):
    """Keeps what it hears of `not_begun`, and on which thread."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.lost: list[str | int] = []
        self.threads: set[threading.Thread] = set()

    def not_begun(self, why: str) -> None:
        """Kept."""
        self.lines.append(why)
        self.threads.add(threading.current_thread())

    def listener_failed(self, listener: str, error: BaseException) -> None:
        """Kept."""
        self.lost.append(f"{listener}: {error!r}")

    def events_dropped(self, count: int) -> None:
        """Kept."""
        self.lost.append(count)


class Raises(Listener):
    """Fails each time, in some way."""

    def not_begun(self, why: str) -> None:
        """Never returns."""
        raise SystemExit(why) if why == "b" else KeyError(why)

    def listener_failed(self, listener: str, error: BaseException) -> None:
        """Not even this is heard, so the failure is only counted."""
        raise error


class Hangs(Listener):
    """Does not return until it is let go."""

    def __init__(self) -> None:
        self.began, self.let_go = threading.Event(), threading.Event()

    def not_begun(self, why: str) -> None:
        """Waits."""
        self.began.set()
        assert self.let_go.wait(LONGEST_SECONDS)


@pytest.fixture
def listeners() -> Iterator[Listeners]:
    """None at first."""
    made = Listeners()
    yield made
    made.finish(LONGEST_SECONDS)


def test_each_is_told_in_order_on_one_thread_that_is_not_the_caller_s(listeners: Listeners) -> None:
    """Three lines, to both."""
    both = Heard(), Heard()
    for each in both:
        listeners.add(each)
    for why in "abc":
        listeners.tell("not_begun", why)
    assert listeners.done(LONGEST_SECONDS)
    assert [each.lines for each in both] == [["a", "b", "c"]] * 2
    assert both[0].threads == both[1].threads != {threading.current_thread()}


@pytest.mark.regression
def test_a_listener_that_raises_loses_its_own_lines_alone(listeners: Listeners) -> None:
    """They are counted; the one that is told after it hears everything, and what has failed."""
    heard = Heard()
    listeners.add(Raises())
    listeners.add(heard)
    for why in "abc":
        listeners.tell("not_begun", why)
    assert listeners.done(LONGEST_SECONDS)
    assert (heard.lines, listeners.failed, listeners.dropped) == (["a", "b", "c"], 6, 0)
    assert heard.lost == [
        "Raises: KeyError('a')",
        "Raises: SystemExit('b')",
        "Raises: KeyError('c')",
    ]


@pytest.mark.regression
def test_a_listener_that_hangs_delays_nobody_and_what_is_too_much_is_counted(
    listeners: Listeners,
) -> None:
    """Whoever tells returns at once, however often; what waits is bounded. When it goes on, so does
    the rest, and all hear how much is lost."""
    hangs, heard = Hangs(), Heard()
    listeners.add(hangs)
    listeners.add(heard)
    listeners.tell("not_begun", "first")
    assert hangs.began.wait(LONGEST_SECONDS)
    for number in range(MOST_WAITING + 5):
        listeners.tell("not_begun", str(number))
    assert (heard.lines, listeners.dropped) == ([], 5)
    hangs.let_go.set()
    assert listeners.done(LONGEST_SECONDS)
    assert heard.lines == ["first", *map(str, range(MOST_WAITING))]
    assert heard.lost == [5]


def test_whoever_waits_until_all_was_told_waits_no_longer_than_asked(listeners: Listeners) -> None:
    """False, while one hangs; at once for a listener itself, which would wait for its own end."""
    hangs, on_its_own_thread = Hangs(), list[bool]()

    class Asks(Listener):
        """Asks on the thread that tells."""

        def detected(self) -> None:
            """Whether all was told."""
            on_its_own_thread.append(listeners.done(LONGEST_SECONDS))

    assert listeners.done(0.0)  # nobody listens
    listeners.add(hangs)
    listeners.add(Asks())
    listeners.tell("not_begun", "first")
    assert not listeners.done(0.01)
    listeners.tell("detected")
    hangs.let_go.set()
    assert listeners.done(LONGEST_SECONDS)
    assert on_its_own_thread == [True]


@pytest.mark.regression
def test_even_with_its_queue_full_nobody_waits_longer_than_asked(listeners: Listeners) -> None:
    """At the end of the daemon: a listener that hangs does not keep it."""
    hangs = Hangs()
    listeners.add(hangs)
    listeners.tell("not_begun", "first")
    assert hangs.began.wait(LONGEST_SECONDS)
    for number in range(MOST_WAITING):
        listeners.tell("not_begun", str(number))
    answers: list[bool] = []
    waits = threading.Thread(target=lambda: answers.append(listeners.done(0.01)), daemon=True)
    waits.start()
    waits.join(5.0)
    assert answers == [False]
    listeners.finish(0.01)
    hangs.let_go.set()


def test_without_a_listener_nothing_waits_and_no_thread_is_needed() -> None:
    """Commands that print their own record have none."""
    listeners = Listeners()
    with no_thread_starts():
        for _ in range(MOST_WAITING + 1):
            listeners.tell("not_begun", "a")
        with pytest.raises(RuntimeError):
            listeners.add(Heard())
    assert listeners.dropped == 0
    heard = Heard()
    listeners.add(heard)
    listeners.tell("not_begun", "b")
    assert listeners.done(LONGEST_SECONDS)
    assert heard.lines == ["b"]
    listeners.finish(LONGEST_SECONDS)
