"""How long a row of the reclaim table is not called again after a pass."""

from __future__ import annotations

from dataclasses import dataclass

from eviction.reporting.pass_record import Pass, PassResult
from reclaim.types import Result

RETRY_SECONDS = 1.0  # while the runtime does not answer, and after a pass that freed something but not enough
LONGEST_PAUSE_SECONDS = 60.0


@dataclass(slots=True)
class RowBackoff:
    """The pause of one row. `until`: its end in monotonic seconds; `seconds`: its length."""

    until: float = float("-inf")
    seconds: float = 0.0

    def record(self, record: Pass, now: float) -> None:
        """Sets the pause after a pass: none after success, and none where what XFS gave back would have been enough if
        it had not been taken again at once; 1 s after a failure and after any gain, else doubled up to 60 s; never
        longer than until the next object is old enough. `now`: monotonic seconds."""
        if record.result is PassResult.SATISFIED or _relieved_for_a_moment(record):
            self.seconds = 0.0
        elif record.result is PassResult.FAILED or _freed_something(record):
            self.seconds = RETRY_SECONDS
        else:
            self.seconds = min(max(self.seconds * 2, RETRY_SECONDS), LONGEST_PAUSE_SECONDS)
        waits = [max(f.eligible_in_seconds, 0.0) for f in record.functions if f.eligible_in_seconds is not None]
        self.until = now + min([self.seconds, *waits])


class RowBackoffs:
    """The pauses of all rows, for as long as the pressure lasts that they follow from. Any thread."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, ...], RowBackoff] = {}

    def of(self, row: tuple[str, ...]) -> RowBackoff:
        """That of one row."""
        return self._rows.setdefault(row, RowBackoff())

    def longest(self, now: float) -> float:
        """Seconds until the last pause ends; 0: there is none."""
        return max([0.0, *(each.until - now for each in list(self._rows.values()))])

    def pressure_is_over(self) -> None:
        """Forgets all pauses: what comes next is another pressure, and may find other objects."""
        self._rows.clear()


def _relieved_for_a_moment(record: Pass) -> bool:
    """Whether nothing more was called than what gives back. It has pauses of its own (`reclaim.xfs.release`), in which
    the next pass removes objects."""
    return len(record.functions) == 1 and record.functions[0].relieved and record.functions[0].released is not None


def _freed_something(record: Pass) -> bool:
    given_back = record.released is not None and record.released.bytes > 0
    return given_back or any(function.count(Result.REMOVED) for function in record.functions)
