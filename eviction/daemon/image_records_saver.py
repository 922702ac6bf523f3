"""Loads the image records at the start, and saves them while the daemon runs and at its end.

Saving runs on a thread of its own, so that nothing waits for a disk that is full or busy.
"""

from __future__ import annotations

import threading

from eviction.reporting.log import Log
from reclaim.images.records import ImageRecords
from reclaim.images.records_file import RecordFile

SAVE_AT_END_SECONDS = 1.0


class ImageRecordsSaver:
    """The image records of one daemon and their file (None: not saved). A failure is a warning, written once until it
    changes."""

    def __init__(self, records: ImageRecords, file: RecordFile | None, log: Log):
        self._records = records
        self._file = file
        self._log = log
        self._last_problem = ""
        self._saving: threading.Thread | None = None

    def load(self) -> None:
        """Restores the records that an earlier process saved."""
        if self._file is None:
            return
        loaded = self._file.load()
        self._records.restore(loaded.records)
        if loaded.missing:
            self._log.info(loaded.problem)
        elif loaded.problem:
            self._log.warning(loaded.problem)

    def save(self) -> None:
        """Starts saving, unless an earlier save has not finished."""
        if self._file is None or (self._saving is not None and self._saving.is_alive()):
            return
        self._saving = threading.Thread(target=self._save, args=(self._file,), name="records", daemon=True)
        self._saving.start()

    def finish(self) -> None:
        """Saves a last time and waits at most 1 s for it."""
        self.save()
        if self._saving is not None:
            self._saving.join(SAVE_AT_END_SECONDS)

    def _save(self, file: RecordFile) -> None:
        problem = file.save(self._records.records)
        if problem and problem != self._last_problem:
            self._log.warning(problem)
        self._last_problem = problem
