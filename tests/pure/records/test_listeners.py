"""Who listens never stands before relief: what happens is told on a thread of its own."""

import inspect
import re
import threading
from collections.abc import Iterator

import pytest

from eviction.records.listener import MOST_WAITING, Listeners
from tests.repository import ROOT
from tests.thread_limit import no_thread_starts

LONGEST_SECONDS = 60.0


class Heard:
    """Keeps what it hears of `not_begun`, and on which thread; fails on a word, or hangs until it
    is let go."""

    def __init__(self, listeners: Listeners | None = None) -> None:
        self.lines: list[str] = []
        self.lost: list[str | int] = []
        self.threads: set[threading.Thread] = set()
        self.began, self.let_go = threading.Event(), threading.Event()
        self.listeners = listeners

    def not_begun(self, why: str) -> None:
        """Kept."""
        self.lines.append(why)
        self.threads.add(threading.current_thread())

    def detected(self) -> None:
        """Asks on the thread that tells whether all was told."""
        if self.listeners:
            self.lines.append(f"{self.listeners.done(LONGEST_SECONDS)}")

    def listener_failed(self, listener: str, error: BaseException) -> None:
        """Kept."""
        self.lost.append(f"{listener}: {error!r}")

    def events_dropped(self, count: int) -> None:
        """Kept."""
        self.lost.append(count)


class Raises:
    """Fails each time, in some way."""

    def not_begun(self, why: str) -> None:
        """Never returns."""
        raise SystemExit(why) if why == "b" else KeyError(why)

    def listener_failed(self, listener: str, error: BaseException) -> None:
        """Not even this is heard, so the failure is only counted."""
        raise error


class Hangs(Heard):
    """Does not return until it is let go."""

    def not_begun(self, why: str) -> None:
        """Waits."""
        self.began.set()
        assert self.let_go.wait(LONGEST_SECONDS)


@pytest.fixture
def listeners() -> Iterator[Listeners]:
    """None at first; their thread ends with them."""
    made, threads = Listeners(), set(threading.enumerate())
    yield made
    made.finish(LONGEST_SECONDS)
    assert set(threading.enumerate()) <= threads


def hanging(listeners: Listeners) -> Hangs:
    """One that hangs in the first event."""
    hangs = Hangs()
    listeners.add(hangs)
    listeners.tell("not_begun", "first")
    assert hangs.began.wait(LONGEST_SECONDS)
    return hangs


def test_each_is_told_in_order_on_one_thread_and_one_that_raises_loses_its_own_lines_alone(
    listeners: Listeners,
) -> None:
    """They are counted; those that are told after it hear everything, and what has failed. The
    thread is not the caller's. What one has no method for, it does not hear."""
    both = Heard(), Heard()
    for each in (Raises(), *both):
        listeners.add(each)
    listeners.tell("watched")
    for why in "abc":
        listeners.tell("not_begun", why)
    assert listeners.done(LONGEST_SECONDS)
    assert [each.lines for each in both] == [["a", "b", "c"]] * 2
    assert both[0].threads == both[1].threads != {threading.current_thread()}
    assert (listeners.failed, listeners.dropped) == (6, 0)
    errors = "KeyError('a')", "SystemExit('b')", "KeyError('c')"
    assert both[0].lost == [f"Raises: {error}" for error in errors]


def test_a_listener_that_hangs_delays_nobody_and_what_is_too_much_is_counted(
    listeners: Listeners,
) -> None:
    """Whoever tells returns at once, however often; what waits is bounded, and nobody waits for it
    longer than asked. When it goes on, so does the rest, and all hear how much is lost."""
    assert listeners.done(0.0), "nobody listens"
    hangs, heard = hanging(listeners), Heard()
    listeners.add(heard)
    for number in range(MOST_WAITING + 5):
        listeners.tell("not_begun", str(number))
    assert (heard.lines, listeners.dropped) == ([], 5)
    answers: list[bool] = []
    waits = threading.Thread(target=lambda: answers.append(listeners.done(0.01)), daemon=True)
    waits.start()
    waits.join(LONGEST_SECONDS)
    assert answers == [False]
    hangs.let_go.set()
    assert listeners.done(LONGEST_SECONDS)
    assert heard.lines == list(map(str, range(MOST_WAITING)))
    assert heard.lost == [5]


def test_a_listener_itself_does_not_wait_until_all_was_told(listeners: Listeners) -> None:
    """It would wait for its own end. At the end of the daemon one that hangs keeps nobody."""
    hangs, asks = hanging(listeners), Heard(listeners)
    listeners.add(asks)
    listeners.tell("detected")
    assert not listeners.done(0.01)
    listeners.finish(0.01)
    hangs.let_go.set()
    assert listeners.done(LONGEST_SECONDS)
    assert asks.lines == ["True"]


def test_without_a_listener_nothing_waits_and_no_thread_is_needed(listeners: Listeners) -> None:
    """Commands that print their own record have none."""
    with no_thread_starts():
        for _ in range(MOST_WAITING + 1):
            listeners.tell("not_begun", "a")
        with pytest.raises(RuntimeError):
            listeners.add(Heard())
    heard = Heard()
    listeners.add(heard)
    listeners.tell("not_begun", "b")
    assert listeners.done(LONGEST_SECONDS)
    assert (heard.lines, listeners.dropped) == (["b"], 0)


def test_what_the_program_tells_is_what_a_listener_may_hear() -> None:
    """A name that is written wrong would reach nobody, and nothing would fail."""
    documented = re.findall(r"^(\w+)\(", inspect.getdoc(Listeners) or "", re.MULTILINE)
    code = "\n".join(path.read_text() for path in (ROOT / "eviction").rglob("*.py"))
    tells = r'(?:\.(?:tell|telling|_call)\(|partial\([\w.]+\.tell,)\s*"(\w+)"'
    assert {*re.findall(tells, code)} == {*documented}
