"""The last observations with the decisions made on them, as JSON that can be replayed on another machine.

A dump is complete: `replay` runs `synchronize` over it again and gets the same decisions, so a doubtful decision can be
examined later. It is written and read by the definitions of the dataclasses themselves: a field with its usual value is
left out, a mapping is a list of pairs, and each threshold is there once, and else by its number. It is for the version
that wrote it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass, replace
from fractions import Fraction
from functools import cache
from math import isinf
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from eviction.decision.synchronize import ManagerState, synchronize
from eviction.types import Decision, Threshold
from signals.types import SignalObservations

KEPT_ENTRIES = 512

Json = dict[str, Any]
hints_of = cache(get_type_hints)


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One pass of `synchronize`: the state before it, the observations, the decision."""

    before: ManagerState
    observations: SignalObservations
    decision: Decision


class History:
    """The last passes, at most `KEPT_ENTRIES`; emptied when the thresholds change."""

    def __init__(self) -> None:
        self._entries: deque[HistoryEntry] = deque(maxlen=KEPT_ENTRIES)

    def add(self, entry: HistoryEntry) -> None:
        """Appends a pass."""
        if self._entries and self._entries[-1].before.config != entry.before.config:
            self._entries.clear()
        self._entries.append(entry)

    def dump(self) -> Json:
        """Everything that a replay needs; empty lists before the first pass."""
        entries, table = list(self._entries), _Table()
        state = table.written(entries[0].before) if entries else None
        looks = [
            {
                "observations": table.written(replace(entry.observations, filesystems={}, polls={}, limits={})),
                "decision": table.written(entry.decision),
            }
            for entry in entries
        ]
        return {"thresholds": [table.written_by_field(one) for one in table.thresholds], "state": state, "looks": looks}


def replay(dump: Json) -> tuple[list[Json], list[Json]]:
    """The decisions in the dump, and those that `synchronize` makes now from the same state and observations.

    Raises LookupError, TypeError or ValueError for a document that is not a dump.
    """
    table, made = _Table(), []
    table.thresholds = [table.read_by_field(Threshold, each) for each in dump["thresholds"]]
    state: Any = None if dump["state"] is None else table.read(ManagerState, dump["state"])
    for entry in dump["looks"]:
        observations = table.read(SignalObservations, entry["observations"])
        state, decision = synchronize(state, observations, observations.time)
        made.append(table.written(decision))
    return [entry["decision"] for entry in dump["looks"]], made


class _Table:
    """Writes and reads values; a threshold as its number."""

    def __init__(self) -> None:
        self.thresholds: list[Threshold] = []

    def written(self, value: Any) -> Any:
        """The value as JSON."""
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
        """A dataclass."""
        given = (
            (one.name, getattr(value, one.name)) for one in fields(value) if one.init and not _is_usual(one, value)
        )
        return {name: self.written(each) for name, each in given}

    def read(self, kind: Any, document: Any) -> Any:
        """The value of this type."""
        origin, kinds = get_origin(kind), get_args(kind)
        if kind is Threshold:
            return self.thresholds[document]
        if is_dataclass(kind):
            return self.read_by_field(kind, document)
        if origin is UnionType:  # with None
            return None if document is None else self.read(kinds[0], document)
        if origin is tuple and kinds[-1] is ...:
            return tuple(self.read(kinds[0], each) for each in document)
        if origin is tuple:
            return tuple(self.read(one, each) for one, each in zip(kinds, document, strict=True))
        if origin is frozenset:
            return frozenset(self.read(kinds[0], each) for each in document)
        if origin is not None:
            return {self.read(kinds[0], key): self.read(kinds[1], each) for key, each in document}
        if named := getattr(kind, "_fields", ()):
            return kind(*(self.read(hints_of(kind)[name], each) for name, each in zip(named, document, strict=True)))
        return kind(document)

    def read_by_field(self, kind: Any, document: Json) -> Any:
        """A dataclass."""
        given = [one.name for one in fields(kind) if one.name in document]
        return kind(**{name: self.read(hints_of(kind)[name], document[name]) for name in given})


def _is_usual(one: Field[Any], value: Any) -> bool:
    usual = one.default if one.default_factory is MISSING else one.default_factory()
    return bool(getattr(value, one.name) == usual)
