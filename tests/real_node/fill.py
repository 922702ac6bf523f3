"""Fills a disk: a child process that writes at a given rate until a given amount is left.

Run as a program it is the child itself (standard library only, so that it starts in 20 ms):
`fill.py <directory> <until> <rate> <fast> <most>`.
"""

from __future__ import annotations

import contextlib
import errno
import os
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

    def wait(self, timeout_seconds: float) -> int:
        """Wait until the fill ends by itself and return how many bytes it has written.

        subprocess.TimeoutExpired when it has not ended in time; RuntimeError when it failed.
        """
        if code := self.process.wait(timeout_seconds):
            raise RuntimeError(f"the fill in {self.directory} ended with code {code}")
        return sum(file.stat().st_size for file in self.directory.iterdir())

    def stop(self) -> None:
        """End the child if it still runs; what it wrote is kept."""
        self.process.terminate()
        self.process.wait(60)


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
    directory.mkdir(parents=True)
    most = sys.maxsize if most_bytes is None else most_bytes
    numbers = map(str, (until_available_bytes, rate_bytes_per_second or 0, int(fast), most))
    child = [sys.executable, "-I", "-S", __file__, str(directory), *numbers]
    return Fill(directory, subprocess.Popen(child, stdin=subprocess.DEVNULL))


def _fill(directory: str, until: int, rate: int, fast: int, most: int) -> None:
    block, done, began = memoryview(os.urandom(BLOCK_BYTES)), 0, time.monotonic()
    step = max(4096, min(BLOCK_BYTES, rate // STEPS_PER_SECOND)) if rate else BLOCK_BYTES
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    descriptor = os.open(os.path.join(directory, "fill.bin"), flags, 0o644)
    while done < most:
        figures = os.statvfs(directory)
        left = min(figures.f_bavail * figures.f_frsize - until, most - done)
        if left <= 0:
            return
        size = min(step, -(-left // figures.f_frsize) * figures.f_frsize)
        if fast:
            os.posix_fallocate(descriptor, done, size)
        else:
            size = os.write(descriptor, block[:size])
        done += size
        ahead = done / rate - (time.monotonic() - began) if rate else 0.0
        if ahead > 1 / STEPS_PER_SECOND:
            time.sleep(ahead)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        try:
            _fill(sys.argv[1], *map(int, sys.argv[2:]))
        except OSError as full:
            if full.errno != errno.ENOSPC:
                raise
