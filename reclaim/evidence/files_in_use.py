"""Which files processes have open, mapped, locked, or as their directory, from `/proc`.

Unknown is in use: if one process cannot be looked at, or may be hidden, there is no answer. All are
seen from the first PID namespace, and from that of the container runtime, as what it starts is in
its namespace or below (pid_namespaces(7)).

Source: proc(5), for `/proc/pid/cwd`, `maps` and `locks`.
"""

import os
import socket
import struct
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from reclaim.trust import identity_of
from reclaim.types import FileIdentity, ReclaimError
from signals.mounts import Mount, mount_holding, read_mounts
from signals.open_files import PROC, open_files, processes

# PROC_PID_INIT_INO in the kernel's include/linux/proc_ns.h
FIRST_PID_NAMESPACE = "pid:[4026531836]"
SHOWN_TO_ALL = (None, "", "0", "off")  # values of the option hidepid
ITS_DIRECTORIES = ("cwd", "root", "exe")
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid (unix(7), SO_PEERCRED)
NOT_KNOWN = "which files are in use is not known"


class FilesInUse(NamedTuple):
    """`files`: by `st_dev` and inode; `mapped`: and those mapped or locked, by the device of their
    filesystem, which on btrfs is not their `st_dev`, and inode."""

    files: frozenset[FileIdentity]
    mapped: frozenset[FileIdentity]

    def has(self, status: os.stat_result, device: int) -> bool:
        """Whether a process uses this file or directory of the filesystem that is this device."""
        inode = status.st_ino
        return (status.st_dev, inode) in self.files or (device, inode) in self.mapped


def files_in_use(runtime_path: str) -> FilesInUse:
    """Those of all processes, without the descriptors of this one. `runtime_path`: of the runtime's
    socket; empty: there is none. Raises ReclaimError if that cannot be known."""
    files = set[FileIdentity]()
    mapped = set[FileIdentity]()
    try:
        if not _sees_all(runtime_path):
            raise ReclaimError(f"{NOT_KNOWN}: not all processes are seen here (hostPID, hidepid)")
        for pid in processes():
            with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
                if pid != os.getpid():
                    files.update(
                        identity_of(status) for _, status in open_files(pid, raised=OSError)
                    )
                for link in ITS_DIRECTORIES:
                    with suppress(FileNotFoundError):  # a kernel thread has none
                        files.add(identity_of(os.stat(f"{PROC}/{pid}/{link}")))
                with open(f"{PROC}/{pid}/maps", "rb") as maps:
                    for fields in map(bytes.split, maps):
                        mapped.add(_file(fields[3], fields[4]))
        with open(f"{PROC}/locks", "rb") as locks:
            for fields in map(bytes.split, locks):
                mapped.add(_file(*fields[-3].rsplit(b":", 1)))
    except (OSError, ValueError, IndexError) as error:
        raise ReclaimError(f"{NOT_KNOWN}: {error} (CAP_SYS_PTRACE)") from error
    return FilesInUse(frozenset(files), frozenset(mapped))


def _file(device: bytes, inode: bytes) -> FileIdentity:
    """A file by the numbers that `/proc` prints: `major:minor`, hexadecimal, and decimal."""
    major, minor = device.split(b":")
    return os.makedev(int(major, 16), int(minor, 16)), int(inode)


def _sees_all(runtime_path: str) -> bool:
    table = read_mounts()
    if not hides_processes(table):
        return True
    return is_shown_to_all(table) and bool(runtime_path) and pid_behind(runtime_path) > 0


def pid_behind(path: str) -> int:
    """The process that listens on a unix socket; 0 if it is not in this PID namespace or below.
    Raises OSError. Waits at most a second."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(1.0)
        connection.connect(path)
        said = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(said)[0])


def hides_processes(table: Sequence[Mount]) -> bool:
    """Whether this `/proc` may hide processes of the node. Raises OSError without a `/proc`."""
    namespace = os.path.basename(os.path.realpath(f"{PROC}/self/ns/pid"))
    return not is_shown_to_all(table) or namespace != FIRST_PID_NAMESPACE


def is_shown_to_all(table: Sequence[Mount]) -> bool:
    """Whether `/proc` shows the processes of other users; not if it is not known how it is
    mounted."""
    mount = mount_holding(PROC, table)
    return mount is not None and mount.option("hidepid") in SHOWN_TO_ALL
