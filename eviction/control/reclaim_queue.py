"""Requests of the hook, as the daemon takes them: each waits its turn, and is told what it waits for.

One pass at a time, so a request that comes during a pass waits, at most 30 s; at most four wait. The answer is a
conversation: a first line at once, one line a second as a sign of life, and the result, however long the pass takes.
An asker that leaves before its turn is forgotten; a pass that has begun is carried to its end.

Covers: turns and the conversation. Does not cover: the pass (`hook`), who runs it (`manager`).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Mapping
from typing import Any

from eviction.configuration.fingerprint import OTHER_CONFIGURATION, Fingerprint, same_configuration
from eviction.control.reclaim import HookAnswer, HookOptions, HookRefused, read_options

MOST_WAITING = 4
TURN_SECONDS = 30.0
BEAT_SECONDS = 1.0


class Ticket:
    """One request. `done` is set when `answer` is there, or `refused` says why there will be none."""

    def __init__(self, options: HookOptions):
        self.options = options
        self.answer: HookAnswer | None = None
        self.refused = ""
        self.done = threading.Event()

    def finish(self, answer: HookAnswer) -> None:
        """The pass is over."""
        self.answer = answer
        self.done.set()

    def refuse(self, sentence: str) -> None:
        """There will be no pass; nothing when it is over already."""
        if not self.done.is_set():
            self.refused = sentence
            self.done.set()


class HookRequests:
    """The requests that wait for their turn. Any thread.

    `wake`: called when there is a new one. `doing`: what the daemon does now; None for nothing.
    """

    def __init__(self, wake: Callable[[], None], doing: Callable[[], str | None], turn_seconds: float = TURN_SECONDS):
        self._wake = wake
        self._doing = doing
        self._turn_seconds = turn_seconds
        self._waiting: deque[Ticket] = deque()
        self._lock = threading.Lock()
        self._closed = False

    def ask(self, options: HookOptions) -> Ticket:
        """A place in the queue. Raises HookRefused."""
        ticket = Ticket(options)
        with self._lock:
            if self._closed:
                raise HookRefused("it is stopping")
            if len(self._waiting) >= MOST_WAITING:
                raise HookRefused(f"{MOST_WAITING} requests wait already")
            self._waiting.append(ticket)
        self._wake()
        return ticket

    @property
    def waiting(self) -> int:
        """How many wait for their turn."""
        return len(self._waiting)

    def take(self) -> Ticket | None:
        """The next one; its turn has come, and it must be finished or refused."""
        with self._lock:
            return self._waiting.popleft() if self._waiting else None

    def withdraw(self, ticket: Ticket) -> bool:
        """Whether the ticket was still waiting; it does not any more."""
        with self._lock:
            if ticket not in self._waiting:
                return False
            self._waiting.remove(ticket)
            return True

    def close(self) -> None:
        """Refuses all that wait, and whatever comes."""
        with self._lock:
            self._closed = True
            refused, self._waiting = list(self._waiting), deque()
        for ticket in refused:
            ticket.refuse("it is stopping")

    def converse(self, request: Mapping[str, Any], fingerprint: Fingerprint) -> Generator[dict[str, Any], None, None]:
        """The lines of the answer to one request of a hook.

        It is refused unless it carries this `fingerprint` of the configuration.
        """
        try:
            ticket = self.ask(_options(request, fingerprint))
        except HookRefused as refusal:
            yield {"refused": str(refusal)}
            return
        waited = 0.0
        try:
            yield {"accepted": True, "busy": self._doing()}
            while not ticket.done.wait(BEAT_SECONDS):
                waited += BEAT_SECONDS
                busy = self._doing()
                if waited >= self._turn_seconds and self.withdraw(ticket):
                    ticket.refuse(f"its turn has not come within {self._turn_seconds:g} s, it is {busy or 'busy'}")
                else:
                    yield {"accepted": True, "busy": busy}
        finally:
            self.withdraw(ticket)
        yield {"refused": ticket.refused} if ticket.answer is None else _document(ticket.answer)


def _options(request: Mapping[str, Any], fingerprint: Fingerprint) -> HookOptions:
    """What is asked for, if the daemon may do it. Raises HookRefused."""
    options, requested = request.get("options"), request.get("told")
    if not isinstance(options, dict) or not isinstance(requested, dict):
        raise HookRefused("a request names its options and what its configuration is")
    if not same_configuration(requested, fingerprint):
        raise HookRefused(OTHER_CONFIGURATION)
    return read_options(options)


def _document(answer: HookAnswer) -> dict[str, Any]:
    return {
        "exit_code": answer.exit_code,
        "sentence": answer.sentence,
        "document": answer.document,
        "lines": list(answer.lines),
    }
