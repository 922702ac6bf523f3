"""Namespaces in which the tests see none of what runs on this machine: no
kubelet, no reclaimd, no runtime.

Mounts are private, also those that tests make. /run and the directories of a node's daemons, as far
as there are any, are empty; so a test that uses a default path meets nothing there, and takes no
lock of the machine's. Its caches are not looked into. Its processes are not seen, and everything
that a run starts ends with it. As root its ports are free, too: the network is a loopback of the
tests' own. Another user could not leave that again for what needs the machine's network.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import shutil
import signal
import socket
import struct
import subprocess
from pathlib import Path
from typing import NamedTuple

from eviction.drill.private_mounts import (
    EmbeddedNodeError,
    enter_private_mounts,
    libc,
    unmount,
)
from tests.real_node.loopfs import mounts_below

OF_DAEMONS = """/run /etc/crio /etc/kubernetes /etc/rancher /etc/reclaimd
/var/lib/kubelet /var/lib/rancher /var/lib/reclaimd /var/log/containers /var/log/pods"""
OF_CACHES = "/root /home /srv /opt /data /mnt /var/cache"
MS_BIND, MS_REC = 0x1000, 0x4000  # <linux/mount.h>
CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWNET = 0x20000, 0x20000000, 0x40000000  # <linux/sched.h>
PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
SIOCSIFFLAGS = 0x8914  # <linux/sockios.h>
IFF_UP = 1  # <linux/if.h>
AS_ROOT = "as root"


class PrivateMounts(NamedTuple):
    """How this process got private mounts, or why it has none."""

    how: str
    reason: str = ""

    @property
    def available(self) -> bool:
        """Whether it has them."""
        return bool(self.how)


def entered() -> PrivateMounts:
    """Enters them, if that is allowed."""
    try:
        return PrivateMounts(enter_private_mounts())
    except EmbeddedNodeError as error:
        return PrivateMounts("", str(error))


def enter() -> PrivateMounts:
    """Moves the tests there; only the mounts can be missing. Call it before the first thread
    starts.

    A pytest-xdist worker already has a second thread, which stays in the namespaces of the
    process that started it and mounts nothing; the tests run on the main thread. Each worker has
    mounts of its own, as in a shared namespace a loop filesystem that one worker unmounts would
    still be held by another's.
    """
    if "PYTEST_XDIST_WORKER" in os.environ:
        if os.geteuid() != 0:
            return PrivateMounts("", "no root")
        if libc.unshare(CLONE_NEWNS) != 0:
            return PrivateMounts("", os.strerror(ctypes.get_errno()))
        mounts = PrivateMounts(AS_ROOT)
    else:
        mounts = entered()
        if mounts.available and _processes_can_be_hidden():
            _continue_among_own_processes(CLONE_NEWNET if mounts.how == AS_ROOT else 0)
    if mounts.available:
        for directory in OF_DAEMONS.split():
            _empty(directory)
        for directory in OF_CACHES.split():
            _close(directory)
    return mounts


def on_the_network() -> tuple[str, ...]:
    """What comes before a command that needs the network of this machine, where the first process
    still is. It begins in the root directory."""
    # the machine's own first process, which another user may not look at
    with contextlib.suppress(PermissionError):
        if os.readlink("/proc/1/ns/net") != os.readlink("/proc/self/ns/net"):
            return ("nsenter", "--target", "1", "--net", "--mount")
    return ()


def _processes_can_be_hidden() -> bool:
    """Whether this process may do what `_continue_among_own_processes` does: in some
    containers not even root may.
    """
    unshare = shutil.which("unshare")
    if unshare is None:
        return False
    asked = [unshare, "--net", "--pid", "--fork", "--mount-proc", "true"]
    return subprocess.run(asked, check=False, capture_output=True).returncode == 0


def _continue_among_own_processes(network: int) -> None:
    """Forks twice, and the last one goes on, on a network of its own, too, if `network` is the flag
    of one. What started the tests waits and ends as they do. What is between them is the first
    process of the new namespace: it takes orphans over, and all others end with it."""
    if libc.unshare(CLONE_NEWPID) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    if first := os.fork():
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests
        os._exit(_status_of(first))
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if tests := os.fork():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os._exit(_status_of(tests))
    if libc.unshare(CLONE_NEWNS | network) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    subprocess.run(
        ["mount", "-t", "proc", "-o", "nosuid,nodev,noexec", "proc", "/proc"], check=True
    )
    if network:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as anywhere:
            fcntl.ioctl(anywhere, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP))


def _status_of(process: int) -> int:
    """The exit status with which a child ended, as a shell tells it.

    Other children that end meanwhile are reaped.
    """
    while True:
        pid, status = os.wait()
        if pid == process:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def _close(directory: str) -> None:
    """Each directory in it is a mount, with what it has. Doctor looks for caches there, and into no
    mount: all that this machine has would cost it seconds."""
    with contextlib.suppress(OSError):
        for entry in os.scandir(os.fsencode(directory)):
            if entry.is_dir(follow_symlinks=False):
                libc.mount(entry.path, entry.path, None, MS_BIND | MS_REC, None)


def _empty(directory: str) -> None:
    """An empty tmpfs in place of a directory, if it exists. What is mounted below it is detached
    here, as the table of mounts would still name it; in a user namespace that is not allowed."""
    if not os.path.isdir(directory):
        return
    for point in mounts_below(Path(directory)):
        if point != Path(directory):
            unmount(str(point))
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=0755", "none", directory], check=True)
