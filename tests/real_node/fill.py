"""Fills a disk: a child process that writes at a given rate until a given amount is left.

Run as a program it is the child itself (standard library only, so that it starts in 20 ms):
`fill.py bytes|inodes <directory> <until> <rate> <fast> <most>`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

BLOCK_BYTES = 1 << 20
# a paced fill writes every 20 ms, so that an observer sees a slope and not stairs
STEPS_PER_SECOND = 50


@dataclass
class Fill:
    """A fill that runs or has ended. `directory` holds what it wrote and nothing else."""

    directory: Path
    process: subprocess.Popen[bytes]
    counts_bytes: bool

    @property
    def pid(self) -> int:
        """The process id of the child."""
        return self.process.pid

    @property
    def running(self) -> bool:
        """Whether the child still writes: it ends by itself at its mark or
        when the disk has no room.
        """
        return self.process.poll() is None

    def amount(self) -> int:
        """What it has written so far: bytes for a byte fill, files for an inode fill."""
        with os.scandir(self.directory) as entries:
            return sum(entry.stat().st_size if self.counts_bytes else 1 for entry in entries)

    def wait(self, timeout_seconds: float) -> int:
        """Wait until the fill ends by itself and return the amount.

        TimeoutError when it has not ended in time; RuntimeError when it failed.
        """
        try:
            code = self.process.wait(timeout_seconds)
        except subprocess.TimeoutExpired as late:
            raise TimeoutError(
                f"the fill in {self.directory} still writes after {timeout_seconds} s"
            ) from late
        if code != 0:
            raise RuntimeError(f"the fill in {self.directory} ended with code {code}")
        return self.amount()

    def stop(self) -> int:
        """End the child if it still runs and return the amount; what it wrote is kept."""
        if self.running:
            os.kill(self.pid, signal.SIGTERM)
        self.process.wait(60)
        return self.amount()

    def remove(self) -> int:
        """End the child, delete what it wrote, and return the amount that this freed."""
        amount = self.stop()
        shutil.rmtree(self.directory)
        return amount


def fill_bytes(
    directory: Path,
    until_available_bytes: int,
    rate_bytes_per_second: int | None = None,
    fast: bool = False,
    most_bytes: int | None = None,
) -> Fill:
    """Write incompressible bytes into one file in `directory` (made here) until
    `until_available_bytes` are available.

    The last write is cut to size, so that the mark is met and not overshot. Without a rate it
    writes as fast as it can. With `fast` the space is allocated, not written. It ends once it
    reaches the mark, also if space becomes free later; ENOSPC ends it too, and `most_bytes` (in
    whole blocks) written, however much became free meanwhile. btrfs accounts for written data at
    its next commit only, so there the mark is overshot.
    """
    return _start(
        "bytes", directory, until_available_bytes, rate_bytes_per_second, fast, most_bytes
    )


def fill_inodes(
    directory: Path,
    until_inodes_free: int,
    rate_inodes_per_second: int | None = None,
    most_inodes: int | None = None,
) -> Fill:
    """Make empty files in `directory` (made here) until `until_inodes_free` inodes are free.

    Ends as `fill_bytes`.
    """
    return _start(
        "inodes", directory, until_inodes_free, rate_inodes_per_second, False, most_inodes
    )


def _start(
    what: str, directory: Path, until: int, rate: int | None, fast: bool, most: int | None
) -> Fill:
    if rate is not None and rate <= 0:
        raise ValueError(
            f"rate {rate}: a positive number a second, or None for as fast as possible"
        )
    directory.mkdir(parents=True)
    numbers = map(str, (until, rate or 0, int(fast), sys.maxsize if most is None else most))
    child = [sys.executable, "-I", "-S", __file__, what, str(directory), *numbers]
    return Fill(directory, subprocess.Popen(child, stdin=subprocess.DEVNULL), what == "bytes")


class _Pace:
    """Limits spending to `rate` a second by sleeping; 0 is no limit."""

    def __init__(self, rate: int) -> None:
        self.rate = rate
        self.spent = 0
        self.since = time.monotonic()

    def spend(self, amount: int) -> None:
        self.spent += amount
        if self.rate:
            ahead = self.spent / self.rate - (time.monotonic() - self.since)
            if ahead > 1 / STEPS_PER_SECOND:
                time.sleep(ahead)


def _write_bytes(directory: str, until: int, rate: int, fast: bool, most: int) -> None:
    block = memoryview(os.urandom(BLOCK_BYTES))
    step = BLOCK_BYTES if not rate else max(4096, min(BLOCK_BYTES, rate // STEPS_PER_SECOND))
    pace = _Pace(rate)
    offset = 0
    descriptor = os.open(
        os.path.join(directory, "fill.bin"), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644
    )
    while True:
        figures = os.fstatvfs(descriptor)
        left = min(figures.f_bavail * figures.f_frsize - until, most - offset)
        if left <= 0:
            return
        size = min(step, -(-left // figures.f_frsize) * figures.f_frsize)
        if fast:
            os.posix_fallocate(descriptor, offset, size)
        else:
            size = os.write(descriptor, block[:size])
        offset += size
        pace.spend(size)


def _make_files(directory: str, until: int, rate: int, most: int) -> None:
    pace = _Pace(rate)
    count = 0
    while count < most and os.statvfs(directory).f_ffree > until:
        os.close(
            os.open(
                os.path.join(directory, f"{count:08d}"), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644
            )
        )
        count += 1
        pace.spend(1)


def _main(what: str, directory: str, until: str, rate: str, fast: str, most: str) -> int:
    try:
        if what == "bytes":
            _write_bytes(directory, int(until), int(rate), fast == "1", int(most))
        else:
            _make_files(directory, int(until), int(rate), int(most))
    except OSError as full:
        if full.errno != errno.ENOSPC:
            raise
    return 0


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(_main(*sys.argv[1:]))
