"""Warnings that are written at most once a minute, however often they occur."""

from __future__ import annotations

from eviction.reporting.log import Log
from signals.clock import Clock

REPEAT_SECONDS = 60.0


class ThrottledLog:
    """Writes each warning at most once a minute. Warnings with the same key, by default the sentence, are the same."""

    def __init__(self, log: Log, clock: Clock):
        self._log = log
        self._clock = clock
        self._written: dict[str, float] = {}

    def warn(self, sentence: str, key: str = "", **fields: object) -> bool:
        """Writes the warning, unless the same one was written within the last minute. True if it was written."""
        now, key = self._clock.monotonic(), key or sentence
        due = now - self._written.get(key, float("-inf")) >= REPEAT_SECONDS
        if due:
            self._written[key] = now
            self._log.warning(sentence, **fields)
        return due

    def info(self, sentence: str, key: str, **fields: object) -> None:
        """The same for what is no warning."""
        now = self._clock.monotonic()
        if now - self._written.get(key, float("-inf")) >= REPEAT_SECONDS:
            self._written[key] = now
            self._log.info(sentence, **fields)

    def resolved(self, key: str) -> bool:
        """Forgets the warning, so that its next occurrence is written at once. True if it had been written."""
        return self._written.pop(key, None) is not None
