"""The process that runs one program: `python -I -S supervisor.py NEWS FILE USER ARGV…`. It
imports none of our modules.

`NEWS` and `FILE` are descriptors: the socket to the daemon, and the program's file. `USER` is
`UID:GID`, or empty for its own. The program gets this process's environment, directory,
umask, input and outputs.

It has one thread, so it starts the program by fork(2). A file whose execve(2) hangs (because of a
scanner or a dead mount) blocks that child, and neither this process nor the daemon.

It tells `pid NUMBER`, and after the end `ended STATUS`: the exit code, or a signal as a negative
number. If the program cannot be started, it tells `errno NUMBER`. A number sent to it is a signal
for the group. When the program has ended, or the other end of the socket is closed because the
daemon has died, everything that is left is killed: the group by one signal, and processes that
have left the group (`setsid`) because they become children of this process, a subreaper, when they
lose their parent. So no process has to be found by its environment or user, no unrelated process
with the same number is hit, and no zombie ends up with the first process of a container. Processes
that somebody else was asked to start (`systemd-run`, a container runtime) are *not* found. It
exits when nothing is left.

Sources: unix(7), waitid(2), fcntl(2), proc_pid_stat(5), prctl(2); subprocess.Popen for what a child
has to undo of the interpreter's settings.
"""

import ctypes
import errno
import fcntl
import os
import signal
import sys
from contextlib import suppress

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


def main(news: int, file: int, user: str, *, argv: list[str]) -> None:
    """Starts the program, watches it until it ends, and kills what it leaves behind."""
    os.set_inheritable(news, False)
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    fcntl.fcntl(news, fcntl.F_SETOWN, os.getpid())
    # SIGIO when a number comes, or the other end closes
    fcntl.fcntl(news, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    try:
        program = os.fork()
    except OSError as error:
        _tell(news, b"errno", error.errno or errno.EIO)
        return
    if not program:
        _become(news, file, user, argv=argv)
    _tell(news, b"pid", program)
    _tell(news, b"ended", _watched(news, program))
    _signal_group(program, signal.SIGKILL)
    _end_children()


def _watched(news: int, program: int) -> int:
    """Passes on signals until the program ends; its status, or 0 if the other end was closed."""
    while (found := os.waitid(os.P_PID, program, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is None:
        try:
            number = os.read(news, 8)
        except BlockingIOError:
            signal.sigwait((signal.SIGCHLD, signal.SIGIO))
        except OSError:
            return 0
        else:
            if not number:
                return 0
            _signal_group(program, int(number))
    return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status


def _signal_group(program: int, number: int) -> None:
    """The process id belongs to the program until the program has been waited for."""
    with suppress(PermissionError):  # all of them now run as another user
        try:
            os.killpg(program, number)
        except ProcessLookupError:  # it has no group yet
            os.kill(program, number)


def _end_children() -> None:
    """Kills and reaps all children, including inherited ones, until there are none left."""
    with suppress(ChildProcessError):
        while True:
            for child in _children():
                with suppress(PermissionError):
                    os.kill(child, signal.SIGKILL)
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
            # whatever was missed comes with the end of one that was not
            signal.sigwait((signal.SIGCHLD,))


def _children() -> list[int]:
    """The children of this process, including inherited ones."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError), open(f"/proc/{name}/stat", "rb") as stat:
            if int(stat.read().rpartition(b")")[2].split()[1]) == os.getpid():
                found.append(int(name))
    return found


def _become(news: int, file: int, user: str, *, argv: list[str]) -> None:
    """In the child: becomes the program, or tells why it cannot. Never returns."""
    try:
        os.setsid()
        for each in (signal.SIGPIPE, signal.SIGXFSZ):  # the interpreter ignores these
            signal.signal(each, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        if user not in ("", f"{os.geteuid()}:{os.getegid()}"):
            uid, gid = map(int, user.split(":"))
            os.setgroups([])
            os.setregid(gid, gid)
            os.setreuid(uid, uid)
        # if its supervisor dies; a user switch resets it
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        os.execv(f"/proc/self/fd/{file}", argv)  # noqa: S606 # without a shell on purpose; scripts are read through it
    except OSError as error:
        _tell(news, b"errno", error.errno or errno.EIO)
    finally:
        os._exit(255)


def _tell(news: int, what: bytes, number: int) -> None:
    with suppress(OSError):  # the other end is closed
        os.write(news, b"%s %d" % (what, number))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], argv=sys.argv[4:])
