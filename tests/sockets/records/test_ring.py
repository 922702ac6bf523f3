"""The ring of blocks: records come back whole, and whatever of a write is
missing, no other record suffers.
"""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eviction.records.store import (
    BLOCK_BYTES,
    LARGEST_RECORD_BYTES,
    MOST_PARTS,
    PAYLOAD_BYTES,
    Ring,
    read_header,
)

SLOTS = 16
FILE_ID = b"0123456789abcdef"
OTHER = b"fedcba9876543210"
RECORDS = st.lists(st.binary(max_size=3 * PAYLOAD_BYTES), max_size=40)


class File:
    """A file in memory with a ring of 16 slots."""

    def __init__(self) -> None:
        self.descriptor = os.memfd_create("ring")
        self.ring = Ring(self.descriptor, SLOTS, FILE_ID)
        self.data = bytes((1 + SLOTS) * BLOCK_BYTES)

    @property
    def data(self) -> bytes:
        """All of it."""
        return os.pread(self.descriptor, (1 + SLOTS) * BLOCK_BYTES, 0)

    @data.setter
    def data(self, data: bytes) -> None:
        os.pwrite(self.descriptor, data, 0)

    def writes(self, record: bytes) -> list[tuple[int, bytes]]:
        """Where in the file a record is to be written, block by block; nothing is written."""
        before, first = self.data, self.ring.next
        self.ring.write(record)
        after, self.data = self.data, before
        places = [(1 + number % SLOTS) * BLOCK_BYTES for number in range(first, self.ring.next)]
        return [(place, after[place : place + BLOCK_BYTES]) for place in places]

    def flip(self, place: int) -> None:
        """Damages a byte, or mends it."""
        (byte,) = os.pread(self.descriptor, 1, place)
        os.pwrite(self.descriptor, bytes([byte ^ 0x20]), place)

    def read(self) -> list[bytes]:
        """The records that are there."""
        return list(self.ring.records())


@contextmanager
def made() -> Iterator[File]:
    """A new file."""
    file = File()
    try:
        yield file
    finally:
        file.ring.close()


