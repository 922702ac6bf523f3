"""Fills a filesystem through a process of its own (`fill_program`), so that this process does not slow it down."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Callable

from eviction.drill.pressure.fill_program import Order
from eviction.drill.scenario import Grows, Pressure

FREE_SECONDS = 600.0  # removing a million files takes a minute


class Fill:
    """Fills, and holds what it has filled until `free`.

    If the process is killed, the space of an unnamed file becomes free although nothing relieved the node; `problem`
    says so then.
    """

    def __init__(self, order: Order):
        program = os.path.join(os.path.dirname(__file__), "fill_program.py")
        self._failed = ""
        self._freed = False
        self._written: int | None = None
        # A session of its own: Ctrl-C on the terminal reaches the drill only, which then frees everything in order.
        # Without a buffer, so that `select` sees every line that is not read yet.
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", program, json.dumps(order._asdict())],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._line()

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """True while it writes."""
        if self._written is None and self._process.stdout and select.select([self._process.stdout], [], [], 0.0)[0]:
            self._written = int(self._line() or 0)
        return self._written is None

    def stop(self) -> int:
        """Ends the writing and keeps what was written. Returns how much that is, in bytes or files."""
        if self._written is None:
            self._process.terminate()
            self._written = int(self._line() or 0)
        return self._written

    @property
    def problem(self) -> str:
        """Why it could not fill, or lost what it had filled; empty while all is well."""
        killed = not self._freed and self._written is not None and self._process.poll() is not None
        return self._failed or ("the process that keeps the disk filled was killed" if killed else "")

    def free(self) -> None:
        """Lets go of everything, and returns when that is done. Safe to call twice."""
        self._close()

    def _line(self) -> bytes:
        """Waits for the next line of the process. Where it ends without one, nothing was written, and the reason is
        kept."""
        line = self._process.stdout.readline() if self._process.stdout else b""
        if not line:
            self._written = 0
            self._failed = self._close().strip().rpartition("\n")[2] or "the process that fills the disk was killed"
        return line

    def _close(self) -> str:
        """Closes the standard input of the process and waits for its end. Returns its stderr; empty the second time."""
        if self._freed:
            return ""
        self._freed = True
        _, stderr = self._process.communicate(timeout=FREE_SECONDS)
        return stderr.decode(errors="replace")


class RealGrowers:
    """Starts the pressures of a drill in one directory, and frees all of them. `reserve_of`: what each pressure must
    leave, in its own unit."""

    def __init__(self, directory: str, reserve_of: Callable[[Pressure], int]):
        self._directory = directory
        self._reserve_of = reserve_of
        self._started: list[Fill] = []

    def __call__(self, pressure: Pressure, _: int) -> Fill:
        """Starts one pressure."""
        reserve = self._reserve_of(pressure)
        return self.start(pressure.grows, pressure.rate, pressure.amount, reserve, pressure.file_bytes)

    def start(self, grows: Grows, rate: int, amount: int | None, reserve: int, file_bytes: int = 0) -> Fill:
        """Starts one fill, a pressure or the prefill before it."""
        self._started.append(Fill(Order(self._directory, grows, rate, amount, reserve, file_bytes)))
        return self._started[-1]

    @property
    def problem(self) -> str:
        """The first problem of any fill; empty while all is well. Read it before `free`."""
        return next((fill.problem for fill in self._started if fill.problem), "")

    def free(self) -> None:
        """Frees everything that was started."""
        for fill in self._started:
            fill.free()
