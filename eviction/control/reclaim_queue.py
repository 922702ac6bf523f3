"""The queue of reclaim requests in the daemon, and the conversation with the client of each.

The daemon runs one pass at a time on each filesystem, and its own go first, so a request that arrives during a pass
waits, at most 30 s; at most four wait. A dry run waits for other dry runs only. The client gets a line at once, then
one line a second as a heartbeat, and the result when the pass has ended. A client that disconnects before its turn is
removed from the queue; a pass that has begun is finished.

Covers: the queue and the conversation. Does not cover: the pass (`control.reclaim`), who runs it (`daemon.manager`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import Any

from eviction.configuration.fingerprint import Fingerprint
from eviction.control.answer import Answer, RequestRefused, options_of_client
from eviction.control.reclaim import ReclaimOptions, read_options
from signals.types import KUBELET_SIGNALS, Signal

MOST_WAITING = 4
TURN_SECONDS = 30.0  # a request is refused when its turn has not come by then
HEARTBEAT_SECONDS = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class Ticket:
    """One request. `answer`: comes when its pass has ended; RequestRefused in its place says why there is none."""

    options: ReclaimOptions
    answer: Future[Answer] = field(default_factory=Future)


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
        self._waiting: list[Ticket] = []
        self._lock = threading.Lock()
        self._closed = False

    def ask(self, options: ReclaimOptions) -> Ticket:
        """Adds a request. Raises RequestRefused when four wait already and after `close`."""
        ticket = Ticket(options)
        with self._lock:
            if self._closed:
                raise RequestRefused("it is stopping")
            if len(self._waiting) >= MOST_WAITING:
                raise RequestRefused(f"{MOST_WAITING} requests wait already")
            self._waiting.append(ticket)
        self._wake()
        return ticket

    @property
    def waiting(self) -> int:
        """The number of requests that wait for their turn."""
        return len(self._waiting)

    def take(self, wanted: Callable[[Ticket], bool] = lambda _: True) -> Ticket | None:
        """Removes the first wanted request, which the caller must answer. None if none waits."""
        with self._lock:
            ticket = next(filter(wanted, self._waiting), None)
            if ticket is not None:
                self._waiting.remove(ticket)
            return ticket

    def close(self) -> None:
        """Refuses all waiting requests and all later ones."""
        self._closed = True
        while (ticket := self.take()) is not None:
            ticket.answer.set_exception(RequestRefused("it is stopping"))

    def converse(self, request: Mapping[str, Any], loaded: Fingerprint) -> Generator[dict[str, Any], None, None]:
        """The JSON lines of the answer. `loaded`: the daemon's configuration, which must be that of the client.
        Raises RequestRefused."""
        ticket = self.ask(read_options(options_of_client(request, loaded), self._signals))
        waited = 0.0

        def withdrawn() -> bool:
            return self.take(lambda each: each is ticket) is not None

        try:
            yield {"accepted": True, "busy": self._doing()}
            while not wait([ticket.answer], HEARTBEAT_SECONDS).done:
                waited += HEARTBEAT_SECONDS
                busy = self._doing()
                if waited >= self._turn_seconds and withdrawn():
                    raise RequestRefused(
                        f"its turn has not come within {self._turn_seconds:g} s, it is {busy or 'busy'}"
                    )
                yield {"accepted": True, "busy": busy}
            yield ticket.answer.result().line()
        finally:
            withdrawn()
