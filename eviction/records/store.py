"""The history file: slots of a fixed size, allocated at once, then written in place.

```
header | slot 0 | slot 1 | … | slot N-1
```

* A slot has a whole record: the CRC-32 of what follows, the record's sequence number, its length,
  itself, zeros. Sequence numbers rise by one; number S is in slot S modulo N. So the newest record
  overwrites the oldest, and nothing else in the file is ever written.
* A slot that a crash has torn has a wrong checksum: it is left out and counted.
* The header (magic, version, bytes of a slot) never changes; the size of the file tells N.
* The file is created under another name, allocated to its last byte (posix_fallocate(3)), and
  renamed when it is complete, so there is never half a file at its path. It takes at most half of
  the free space. From then on a write needs no space, except on a copy-on-write filesystem
  (btrfs, zfs). Its mode is 0600.
* A file whose size is not as configured is replaced by a new one with as many of its records as
  fit. If no new one can be created, the old one stays in use.
* Several processes may write, a record at a time, under a lock on the file (flock(2)), which only a
  process that may open it can take. A held lock is not waited for. Readers need none.
"""

import errno
import fcntl
import os
import shutil
import struct
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import NamedTuple
from zlib import crc32

from eviction.records.own_file import FLAGS, OwnFile, refusal
from eviction.types import EvictionError
from signals.quantity import format_bytes, reason_of

# A page, and a sector of most disks, which they write whole or not at all. The record of a pass
# with 32 removals has 12 000 bytes, compressed 3 200, with one removal compressed 600: so nearly
# every pass fits, and four times as many as in slots for what is not compressed.
SLOT_BYTES = 4096
_MAGIC = b"reclaimd history"
HEADER = struct.pack("<16sHI", _MAGIC, 2, SLOT_BYTES).ljust(SLOT_BYTES, b"\0")
_EARLIER = struct.pack("<16sH", _MAGIC, 1)

_CHECKSUM_BYTES = 4
_HEAD = struct.Struct("<QH")  # after the checksum: sequence number, bytes of the record
LARGEST_RECORD_BYTES = SLOT_BYTES - _CHECKSUM_BYTES - _HEAD.size

SHARE_OF_FREE = 2  # a new file takes at most the free space divided by this


class HistoryUnusable(EvictionError):
    """The history file cannot be used. The message is one sentence."""


class NoHistoryYet(HistoryUnusable):
    """There is no history file yet."""


class Slot(NamedTuple):
    """A slot that was written."""

    sequence: int
    record: bytes


TORN = Slot(-1, b"")


class Contents(NamedTuple):
    """What a history file has: its records, the oldest first, and how many slots are torn."""

    records: list[bytes]
    torn: int


class Ring:
    """The slots of an open file. `next`: the sequence number of the next record. `earlier`: an
    earlier version has written it, so it has no slots."""

    def __init__(self, descriptor: int, *, earlier: bool = False):
        self.descriptor = descriptor
        self.earlier = earlier
        self.size_bytes = os.fstat(descriptor).st_size
        self.count = self.size_bytes // SLOT_BYTES - 1
        self.next = 0

    def close(self) -> None:
        os.close(self.descriptor)

    def contents(self) -> Contents:
        slots = sorted(self.slots())
        torn = slots.count(TORN)
        return Contents([slot.record for slot in slots[torn:]], torn)

    def slots(self) -> Iterator[Slot]:
        """Those that were ever written, in any order."""
        return filter(None, map(self.slot, range(self.count)))

    def slot(self, sequence: int) -> Slot | None:
        """The slot of this sequence number; None if it was never written."""
        data = os.pread(self.descriptor, SLOT_BYTES, self._place(sequence))
        if not data.strip(b"\0"):
            return None
        rest = data[_CHECKSUM_BYTES:]
        if data != _with_checksum(rest):
            return TORN
        number, size = _HEAD.unpack_from(rest)
        return Slot(number, rest[_HEAD.size :][:size])

    def write(self, record: bytes) -> None:
        """Writes a record after those that another process has written since.

        Raises ValueError for a record that is too large, OSError.
        """
        if len(record) > LARGEST_RECORD_BYTES:
            raise ValueError(f"a record of {len(record)} bytes; at most {LARGEST_RECORD_BYTES} fit")
        while (slot := self.slot(self.next)) is not None and slot.sequence >= self.next:
            self.next = slot.sequence + 1
        place = self._place(self.next)
        rest = _HEAD.pack(self.next, len(record)) + record
        data = _with_checksum(rest.ljust(SLOT_BYTES - _CHECKSUM_BYTES, b"\0"))
        self.next += 1
        if os.pwrite(self.descriptor, data, place) != SLOT_BYTES:
            raise OSError("only a part of the record was written")

    def _place(self, sequence: int) -> int:
        return (1 + sequence % self.count) * SLOT_BYTES


