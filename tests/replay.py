"""Replays the dump of a daemon's history (`reclaimd status --history -o json`): the decisions that
were made, and those that `synchronize` makes now."""

from __future__ import annotations

from dataclasses import is_dataclass
from functools import cache
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from eviction.decision.synchronize import ManagerState, synchronize
from eviction.records.json_shapes import Json
from eviction.records.replay import written
from signals.types import SignalObservations

hints_of = cache(get_type_hints)


def replay(dump: Json) -> tuple[list[Json], list[Json]]:
    """The decisions in the dump, and those that `synchronize` makes now from the
    same state and observations.

    Raises LookupError, TypeError or ValueError for a document that is no dump.
    """
    made = []
    state: Any = None if dump["state"] is None else read(ManagerState, dump["state"])
    for entry in dump["looks"]:
        observations = read(SignalObservations, entry["observations"])
        state, decision = synchronize(state, observations, observations.time)
        made.append(written(decision))
    return [entry["decision"] for entry in dump["looks"]], made


def read(kind: Any, document: Any) -> Any:
    """The value of this type."""
    origin, kinds = get_origin(kind), get_args(kind)
    if is_dataclass(kind):
        return read_by_field(kind, dict(document))
    if origin is UnionType:  # with None
        return None if document is None else read(kinds[0], document)
    if origin is tuple and kinds[-1] is ...:
        return tuple(read(kinds[0], each) for each in document)
    if origin is tuple:
        return tuple(read(one, each) for one, each in zip(kinds, document, strict=True))
    if origin is frozenset:
        return frozenset(read(kinds[0], each) for each in document)
    if origin is not None:
        return {read(kinds[0], key): read(kinds[1], each) for key, each in document}
    if named := getattr(kind, "_fields", ()):
        return kind(
            *(read(hints_of(kind)[name], each) for name, each in zip(named, document, strict=True))
        )
    return kind(document)


def read_by_field(kind: Any, document: Json) -> Any:
    """A dataclass."""
    return kind(**{name: read(hints_of(kind)[name], each) for name, each in document.items()})
