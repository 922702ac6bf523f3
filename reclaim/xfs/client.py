"""Asks the XFS helper (`reclaim.xfs.helper`), and waits for its answer for a limited time only.

The socket is connected once, at the start of the daemon, so that a call needs no new descriptor. A helper that was
started anew is connected to anew. After an answer that did not come in time the connection is given up, so that a late
answer is never taken for that of another request.

Nothing that the helper says is believed: whether space came back is read from the disk. So it need not be known whose
socket it is.

Covers: one request at a time, and what the answer means. Does not cover: when to ask (`release`).
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum

from reclaim.clock import Clock

DEADLINE_SECONDS = 0.1  # of one request: the call takes 0.03 ms, and up to 70 ms beside a writer on a busy machine
LONGEST_ANSWER = 256


class ReleaseResult(StrEnum):
    """How a request to the helper ended; the values of a label of the metrics."""

    RELEASED = "released"
    NOTHING = "nothing"
    NO_HELPER = "no_helper"
    LATE = "late"
    NOT_LISTED = "not_listed"
    NOT_A_MOUNT_POINT = "not_a_mount_point"
    NOT_XFS = "not_xfs"
    NOT_PERMITTED = "not_permitted"
    NOT_SUPPORTED = "not_supported"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Answer:
    """How one request ended, and why nothing was done, as a sentence; empty if it was done."""

    result: ReleaseResult
    problem: str = ""


_RESULTS = {
    "not-listed": (ReleaseResult.NOT_LISTED, "it is not among the mount points that its command line names"),
    "not-a-mount-point": (ReleaseResult.NOT_A_MOUNT_POINT, "the helper sees no mount point there"),
    "not-xfs": (ReleaseResult.NOT_XFS, "the helper sees another filesystem than XFS there"),
    "ENOENT": (ReleaseResult.NOT_A_MOUNT_POINT, "the helper sees nothing there"),
    "ENOTDIR": (ReleaseResult.NOT_A_MOUNT_POINT, "the helper sees a symlink there, or no directory"),
    "EPERM": (ReleaseResult.NOT_PERMITTED, "the helper lacks CAP_SYS_ADMIN (EPERM)"),
    "ENOTTY": (ReleaseResult.NOT_SUPPORTED, "this kernel's XFS has no XFS_IOC_FREE_EOFBLOCKS (ENOTTY)"),
}


class XfsHelper:
    """The client of the helper at a path. For one thread at a time."""

    def __init__(self, path: str, clock: Clock, seconds: float = DEADLINE_SECONDS):
        self.path = path
        self._clock = clock
        self._seconds = seconds
        self._socket: socket.socket | None = None

    def connect(self) -> None:
        """Connects beforehand where the helper is there; where it is not, the next request tries again."""
        with suppress(OSError):
            self._connected(self._clock.monotonic() + self._seconds)

    def release(self, mount_point: str) -> Answer:
        """Has XFS give back what it allocated ahead on this filesystem. Never raises for what the helper does."""
        return self._ask("release", mount_point)

    def check(self, mount_point: str) -> Answer:
        """The same up to the call, which is not done: whether it would be."""
        return self._ask("check", mount_point)

    def close(self) -> None:
        """Ends the connection."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _ask(self, what: str, mount_point: str) -> Answer:
        deadline = self._clock.monotonic() + self._seconds
        request = what.encode() + b" " + os.fsencode(mount_point)
        try:
            told = self._exchange(request, deadline)
        except (TimeoutError, BlockingIOError):
            self.close()
            sentence = f"the XFS helper at {self.path} did not answer within {self._seconds * 1000:g} ms"
            return Answer(ReleaseResult.LATE, sentence)
        except OSError as error:
            self.close()
            why = error.strerror or str(error)
            return Answer(ReleaseResult.NO_HELPER, f"no XFS helper answers at {self.path}: {why}")
        if told == "ok":
            return Answer(ReleaseResult.RELEASED)
        result, words = _RESULTS.get(told, (ReleaseResult.FAILED, f"the helper answered {told!r}"))
        return Answer(result, f"the XFS helper does nothing for {mount_point}: {words}")

    def _exchange(self, request: bytes, deadline: float) -> str:
        """The answer to a request; over a new connection if the old one has ended. Raises OSError."""
        had_connection = self._socket is not None
        try:
            return self._sent(self._connected(deadline), request, deadline)
        except (BrokenPipeError, ConnectionError):
            self.close()
            if not had_connection:
                raise
        return self._sent(self._connected(deadline), request, deadline)

    def _sent(self, connection: socket.socket, request: bytes, deadline: float) -> str:
        connection.settimeout(self._left(deadline))
        connection.send(request)
        connection.settimeout(self._left(deadline))
        told = connection.recv(LONGEST_ANSWER)
        if not told:
            raise ConnectionResetError("it has closed the connection")
        return told.decode("ascii", "backslashreplace")

    def _connected(self, deadline: float) -> socket.socket:
        if self._socket is None:
            made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            try:
                made.settimeout(self._left(deadline))
                made.connect(self.path)
            except OSError:
                made.close()
                raise
            self._socket = made
        return self._socket

    def _left(self, deadline: float) -> float:
        left = deadline - self._clock.monotonic()
        if left <= 0:
            raise TimeoutError
        return left
