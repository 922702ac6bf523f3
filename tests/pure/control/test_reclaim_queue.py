"""Requests wait their turn, say what they wait for, and end: with an answer, a refusal, or nobody left to hear it."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from eviction.configuration.fingerprint import Fingerprint
from eviction.control.reclaim import HookAnswer, HookOptions, HookRefused
from eviction.control.reclaim_queue import MOST_WAITING, HookRequests

REQUEST: dict[str, Any] = {"options": {}, "told": {}}


def requests(doing: str | None = None, turn_seconds: float = 30.0) -> HookRequests:
    """Requests to a daemon that does this."""
    return HookRequests(lambda: None, lambda: doing, turn_seconds)


def test_a_request_wakes_the_daemon_and_is_taken_in_its_turn() -> None:
    """First come, first served."""
    woken = threading.Event()
    made = HookRequests(woken.set, lambda: None)
    first, second = made.ask(HookOptions()), made.ask(HookOptions(now=True))
    assert woken.is_set()
    assert [made.take(), made.take(), made.take()] == [first, second, None]


def test_the_conversation_ends_with_the_answer() -> None:
    """Accepted at once, with what the daemon does; then the exit code, the sentence and the data."""
    made = requests("relieving nodefs.available")
    lines = made.converse(REQUEST, {})
    assert next(lines) == {"accepted": True, "busy": "relieving nodefs.available"}
    ticket = made.take()
    assert ticket is not None
    ticket.finish(HookAnswer(1, "held off", {"a": 1}, ("x",)))
    assert list(lines) == [{"exit_code": 1, "sentence": "held off", "document": {"a": 1}, "lines": ["x"]}]


def test_a_turn_that_does_not_come_is_refused_and_given_up() -> None:
    """After the bound it says what the daemon is doing, and nothing waits any more."""
    made = requests("asking the runtime", turn_seconds=0.5)
    *accepted, last = made.converse(REQUEST, {})
    assert accepted == [{"accepted": True, "busy": "asking the runtime"}]
    assert last == {"refused": "its turn has not come within 0.5 s, it is asking the runtime"}
    assert made.waiting == 0


def test_a_pass_that_has_begun_is_waited_for_beyond_the_bound() -> None:
    """Its beats go on; only a turn is bounded, not the pass."""
    made = requests("relieving on request", turn_seconds=0.1)
    lines = made.converse(REQUEST, {})
    next(lines)
    ticket = made.take()
    assert ticket is not None
    assert next(lines) == {"accepted": True, "busy": "relieving on request"}
    ticket.refuse("its pass ended in a defect")
    assert list(lines) == [{"refused": "its pass ended in a defect"}]


def test_an_asker_that_leaves_is_forgotten() -> None:
    """The conversation is closed: its place is free again."""
    made = requests()
    lines = made.converse(REQUEST, {})
    next(lines)
    assert made.waiting == 1
    lines.close()
    assert made.waiting == 0
    assert made.take() is None


def test_one_too_many_is_refused() -> None:
    """Four may wait."""
    made = requests()
    for _ in range(MOST_WAITING):
        made.ask(HookOptions())
    with pytest.raises(HookRefused, match="4 requests wait already"):
        made.ask(HookOptions())


def test_a_daemon_that_stops_refuses_all() -> None:
    """Those that wait, and those that come."""
    made = requests()
    lines = made.converse(REQUEST, {})
    next(lines)
    made.close()
    assert list(lines) == [{"refused": "it is stopping"}]
    assert list(made.converse(REQUEST, {})) == [{"refused": "it is stopping"}]


def test_an_answer_is_not_taken_back() -> None:
    """A refusal after the answer changes nothing."""
    made = requests()
    ticket = made.ask(HookOptions())
    ticket.finish(HookAnswer(0))
    ticket.refuse("too late")
    assert (ticket.answer, ticket.refused) == (HookAnswer(0), "")


@pytest.mark.parametrize("request_", [{}, {"options": []}, {"options": {}, "told": 5}, {"options": {}}])
def test_a_request_without_its_parts_is_refused(request_: dict[str, object]) -> None:
    """Whoever sends it, nothing is queued."""
    made = requests()
    assert list(made.converse(request_, {})) == [
        {"refused": "a request names its options and what its configuration is"}
    ]
    assert made.waiting == 0


def test_only_the_same_configuration_or_none_is_served() -> None:
    """A daemon without a fingerprint serves only commands that name no configuration."""
    sent: Fingerprint = {"files": [["/a", 1, 2]], "flags": [], "environment": []}
    others: tuple[Fingerprint, ...] = ({}, {**sent, "flags": [["root-dir", "/x"]]})
    for ours in others:
        (refusal,) = requests().converse({"options": {}, "told": sent}, ours)
        assert "another configuration" in refusal["refused"]
    assert next(requests().converse({"options": {}, "told": sent}, sent)) == {"accepted": True, "busy": None}
