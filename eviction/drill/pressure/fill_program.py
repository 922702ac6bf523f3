"""The program that fills a disk of the embedded node. It runs as a process of its own; standard library only.

    python fill_program.py FILE bytes RATE AMOUNT|full closed|open|deleted
    python fill_program.py DIRECTORY inodes RATE AMOUNT|full FILE_BYTES

Appends incompressible bytes to a file, or makes many files of FILE_BYTES each, at RATE a second. Stops when AMOUNT is
written, when the disk is full (`full`), on SIGTERM, or when its parent process has ended. With an AMOUNT it retries on
a full disk. Prints how much it wrote, and ends when its standard input does: until then it holds an `open` file, and a
`deleted` one, which has had no name since it was made.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable

BLOCK_BYTES = 1 << 18
FULL_SECONDS = 0.002
LONGEST_BEHIND_SECONDS = 0.1
LONGEST_SECONDS = 60.0


def opened(path: str) -> int:
    """A file to append to."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def bytes_into(descriptor: int) -> Callable[[int], int]:
    """A function that appends to one file. It takes the most bytes to write and returns how many it wrote."""
    block = os.urandom(BLOCK_BYTES)
    return lambda most: os.write(descriptor, block[:most])


def files_into(directory: str, file_bytes: int) -> Callable[[int], int]:
    """A function that makes one file a call."""
    os.makedirs(directory, exist_ok=True)
    content = os.urandom(file_bytes)
    made: list[str] = []

    def make(_: int) -> int:
        name = os.path.join(directory, f"f{len(made):07}")
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            os.write(descriptor, content)
        finally:
            os.close(descriptor)
        made.append(name)
        return 1

    return make


def main() -> None:
    """Fills at a steady rate and prints how much was written."""
    path, grows, rate = sys.argv[1], sys.argv[2], int(sys.argv[3])
    until_full = sys.argv[4] == "full"
    amount = sys.maxsize if until_full else int(sys.argv[4])
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    parent = os.getppid()
    descriptor = opened(path) if grows == "bytes" else None
    if descriptor is not None and sys.argv[5] == "deleted":
        os.unlink(path)
    write = files_into(path, int(sys.argv[5])) if descriptor is None else bytes_into(descriptor)
    written, started = 0, time.monotonic()
    began = started  # moved on where the machine held this up
    while written < amount and not stopped and os.getppid() == parent:
        try:
            written += write(amount - written)
        except OSError:
            if until_full or time.monotonic() - started > LONGEST_SECONDS:
                break
            time.sleep(FULL_SECONDS)
            continue
        ahead = written / rate - (time.monotonic() - began)
        if ahead > FULL_SECONDS:
            time.sleep(min(ahead, 0.1))  # short, so that it soon notices the end of its parent
    if descriptor is not None and sys.argv[5] == "closed":
        os.close(descriptor)
    print(written, flush=True)  # noqa: T201 # the output of this program
    sys.stdin.buffer.read()


if __name__ == "__main__":
    main()
