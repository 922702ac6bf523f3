"""Events on their way to the API server: a bounded queue, and one thread that counts, limits and sends.

An API server that is down, hangs, refuses or answers nonsense changes nothing but what is told there: whoever warns
puts an event into a queue and goes on, and what finds no place is lost (the log has it). What could not be sent is
tried again as client-go does it (`tools/record/event.go`): every 10 s, twelve times; the events after it wait.

Covers: the queue, the thread, what is said. Does not cover: which object an event becomes (`event_correlation`), HTTP
(`kubernetes_events`).
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Protocol

from eviction.reporting.log import Log
from eviction.reporting.throttled_log import News
from eviction.telemetry.event_correlator import Correlator, NodeEvent
from eviction.types import EvictionError
from reclaim.types import GCEvent
from signals.clock import Clock

MOST_QUEUED = 64
AGAIN_SECONDS = 10.0
MOST_TRIES = 12
TICK_SECONDS = 0.02


class EventNotSent(EvictionError):
    """An event that the API server did not take. The message is the end of a sentence.

    `again`: it may take it later. `absent`: there is no such event to be counted up.
    """

    def __init__(self, message: str, *, again: bool = False, absent: bool = False):
        super().__init__(message)
        self.again = again
        self.absent = absent


class EventWriter(Protocol):
    """Writes events into a cluster. May wait, but not for ever; both methods raise EventNotSent."""

    def create(self, event: NodeEvent) -> None:
        """A new event; one of that name that is there already is no failure."""

    def count_up(self, event: NodeEvent) -> None:
        """The count and the last time of an event that is there."""


class EventRecorder:
    """Sends events on a thread of its own, as an EventSink.

    `connect` makes the writer, on that thread, as it may have much to import; it raises EventNotSent when there can be
    none. `pause` makes what the thread waits on between two tries.
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
        self._correlator = Correlator(node_name)
        self._log = log
        self._clock = clock
        self._news = News(log, clock)
        self._queue: queue.Queue[tuple[GCEvent, float] | None] = queue.Queue(MOST_QUEUED)
        self._stopping = pause()
        self._lost = 0
        self._thread = threading.Thread(target=self._run, name="events", daemon=True)

    def start(self) -> None:
        """Begins to send."""
        self._thread.start()

    def warn(self, event: GCEvent) -> None:
        """Queues an event, or loses it where the queue is full. Any thread; takes microseconds."""
        try:
            self._queue.put_nowait((event, self._clock.wall()))
        except queue.Full:
            self._lost += 1
            self._news.say("events are lost: the API server takes none, and the queue to it is full", key="lost")

    def finish(self, seconds: float) -> bool:
        """Waits at most so long for what is queued, then sends nothing any more. Whether all of it was dealt with."""
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
                self._news.say(f"an event did not reach the API server: {error}", key="server")
                if not error.again or self._stopping.wait(AGAIN_SECONDS):
                    return
            except Exception as error:  # noqa: BLE001 # a defect in one event must not end the sending of all
                self._news.say(f"sending an event: {type(error).__name__}: {error}", key="defect")
                return
            else:
                if self._news.over("server"):
                    lost, self._lost = self._lost, 0
                    self._log.info(f"the API server takes events again{f'; {lost} were lost' if lost else ''}")
                return


def write(writer: EventWriter, event: NodeEvent) -> None:
    """A new event, or one that is counted up; what is to be counted up and is gone is made anew. Raises EventNotSent.

    The API server forgets an event an hour after its last change.
    """
    if event.count > 1:
        try:
            writer.count_up(event)
        except EventNotSent as error:
            if not error.absent:
                raise
        else:
            return
    writer.create(event)
