"""The history file: a ring of blocks between two copies of a header, allocated at
once, then written in place.

```
header | block 0 | block 1 | … | block N-1 | header
```

* A block has 512 bytes: the CRC-32 of the rest of the block, its sequence number, the number of the
  part of a record that it holds and how many parts there are, the length of the part, and the part.
  Sequence numbers rise by one from block to block and never fall; block S is in slot S modulo N. So
  the newest block overwrites the oldest, and nothing else in the file is ever written.
* A record is the payload of consecutive blocks with the parts 0, 1, … up to the last. A torn block
  has a wrong checksum; a record that lacks a block is left out, and all others stay complete. The
  record after a torn one begins with its own part 0, so parts of two records are never joined.
* The checksum starts from the random id of the file, so blocks of an earlier file in
  the same place do not count.
* Numbers are little-endian. The header never changes once the file exists; one of its
  two copies may be damaged.
* The file is created under another name, allocated to its last byte (posix_fallocate(3)), and
  renamed when it is complete, so there is never half a file at its path. It takes at most half of
  the free space. From then on a write needs no space, except on a copy-on-write filesystem
  (btrfs, zfs). Its mode is 0600.
* A file whose size is not as configured, or that lacks one end, is replaced by a new one with as
  many of its records as fit. If no new one can be created, the old one stays in use.
* Several processes may write, a record at a time, under a lock on the file (flock(2)), which only a
  process that may open it can take. A held lock is not waited for.
* Readers need no lock. A block that is being written has a wrong checksum, and one that was
  overwritten since the reader began has too high a sequence number: the record is missing, but
  never half there. A file that lacks one end is read as far as it goes.
* A file that is not a history is rejected and left alone, and so is one that others may write.
  Symbolic links are not followed.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
import struct
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from eviction.types import EvictionError
from signals.quantity import format_bytes

BLOCK_BYTES = 512  # a sector, which most disks write whole or not at all
MAGIC = b"reclaimd history"
VERSION = 1
MOST_PARTS = 256

# magic, version, bytes per block, slots, id of the file; then the checksum
_HEADER = struct.Struct("<16sHHI16s")
# after the checksum: sequence number, part, parts, bytes of the payload
_HEAD = struct.Struct("<QHHH")
_CHECKSUM_BYTES = 4
PAYLOAD_BYTES = BLOCK_BYTES - _CHECKSUM_BYTES - _HEAD.size
LARGEST_RECORD_BYTES = MOST_PARTS * PAYLOAD_BYTES

MODE = 0o600
TRIES = 10  # the file may be replaced between opening and locking it
SHARE_OF_FREE = 2  # a new file takes at most the free space divided by this

_FLAGS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class HistoryUnusable(EvictionError):
    """The history file cannot be used. The message is one sentence."""


class NoHistoryYet(HistoryUnusable):
    """There is no history file yet."""


class Block(NamedTuple):
    """One block of the ring."""

    sequence: int
    part: int
    parts: int
    payload: bytes


class Ring:
    """The blocks of an open file. `slots`: how many blocks there are. `file_id`: 16 random bytes.
    `next`: the sequence number of the next block to be written."""

    def __init__(self, descriptor: int, slots: int, file_id: bytes):
        self.descriptor = descriptor
        self.slots = slots
        self.file_id = file_id
        self.next = 0

    def close(self) -> None:
        os.close(self.descriptor)

    def header(self) -> bytes:
        """The block at either end."""
        data = _HEADER.pack(MAGIC, VERSION, BLOCK_BYTES, self.slots, self.file_id)
        return (data + _checksum(data)).ljust(BLOCK_BYTES, b"\0")

    def block(self, sequence: int) -> Block | None:
        """The block in the slot of this sequence number; None if it was never written, was
        torn, or is another file's."""
        data = os.pread(self.descriptor, BLOCK_BYTES, self._place(sequence))
        checksum, rest = data[:_CHECKSUM_BYTES], data[_CHECKSUM_BYTES:]
        if len(data) != BLOCK_BYTES or checksum != _checksum(rest, self.file_id):
            return None
        found, part, parts, size = _HEAD.unpack_from(rest)
        return Block(found, part, parts, rest[_HEAD.size : _HEAD.size + size])

    def newest(self) -> int:
        """The highest sequence number; -1 without any block."""
        blocks = map(self.block, range(self.slots))
        return max((block.sequence for block in blocks if block is not None), default=-1)

    def records(self) -> Iterator[bytes]:
        """The complete records, from the oldest to the newest at the time of the call."""
        last = self.newest()
        payloads: list[bytes] = []
        for number in range(max(last - self.slots + 1, 0), last + 1):
            block = self.block(number)
            if block is None or block.sequence != number or block.part not in (0, len(payloads)):
                payloads = []
                continue
            if block.part == 0:
                payloads = []
            payloads.append(block.payload)
            if len(payloads) == block.parts:
                yield b"".join(payloads)
                payloads = []

    def write(self, record: bytes) -> None:
        """Writes a record after those that another process has written since. No sequence
        number is used twice, not even after a failure. Raises ValueError for a record that
        is too large, OSError."""
        if len(record) > LARGEST_RECORD_BYTES:
            raise ValueError(f"a record of {len(record)} bytes; at most {LARGEST_RECORD_BYTES} fit")
        while (block := self.block(self.next)) is not None and block.sequence >= self.next:
            self.next = block.sequence + 1
        payloads = [
            record[start : start + PAYLOAD_BYTES]
            for start in range(0, max(len(record), 1), PAYLOAD_BYTES)
        ]
        for part, payload in enumerate(payloads):
            rest = _HEAD.pack(self.next, part, len(payloads), len(payload)) + payload
            rest = rest.ljust(BLOCK_BYTES - _CHECKSUM_BYTES, b"\0")
            place = self._place(self.next)
            self.next += 1
            if (
                os.pwrite(self.descriptor, _checksum(rest, self.file_id) + rest, place)
                != BLOCK_BYTES
            ):
                raise OSError(errno.EIO, os.strerror(errno.EIO))

    def _place(self, sequence: int) -> int:
        return (1 + sequence % self.slots) * BLOCK_BYTES


