"""Applies the pressures of a scenario in their order; a process for each fills a filesystem.

Does not cover: writable layers and pulled images, which grow through the embedded
runtime; see `run.embedded`.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from eviction.drill.pressure.fill_program import Order
from eviction.drill.scenario import Grows, Pressure
from signals.quantity import format_bytes, format_duration

TICK_SECONDS = 0.005
FREE_SECONDS = 600.0  # a million files take a minute to remove
GROWS: Mapping[Grows, str] = {
    "bytes": "a process writes to {where}{file}",
    "inodes": "a process creates files{small} on {where}",
    "log": "{pod} writes its log{file}",
    "writable": "{pod} writes to its writable layer",
    "pull": "{images} are pulled",
}


# Injected by the drill, or on a real node an outage of its runtime.
@dataclass(frozen=True)
class FaultOccurrence:
    """A fault that was triggered."""

    what: str
    """The fault, for people."""
    seconds: float
    """Since the start."""


@dataclass(slots=True)
class PressurePeriod:
    """A period during which something grew."""

    what: str
    """The pressure, for people."""
    from_seconds: float
    """Since the start."""
    to_seconds: float | None = None
    """Since the start; null: until the end."""
    written: int = 0
    """How many bytes or files were written."""


class Grower(Protocol):
    """Writes until it is done or stopped."""

    def goes_on(self) -> bool:
        """False once it has ended.

        Asked every few milliseconds, so it may also write what is due by now.
        """

    def stop(self) -> int:
        """Stops writing. Returns the bytes or files written."""

    def free(self) -> object:
        """Removes what was written."""


def describe_pressure(pressure: Pressure) -> str:
    """A pressure for people: `a process writes to nodefs: 150.0MiB, 60.0MiB a second`."""
    unit = (lambda files: f"{files} files") if pressure.counts_inodes else format_bytes
    amounts = []
    if pressure.until_full:
        amounts.append("until the disk is full")
    elif pressure.amount is not None:
        amounts.append(unit(pressure.amount))
    if pressure.for_seconds is not None:
        amounts.append(f"for at most {format_duration(pressure.for_seconds)}")
    image = pressure.image
    who = GROWS[pressure.grows].format(
        where=pressure.where,
        pod=pressure.pod,
        file="" if pressure.file == "closed" else f" ({pressure.file} file)",
        small=f" of {format_bytes(pressure.file_bytes)}" if pressure.file_bytes else "",
        images="" if image is None else f"{image.count} images {image.name}",
    )
    rate = f"{unit(pressure.rate)} a second"
    return f"{who}: {', '.join([' '.join(amounts), rate] if amounts else [rate])}"


class Fill:
    """A process that fills, and holds what it has filled until `free`.

    If the process is killed, the space of an unnamed file is freed although nothing relieved the
    node; `problem` then says so.
    """

    def __init__(self, order: Order):
        program = os.path.join(os.path.dirname(__file__), "fill_program.py")
        self._failed = ""
        self._freed = False
        self._written: int | None = None
        # A process group of its own, so that Ctrl-C on the terminal reaches only the drill, which
        # then frees everything in order. No session: a kernel that groups tasks by session
        # (sched_autogroup) may let a lone one starve for seconds beside busy ones. No buffer, so
        # that `select` sees every line not yet read.
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", program, json.dumps(order._asdict())],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            process_group=0,
        )
        assert self._process.stdout is not None
        self._output = self._process.stdout
        self._line()

    def goes_on(self) -> bool:
        """True while it writes."""
        if self._written is None and select.select([self._output], [], [], 0.0)[0]:
            self._written = int(self._line() or 0)
        return self._written is None

    def stop(self) -> int:
        """Stops writing and keeps what was written. Returns the bytes or files written."""
        if self._written is None:
            self._process.terminate()
            self._written = int(self._line() or 0)
        return self._written

    @property
    def problem(self) -> str:
        """Why it could not fill or lost what it had filled; empty while all is well."""
        if not self._freed and self._written is not None and self._process.poll() is not None:
            return "the process that keeps the disk filled was killed"
        return self._failed

    def free(self) -> str:
        """Closes the standard input of the process and waits until it has freed everything.

        Returns its stderr; empty the second time.
        """
        if self._freed:
            return ""
        self._freed = True
        _, stderr = self._process.communicate(timeout=FREE_SECONDS)
        return stderr.decode(errors="replace")

    def _line(self) -> bytes:
        """Waits for the next line of the process.

        If it ends without one, nothing was written, and the reason is kept.
        """
        line = self._output.readline()
        if not line:
            self._written = 0
            last_words = self.free().strip().rpartition("\n")[2]
            self._failed = last_words or "the process that fills the disk was killed"
        return line


class Fills:
    """All the fills of one drill."""

    def __init__(self) -> None:
        self._started: list[Fill] = []

    def start(self, order: Order) -> Fill:
        """Starts one fill."""
        self._started.append(Fill(order))
        return self._started[-1]

    def grow(self, pressure: Pressure, path: str, **others: Any) -> Fill:
        """Starts the fill of one pressure. `others`: further fields of its order."""
        return self.start(
            Order(
                path,
                pressure.grows,
                pressure.rate,
                amount=pressure.amount,
                file_bytes=pressure.file_bytes,
                **others,
            )
        )

    @property
    def problem(self) -> str:
        """The first problem of any fill; empty while all is well. Only valid before `free`."""
        return next((fill.problem for fill in self._started if fill.problem), "")

    def free(self) -> None:
        """Stops all writing, closes every file, and frees what does not remain.

        May be called more than once.
        """
        for fill in self._started:
            fill.free()


def came_true(condition: Callable[[], bool], seconds: float) -> bool:
    """Waits up to `seconds` for a condition. Returns whether it came true."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(TICK_SECONDS)
    return True


