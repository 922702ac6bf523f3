"""Loads the image records at the start, and saves them while the daemon runs and at its end.

Saving runs on a thread of its own, so that nothing waits for a disk that is full or busy.
"""

from __future__ import annotations

import threading

from eviction.listener import Listener
from eviction.reporting.log import Log
from reclaim.execution.workers import NoThread, Workers
from reclaim.images.records import ImageRecords, RecordFile, load_in_time

SAVE_AT_END_SECONDS = 1.0
THREADS = 2  # one that saves, also while loading hangs


class ImageRecordsSaver(Listener):
    """The image records of one daemon and their file (None: not saved). A failure is a warning, written once until it
    changes."""

    def __init__(self, records: ImageRecords, file: RecordFile | None, log: Log):
        self._records = records
        self._file = file
        self._log = log
        self._last_problem = ""
        self._workers = Workers("records", THREADS)
        self._saved = threading.Event()  # set while nothing is being saved
        self._saved.set()

    def load(self) -> None:
        """Restores the records that an earlier process saved, if they can be read within a second."""
        if self._file is None:
            return
        loaded = load_in_time(self._file, self._workers)
        self._records.restore(loaded.records, loaded.saved)
        if loaded.missing:
            self._log.info(loaded.problem)
        elif loaded.problem:
            self._log.warning(loaded.problem)

    def detected(self) -> None:
        """Starts saving, unless an earlier save has not finished. Without a thread nothing is saved, which is a
        warning."""
        file = self._file
        if file is None or not self._saved.is_set():
            return
        self._saved.clear()
        try:
            self._workers.run(lambda: self._save(file), self._saved.set)
        except NoThread as error:
            self._saved.set()
            self._warn(f"the image records are not saved: {error}")

    def finish(self) -> None:
        """Saves a last time and waits at most 1 s for it."""
        self.detected()
        self._saved.wait(SAVE_AT_END_SECONDS)

    def _save(self, file: RecordFile) -> None:
        self._warn(file.save(self._records.records))

    def _warn(self, problem: str) -> None:
        if problem and problem != self._last_problem:
            self._log.warning(problem)
        self._last_problem = problem