def read_records(path: str) -> Iterator[bytes]:
    """Every complete record of the file, the oldest first, without those that are
    written while it is read.

    Raises HistoryUnusable, NoHistoryYet.
    """
    with _in_words(path), closing(_opened(path, os.O_RDONLY)) as ring:
        yield from ring.records()


def why_unusable(path: str) -> str:
    """Why the file at the path is not a usable history, as a sentence; empty if it is, if there is
    no file yet, or without a path."""
    try:
        with _in_words(path):
            if path:
                _opened(path, os.O_RDONLY).close()
    except NoHistoryYet:
        pass
    except HistoryUnusable as error:
        return str(error)
    return ""


class HistoryStore:
    """The history file, for writing; opened or created with the first record. One thread at a time.

    `note`: why the file is not as configured although records are written, as a
    sentence; otherwise empty.
    """

    def __init__(self, path: str, size_bytes: int):
        self._path = path
        self._size_bytes = size_bytes // BLOCK_BYTES * BLOCK_BYTES
        self._ring: Ring | None = None
        self.note = ""

    def open(self) -> None:
        """Opens or creates the file. Raises HistoryUnusable."""
        with _in_words(self._path):
            self._ring = self._ring or self._opened_or_made()

    def append(self, record: bytes) -> None:
        """Writes a record, which is on the disk after `sync`.

        Raises HistoryUnusable; ValueError if it is too large.
        """
        with _in_words(self._path):
            ring = self._locked()
            try:
                ring.write(record)
            finally:
                fcntl.flock(ring.descriptor, fcntl.LOCK_UN)

    def sync(self) -> None:
        """Waits until what was written is on the disk. Raises HistoryUnusable."""
        with _in_words(self._path):
            if self._ring is not None:
                os.fdatasync(self._ring.descriptor)

    def close(self) -> None:
        if self._ring is not None:
            self._ring.close()
            self._ring = None

    def _locked(self) -> Ring:
        for _ in range(TRIES):
            ring = self._ring = self._ring or self._opened_or_made()
            if _lock(self._path, ring.descriptor):
                return ring
            self.close()  # another process has replaced it, or somebody has removed it
        raise HistoryUnusable(f"{self._path} is replaced again and again")

    def _opened_or_made(self) -> Ring:
        """The file at the path. If it is not as configured: a new one with its records, or the old
        one if no new one can be created. Raises OSError, HistoryUnusable."""
        self.note = ""
        try:
            ring = _opened(self._path, os.O_RDWR)
        except NoHistoryYet:
            os.makedirs(os.path.dirname(os.path.abspath(self._path)), 0o700, exist_ok=True)
            return self._made(None)
        with ExitStack() as undone:
            undone.callback(ring.close)
            size_bytes = os.fstat(ring.descriptor).st_size
            ends = [
                os.pread(ring.descriptor, BLOCK_BYTES, max(end, 0))
                for end in (0, size_bytes - BLOCK_BYTES)
            ]
            whole = size_bytes == (ring.slots + 2) * BLOCK_BYTES and ends == [ring.header()] * 2
            if not whole or size_bytes != self._size_bytes:
                self._refuse_unless(_lock(self._path, ring.descriptor))
                try:
                    return self._made(ring)
                except (OSError, HistoryUnusable) as error:
                    why = getattr(error, "strerror", None) or str(error)
                    size = format_bytes(size_bytes)
                    self.note = (
                        f"the history {self._path} stays as it is ({size}): no new one can be made:"
                        f" {why}"
                    )
                    fcntl.flock(ring.descriptor, fcntl.LOCK_UN)
            ring.next = 1 + ring.newest()
            undone.pop_all()
        return ring

    def _made(self, old: Ring | None) -> Ring:
        """A new file at the path, with the records of the old one.

        Raises OSError, HistoryUnusable.
        """
        directory, name = os.path.split(os.path.abspath(self._path))
        temporary = os.path.join(directory, f".{name}.new")
        with ExitStack() as undone:
            descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | _FLAGS, MODE)
            undone.callback(os.close, descriptor)
            # Another process may be creating it too, or may have left it behind when it was killed.
            self._refuse_unless(_lock(temporary, descriptor))
            _refuse_untrusted(temporary, descriptor)
            # it would take up space for nothing
            undone.callback(Path(temporary).unlink, missing_ok=True)
            os.fchmod(descriptor, MODE)
            os.ftruncate(descriptor, 0)
            free_bytes = shutil.disk_usage(descriptor).free
            if free_bytes < SHARE_OF_FREE * self._size_bytes:
                free, size = format_bytes(free_bytes), format_bytes(self._size_bytes)
                raise HistoryUnusable(
                    f"{self._path} of {size} is not created, as it would take more than half of the"
                    f" {free} free"
                )
            os.posix_fallocate(descriptor, 0, self._size_bytes)
            ring = Ring(descriptor, self._size_bytes // BLOCK_BYTES - 2, os.urandom(16))
            for place in (0, self._size_bytes - BLOCK_BYTES):
                os.pwrite(descriptor, ring.header(), place)
            for record in () if old is None else old.records():
                ring.write(record)
            os.fsync(descriptor)
            self._refuse_unless(old is not None or not os.path.lexists(self._path))
            os.rename(temporary, self._path)
            _sync_directory(directory)
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            undone.pop_all()
        return ring

    def _refuse_unless(self, still: bool) -> None:
        if not still:
            raise HistoryUnusable(f"{self._path} was just created by another process")


@contextmanager
def _in_words(path: str) -> Iterator[None]:
    """Turns OSError into HistoryUnusable."""
    try:
        yield
    except OSError as error:
        raise HistoryUnusable(f"{path}: {error.strerror or error}") from None


def _opened(path: str, flags: int) -> Ring:
    """The open file. Opening never blocks, not even on a FIFO.

    Raises HistoryUnusable, NoHistoryYet, OSError.
    """
    try:
        descriptor = os.open(path, flags | _FLAGS)
    except FileNotFoundError:
        raise NoHistoryYet(f"there is no history {path} yet") from None
    except OSError as error:
        what = "it is a symbolic link" if error.errno == errno.ELOOP else error.strerror
        raise HistoryUnusable(f"the history {path} cannot be opened: {what}") from None
    with ExitStack() as undone:
        undone.callback(os.close, descriptor)
        _refuse_untrusted(path, descriptor)
        for place in (0, max(os.fstat(descriptor).st_size - BLOCK_BYTES, 0)):
            if found := read_header(os.pread(descriptor, BLOCK_BYTES, place)):
                undone.pop_all()
                return Ring(descriptor, *found)
    raise HistoryUnusable(
        f"{path} is left alone: it is not a history of this version of reclaimd, or is damaged at"
        " both ends"
    )


def read_header(data: bytes) -> tuple[int, bytes] | None:
    """Slots and id from a header; None if it is missing, damaged, or of another version."""
    end = _HEADER.size
    magic, version, block_bytes, slots, file_id = _HEADER.unpack(data[:end].ljust(end))
    ours = data[end : end + _CHECKSUM_BYTES] == _checksum(data[:end]) and slots > MOST_PARTS
    return (
        (slots, file_id)
        if ours and (magic, version, block_bytes) == (MAGIC, VERSION, BLOCK_BYTES)
        else None
    )


def _checksum(data: bytes, file_id: bytes = b"") -> bytes:
    return crc32(data, crc32(file_id)).to_bytes(_CHECKSUM_BYTES, "little")


def _refuse_untrusted(path: str, descriptor: int) -> None:
    """Raises HistoryUnusable for a file that is not regular, or that others can have
    created or changed; OSError.
    """
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        raise HistoryUnusable(f"{path} is left alone: it is not a regular file")
    if found.st_uid not in (0, os.geteuid()) or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise HistoryUnusable(f"{path} is left alone: others may write it (mode 0600 is ours)")


def _lock(path: str, descriptor: int) -> bool:
    """Locks the file. True if it still is the one at the path. Raises HistoryUnusable, OSError."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.lstat(path), os.fstat(descriptor))
    except BlockingIOError:
        raise HistoryUnusable(f"another process holds the lock of {path}") from None
    except FileNotFoundError:
        return False


def _sync_directory(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
