"""Reading the history file, beside whoever writes it: what is there is opened, trusted or refused by name, and read.

What lies at its path and is not a history is refused and left alone; so is one that others may write. No symbolic link
is followed. A reader needs no lock: a block that is being written has a wrong checksum, and one that was overwritten
since the reader began has a number that is too high: its record is missing, and no record is half. A file of which an
end is missing is read as far as it goes.

Covers: one file, its header, its records. Does not cover: the bytes of a block (`blocks`), writing (`store`).
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator

from eviction.history_file.blocks import BLOCK_BYTES, Block, Header, OtherVersion, read_block, read_header, records_of
from eviction.types import EvictionError

CHUNK_BLOCKS = 2048  # read at once
FLAGS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


class HistoryUnusable(EvictionError):
    """The file cannot be used. The message is one sentence."""


class NoHistoryYet(HistoryUnusable):
    """There is no file yet."""


def read_records(path: str) -> Iterator[bytes]:
    """Every whole record of the file, the oldest first; those that come while it is read are left out.

    Raises HistoryUnusable, NoHistoryYet.
    """
    descriptor = opened(path, os.O_RDONLY)
    try:
        header = header_of(path, descriptor)
        yield from whole_records(descriptor, header)
    except OSError as error:
        raise HistoryUnusable(f"{path}: {error.strerror or error}") from None
    finally:
        os.close(descriptor)


def why_unusable(path: str) -> str:
    """Why what is at the path is no history that can be used, as a sentence; empty if it is one, if nothing is there
    yet, or without a path."""
    if not path:
        return ""
    try:
        descriptor = opened(path, os.O_RDONLY)
    except NoHistoryYet:
        return ""
    except HistoryUnusable as error:
        return str(error)
    try:
        header_of(path, descriptor)
    except HistoryUnusable as error:
        return str(error)
    except OSError as error:
        return f"{path}: {error.strerror or error}"
    finally:
        os.close(descriptor)
    return ""


def opened(path: str, flags: int) -> int:
    """A descriptor of the file, which never blocks, not even on a FIFO. Raises HistoryUnusable, NoHistoryYet."""
    try:
        descriptor = os.open(path, flags | FLAGS)
    except FileNotFoundError:
        raise NoHistoryYet(f"there is no history {path} yet") from None
    except OSError as error:
        what = "it is a symbolic link" if error.errno == errno.ELOOP else error.strerror or str(error)
        raise HistoryUnusable(f"the history {path} cannot be opened: {what}") from None
    try:
        refuse_untrusted(path, descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def refuse_untrusted(path: str, descriptor: int) -> None:
    """Raises HistoryUnusable for what is no regular file, or may have been put there or changed by others; OSError."""
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        raise HistoryUnusable(f"{path} is left alone: it is not a regular file")
    if found.st_uid not in (0, os.geteuid()) or found.st_mode & _OTHERS_MAY_WRITE:
        raise HistoryUnusable(f"{path} is left alone: others may write it (mode 0600 is ours)")


def header_of(path: str, descriptor: int) -> Header:
    """The header, at the beginning or at the end. Raises HistoryUnusable, OSError."""
    size_bytes = os.fstat(descriptor).st_size
    try:
        for offset in (0, size_bytes - BLOCK_BYTES):
            header = read_header(os.pread(descriptor, BLOCK_BYTES, max(offset, 0)))
            if header is not None:
                return header
    except OtherVersion as error:
        raise HistoryUnusable(f"{path} is left alone: it {error}") from None
    raise HistoryUnusable(f"{path} is left alone: it is not a history of reclaimd's, or damaged at both ends")


def whole_records(descriptor: int, header: Header) -> Iterator[bytes]:
    """From the oldest block to the newest that is there when it begins."""
    last = newest(descriptor, header)
    first = max(last - header.slots + 1, 0)
    blocks = (block for block in _blocks(descriptor, header, first, last) if first <= block.sequence <= last)
    return records_of(blocks)


def newest(descriptor: int, header: Header) -> int:
    """The highest number of a block; -1 without any."""
    blocks = _blocks(descriptor, header, 0, header.slots - 1)
    return max((block.sequence for block in blocks), default=-1)


def _blocks(descriptor: int, header: Header, first: int, last: int) -> Iterator[Block]:
    """What is in the slots of the numbers from `first` to `last`, in their order."""
    sequence = first
    while sequence <= last:
        slot = header.slot_of(sequence)
        count = min(CHUNK_BLOCKS, header.slots - slot, last - sequence + 1)
        data = os.pread(descriptor, count * BLOCK_BYTES, header.offset_of(sequence))
        for number in range(count):
            start = number * BLOCK_BYTES
            block = read_block(data[start : start + BLOCK_BYTES], header, slot + number)
            if block is not None:
                yield block
        sequence += count
