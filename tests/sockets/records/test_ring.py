"""The ring of slots: records come back whole, and whatever of a write is missing, no other record
suffers.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eviction.records.store import LARGEST_RECORD_BYTES, SLOT_BYTES, Ring

SLOTS = 5
RECORD = st.builds(
    lambda size, byte: bytes(byte + at % 7 for at in range(size)),
    st.integers(1, 40) | st.integers(4000, 4082),
    st.integers(0, 240),
)
RECORDS = st.lists(RECORD, max_size=14)


@contextmanager
def ring(*records: bytes) -> Iterator[Ring]:
    """A file in memory with a ring of 5 slots and these records."""
    descriptor = os.memfd_create("ring")
    os.ftruncate(descriptor, (1 + SLOTS) * SLOT_BYTES)
    made = Ring(descriptor)
    try:
        for record in records:
            made.write(record)
        yield made
    finally:
        made.close()


@given(RECORDS)
def test_the_newest_records_come_back_whole_and_in_their_order(records: list[bytes]) -> None:
    """As many as there are slots, however often they were filled."""
    with ring(*records) as made:
        assert made.contents() == (records[-SLOTS:], 0)


@given(RECORDS, RECORD, st.tuples(*[st.integers(0, SLOT_BYTES)] * 2))
def test_a_write_of_which_any_part_is_missing_costs_no_other_record(
    records: list[bytes], last: bytes, written: tuple[int, int]
) -> None:
    """Any part of the last slot was written: its record is whole, the one before it in this place
    is, or it is counted as torn; so it is after the next process has written another one."""
    with ring(*records) as made:
        place = (1 + made.next % SLOTS) * SLOT_BYTES
        old = os.pread(made.descriptor, SLOT_BYTES, place)
        made.write(last)
        new = os.pread(made.descriptor, SLOT_BYTES, place)
        start, end = sorted(written)
        os.pwrite(made.descriptor, old[:start] + new[start:end] + old[end:], place)
        before, others = records[-SLOTS:], records[-SLOTS + 1 :]
        found, torn = made.contents()
        assert found in ((others,) if torn else (before, [*others, last]))
        made.next = 1 + max((slot.sequence for slot in made.slots()), default=-1)
        made.write(b"after")
        *rest, after = made.contents().records
        assert after == b"after"
        assert set(rest) <= {*records, last}


def test_a_byte_that_is_wrong_leaves_one_record_out_and_is_counted() -> None:
    """Wherever it is in the slot."""
    with ring(b"one", b"two" * 100, b"three") as made:
        for place in range(2 * SLOT_BYTES, 3 * SLOT_BYTES):
            right = os.pread(made.descriptor, 1, place)
            os.pwrite(made.descriptor, bytes([right[0] ^ 0x20]), place)
            assert made.contents() == ([b"one", b"three"], 1)
            os.pwrite(made.descriptor, right, place)
        assert len(made.contents().records) == 3


def test_a_record_that_is_too_large_is_refused() -> None:
    """Nothing of it is written."""
    largest = b"x" * LARGEST_RECORD_BYTES
    with ring(largest) as made:
        with pytest.raises(ValueError, match="at most"):
            made.write(largest + b"x")
        assert made.contents() == ([largest], 0)
