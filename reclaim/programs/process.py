"""Runs one program, and ends it: whatever it does, no run takes longer than its time and `LEFT_BEHIND_SECONDS`.

* It is started by a process of its own (`launcher`), so that a start that hangs is ended like a program that hangs.
* It is started by the descriptor that was checked, not by its path. A script finds its file there as well: the kernel
  hands `/proc/self/fd/N` to the interpreter, so this one descriptor stays open in the child; `argv[0]` is the path.
* There is no shell. The child has a session of its own and no terminal, `/dev/null` as its input, two pipes as its
  outputs, no other descriptor, the directory `/`, umask 022, and the environment that it is given. Priority and OOM
  score are this process's. No signal is blocked in it, although the daemon blocks some.
* When its time is over, or a stop comes, its group gets SIGTERM, and 5 s later SIGKILL. Unlike a removal that a runtime
  was asked for, it does not outlive the daemon in any case: its supervisor kills it, and its service would be killed
  with all that is in it.
* Its end is the end of the process that was started. What is left of its group then is killed, and what has left the
  group where it is found (`children`). Nobody waits for the outputs to be closed.
* The calling thread does all of it, by looking at the child every 50 ms or sooner: the event that tells of a stop
  cannot be waited for together with descriptors.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from reclaim.clock import Clock
from reclaim.programs.children import kill_marked, reap_orphans, started_at
from reclaim.programs.launcher import LAUNCHER, Started
from reclaim.programs.output import Output
from reclaim.programs.program_file import own_user
from reclaim.programs.settings import ProgramUser
from reclaim.types import RemovalFailed

TERM_SECONDS = 5.0  # between SIGTERM and SIGKILL
KILL_SECONDS = 4.0  # how long a process that was killed is waited for: one that hangs in the kernel stays
LEFT_BEHIND_SECONDS = TERM_SECONDS + KILL_SECONDS + 1.0
LOOK_SECONDS = 0.05
READ_BYTES = 64 * 1024
DROP_PAUSE_SECONDS = 0.002  # between two readings of what is dropped: a program that prints for ever costs no core
LAST_READINGS = 32  # of an output after the end: a pipe holds one, and what is left behind may write on
PIPES = 3  # its two outputs, and that of a failure to start
MARK = "RECLAIMD_RUN_ID"


class Cause(StrEnum):
    """Why a program was ended."""

    TIMEOUT = "timeout"
    STOPPING = "stopping"
    OUTPUT = "output"


@dataclass(frozen=True, slots=True)
class Command:
    """What is started. `program`: the descriptor of the file that was checked."""

    program: int
    argv: Sequence[str]
    user: ProgramUser | None
    environment: Mapping[str, str]
    timeout_seconds: float


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run ended. `status`: its exit code, or a signal as a negative number; None: it could not be ended. `cause`:
    why it was ended; None: it ended by itself. `killed`: SIGTERM was not enough. `left_behind`: how many processes that
    had left its group were killed. `process`: to be looked at later, and closed, where the status is None."""

    status: int | None
    cause: Cause | None
    killed: bool
    left_behind: int
    process: Started


def run_program(
    command: Command, outputs: tuple[Output, Output], clock: Clock, stopping: threading.Event | None = None
) -> Ended:
    """Runs a program to its end. `outputs`: for what it prints, and for its errors. `stopping`: ends it when it is set.

    Raises RemovalFailed if it could not be started.
    """
    run = _start(command, outputs, clock)
    try:
        return run.watch(clock.monotonic() + command.timeout_seconds, stopping)
    except BaseException:  # it could not be started; or a defect, of whoever takes the lines for instance
        run.kill()
        raise
    finally:
        run.close()


class _Failure:
    """The number of the error with which a program could not be started: an `Output`."""

    dropping = False

    def __init__(self) -> None:
        self.printed = b""

    def write(self, printed: bytes) -> bool:
        """Takes all there is."""
        self.printed += printed
        return True

    def end(self) -> None:
        """It has begun, or never will."""


