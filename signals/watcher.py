"""Watches directories with inotify and asks for an earlier observation. Only this module imports pyinotify.

inotify is a hint only. It does not report writes one level down or through mmap, it stops after an unmount or when
the directory is replaced, and it drops events when its queue is full. Everything that this project guarantees holds
with watching switched off; a watch only makes the next observation earlier.

pyinotify's WatchManager creates and holds the watches. Its Notifier is not used: it reads the whole queue at once
(16 384 events: several 100 ms), blocks on an empty queue, and fails on a name that is not UTF-8. Here a thread
reads at most 8 KiB at a time, decodes no names, and pauses between reads, so that a storm of events costs a bounded
share of a core.

Covers: adding and renewing watches, reading events. Does not cover: what is observed then.
"""

from __future__ import annotations

import logging
import os
import select
import struct
import threading
from collections.abc import Callable, Iterable

import pyinotify

READ_BYTES = 8192
PAUSE_SECONDS = 0.005  # between two reads: at most 200 a second, whatever happens in the directories
STOP_SECONDS = 1.0
REARM_SECONDS = 5.0  # how often a directory that is missing is tried again

_HEADER = struct.Struct("iIII")  # wd, mask, cookie, length of the name (inotify(7))
_GONE = pyinotify.IN_IGNORED | pyinotify.IN_UNMOUNT | pyinotify.IN_MOVE_SELF | pyinotify.IN_DELETE_SELF
_MASK = (
    pyinotify.IN_CREATE
    | pyinotify.IN_MOVED_TO
    | pyinotify.IN_DELETE_SELF
    | pyinotify.IN_MOVE_SELF
    | pyinotify.IN_UNMOUNT
    | pyinotify.IN_ONLYDIR
)

# On import pyinotify installs a handler that writes to stderr; the log of the daemon must stay in its own format.
logging.getLogger("pyinotify").handlers.clear()
logging.getLogger("pyinotify").addHandler(logging.NullHandler())
logging.getLogger("pyinotify").propagate = False


class FsWatcher:
    """Calls `notify` soon after a file or directory was created in one of the directories, or moved there.

    Directories that do not exist are tried again every 5 s. `notify` is called on the watcher's thread, at most 200
    times a second; it must return at once. If the kernel gives no inotify instance (there are 128 for each user by
    default), `problem` says so in a sentence and nothing is watched. `events_total` counts the events read so far.
    """

    def __init__(self, directories: Iterable[str], notify: Callable[[], None]):
        self.problem: str | None = None
        self.events_total = 0
        self._notify = notify
        self._wanted = frozenset(directories)
        self._armed: dict[str, int] = {}  # two paths to one directory share a watch descriptor
        self._lock = threading.Lock()
        self._manager: pyinotify.WatchManager | None = None
        self._wake_read, self._wake_write = -1, -1
        self._closing = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Starts watching. Never raises: without inotify nothing is watched, and `problem` says so."""
        try:
            self._manager = pyinotify.WatchManager()
        except (OSError, pyinotify.PyinotifyError) as error:
            self.problem = f"no inotify instance ({error}); observing at intervals only"
            return
        descriptor = self._manager.get_fd()
        os.set_blocking(descriptor, False)
        os.set_inheritable(descriptor, False)
        try:
            self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
            self._arm()
            thread = threading.Thread(target=self._serve, name="inotify", daemon=True)
            thread.start()
        except (OSError, RuntimeError) as error:
            self.problem = f"no descriptors or no thread for inotify ({error}); observing at intervals only"
            self.stop()
        else:
            self._thread = thread

    def watch(self, directories: Iterable[str]) -> None:
        """Replaces the set of watched directories."""
        with self._lock:
            self._wanted = frozenset(directories)
        self._wake_up()

    @property
    def watched(self) -> frozenset[str]:
        """The directories that the kernel watches now."""
        with self._lock:
            return frozenset(self._armed)

    def stop(self) -> None:
        """Ends the thread and closes the descriptors. May be called twice, and without `start`.

        Waits at most 1 s. A thread that is stuck in the kernel on a dead filesystem ends with the process.
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
        if self._wake_write >= 0:
            os.close(self._wake_read)
            os.close(self._wake_write)
            self._wake_write = -1

    def _wake_up(self) -> None:
        if self._wake_write >= 0:
            try:
                os.write(self._wake_write, b"\0")
            except BlockingIOError:  # the pipe is full, so the thread will wake up anyway
                pass

    def _arm(self) -> None:
        """Adds and removes watches, on the watcher's thread. inotify_add_watch(2) may block for ever on a dead
        filesystem, so it is never called under the lock."""
        assert self._manager is not None
        with self._lock:
            missing = self._wanted.difference(self._armed)
            unwanted = {path: self._armed.pop(path) for path in self._armed.keys() - self._wanted}
            still_armed = set(self._armed.values())
        for path in missing:
            descriptor = self._manager.add_watch(path, _MASK, quiet=True).get(path, -1)
            if descriptor > 0:
                with self._lock:
                    self._armed[path] = descriptor
                still_armed.add(descriptor)
        for descriptor in set(unwanted.values()) - still_armed:
            self._manager.rm_watch(descriptor, quiet=True)

    def _serve(self) -> None:
        assert self._manager is not None
        descriptor = self._manager.get_fd()
        while not self._closing:
            ready, _, _ = select.select([descriptor, self._wake_read], [], [], REARM_SECONDS)
            if self._wake_read in ready:
                _read(self._wake_read)
            if descriptor in ready and self._drain(_read(descriptor)):
                self._notify()
            if not self._closing:
                self._arm()
                if ready:
                    threading.Event().wait(PAUSE_SECONDS)

    def _drain(self, data: bytes) -> bool:
        """True if `data` holds an event. Watches that the kernel has dropped are forgotten, to be added again."""
        position, seen = 0, 0
        while position + _HEADER.size <= len(data):
            descriptor, mask, _, name_length = _HEADER.unpack_from(data, position)
            position += _HEADER.size + name_length
            seen += 1
            if mask & _GONE:
                self._forget(descriptor, mask)
        self.events_total += seen
        return seen > 0

    def _forget(self, descriptor: int, mask: int) -> None:
        assert self._manager is not None
        with self._lock:
            for path in [path for path, armed in self._armed.items() if armed == descriptor]:
                del self._armed[path]
        if self._manager.get_watch(descriptor) is None:
            return
        if mask & pyinotify.IN_IGNORED:
            self._manager.del_watch(descriptor)
        else:  # the directory was moved, for example: the kernel still watches it under its new path
            self._manager.rm_watch(descriptor, quiet=True)


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, READ_BYTES)
    except (BlockingIOError, InterruptedError):
        return b""
