"""Writes the history on a thread of its own: whatever its disk does, no removal waits for it.

The records wait in a bounded queue. What cannot be written (no file yet on a full disk, a lock that is held, a
filesystem that copies on write and has no space) stays there and is tried again every 5 s; a record that does not fit
is dropped and counted, and a record says how many as soon as one can be written again. The reason is told once until it
changes.

Covers: the queue, the thread, the counts. Does not cover: the file (`store`), what a record says (`entries`).
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial

from eviction.history_file.blocks import LARGEST_RECORD_BYTES
from eviction.history_file.reading import HistoryUnusable
from eviction.history_file.store import HistoryStore

MOST_BYTES = 1 << 20
RETRY_SECONDS = 5.0
END_SECONDS = 1.0


class HistoryWriter:
    """The queue of one file. All methods may be called from any thread; none waits, except `finish`.

    `warn`: called with each new problem, on the writer's thread. `dropped_record`: makes the record that says how many
    were dropped. `records`, `dropped`: how many were written and how many were not, since the start.
    """

    def __init__(
        self,
        store: HistoryStore,
        warn: Callable[[str], None],
        dropped_record: Callable[[int], bytes],
        most_bytes: int = MOST_BYTES,
        retry_seconds: float = RETRY_SECONDS,
    ):
        self._store = store
        self._warn = warn
        self._dropped_record = dropped_record
        self._most_bytes = most_bytes
        self._retry_seconds = retry_seconds
        self._changed = threading.Condition()
        self._waiting: deque[bytes] = deque()
        self._bytes = 0  # of what is not written yet
        self._untold = 0
        self._problem = ""
        self._told: set[str] = set()
        self._finishing = False
        self._threaded = False
        self.records = 0
        self.dropped = 0

    def start(self) -> bool:
        """Starts the thread. False if it cannot be started: then every record is dropped."""
        self._threaded = True
        try:
            threading.Thread(target=self._run, name="history", daemon=True).start()
        except RuntimeError:
            self._threaded = False
        return self._threaded

    def put(self, record: bytes) -> None:
        """Queues a record, or drops it."""
        with self._changed:
            too_large = len(record) > LARGEST_RECORD_BYTES
            if too_large or self._untold or not self._threaded or self._bytes + len(record) > self._most_bytes:
                self.dropped += 1
                self._untold += 1
                if self._threaded and not self._waiting:  # else it is told once something has been written
                    self._tell_dropped()
            else:
                self._waiting.append(record)
                self._bytes += len(record)
                self._changed.notify_all()

    def finish(self, seconds: float = END_SECONDS) -> bool:
        """Waits until all records are on the disk, at most `seconds`. Whether they are. It is the end of the writer."""
        deadline = time.monotonic() + seconds
        with self._changed:
            while self._threaded and self._bytes and not self._problem and (left := deadline - time.monotonic()) > 0:
                self._changed.wait(left)
            self._finishing = True
            self._changed.notify_all()
            return not self._bytes

    # ---- on the thread

    def _run(self) -> None:
        self._try(self._store.open)  # allocated now, while there is room
        while (records := self._next()) is not None:
            done = self._written(records)
            with self._changed:
                self._forget(done)
                self._changed.notify_all()
                if done < len(records):
                    self._changed.wait_for(lambda: self._finishing, self._retry_seconds)
        self._store.close()

    def _next(self) -> tuple[bytes, ...] | None:
        """What waits; None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._finishing)
            return None if self._finishing else tuple(self._waiting)

    def _written(self, records: tuple[bytes, ...]) -> int:
        """How many of the records, the first ones, are on the disk or cannot be written at all."""
        done = 0
        for record in records:
            if self._finishing or not self._try(partial(self._store.append, record)):
                break
            done += 1
        if done == len(records) and self._try(self._store.sync):
            self._told = {self._store.note}  # what comes after a success is new
        return done

    def _forget(self, done: int) -> None:  # under the lock
        for _ in range(done):
            self._bytes -= len(self._waiting.popleft())
        self.records += done
        if done:
            self._tell_dropped()

    def _tell_dropped(self) -> None:  # under the lock
        """Queues the record that says how many were dropped, if any were."""
        if self._untold:
            record = self._dropped_record(self._untold)
            self._waiting.append(record)
            self._bytes += len(record)
            self._untold = 0
            self._changed.notify_all()

    def _try(self, do: Callable[[], None]) -> bool:
        try:
            do()
            self._problem = ""
        except HistoryUnusable as error:
            self._problem = f"the history is not written: {error}"
        except Exception as error:  # noqa: BLE001 # a defect must not end the thread: what waits is tried again
            self._problem = f"the history is not written: {type(error).__name__}: {error}"
        for sentence in (self._problem, self._store.note):
            if sentence and sentence not in self._told:
                self._told.add(sentence)
                self._warn(sentence)
        return not self._problem
