"""What a program leaves behind: processes that have left its group, and zombies that come to this process.

A process group is ended by one signal. What has left it (`setsid`) is found by a mark in its environment, which
children inherit: in `/proc`, among processes that are not older than the program. It is killed by a descriptor of its
directory there, so that no other process of the same number is hit.

*Not found* is what has cleared its environment, what other users than this process's run where it may not look at them
(it needs CAP_SYS_PTRACE for that), and what somebody else was asked to start (`systemd-run`, a container runtime). The
end of the service, or of the container, ends the first two. PR_SET_CHILD_SUBREAPER would find more, but it is the whole
process's: whoever runs this in a process with children of its own, a test suite say, would be given them too. A cgroup
would be surer, but the service may not write one, and in a pod it is mounted read-only.

Zombies come to this process when it is the first one of its container, as in the DaemonSet: the kernel gives it every
process that has lost its parent. They are reaped after each run: those of another session. The programs themselves are
children of their supervisors (`launcher_process`).

Source: proc_pid_stat(5), proc_pid_environ(5), pidfd_send_signal(2) (Linux 5.1; on an older one nothing is found).
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from typing import NamedTuple

LARGEST_ENVIRONMENT = 256 * 1024
ROUNDS = 3  # what forks while it is looked for is found in the next one


class _Process(NamedTuple):
    """A process, as in its `stat`; `started` in clock ticks since the boot."""

    pid: int
    state: str
    parent: int
    group: int
    session: int
    started: int


def reap_orphans() -> None:
    """Reaps the zombies that programs have left to this process."""
    for each in _processes():
        if each.state == "Z" and each.parent == os.getpid() and each.session != os.getsid(0):
            with suppress(ChildProcessError):
                os.waitpid(each.pid, os.WNOHANG)


def started_at(pid: int) -> int:
    """When a process started, in clock ticks since the boot; 0 if that cannot be read."""
    process = _process(str(pid))
    return 0 if process is None else process.started


def kill_marked(mark: bytes, since: int, group: int) -> int:
    """Kills every process that has `mark` as an entry of its environment, has not started before `since` (clock ticks),
    and is not of `group`, which has been killed already; how many there were."""
    killed: set[int] = set()
    for _ in range(ROUNDS):
        # only those: reading the environment of a process that hangs in the kernel may hang
        young = [each for each in _processes() if each.started >= since and each.state != "Z"]
        found = {each.pid for each in young if each.group != group and _kill_if_marked(each.pid, mark)}
        if not found - killed:
            break
        killed |= found
    return len(killed)


def _processes() -> list[_Process]:
    try:
        names = [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []
    return [process for process in map(_process, names) if process is not None]


def _process(name: str) -> _Process | None:
    try:
        with open(f"/proc/{name}/stat", "rb") as stat:
            fields = stat.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return _Process(int(name), fields[0].decode(), int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19]))


def _kill_if_marked(pid: int, mark: bytes) -> bool:
    """Whether it carries the mark, and was killed."""
    try:
        directory = os.open(f"/proc/{pid}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        environ = os.open("environ", os.O_RDONLY | os.O_CLOEXEC, dir_fd=directory)
        try:
            marked = mark in os.read(environ, LARGEST_ENVIRONMENT).split(b"\0")
        finally:
            os.close(environ)
        if marked:
            signal.pidfd_send_signal(directory, signal.SIGKILL)
    except OSError:
        return False
    finally:
        os.close(directory)
    return marked
