"""The process that fills a disk: run as a program of its own, standard library only.

    python fill.py DIRECTORY bytes|inodes RATE AMOUNT

Writes bytes that neither compress nor leave holes, or empty files, at RATE a second, until AMOUNT is written, the
disk is full, or it is told to stop (SIGTERM). Prints what it wrote.
"""

from __future__ import annotations

import os
import signal
import sys
import time

BLOCK_BYTES = 1 << 18


def main() -> None:
    """Fills, at a steady rate, and says how much."""
    directory, grows, rate, amount = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    os.makedirs(directory, exist_ok=True)
    block = os.urandom(BLOCK_BYTES)
    written, began = 0, time.monotonic()
    descriptor = os.open(os.path.join(directory, "grown"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    while written < amount and not stopped:
        try:
            if grows == "bytes":
                written += os.write(descriptor, block[: amount - written])
            else:
                os.close(os.open(os.path.join(directory, f"f{written:07}"), os.O_WRONLY | os.O_CREAT, 0o600))
                written += 1
        except OSError:
            time.sleep(0.002)  # full: what is freed is filled again, as a writer that retries would
            if time.monotonic() - began > 60:
                break
            continue
        ahead = written / rate - (time.monotonic() - began)
        if ahead > 0.002:
            time.sleep(ahead)
    os.close(descriptor)
    print(written, flush=True)  # noqa: T201 # the answer of this program


if __name__ == "__main__":
    main()
