"""Warnings that are told at most once a minute, however often they come up."""

from __future__ import annotations

from eviction.reporting.log import Log
from signals.clock import Clock

REPEAT_SECONDS = 60.0


class ThrottledLog:
    """What was said, and when. Keys tell the news apart; without one it is the sentence itself."""

    def __init__(self, log: Log, clock: Clock):
        self._log = log
        self._clock = clock
        self._said: dict[str, float] = {}

    def warn(self, sentence: str, key: str = "", **fields: object) -> None:
        """A warning, unless the same news was told within the last minute."""
        now, key = self._clock.monotonic(), key or sentence
        if now - self._said.get(key, float("-inf")) >= REPEAT_SECONDS:
            self._said[key] = now
            self._log.warning(sentence, **fields)

    def resolved(self, key: str) -> bool:
        """What was said is over: whether it had been said. Should it come up again, it is news."""
        return self._said.pop(key, None) is not None
