"""Standard error of the daemon: closed, on a full disk, for reading only, a pipe that
is not read or read slowly.
"""

from __future__ import annotations

import os
import select
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from eviction.drill.runtime.private_mounts import unmount
from tests.faults.matrix.injectors.injector import Injector
from tests.faults.matrix.rows import Fault
from tests.sockets.mounts import mounted_tmpfs

if TYPE_CHECKING:
    from tests.faults.matrix.bench import Bench
    from tests.faults.matrix.program import Program

SMALL_BYTES = 256 << 10
SLOW_BYTES = 64
SLOW_SECONDS = 0.1


class _Reader:
    """Reads a pipe into a file, on a thread; as fast as it comes, slowly, or not at all."""

    def __init__(self, descriptor: int, copy: Path) -> None:
        self._descriptor = descriptor
        self._copy = copy
        self._bytes, self._pause = 65536, 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="log reader", daemon=True)
        self._thread.start()

    def pause(self, *, slow: bool) -> None:
        """Nothing is read any more; `slow`: 64 bytes each 0.1 s."""
        self._bytes, self._pause = SLOW_BYTES if slow else 0, SLOW_SECONDS

    def go_on(self) -> None:
        """Everything is read again."""
        self._bytes, self._pause = 65536, 0.0

    def stop(self) -> None:
        """Ends the thread."""
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        with self._copy.open("ab", buffering=0) as copy:
            while not self._over.is_set():
                if self._pause:
                    self._over.wait(self._pause)
                if not self._bytes:
                    continue
                ready, _, _ = select.select([self._descriptor], [], [], SLOW_SECONDS)
                if not ready:
                    continue
                with suppress(BlockingIOError):
                    data = os.read(self._descriptor, self._bytes)
                    copy.write(data)
                    if not data:  # no writer yet, or no more
                        self._over.wait(SLOW_SECONDS)


class LogFile(Injector):
    """Standard error: closed, on a full disk, a pipe that nobody reads, one that is
    read slowly, one for reading.
    """

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        self._small = bench.directory / "small"
        self._mounted = False
        self._descriptors: list[int] = []
        self._reader: _Reader | None = None

    def prepare(self, program: Program) -> None:
        """The daemon gets the standard error that can fail."""
        match self.fault:
            case Fault.ABSENT_AT_START:
                program.before = ("sh", "-c", 'exec "$0" "$@" 2>&-')
            case Fault.ABSENT:
                mounted_tmpfs(str(self._small), SMALL_BYTES, 100)
                self._mounted = True
                program.stderr = self._opened(
                    self._small / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND
                )
            case Fault.WRONG:
                program.stderr = self._opened(Path("/dev/null"), os.O_RDONLY)
            case Fault.HANGS | Fault.SLOW | Fault.COMES_BACK:
                pipe = self.bench.directory / "log-pipe"
                os.mkfifo(pipe)
                self._reader = _Reader(
                    self._opened(pipe, os.O_RDONLY | os.O_NONBLOCK), self.bench.program.log
                )
                program.stderr = self._opened(pipe, os.O_WRONLY)

    def _opened(self, path: Path, flags: int) -> int:
        descriptor = os.open(path, flags | os.O_CLOEXEC, 0o600)
        self._descriptors.append(descriptor)
        return descriptor

    def begin(self) -> None:
        """It takes no line more, or hardly any."""
        if self.fault is Fault.ABSENT:
            with suppress(OSError), (self._small / "rest").open("wb", buffering=0) as rest:
                while rest.write(bytes(4096)) == 4096:
                    pass
        elif self._reader is not None:
            self._reader.pause(slow=self.fault is Fault.SLOW)
            filler = self._opened(self.bench.directory / "log-pipe", os.O_WRONLY | os.O_NONBLOCK)
            for size in (4096, 1):  # full to the last byte, so that the next line already waits
                with suppress(BlockingIOError):
                    while True:
                        os.write(filler, b"\n" * size)

    def end(self) -> None:
        """Lines are taken again."""
        if self.fault is Fault.ABSENT:
            (self._small / "rest").unlink()
        elif self._reader is not None:
            self._reader.go_on()

    def release(self) -> None:
        """Closed and unmounted."""
        if self._reader is not None:
            self._reader.stop()
            self._reader = None
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors = []
        if self._mounted:
            unmount(str(self._small))
            self._mounted = False
