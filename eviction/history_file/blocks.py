"""The format of the history file: a ring of blocks between two copies of a header.

```
header | block 0 | block 1 | … | block N-1 | header
```

* A block has 512 bytes: the CRC-32 of the rest of it, its sequence number, which part of how many of a record it holds,
  how many bytes, and these. The number rises by one from block to block and never falls; block S lies in slot S modulo
  N. So the newest block overwrites the oldest, and nothing else of the file is ever written.
* A record is the bytes of consecutive blocks whose parts are 0, 1, … up to the last. A block that was written in part
  has a wrong checksum; a record without one of its blocks is left out, and every other one stays whole.
* What follows a torn record begins with its part 0, so no record is ever made of the parts of two.
* The checksum is begun with the random id of the file: blocks of another file that lay in the same place do not count.
* Numbers are little-endian. The header never changes once the file was made; of its two copies one may be damaged.

Covers: bytes. Does not cover: what a record says (`entries`), the file (`store`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple
from zlib import crc32

BLOCK_BYTES = 512  # a sector: most disks write it whole or not at all
MAGIC = b"reclaimd history"
VERSION = 1
MOST_PARTS = 256
HEADERS = 2  # blocks that are none of the ring

_HEADER = struct.Struct("<16sHHI16s")  # magic, version, bytes of a block, slots, id of the file
_CHECKSUM = struct.Struct("<I")
_HEAD = struct.Struct("<QHHH")  # sequence number, part, parts, bytes of the payload
PAYLOAD_BYTES = BLOCK_BYTES - _CHECKSUM.size - _HEAD.size
LARGEST_RECORD_BYTES = MOST_PARTS * PAYLOAD_BYTES


class OtherVersion(ValueError):
    """The header is of a version that this program does not know. The message is the end of a sentence."""


@dataclass(frozen=True, slots=True)
class Header:
    """`slots`: blocks of the ring. `file_id`: 16 random bytes."""

    slots: int
    file_id: bytes

    @property
    def size_bytes(self) -> int:
        """Of the whole file."""
        return (self.slots + HEADERS) * BLOCK_BYTES

    def slot_of(self, sequence: int) -> int:
        """Where the block of this number lies."""
        return sequence % self.slots

    def offset_of(self, sequence: int) -> int:
        """The same in bytes from the beginning of the file."""
        return (1 + self.slot_of(sequence)) * BLOCK_BYTES


class Block(NamedTuple):
    """One block of the ring."""

    sequence: int
    part: int
    parts: int
    payload: bytes


def header_for(size_bytes: int, file_id: bytes) -> Header:
    """The header of a file of at most so many bytes."""
    return Header(size_bytes // BLOCK_BYTES - HEADERS, file_id)


def header_block(header: Header) -> bytes:
    """The header as a block."""
    data = _HEADER.pack(MAGIC, VERSION, BLOCK_BYTES, header.slots, header.file_id)
    return (data + _CHECKSUM.pack(crc32(data))).ljust(BLOCK_BYTES, b"\0")


def read_header(data: bytes) -> Header | None:
    """The header in a block; None if there is none, or a damaged one. Raises OtherVersion."""
    end = _HEADER.size + _CHECKSUM.size
    if len(data) < end or data[_HEADER.size : end] != _CHECKSUM.pack(crc32(data[: _HEADER.size])):
        return None
    magic, version, block_bytes, slots, file_id = _HEADER.unpack_from(data)
    if magic != MAGIC:
        return None
    if version != VERSION or block_bytes != BLOCK_BYTES:
        raise OtherVersion(f"has the format {version} of another version of reclaimd, and this one knows {VERSION}")
    return Header(slots, file_id) if slots > MOST_PARTS else None


def blocks_of(record: bytes, header: Header, sequence: int) -> list[bytes]:
    """The blocks of a record, the first of which has this number. Raises ValueError for one that is too large."""
    if len(record) > LARGEST_RECORD_BYTES:
        raise ValueError(f"a record of {len(record)} bytes; at most {LARGEST_RECORD_BYTES} fit")
    payloads = [record[start : start + PAYLOAD_BYTES] for start in range(0, max(len(record), 1), PAYLOAD_BYTES)]
    blocks = []
    for part, payload in enumerate(payloads):
        data = _HEAD.pack(sequence + part, part, len(payloads), len(payload)) + payload.ljust(PAYLOAD_BYTES, b"\0")
        blocks.append(_CHECKSUM.pack(_checksum(data, header)) + data)
    return blocks


def read_block(data: bytes, header: Header, slot: int) -> Block | None:
    """The block in a slot; None if it was never written, was written in part, or is of another place or file."""
    if len(data) != BLOCK_BYTES:
        return None
    sequence, part, parts, size = _HEAD.unpack_from(data, _CHECKSUM.size)
    if not part < parts <= MOST_PARTS or size > PAYLOAD_BYTES or header.slot_of(sequence) != slot:
        return None  # also one of zeros, which was never written: `parts` is 0
    if data[: _CHECKSUM.size] != _CHECKSUM.pack(_checksum(data[_CHECKSUM.size :], header)):
        return None
    start = _CHECKSUM.size + _HEAD.size
    return Block(sequence, part, parts, data[start : start + size])


def records_of(blocks: Iterable[Block]) -> Iterator[bytes]:
    """The whole records among blocks of rising numbers, in their order."""
    found: list[Block] = []
    for block in blocks:
        if block.part == 0:
            found = [block]
        elif found and _continues(block, found[-1]):
            found.append(block)
        else:
            found = []
            continue
        if len(found) == block.parts:
            yield b"".join(each.payload for each in found)
            found = []


def _continues(block: Block, last: Block) -> bool:
    return (block.sequence, block.part, block.parts) == (last.sequence + 1, last.part + 1, last.parts)


def _checksum(data: bytes, header: Header) -> int:
    return crc32(data, crc32(header.file_id))
