"""Functions that tests run in a child process, in namespaces or with fewer rights, which prints one
JSON object.

    python -m tests.sockets.namespace_child FUNCTION DIRECTORY [UID]

With UID, root becomes that user and group first, without other groups and capabilities. It
does so here, with every module imported, and not in its parent: that user may not be allowed
to read this interpreter.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from typing import Any

from eviction.drill.private_mounts import (
    libc,
    mount_tmpfs,
)
from reclaim.pod_logs.directories import remove_tree
from reclaim.trust import socket_refusal
from tests.own_machine import entered

_PR_SET_DUMPABLE = 4
_MS_SHARED = 1 << 20

MIB = 1 << 20


def enter_beside_a_thread(_: str) -> dict[str, Any]:
    """Enter while a second thread runs."""
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        return entered()._asdict()
    finally:
        done.set()
        thread.join()


def unmounted_outside(directory: str) -> dict[str, Any]:
    """A namespace with a shared mount that has another one in it, and a child in a namespace of its
    own: whether the child has the inner one, before and after it was unmounted outside; whether
    what the child mounts is seen here."""
    _enter()
    mount_tmpfs(directory, MIB, 16)
    if libc.mount(b"none", os.fsencode(directory), None, _MS_SHARED, None) != 0:
        raise OSError(ctypes.get_errno(), "mount --make-shared")
    inner, of_the_child = (os.path.join(directory, name) for name in ("inner", "own"))
    os.mkdir(inner)
    os.mkdir(of_the_child)
    mount_tmpfs(inner, MIB, 16)
    code = "from tests.sockets.namespace_child import has_the_mount as child; child()"
    with subprocess.Popen(
        [sys.executable, "-c", code, inner, of_the_child],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        before = json.loads(child.stdout.readline())
        seen_outside = is_mounted(of_the_child)
        if libc.umount2(os.fsencode(inner), 0) != 0:
            raise OSError(ctypes.get_errno(), "umount")
        after = json.loads(child.communicate("unmounted\n")[0])
    return {"before": before, "seen_outside": seen_outside, "after": after}


def has_the_mount() -> None:
    """Enters, mounts something at its second argument, says whether its first is a mount, and after
    a line on its standard input says so again."""
    _enter()
    theirs, own = sys.argv[1:]
    mount_tmpfs(own, MIB, 16)
    sys.stdout.write(f"{json.dumps(is_mounted(theirs))}\n")
    sys.stdout.flush()
    sys.stdin.readline()
    sys.stdout.write(json.dumps(is_mounted(theirs)))


def is_mounted(path: str) -> bool:
    """Whether something is mounted there, in the namespace of this process."""
    with open("/proc/self/mountinfo", encoding="utf-8") as mounts:
        return any(line.split()[4] == path for line in mounts)


def trust(_: str) -> dict[str, Any]:
    """Enter, and judge a socket of the own user below /tmp; then where its directory
    may be written by everybody.
    """
    _enter()
    with tempfile.TemporaryDirectory() as directory, socket.socket(socket.AF_UNIX) as made:
        path = os.path.join(directory, "cri.sock")
        made.bind(path)
        os.chmod(path, 0o600)
        found = {"owner of /": os.stat("/").st_uid, "private": socket_refusal(path)}
        os.chmod(directory, 0o777)  # noqa: S103 - which is to be refused
        return {**found, "open": socket_refusal(path)}


def remove_without_capabilities(directory: str) -> dict[str, Any]:
    """Remove `doomed`, which belongs to root, as root without capabilities."""
    drop_all_capabilities()
    return _removed(directory)


def remove_without_proc(directory: str) -> dict[str, Any]:
    """Remove `doomed` while /proc is empty, so that the mount of a descriptor is unknown."""
    _enter()
    mount_tmpfs("/proc", 4096, 2)
    return _removed(directory)


def _removed(directory: str) -> dict[str, Any]:
    return remove_tree(os.open(directory, os.O_RDONLY | os.O_DIRECTORY), b"doomed")._asdict()


def become(user: int) -> None:
    """Become that user and group, without other groups, as after `setpriv` and an exec."""
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    # A change of user without an exec gives /proc/self to root; an exec would give it to the user.
    if libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def _enter() -> None:
    mounts = entered()
    if not mounts.available:
        raise SystemExit(f"no private mounts: {mounts.reason}")


def drop_all_capabilities(but: int = 0) -> None:
    """Drop all capabilities and keep the user. `but`: bits below 32 to keep."""
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3, this process
    if libc.capset(header, (ctypes.c_uint32 * 6)(but, but)) != 0:
        raise OSError(ctypes.get_errno(), "capset")


FUNCTIONS: dict[str, Callable[[str], dict[str, Any]]] = {
    function.__name__: function
    for function in (
        enter_beside_a_thread,
        unmounted_outside,
        trust,
        remove_without_capabilities,
        remove_without_proc,
    )
}

if __name__ == "__main__":
    if len(sys.argv) > 3:
        become(int(sys.argv[3]))
    sys.stdout.write(json.dumps(FUNCTIONS[sys.argv[1]](sys.argv[2])))
