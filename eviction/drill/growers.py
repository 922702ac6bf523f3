"""What fills the disk of an embedded or a real node: one file, or many.

Each is asked every few milliseconds, and writes what is due by now. What has no name is freed when
this process ends, however that happens: one file by the kernel, many by a process that waits for
the end of its standard input.
"""

from __future__ import annotations

import errno
import math
import os
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from tempfile import TemporaryFile
from typing import IO

PREFIX = ".reclaimd-drill-"
BLOCK = os.urandom(1 << 21)
STEP_BYTES = 64 << 20  # reserved at a time: it can be stopped between two steps
LONGEST_SECONDS = 0.05  # of one turn
FULL = (errno.ENOSPC, errno.EDQUOT)
REMOVES = "import shutil, sys; sys.stdin.read(); shutil.rmtree(sys.argv[1], ignore_errors=True)"


@dataclass(kw_only=True, eq=False)
class Grower:
    """Something that grows by `amount` bytes or files (None: no limit), at `rate` per second (0: at
    once, with bytes reserved and not written).

    It ends when the amount is written, or when only `reserve` bytes or inodes are left. On a full
    disk it ends if it lasts `until_full`, and is tried again otherwise. It is at `path`, or in that
    directory if the `file` is unnamed. Raises OSError, when it is made and when it grows.
    """

    path: str
    file: str
    rate: int
    amount: int | None
    file_bytes: int = 0
    reserve: int = 0
    until_full: bool = False
    remains: bool = False
    retry_seconds: float = 0.0
    """Between two attempts on a full disk."""

    def __post_init__(self) -> None:
        self.written = 0
        self._began = self._next = time.monotonic()
        self._held = ExitStack()
        self._open()

    def goes_on(self) -> bool:
        """Writes what is due by now, or some of that. False once it has ended."""
        now = time.monotonic()
        whole = math.inf if self.amount is None else self.amount
        until = min((now - self._began) * self.rate if self.rate else sys.maxsize, whole)
        while self._next <= time.monotonic() < now + LONGEST_SECONDS and self.written + 1 <= until:
            limit = int(until) - self.written
            if self.reserve:
                limit = min(limit, self._left() - self.reserve)
            if limit <= 0:
                return False
            try:
                self.written += self._grow(limit)
            except OSError as error:
                if error.errno not in FULL:
                    raise
                self._next = time.monotonic() + self.retry_seconds
                return not self.until_full
        return self.written < whole

    def stop(self) -> int:
        """Keeps what was written. Returns how many bytes or files."""
        return self.written

    def free(self) -> None:
        """Lets go of what was written, and removes what does not remain.

        May be called more than once.
        """
        self._held.close()

    def _open(self) -> None:
        """Begins with nothing."""

    def _grow(self, limit: int) -> int:
        """Takes up to `limit` more. Returns how much."""
        raise NotImplementedError

    def _left(self) -> int:
        """What is left on the disk."""
        raise NotImplementedError


class Bytes(Grower):
    """One file, which is `closed` once it has grown, kept `open`, or kept open but `deleted` as
    soon as it is made."""

    def _open(self) -> None:
        self._opened = self._held.enter_context(_opened(self.path, self.file))
        if self.file == "deleted":
            os.unlink(self.path)
        elif self.file != "unnamed" and not self.remains:
            self._held.callback(os.unlink, self.path)

    def stop(self) -> int:
        if self.file == "closed":
            self._opened.close()
        return self.written

    def _grow(self, limit: int) -> int:
        if self.rate:
            return self._opened.write(BLOCK[:limit])
        size = min(limit, STEP_BYTES)
        os.posix_fallocate(self._opened.fileno(), self.written, size)
        return size

    def _left(self) -> int:
        found = os.fstatvfs(self._opened.fileno())
        return found.f_bavail * found.f_frsize


def _opened(path: str, file: str) -> IO[bytes]:
    if file == "unnamed":
        return TemporaryFile(prefix=PREFIX, dir=path, buffering=0)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    return open(path, "ab", buffering=0)


class Files(Grower):
    """Files of `file_bytes` each in a new directory. That of unnamed ones has a known prefix, by
    which a later drill finds it."""

    def _open(self) -> None:
        path = self.path
        if self.file == "unnamed":
            path = os.path.join(path, f"{PREFIX}{os.getpid()}-{os.urandom(4).hex()}")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.mkdir(path, 0o700)
        if not self.remains:
            # a process group of its own, so that Ctrl-C on the terminal reaches only the drill
            command = [sys.executable, "-I", "-S", "-c", REMOVES, path]
            remover = subprocess.Popen(command, stdin=subprocess.PIPE, process_group=0)
            self._held.callback(remover.communicate)
        self._directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        self._held.callback(os.close, self._directory)
        self._content = os.urandom(self.file_bytes)

    def _grow(self, _: int) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        made = os.open(f"f{self.written}", flags, 0o600, dir_fd=self._directory)
        with open(made, "wb", buffering=0) as file:
            file.write(self._content)
        return 1

    def _left(self) -> int:
        return os.fstatvfs(self._directory).f_ffree
