"""Limits of the process: threads, descriptors, memory for a message."""

from __future__ import annotations

import os
import resource
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from tests.faults.matrix.injectors.injector import Injector
from tests.faults.matrix.rows import Fault
from tests.nodes.distortions import Distort, Distortion
from tests.nodes.small_node import MIB
from tests.thread_limit import ThreadLimit

if TYPE_CHECKING:
    from tests.faults.matrix.bench import Bench
    from tests.faults.matrix.program import Program

WAITS_FOR_A_LINE = ("sh", "-c", 'read line; exec "$0" "$@"')
# fewer than any process has open: no new one can be made, and those there are go on
FEW_DESCRIPTORS = 4
FEW_AT_START = 10
ROOM_BYTES = 2 * MIB


class Threads(Injector):
    """No thread starts: a reached `pids.max`."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        self._limit: ThreadLimit | None = None
        self._forbidden = False

    def prepare(self, program: Program) -> None:
        """The program waits for a line, so that it can be limited before it runs."""
        program.before = WAITS_FOR_A_LINE
        program.started = self._started

    def _started(self, process: subprocess.Popen[bytes]) -> None:
        self.release()
        self._limit = ThreadLimit(process.pid)
        self._limit.__enter__()
        if self._forbidden:
            self._limit.forbid()
        assert process.stdin is not None
        process.stdin.write(b"\n")
        process.stdin.flush()

    def begin(self) -> None:
        """No thread starts from now on, or from the start of the program on."""
        self._forbidden = True
        if self._limit is not None:
            self._limit.forbid()

    def end(self) -> None:
        """They start again."""
        self._forbidden = False
        if self._limit is not None:
            self._limit.lift()

    def release(self) -> None:
        """The limit is lifted and gone."""
        if self._limit is not None:
            limit, self._limit = self._limit, None
            limit.__exit__(None, None, None)


class Descriptors(Injector):
    """No descriptor can be made: RLIMIT_NOFILE below what is open, which goes on. `used-up`: as
    many as are open, so that one can be made for each that is closed."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        self._usual = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._few = False

    def prepare(self, program: Program) -> None:
        """The program waits for a line, so that it can be limited before it runs."""
        program.before = WAITS_FOR_A_LINE
        program.started = self._started

    def _started(self, process: subprocess.Popen[bytes]) -> None:
        if self._few:
            resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (FEW_AT_START, self._usual[1]))
        assert process.stdin is not None
        process.stdin.write(b"\n")
        process.stdin.flush()

    def begin(self) -> None:
        """None can be made from now on; at the start: a few."""
        self._few = True
        if self.fault is not Fault.ABSENT_AT_START:
            used = max(int(name) for name in os.listdir(f"/proc/{self.bench.pid}/fd")) + 1
            most = used if self.row.variant == "used-up" else FEW_DESCRIPTORS
            resource.prlimit(self.bench.pid, resource.RLIMIT_NOFILE, (most, self._usual[1]))

    def end(self) -> None:
        """As many as usual."""
        self._few = False
        if self.bench.program.process.poll() is None:
            resource.prlimit(self.bench.pid, resource.RLIMIT_NOFILE, self._usual)


class MessageMemory(Injector):
    """Messages of many MiB, and (unless the fault is `wrong`) hardly any memory for them:

    RLIMIT_AS.
    """

    def begin(self) -> None:
        """Each name in the lists has a MiB."""
        for method in ("ListImages", "ListContainers"):
            self.bench.node.failpoints[method] = Distort(Distortion.HUGE_NAMES)
        if self.fault is not Fault.WRONG:
            pages = int(Path(f"/proc/{self.bench.pid}/statm").read_text().split()[0])
            limit = pages * resource.getpagesize() + ROOM_BYTES
            resource.prlimit(self.bench.pid, resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))

    def end(self) -> None:
        """As before."""
        resource.prlimit(
            self.bench.pid, resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        )
        self.bench.node.failpoints.clear()

    def release(self) -> None:
        """The runtime's lists are as they were."""
        self.bench.node.failpoints.clear()
