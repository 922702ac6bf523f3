"""Keeps the records of images in their file: read at the start, saved now and then, and at the end.

Saving is on a thread of its own: the disk may be full or busy, and nothing waits for it.
"""

from __future__ import annotations

import threading

from eviction.reporting.log import Log
from reclaim.images.records import ImageRecords
from reclaim.images.records_file import RecordFile

SAVE_AT_END_SECONDS = 1.0


class ImageRecordsSaver:
    """The records of one daemon and their file. What cannot be read or saved is a warning, each news once."""

    def __init__(self, records: ImageRecords, file: RecordFile | None, log: Log):
        self._records = records
        self._file = file
        self._log = log
        self._said = ""
        self._saving: threading.Thread | None = None

    def load(self) -> None:
        """Brings back what an earlier process has saved."""
        if self._file is None:
            return
        loaded = self._file.load()
        self._records.restore(loaded.records)
        if loaded.missing:
            self._log.info(loaded.problem)
        elif loaded.problem:
            self._log.warning(loaded.problem)

    def save(self) -> None:
        """Begins to save, unless that is still under way."""
        if self._file is None or (self._saving is not None and self._saving.is_alive()):
            return
        self._saving = threading.Thread(target=self._save, args=(self._file,), name="records", daemon=True)
        self._saving.start()

    def finish(self) -> None:
        """Saves a last time; waits for it at most a second."""
        self.save()
        if self._saving is not None:
            self._saving.join(SAVE_AT_END_SECONDS)

    def _save(self, file: RecordFile) -> None:
        problem = file.save(self._records.records)
        if problem and problem != self._said:
            self._log.warning(problem)
        self._said = problem
