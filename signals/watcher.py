"""Watches directories with inotify and asks for an earlier observation. Only this
module imports pyinotify.

inotify is only a hint. It does not report writes one level down or through mmap, it stops after
an unmount or when the directory is replaced, and it drops events when its queue is full.
Everything that this project guarantees holds with watching switched off; a watch only makes the
next observation earlier.

So it does not matter what an event says, only that there was one. The queue is emptied at most four
times a second. After that, and every few seconds, all directories are watched anew: nothing changes
for those that are watched already. pyinotify's WatchManager creates and holds the watches. Its
Notifier is not used: it decodes the whole queue at once (16 384 events: several 100 ms), blocks on
an empty queue, and fails on a name that is not UTF-8.
"""

import logging
import os
import select
import threading
from collections.abc import Callable, Iterable
from typing import Any

import pyinotify

from signals.interval import MIN_NOTIFY_SECONDS

READ_BYTES = 1 << 20  # a full queue of 16 384 events takes half of it, with names of up to 15 bytes
STOP_SECONDS = 1.0

# The kernel reports removed and unmounted directories by itself (IN_IGNORED).
_MASK = pyinotify.IN_CREATE | pyinotify.IN_MOVED_TO | pyinotify.IN_MOVE_SELF | pyinotify.IN_ONLYDIR

# On import pyinotify installs a handler that writes to stderr; the daemon's log
# must keep its own format.
_LOGGER = logging.getLogger("pyinotify")
_LOGGER.handlers.clear()
_LOGGER.addHandler(logging.NullHandler())
_LOGGER.propagate = False


class FsWatcher:
    """Calls `notify` soon after something is created in, or moved to, a directory.

    Missing directories are tried again every `rearm_seconds`. `notify` is called on the watcher's
    thread, at most four times a second; it must return at once. If the kernel has no inotify
    instance left (128 per user by default), or no descriptor or thread, `problem` says so in a
    sentence and nothing is watched.
    """

    def __init__(
        self, directories: Iterable[str], notify: Callable[[], None], rearm_seconds: float
    ):
        self.problem: str | None = None
        self._notify = notify
        self._rearm_seconds = rearm_seconds
        self._wanted = frozenset(directories)
        self._armed: dict[str, int] = {}  # two paths to one directory share a watch descriptor
        self._manager: Any = None  # a pyinotify.WatchManager, from the start to the end
        self._wake = -1  # an eventfd(2)
        self._closing = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Starts watching.

        Never raises: without inotify nothing is watched, and `problem` says why.
        """
        try:
            self._manager = pyinotify.WatchManager()
            descriptor = self._manager.get_fd()
            os.set_blocking(descriptor, False)
            os.set_inheritable(descriptor, False)
            self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            self._arm()
            thread = threading.Thread(target=self._serve, name="inotify", daemon=True)
            thread.start()
        except (OSError, RuntimeError, pyinotify.PyinotifyError) as error:
            self.problem = f"inotify cannot be used ({error}); observing at intervals only"
            self.stop()
        else:
            self._thread = thread

    def watch(self, directories: Iterable[str]) -> None:
        """Replaces the set of watched directories. Any thread may call."""
        self._wanted = frozenset(directories)
        self._wake_up()

    @property
    def watched(self) -> frozenset[str]:
        """The directories that the kernel is watching. Any thread may call."""
        return frozenset(self._armed)

    def stop(self) -> None:
        """Ends the thread and closes the descriptors. May be called twice, and without `start`.

        Waits at most 1 s. A thread that is stuck in the kernel on a dead
        filesystem ends with the process.
        """
        self._closing = True
        self._wake_up()
        if self._thread is not None:
            self._thread.join(STOP_SECONDS)
            if self._thread.is_alive():
                return
            self._thread = None
        if self._manager is not None:
            self._manager.close()
            self._manager = None
        if self._wake >= 0:
            os.close(self._wake)
            self._wake = -1

    def _wake_up(self) -> None:
        if self._wake >= 0:
            os.eventfd_write(self._wake, 1)

    def _arm(self) -> None:
        """Watches those of the wanted directories that exist, and nothing else. Runs on the
        watcher's thread, because inotify_add_watch(2) may block forever on a dead filesystem."""
        added = self._manager.add_watch(list(self._wanted), _MASK, quiet=True)
        armed = {path: descriptor for path, descriptor in added.items() if descriptor > 0}
        for descriptor in set(self._armed.values()) - set(armed.values()):
            if not self._manager.rm_watch(descriptor, quiet=True)[descriptor]:
                self._manager.del_watch(descriptor)  # the kernel has dropped it
        self._armed = armed

    def _serve(self) -> None:
        descriptor = self._manager.get_fd()
        while not self._closing:
            ready, _, _ = select.select(
                [descriptor, self._wake], [], [], self._rearm_seconds if self._wanted else None
            )
            if self._wake in ready:
                _read(self._wake)
            elif descriptor in ready and _read(descriptor):
                self._notify()
                select.select([self._wake], [], [], MIN_NOTIFY_SECONDS)
            if not self._closing:
                self._arm()


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, READ_BYTES)
    except (BlockingIOError, InterruptedError):
        return b""
