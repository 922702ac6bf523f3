"""Entries of the last list are not parsed again, and nothing older than the last list is cached."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reclaim.cri.entry_cache import MOST_ENTRIES, EntryCache
from tests.pure.values import MIB

lists = st.lists(st.tuples(st.lists(st.binary(max_size=2), max_size=8), st.booleans()), max_size=6)


@given(lists)
def test_values_follow_from_the_bytes_and_only_new_entries_are_parsed(lists: list[tuple[list[bytes], bool]]) -> None:
    """Whatever was listed before, whole or in part; entries of the last whole list are not parsed again."""
    read: list[bytes] = []

    def reading(entry: bytes) -> str:
        read.append(entry)
        return entry.hex()

    cache, last = EntryCache(reading), set[bytes]()
    for entries, whole in lists:
        read.clear()
        assert list(cache.values(entries, whole=whole)) == [entry.hex() for entry in entries]
        assert read == [entry for entry in entries if entry not in last]
        if whole:
            last = set(entries)


def test_a_list_that_was_not_read_to_its_end_is_not_cached() -> None:
    """After a list that broke off, the last whole one is still cached."""
    read: list[bytes] = []
    cache = EntryCache(lambda entry: read.append(entry) or entry)  # type: ignore[func-returns-value] # both at once
    list(cache.values([b"a"], whole=True))
    next(cache.values([b"b", b"c"], whole=True))
    list(cache.values([b"a"], whole=True))
    assert read == [b"a", b"b"]


def test_of_a_very_long_list_only_the_beginning_is_cached() -> None:
    """A node with 50 000 dead containers would need the memory for them twice."""
    read: list[bytes] = []
    cache = EntryCache(lambda entry: read.append(entry) or entry)  # type: ignore[func-returns-value] # both at once
    many = [b"%d" % number for number in range(MOST_ENTRIES + 10)]
    assert [*cache.values(many, whole=True)] == [*cache.values(many, whole=True)] == many
    assert len(read) == MOST_ENTRIES + 10 + 10


def test_large_entries_are_not_all_cached() -> None:
    """They are copies of what the list held: 8 MiB of them at most."""
    read: list[bytes] = []
    cache = EntryCache(lambda entry: read.append(entry) or entry)  # type: ignore[func-returns-value] # both at once
    large = [bytes([number]) * MIB for number in range(12)]
    assert list(cache.values(large, whole=True)) == large
    assert list(cache.values(large, whole=True)) == large
    assert len(read) == 12 + 4
