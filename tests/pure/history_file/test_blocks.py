"""The ring of blocks: records come back whole, and whatever of a write is missing, no other record suffers."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eviction.history_file.blocks import (
    BLOCK_BYTES,
    LARGEST_RECORD_BYTES,
    MOST_PARTS,
    PAYLOAD_BYTES,
    Block,
    Header,
    HistoryUnusable,
    blocks_of,
    header_block,
    read_block,
    read_header,
    records_of,
)

HEADER = Header(slots=16, file_id=b"0123456789abcdef")
OTHER = Header(slots=16, file_id=b"fedcba9876543210")
RECORDS = st.lists(st.binary(max_size=3 * PAYLOAD_BYTES), max_size=40)


class Ring:
    """The slots of a ring as bytes."""

    def __init__(self, header: Header = HEADER):
        self.header = header
        self.data = bytearray(header.slots * BLOCK_BYTES)
        self.next = 0

    def writes(self, record: bytes) -> list[tuple[int, bytes]]:
        """Where in the ring a record is to be written, block by block."""
        blocks = list(blocks_of(record, self.header, self.next))
        places = [self.header.offset_of(self.next + number) - BLOCK_BYTES for number in range(len(blocks))]
        self.next += len(blocks)
        return list(zip(places, blocks, strict=True))

    def write(self, record: bytes) -> None:
        """Writes it whole."""
        for place, block in self.writes(record):
            self.data[place : place + BLOCK_BYTES] = block

    def blocks(self) -> list[Block]:
        """The valid blocks, slot by slot."""
        data = bytes(self.data)
        slots = range(self.header.slots)
        found = (read_block(data[n * BLOCK_BYTES : (n + 1) * BLOCK_BYTES], self.header) for n in slots)
        return [block for block in found if block is not None]

    def read(self) -> list[bytes]:
        """The records that are there."""
        found = {block.sequence: block for block in self.blocks()}
        last = max(found, default=-1)
        return list(records_of(found.get(number) for number in range(last - self.header.slots + 1, last + 1)))


def newest_that_fit(records: Sequence[bytes]) -> list[bytes]:
    """The last ones of these records that the ring holds."""
    kept: list[bytes] = []
    left = HEADER.slots
    for record in reversed(records):
        left -= len(list(blocks_of(record, HEADER, 0)))
        if left < 0:
            break
        kept.insert(0, record)
    return kept


@given(RECORDS)
def test_the_newest_records_come_back_whole_and_in_their_order(records: list[bytes]) -> None:
    """As many as the ring holds, however often it was filled."""
    ring = Ring()
    for record in records:
        ring.write(record)
    assert ring.read() == newest_that_fit(records)


@given(RECORDS, st.binary(max_size=4 * PAYLOAD_BYTES), st.binary(max_size=PAYLOAD_BYTES), st.data())
def test_a_write_of_which_any_part_is_missing_costs_no_other_record(
    contents: list[bytes], last: bytes, after: bytes, data: st.DataObject
) -> None:
    """Some bytes of some blocks of the last record were written: it is whole or left out, and every record that it does
    not overwrite is there; so it is after the next process has written another one."""
    records = [b"%d " % number + content for number, content in enumerate(contents)]
    torn, after = b"torn " + last, b"after " + after
    ring = Ring()
    for record in records:
        ring.write(record)
    for place, block in ring.writes(torn):
        start, end = sorted(data.draw(st.tuples(*[st.integers(0, BLOCK_BYTES)] * 2)))
        ring.data[place + start : place + end] = block[start:end]
    untouched = newest_that_fit([*records, torn])[:-1]
    found = ring.read()
    rest = [record for record in found if record != torn]
    assert rest[len(rest) - len(untouched) :] == untouched
    assert found in (rest, [*rest, torn])
    assert [record for record in records if record in rest] == rest

    ring.next = 1 + max((block.sequence for block in ring.blocks()), default=-1)
    ring.write(after)
    found = ring.read()
    assert found[-1] == after
    assert set(found) <= {*records, torn, after}


def test_every_prefix_of_every_write_leaves_the_earlier_records_whole() -> None:
    """Nine records of one to four blocks, around the end of the ring: cut anywhere in each write, in both orders."""
    chance = random.Random(7)  # noqa: S311 # a repeatable sequence, no secret
    records = [chance.randbytes(size) for size in (100, 494, 495, 1900, 1500, 1, 1200, 700, 1976)]
    ring = Ring()
    for number, record in enumerate(records):
        earlier, old = newest_that_fit(records[: number + 1])[:-1], bytearray(ring.data)
        writes = ring.writes(record)
        new = bytearray(old)
        for place, block in writes:
            new[place : place + BLOCK_BYTES] = block
        offsets = [place + byte for place, _ in writes for byte in range(BLOCK_BYTES)]
        for order in (offsets, offsets[::-1]):
            ring.data = bytearray(old)
            for offset in order:
                ring.data[offset] = new[offset]
                found = ring.read()
                whole = found[-1:] == [record]
                assert [each for each in found if each in earlier] == earlier
                assert set(found) <= set(records[: number + whole])
            assert ring.data == new
            assert ring.read()[-1] == record


def test_a_byte_that_is_wrong_leaves_one_record_out() -> None:
    """Wherever it is in the block."""
    ring = Ring()
    for record in (b"one", b"two" * 100, b"three"):
        ring.write(record)
    for byte in range(BLOCK_BYTES, 2 * BLOCK_BYTES):
        ring.data[byte] ^= 0x20
        assert ring.read() == [b"one", b"three"]
        ring.data[byte] ^= 0x20
    assert len(ring.read()) == 3


@given(st.lists(st.integers(0, HEADER.slots - 1), max_size=8))
def test_no_record_is_made_of_the_parts_of_two(damaged: list[int]) -> None:
    """Eight records of two blocks each, of which any blocks are damaged: the others are whole."""
    ring = Ring()
    records = [b"%d" % number * (PAYLOAD_BYTES + 9) for number in range(8)]
    for record in records:
        ring.write(record)
    for slot in damaged:
        ring.data[slot * BLOCK_BYTES] ^= 1
    lost = {slot // 2 for slot in damaged if damaged.count(slot) % 2}
    assert ring.read() == [record for number, record in enumerate(records) if number not in lost]


def test_blocks_of_another_file_do_not_count() -> None:
    """What lay in the same place of the disk before."""
    ring, stranger = Ring(), Ring(OTHER)
    stranger.write(b"another file's")
    ring.data = stranger.data
    assert ring.read() == []


def test_a_record_that_is_too_large_is_refused() -> None:
    """The largest has 256 blocks."""
    assert len(list(blocks_of(b"x" * LARGEST_RECORD_BYTES, HEADER, 0))) == MOST_PARTS
    with pytest.raises(ValueError, match="at most"):
        next(blocks_of(b"x" * (LARGEST_RECORD_BYTES + 1), HEADER, 0))


@given(st.integers(MOST_PARTS + 1, 1 << 21), st.binary(min_size=16, max_size=16))
def test_a_header_comes_back(slots: int, file_id: bytes) -> None:
    """Of any number of slots that holds the largest record, and any id."""
    header = Header(slots, file_id)
    assert read_header("history", header_block(header)) == header
    assert header.size_bytes == (slots + 2) * BLOCK_BYTES


@given(st.binary(max_size=BLOCK_BYTES))
def test_what_is_no_header_is_none(data: bytes) -> None:
    """Any bytes."""
    assert read_header("history", data) is None
    assert read_header("history", data.ljust(BLOCK_BYTES, b"\0")) is None


def test_the_header_of_another_version_is_refused_by_its_number() -> None:
    """Its checksum is right, so nothing is damaged."""
    data = struct.pack("<16sHHI16s", b"reclaimd history", 2, 512, 2046, b"x" * 16)
    with pytest.raises(HistoryUnusable, match="history is left alone: it has the format 2 of another version"):
        read_header("history", (data + struct.pack("<I", crc32(data))).ljust(BLOCK_BYTES, b"\0"))
