"""Who hears what happens while objects are removed: one protocol in place of many callbacks."""

from __future__ import annotations

from reclaim.types import Outcome


class Listener:
    """Hears nothing. A subclass overrides what it wants to hear; a method may be called on any thread, and returns
    soon."""

    def called(self, call: str, seconds: float, failed: bool) -> None:
        """A call of the runtime was answered, or has failed."""

    def parked(self, outcome: Outcome) -> None:
        """A pass goes on without a removal that is not answered."""

    def parked_ended(self, outcome: Outcome) -> None:
        """A removal that was parked has ended at last."""

    def program_line(self, function: str, line: str) -> None:
        """A program of the configuration has printed a line."""
