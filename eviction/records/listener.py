"""Everything that follows what happens on a node (log, metrics, history, events, shadow), and
the thread that tells it.

Who listens never stands before relief: what happened waits in one bounded queue, and a
listener that raises or hangs loses its own lines, or lets those of all be counted as
dropped, and nothing else.
"""

import queue
import threading
from collections.abc import Callable
from typing import Any

from reclaim.workers import NoThread

MOST_WAITING = 4096  # calls of listeners


class Backlog:
    """Calls that wait in one bounded queue for a thread, which makes them in order.

    Any thread may put one. `dropped`: how many were not taken, because too many waited.
    """

    def __init__(self, name: str, limit: int) -> None:
        self._name = name
        self._waiting: queue.Queue[Callable[[], object] | None] = queue.Queue(limit)
        self._thread: threading.Thread | None = None
        self._told = 0
        self.dropped = 0

    def start(self) -> None:
        """Starts the thread, unless it runs. Raises NoThread."""
        if self._thread is None:
            thread = threading.Thread(target=self._serve, name=self._name, daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                raise NoThread(f"no thread can be started for {self._name}: {error}") from error
            self._thread = thread

    def put(self, call: Callable[[], object]) -> None:
        """Has it called, and returns at once; without a thread it is forgotten.

        What it raises ends the thread.
        """
        try:
            if self._thread is not None:
                self._waiting.put_nowait(call)
        except queue.Full:
            self.dropped += 1

    def tell_dropped(self, count: int) -> None:
        """So many more were dropped; on the thread, after a call."""

    def done(self, seconds: float) -> bool:
        """Waits at most so long until every call put so far was made; returns whether it was."""
        made = threading.Event()
        if self._thread is None or self._thread is threading.current_thread():
            return True
        try:
            self._waiting.put(made.set, timeout=seconds)
        except queue.Full:
            return False
        return made.wait(seconds)

    def finish(self, seconds: float) -> bool:
        """The same, and ends the thread once it was."""
        done = self.done(seconds)
        if done and self._thread is not None:
            self._waiting.put(None)
            self._thread.join(seconds)
        return done

    def _serve(self) -> None:
        while (call := self._waiting.get()) is not None:
            call()
            untold = self.dropped - self._told
            if untold and not self._waiting.full():  # there is room to record it
                self._told += untold
                self.tell_dropped(untold)


class Listeners(Backlog):
    """Tells every listener that was added, in that order, on a thread that the first one starts.

    A listener has a method for each of these that it wants to hear:
    observed(SignalObservations, Decision): the node was observed, and this was decided
    watched(): inotify asks for an earlier observation
    reclaiming(Threshold): a pass begins; or would, if the row of the threshold named a function
    not_begun(str): no pass begins, although one is due, for this reason
    takes_long(str, float): a pass has made no progress for so many seconds
    passed(Pass): a pass has ended
    attributed(Pass): some seconds after a pass that was not enough, its attributions are known;
        not after every such pass
    runtime_asked(str): the runtime was asked something; why it did not answer, empty if it did
    detected(): the image records have been updated, while no disk was under pressure
    collected(Pass): a pass of a periodic loop has ended
    collection_ended(PeriodicLoop, ReclaimResult, GCEvent | None): the same, with its event, and
        the loop as it was when it began
    called(str, float, bool): a call of the runtime was answered, or failed, after so many seconds
    parked(Outcome): a pass goes on without waiting for an unanswered removal
    parked_ended(Outcome): a parked removal has finally ended
    returned(Returned): an image that had gone is listed again
    program_line(str, str): the program of this function printed a line
    warned(GCEvent): outside of a dry run: what the kubelet would make an event of
    reconfigured(): another configuration has come into force
    left_unanswered(): at the end: removals that were sent are still unanswered after the longest
        wait
    defect(Exception): something was raised that never should be
    listener_failed(str, BaseException): a listener has raised this: what it was told is lost to it
    events_dropped(int): so many events since the start were told to nobody, because too many waited

    `failed`: how many calls have raised.
    """

    def __init__(self) -> None:
        super().__init__("listeners", MOST_WAITING)
        self._all: list[object] = []
        self.failed = 0

    def add(self, *listeners: object) -> None:
        """Raises NoThread."""
        self.start()
        self._all += listeners

    def tell(self, what: str, *about: Any) -> None:
        """Has the method of this name called for every listener, and returns at once."""
        self.put(lambda: self._call(what, *about))

    def tell_dropped(self, _: int) -> None:
        self._call("events_dropped", self.dropped)

    def _call(self, what: str, *about: Any) -> None:
        for listener in tuple(self._all):
            try:
                if (method := getattr(listener, what, None)) is not None:
                    method(*about)
            except BaseException as error:  # noqa: BLE001 # its own lines are lost, and counted; the thread must survive
                self.failed += 1
                if what != "listener_failed":  # one that fails even then is only counted
                    self._call("listener_failed", type(listener).__name__, error)
