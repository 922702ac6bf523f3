"""The program that fills a filesystem, of an embedded node or of a real one. Standard library only.

    python fill_program.py '{"path": "/var/lib/x", "grows": "bytes", …}'    # an `Order` as JSON

It prints `ready` before it writes and the amount after. It ends when its standard input is closed: by the drill, or by
the kernel when the drill has ended in any way. Unless it `remains`, what was written is freed then; a file without a
name is also freed after kill -9.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import select
import signal
import sys
import time
from contextlib import suppress
from typing import NamedTuple

PREFIX = ".reclaimd-drill-"
BLOCK_BYTES = 1 << 18
STEP_BYTES = 64 << 20  # reserved at a time; between two steps it can be stopped
PAUSE_SECONDS = 0.1
RETRY_SECONDS = 0.002
APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND
FULL = (errno.ENOSPC, errno.EDQUOT)


class Order(NamedTuple):
    """What to write where: `amount` bytes or files (None: without end), at `rate` a second (0: at once; bytes are
    reserved without writing them), to `path`.

    Bytes go to a `file` of that name (`closed`: when it is written; `open`: it is held open; `deleted`: it is held open
    and has had no name since it was made), or `unnamed` in that directory. Files of `file_bytes` each go to a new
    directory of that name, or with a known prefix in it (`unnamed`), which is locked while the program lives, so that a
    later drill can find and remove them (`leftovers`).

    Writing ends when the amount is written, when only `reserve` bytes or inodes are left, or on SIGTERM. On a full disk
    it is repeated, or ends if it was to last `until_full`.
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
    """Fills bytes: one file. If the filesystem has no O_TMPFILE, an unnamed one has a name for a moment."""

    def __init__(self, order: Order):
        self.descriptor = _unnamed(order.path) if order.file == "unnamed" else os.open(order.path, APPEND, 0o600)
        if order.file == "deleted":
            os.unlink(order.path)
        self._path = order.path if order.file in ("closed", "open") else None
        self._block = os.urandom(BLOCK_BYTES) if order.rate else b""
        self._written = 0

    def remaining(self) -> int:
        """Bytes available."""
        found = os.fstatvfs(self.descriptor)
        return found.f_bavail * found.f_frsize

    def grow(self, most: int) -> int:
        """Takes up to `most` bytes more. Returns how many."""
        if self._block:
            size = os.write(self.descriptor, self._block[:most])
        else:
            size = min(most, STEP_BYTES)
            os.posix_fallocate(self.descriptor, self._written, size)
        self._written += size
        return size

    def free(self) -> None:
        """Removes the name; the rest ends with this process."""
        if self._path is not None:
            os.unlink(self._path)


def _unnamed(directory: str) -> int:
    try:
        return os.open(directory, os.O_TMPFILE | os.O_WRONLY, 0o600)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL):
            raise
    path = os.path.join(directory, f"{PREFIX}{os.getpid()}")
    descriptor = os.open(path, APPEND | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    os.unlink(path)
    return descriptor


class Files:
    """Fills inodes: a locked directory of many files."""

    def __init__(self, order: Order):
        unnamed = os.path.join(order.path, f"{PREFIX}{os.getpid()}-{os.urandom(4).hex()}")
        self._path = unnamed if order.file == "unnamed" else order.path
        os.mkdir(self._path, 0o700)
        self.descriptor = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        fcntl.flock(self.descriptor, fcntl.LOCK_EX)
        self._content = os.urandom(order.file_bytes)
        self._count = 0

    def remaining(self) -> int:
        """Inodes free."""
        return os.fstatvfs(self.descriptor).f_ffree

    def grow(self, _: int) -> int:
        """Makes one file."""
        descriptor = os.open(f"f{self._count}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=self.descriptor)
        self._count += 1
        with open(descriptor, "wb", buffering=0) as file:
            file.write(self._content)
        return 1

    def free(self) -> None:
        """Removes the files and the directory. A file that is missing already is no error."""
        for number in range(self._count):
            with suppress(FileNotFoundError):
                os.unlink(f"f{number}", dir_fd=self.descriptor)
        os.rmdir(self._path)


def stdin_closed(seconds: float) -> bool:
    """Waits up to `seconds`. True if standard input was closed."""
    readable, _, _ = select.select([0], [], [], seconds)
    return bool(readable) and not os.read(0, 1024)


def grow(what: Bytes | Files, order: Order, stopped: list[int]) -> int:
    """Writes until the end. Returns how much was written. Raises EOFError if standard input is closed."""
    written, began = 0, time.monotonic()
    while not stopped:
        most = sys.maxsize if order.amount is None else order.amount - written
        if order.reserve:
            most = min(most, what.remaining() - order.reserve)
        if most <= 0:
            break
        pause = 0.0
        try:
            written += what.grow(most)
        except OSError as error:
            if error.errno not in FULL:
                raise
            if order.until_full:
                break
            pause = RETRY_SECONDS
        if order.rate:
            pause = max(pause, min(written / order.rate - (time.monotonic() - began), PAUSE_SECONDS))
        if stdin_closed(pause):
            raise EOFError
    return written


def fill(order: Order) -> None:
    """Fills, prints the amount, waits for the end of standard input, frees."""
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    # A drill blocks it in all its threads, and a child inherits that.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    if order.file != "unnamed":
        os.makedirs(os.path.dirname(order.path), exist_ok=True)
    what = Files(order) if order.grows == "inodes" else Bytes(order)
    print("ready", flush=True)  # noqa: T201 # the drill's clock starts now
    try:
        written = grow(what, order, stopped)
        if isinstance(what, Bytes) and order.file == "closed":
            os.close(what.descriptor)
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