class Schedule:
    """Things that happen during a run, each on its own thread.

    All times count from `began`, in monotonic seconds.
    """

    def __init__(self) -> None:
        self._began = 0.0
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []

    def _add(self, act: Callable[..., None], *arguments: object) -> None:
        self._threads.append(
            threading.Thread(target=act, args=arguments, name=type(self).__name__, daemon=True)
        )

    @property
    def running(self) -> bool:
        """True while anything lasts or is still to come."""
        return any(thread.is_alive() for thread in self._threads)

    def start(self, began: float) -> None:
        self._began = began
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Ends what lasts, and starts nothing more."""
        self._stopping.set()
        for thread in self._threads:
            thread.join()


class PressureSchedule(Schedule):
    """Applies the pressures of a scenario in their order.

    `grow` starts a pressure, given with its number, from 0.
    """

    def __init__(self, pressures: tuple[Pressure, ...], grow: Callable[[Pressure, int], Grower]):
        super().__init__()
        self._grow = grow
        self.periods: list[PressurePeriod] = []
        """The pressures that have begun."""
        earlier: tuple[threading.Thread, ...] = ()
        for number, pressure in enumerate(pressures):
            if not pressure.beside:
                earlier = tuple(self._threads)
            self._add(self._apply, number, pressure, earlier)

    def _apply(
        self, number: int, pressure: Pressure, earlier: tuple[threading.Thread, ...]
    ) -> None:
        """Waits for the earlier pressures, and applies this one."""
        for thread in earlier:
            thread.join()
        if self._stopping.wait(pressure.after_seconds):
            return
        grower = self._grow(pressure, number)
        started = time.monotonic()
        period = PressurePeriod(describe_pressure(pressure), started - self._began)
        self.periods.append(period)
        limit = float("inf") if pressure.for_seconds is None else started + pressure.for_seconds
        while grower.goes_on() and time.monotonic() < limit and not self._stopping.is_set():
            self._stopping.wait(TICK_SECONDS)
        period.written = grower.stop()
        self._stopping.wait(pressure.holds_seconds)
        if not pressure.remains:
            grower.free()
        period.to_seconds = time.monotonic() - self._began
