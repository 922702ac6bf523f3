"""The history file, for writing: made whole at the start, then written in place.

* It is made under another name, allocated to its last byte (posix_fallocate(3)), and renamed when it is whole: at its
  path is never half a file of ours. It takes at most half of what is free. From then on a write needs no space, except
  on a filesystem that copies on write (btrfs, zfs). Mode 0600.
* A file of another size than configured, or of which an end is missing, is replaced by a new one with its records, as
  far as they fit; where that cannot be made, the old one is used on.
* Several processes may write, each a record at a time under a lock of the file (flock(2)), which only those can take
  who may open it. A lock that is held is not waited for.

Covers: one file. Does not cover: what is at its path already (`reading`), who must not wait for it (`writer`).
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from eviction.history_file.blocks import BLOCK_BYTES, Header, blocks_of, header_block, header_for, read_block
from eviction.history_file.reading import (
    FLAGS,
    HistoryUnusable,
    NoHistoryYet,
    header_of,
    newest,
    opened,
    refuse_untrusted,
    whole_records,
)
from signals.quantity import format_bytes

MODE = 0o600
TRIES = 10  # the file may be replaced between opening and locking it
SHARE_OF_FREE = 2  # a new file takes at most one part in so many of what is free


class HistoryStore:
    """The file, for writing; opened or made with the first record. One thread at a time.

    `note`: what is not as configured although records are written, as a sentence; else empty.
    """

    def __init__(self, path: str, size_bytes: int):
        self._path = path
        self._directory, self._name = os.path.split(os.path.abspath(path))
        self._size_bytes = size_bytes // BLOCK_BYTES * BLOCK_BYTES
        self._descriptor = -1
        self._header = Header(0, b"")
        self._next = 0  # the number of the next block
        self.note = ""

    def open(self) -> None:
        """Opens the file, or makes it. Raises HistoryUnusable."""
        with self._words():
            self._open()

    def append(self, record: bytes) -> None:
        """Writes a record; the disk has it after `sync`. Raises HistoryUnusable; ValueError if it is too large."""
        with self._words(), self._locked():
            self._catch_up()
            blocks = blocks_of(record, self._header, self._next)
            first, self._next = self._next, self._next + len(blocks)  # also if it fails: no number is used twice
            until_end = self._header.slots - self._header.slot_of(first)
            _pwrite(self._descriptor, b"".join(blocks[:until_end]), self._header.offset_of(first))
            if len(blocks) > until_end:
                _pwrite(self._descriptor, b"".join(blocks[until_end:]), self._header.offset_of(first + until_end))

    def sync(self) -> None:
        """Waits until the disk has what was written. Raises HistoryUnusable."""
        with self._words():
            if self._descriptor >= 0:
                os.fdatasync(self._descriptor)

    def close(self) -> None:
        """Closes the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    # ---- opening

    @contextmanager
    def _words(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.close()
            raise HistoryUnusable(f"{self._path}: {error.strerror or error}") from None

    @contextmanager
    def _locked(self) -> Iterator[None]:
        for _ in range(TRIES):
            if self._descriptor < 0:
                self._open()
            _lock(self._path, self._descriptor)
            if _is_at(self._path, self._descriptor):
                break
            self.close()  # another process has replaced it, or somebody has removed it
        else:
            raise HistoryUnusable(f"{self._path} is replaced again and again")
        try:
            yield
        finally:
            if self._descriptor >= 0:
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def _open(self) -> None:
        self.close()
        try:
            self._descriptor = opened(self._path, os.O_RDWR)
        except NoHistoryYet:
            os.makedirs(self._directory, 0o700, exist_ok=True)
            self._descriptor, self._header = self._made(None)
            self._next = 0
            return
        try:
            self._header = header_of(self._path, self._descriptor)
            if not self._as_configured():
                self._replace()
        except BaseException:
            self.close()
            raise
        self._next = 1 + newest(self._descriptor, self._header)

    def _as_configured(self) -> bool:
        size_bytes, expected = os.fstat(self._descriptor).st_size, self._header.size_bytes
        ends = (
            os.pread(self._descriptor, BLOCK_BYTES, 0),
            os.pread(self._descriptor, BLOCK_BYTES, expected - BLOCK_BYTES),
        )
        return size_bytes == expected == self._size_bytes and all(end == header_block(self._header) for end in ends)

    def _replace(self) -> None:
        """Makes a new file with the records of the old one; where that fails the old one stays in use."""
        self.note = ""
        _lock(self._path, self._descriptor)
        self._refuse_unless(_is_at(self._path, self._descriptor))
        try:
            made = self._made(self._descriptor)
        except (OSError, HistoryUnusable) as error:
            why = getattr(error, "strerror", None) or str(error)
            size = format_bytes(os.fstat(self._descriptor).st_size)
            self.note = f"the history {self._path} stays as it is ({size}): no new one can be made: {why}"
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            return
        self.close()
        self._descriptor, self._header = made

    def _made(self, old: int | None) -> tuple[int, Header]:
        """A new file at the path, with the records of the old one. Raises OSError, HistoryUnusable."""
        temporary = os.path.join(self._directory, f".{self._name}.new")
        descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | FLAGS, MODE)
        try:
            _lock(temporary, descriptor)  # another process makes it too; one that was killed left it behind
            self._refuse_unless(_is_at(temporary, descriptor))
            refuse_untrusted(temporary, descriptor)
            try:
                header = self._filled(descriptor, old)
                self._refuse_unless(old is not None or not os.path.lexists(self._path))
                os.rename(temporary, self._path)
            except BaseException:
                os.unlink(temporary)  # it would take its space for nothing
                raise
            _sync_directory(self._directory)
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor, header

    def _refuse_unless(self, still: bool) -> None:
        if not still:
            raise HistoryUnusable(f"{self._path} was just made by another process")

    def _filled(self, descriptor: int, old: int | None) -> Header:
        """Makes a file of what is open. Raises OSError, HistoryUnusable."""
        os.fchmod(descriptor, MODE)
        os.ftruncate(descriptor, 0)
        found = os.fstatvfs(descriptor)
        if found.f_bavail * found.f_frsize < SHARE_OF_FREE * self._size_bytes:
            free, size = format_bytes(found.f_bavail * found.f_frsize), format_bytes(self._size_bytes)
            raise HistoryUnusable(
                f"{self._path} of {size} is not made while it would take more than half of the {free} free"
            )
        os.posix_fallocate(descriptor, 0, self._size_bytes)
        header = header_for(self._size_bytes, os.urandom(16))
        _pwrite(descriptor, header_block(header), 0)
        _pwrite(descriptor, header_block(header), header.size_bytes - BLOCK_BYTES)
        sequence = 0
        for record in () if old is None else whole_records(old, self._header):
            for block in blocks_of(record, header, sequence):
                _pwrite(descriptor, block, header.offset_of(sequence))
                sequence += 1
        os.fsync(descriptor)
        return header

    def _catch_up(self) -> None:
        """Another process may have written since."""
        while True:
            data = os.pread(self._descriptor, BLOCK_BYTES, self._header.offset_of(self._next))
            found = read_block(data, self._header, self._header.slot_of(self._next))
            if found is None or found.sequence < self._next:
                return
            self._next = found.sequence + 1


def _lock(path: str, descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise HistoryUnusable(f"another process holds the lock of {path}") from None


def _pwrite(descriptor: int, data: bytes, offset: int) -> None:
    while data:
        written = os.pwrite(descriptor, data, offset)
        data, offset = data[written:], offset + written


def _sync_directory(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _is_at(path: str, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.lstat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False
