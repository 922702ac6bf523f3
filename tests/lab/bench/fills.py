"""Ways in which a disk is filled: one file that grows, or many that are closed.

Run as a program it is the process that makes many files: `fills.py directory rate
file-bytes step-bytes most-bytes`; or another writer: `fills.py file`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path

from tests.real_node.fill import STEPS_PER_SECOND, Fill, fill_bytes

MIB = 1 << 20
ROUND_MIB = 64  # that another writer overwrites before it waits for the disk


class FillKind(StrEnum):
    """How the bytes come."""

    ONE_FILE = "one-file"
    """one file grows, and is never closed"""
    SMALL_FILES = "small-files"
    """files of 8 MiB, each open while it is written at the rate, then closed"""
    AT_ONCE = "closed-at-once"
    """files of 64 MiB, each written in one go and closed at once; the rate is kept by pauses"""


FILE_BYTES = {FillKind.SMALL_FILES: 8 * MIB, FillKind.AT_ONCE: 64 * MIB}


def fill(kind: FillKind, directory: Path, bytes_a_second: int, most_bytes: int) -> Fill:
    """Begins to write into `directory`, which is made; ends after so many
    bytes, or on a full disk.
    """
    if kind is FillKind.ONE_FILE:
        return fill_bytes(directory, 0, bytes_a_second, most_bytes=most_bytes)
    file_bytes = FILE_BYTES[kind]
    step = file_bytes if kind is FillKind.AT_ONCE else max(4096, bytes_a_second // STEPS_PER_SECOND)
    directory.mkdir(parents=True)
    numbers = map(str, (bytes_a_second, file_bytes, step, most_bytes))
    command = [sys.executable, "-m", "tests.lab.bench.fills", str(directory), *numbers]
    return Fill(directory, subprocess.Popen(command, stdin=subprocess.DEVNULL))


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
                _keep_pace(began, written, 100 * MIB)
            os.fdatasync(opened.fileno())
            rounds.write(b".")


def write_files(
    directory: str, bytes_a_second: int, file_bytes: int, step: int, most_bytes: int
) -> None:
    """Writes files, one after another. Raises OSError on a full disk."""
    block = memoryview(os.urandom(MIB))
    began, written = time.monotonic(), 0
    for number in range(-(-most_bytes // file_bytes)):
        with open(os.path.join(directory, f"{number:06d}"), "xb", buffering=0) as file:
            of_file = min(file_bytes, most_bytes - written)
            while of_file > 0:
                of_step = min(step, of_file)
                of_file -= of_step
                while of_step > 0:
                    size = file.write(block[:of_step])
                    of_step -= size
                    written += size
                if step < file_bytes:
                    _keep_pace(began, written, bytes_a_second)
        _keep_pace(began, written, bytes_a_second)


def _keep_pace(began: float, written: int, bytes_a_second: int) -> None:
    ahead = written / bytes_a_second - (time.monotonic() - began)
    if ahead > 0:
        time.sleep(ahead)


if __name__ == "__main__":
    if sys.argv[2:]:
        write_files(sys.argv[1], *map(int, sys.argv[2:]))
    else:
        overwrite(sys.argv[1])
