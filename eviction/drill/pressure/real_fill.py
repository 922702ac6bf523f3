"""What a drill fills on a real node: a process of its own (`real_fill_program`) holds it and always gives it back."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Callable

from eviction.drill.scenario.types import Grows, Pressure

HOLD_SECONDS = 600.0  # giving a million files back takes a minute


class HeldFill:
    """Something that grows in a directory (see `real_fill_program` for the arguments) and is held until `undo`.

    What it holds may get lost: then the disk has room that nobody relieved.
    """

    def __init__(self, directory: str, grows: Grows, rate: int, amount: int, leave: int, file_bytes: int = 0):
        program = os.path.join(os.path.dirname(__file__), "real_fill_program.py")
        arguments = [directory, str(grows), str(rate), str(amount), str(leave), str(file_bytes)]
        self._failed = ""
        self._written: int | None = None
        # A session of its own: a Ctrl-C on the terminal is for the drill, which then gives back in order.
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", program, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._heard, self._closed = b"", False
        if not self._line():
            self._ended()

    @property
    def pid(self) -> int:
        """Of the process that holds it."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether it still grows."""
        if self._written is None and (b"\n" in self._heard or self._readable()):
            self._read()
        return self._written is None

    def stop(self) -> int:
        """Ends the growing; what was written, in bytes or files, is held."""
        if self._written is None:
            self._process.terminate()
            self._read()
        return self._written or 0

    @property
    def problem(self) -> str:
        """Why it could not grow, or does not hold any more what it should; empty while all is well."""
        killed = not self._closed and self._written is not None and self._process.poll() is not None
        return self._failed or ("the process that holds what was filled was killed" if killed else "")

    def undo(self) -> None:
        """Gives everything back, and returns when that is done. Safe to call twice."""
        self._close()

    def _read(self) -> None:
        """Waits for how much it was."""
        answer = self._line()
        self._written = int(answer or 0)
        if not answer:
            self._ended()

    def _ended(self) -> None:
        """It ended without an answer, and why."""
        self._written = 0
        said = self._close()
        self._failed = said.strip().rpartition("\n")[2] or "the process that fills the disk was killed"

    def _close(self) -> str:
        """Closes its standard input and waits for its end; what it said then. Empty the second time."""
        if self._closed:
            return ""
        self._closed = True
        _, said = self._process.communicate(timeout=HOLD_SECONDS)
        return said.decode(errors="replace")

    def _line(self) -> bytes:
        """Its next line, waited for; empty at its end. Two may come together, so nothing is buffered elsewhere."""
        assert self._process.stdout is not None
        while b"\n" not in self._heard:
            heard = os.read(self._process.stdout.fileno(), 4096)
            if not heard:
                return b""
            self._heard += heard
        line, _, self._heard = self._heard.partition(b"\n")
        return line

    def _readable(self) -> bool:
        return bool(select.select([self._process.stdout.fileno()], [], [], 0.0)[0]) if self._process.stdout else False


class HeldGrowers:
    """Starts the pressures of a drill in one directory, and gives all of them back. `leaves`: of each pressure what
    must be left, in its unit."""

    def __init__(self, directory: str, leaves: Callable[[Pressure], int]):
        self._directory = directory
        self._leaves = leaves
        self._started: list[HeldFill] = []

    def __call__(self, pressure: Pressure, _: int) -> HeldFill:
        """Starts one."""
        amount = sys.maxsize if pressure.amount is None else pressure.amount
        return self.hold(pressure.grows, pressure.rate, amount, self._leaves(pressure), pressure.file_bytes)

    def hold(self, grows: Grows, rate: int, amount: int, leave: int, file_bytes: int = 0) -> HeldFill:
        """Starts what is no pressure, but has to be there."""
        self._started.append(HeldFill(self._directory, grows, rate, amount, leave, file_bytes))
        return self._started[-1]

    @property
    def problem(self) -> str:
        """Why something could not grow or is lost; empty while all is well. To be asked before it is given back."""
        return next((held.problem for held in self._started if held.problem), "")

    def give_back(self) -> None:
        """Gives back everything that was started."""
        for held in self._started:
            held.undo()
