"""The process that starts programs: `python -I -S launcher_process.py DESCRIPTOR`. It imports nothing of ours.

It exists before a disk is full and before anything hangs, has one thread and little memory, and starts nothing but by
fork(2). A file whose execve(2) hangs (a scanner, a dead mount) holds up a child of it, never the daemon: Python before
3.11.4 keeps its interpreter locked until a program that `subprocess` starts has begun.

For each request it forks a supervisor, which forks the program, tells its id, waits for its end, and keeps it as a
zombie until the other end of its socket is closed, so that its number, which is the group's, is nobody else's. When the
daemon dies, that end is closed too: the group is killed. The launcher itself ends when its socket is closed.

Source: unix(7), waitid(2); subprocess.Popen for what a child undoes of the interpreter's settings.
"""

from __future__ import annotations

import marshal
import os
import select
import signal
import socket
import sys
from contextlib import suppress
from types import FrameType

LARGEST_REQUEST = 1 << 20
DESCRIPTORS = 5  # of a request: the socket of the run, the file of the program, its two outputs, the pipe for a failure
UMASK = 0o022


def main(requests: socket.socket) -> None:
    """Takes requests until the socket is closed."""
    os.chdir("/")
    os.umask(UMASK)
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - {signal.SIGCHLD})
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for a supervisor
    while True:
        data, descriptors, _, _ = socket.recv_fds(requests, LARGEST_REQUEST, DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)
        if not data:
            return
        if len(descriptors) == DESCRIPTORS:
            _fork_supervisor(requests, data, *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def _fork_supervisor(requests: socket.socket, data: bytes, run: int, *files: int) -> None:
    try:
        if os.fork():
            return
    except OSError as error:
        _tell(files[-1], error)
        return
    try:
        requests.close()
        supervise(socket.socket(fileno=run), data, *files)
    finally:
        os._exit(0)


def supervise(run: socket.socket, data: bytes, *files: int) -> None:
    """Starts one program, tells its id and then its status, and reaps it when the other end is closed."""
    ended, end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(end, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, _nothing)  # so that it is written into the pipe; execve(2) makes it the default again
    try:
        program = os.fork()
    except OSError as error:
        _tell(files[-1], error)
        return
    if not program:
        run.close()
        _become(data, *files)
    for each in files:
        os.close(each)
    try:
        run.send(b"%d" % program)
        poll = select.poll()
        for descriptor in (ended, run.fileno()):
            poll.register(descriptor, select.POLLIN)
        while (found := os.waitid(os.P_PID, program, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is None:
            for descriptor, _ in poll.poll():
                if descriptor != ended:
                    return
                os.read(ended, 64)
        run.send(b"%d" % (found.si_status if found.si_code == os.CLD_EXITED else -found.si_status))
        run.recv(1)
    except OSError:  # the other end is closed
        pass
    finally:
        for kill in (os.killpg, os.kill):  # the one, and the other before it has a group
            with suppress(OSError):
                kill(program, signal.SIGKILL)
        os.waitpid(program, 0)


def _nothing(_: int, __: FrameType | None) -> None:
    pass


def _become(data: bytes, program: int, out: int, errors: int, failure: int) -> None:
    """In the child: becomes the program, or tells why it cannot. Never returns."""
    try:
        argv, environment, user = marshal.loads(data)  # noqa: S302 # from our own parent, by a socket without a name
        os.setsid()
        os.dup2(out, 1)
        os.dup2(errors, 2)
        for each in (signal.SIGPIPE, signal.SIGXFSZ):  # which the interpreter ignores
            signal.signal(each, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        if user is not None:
            os.setgroups([])
            os.setregid(user[1], user[1])
            os.setreuid(user[0], user[0])
        os.set_inheritable(program, True)  # a script is read by it
        os.execve(f"/proc/self/fd/{program}", argv, environment)  # noqa: S606 # without a shell on purpose
    except OSError as error:
        _tell(failure, error)
    finally:
        os._exit(255)


def _tell(failure: int, error: OSError) -> None:
    os.write(failure, b"%d" % (error.errno or 0))


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
