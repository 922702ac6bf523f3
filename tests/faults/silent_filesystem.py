"""A filesystem that stops answering: a FUSE server in a few lines of Python, directly on /dev/fuse.

It is mounted on a directory in the private mount namespace of the tests and answers as an empty
directory of a given size. `fall_silent` makes it stop answering, in one of two ways that the
kernel treats differently:

* `UNREAD`: requests are not read. A process that waits for one can still be killed, as with a
  stopped program and with most dead network filesystems.
* `SWALLOWED`: requests are read and never answered. The kernel then waits for the answer
  whatever signal comes: a thread in such a call outlives SIGKILL, and so does its process, until
  the filesystem is aborted.

When the `with` block ends the device is closed, which aborts the connection: every call that hangs
fails with ENOTCONN, so no process stays stuck. The same happens when this process dies.

Source: include/uapi/linux/fuse.h; fs/fuse/dev.c, request_wait_answer, for
what may interrupt a wait.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import stat
import struct
import threading
from collections import Counter
from enum import Enum
from types import TracebackType
from typing import Self

import pytest

from eviction.drill.runtime.private_mounts import libc, unmount
from tests.sockets.mounts import need_mounts

_LOOKUP, _FORGET, _GETATTR, _STATFS, _INIT, _OPENDIR, _READDIR = 1, 2, 3, 17, 26, 27, 28
_RELEASEDIR, _ACCESS, _INTERRUPT, _DESTROY, _BATCH_FORGET = 29, 34, 36, 38, 42
_WITHOUT_ANSWER = (_FORGET, _INTERRUPT, _BATCH_FORGET)
# length, operation, unique, node, user, group, process, padding
_IN_HEADER = struct.Struct("=IIQQIIII")
_OUT_HEADER = struct.Struct("=IiQ")  # length, error, unique
# major, minor, read ahead, flags, backlog, congestion, largest write
_INIT_OUT = struct.Struct("=IIIIHHI40x")
_ATTR_OUT = struct.Struct("=QI4xQQQQQQIIIIIIIIII")  # valid for, then struct fuse_attr
# blocks, free, available, files, files free, block, name, fragment
_STATFS_OUT = struct.Struct("=QQQQQIII4x24x")
_PROTOCOL = (7, 31)
_LARGEST_REQUEST = 64 * 1024
_BLOCK = 4096
_INODES = 1000


class Silence(Enum):
    """How it stops answering."""

    UNREAD = "unread"
    SWALLOWED = "swallowed"


class SilentFilesystem:
    """An empty filesystem of `size_bytes` on `directory`, half of it free, until `fall_silent`.

    Skips without FUSE.
    """

    def __init__(self, directory: str, size_bytes: int = 64 << 20) -> None:
        self._directory = directory
        self._blocks = size_bytes // _BLOCK
        self._silence: Silence | None = None
        self._body = b""  # of the request that is being answered
        self._ending, self._end = os.pipe2(os.O_CLOEXEC)
        self.requests: Counter[int] = Counter()

    def __enter__(self) -> Self:
        need_mounts()
        try:
            self._device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            pytest.skip(f"needs /dev/fuse: {error.strerror}")
        options = f"fd={self._device},rootmode=40755,user_id=0,group_id=0,allow_other"
        if libc.mount(b"silent", os.fsencode(self._directory), b"fuse", 0, options.encode()) != 0:
            os.close(self._device)
            pytest.skip(
                f"needs a FUSE mount on {self._directory}: {os.strerror(ctypes.get_errno())}"
            )
        self._server = threading.Thread(target=self._serve, name="silent filesystem", daemon=True)
        self._server.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.abort()

    def fall_silent(self, silence: Silence) -> None:
        """Stop answering."""
        if silence is Silence.UNREAD:
            self._stop_serving()  # first, as a request that was read must still be answered
        self._silence = silence

    def abort(self) -> None:
        """End the filesystem: every call that hangs fails with ENOTCONN. May be called twice."""
        self._stop_serving()
        if self._device >= 0:
            os.close(self._device)
            self._device = -1
            unmount(self._directory)

    @property
    def statfs_requests(self) -> int:
        """How many statfs requests have been read so far."""
        return self.requests[_STATFS]

    def _stop_serving(self) -> None:
        if self._end >= 0:
            os.close(self._end)
            self._end = -1
            self._server.join()
            os.close(self._ending)

    def _serve(self) -> None:
        while True:
            ready, _, _ = select.select([self._device, self._ending], [], [])
            if self._ending in ready:
                return
            try:
                request = os.read(self._device, _LARGEST_REQUEST)
            except OSError as error:
                # ENOENT: its caller was killed meanwhile
                if error.errno in (errno.EAGAIN, errno.EINTR, errno.ENOENT):
                    continue
                return  # ENODEV: it was unmounted
            _, operation, unique, node, *_ = _IN_HEADER.unpack_from(request)
            self.requests[operation] += 1
            self._body = request[_IN_HEADER.size :]
            if operation in _WITHOUT_ANSWER or self._swallows(operation):
                continue
            try:
                os.write(self._device, self._answer(operation, unique, node))
            except OSError as error:
                if error.errno != errno.ENOENT:  # its caller has left
                    return

    def _swallows(self, operation: int) -> bool:
        return self._silence is not None

    def _answer(self, operation: int, unique: int, node: int) -> bytes:
        match operation:
            case _ if operation == _INIT:
                body = _INIT_OUT.pack(*_PROTOCOL, 0, 0, 1, 1, _BLOCK)
            case _ if operation == _GETATTR:
                mode = stat.S_IFDIR | 0o755
                body = _ATTR_OUT.pack(
                    0, 0, node, 0, 0, 0, 0, 0, 0, 0, 0, mode, 2, 0, 0, 0, _BLOCK, 0
                )
            case _ if operation == _STATFS:
                free = self._blocks // 2
                body = _STATFS_OUT.pack(
                    self._blocks, free, free, _INODES, _INODES // 2, _BLOCK, 255, _BLOCK
                )
            case _ if operation in (_ACCESS, _RELEASEDIR, _READDIR, _DESTROY):
                body = b""
            case _ if operation == _OPENDIR:
                body = struct.pack("=QII", 0, 0, 0)
            case _:
                missing = errno.ENOENT if operation == _LOOKUP else errno.ENOSYS
                return _OUT_HEADER.pack(_OUT_HEADER.size, -missing, unique)
        return _OUT_HEADER.pack(_OUT_HEADER.size + len(body), 0, unique) + body
