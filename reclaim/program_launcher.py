"""The process that starts programs: `python -I -S program_launcher.py DESCRIPTOR`. It imports none of our modules.

It exists before a disk is full and before anything hangs, has one thread and little memory, and starts programs only by
fork(2). A file whose execve(2) hangs (because of a scanner or a dead mount) blocks one of its children, never the
daemon: Python before 3.11.4 keeps its interpreter locked until a program started by `subprocess` has begun.

For each request it forks a supervisor, which forks the program. On the run's socket, the supervisor reports `pid
NUMBER` and, after the end, `ended STATUS`: the exit code, or a signal as a negative number. If the program cannot be
started, it reports `errno NUMBER`. A number sent to it is a signal for the group. When the program has ended, or the
other end of the socket is closed because the daemon has died, everything that is left is killed: the group by one
signal, and processes that have left the group (`setsid`) because they become children of the supervisor, a subreaper,
when they lose their parent. So no process has to be found by its environment or user, no unrelated process with the
same number is hit, and no zombie ends up with the first process of a container. Processes that somebody else was asked
to start (`systemd-run`, a container runtime) are *not* found.

The launcher itself exits when its socket is closed.

Sources: unix(7), waitid(2), proc_pid_stat(5), prctl(2); subprocess.Popen for what a child has to undo of the
interpreter's settings.
"""

from __future__ import annotations

import ctypes
import errno
import marshal
import os
import select
import signal
import socket
import sys
import time
from contextlib import suppress

LARGEST_REQUEST = 1 << 20
DESCRIPTORS = 4  # of a request: the socket of the run, the file of the program, its two outputs
UMASK = 0o022
END_SECONDS = 1.0  # how long to wait for what is left before reporting the end, and the pause after that
LOOK_SECONDS = 0.005
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


def main(requests: socket.socket) -> None:
    """Handles requests until the socket is closed."""
    os.chdir("/")
    os.umask(UMASK)
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - {signal.SIGCHLD})
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # supervisors are not waited for
    while True:
        data, descriptors, _, _ = socket.recv_fds(requests, LARGEST_REQUEST, DESCRIPTORS)
        if not data:
            return
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)  # recv_fds never asks for this, whatever its flags
        if len(descriptors) == DESCRIPTORS:
            run = socket.socket(fileno=descriptors[0])
            if _forked(run) == 0:
                try:
                    requests.close()
                    supervise(run, data, *descriptors[1:])
                finally:
                    os._exit(0)
            run.detach()
        for descriptor in descriptors:
            os.close(descriptor)


def _forked(run: socket.socket) -> int | None:
    """As fork(2); None if it failed, which was reported."""
    try:
        return os.fork()
    except OSError as error:
        _tell_error(run, error)
        return None


def supervise(run: socket.socket, data: bytes, *files: int) -> None:
    """Starts one program, watches it until it ends, and kills what it leaves behind."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    ended, end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(end, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # so that it is written to the pipe; execve(2) restores the default
    program = _forked(run)
    if program is None:
        return
    if not program:
        _become(run, data, *files)
    for each in files:
        os.close(each)
    status = _watched(run, program, ended)
    _signal_group(program, signal.SIGKILL)
    _end_children(END_SECONDS, LOOK_SECONDS)
    with suppress(OSError):  # the other end is closed
        run.send(b"ended %d" % status)
    run.close()
    _end_children(float("inf"), END_SECONDS)


def _watched(run: socket.socket, program: int, ended: int) -> int:
    """Passes on signals until the program has ended; its status, or 0 if the other end was closed first."""
    poll = select.poll()
    for descriptor in (ended, run.fileno()):
        poll.register(descriptor, select.POLLIN)
    try:
        run.send(b"pid %d" % program)
        while (found := os.waitid(os.P_PID, program, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is None:
            for descriptor, _ in poll.poll():
                if descriptor == ended:
                    os.read(ended, 64)
                elif number := run.recv(64):
                    _signal_group(program, int(number))
                else:
                    return 0
    except OSError:
        return 0
    return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status


def _signal_group(program: int, number: int) -> None:
    """The process id belongs to the program until the program has been waited for."""
    with suppress(PermissionError):  # all of them now run as another user
        try:
            os.killpg(program, number)
        except ProcessLookupError:  # it has no group yet
            os.kill(program, number)


def _end_children(seconds: float, pause_seconds: float) -> None:
    """Kills and reaps all children, including inherited ones, for at most `seconds`."""
    deadline = time.monotonic() + seconds
    with suppress(ChildProcessError):  # there are none left
        while time.monotonic() < deadline:
            for child in _children():
                with suppress(PermissionError):
                    os.kill(child, signal.SIGKILL)
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
            time.sleep(pause_seconds)


def _children() -> list[int]:
    """The children of this process, including inherited ones."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError), open(f"/proc/{name}/stat", "rb") as stat:
            if int(stat.read().rpartition(b")")[2].split()[1]) == os.getpid():
                found.append(int(name))
    return found


def _become(run: socket.socket, data: bytes, program: int, out: int, errors: int) -> None:
    """In the child: becomes the program, or reports why it cannot. Never returns."""
    try:
        argv, environment, user = marshal.loads(data)  # noqa: S302 # from our own parent, over an unnamed socket
        os.setsid()
        os.dup2(out, 1)
        os.dup2(errors, 2)
        for each in (signal.SIGPIPE, signal.SIGXFSZ):  # the interpreter ignores these
            signal.signal(each, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        if user is not None:
            os.setgroups([])
            os.setregid(user[1], user[1])
            os.setreuid(user[0], user[0])
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # if its supervisor dies; a user switch resets it
        os.set_inheritable(program, True)  # scripts are read through it
        os.execve(f"/proc/self/fd/{program}", argv, environment)  # noqa: S606 # without a shell on purpose
    except OSError as error:
        _tell_error(run, error)
    finally:
        os._exit(255)


def _tell_error(run: socket.socket, error: OSError) -> None:
    with suppress(OSError):
        run.send(b"errno %d" % (error.errno or errno.EIO))


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
