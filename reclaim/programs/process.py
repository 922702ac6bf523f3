"""Runs one program, and ends it: whatever it does, no run takes longer than its time and `LEFT_BEHIND_SECONDS`.

* It is started by the descriptor that was checked, not by its path. A script finds its file there as well: the kernel
  hands `/proc/self/fd/N` to the interpreter, so this one descriptor stays open in the child; `argv[0]` is the path.
* There is no shell. The child has a session of its own and no terminal, `/dev/null` as its input, two pipes as its
  outputs, no other descriptor, the directory `/`, umask 022, and the environment that it is given. Priority and OOM
  score are this process's. No signal is blocked in it, although the daemon blocks some.
* When its time is over, or a stop comes, its group gets SIGTERM, and 5 s later SIGKILL. Unlike a removal that a runtime
  was asked for, it does not outlive the daemon in any case: its service would be killed with all that is in it.
* Its end is the end of the process that was started. What is left of its group then is killed, and what has left the
  group where it is found (`children`). Nobody waits for the outputs to be closed.
* The calling thread does all of it, by looking at the child every 50 ms or sooner: the event that tells of a stop
  cannot be waited for together with descriptors, so a pidfd (Linux 5.3) would spare nothing.

`subprocess` starts it by vfork(2), which copies no page tables, so that memory pressure does not keep it from starting;
by fork(2) where the user is switched.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum

from reclaim.clock import Clock
from reclaim.programs.children import CHILDREN, kill_marked, started_at
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
    had left its group were killed. `process`: to be looked at later, where the status is None."""

    status: int | None
    cause: Cause | None
    killed: bool
    left_behind: int
    process: subprocess.Popen[bytes]


def run_program(
    command: Command, outputs: tuple[Output, Output], clock: Clock, stopping: threading.Event | None = None
) -> Ended:
    """Runs a program to its end. `outputs`: for what it prints, and for its errors. `stopping`: ends it when it is set.

    Raises RemovalFailed if it could not be started.
    """
    run_id = os.urandom(16).hex()
    with CHILDREN.starting() as started:
        process = _start(command, {**command.environment, MARK: run_id})
        started.add(process.pid)
    run = _Run(process, f"{MARK}={run_id}".encode(), outputs, clock)
    try:
        return run.watch(clock.monotonic() + command.timeout_seconds, stopping)
    except BaseException:  # a defect, of whoever takes the lines for instance
        run.kill()
        raise
    finally:
        run.close()


class _Run:
    """One program that was started."""

    def __init__(self, process: subprocess.Popen[bytes], mark: bytes, outputs: tuple[Output, Output], clock: Clock):
        self._process = process
        self._mark = mark
        self._clock = clock
        self._since = started_at(process.pid)
        assert process.stdout is not None
        assert process.stderr is not None
        self._pipes = (process.stdout, process.stderr)
        self._open = {pipe.fileno(): output for pipe, output in zip(self._pipes, outputs, strict=True)}
        self._outputs = outputs
        self._poll = select.poll()
        for descriptor in self._open:
            os.set_blocking(descriptor, False)
            self._poll.register(descriptor, select.POLLIN)
        self._pause = 0.001
        self._too_much = False

    def watch(self, deadline: float, stopping: threading.Event | None) -> Ended:
        """Until it has ended, or cannot be."""
        cause: Cause | None = None
        killed = False
        while not self._has_ended():
            now = self._clock.monotonic()
            if cause is None:
                cause = self._cause(now >= deadline, stopping)
                if cause is not None:
                    deadline = now + TERM_SECONDS
                    self._signal_group(signal.SIGTERM)
            elif now >= deadline:
                if killed:
                    return self._ended(None, cause, killed=True)
                deadline, killed = now + KILL_SECONDS, True
                self._signal_group(signal.SIGKILL)
            self._read()
        # the process that was started is a zombie yet, so that its number, which is the group's, is nobody else's
        self._signal_group(signal.SIGKILL)
        return self._ended(self._reap(), cause, killed=killed)

    def kill(self) -> None:
        """At once."""
        self._signal_group(signal.SIGKILL)
        kill_marked(self._mark, self._since, self._process.pid)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(KILL_SECONDS)
            CHILDREN.has_ended(self._process.pid)

    def close(self) -> None:
        """Reads what is there, and closes the pipes."""
        for _ in range(LAST_READINGS):
            if not self._read_ready(0):
                break
        for pipe in self._pipes:
            pipe.close()
        for output in self._outputs:
            output.end()
        CHILDREN.reap_orphans()

    def _ended(self, status: int | None, cause: Cause | None, *, killed: bool) -> Ended:
        left_behind = kill_marked(self._mark, self._since, self._process.pid)
        return Ended(status, cause, killed, left_behind, self._process)

    def _cause(self, late: bool, stopping: threading.Event | None) -> Cause | None:
        if self._too_much:
            return Cause.OUTPUT
        if late:
            return Cause.TIMEOUT
        return Cause.STOPPING if stopping is not None and stopping.is_set() else None

    def _has_ended(self) -> bool:
        try:
            options = os.WEXITED | os.WNOHANG | os.WNOWAIT
            return os.waitid(os.P_PID, self._process.pid, options) is not None
        except ChildProcessError:  # SIGCHLD is ignored: nobody learns its status
            return True

    def _reap(self) -> int:
        status = self._process.wait()
        CHILDREN.has_ended(self._process.pid)
        return status

    def _signal_group(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):  # all gone; or all of them have become another user
            os.killpg(self._process.pid, number)

    def _read(self) -> None:
        """Reads what comes within a moment."""
        if self._open:
            self._read_ready(LOOK_SECONDS)
        else:
            time.sleep(self._pause)
            self._pause = min(2 * self._pause, LOOK_SECONDS)

    def _read_ready(self, seconds: float) -> bool:
        """Whether there was something to read within so many seconds."""
        ready = self._poll.poll(1000 * seconds)
        for descriptor, _ in ready:
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


def _start(command: Command, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Raises RemovalFailed."""
    path, user = command.argv[0], None if own_user(command.user) else command.user
    try:
        with _no_signal_blocked():
            return subprocess.Popen(
                list(command.argv),
                executable=f"/proc/self/fd/{command.program}",
                pass_fds=(command.program,),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                cwd="/",
                umask=0o022,
                env=dict(environment),
                start_new_session=True,
                user=None if user is None else user.uid,
                group=None if user is None else user.gid,
                extra_groups=None if user is None else [],
            )
    except OSError as error:
        raise RemovalFailed(f"the program {path} could not be started: {_why(error, user)}") from error
    except ValueError as error:  # a zero byte in an argument
        raise RemovalFailed(f"the program {path} could not be started: {error}") from error


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


@contextmanager
def _no_signal_blocked() -> Iterator[None]:
    """Lets every signal through on this thread: a child is started with the mask of the thread that starts it, and in
    one with SIGTERM blocked nothing comes of it."""
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    if not blocked:
        yield
        return
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
