"""What happens during a run besides the daemon: the pressures of a scenario, in their order.

What fills the disk of an embedded or a real node, one file or many, is asked every few
milliseconds, and writes what is due by now. What has no name is freed when this process ends,
however that happens: one file by the kernel, many by a process that waits for the end of its
standard input.
"""

import errno
import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from tempfile import TemporaryFile
from typing import IO

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

    def __init__(self, pressures: tuple[Pressure, ...], grow: "Callable[[Pressure, int], Grower]"):
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


# ---- what grows

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
            self._held.callback(
                subprocess.Popen(command, stdin=subprocess.PIPE, process_group=0).communicate
            )
        self._directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        self._held.callback(os.close, self._directory)
        self._content = os.urandom(self.file_bytes)

    def _grow(self, _: int) -> int:
        made = os.open(
            f"f{self.written}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=self._directory
        )
        with open(made, "wb", buffering=0) as file:
            file.write(self._content)
        return 1

    def _left(self) -> int:
        return os.fstatvfs(self._directory).f_ffree
