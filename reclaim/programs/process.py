"""Runs one program, and ends it: whatever it does, no run takes longer than its time and `LEFT_BEHIND_SECONDS`.

* It is started by a process of its own (`launcher_process`), so that no start holds up this one, and one that hangs is
  ended like a program that hangs.
* It is started by the descriptor that was checked (`program_file`), not by its path. A script finds its file there as
  well: the kernel hands `/proc/self/fd/N` to the interpreter, so this one descriptor stays open in the child; `argv[0]`
  is the path.
* There is no shell. The child has a session of its own and no terminal, `/dev/null` as its input, two pipes as its
  outputs, no other descriptor, the directory `/`, umask 022, and the environment that it is given. Priority and OOM
  score are this process's. No signal is blocked in it, although the daemon blocks some.
* When its time is over, or a stop comes, its group gets SIGTERM, and 5 s later SIGKILL. Unlike a removal that a runtime
  was asked for, it does not outlive the daemon in any case: its supervisor kills it, and its service would be killed
  with all that is in it.
* Its end is the end of the process that was started. Its supervisor kills then what is left of it. Nobody waits for the
  outputs to be closed.
* The calling thread does all of it, by looking at the run every 50 ms or sooner: the event that tells of a stop cannot
  be waited for together with descriptors.
"""

from __future__ import annotations

import errno
import marshal
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from reclaim.programs.program_file import ProgramUser, own_user
from reclaim.services import Clock
from reclaim.types import RemovalFailed

TERM_SECONDS = 5.0  # between SIGTERM and SIGKILL
KILL_SECONDS = 4.0  # how long a process that was killed is waited for: one that hangs in the kernel stays
LEFT_BEHIND_SECONDS = TERM_SECONDS + KILL_SECONDS + 1.0
LOOK_SECONDS = 0.05
READ_BYTES = 64 * 1024
UNPACED_BYTES = 1 << 20  # so much of its output is read as fast as it comes
PACE_SECONDS = 0.002  # between two readings after that: a program that prints for ever costs no core
LAST_READINGS = 32  # of an output after the end: a pipe holds one, and what is left behind may write on

_LAUNCHER_PROCESS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "launcher_process.py")
_LONGEST_NEWS = 64

Output = Callable[[bytes], str]
"""Takes what a program prints; why it has to be ended, as the end of a sentence, or empty."""


