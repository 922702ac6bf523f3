"""The process itself: how many threads and descriptors it may have, memory for a message, and its
standard error: closed, on a full disk, for reading only, a pipe that is not read or read slowly.
"""

from __future__ import annotations

import os
import resource
import select
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from eviction.drill.private_mounts import unmount
from tests.background import Background
from tests.faults.matrix.injectors.injector import Injector
from tests.faults.matrix.table import Fault
from tests.nodes.distortions import Distort, Distortion
from tests.nodes.small_node import MIB
from tests.sockets.mounts import mounted_tmpfs
from tests.thread_limit import ThreadLimit

if TYPE_CHECKING:
    from tests.faults.matrix.bench import Bench
    from tests.faults.matrix.program import Program

# fewer than any process has open: no new one can be made, and those there are go on
FEW_DESCRIPTORS = 4
FEW_AT_START = 10
ALL_MEMORY = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
USUAL_BYTES, SLOW_BYTES = 65536, 64
SLOW_SECONDS = 0.1


class Threads(Injector):
    """No thread starts: a reached `pids.max`."""

    _limit: ThreadLimit | None = None
    _forbidden = False

    def prepare(self, program: Program) -> None:
        """The program is limited before it runs."""
        program.limit = self._limited

    def _limited(self, pid: int) -> None:
        self.at_last.close()
        self._limit = self.at_last.enter_context(ThreadLimit(pid))
        self._obey()

    def _obey(self) -> None:
        if self._limit is not None:
            (self._limit.forbid if self._forbidden else self._limit.lift)()

    def begin(self) -> None:
        """No thread starts from now on, or from the start of the program on."""
        self._forbidden = True
        self._obey()

    def end(self) -> None:
        """They start again."""
        self._forbidden = False
        self._obey()


class Descriptors(Injector):
    """No descriptor can be made: RLIMIT_NOFILE below what is open, which goes on. `used-up`: as
    many as are open, so that one can be made for each that is closed; and the runtime restarts, so
    that all connections to it have to be made anew."""

    _few = False

    def prepare(self, program: Program) -> None:
        """The program is limited before it runs."""
        program.limit = self._limited

    def _limited(self, pid: int) -> None:
        if self._few:
            self._allow(pid, FEW_AT_START)

    def _allow(self, pid: int, most: int) -> None:
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (most, hard))

    def begin(self) -> None:
        """None can be made from now on; at the start: a few."""
        self._few = True
        if self.fault is not Fault.ABSENT_AT_START:
            pid = self.bench.program.pid
            used = max(int(name) for name in os.listdir(f"/proc/{pid}/fd")) + 1
            used_up = self.row.variant == "used-up"
            self._allow(pid, used if used_up else FEW_DESCRIPTORS)
            if used_up:
                self.bench.node.server.stop()
                self.bench.node.server.start()

    def end(self) -> None:
        """As many as usual."""
        self._few = False
        if self.bench.program.code is None:
            usual = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            self._allow(self.bench.program.pid, usual)


class MessageMemory(Injector):
    """Messages of many MiB, and (unless the fault is `wrong`) hardly any memory for them:

    RLIMIT_AS.
    """

    def begin(self) -> None:
        """Each name in the lists has a MiB."""
        for method in ("ListImages", "ListContainers"):
            self.bench.node.failpoints[method] = Distort(Distortion.HUGE_NAMES)
        self.at_last.callback(self.bench.node.failpoints.clear)
        if self.fault is not Fault.WRONG:
            pid = self.bench.program.pid
            pages = int(Path(f"/proc/{pid}/statm").read_text().split()[0])
            limit = pages * resource.getpagesize() + 2 * MIB
            resource.prlimit(pid, resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))

    def end(self) -> None:
        """As before."""
        resource.prlimit(self.bench.program.pid, resource.RLIMIT_AS, ALL_MEMORY)
        self.at_last.close()


class _Reader(Background):
    """Reads a pipe into a file; as fast as it comes, slowly, or not at all."""

    def __init__(self, descriptor: int, copy: Path) -> None:
        super().__init__("log reader")
        self._descriptor = descriptor
        self._copy = copy
        self.bytes, self.pause = USUAL_BYTES, 0.0

    def _run(self) -> None:
        with self._copy.open("ab", buffering=0) as copy:
            while not self._over.is_set():
                if self.pause:
                    self._over.wait(self.pause)
                if not self.bytes:
                    continue
                ready, _, _ = select.select([self._descriptor], [], [], SLOW_SECONDS)
                with suppress(BlockingIOError):
                    data = os.read(self._descriptor, self.bytes) if ready else b""
                    copy.write(data)
                    if ready and not data:  # no writer yet, or no more
                        self._over.wait(SLOW_SECONDS)


class LogFile(Injector):
    """Standard error: closed, on a full disk, a pipe that nobody reads, one that is
    read slowly, one for reading.
    """

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        self._small = bench.directory / "small"
        self._pipe = bench.directory / "log-pipe"

    def _opened(self, path: Path, flags: int) -> int:
        descriptor = os.open(path, flags | os.O_CLOEXEC, 0o600)
        self.at_last.callback(os.close, descriptor)
        return descriptor

    def prepare(self, program: Program) -> None:
        """The daemon gets the standard error that can fail."""
        match self.fault:
            case Fault.ABSENT_AT_START:
                program.before = ("sh", "-c", 'exec "$0" "$@" 2>&-')
            case Fault.ABSENT:
                mounted_tmpfs(str(self._small), 256 << 10, 100)
                self.at_last.callback(unmount, str(self._small))
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
                program.stderr = self._opened(self._small / "log", flags)
            case Fault.WRONG:
                program.stderr = self._opened(Path("/dev/null"), os.O_RDONLY)
            case _:
                os.mkfifo(self._pipe)
                reading = self._opened(self._pipe, os.O_RDONLY | os.O_NONBLOCK)
                self._reader = self.at_last.enter_context(_Reader(reading, program.log))
                program.stderr = self._opened(self._pipe, os.O_WRONLY)

    def begin(self) -> None:
        """It takes no line more, or hardly any."""
        if self.fault is Fault.ABSENT:
            rest = self._small / "rest"
            with suppress(OSError), rest.open("wb", buffering=0) as file:
                while file.write(bytes(4096)) == 4096:
                    pass
            self.undo.callback(rest.unlink)
        elif self._pipe.exists():
            slow = self.fault is Fault.SLOW
            self._reader.bytes, self._reader.pause = SLOW_BYTES if slow else 0, SLOW_SECONDS
            filler = self._opened(self._pipe, os.O_WRONLY | os.O_NONBLOCK)
            for size in (4096, 1):  # full to the last byte, so that the next line already waits
                with suppress(BlockingIOError):
                    while True:
                        os.write(filler, b"\n" * size)
            self.undo.callback(self._go_on)

    def _go_on(self) -> None:
        self._reader.bytes, self._reader.pause = USUAL_BYTES, 0.0
