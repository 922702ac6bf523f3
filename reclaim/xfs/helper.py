"""`reclaimd-xfs-helper MOUNT_POINT…`: has XFS give back what it allocated behind the ends of files that grow.

A program of its own, because the one call needs CAP_SYS_ADMIN and the daemon keeps no capability. The call is
XFS_IOC_FREE_EOFBLOCKS; it frees blocks that hold no data, and destroys nothing. Nothing else of reclaimd is imported.

* One packet is a request: `release PATH`, or `check PATH`, the same call in a version that the kernel refuses. One
  packet is the answer: `ok`, `not-listed`, `not-a-mount-point`, `not-xfs`, or the name of an errno.
* PATH is one of the mount points of the command line, byte for byte. It is opened name by name, and no symlink is
  followed. The kernel's own table says whether what was opened is the root of a mount of XFS; the filesystem itself,
  which may be anybody's (FUSE), is asked nothing before that.
* 5 ms lie between two requests, so there are at most 200 a second, whoever asks. Of more than 8 clients the one whose
  last request is longest ago is dropped, and so is one that does not read its answer or sends anything else.

Sources: fs/xfs/libxfs/xfs_fs.h, xfs_ioctl.c and xfs_icache.c of Linux; proc_pid_mountinfo(5), sd_listen_fds(3).
"""

from __future__ import annotations

import argparse
import errno
import fcntl
import os
import re
import select
import socket
import stat
import struct
import time
from contextlib import ExitStack, suppress

# _IOR('X', 58, struct xfs_fs_eofblocks), 128 bytes; powerpc has other bits for the direction
FREE_EOFBLOCKS = 0x4080583A if os.uname().machine.startswith("ppc") else 0x8080583A
SYNC = 1  # XFS_EOF_FLAGS_SYNC: without it XFS passes over every file with unwritten pages, which is all that grow
VERSIONS = {b"release": 1, b"check": 0}  # XFS_EOFBLOCKS_VERSION is 1; EINVAL for 0, after the check of the capability
DIRECTORY = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
LONGEST_REQUEST, MOST_CLIENTS, PAUSE_SECONDS = 4096, 8, 0.005


def answer(request: bytes, mount_points: frozenset[bytes]) -> bytes:
    """Does what a request asks for."""
    what, _, path = request.partition(b" ")
    if what not in VERSIONS or path not in mount_points:
        return b"not-listed"
    try:
        with ExitStack() as opened:
            place = os.open("/", os.O_PATH | DIRECTORY)
            opened.callback(os.close, place)
            for name in filter(None, path.split(b"/")):
                place = os.open(name, os.O_PATH | DIRECTORY, dir_fd=place)
                opened.callback(os.close, place)
            if (fstype := mounted(place, path)) != b"xfs":
                return b"not-xfs" if fstype else b"not-a-mount-point"
            directory = os.open(".", os.O_RDONLY | DIRECTORY, dir_fd=place)
            opened.callback(os.close, directory)
            fcntl.ioctl(directory, FREE_EOFBLOCKS, struct.pack("=II120x", VERSIONS[what], SYNC))
    except OSError as error:
        if (what, error.errno) != (b"check", errno.EINVAL):
            return errno.errorcode.get(error.errno or 0, "EIO").encode()
    return b"ok"


def mounted(place: int, path: bytes) -> bytes:
    """The type of the filesystem that an opened directory is the root of a mount of; empty if it is none."""
    with open(f"/proc/self/fdinfo/{place}", "rb") as info, open("/proc/self/mountinfo", "rb") as table:
        mount = dict(line.split(b":", 1) for line in info)[b"mnt_id"].strip()
        line = re.search(rb"^%s \d+ \S+ \S+ (\S+) .* - (\S+) " % mount, table.read(), re.MULTILINE)
    unescaped = re.sub(rb"\\(\d{3})", lambda octal: bytes([int(octal[1], 8)]), line[1]) if line else b""
    return line[2] if line and unescaped == path else b""


def served(client: socket.socket, mount_points: frozenset[bytes]) -> bool:
    """Answers one request. False: the client has left, does not read, or sent what is no request."""
    try:
        request = client.recv(LONGEST_REQUEST + 1)
        if not 0 < len(request) <= LONGEST_REQUEST:
            return False
        client.send(answer(request, mount_points))
    except OSError:
        return False
    return True


def serve(listener: socket.socket, mount_points: frozenset[bytes]) -> None:
    """Answers for ever."""
    clients: list[socket.socket] = []  # the one whose last request is longest ago comes first
    listener.setblocking(False)
    last = float("-inf")
    while True:
        for ready in select.select([listener, *clients], [], [])[0]:
            time.sleep(max(last + PAUSE_SECONDS - time.monotonic(), 0.0))
            last = time.monotonic()
            if ready is listener:
                with suppress(OSError):
                    clients.append(listener.accept()[0])
                    clients[-1].setblocking(False)
                if len(clients) > MOST_CLIENTS:
                    clients.pop(0).close()
            elif ready in clients:  # else it was dropped just now
                clients.remove(ready)
                if served(ready, mount_points):
                    clients.append(ready)
                else:
                    ready.close()


def listening(path: str | None) -> socket.socket | None:
    """The socket that systemd has opened, or one of mode 0600 at this path; None: neither."""
    if os.environ.get("LISTEN_PID") == str(os.getpid()):
        return socket.socket(fileno=3)
    if path is None:
        return None
    if os.path.lexists(path) and stat.S_ISSOCK(os.lstat(path).st_mode):
        os.unlink(path)  # of an earlier run
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    os.umask(0o177)
    listener.bind(path)
    listener.listen(MOST_CLIENTS)
    return listener


def main() -> None:
    """The program. Ends by a signal; 2: a usage that it does not know."""
    parser = argparse.ArgumentParser(description="Has XFS give back what it allocated behind files that grow.")
    parser.add_argument("--socket", metavar="PATH", help="the socket to make, where systemd has opened none")
    parser.add_argument("mount_points", nargs="+", metavar="MOUNT_POINT", help="what may be asked for")
    given = parser.parse_args()
    for path in given.mount_points:
        if os.path.normpath(path) != path or not path.startswith("/") or path.startswith("//"):
            parser.error(f"{path!r} is not an absolute path without '.', '..' and '//'")
    listener = listening(given.socket)
    if listener is None:
        parser.error("systemd has opened no socket, and --socket names none")
    serve(listener, frozenset(map(os.fsencode, given.mount_points)))


if __name__ == "__main__":
    main()