class Launcher:
    """The process of this process that starts programs. Any thread may call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._requests: socket.socket | None = None

    def prepare(self) -> None:
        """Starts it, where it does not run. Raises OSError."""
        with self._lock:
            self._running()

    def request(self, data: bytes, descriptors: Sequence[int]) -> None:
        """Asks for a program, and does not wait for it. Raises OSError."""
        with self._lock:
            try:
                socket.send_fds(self._running(), [data], descriptors, socket.MSG_DONTWAIT)
            except (BrokenPipeError, ConnectionResetError):
                self._forget()  # it was killed: another one
                socket.send_fds(self._running(), [data], descriptors, socket.MSG_DONTWAIT)

    def _running(self) -> socket.socket:
        if self._requests is None:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            try:
                with theirs:
                    self._process = subprocess.Popen(
                        [sys.executable, "-I", "-S", "-B", _LAUNCHER_PROCESS, str(theirs.fileno())],
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

    def _forget(self) -> None:
        if self._requests is not None and self._process is not None:
            self._requests.close()
            self._requests = None
            self._process.poll()


LAUNCHER: Final = Launcher()
"""That of this process: where no program is configured, none is started."""


class ProgramRun:
    """One run of a program that was asked for.

    `pid`: its number; 0 until it is known. `status`: its exit code, or a signal as a negative number; None until it has
    ended. `problem`: what was wrong with it, as the end of a sentence; empty if nothing was. `left_behind`: how many
    processes that had left its group were killed.
    """

    def __init__(
        self,
        program: int,
        argv: Sequence[str],
        environment: Mapping[str, str],
        user: ProgramUser | None,
        outputs: tuple[Output, Output],
    ):
        """Asks for it. `program`: the descriptor of the file that was checked. `outputs`: for what it prints, and for
        its errors. Raises RemovalFailed."""
        self.pid = 0
        self.status: int | None = None
        self.problem = ""
        self.left_behind = 0
        self._title = f"the program {argv[0]}"
        self._user = None if own_user(user) else user
        self._open: dict[int, Output] = {}
        self._poll = select.poll()
        self._errno = 0
        self._too_much = ""
        self._read_bytes = 0
        self._news, news = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        theirs: list[int] = []
        try:
            for output in outputs:
                reading, writing = os.pipe2(os.O_CLOEXEC)
                theirs.append(writing)
                self._open[reading] = output
            LAUNCHER.request(_request(argv, environment, self._user), (news.fileno(), program, *theirs))
        except (OSError, ValueError) as error:
            self._close_pipes()
            self.close()
            raise self._not_started(error) from error
        finally:
            news.close()
            for end in theirs:
                os.close(end)
        for reading in self._open:
            os.set_blocking(reading, False)
            self._poll.register(reading, select.POLLIN)
        self._poll.register(self._news, select.POLLIN)

    def watch(self, seconds: float, clock: Clock, stopping: threading.Event) -> None:
        """Until it has ended, or cannot be: then its status stays None, and it may be looked at later. `stopping`: ends
        it when it is set. Raises RemovalFailed if it could not be started."""
        try:
            self._watch(seconds, clock, stopping)
            self._read_rest()
        except BaseException:  # it could not be started; or a defect, of whoever takes the lines for instance
            self.close()
            raise
        finally:
            self._close_pipes()
        if self.status is not None:
            self.close()
            self.problem = self.problem or self._too_much or _status_problem(self.status)

    def look(self) -> None:
        """Takes the news, without waiting. Whose supervisor has died, or was never there, counts as killed."""
        while self.status is None:
            try:
                news = self._news.recv(_LONGEST_NEWS, socket.MSG_DONTWAIT).split()
            except BlockingIOError:
                return
            except OSError:
                news = []
            match news:
                case [b"pid", number]:
                    self.pid = int(number)
                case [b"errno", number]:
                    self._errno = int(number)
                case [b"ended", status, left]:
                    self.status, self.left_behind = int(status), int(left)
                case _:
                    self.status = -signal.SIGKILL

    def close(self) -> None:
        """Whatever is left of it is killed. May be called twice."""
        self._news.close()

    def _watch(self, seconds: float, clock: Clock, stopping: threading.Event) -> None:
        deadline, killed = clock.monotonic() + seconds, False
        self.look()
        while self.status is None:
            now = clock.monotonic()
            if not self.problem:
                late = f"had not ended after {seconds:g} s" if now >= deadline else ""
                stop = "was ended because reclaimd was told to stop" if stopping.is_set() else ""
                self.problem = self._too_much or late or stop
                if self.problem:
                    deadline = now + TERM_SECONDS
                    self._signal(signal.SIGTERM)
            elif not self.pid:
                raise self._not_started(OSError(errno.ETIMEDOUT, "its launcher does not answer"))
            elif now >= deadline:
                if killed:
                    self.problem += f"; it hangs in the kernel as process {self.pid}, SIGKILL has not ended it"
                    return
                deadline, killed = now + KILL_SECONDS, True
                self._signal(signal.SIGKILL)
            self._read_ready(LOOK_SECONDS)
            self.look()
        if self._errno:
            raise self._not_started(OSError(self._errno, os.strerror(self._errno)))
        if killed:
            self.problem += "; SIGTERM has not ended it, SIGKILL has"

    def _signal(self, number: signal.Signals) -> None:
        try:
            self._news.send(b"%d" % number, socket.MSG_DONTWAIT)
        except OSError:  # its supervisor has died, which the next look shows
            pass

    def _read_rest(self) -> None:
        for _ in range(LAST_READINGS):
            if not self._read_ready(0):
                return

    def _read_ready(self, seconds: float) -> bool:
        """Whether there was something to read within so many seconds. News of the run end the wait, too."""
        ready = [each for each, _ in self._poll.poll(1000 * seconds) if each in self._open]
        for descriptor in ready:
            try:
                printed = os.read(descriptor, READ_BYTES)
            except BlockingIOError:
                continue
            self._read_bytes += len(printed)
            if not printed:
                self._poll.unregister(descriptor)
                os.close(descriptor)
                del self._open[descriptor]
            else:
                self._too_much = self._open[descriptor](printed) or self._too_much
        if ready and seconds and self._read_bytes > UNPACED_BYTES:
            time.sleep(PACE_SECONDS)
        return bool(ready)

    def _close_pipes(self) -> None:
        for descriptor in self._open:
            os.close(descriptor)
        self._open.clear()

    def _not_started(self, error: OSError | ValueError) -> RemovalFailed:
        return RemovalFailed(f"{self._title} could not be started: {_why(error, self._user)}")


def _request(argv: Sequence[str], environment: Mapping[str, str], user: ProgramUser | None) -> bytes:
    """Raises ValueError for a zero byte."""
    if any("\0" in text for text in (*argv, *environment, *environment.values())):
        raise ValueError("embedded null byte")
    variables = {os.fsencode(name): os.fsencode(value) for name, value in environment.items()}
    return marshal.dumps((tuple(map(os.fsencode, argv)), variables, None if user is None else tuple(user)))


def _status_problem(status: int) -> str:
    if status >= 0:
        return f"exited with {status}" if status else ""
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"was ended by signal {-status}"


def _why(error: OSError | ValueError, user: ProgramUser | None) -> str:
    words = (error.strerror if isinstance(error, OSError) else None) or str(error)
    match getattr(error, "errno", None):
        case errno.ENOEXEC:
            return f"{words} (a script begins with a line like #!/bin/sh)"
        case errno.ENOENT:
            return f"{words} (the interpreter that its first line names, or its loader)"
        case errno.EPERM if user is not None:
            return f"{words} (this process may not become uid {user.uid}, gid {user.gid})"
    return words