def newest_that_fit(records: Sequence[bytes]) -> list[bytes]:
    """The last ones of these records that the ring holds."""
    kept: list[bytes] = []
    left = SLOTS
    for record in reversed(records):
        left -= max(-(-len(record) // PAYLOAD_BYTES), 1)
        if left < 0:
            break
        kept.insert(0, record)
    return kept


@given(RECORDS)
def test_the_newest_records_come_back_whole_and_in_their_order(records: list[bytes]) -> None:
    """As many as the ring holds, however often it was filled."""
    with made() as file:
        for record in records:
            file.ring.write(record)
        assert file.read() == newest_that_fit(records)


@given(RECORDS, st.binary(max_size=4 * PAYLOAD_BYTES), st.binary(max_size=PAYLOAD_BYTES), st.data())
def test_a_write_of_which_any_part_is_missing_costs_no_other_record(
    contents: list[bytes], last: bytes, after: bytes, data: st.DataObject
) -> None:
    """Some bytes of some blocks of the last record were written: it is whole or left out,
    and every record that it does not overwrite is there; so it is after the next process
    has written another one."""
    records = [b"%d " % number + content for number, content in enumerate(contents)]
    torn, after = b"torn " + last, b"after " + after
    with made() as file:
        for record in records:
            file.ring.write(record)
        for place, block in file.writes(torn):
            start, end = sorted(data.draw(st.tuples(*[st.integers(0, BLOCK_BYTES)] * 2)))
            os.pwrite(file.descriptor, block[start:end], place + start)
        untouched = newest_that_fit([*records, torn])[:-1]
        found = file.read()
        rest = [record for record in found if record != torn]
        assert rest[len(rest) - len(untouched) :] == untouched
        assert found in (rest, [*rest, torn])
        assert [record for record in records if record in rest] == rest

        file.ring.next = 1 + file.ring.newest()
        file.ring.write(after)
        found = file.read()
        assert found[-1] == after
        assert set(found) <= {*records, torn, after}


def test_every_prefix_of_every_write_leaves_the_earlier_records_whole() -> None:
    """Nine records of one to four blocks, around the end of the ring: cut anywhere in
    each write, in both orders.
    """
    chance = random.Random(7)  # noqa: S311 # a repeatable sequence, no secret
    records = [chance.randbytes(size) for size in (100, 494, 495, 1900, 1500, 1, 1200, 700, 1976)]
    with made() as file:
        for number, record in enumerate(records):
            earlier, old = newest_that_fit(records[: number + 1])[:-1], file.data
            writes = file.writes(record)
            offsets = [
                (place + byte, block[byte])
                for place, block in writes
                for byte in range(BLOCK_BYTES)
            ]
            for order in (offsets, offsets[::-1]):
                file.data = old
                for offset, byte in order:
                    os.pwrite(file.descriptor, bytes([byte]), offset)
                    found = file.read()
                    whole = found[-1:] == [record]
                    assert [each for each in found if each in earlier] == earlier
                    assert set(found) <= set(records[: number + whole])
                assert file.read()[-1] == record


def test_a_byte_that_is_wrong_leaves_one_record_out() -> None:
    """Wherever it is in the block."""
    with made() as file:
        for record in (b"one", b"two" * 100, b"three"):
            file.ring.write(record)
        for place in range(2 * BLOCK_BYTES, 3 * BLOCK_BYTES):
            file.flip(place)
            assert file.read() == [b"one", b"three"]
            file.flip(place)
        assert len(file.read()) == 3


@given(st.lists(st.integers(0, SLOTS - 1), max_size=8))
def test_no_record_is_made_of_the_parts_of_two(damaged: list[int]) -> None:
    """Eight records of two blocks each, of which any blocks are damaged: the others are whole."""
    records = [b"%d" % number * (PAYLOAD_BYTES + 9) for number in range(8)]
    with made() as file:
        for record in records:
            file.ring.write(record)
        for slot in damaged:
            file.flip((1 + slot) * BLOCK_BYTES)
        lost = {slot // 2 for slot in damaged if damaged.count(slot) % 2}
        assert file.read() == [
            record for number, record in enumerate(records) if number not in lost
        ]


def test_blocks_of_another_file_do_not_count() -> None:
    """What lay in the same place of the disk before."""
    with made() as file:
        Ring(file.descriptor, SLOTS, OTHER).write(b"another file's")
        assert file.read() == []
        assert list(Ring(file.descriptor, SLOTS, OTHER).records()) == [b"another file's"]


def test_a_record_that_is_too_large_is_refused() -> None:
    """The largest has 256 blocks."""
    with made() as file:
        file.ring.write(b"x" * LARGEST_RECORD_BYTES)
        assert file.ring.next == MOST_PARTS
        with pytest.raises(ValueError, match="at most"):
            file.ring.write(b"x" * (LARGEST_RECORD_BYTES + 1))
        assert file.ring.next == MOST_PARTS


@given(st.integers(MOST_PARTS + 1, 1 << 21), st.binary(min_size=16, max_size=16))
def test_a_header_comes_back(slots: int, file_id: bytes) -> None:
    """Of any number of slots that holds the largest record, and any id."""
    header = Ring(-1, slots, file_id).header()
    assert (len(header), read_header(header)) == (BLOCK_BYTES, (slots, file_id))


@given(st.binary(max_size=BLOCK_BYTES))
def test_what_is_no_header_is_none(data: bytes) -> None:
    """Any bytes."""
    assert read_header(data) is None
    assert read_header(data.ljust(BLOCK_BYTES, b"\0")) is None


def test_the_header_of_another_version_is_none() -> None:
    """Its checksum is right, so nothing is damaged."""
    data = struct.pack("<16sHHI16s", b"reclaimd history", 2, 512, 2046, b"x" * 16)
    assert read_header((data + struct.pack("<I", crc32(data))).ljust(BLOCK_BYTES, b"\0")) is None
