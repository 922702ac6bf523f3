"""Requests of clients wait for their passes, and end with an answer, a refusal, or
when the client disconnects.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from eviction.configuration.effective import load
from eviction.configuration.fingerprint import Fingerprint
from eviction.engine.effects import PassWanted, Request
from eviction.engine.node import Node
from eviction.records.passes import Trigger
from eviction.surface.answer import Answer, OptionRefused
from eviction.surface.requests import MOST_WAITING, ReclaimOptions, Requests
from reclaim.workers import Workers
from signals.types import SignalObservations
from tests.inline import NOTHING_DECIDED

REQUEST: dict[str, Any] = {"options": {}, "told": {}}
OWN_FILESYSTEM = [{"name": "cache", "path": "/var/cache"}]
WANTED = PassWanted(
    SignalObservations({}, None, 0.0), NOTHING_DECIDED, Trigger.REQUEST, Request(), None, 0.0
)


class WithoutOwner(Node):
    """A node whose loop does not run. `passes`: withdraws them in its place."""

    def __init__(self, passes: Passes, waiting: int):
        own = {"containerRuntimeEndpoint": "none", "filesystems": OWN_FILESYSTEM}
        super().__init__(load(None, {}, own))
        self.owner.world = self.owner.world._replace(wanted=(WANTED,) * waiting)
        self._passes = passes

    def withdraw(self, wanted: PassWanted) -> bool:
        """As `Passes` does."""
        return self._passes.withdraw(wanted)


class Passes:
    """The passes of a daemon: each ends when it is told to. `begun`: whether they have."""

    def __init__(self, *, begun: bool = False, waiting: int = 0):
        self.begun = begun
        self.node = WithoutOwner(self, waiting)
        self.withdrawn: list[PassWanted] = []
        self._ended = threading.Event()
        self._answer: Answer | BaseException = Answer(0)

    def end(self, answer: Answer | BaseException) -> None:
        """They end, with this answer."""
        self._answer = answer
        self._ended.set()

    def serve(self, _: ReclaimOptions, wanted: Callable[[PassWanted], None]) -> Answer:
        """Waits for one."""
        wanted(WANTED)
        self._ended.wait()
        if isinstance(self._answer, BaseException):
            raise self._answer
        return self._answer

    def withdraw(self, wanted: PassWanted) -> bool:
        """Whether it has not begun."""
        if not self.begun:
            self.withdrawn.append(wanted)
            self.end(OptionRefused("its client has gone"))
        return not self.begun

    def requests(
        self, doing: str | None = None, turn_seconds: float = 30.0, *, stopping: bool = False
    ) -> Requests:
        """Those of its clients, while it does this."""
        if stopping:
            self.node.stopping.set()
        return RequestsOf(self, doing, turn_seconds)


class RequestsOf(Requests):
    """Those whose passes are these."""

    def __init__(self, passes: Passes, doing: str | None, turn_seconds: float):
        super().__init__(passes.node, lambda: doing, turn_seconds)
        self._passes = passes

    def respond(self, options: ReclaimOptions, wanted: Callable[[PassWanted], None]) -> Answer:
        """The answer of the pass."""
        return self._passes.serve(options, wanted)


def test_the_conversation_ends_with_the_answer() -> None:
    """Accepted at once, with what the daemon does; then the exit code, the
    sentence and the data.
    """
    passes = Passes()
    lines = passes.requests("relieving nodefs.available").converse(REQUEST, {})
    assert next(lines) == {"accepted": True, "busy": "relieving nodefs.available"}
    passes.end(Answer(1, "held off", {"a": 1}, ("x",)))
    *_, last = lines
    assert last == {"exit_code": 1, "sentence": "held off", "document": {"a": 1}, "lines": ("x",)}


def test_a_request_whose_turn_does_not_come_is_refused() -> None:
    """After the limit the refusal says what the daemon is doing, and its pass does not begin."""
    passes = Passes()
    lines = passes.requests("asking the runtime", turn_seconds=0.5).converse(REQUEST, {})
    assert next(lines) == {"accepted": True, "busy": "asking the runtime"}
    with pytest.raises(
        OptionRefused, match=r"^its turn did not come within 0\.5 s: it is asking the runtime$"
    ):
        list(lines)
    assert passes.withdrawn[0] is WANTED


def test_a_pass_that_has_begun_is_waited_for_beyond_the_bound() -> None:
    """Its heartbeats go on; the limit is for the turn, not for the pass."""
    passes = Passes(begun=True)
    lines = passes.requests("relieving on request", turn_seconds=0.1).converse(REQUEST, {})
    next(lines)
    assert next(lines) == {"accepted": True, "busy": "relieving on request"}
    passes.end(OptionRefused("its pass ended in a defect"))
    with pytest.raises(OptionRefused, match=r"^its pass ended in a defect$"):
        list(lines)


def test_the_request_of_a_client_that_disconnects_is_withdrawn() -> None:
    """When the conversation is closed."""
    passes = Passes()
    lines = passes.requests().converse(REQUEST, {})
    next(lines)
    lines.close()
    assert passes.withdrawn == [WANTED]


def test_one_too_many_is_refused() -> None:
    """Four may wait."""
    with pytest.raises(OptionRefused, match="4 requests are waiting already"):
        next(Passes(waiting=MOST_WAITING).requests().converse(REQUEST, {}))


def test_a_daemon_that_stops_refuses_those_that_come() -> None:
    """Nothing begins any more."""
    with pytest.raises(OptionRefused, match=r"^it is stopping$"):
        next(Passes().requests(stopping=True).converse(REQUEST, {}))


def test_a_request_without_a_thread_is_refused() -> None:
    """It does not wait for nobody."""

    requests = Requests(Passes().node, lambda: None, threads=Workers("requests", 0))
    with pytest.raises(OptionRefused, match=r"^no thread is free for its pass$"):
        next(requests.converse(REQUEST, {}))


@pytest.mark.parametrize(
    "request_", [{}, {"options": []}, {"options": {}, "told": 5}, {"options": {}}]
)
def test_a_request_without_its_parts_is_refused(request_: dict[str, object]) -> None:
    """Nothing is begun."""
    passes = Passes()
    with pytest.raises(
        OptionRefused,
        match=r"^a request contains the options and the configuration of the client$",
    ):
        next(passes.requests().converse(request_, {}))


def test_only_the_same_configuration_or_none_is_served() -> None:
    """A daemon without a fingerprint serves only clients without any configuration."""
    sent: Fingerprint = {"files": [["/a", 1, 2]], "flags": [], "environment": []}
    others: tuple[Fingerprint, ...] = ({}, {**sent, "flags": [["root-dir", "/x"]]})
    for ours in others:
        with pytest.raises(OptionRefused, match="another configuration"):
            next(Passes().requests().converse({"options": {}, "told": sent}, ours))
    lines = Passes().requests().converse({"options": {}, "told": sent}, sent)
    assert next(lines) == {"accepted": True, "busy": None}
    lines.close()
