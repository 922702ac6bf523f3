"""Private mounts: small real filesystems that only this process sees.

It enters a mount namespace, as root or through a user namespace, and mounts a tmpfs of a given size
there. It cannot leave that namespace. The mounts end with the last process in it, so even `kill -9`
leaves only an empty directory.
"""

import ctypes
import errno
import os
import time

ENDING_SECONDS = 1.0

_CLONE_NEWNS = 0x00020000
_CLONE_NEWUSER = 0x10000000
_MNT_DETACH = 0x2
_MS_NOSUID = 0x2
_MS_NODEV = 0x4
_MS_REC = 0x4000
_MS_SLAVE = 0x80000

libc = ctypes.CDLL(None, use_errno=True)
libc.mount.argtypes = [
    ctypes.c_char_p,
    ctypes.c_char_p,
    ctypes.c_char_p,
    ctypes.c_ulong,
    ctypes.c_char_p,
]


class EmbeddedNodeError(Exception):
    """The embedded node cannot do something. The message is one sentence."""


def _threads() -> int:
    """The number of threads.

    Waits up to 1 s for threads that are about to end, such as one that has read a file.
    """
    deadline = time.monotonic() + ENDING_SECONDS
    while (threads := len(os.listdir("/proc/self/task"))) > 1 and time.monotonic() < deadline:
        time.sleep(0.001)
    return threads


def enter_private_mounts() -> str:
    """Moves this process into a new mount namespace. Other processes do not see what it mounts
    there; what they unmount of shared mounts is unmounted there, too (mount_namespaces(7)).

    With CAP_SYS_ADMIN this is one `unshare`. Without it the process also enters a user namespace,
    which maps its user and group to 0: from then on `os.geteuid()` returns 0, the caller's files
    still belong to it, and other users' files appear to belong to the overflow user (65534).

    Call it while the process has one thread, before any server, pool or watcher starts:
    otherwise `unshare(CLONE_NEWUSER)` refuses, and `unshare(CLONE_NEWNS)` moves only the calling
    thread. It cannot be undone.

    Returns how it got there: "as root", or "in a user namespace". Raises EmbeddedNodeError if
    neither way is allowed, and the process is unchanged; if the kernel allows the user namespace
    and then refuses the rest, the process stays in that namespace.
    """
    threads = _threads()
    if threads > 1:
        raise EmbeddedNodeError(
            f"private mounts must be entered before the first thread starts; {threads} are running"
        )
    how = "as root"
    error = _unshare(_CLONE_NEWNS)
    if error == errno.EPERM:
        how = "in a user namespace"
        _enter_user_namespace()
    elif error != 0:
        raise EmbeddedNodeError(f"a mount namespace was refused: {os.strerror(error)}")
    # systemd makes / shared, so a new namespace would propagate its mounts to the old one. The
    # other direction is kept: a device that the node unmounts would otherwise be in use for as
    # long as this process lives.
    error = _mount("/", _MS_REC | _MS_SLAVE)
    if error != 0:
        raise EmbeddedNodeError(f"mounts could not be made private: {os.strerror(error)}")
    return how


def _enter_user_namespace() -> None:
    # Read now: inside the new namespace both answer 65534 until the maps are written.
    user = os.geteuid()
    group = os.getegid()
    error = _unshare(_CLONE_NEWUSER | _CLONE_NEWNS)
    if error != 0:
        raise EmbeddedNodeError(
            f"this process is not root and may not create a user namespace ({os.strerror(error)};"
            " see user.max_user_namespaces, seccomp and the distribution's own switches)"
        )
    # setgroups first: the kernel accepts a group map of an unprivileged process only
    # once setgroups is denied.
    for path, text in (
        ("/proc/self/setgroups", b"deny"),
        ("/proc/self/uid_map", b"0 %d 1" % user),
        ("/proc/self/gid_map", b"0 %d 1" % group),
    ):
        try:
            # a single write: the kernel accepts no second one
            with open(path, "wb", buffering=0) as file:
                file.write(text)
        except OSError as caught:
            raise EmbeddedNodeError(
                f"the user namespace could not be mapped: {path}: {caught.strerror}"
            ) from caught


def mount_tmpfs(path: str, size_bytes: int, inodes: int) -> None:
    """Mounts an empty tmpfs over the directory `path`. Call `enter_private_mounts` first.

    `size_bytes` is rounded up to whole pages (4096 bytes on most machines); bytes in use take
    memory of this machine. The root directory of the mount takes one of `inodes`. statvfs reports
    both limits, and ENOSPC enforces them; 0 would mean no limit. Raises EmbeddedNodeError if the
    directory does not exist, or the kernel refuses.
    """
    error = _mount(path, _MS_NOSUID | _MS_NODEV, f"size={size_bytes},nr_inodes={inodes},mode=0755")
    if error != 0:
        raise EmbeddedNodeError(f"a filesystem cannot be made: {path}: {os.strerror(error)}")


def unmount(path: str) -> None:
    """Unmounts the topmost mount on `path` at once, even if it is in use.

    No error if nothing is mounted.
    """
    libc.umount2(os.fsencode(path), _MNT_DETACH)


def _mount(path: str, flags: int, options: str = "") -> int:
    """Mounts a tmpfs, or changes a mount if the flags say so. Returns an errno, or 0."""
    done = libc.mount(b"reclaimd", os.fsencode(path), b"tmpfs", flags, options.encode())
    return 0 if done == 0 else ctypes.get_errno()


def _unshare(flags: int) -> int:
    return 0 if libc.unshare(flags) == 0 else ctypes.get_errno()
