"""What happens during a run besides the daemon: the pressures of a scenario, in their order."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from eviction.drill.growers import Grower
from eviction.drill.scenario import Grows, Pressure
from signals.quantity import format_bytes, format_duration

TICK_SECONDS = 0.005
GROWS: Mapping[Grows, str] = {
    "bytes": "a process writes to {where}{file}",
    "inodes": "a process creates files{small} on {where}",
    "log": "{pod} writes its log{file}",
    "writable": "{pod} writes to its writable layer",
    "pull": "{images} are pulled",
}


# Injected by the drill, or on a real node an outage of its runtime.
@dataclass(frozen=True, slots=True)
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
        self._growers: list[Grower] = []
        self.periods: list[PressurePeriod] = []
        """The pressures that have begun."""
        self.problem = ""
        """Why one could not fill the disk; empty while all is well."""
        earlier: tuple[threading.Thread, ...] = ()
        for number, pressure in enumerate(pressures):
            if not pressure.beside:
                earlier = tuple(self._threads)
            self._add(self._apply, number, pressure, earlier)

    def free(self) -> None:
        """Frees what does not remain. May be called more than once."""
        for grower in self._growers:
            grower.free()

    def _apply(
        self, number: int, pressure: Pressure, earlier: tuple[threading.Thread, ...]
    ) -> None:
        """Waits for the earlier pressures, and applies this one."""
        for thread in earlier:
            thread.join()
        if self._stopping.wait(pressure.after_seconds):
            return
        started = time.monotonic()
        period = PressurePeriod(describe_pressure(pressure), started - self._began)
        limit = math.inf if pressure.for_seconds is None else started + pressure.for_seconds
        try:
            grower = self._grow(pressure, number)
            self._growers.append(grower)
            self.periods.append(period)
            while grower.goes_on() and time.monotonic() < limit and not self._stopping.is_set():
                self._stopping.wait(TICK_SECONDS)
        except OSError as error:
            self.problem = error.strerror or str(error)
            return
        period.written = grower.stop()
        self._stopping.wait(pressure.holds_seconds)
        if not pressure.remains:
            grower.free()
        period.to_seconds = time.monotonic() - self._began
