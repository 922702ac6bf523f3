"""The last observations and the decisions made on them, as JSON that can be
replayed on another machine.

A dump is complete: replayed, `synchronize` makes the same decisions (`tests/replay.py`), so a
doubtful one can be examined later. It follows the dataclasses; a mapping is a list of pairs. It can
be read by the version that wrote it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from fractions import Fraction
from math import isinf
from typing import Any

from eviction.decision.synchronize import ManagerState
from eviction.records.json_shapes import Json
from eviction.types import Decision
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
        entries = list(self._entries)
        return {
            "state": written(entries[0].before) if entries else None,
            "looks": [
                {
                    "observations": written(
                        replace(entry.observations, filesystems={}, polls={}, limits={})
                    ),
                    "decision": written(entry.decision),
                }
                for entry in entries
            ],
        }


def written(value: Any) -> Any:
    """A value as JSON."""
    match value:
        case Mapping():
            return [[written(key), written(part)] for key, part in value.items()]
        case frozenset():
            return sorted(map(written, value))
        case tuple():
            return list(map(written, value))
        case Fraction():
            return str(value)
        case float() if isinf(value):
            return str(value)
        case _ if is_dataclass(value):
            return {field.name: written(getattr(value, field.name)) for field in fields(value)}
        case _:
            return value
