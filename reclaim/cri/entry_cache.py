"""Cache of parsed list entries, by their bytes, so that the next list parses only new entries.

The lists are requested again before each removal, and of 300 images only one is missing then. Equal bytes have equal
values: parsing an entry takes about 10 µs, finding it in the cache below 1 µs. Containers with many labels are found
less often, because a runtime written in Go serializes the entries of a map in another order each time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

MOST_ENTRIES = 4096  # cached; a longer list takes seconds anyway, and caching it would cost too much memory
MOST_BYTES = 8 * 1024 * 1024  # of all cached entries; they are copies of what the list held

Value = TypeVar("Value")


class EntryCache(Generic[Value]):
    """The values of the last complete list. `parse` makes the value of an entry. Usable from any thread."""

    def __init__(self, parse: Callable[[bytes], Value]):
        self._parse = parse
        self._cached: dict[bytes, Value] = {}

    def values(self, entries: Iterable[bytes], *, whole: bool) -> Iterator[Value]:
        """The value of each entry, in order. A `whole` list that is read to its end replaces the cached one."""
        cached, listed, size = self._cached, dict[bytes, Value](), 0
        for entry in entries:
            value = cached.get(entry)
            if value is None:
                value = self._parse(entry)
            size += len(entry)
            if len(listed) < MOST_ENTRIES and size <= MOST_BYTES:
                listed[entry] = value
            yield value
        if whole:
            self._cached = listed
