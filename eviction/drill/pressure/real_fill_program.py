"""The process that fills a filesystem of a real node and gives everything back: a program, standard library only.

    python real_fill_program.py DIRECTORY bytes RATE AMOUNT LEAVE
    python real_fill_program.py DIRECTORY inodes RATE AMOUNT LEAVE FILE_BYTES

Writes at RATE a second (0: at once, bytes without writing them) until AMOUNT is there, or LEAVE bytes or inodes are
all that is left, or it is told to stop (SIGTERM). It prints `ready` before the first and how much it was after the
last, holds it, and gives it back when its standard input ends: when it is told to, or when the drill that started it is
gone, in whatever way.

Bytes are in a file without a name, which the kernel takes away with the process, also after kill -9. Files are in a
directory of one name (`leftovers`), locked while this process lives, so that a later drill finds and removes them.
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
STEP_BYTES = 64 << 20  # reserved at a time: between two steps it can be told to stop
PAUSE_SECONDS = 0.1
AGAIN_SECONDS = 0.002


def unnamed_file(directory: str) -> int:
    """A file that is in no directory. Where the filesystem has none such it has a name for a moment."""
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
    """One file without a name."""

    def __init__(self, directory: str, *, at_once: bool):
        self._descriptor = unnamed_file(directory)
        self._at_once = at_once
        self._block = b"" if at_once else os.urandom(BLOCK_BYTES)
        self._written = 0

    def left(self) -> int:
        """Bytes available."""
        found = os.fstatvfs(self._descriptor)
        return found.f_bavail * found.f_frsize

    def grow(self, most: int) -> int:
        """Takes up to `most` more; how much."""
        if self._at_once:
            size = min(most, STEP_BYTES)
            os.posix_fallocate(self._descriptor, self._written, size)
        else:
            size = os.write(self._descriptor, self._block[:most])
        self._written += size
        return size

    def give_back(self) -> None:
        """The file is gone with its last descriptor."""
        os.close(self._descriptor)


class Files:
    """A locked directory of many files."""

    def __init__(self, directory: str, file_bytes: int):
        self._path = os.path.join(directory, f"{PREFIX}{os.getpid()}-{os.urandom(4).hex()}")
        os.mkdir(self._path, 0o700)
        self._descriptor = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        self._content = os.urandom(file_bytes)
        self._count = 0

    def left(self) -> int:
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

    def give_back(self) -> None:
        """Removes the files and the directory; what somebody has taken away already is gone."""
        for number in range(self._count):
            try:
                os.unlink(f"f{number}", dir_fd=self._descriptor)
            except FileNotFoundError:
                pass
        os.rmdir(self._path)
        os.close(self._descriptor)


def over(seconds: float) -> bool:
    """Whether standard input has ended, waited for so long."""
    readable, _, _ = select.select([0], [], [], seconds)
    return bool(readable) and not os.read(0, 1024)


def grow(what: Bytes | Files, rate: int, amount: int, leave: int, stopped: Callable[[], bool]) -> int:
    """Grows as asked for; how much. A full disk is tried again, as a writer that retries would."""
    written, began = 0, time.monotonic()
    while written < amount and not stopped():
        most = min(amount - written, max(what.left() - leave, 0))
        if most <= 0:
            break
        pause = 0.0
        try:
            written += what.grow(most)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            pause = AGAIN_SECONDS
        if rate:
            pause = max(pause, min(written / rate - (time.monotonic() - began), PAUSE_SECONDS))
        if over(max(pause, 0.0)):
            raise EOFError
    return written


def main() -> None:
    """Fills, says how much, holds, gives back."""
    directory, grows, rate, amount, leave = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6])
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})  # a drill waits for it on a thread, blocked everywhere
    what = Bytes(directory, at_once=rate == 0) if grows == "bytes" else Files(directory, int(sys.argv[6]))
    print("ready", flush=True)  # noqa: T201 # from now on the time counts
    try:
        written = grow(what, rate, amount, leave, lambda: bool(stopped))
        print(written, flush=True)  # noqa: T201 # the answer of this program
        while not over(60.0):
            pass
    except (EOFError, BrokenPipeError):
        pass
    finally:
        what.give_back()


if __name__ == "__main__":
    main()
