"""The ring of slots: records come back whole, and whatever of a write is missing, no other record
suffers.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eviction.records.store import LARGEST_RECORD_BYTES, SLOT_BYTES, Ring

SLOTS = 5
RECORDS = st.lists(st.binary(max_size=40) | st.binary(min_size=4000, max_size=4082), max_size=14)


class File:
    """A file in memory with a ring of 5 slots."""

    def __init__(self) -> None:
        self.descriptor = os.memfd_create("ring")
        os.ftruncate(self.descriptor, (1 + SLOTS) * SLOT_BYTES)
        self.ring = Ring(self.descriptor)

    def write_of(self, record: bytes) -> tuple[int, bytes]:
        """Where in the file a record is to be written, and what; nothing is written."""
        place = (1 + self.ring.next % SLOTS) * SLOT_BYTES
        before = os.pread(self.descriptor, SLOT_BYTES, place)
        self.ring.write(record)
        after = os.pread(self.descriptor, SLOT_BYTES, place)
        os.pwrite(self.descriptor, before, place)
        return place, after

    def flip(self, place: int) -> None:
        """Damages a byte, or mends it."""
        (byte,) = os.pread(self.descriptor, 1, place)
        os.pwrite(self.descriptor, bytes([byte ^ 0x20]), place)

    def read(self) -> list[bytes]:
        """The records that are there."""
        return self.ring.contents().records


@contextmanager
def made() -> Iterator[File]:
    """A new file."""
    file = File()
    try:
        yield file
    finally:
        file.ring.close()


@given(RECORDS)
def test_the_newest_records_come_back_whole_and_in_their_order(records: list[bytes]) -> None:
    """As many as there are slots, however often they were filled."""
    with made() as file:
        for record in records:
            file.ring.write(record)
        assert file.ring.contents() == (records[-SLOTS:], 0)


@given(RECORDS, st.binary(min_size=1, max_size=4082), st.data())
def test_a_write_of_which_any_part_is_missing_costs_no_other_record(
    records: list[bytes], last: bytes, data: st.DataObject
) -> None:
    """Any part of the last slot was written: its record is whole, the one before it in this place
    is, or it is counted as torn; so it is after the next process has written another one."""
    with made() as file:
        for record in records:
            file.ring.write(record)
        place, slot = file.write_of(last)
        start, end = sorted(data.draw(st.tuples(*[st.integers(0, SLOT_BYTES)] * 2)))
        os.pwrite(file.descriptor, slot[start:end], place + start)
        before, others = records[-SLOTS:], records[-SLOTS + 1 :]
        found, torn = file.ring.contents()
        assert found in ((others,) if torn else (before, [*others, last]))

        file.ring.next = 1 + max((slot.sequence for slot in file.ring.slots()), default=-1)
        file.ring.write(b"after")
        assert file.read()[-1] == b"after"
        assert set(file.read()) <= {*records, last, b"after"}


def test_a_write_that_stops_at_any_byte_leaves_the_other_records_whole() -> None:
    """From the beginning on, and from the end."""
    chance = random.Random(7)  # noqa: S311 # a repeatable sequence, no secret
    records = [chance.randbytes(size) for size in (100, 4082, 1, 1900, 700, 1500)]
    with made() as file:
        for record in records:
            file.ring.write(record)
        last = chance.randbytes(2000)
        place, slot = file.write_of(last)
        old = os.pread(file.descriptor, SLOT_BYTES, place)
        for number in range(1, SLOT_BYTES):
            for torn in (slot[:number] + old[number:], old[:number] + slot[number:]):
                os.pwrite(file.descriptor, torn, place)
                assert file.read() in (records[2:], records[1:], [*records[2:], last])


def test_a_byte_that_is_wrong_leaves_one_record_out_and_is_counted() -> None:
    """Wherever it is in the slot."""
    with made() as file:
        for record in (b"one", b"two" * 100, b"three"):
            file.ring.write(record)
        for place in range(2 * SLOT_BYTES, 3 * SLOT_BYTES):
            file.flip(place)
            assert file.ring.contents() == ([b"one", b"three"], 1)
            file.flip(place)
        assert len(file.read()) == 3


def test_a_record_that_is_too_large_is_refused() -> None:
    """Nothing of it is written."""
    with made() as file:
        file.ring.write(b"x" * LARGEST_RECORD_BYTES)
        with pytest.raises(ValueError, match="at most"):
            file.ring.write(b"x" * (LARGEST_RECORD_BYTES + 1))
        assert file.ring.contents() == ([b"x" * LARGEST_RECORD_BYTES], 0)
