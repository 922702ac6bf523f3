"""Decides what goes into the history, and writes it on a thread of its own: whatever its disk does, no removal waits.

Every pass that removed something, tried to, or would have is recorded. One without any removal is recorded too, at most
once a minute for each result and signal: a runtime that is away ends a pass in each second.

The records wait in a bounded queue. What cannot be written (no file yet on a full disk, a lock that is held, a
filesystem that copies on write and has no space) stays there and is tried again every 5 s; a record that does not fit
is dropped and counted, and a record says how many as soon as one can be written again. The reason is told once until it
changes.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Literal

from eviction.history_file.records import (
    DaemonRecordJson,
    DroppedRecordJson,
    ParkedEndedRecordJson,
    encoded,
    pass_records,
    periodic_records,
)
from eviction.history_file.store import LARGEST_RECORD_BYTES, HistoryStore, HistoryUnusable
from eviction.listener import Listener
from eviction.record import Pass
from eviction.reporting.observations_json import timestamp
from eviction.reporting.pass_record import outcome_json
from reclaim.types import Outcome, ReclaimResult
from signals.clock import Clock

REPEAT_SECONDS = 60.0
MOST_BYTES = 1 << 20  # of records that wait
RETRY_SECONDS = 5.0
END_SECONDS = 1.0


class HistoryRecorder(Listener):
    """The history of one process. All methods may be called from any thread; none waits, except `finish`.

    `path`: empty for none. `warn`: called with each new problem, on the thread of the history. `records`, `dropped`:
    how many were written and how many were not, since the start.
    """

    def __init__(
        self,
        path: str,
        size_bytes: int,
        clock: Clock,
        warn: Callable[[str], None],
        retry_seconds: float = RETRY_SECONDS,
    ):
        self._store = HistoryStore(path, size_bytes)
        self._clock = clock
        self._warn = warn
        self._retry_seconds = retry_seconds
        self._recorded: dict[tuple[str, ...], float] = {}  # when, by what a pass without removals was
        self._changed = threading.Condition()
        self._waiting: deque[bytes] = deque()  # until they are on the disk
        self._untold = 0
        self._problem = ""
        self._told: set[str] = set()
        self._finishing = False
        self.records = 0
        self.dropped = 0
        self._threaded = bool(path)
        try:
            if path:
                threading.Thread(target=self._run, name="history", daemon=True).start()
        except RuntimeError:
            self._threaded = False
            warn("the history is not written: no thread can be started for it")

    def daemon(self, kind: Literal["started", "stopped"]) -> None:
        """The daemon has started, or ends."""
        if self._threaded:
            from importlib import metadata  # as long to import as all the rest, and only the daemon needs it

            version = metadata.version("reclaimd")
            self.put(encoded(DaemonRecordJson(kind=kind, time=self._now(), version=version, pid=os.getpid())))

    def passed(self, record: Pass) -> None:
        """After a pass."""
        acted_on = record.decision.acted_on
        if record.removals or self._is_due(str(record.result), "" if acted_on is None else str(acted_on.signal)):
            self.put(*pass_records(record, self._clock.wall()))

    def collected(self, result: ReclaimResult) -> None:
        """After a pass of a periodic loop; one that had nothing to do is no event."""
        if result.outcomes or (result.error and self._is_due(result.operation, "error")):
            self.put(*periodic_records(os.urandom(6).hex(), result, self._clock.wall()))

    def parked_ended(self, outcome: Outcome) -> None:
        """When a parked removal is answered at last."""
        self.put(encoded(ParkedEndedRecordJson(time=self._now(), removals=[outcome_json(outcome)])))

    def put(self, *records: bytes) -> None:
        """Queues records; drops those that do not fit, and all without a thread."""
        with self._changed:
            for record in records if self._threaded else ():
                too_large = len(record) > LARGEST_RECORD_BYTES
                if too_large or self._untold or sum(map(len, self._waiting)) + len(record) > MOST_BYTES:
                    self.dropped += 1
                    self._untold += 1
                    if not self._waiting:  # else it is told once something has been written
                        self._tell_dropped()
                else:
                    self._waiting.append(record)
            self._changed.notify_all()

    def finish(self, seconds: float = END_SECONDS) -> bool:
        """Waits until all records are on the disk, at most `seconds`. Whether they are. It is the end of the thread."""
        with self._changed:
            self._changed.wait_for(lambda: not self._waiting or self._problem, seconds)
            self._finishing = True
            self._changed.notify_all()
            return not self._waiting

    def _now(self) -> str:
        return timestamp(self._clock.wall())

    def _is_due(self, *what: str) -> bool:
        now = self._clock.monotonic()
        if now - self._recorded.get(what, float("-inf")) < REPEAT_SECONDS:
            return False
        self._recorded[what] = now
        return True

    def _tell_dropped(self) -> None:  # under the lock
        """Queues the record that says how many were dropped, if any were."""
        if self._untold:
            self._waiting.append(encoded(DroppedRecordJson(time=self._now(), records=self._untold)))
            self._untold = 0

    # ---- on the thread

    def _run(self) -> None:
        self._try(self._store.open)  # allocated now, while there is room
        while not self._finishing:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._finishing)
                records = tuple(self._waiting)
            done = 0
            while done < len(records) and not self._finishing and self._try(self._store.append, records[done]):
                done += 1
            if done == len(records) and self._try(self._store.sync):
                self._told = {self._store.note}  # what comes after a success is new
            with self._changed:
                for _ in range(done):
                    self._waiting.popleft()
                self.records += done
                if done:
                    self._tell_dropped()
                self._changed.notify_all()
                if done < len(records):
                    self._changed.wait_for(lambda: self._finishing, self._retry_seconds)
        self._store.close()

    def _try(self, do: Callable[..., None], *record: bytes) -> bool:
        """Does it; whether it was done. What hinders it is told once."""
        self._problem, problem = "", ""
        try:
            do(*record)
        except Exception as error:  # noqa: BLE001 # a defect must not end the thread: what waits is tried again
            why = error if isinstance(error, HistoryUnusable) else f"{type(error).__name__}: {error}"
            problem = f"the history is not written: {why}"
        for sentence in (problem, self._store.note):
            if sentence and sentence not in self._told:
                self._told.add(sentence)
                self._warn(sentence)
        self._problem = problem
        return not problem
