"""Has programs started by a process of their own (`launcher_process`), so that no start holds up this one."""

from __future__ import annotations

import errno
import marshal
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

from reclaim.programs.settings import ProgramUser

_PROCESS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "launcher_process.py")
_LONGEST_ANSWER = 32


class Started:
    """A program whose start was asked for. Its socket is kept until `close`; then the program is reaped, and killed if
    it still runs.

    `pid`: its number, which is that of its group; 0 until it is known. `status`: its exit code, or a signal as a
    negative number; None until it has ended. `lost`: its supervisor has died.
    """

    def __init__(self, run: socket.socket):
        self._run = run
        self.pid = 0
        self.status: int | None = None
        self.lost = False

    def fileno(self) -> int:
        """Of the socket, which can be read when there is news."""
        return self._run.fileno()

    @property
    def group(self) -> int:
        """The number of its group; 0 where it may be somebody else's by now."""
        return 0 if self.lost else self.pid

    def look(self) -> None:
        """Takes the news, without waiting. Whose supervisor has died, or was never there, counts as killed."""
        while self.status is None:
            try:
                told = self._run.recv(_LONGEST_ANSWER, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except OSError:
                told = b""
            if not told:
                self.lost, self.status = True, -signal.SIGKILL
            elif self.pid:
                self.status = int(told)
            else:
                self.pid = int(told)

    def signal_group(self, number: signal.Signals) -> None:
        """Sends it to the program and all of its group. Its number is its own: it is not reaped before `close`."""
        if not self.group:
            return
        with suppress(PermissionError):  # all of them have become another user
            try:
                os.killpg(self.pid, number)
            except ProcessLookupError:  # it has no group yet, or all are gone
                with suppress(ProcessLookupError):
                    os.kill(self.pid, number)

    def close(self) -> None:
        """Lets its supervisor reap it. May be called twice."""
        self._run.close()


class Launcher:
    """The launcher of this process. Any thread may call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._requests: socket.socket | None = None

    def prepare(self) -> None:
        """Starts its process, where it does not run. Raises OSError."""
        with self._lock:
            self._running()

    def start(
        self,
        program: int,
        argv: Sequence[str],
        environment: Mapping[str, str],
        user: ProgramUser | None,
        outputs: tuple[int, int],
        failure: int,
    ) -> Started:
        """Asks for a program, and does not wait for it. `failure`: a pipe into which the number of an error is written
        where it cannot be started. Raises OSError, and ValueError for a zero byte in an argument."""
        if any("\0" in text for text in (*argv, *environment, *environment.values())):
            raise ValueError("embedded null byte")
        variables = {os.fsencode(name): os.fsencode(value) for name, value in environment.items()}
        to_become = None if user is None else (user.uid, user.gid)
        data = marshal.dumps((tuple(map(os.fsencode, argv)), variables, to_become))
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with theirs, self._lock:
                self._send(data, (theirs.fileno(), program, *outputs, failure))
        except BaseException:
            ours.close()
            raise
        return Started(ours)

    def _send(self, data: bytes, descriptors: Sequence[int]) -> None:
        """Raises OSError."""
        try:
            socket.send_fds(self._running(), [data], descriptors, socket.MSG_DONTWAIT)
        except OSError as error:
            if error.errno not in (errno.EPIPE, errno.ECONNRESET):
                raise
            self._end()  # it was killed: another one
            socket.send_fds(self._running(), [data], descriptors, socket.MSG_DONTWAIT)

    def _running(self) -> socket.socket:
        if self._requests is None:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            try:
                with theirs:
                    self._process = subprocess.Popen(
                        [sys.executable, "-I", "-S", "-B", _PROCESS, str(theirs.fileno())],
                        pass_fds=(theirs.fileno(),),
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.DEVNULL,
                        stderr=subprocess.DEVNULL,
                        env={},
                        start_new_session=True,  # a terminal's signals are for the daemon
                    )
            except BaseException:
                ours.close()
                raise
            self._requests = ours
        return self._requests

    def _end(self) -> None:
        if self._requests is not None and self._process is not None:
            self._requests.close()
            self._requests = None
            self._process.poll()


LAUNCHER: Final = Launcher()
"""That of this process: where no program is configured, none is started."""
