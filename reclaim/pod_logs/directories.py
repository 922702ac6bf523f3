"""Opens the directories of logs: the two configured ones, and a directory directly beneath an opened one.

What is opened beneath follows no symlink and no `..`, and crosses no filesystem and no mount. With `openat2` (Linux
5.6) the kernel guarantees this in one call: RESOLVE_BENEATH, NO_SYMLINKS, NO_MAGICLINKS, NO_XDEV. Without it (an older
kernel, or a seccomp profile that refuses the call) the directory is opened with `O_NOFOLLOW | O_DIRECTORY`, then device
and mount id are compared. The mount id distinguishes a bind mount of the same filesystem from a plain directory. It is
read from /proc/self/fdinfo; if that cannot be read, nothing is opened. Source: openat2(2), proc_pid_fdinfo(5).
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from reclaim.pod_logs.names import Identity, is_entry_name
from reclaim.types import ReclaimError

OpenBeneath = Callable[[int, bytes], int]
"""Opens the directory of this name beneath an opened directory and returns a descriptor to be closed by the caller.

Raises OSError: ENOENT; ENOTDIR or ELOOP when it is not a directory (a symlink is none); EXDEV when it is on another
filesystem or mount; or another error of the kernel. Raises ValueError when the name cannot be that of an entry.
"""

_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_SYS_OPENAT2 = 437  # one number on every architecture that Kubernetes runs on
_NO_XDEV, _NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH = 0x01, 0x02, 0x04, 0x08
_CROSSING = "is on another filesystem or mount"
_MOUNT_UNKNOWN = "its mount is unknown: /proc/self/fdinfo does not name it"
_RETRIES = 16  # openat2 may fail with EAGAIN while something is renamed or mounted

_syscall = ctypes.CDLL(None, use_errno=True).syscall
_syscall.restype = ctypes.c_long
_syscall.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t]


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


_HOW = _OpenHow(_FLAGS, 0, _NO_XDEV | _NO_MAGICLINKS | _NO_SYMLINKS | _BENEATH)

_MAYBE_A_RACE = (errno.EAGAIN, errno.EINTR, errno.EXDEV)
"""EXDEV too: a directory that moves while it is opened may no longer be beneath (`complete_walk`, fs/namei.c)."""


class LogsUnreadable(ReclaimError):
    """The pod log root cannot be read. The message names it and says why. `missing`: it does not exist, or is a
    symlink, which is not followed."""

    def __init__(self, root: str, error: OSError):
        super().__init__(f"{root} cannot be read: {error.strerror}")
        self.missing = isinstance(error, FileNotFoundError)


def identity_of(status: os.stat_result) -> Identity:
    """Device and inode of a status."""
    return status.st_dev, status.st_ino


@contextmanager
def opened(directory: str) -> Iterator[int]:
    """The descriptor of one of the two configured directories.

    Raises OSError when it cannot be opened. A symlink in its place is not followed, whoever may have put it there: the
    directory counts as missing (FileNotFoundError).
    """
    try:
        descriptor = os.open(directory, _FLAGS)
    except NotADirectoryError:
        if os.path.islink(directory):
            raise FileNotFoundError(errno.ENOENT, "it is a symlink, which is not followed", directory) from None
        raise
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def opened_beneath(directory: int, name: bytes) -> Iterator[int]:
    """The descriptor of a directory beneath an opened one. Raises as an `OpenBeneath`."""
    descriptor = open_beneath(directory, name)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def open_beneath(directory: int, name: bytes) -> int:
    """An `OpenBeneath`: with `openat2`, or by comparison where the kernel does not offer it."""
    try:
        return open_by_openat2(directory, name)
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.EPERM):  # EPERM: how some seccomp profiles refuse unknown calls
            raise
    return open_by_comparison(directory, name)


def open_by_openat2(directory: int, name: bytes) -> int:
    """An `OpenBeneath` for kernels that have `openat2`; elsewhere OSError with ENOSYS, or EPERM."""
    _refuse_paths(name)
    code = errno.EAGAIN
    for _ in range(_RETRIES):
        descriptor = int(_syscall(_SYS_OPENAT2, directory, name, ctypes.addressof(_HOW), ctypes.sizeof(_HOW)))
        if descriptor >= 0:
            return _on_the_same_device(directory, descriptor, name)
        code = ctypes.get_errno()
        if code not in _MAYBE_A_RACE:
            break
    raise OSError(code, _CROSSING if code == errno.EXDEV else os.strerror(code), name)


def open_by_comparison(directory: int, name: bytes) -> int:
    """An `OpenBeneath` for any kernel; OSError with EXDEV also where the mount is unknown."""
    _refuse_paths(name)
    descriptor = _on_the_same_device(directory, os.open(name, _FLAGS, dir_fd=directory), name)
    mounts = _mount_id(directory), _mount_id(descriptor)
    if mounts[0] is not None and mounts[0] == mounts[1]:
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EXDEV, _MOUNT_UNKNOWN if None in mounts else _CROSSING, name)


def _refuse_paths(name: bytes) -> None:
    if not is_entry_name(name):
        raise ValueError(f"{name!r} is not the name of an entry of a directory")


def _on_the_same_device(directory: int, descriptor: int, name: bytes) -> int:
    """The descriptor; on another device closes it and raises EXDEV (a btrfs subvolume has its own, but is no mount)."""
    if os.fstat(descriptor).st_dev == os.fstat(directory).st_dev:
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EXDEV, _CROSSING, name)


def _mount_id(descriptor: int) -> bytes | None:
    """The kernel's id of the mount that a descriptor was opened on; None where it is unknown."""
    try:
        with open(f"/proc/self/fdinfo/{descriptor}", "rb") as info:
            return next((line for line in info if line.startswith(b"mnt_id:")), None)
    except OSError:
        return None
