"""Applies the pressures of a scenario in their order: growing files, logs, writable layers, images being pulled.

Covers: their order and their times. Does not cover: what writes; see `embedded_growers` for the embedded node and
`fill` for a real one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Protocol, assert_never

from eviction.configuration.models import Field
from eviction.drill.scenario import FileEnd, Grows, Pressure
from signals.quantity import format_bytes, format_duration

TICK_SECONDS = 0.005
FILES = {
    FileEnd.CLOSED: "",
    FileEnd.OPEN: ", into a file that stays open",
    FileEnd.DELETED: ", into a file that is deleted and stays open",
}


Moment = Annotated[float, Field(ge=-1e6, le=1e6)]
"""Seconds since the first pressure began. No drill lasts longer, so what a report says can be drawn."""


# Injected by the drill, or on a real node an outage of its runtime.
@dataclass(frozen=True, slots=True)
class FaultOccurrence:
    """A fault that was triggered."""

    what: str
    """In words."""
    seconds: Moment
    """Since the start."""


@dataclass(frozen=True, slots=True)
class PressurePeriod:
    """A period during which something grew."""

    what: str
    """In words."""
    from_seconds: Moment
    """Since the start."""
    to_seconds: Moment | None = None
    """Null: until the end."""
    written: int = 0
    """Bytes, or files."""


class Grower(Protocol):
    """Writes until it is done or stopped."""

    @property
    def running(self) -> bool:
        """True while it writes."""

    def stop(self) -> int:
        """Ends the writing. Returns what was written, in bytes or files."""

    def free(self) -> None:
        """Removes what was written."""


def describe_pressure(pressure: Pressure) -> str:
    """A pressure in words: `a process writes 150.0MiB at 60.0MiB a second`."""
    unit = (lambda n: f"{n} files") if pressure.counts_inodes else format_bytes
    amount = "" if pressure.amount is None else unit(pressure.amount)
    if pressure.until_full:
        amount = "until the disk is full"
    if pressure.for_seconds is not None:
        amount = f"{amount} for at most {format_duration(pressure.for_seconds)}".strip()
    match pressure.grows:
        case Grows.BYTES:
            who = f"a process writes on {pressure.where}{FILES[pressure.file]}"
        case Grows.INODES:
            small = f" of {format_bytes(pressure.file_bytes)}" if pressure.file_bytes else ""
            who = f"a process makes files{small} on {pressure.where}"
        case Grows.LOG:
            who = f"{pressure.pod} writes its log{FILES[pressure.file]}"
        case Grows.WRITABLE:
            who = f"{pressure.pod} writes into its writable layer"
        case Grows.PULL:
            assert pressure.image is not None
            who = f"{pressure.image.count} images {pressure.image.name} are pulled"
        case other:
            assert_never(other)
    return f"{who}: {f'{amount}, ' if amount else ''}{unit(pressure.rate)} a second"


class PressureSchedule:
    """Applies the pressures of a scenario in their order, on threads of its own.

    `grow` starts one pressure; it is called with the pressure and its number, from 0.
    """

    def __init__(self, pressures: tuple[Pressure, ...], grow: Callable[[Pressure, int], Grower]):
        self._pressures = pressures
        self._grow = grow
        self._periods: dict[int, PressurePeriod] = {}  # by number, in the order in which they began
        self._began = 0.0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pressure", daemon=True)

    @property
    def running(self) -> bool:
        """True while a pressure lasts or another one is still to come."""
        return self._thread.is_alive()

    @property
    def periods(self) -> tuple[PressurePeriod, ...]:
        """The pressures that have begun."""
        return tuple(self._periods.values())

    def start(self, began: float) -> None:
        """`began`: monotonic seconds from which all times are counted."""
        self._began = began
        self._thread.start()

    def stop(self) -> None:
        """Ends what grows and starts no other pressure."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        applied: list[threading.Thread] = []
        for number, pressure in enumerate(self._pressures):
            if not pressure.beside:
                for thread in applied:
                    thread.join()
            thread = threading.Thread(target=self._apply, args=(number, pressure), name="pressure", daemon=True)
            thread.start()
            applied.append(thread)
        for thread in applied:
            thread.join()

    def _apply(self, number: int, pressure: Pressure) -> None:
        if self._stopping.wait(pressure.after_seconds):
            return
        grower = self._grow(pressure, number)
        started = time.monotonic()
        period = self._periods[number] = PressurePeriod(describe_pressure(pressure), started - self._began)
        limit = float("inf") if pressure.for_seconds is None else started + pressure.for_seconds
        while grower.running and time.monotonic() < limit and not self._stopping.is_set():
            self._stopping.wait(TICK_SECONDS)
        written = grower.stop()
        self._stopping.wait(pressure.holds_seconds)
        if not pressure.remains:
            grower.free()
        self._periods[number] = replace(period, to_seconds=time.monotonic() - self._began, written=written)
