"""Sends events to the API server: a bounded queue, and one thread that aggregates, limits and sends.

An API server that is down, hangs, refuses or answers garbage delays no other work: `warn` only queues the event, and an
event that does not fit into the queue is lost (the log has it). A failed event is retried as in client-go
(`tools/record/event.go`): every 10 s, twelve times; the events after it wait.

Covers: the queue, the thread, what is logged. Does not cover: which object an event becomes (`event_correlator`), HTTP
(`kubernetes_events`).
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Protocol

from eviction.reporting.log import Log, ThrottledLog
from eviction.telemetry.event_correlator import EventCorrelator, NodeEvent
from eviction.types import EvictionError
from reclaim.events import GCEvent
from signals.clock import Clock

MOST_QUEUED = 1000  # as in client-go: a pass a second, and an API server that is away for a quarter of an hour
AGAIN_SECONDS = 10.0
MOST_TRIES = 12
TICK_SECONDS = 0.02


class EventNotSent(EvictionError):
    """An event that the API server did not accept. The message is the end of a sentence.

    `retriable`: it may accept it later. `not_found`: the event whose count was to be updated does not exist.
    """

    def __init__(self, message: str, *, retriable: bool = False, not_found: bool = False):
        super().__init__(message)
        self.retriable = retriable
        self.not_found = not_found


class EventWriter(Protocol):
    """Writes events to an API server. May wait, but not for ever; both methods raise EventNotSent."""

    def create(self, event: NodeEvent) -> None:
        """Creates an event; if one of that name exists already, that is no failure."""

    def update_count(self, event: NodeEvent) -> None:
        """Updates the count and the last time of an existing event."""


class EventRecorder:
    """Sends events on a thread of its own, as an EventSink.

    `connect` makes the writer; it runs on that thread, as it may import much, and raises EventNotSent if it cannot.
    `pause` makes the event that the thread waits on between two tries.
    """

    def __init__(
        self,
        connect: Callable[[], EventWriter],
        node_name: str,
        log: Log,
        clock: Clock,
        pause: Callable[[], threading.Event] = threading.Event,
    ):
        self._connect = connect
        self._correlator = EventCorrelator(node_name)
        self._log = log
        self._clock = clock
        self._throttled_log = ThrottledLog(log, clock)
        self._queue: queue.Queue[tuple[GCEvent, float] | None] = queue.Queue(MOST_QUEUED)
        self._stopping = pause()
        self._lost = 0
        self._thread = threading.Thread(target=self._run, name="events", daemon=True)

    def start(self) -> None:
        """Starts the thread. Without one no event is sent, which is a warning."""
        try:
            self._thread.start()
        except RuntimeError as error:
            self._log.warning(f"no events are sent to the API server: {error}")

    def warn(self, event: GCEvent) -> None:
        """Queues an event, or drops it if the queue is full. From any thread; takes microseconds."""
        try:
            self._queue.put_nowait((event, self._clock.wall()))
        except queue.Full:
            self._lost += 1
            self._throttled_log.warn(
                "events are lost: the API server takes none, and the queue to it is full", key="lost"
            )

    def finish(self, seconds: float) -> bool:
        """Waits for the queued events, at most `seconds`, then stops sending. Whether all of them were handled."""
        left = round(seconds / TICK_SECONDS)
        while self._queue.unfinished_tasks and self._thread.is_alive() and left > 0:
            left -= 1
            self._thread.join(TICK_SECONDS)
        done = not self._queue.unfinished_tasks
        self._stopping.set()
        try:
            self._queue.put_nowait(None)  # wakes the thread
        except queue.Full:
            pass
        return done

    def _run(self) -> None:
        try:
            writer = self._connect()
        except EventNotSent as error:
            self._log.warning(f"events go to the log only: {error}")
            return
        while (queued := self._queue.get()) is not None and not self._stopping.is_set():
            event = self._correlator.correlate(*queued, self._clock.monotonic())
            if event is not None:
                self._send(writer, event)
            self._queue.task_done()

    def _send(self, writer: EventWriter, event: NodeEvent) -> None:
        for _ in range(MOST_TRIES):
            try:
                write(writer, event)
            except EventNotSent as error:
                self._throttled_log.warn(f"an event did not reach the API server: {error}", key="server")
                if not error.retriable or self._stopping.wait(AGAIN_SECONDS):
                    return
            except Exception as error:  # noqa: BLE001 # a defect in one event must not stop the others
                self._throttled_log.warn(f"sending an event: {type(error).__name__}: {error}", key="defect")
                return
            else:
                if self._throttled_log.resolved("server"):
                    lost, self._lost = self._lost, 0
                    self._log.info(f"the API server takes events again{f'; {lost} were lost' if lost else ''}")
                return


def write(writer: EventWriter, event: NodeEvent) -> None:
    """Creates the event, or updates its count; creates it again if it does not exist any more. Raises EventNotSent.

    The API server deletes an event an hour after its last change.
    """
    if event.count > 1:
        try:
            writer.update_count(event)
        except EventNotSent as error:
            if not error.not_found:
                raise
        else:
            return
    writer.create(event)
