"""Who else writes to a disk while it is filled: other writers.

Run as a program it is one of them: `fills.py file`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

MIB = 1 << 20
ROUND_MIB = 64  # that another writer overwrites before it waits for the disk
PACE = 100 * MIB  # a second


@contextmanager
def other_writers(directory: Path, count: int) -> Iterator[Callable[[], float | None]]:
    """So many processes that each overwrite a file of their own until the `with` block ends. What
    it gives says how many MiB a second each has got to the disk so far; None if there are none."""
    directory.mkdir()
    command = [sys.executable, "-m", "tests.lab.bench.fills"]
    began = time.monotonic()
    files = [directory / str(number) for number in range(count)]
    writers = [subprocess.Popen([*command, str(file)]) for file in files]

    def mib_per_second() -> float | None:
        rounds = sum(file.with_suffix(".rounds").stat().st_size for file in files)
        seconds = time.monotonic() - began
        return round(rounds * ROUND_MIB / seconds / count, 1) if count else None

    try:
        yield mib_per_second
    finally:
        for writer in writers:
            writer.kill()
            writer.wait()


def overwrite(file: str) -> None:
    """Overwrites 64 MiB again and again, 100 MiB a second, and waits for the disk each time; a
    file beside it has a byte for each time."""
    block = os.urandom(MIB)
    began = time.monotonic()
    written = 0
    with (
        open(file, "xb", buffering=0) as opened,
        open(f"{file}.rounds", "xb", buffering=0) as rounds,
    ):
        while True:
            opened.seek(0)
            for _ in range(ROUND_MIB):
                written += opened.write(block)
                time.sleep(max(written / PACE - (time.monotonic() - began), 0.0))
            os.fdatasync(opened.fileno())
            rounds.write(b".")


if __name__ == "__main__":
    overwrite(sys.argv[1])
