"""The program that fills a filesystem of an embedded or a real node. Standard library only.

    python fill_program.py '{"path": "/var/lib/x", "grows": "bytes", …}'    # an `Order` as JSON

It prints `ready` before it writes, and the amount afterwards. It ends when its standard input is
closed: by the drill, or by the kernel once the drill has ended, however that happened. It then
frees what it wrote, unless that `remains`. A file without a name is freed even after kill -9.
"""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import sys
import time
from contextlib import suppress
from tempfile import TemporaryFile
from typing import IO, NamedTuple

PREFIX = ".reclaimd-drill-"
BLOCK_BYTES = 1 << 18
STEP_BYTES = 64 << 20  # reserved at a time: it can be stopped between two steps
PAUSE_SECONDS = 0.1
RETRY_SECONDS = 0.002
FULL = (errno.ENOSPC, errno.EDQUOT)


class Order(NamedTuple):
    """What to write to `path`: `amount` bytes or files (None: no limit), at `rate` per second (0:
    at once, with bytes reserved and not written).

    Bytes go to one file at `path`. `file` says what becomes of it: `closed` once written, kept
    `open`, or kept open but `deleted` as soon as it is made; if `unnamed`, `path` is a directory,
    and the file in it never has a name. Files of `file_bytes` each go to a new directory at `path`;
    if `unnamed`, to one in `path` with a known prefix, by which a later drill finds it.

    Writing ends when the amount is written, when only `reserve` bytes or inodes are left, or on
    SIGTERM. On a full disk it ends if it lasts `until_full`, and is tried again otherwise.
    """

    path: str
    grows: str
    rate: int
    amount: int | None
    reserve: int = 0
    file_bytes: int = 0
    file: str = "unnamed"
    until_full: bool = False
    remains: bool = False


class Bytes:
    """Fills bytes, with one file."""

    def __init__(self, order: Order):
        self.file = _opened(order)
        if order.file == "deleted":
            os.unlink(order.path)
        self._path = order.path if order.file in ("closed", "open") else None
        self._block = os.urandom(BLOCK_BYTES) if order.rate else b""
        self._written = 0

    def remaining(self) -> int:
        """Bytes available."""
        found = os.fstatvfs(self.file.fileno())
        return found.f_bavail * found.f_frsize

    def grow(self, limit: int) -> int:
        """Takes up to `limit` more bytes. Returns how many."""
        if self._block:
            size = self.file.write(self._block[:limit])
        else:
            size = min(limit, STEP_BYTES)
            os.posix_fallocate(self.file.fileno(), self._written, size)
        self._written += size
        return size

    def free(self) -> None:
        """Removes the name; the space is freed when this process ends."""
        if self._path is not None:
            os.unlink(self._path)


def _opened(order: Order) -> IO[bytes]:
    if order.file == "unnamed":
        return TemporaryFile(prefix=PREFIX, dir=order.path, buffering=0)
    return open(order.path, "ab", buffering=0)


class Files:
    """Fills inodes, with many files in a directory."""

    def __init__(self, order: Order):
        unnamed = os.path.join(order.path, f"{PREFIX}{os.getpid()}-{os.urandom(4).hex()}")
        self._path = unnamed if order.file == "unnamed" else order.path
        os.mkdir(self._path, 0o700)
        self.descriptor = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        self._content = os.urandom(order.file_bytes)
        self._count = 0

    def remaining(self) -> int:
        """Inodes free."""
        return os.fstatvfs(self.descriptor).f_ffree

    def grow(self, _: int) -> int:
        """Makes one file."""
        descriptor = os.open(
            f"f{self._count}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=self.descriptor
        )
        self._count += 1
        with open(descriptor, "wb", buffering=0) as file:
            file.write(self._content)
        return 1

    def free(self) -> None:
        """Removes the files and the directory. A missing file is no error."""
        for number in range(self._count):
            with suppress(FileNotFoundError):
                os.unlink(f"f{number}", dir_fd=self.descriptor)
        os.rmdir(self._path)


def stdin_closed(seconds: float) -> bool:
    """Waits up to `seconds` for the end of standard input."""
    readable, _, _ = select.select([0], [], [], seconds)
    return bool(readable) and not os.read(0, 1024)


def grow(what: Bytes | Files, order: Order, stopped: list[int]) -> int:
    """Carries out the order. Returns the amount written.

    Raises EOFError if standard input is closed.
    """
    written = 0
    began = time.monotonic()
    while not stopped:
        limit = sys.maxsize if order.amount is None else order.amount - written
        if order.reserve:
            limit = min(limit, what.remaining() - order.reserve)
        if limit <= 0:
            break
        pause = 0.0
        try:
            written += what.grow(limit)
        except OSError as error:
            if error.errno not in FULL:
                raise
            if order.until_full:
                break
            pause = RETRY_SECONDS
        if order.rate:
            early = written / order.rate - (time.monotonic() - began)
            pause = max(pause, min(early, PAUSE_SECONDS))
        if stdin_closed(pause):
            raise EOFError
    return written


def fill(order: Order) -> None:
    """Fills, prints the amount, waits for the end of standard input, frees."""
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    # A drill blocks SIGTERM in all its threads, and a child inherits that.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    if order.file != "unnamed":
        os.makedirs(os.path.dirname(order.path), exist_ok=True)
    what = Files(order) if order.grows == "inodes" else Bytes(order)
    print("ready", flush=True)  # noqa: T201 # the drill's clock starts now
    try:
        written = grow(what, order, stopped)
        if isinstance(what, Bytes) and order.file == "closed":
            what.file.close()
        print(written, flush=True)  # noqa: T201 # the output of this program
        while not stdin_closed(60.0):
            pass
    except (EOFError, BrokenPipeError):
        pass
    finally:
        if not order.remains:
            what.free()


if __name__ == "__main__":
    fill(Order(**json.loads(sys.argv[1])))
