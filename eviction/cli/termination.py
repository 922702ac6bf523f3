"""Waits for SIGTERM, SIGINT and SIGHUP on a thread.

A Python signal handler runs between two instructions of the main thread; if it sets an Event whose lock that thread
holds, it waits for ever. So the signals are blocked in every thread, and one thread waits for them.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

END = frozenset({signal.SIGTERM, signal.SIGINT})
RELOAD = frozenset({signal.SIGHUP})


def block_termination() -> None:
    """Blocks SIGTERM and SIGINT, which stay pending. Call it before any other thread starts: threads inherit it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, END)


def block_reload() -> None:
    """The same for SIGHUP, for a program that has something to reload."""
    signal.pthread_sigmask(signal.SIG_BLOCK, RELOAD)


@contextmanager
def termination_let_through() -> Iterator[None]:
    """Unblocks SIGTERM and SIGINT for the `with` block, so that they end the process while it waits for an answer."""
    blocked = signal.pthread_sigmask(signal.SIG_UNBLOCK, END)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def on_signals(end: Callable[[], None], reload: Callable[[], None] | None = None) -> None:
    """Calls `end`, on another thread, at each SIGTERM or SIGINT from now on, and for one that is pending; `reload` at
    each SIGHUP, where it is given."""
    awaited = END if reload is None else END | RELOAD

    def wait() -> None:
        while True:
            if signal.sigwait(awaited) in END or reload is None:
                end()
            else:
                reload()

    threading.Thread(target=wait, name="termination", daemon=True).start()
