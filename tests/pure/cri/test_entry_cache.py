"""What the last list said is not read again, and nothing older than the last list is remembered."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reclaim.cri.entry_cache import MOST_ENTRIES, KnownEntries

lists = st.lists(st.tuples(st.lists(st.binary(max_size=2), max_size=8), st.booleans()), max_size=6)


@given(lists)
def test_a_list_is_what_its_bytes_say_and_only_what_is_new_is_read(lists: list[tuple[list[bytes], bool]]) -> None:
    """Whatever was listed before, whole or in part; what the last whole list had is not read again."""
    read: list[bytes] = []

    def reading(entry: bytes) -> str:
        read.append(entry)
        return entry.hex()

    known, last = KnownEntries(reading), set[bytes]()
    for entries, whole in lists:
        read.clear()
        assert list(known.values(entries, whole=whole)) == [entry.hex() for entry in entries]
        assert read == [entry for entry in entries if entry not in last]
        if whole:
            last = set(entries)


def test_a_list_that_was_not_read_to_its_end_is_not_remembered() -> None:
    """A runtime that breaks off: the next list is compared with the last whole one."""
    read: list[bytes] = []
    known = KnownEntries(lambda entry: read.append(entry) or entry)  # type: ignore[func-returns-value] # both at once
    list(known.values([b"a"], whole=True))
    next(known.values([b"b", b"c"], whole=True))
    list(known.values([b"a"], whole=True))
    assert read == [b"a", b"b"]


def test_of_a_very_long_list_only_the_beginning_is_remembered() -> None:
    """Memory that a node of 50 000 dead containers would need twice."""
    read: list[bytes] = []
    known = KnownEntries(lambda entry: read.append(entry) or entry)  # type: ignore[func-returns-value] # both at once
    many = [b"%d" % number for number in range(MOST_ENTRIES + 10)]
    assert [*known.values(many, whole=True)] == [*known.values(many, whole=True)] == many
    assert len(read) == MOST_ENTRIES + 10 + 10
