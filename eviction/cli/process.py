"""A process that removes objects: the signals that end it, and the lock that
allows only one on a node.

A Python signal handler runs between two instructions of the main thread; if it sets an Event whose
lock that thread holds, it waits forever. So the signals are blocked in every thread, and one thread
waits for them, doing nothing that could hang or fail. A library's thread may unblock the signals;
one that arrives there is sent again, for the waiting thread.

The lock is the kernel's (flock(2)), on the directory itself: no file is created, and the lock ends
with the process. If others could open the directory, any local user could hold the lock forever; so
the directory has mode 0700 and belongs to root or to the user that the program runs as. A missing
directory is created with that mode. One that others could open is replaced, as somebody may already
hold a lock on it. If it can be neither created nor opened (for example, because /run has no inode
left), relief is worth more than exclusion: the daemon runs without the lock and says so. The checks
before each removal still protect against two instances.
"""

import errno
import fcntl
import os
import signal
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

from eviction.cli.output import exit_on, exit_with
from eviction.configuration.effective import (
    USUAL_ENDPOINTS,
    Configuration,
    ConfigurationError,
    choose_endpoint,
)
from eviction.exit_codes import EXIT_HELD, EXIT_USAGE
from eviction.types import EvictionError
from eviction.wording.log import Log
from reclaim.trust import own_directory_refusal
from reclaim.workers import in_time
from signals.quantity import reason_of

LEAVE_SECONDS = 34.0  # longer than everything that the daemon waits for when it ends
FOREVER = 1e9  # monotonic seconds: 31 years after boot
END = frozenset({signal.SIGTERM, signal.SIGINT})

MODE = 0o700
FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
TRIES = 10  # the directory may be replaced between opening and locking it


# ---- signals


def block_termination() -> None:
    """Blocks SIGTERM and SIGINT, which stay pending.

    Call it before any other thread starts: threads inherit it.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, END)


@contextmanager
def termination_let_through() -> Iterator[None]:
    """Unblocks SIGTERM and SIGINT for the `with` block, so that they end a process
    that waits for an answer.
    """
    blocked = signal.pthread_sigmask(signal.SIG_UNBLOCK, END)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def on_signals(
    end: Callable[[], None],
    hang_up: Callable[[], None] | None = None,
    leave: Callable[[], None] = lambda: None,
) -> str | None:
    """Calls `end`, on another thread, at each SIGTERM or SIGINT, including a pending one, and
    `hang_up`, if given, at each SIGHUP. Neither may hang. Blocks these signals, so call it, or
    `block_termination`, before any other thread starts.

    `leave` is called if the process is still running 34 s after the first SIGTERM or
    SIGINT, because something hangs.

    Returns None, or a sentence if the thread cannot be started. Then SIGTERM and
    SIGINT end the process at once.
    """
    awaited = END if hang_up is None else END | {signal.SIGHUP}
    signal.pthread_sigmask(signal.SIG_BLOCK, awaited)

    def wait_for_signals() -> None:
        until = FOREVER
        while True:
            received = signal.sigtimedwait(awaited, max(until - time.monotonic(), 0.0))
            with suppress(Exception):  # whatever happens, this thread waits for the next signal
                if received is None:
                    until = FOREVER
                    leave()
                elif received.si_signo in END:
                    until = min(until, time.monotonic() + LEAVE_SECONDS)
                    end()
                elif hang_up is not None:
                    hang_up()

    try:
        threading.Thread(target=wait_for_signals, name="termination", daemon=True).start()
    except RuntimeError:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, END)
        return (
            "no thread can be started for signals: SIGTERM ends the daemon at once, SIGHUP does"
            " nothing"
        )
    for each in awaited:
        # runs on the main thread, in which the signal is blocked
        signal.signal(each, lambda number, _: os.kill(os.getpid(), number))
    return None


# ---- the lock


class NodeHeld(EvictionError):
    """Another instance holds the lock. The message is one sentence."""


class LockRefused(ConfigurationError):
    """Others could hold the lock. The message is one sentence."""


@contextmanager
def hold_node(configuration: Configuration, log: Log) -> Iterator[None]:
    """Locks the node for the `with` block, or logs a warning that it cannot. Raises LockRefused.

    Exits with 2 if the kubelet's directory cannot be opened, or if the runtime's socket is refused
    to a user other than root, and with 75 if another instance holds the lock.
    """
    root = configuration.root_directory
    directory = configuration.lock_directory
    if configuration.has_runtime:
        try:
            in_time(lambda: os.close(os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)))
        # readings will report it, and other filesystems are still watched
        except TimeoutError as error:
            log.warning(f"rootDirectory: {root}: {error.strerror}")
        except OSError as error:
            exit_with(
                EXIT_USAGE,
                f"rootDirectory: {root}: {error.strerror}; it must be the kubelet's directory",
            )
        if os.geteuid() != 0 and (refused := _refused_socket(configuration)):
            exit_with(
                EXIT_USAGE,
                f"the container runtime's socket {refused}: Permission denied; nothing could be"
                " removed",
            )
    with ExitStack() as held:
        try:
            with exit_on(EXIT_HELD, NodeHeld):
                held.callback(os.close, lock_of(directory))
        except OSError as error:
            why = f"{directory}: {reason_of(error)}"
            log.warning(f"the node is not locked, so another instance may run too: {why}")
        yield


def _refused_socket(configuration: Configuration) -> str:
    """The runtime's socket, or if it is looked for, a place of one, if this user may
    not use it; empty: he may.
    """
    endpoint = choose_endpoint(configuration)
    known = bool(configuration.runtime_endpoint) or endpoint.found

    def refused(path: str) -> bool:
        try:
            os.stat(path)
            return not os.access(path, os.W_OK)
        except OSError as error:
            return error.errno == errno.EACCES

    paths = [
        one.removeprefix("unix://") for one in ([endpoint.runtime] if known else USUAL_ENDPOINTS)
    ]
    with suppress(OSError):  # a path hangs, as a call will report
        return in_time(lambda: next(filter(refused, paths), ""))
    return ""


def lock_of(directory: str) -> int:
    """A descriptor that holds the lock until it is closed.

    Raises NodeHeld, LockRefused, OSError.
    """
    for _ in range(TRIES):
        try:
            descriptor = os.open(directory, FLAGS)
        except FileNotFoundError:
            for missing in (os.path.dirname(directory), directory):
                os.makedirs(missing, MODE, exist_ok=True)
            descriptor = os.open(directory, FLAGS)
        with ExitStack() as opened:
            opened.callback(os.close, descriptor)
            if _is_locked(directory, descriptor):
                opened.pop_all()
                return descriptor
    raise OSError(errno.EAGAIN, "it is being replaced again and again")


def _is_locked(directory: str, descriptor: int) -> bool:
    """Locks the open directory. False if it is no longer at the path, where the lock would exclude
    nobody. Raises NodeHeld, LockRefused, OSError."""
    try:
        refusal = own_directory_refusal(directory, os.fstat(descriptor))
        if refusal is not None:
            raise LockRefused(f"lockDirectory: {directory} is not trusted: {refusal}")
        if stat.S_IMODE(os.fstat(descriptor).st_mode) != MODE:
            os.rmdir(directory)
            return False
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.lstat(directory), os.fstat(descriptor))
    except FileNotFoundError:  # removed meanwhile
        return False
    except BlockingIOError:
        raise NodeHeld(f"another instance holds the node ({directory} is locked)") from None
    except OSError as error:
        if error.errno != errno.ENOTEMPTY:
            raise
        raise LockRefused(
            f"lockDirectory: {directory} is not trusted: others may open it, and it is not empty"
        ) from None
