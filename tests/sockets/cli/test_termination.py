"""Signals in a process of its own, in which one thread waits for them and
others let them through.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

LET_THROUGH = """
import os, signal, threading
from eviction.cli.process import on_signals

ended, reloaded, over = threading.Event(), threading.Event(), threading.Event()
assert on_signals(ended.set, reloaded.set) is None
ready = threading.Event()

def lets_them_through():
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
        signal.pthread_kill(threading.get_ident(), number)  # as the kernel may choose this thread
    signal.pthread_sigmask(signal.SIG_SETMASK, {signal.SIGHUP, signal.SIGTERM, signal.SIGINT})

thread = threading.Thread(target=lets_them_through)
thread.start()
thread.join()
print(ended.wait(60), reloaded.wait(60))
"""


@pytest.mark.regression
def test_a_signal_that_another_thread_gets_is_not_lost_and_ends_nothing() -> None:
    """SIGTERM, SIGINT and SIGHUP reach the thread that waits for them."""
    ended = subprocess.run(
        [sys.executable, "-c", LET_THROUGH], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "True True\n", "")
