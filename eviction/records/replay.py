"""The last observations and the decisions made on them, as JSON that can be
replayed on another machine.

A dump is complete: replayed, `synchronize` makes the same decisions (`tests/replay.py`), so a
doubtful one can be examined later. It follows the dataclasses: a field with its default value is
left out, a mapping is a list of pairs, and each threshold is written once and then referred to by
number. It can be read by the version that wrote it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass, replace
from fractions import Fraction
from math import isinf
from typing import Any

from eviction.decision.synchronize import ManagerState
from eviction.records.json_shapes import Json
from eviction.types import Decision, Threshold
from signals.types import SignalObservations

KEPT_ENTRIES = 512


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One call of `synchronize`: the state before it, the observations, the decision."""

    before: ManagerState
    observations: SignalObservations
    decision: Decision


class History:
    """The last calls, at most `KEPT_ENTRIES`; emptied when the configuration changes."""

    def __init__(self) -> None:
        self._entries: deque[HistoryEntry] = deque(maxlen=KEPT_ENTRIES)

    def add(self, entry: HistoryEntry) -> None:
        if self._entries and self._entries[-1].before.config != entry.before.config:
            self._entries.clear()
        self._entries.append(entry)

    def dump(self) -> Json:
        """Everything that a replay needs; empty lists before the first call."""
        entries, table = list(self._entries), Table()
        state = table.written(entries[0].before) if entries else None
        looks = [
            {
                "observations": table.written(
                    replace(entry.observations, filesystems={}, polls={}, limits={})
                ),
                "decision": table.written(entry.decision),
            }
            for entry in entries
        ]
        return {
            "thresholds": [table.written_by_field(one) for one in table.thresholds],
            "state": state,
            "looks": looks,
        }


class Table:
    """Writes values as JSON, and a threshold as its number."""

    def __init__(self) -> None:
        self.thresholds: list[Threshold] = []

    def written(self, value: Any) -> Any:
        match value:
            case Threshold():
                if value not in self.thresholds:
                    self.thresholds.append(value)
                return self.thresholds.index(value)
            case Mapping():
                return [[self.written(key), self.written(each)] for key, each in value.items()]
            case frozenset():
                return sorted(map(self.written, value))
            case tuple():
                return [self.written(each) for each in value]
            case Fraction():
                return str(value)
            case float() if isinf(value):
                return str(value)
            case _ if is_dataclass(value):
                return self.written_by_field(value)
            case _:
                return value

    def written_by_field(self, value: Any) -> Json:
        given = (
            (one.name, getattr(value, one.name))
            for one in fields(value)
            if one.init and not _is_usual(one, value)
        )
        return {name: self.written(each) for name, each in given}


def _is_usual(one: Field[Any], value: Any) -> bool:
    usual = one.default if one.default_factory is MISSING else one.default_factory()
    return bool(getattr(value, one.name) == usual)
