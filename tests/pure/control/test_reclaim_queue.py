"""Reclaim requests wait their turn, and end with an answer, a refusal, or when the client disconnects."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from eviction.configuration.fingerprint import Fingerprint
from eviction.control.answer import Answer, RequestRefused
from eviction.control.reclaim import MOST_WAITING, ReclaimOptions, ReclaimQueue, Ticket
from tests.pure.interrupted import Interruption

REQUEST: dict[str, Any] = {"options": {}, "told": {}}


def requests(doing: str | None = None, turn_seconds: float = 30.0) -> ReclaimQueue:
    """The queue of a daemon that is doing this."""
    return ReclaimQueue(lambda: None, lambda: doing, turn_seconds)


def that_removes(ticket: Ticket) -> bool:
    """Which request is taken."""
    return not ticket.options.dry_run


def test_a_request_wakes_the_daemon_and_is_taken_in_its_turn() -> None:
    """First come, first served."""
    woken = threading.Event()
    made = ReclaimQueue(woken.set, lambda: None)
    first, second = made.ask(ReclaimOptions()), made.ask(ReclaimOptions(now=True))
    assert woken.is_set()
    assert [made.take(that_removes), made.take(that_removes), made.take(that_removes)] == [first, second, None]


def test_the_conversation_ends_with_the_answer() -> None:
    """Accepted at once, with what the daemon does; then the exit code, the sentence and the data."""
    made = requests("relieving nodefs.available")
    lines = made.converse(REQUEST, {})
    assert next(lines) == {"accepted": True, "busy": "relieving nodefs.available"}
    ticket = made.take(that_removes)
    assert ticket is not None
    ticket.answer.set_result(Answer(1, "held off", {"a": 1}, ("x",)))
    assert list(lines) == [{"exit_code": 1, "sentence": "held off", "document": {"a": 1}, "lines": ("x",)}]


def test_a_request_whose_turn_does_not_come_is_refused() -> None:
    """After the limit the refusal says what the daemon is doing, and the queue is empty."""
    made = requests("asking the runtime", turn_seconds=0.5)
    lines = made.converse(REQUEST, {})
    assert next(lines) == {"accepted": True, "busy": "asking the runtime"}
    with pytest.raises(RequestRefused, match=r"^its turn did not come within 0\.5 s: it is asking the runtime$"):
        next(lines)
    assert made.waiting == 0


def test_a_pass_that_has_begun_is_waited_for_beyond_the_bound() -> None:
    """Its heartbeats go on; the limit is for the turn, not for the pass."""
    made = requests("relieving on request", turn_seconds=0.1)
    lines = made.converse(REQUEST, {})
    next(lines)
    ticket = made.take(that_removes)
    assert ticket is not None
    assert next(lines) == {"accepted": True, "busy": "relieving on request"}
    ticket.answer.set_exception(RequestRefused("its pass ended in a defect"))
    with pytest.raises(RequestRefused, match=r"^its pass ended in a defect$"):
        next(lines)


def test_the_request_of_a_client_that_disconnects_is_removed() -> None:
    """When the conversation is closed, its place is free again."""
    made = requests()
    lines = made.converse(REQUEST, {})
    next(lines)
    assert made.waiting == 1
    lines.close()
    assert made.waiting == 0
    assert made.take(that_removes) is None


def test_one_too_many_is_refused() -> None:
    """Four may wait."""
    made = requests()
    for _ in range(MOST_WAITING):
        made.ask(ReclaimOptions())
    with pytest.raises(RequestRefused, match="4 requests are waiting already"):
        made.ask(ReclaimOptions())


def test_a_daemon_that_stops_refuses_all() -> None:
    """Those that wait, and those that come."""
    made = requests()
    lines = made.converse(REQUEST, {})
    next(lines)
    made.close()
    for later in (lines, made.converse(REQUEST, {})):
        with pytest.raises(RequestRefused, match=r"^it is stopping$"):
            next(later)


@pytest.mark.parametrize("request_", [{}, {"options": []}, {"options": {}, "told": 5}, {"options": {}}])
def test_a_request_without_its_parts_is_refused(request_: dict[str, object]) -> None:
    """Nothing is queued."""
    made = requests()
    with pytest.raises(RequestRefused, match=r"^a request contains the options and the configuration of the client$"):
        next(made.converse(request_, {}))
    assert made.waiting == 0


def test_only_the_same_configuration_or_none_is_served() -> None:
    """A daemon without a fingerprint serves only clients without any configuration."""
    sent: Fingerprint = {"files": [["/a", 1, 2]], "flags": [], "environment": []}
    others: tuple[Fingerprint, ...] = ({}, {**sent, "flags": [["root-dir", "/x"]]})
    for ours in others:
        with pytest.raises(RequestRefused, match="another configuration"):
            next(requests().converse({"options": {}, "told": sent}, ours))
    assert next(requests().converse({"options": {}, "told": sent}, sent)) == {"accepted": True, "busy": None}


def test_a_request_is_taken_once() -> None:
    """By one of two threads that want it at the same time."""
    made, taken = requests(), list[Ticket | None]()
    other = Interruption(lambda: taken.append(made.take()))

    def wanted(_: Ticket) -> bool:
        other.come()
        return True

    only = made.ask(ReclaimOptions())
    taken.append(made.take(wanted))
    other.join()
    assert sorted(taken, key=lambda each: each is None) == [only, None]
