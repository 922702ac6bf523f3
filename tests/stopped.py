"""Processes that SIGSTOP has stopped.

The signal is taken by one thread, which stops the others: on a busy machine
those run on for a moment.
"""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

STOPS_WITHIN_SECONDS = 30.0


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Stops every thread of a process; continues it when the `with` block ends."""
    os.kill(pid, signal.SIGSTOP)
    try:
        wait_until_stopped(pid)
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def wait_until_stopped(pid: int) -> None:
    """After SIGSTOP: until no thread runs. Raises TimeoutError if one still runs after 30 s."""
    deadline = time.monotonic() + STOPS_WITHIN_SECONDS
    while not all_threads_stopped(pid):
        if time.monotonic() >= deadline:
            raise TimeoutError(f"process {pid} still runs {STOPS_WITHIN_SECONDS:g} s after SIGSTOP")
        time.sleep(0.002)


def all_threads_stopped(pid: int) -> bool:
    """Whether no thread runs; true for a process that has ended."""
    return all(state in ("", "T") for state in map(_state, Path(f"/proc/{pid}/task").glob("*")))


def _state(task: Path) -> str:
    """The letter of its state (proc_pid_stat(5)), empty when it has ended."""
    try:
        return (task / "stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""
