"""The queue of reclaim requests in the daemon, and the conversation with the client of each.

The daemon runs one pass at a time on each filesystem, and its own go first, so a request that arrives during a pass
waits, at most 30 s; at most four wait. A dry run waits for other dry runs only. The client gets a line at once, then
one line a second as a heartbeat, and the result when the pass has ended. A client that disconnects before its turn is
removed from the queue; a pass that has begun is finished.

Covers: the queue and the conversation. Does not cover: the pass (`control.reclaim`), who runs it (`daemon.manager`).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

from eviction.configuration.fingerprint import OTHER_CONFIGURATION, Fingerprint, same_configuration
from eviction.control.reclaim import ReclaimAnswer, ReclaimOptions, ReclaimRefused, read_options
from signals.types import KUBELET_SIGNALS, Signal

MOST_WAITING = 4
TURN_SECONDS = 30.0  # a request is refused when its turn has not come by then
HEARTBEAT_SECONDS = 1.0


class Ticket:
    """One request. `done` is set together with `answer`, or with `refused`, the sentence why there is no answer."""

    def __init__(self, options: ReclaimOptions):
        self.options = options
        self.answer: ReclaimAnswer | None = None
        self.refused = ""
        self.done = threading.Event()

    def finish(self, answer: ReclaimAnswer) -> None:
        """Sets the answer."""
        self.answer = answer
        self.done.set()

    def refuse(self, sentence: str) -> None:
        """Sets the reason why there will be no answer; ignored if the ticket is done."""
        if not self.done.is_set():
            self.refused = sentence
            self.done.set()


class ReclaimQueue:
    """The requests that wait for their turn. Its methods may be called from any thread.

    `wake`: called when a request is added. `doing`: what the daemon does now, in words; None for nothing. `signals`:
    those that the node can have.
    """

    def __init__(
        self,
        wake: Callable[[], None],
        doing: Callable[[], str | None],
        turn_seconds: float = TURN_SECONDS,
        signals: Sequence[Signal] = KUBELET_SIGNALS,
    ):
        self._signals = signals
        self._wake = wake
        self._doing = doing
        self._turn_seconds = turn_seconds
        self._waiting: deque[Ticket] = deque()
        self._lock = threading.Lock()
        self._closed = False

    def ask(self, options: ReclaimOptions) -> Ticket:
        """Adds a request. Raises ReclaimRefused when four wait already and after `close`."""
        ticket = Ticket(options)
        with self._lock:
            if self._closed:
                raise ReclaimRefused("it is stopping")
            if len(self._waiting) >= MOST_WAITING:
                raise ReclaimRefused(f"{MOST_WAITING} requests wait already")
            self._waiting.append(ticket)
        self._wake()
        return ticket

    @property
    def waiting(self) -> int:
        """The number of requests that wait for their turn."""
        return len(self._waiting)

    def take(self, wanted: Callable[[ReclaimOptions], bool]) -> Ticket | None:
        """Removes the first wanted request; the caller must finish or refuse it. None if none waits."""
        with self._lock:
            ticket = next((each for each in self._waiting if wanted(each.options)), None)
            if ticket is not None:
                self._waiting.remove(ticket)
            return ticket

    def withdraw(self, ticket: Ticket) -> bool:
        """Removes a waiting request. False if it was not waiting any more."""
        with self._lock:
            if ticket not in self._waiting:
                return False
            self._waiting.remove(ticket)
            return True

    def close(self) -> None:
        """Refuses all waiting requests and all later ones."""
        with self._lock:
            self._closed = True
            refused, self._waiting = list(self._waiting), deque()
        for ticket in refused:
            ticket.refuse("it is stopping")

    def converse(self, request: Mapping[str, Any], loaded: Fingerprint) -> Generator[dict[str, Any], None, None]:
        """The JSON lines of the answer. `loaded`: the daemon's configuration, which must be that of the client."""
        try:
            ticket = self.ask(_options(request, loaded, self._signals))
        except ReclaimRefused as refusal:
            yield {"refused": str(refusal)}
            return
        waited = 0.0
        try:
            yield {"accepted": True, "busy": self._doing()}
            while not ticket.done.wait(HEARTBEAT_SECONDS):
                waited += HEARTBEAT_SECONDS
                busy = self._doing()
                if waited >= self._turn_seconds and self.withdraw(ticket):
                    ticket.refuse(f"its turn has not come within {self._turn_seconds:g} s, it is {busy or 'busy'}")
                else:
                    yield {"accepted": True, "busy": busy}
        finally:
            self.withdraw(ticket)
        yield {"refused": ticket.refused} if ticket.answer is None else _document(ticket.answer)


def _options(request: Mapping[str, Any], loaded: Fingerprint, signals: Sequence[Signal]) -> ReclaimOptions:
    """The options of a request by a client with the same configuration. Raises ReclaimRefused."""
    options, of_client = request.get("options"), request.get("told")
    if not isinstance(options, dict) or not isinstance(of_client, dict):
        raise ReclaimRefused("a request contains the options and the configuration of the client")
    if not same_configuration(of_client, loaded):
        raise ReclaimRefused(OTHER_CONFIGURATION)
    return read_options(options, signals)


def _document(answer: ReclaimAnswer) -> dict[str, Any]:
    return {
        "exit_code": answer.exit_code,
        "sentence": answer.sentence,
        "document": answer.document,
        "lines": list(answer.lines),
    }
