"""Waits for SIGTERM, SIGINT and SIGHUP on a thread.

A Python signal handler runs between two instructions of the main thread; if it sets an Event whose lock that thread
holds, it waits for ever. So the signals are blocked in every thread, and one thread waits for them. It does nothing
that could hang or fail: reloading, which reads files, has a thread of its own.

A thread of a plugin may let the signals through. A signal that reaches such a thread is sent again, for the thread that
waits.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

LEAVE_SECONDS = 34.0  # more than all that the end of the daemon waits for
FOREVER = 1e9  # monotonic seconds: 31 years after the boot
END = frozenset({signal.SIGTERM, signal.SIGINT})
RELOAD = frozenset({signal.SIGHUP})


def block_termination() -> None:
    """Blocks SIGTERM and SIGINT, which stay pending. Call it before any other thread starts: threads inherit it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, END)


@contextmanager
def termination_let_through() -> Iterator[None]:
    """Unblocks SIGTERM and SIGINT for the `with` block, so that they end the process while it waits for an answer."""
    blocked = signal.pthread_sigmask(signal.SIG_UNBLOCK, END)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def on_signals(
    end: Callable[[], None], reload: Callable[[], None] | None = None, leave: Callable[[], None] = lambda: None
) -> str | None:
    """Calls `end`, on another thread, at each SIGTERM or SIGINT from now on, and for one that is pending; `reload`,
    where it is given, after each SIGHUP on a further thread: one that hangs or raises keeps no `end` from being called.
    Blocks these signals, so call it, or `block_termination`, before any other thread starts.

    `leave` is called if the process is still running 34 s after the first of them, because something hangs.

    Returns a sentence that says what does not work because a thread could not be started, else None. Without the first
    thread SIGTERM and SIGINT end the process at once.
    """
    asked = threading.Event()
    awaited = END if reload is None else END | RELOAD
    signal.pthread_sigmask(signal.SIG_BLOCK, awaited)

    def wait_for_end() -> None:
        until = FOREVER
        while True:
            received = signal.sigtimedwait(awaited, max(until - time.monotonic(), 0.0))
            with suppress(Exception):  # whatever it did, this thread waits for the next signal
                if received is None:
                    until = FOREVER
                    leave()
                elif received.si_signo in RELOAD:
                    asked.set()
                else:
                    until = min(until, time.monotonic() + LEAVE_SECONDS)
                    end()

    def wait_for_reload(reload: Callable[[], None]) -> None:
        while asked.wait():
            asked.clear()
            with suppress(Exception):  # `reload` logs what went wrong
                reload()

    try:
        threading.Thread(target=wait_for_end, name="termination", daemon=True).start()
    except RuntimeError:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, END)
        return "no thread can be started for signals: SIGTERM ends the daemon at once, SIGHUP does nothing"
    for each in awaited:
        signal.signal(each, _send_again)
    try:
        if reload is not None:
            threading.Thread(target=wait_for_reload, args=(reload,), name="reload", daemon=True).start()
    except RuntimeError:
        return "no thread can be started for reloading: SIGHUP does nothing"
    return None


def _send_again(number: int, _: FrameType | None) -> None:
    """Runs on the main thread, which has the signal blocked."""
    os.kill(os.getpid(), number)