class _Run:
    """One program whose start was asked for. `pipes`: its two outputs, and that of a failure."""

    def __init__(
        self,
        command: Command,
        process: Started,
        mark: str,
        pipes: Sequence[int],
        outputs: Sequence[Output],
        clock: Clock,
    ):
        self._command = command
        self._process = process
        self._mark = f"{MARK}={mark}".encode()
        self._clock = clock
        self._since = 0  # known when its number is
        self._pipes = pipes
        self._failure = _Failure()
        self._outputs = (*outputs, self._failure)
        self._open: dict[int, Output] = dict(zip(pipes, self._outputs, strict=True))
        self._poll = select.poll()
        for descriptor in self._open:
            os.set_blocking(descriptor, False)
            self._poll.register(descriptor, select.POLLIN)
        self._poll.register(process, select.POLLIN)
        self._too_much = False

    def watch(self, deadline: float, stopping: threading.Event | None) -> Ended:
        """Until it has ended, or cannot be. Raises RemovalFailed if it could not be started."""
        cause: Cause | None = None
        killed = False
        while not self._has_ended():
            now = self._clock.monotonic()
            if cause is None:
                cause = self._cause(now >= deadline, stopping)
                if cause is not None:
                    deadline = now + TERM_SECONDS
                    self._process.signal_group(signal.SIGTERM)
            elif not self._process.pid:
                raise _not_started(self._command, OSError(errno.ETIMEDOUT, "its launcher does not answer"))
            elif now >= deadline:
                if killed:
                    return self._ended(None, cause, killed=True)
                deadline, killed = now + KILL_SECONDS, True
                self._process.signal_group(signal.SIGKILL)
            self._read_ready(LOOK_SECONDS)
        self._process.signal_group(signal.SIGKILL)  # what is left of its group
        return self._ended(self._process.status, cause, killed=killed)

    def kill(self) -> None:
        """At once."""
        self._process.signal_group(signal.SIGKILL)
        self._kill_marked()
        deadline = time.monotonic() + KILL_SECONDS
        while self._process.pid and not self._has_ended() and time.monotonic() < deadline:
            time.sleep(LOOK_SECONDS)
        self._process.close()

    def close(self) -> None:
        """Reads what is there, and closes the pipes. One that could not be ended stays to be looked at."""
        self._read_rest()
        for pipe in self._pipes:
            os.close(pipe)
        for output in self._outputs:
            output.end()
        if self._process.status is not None:
            self._process.close()
        reap_orphans()

    def _ended(self, status: int | None, cause: Cause | None, *, killed: bool) -> Ended:
        left_behind = self._kill_marked()
        self._read_rest()
        if self._failure.printed:
            number = int(self._failure.printed)
            raise _not_started(self._command, OSError(number, os.strerror(number)))
        return Ended(status, cause, killed, left_behind, self._process)

    def _kill_marked(self) -> int:
        """What has left its group; how many there were."""
        return kill_marked(self._mark, self._since, self._process.group) if self._since else 0

    def _cause(self, late: bool, stopping: threading.Event | None) -> Cause | None:
        if self._too_much:
            return Cause.OUTPUT
        if late:
            return Cause.TIMEOUT
        return Cause.STOPPING if stopping is not None and stopping.is_set() else None

    def _has_ended(self) -> bool:
        self._process.look()
        if self._process.pid and not self._since:
            self._since = started_at(self._process.pid)
        return self._process.status is not None

    def _read_rest(self) -> None:
        for _ in range(LAST_READINGS):
            if not self._read_ready(0):
                return

    def _read_ready(self, seconds: float) -> bool:
        """Whether there was something to read within so many seconds. News of the process end the wait, too."""
        ready = [each for each, _ in self._poll.poll(1000 * seconds) if each in self._open]
        for descriptor in ready:
            try:
                printed = os.read(descriptor, READ_BYTES)
            except BlockingIOError:
                continue
            if not printed:
                self._poll.unregister(descriptor)
                del self._open[descriptor]
            elif not self._open[descriptor].write(printed):
                self._too_much = True
        if ready and seconds and any(output.dropping for output in self._open.values()):
            time.sleep(DROP_PAUSE_SECONDS)
        return bool(ready)


def _start(command: Command, outputs: Sequence[Output], clock: Clock) -> _Run:
    """Asks for the program. Raises RemovalFailed."""
    mark, user = os.urandom(16).hex(), None if own_user(command.user) else command.user
    environment = {**command.environment, MARK: mark}
    ours: list[int] = []
    theirs: list[int] = []
    try:
        for _ in range(PIPES):
            for end, ends in zip(os.pipe2(os.O_CLOEXEC), (ours, theirs), strict=True):
                ends.append(end)
        out, errors, failure = theirs
        process = LAUNCHER.start(command.program, command.argv, environment, user, (out, errors), failure)
    except (OSError, ValueError) as error:  # ValueError: a zero byte in an argument
        for end in ours:
            os.close(end)
        raise _not_started(command, error) from error
    finally:
        for end in theirs:
            os.close(end)
    return _Run(command, process, mark, ours, outputs, clock)


def _not_started(command: Command, error: OSError | ValueError) -> RemovalFailed:
    why = _why(error, command.user) if isinstance(error, OSError) else str(error)
    return RemovalFailed(f"the program {command.argv[0]} could not be started: {why}")


def _why(error: OSError, user: ProgramUser | None) -> str:
    words = error.strerror or str(error)
    match error.errno:
        case errno.ENOEXEC:
            return f"{words} (a script begins with a line like #!/bin/sh)"
        case errno.ENOENT:
            return f"{words} (the interpreter that its first line names, or its loader)"
        case errno.EPERM if user is not None:
            return f"{words} (this process may not become uid {user.uid}, gid {user.gid})"
    return words
