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
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple
from zlib import crc32

from eviction.types import EvictionError

BLOCK_BYTES = 512  # a sector: most disks write it whole or not at all
MAGIC = b"reclaimd history"
VERSION = 1
MOST_PARTS = 256

_HEADER = struct.Struct("<16sHHI16s")  # magic, version, bytes of a block, slots, id of the file
_HEAD = struct.Struct("<4sQHHH")  # checksum, sequence number, part, parts, bytes of the payload
_CHECKSUM_BYTES = 4
PAYLOAD_BYTES = BLOCK_BYTES - _HEAD.size
LARGEST_RECORD_BYTES = MOST_PARTS * PAYLOAD_BYTES


class HistoryUnusable(EvictionError):
    """The file cannot be used. The message is one sentence."""


@dataclass(frozen=True, slots=True)
class Header:
    """`slots`: blocks of the ring. `file_id`: 16 random bytes."""

    slots: int
    file_id: bytes

    @property
    def size_bytes(self) -> int:
        """Of the whole file."""
        return (self.slots + 2) * BLOCK_BYTES

    def offset_of(self, sequence: int) -> int:
        """Where the block of this number lies, in bytes from the beginning of the file."""
        return (1 + sequence % self.slots) * BLOCK_BYTES


class Block(NamedTuple):
    """One block of the ring."""

    sequence: int
    part: int
    parts: int
    payload: bytes


def header_block(header: Header) -> bytes:
    """The header as a block."""
    data = _HEADER.pack(MAGIC, VERSION, BLOCK_BYTES, header.slots, header.file_id)
    return (data + _checksum(data)).ljust(BLOCK_BYTES, b"\0")


def read_header(path: str, data: bytes) -> Header | None:
    """The header in a block; None if there is none, or a damaged one. Raises HistoryUnusable for another version."""
    end = _HEADER.size
    if data[end : end + _CHECKSUM_BYTES] != _checksum(data[:end]):
        return None
    magic, version, block_bytes, slots, file_id = _HEADER.unpack_from(data)
    if magic != MAGIC:
        return None
    if version != VERSION or block_bytes != BLOCK_BYTES:
        format_ = f"it has the format {version} of another version of reclaimd, and this one knows {VERSION}"
        raise HistoryUnusable(f"{path} is left alone: {format_}")
    return Header(slots, file_id) if slots > MOST_PARTS else None


def blocks_of(record: bytes, header: Header, sequence: int) -> Iterator[bytes]:
    """The blocks of a record, the first of which has this number. Raises ValueError for one that is too large."""
    if len(record) > LARGEST_RECORD_BYTES:
        raise ValueError(f"a record of {len(record)} bytes; at most {LARGEST_RECORD_BYTES} fit")
    payloads = [record[start : start + PAYLOAD_BYTES] for start in range(0, max(len(record), 1), PAYLOAD_BYTES)]
    for part, payload in enumerate(payloads):
        head = _HEAD.pack(b"", sequence + part, part, len(payloads), len(payload))
        data = (head + payload).ljust(BLOCK_BYTES, b"\0")[_CHECKSUM_BYTES:]
        yield _checksum(data, header.file_id) + data


def read_block(data: bytes, header: Header) -> Block | None:
    """The block in a slot; None if it was never written, was written in part, or is of another file."""
    if len(data) != BLOCK_BYTES or data[:_CHECKSUM_BYTES] != _checksum(data[_CHECKSUM_BYTES:], header.file_id):
        return None
    _, sequence, part, parts, size = _HEAD.unpack_from(data)
    return Block(sequence, part, parts, data[_HEAD.size : _HEAD.size + size])


def records_of(blocks: Iterable[Block | None]) -> Iterator[bytes]:
    """The whole records of consecutive blocks, in their order. None: a block that is missing."""
    payloads: list[bytes] = []
    for block in blocks:
        if block is None or block.part not in (0, len(payloads)):
            payloads = []
            continue
        if block.part == 0:
            payloads = []
        payloads.append(block.payload)
        if len(payloads) == block.parts:
            yield b"".join(payloads)
            payloads = []


def _checksum(data: bytes, file_id: bytes = b"") -> bytes:
    return crc32(data, crc32(file_id)).to_bytes(_CHECKSUM_BYTES, "little")
