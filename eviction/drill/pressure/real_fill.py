"""Fills a directory of a real node through a process of its own (`real_fill_program`), which always frees it again."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Callable

from eviction.drill.scenario.types import Grows, Pressure

FREE_SECONDS = 600.0  # removing a million files takes a minute


class RealFill:
    """Fills a directory and keeps it filled until `free`; see `real_fill_program` for the arguments.

    If the process is killed, its space becomes free although nothing relieved the node; `problem` says so then.
    """

    def __init__(self, directory: str, grows: Grows, rate: int, amount: int, reserve: int, file_bytes: int = 0):
        program = os.path.join(os.path.dirname(__file__), "real_fill_program.py")
        arguments = [directory, str(grows), str(rate), str(amount), str(reserve), str(file_bytes)]
        self._failed = ""
        self._written: int | None = None
        # A session of its own: Ctrl-C on the terminal reaches the drill only, which then frees everything in order.
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", program, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._output, self._closed = b"", False
        if not self._read_line():
            self._set_failed()

    @property
    def pid(self) -> int:
        """The id of the fill process."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """True while it writes."""
        if self._written is None and (b"\n" in self._output or self._readable()):
            self._read()
        return self._written is None

    def stop(self) -> int:
        """Ends the writing and keeps what was written. Returns how much that is, in bytes or files."""
        if self._written is None:
            self._process.terminate()
            self._read()
        return self._written or 0

    @property
    def problem(self) -> str:
        """Why it could not fill, or lost what it had filled; empty while all is well."""
        killed = not self._closed and self._written is not None and self._process.poll() is not None
        return self._failed or ("the process that keeps the disk filled was killed" if killed else "")

    def free(self) -> None:
        """Frees everything, and returns when that is done. Safe to call twice."""
        self._close()

    def _read(self) -> None:
        """Waits for the amount that the process prints at the end of its writing."""
        answer = self._read_line()
        self._written = int(answer or 0)
        if not answer:
            self._set_failed()

    def _set_failed(self) -> None:
        """The process ended without printing an amount: keeps the reason."""
        self._written = 0
        stderr = self._close()
        self._failed = stderr.strip().rpartition("\n")[2] or "the process that fills the disk was killed"

    def _close(self) -> str:
        """Closes the standard input of the process and waits for its end. Returns its stderr; empty the second time."""
        if self._closed:
            return ""
        self._closed = True
        _, stderr = self._process.communicate(timeout=FREE_SECONDS)
        return stderr.decode(errors="replace")

    def _read_line(self) -> bytes:
        """Waits for the next line of the process; empty at its end. Two lines may arrive in one read."""
        assert self._process.stdout is not None
        while b"\n" not in self._output:
            received = os.read(self._process.stdout.fileno(), 4096)
            if not received:
                return b""
            self._output += received
        line, _, self._output = self._output.partition(b"\n")
        return line

    def _readable(self) -> bool:
        return bool(select.select([self._process.stdout.fileno()], [], [], 0.0)[0]) if self._process.stdout else False


class RealGrowers:
    """Starts the pressures of a drill in one directory, and frees all of them. `reserve_of`: what each pressure must
    leave, in its own unit."""

    def __init__(self, directory: str, reserve_of: Callable[[Pressure], int]):
        self._directory = directory
        self._reserve_of = reserve_of
        self._started: list[RealFill] = []

    def __call__(self, pressure: Pressure, _: int) -> RealFill:
        """Starts one pressure."""
        amount = sys.maxsize if pressure.amount is None else pressure.amount
        return self.start(pressure.grows, pressure.rate, amount, self._reserve_of(pressure), pressure.file_bytes)

    def start(self, grows: Grows, rate: int, amount: int, reserve: int, file_bytes: int = 0) -> RealFill:
        """Starts one fill, a pressure or the prefill before it."""
        self._started.append(RealFill(self._directory, grows, rate, amount, reserve, file_bytes))
        return self._started[-1]

    @property
    def problem(self) -> str:
        """The first problem of any fill; empty while all is well. Read it before `free`."""
        return next((fill.problem for fill in self._started if fill.problem), "")

    def free(self) -> None:
        """Frees everything that was started."""
        for fill in self._started:
            fill.free()
