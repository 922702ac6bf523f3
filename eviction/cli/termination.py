"""SIGTERM and SIGINT, waited for on a thread of their own.

A Python signal handler runs between two instructions of the main thread, and setting an Event there can wait for ever
for a lock that the same thread holds. So the signals are blocked in every thread, and one thread waits for them.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable

SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT})


def block_termination() -> None:
    """Keeps the signals pending. To be called before any other thread starts: threads inherit it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)


def on_termination(call: Callable[[], None]) -> None:
    """Calls `call`, on another thread, at each SIGTERM or SIGINT from now on, and for one that is pending."""

    def wait() -> None:
        while True:
            signal.sigwait(SIGNALS)
            call()

    threading.Thread(target=wait, name="termination", daemon=True).start()
