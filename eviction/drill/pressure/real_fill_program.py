"""The program that fills a filesystem of a real node and always frees it again. Standard library only.

    python real_fill_program.py DIRECTORY bytes RATE AMOUNT RESERVE
    python real_fill_program.py DIRECTORY inodes RATE AMOUNT RESERVE FILE_BYTES

Writes at RATE a second (0: at once, bytes are reserved without writing them). Ends writing when AMOUNT is written, when
only RESERVE bytes or inodes are left, or on SIGTERM. It prints `ready` before it writes and the amount after, keeps
what it wrote, and frees it when its standard input is closed: by the drill, or by the kernel when the drill has ended
in any way.

Bytes are in a file without a name, which the kernel removes with the process, also after kill -9. Files are in a
directory with a known prefix, locked while this process lives, so that a later drill can find and remove them
(`leftovers`).
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import signal
import sys
import time
from collections.abc import Callable

PREFIX = ".reclaimd-drill-"
BLOCK_BYTES = 1 << 18
STEP_BYTES = 64 << 20  # reserved at a time; between two steps it can be stopped
PAUSE_SECONDS = 0.1
RETRY_SECONDS = 0.002


def unnamed_file(directory: str) -> int:
    """A file without a directory entry. If the filesystem has no O_TMPFILE, the file has a name for a moment."""
    try:
        return os.open(directory, os.O_TMPFILE | os.O_WRONLY, 0o600)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL):
            raise
    path = os.path.join(directory, f"{PREFIX}{os.getpid()}")
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    os.unlink(path)
    return descriptor


class Bytes:
    """Fills bytes: one file without a name."""

    def __init__(self, directory: str, *, at_once: bool):
        self._descriptor = unnamed_file(directory)
        self._at_once = at_once
        self._block = b"" if at_once else os.urandom(BLOCK_BYTES)
        self._written = 0

    def remaining(self) -> int:
        """Bytes available."""
        found = os.fstatvfs(self._descriptor)
        return found.f_bavail * found.f_frsize

    def grow(self, most: int) -> int:
        """Takes up to `most` bytes more. Returns how many."""
        if self._at_once:
            size = min(most, STEP_BYTES)
            os.posix_fallocate(self._descriptor, self._written, size)
        else:
            size = os.write(self._descriptor, self._block[:most])
        self._written += size
        return size

    def free(self) -> None:
        """Closes the descriptor, which removes the file."""
        os.close(self._descriptor)


class Files:
    """Fills inodes: a locked directory of many files."""

    def __init__(self, directory: str, file_bytes: int):
        self._path = os.path.join(directory, f"{PREFIX}{os.getpid()}-{os.urandom(4).hex()}")
        os.mkdir(self._path, 0o700)
        self._descriptor = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        self._content = os.urandom(file_bytes)
        self._count = 0

    def remaining(self) -> int:
        """Inodes free."""
        return os.fstatvfs(self._descriptor).f_ffree

    def grow(self, _: int) -> int:
        """Makes one file."""
        descriptor = os.open(f"f{self._count}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=self._descriptor)
        self._count += 1
        try:
            os.write(descriptor, self._content)
        finally:
            os.close(descriptor)
        return 1

    def free(self) -> None:
        """Removes the files and the directory. A file that is missing already is no error."""
        for number in range(self._count):
            try:
                os.unlink(f"f{number}", dir_fd=self._descriptor)
            except FileNotFoundError:
                pass
        os.rmdir(self._path)
        os.close(self._descriptor)


def stdin_closed(seconds: float) -> bool:
    """Waits up to `seconds`. True if standard input was closed."""
    readable, _, _ = select.select([0], [], [], seconds)
    return bool(readable) and not os.read(0, 1024)


def grow(what: Bytes | Files, rate: int, amount: int, reserve: int, stopped: Callable[[], bool]) -> int:
    """Writes at the rate until the amount. Returns how much was written. Retries on a full disk."""
    written, began = 0, time.monotonic()
    while written < amount and not stopped():
        most = min(amount - written, max(what.remaining() - reserve, 0))
        if most <= 0:
            break
        pause = 0.0
        try:
            written += what.grow(most)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            pause = RETRY_SECONDS
        if rate:
            pause = max(pause, min(written / rate - (time.monotonic() - began), PAUSE_SECONDS))
        if stdin_closed(max(pause, 0.0)):
            raise EOFError
    return written


def main() -> None:
    """Fills, prints the amount, waits for the end of standard input, frees."""
    directory, grows, rate, amount, reserve = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6])
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    signal.pthread_sigmask(
        signal.SIG_UNBLOCK, {signal.SIGTERM}
    )  # a drill blocks it in all its threads, and a child inherits that
    what = Bytes(directory, at_once=rate == 0) if grows == "bytes" else Files(directory, int(sys.argv[6]))
    print("ready", flush=True)  # noqa: T201 # the drill's clock starts now
    try:
        written = grow(what, rate, amount, reserve, lambda: bool(stopped))
        print(written, flush=True)  # noqa: T201 # the output of this program
        while not stdin_closed(60.0):
            pass
    except (EOFError, BrokenPipeError):
        pass
    finally:
        what.free()


if __name__ == "__main__":
    main()