def contents_of(path: str) -> Contents:
    """The records of the file, without those that are written while it is read.

    Raises HistoryUnusable, NoHistoryYet.
    """
    with _in_words(path), closing(_opened(path, os.O_RDONLY)) as ring:
        return ring.contents()


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

    `note`: what is not as configured although records are written, or that a file of an earlier
    version is kept aside, as a sentence; otherwise empty.
    """

    def __init__(self, path: str, size_bytes: int):
        self._path = path
        self._size_bytes = size_bytes // SLOT_BYTES * SLOT_BYTES
        self._ring: Ring | None = None
        self.note = ""

    def open(self) -> Ring:
        """Opens or creates the file. Raises HistoryUnusable."""
        with _in_words(self._path):
            self._ring = self._ring or self._opened_or_made()
            return self._ring

    def append(self, record: bytes) -> None:
        """Writes a record, which is on the disk when this returns.

        Raises HistoryUnusable; ValueError if it is too large.
        """
        with _in_words(self._path):
            ring = self.open()
            try:
                _lock(self._path, ring.descriptor)
                ring.write(record)
                fcntl.flock(ring.descriptor, fcntl.LOCK_UN)
                os.fdatasync(ring.descriptor)
            except Exception:
                self.close()  # which unlocks it; another process may have replaced the file
                raise

    def close(self) -> None:
        if self._ring is not None:
            self._ring.close()
            self._ring = None

    def _opened_or_made(self) -> Ring:
        """The file at the path; in place of one that is not as configured, or of an earlier
        version, a new one. If none can be made, the one that is not as configured stays in use.

        Raises OSError, HistoryUnusable.
        """
        self.note = ""
        try:
            with closing(_opened(self._path, os.O_RDWR)) as old:
                if old.earlier or old.size_bytes != self._size_bytes:
                    self._replace(old)
        except NoHistoryYet:
            self._make(None)
        ring = _opened(self._path, os.O_RDWR)
        ring.next = 1 + max((slot.sequence for slot in ring.slots()), default=-1)
        return ring

    def _replace(self, old: Ring) -> None:
        _lock(self._path, old.descriptor)
        try:
            self._make(old)
        except (OSError, HistoryUnusable) as error:
            note = (
                f"the history {self._path} stays as it is ({format_bytes(old.size_bytes)}): no new"
                f" one can be made: {reason_of(error)}"
            )
            if old.earlier:
                raise HistoryUnusable(note) from None
            self.note = note

    def _make(self, old: Ring | None) -> None:
        """Makes a file with the records of the old one; one of an earlier version is kept aside.

        Raises OSError, HistoryUnusable.
        """
        path = self._path
        aside = f"{path}.old"
        if old is not None and old.earlier and os.path.lexists(aside):
            raise HistoryUnusable(f"{aside}, where the old one would be kept, is there already")
        directory, name = os.path.split(path)
        with OwnFile(os.path.join(os.path.realpath(directory), name)).replaced() as descriptor:
            free_bytes = shutil.disk_usage(descriptor).free
            if free_bytes < SHARE_OF_FREE * self._size_bytes:
                free = format_bytes(free_bytes)
                size = format_bytes(self._size_bytes)
                raise HistoryUnusable(
                    f"{path} of {size} is not created, as it would take more than half of the"
                    f" {free} free"
                )
            os.posix_fallocate(descriptor, 0, self._size_bytes)
            os.pwrite(descriptor, HEADER, 0)
            if old is None:
                if os.path.lexists(path):
                    raise _replaced(path)
            elif not old.earlier:
                ring = Ring(descriptor)
                for record in old.contents().records:
                    ring.write(record)
            else:
                os.rename(path, aside)
                self.note = (
                    f"{path} is of an earlier version of reclaimd: it is kept as {aside}, and"
                    " a new history begins"
                )


@contextmanager
def _in_words(path: str) -> Iterator[None]:
    """Turns OSError into HistoryUnusable."""
    try:
        yield
    except OSError as error:
        raise HistoryUnusable(f"{path}: {reason_of(error)}") from None


def _opened(path: str, flags: int) -> Ring:
    """The open file; to be written, also one of an earlier version. Opening never blocks, not
    even on a FIFO.

    Raises HistoryUnusable, NoHistoryYet, OSError.
    """
    try:
        descriptor = os.open(path, flags | FLAGS)
    except FileNotFoundError:
        raise NoHistoryYet(f"there is no history {path} yet") from None
    except OSError as error:
        what = "it is a symbolic link" if error.errno == errno.ELOOP else error.strerror
        raise HistoryUnusable(f"the history {path} cannot be opened: {what}") from None
    with ExitStack() as undone:
        undone.callback(os.close, descriptor)
        if why := refusal(descriptor):
            raise HistoryUnusable(f"{path} is left alone: {why}")
        header = os.pread(descriptor, SLOT_BYTES, 0)
        ring = Ring(descriptor, earlier=header.startswith(_EARLIER))
        if ring.earlier and flags == os.O_RDONLY:
            raise HistoryUnusable(
                f"{path} was written by an earlier version of reclaimd, which can read it; where"
                f" the daemon finds such a file, it keeps it as {path}.old and begins a new one"
            )
        if not ring.earlier and (header != HEADER or not ring.count):
            raise HistoryUnusable(
                f"{path} is left alone: it is not a history of this version of reclaimd, or is"
                " damaged at its beginning"
            )
        undone.pop_all()
    return ring


def _with_checksum(data: bytes) -> bytes:
    return crc32(data).to_bytes(_CHECKSUM_BYTES, "little") + data


def _lock(path: str, descriptor: int) -> None:
    """Locks the file, if it still is the one at the path. Raises HistoryUnusable, OSError."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.lstat(path), os.fstat(descriptor)):
            raise _replaced(path)
    except BlockingIOError:
        raise HistoryUnusable(f"another process holds the lock of {path}") from None
    except FileNotFoundError:
        raise _replaced(path) from None


def _replaced(path: str) -> HistoryUnusable:
    return HistoryUnusable(f"another process has just made, moved or removed {path}")
