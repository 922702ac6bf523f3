"""Filesystems that stop answering: a FUSE server in a few lines of Python, directly on /dev/fuse.

One is mounted on a directory in the private mount namespace of the tests and answers as an empty
directory. It stops answering in one of two ways that the kernel treats differently:

* `stopped`: requests are not read. A process that waits for one can still be killed, as with a
  stopped program and with most dead network filesystems.
* `swallows`: requests are read and never answered. The kernel then waits for the answer
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
from pathlib import Path
from typing import Self

import pytest

from eviction.drill.private_mounts import libc, unmount
from tests.sockets.mounts import need_mounts

OPEN, STATFS = 14, 17
_LOOKUP, _FORGET, _GETATTR, _READ, _RELEASE, _FLUSH, _INIT = 1, 2, 3, 15, 18, 25, 26
_OPENDIR, _READDIR, _RELEASEDIR, _ACCESS, _INTERRUPT, _DESTROY, _BATCH_FORGET = (
    27, 28, 29, 34, 36, 38, 42,
)  # fmt: skip
_WITHOUT_ANSWER = (_FORGET, _INTERRUPT, _BATCH_FORGET)
# length, operation, unique, node, user, group, process, padding
_IN_HEADER = struct.Struct("=IIQQIIII")
_OUT_HEADER = struct.Struct("=IiQ")  # length, error, unique
# major, minor, read ahead, flags, backlog, congestion, largest write
_INIT_OUT = struct.Struct("=IIIIHHI40x")
_ATTR_OUT = struct.Struct("=QI4xQQQQQQIIIIIIIIII")  # valid for, then struct fuse_attr
# blocks, free, available, files, files free, block, name, fragment
_STATFS_OUT = struct.Struct("=QQQQQIII4x24x")
# node, generation, name valid for, attributes valid for, and their nanoseconds
_ENTRY_OUT = struct.Struct("=QQQQII")
_READ_IN = struct.Struct("=QQI")  # handle, offset, size
_PROTOCOL = (7, 31)
_BLOCK = 4096
_TURN_SECONDS = 0.02


class SilentFilesystem:
    """An empty filesystem of `size_bytes` on `directory`, half of it free; or one with the numbers
    of the filesystem on which `mirrored` is. Skips without FUSE.

    `error`: the errno of every statfs, 0 for none. `delay_seconds`: before each answer. `nonsense`:
    it reports a filesystem of no size. `stopped`: it reads nothing but the kernel's first request;
    `swallows`: it answers nothing. A request that was read before is still answered.
    """

    def __init__(
        self,
        directory: str,
        size_bytes: int = 64 << 20,
        *,
        mirrored: str = "",
        stopped: bool = False,
    ) -> None:
        self._directory = directory
        self._blocks = size_bytes // _BLOCK
        self._mirrored = mirrored
        self.swallows = False
        self.stopped = stopped
        self.error = 0
        self.delay_seconds = 0.0
        self.nonsense = False
        self._over = threading.Event()
        self._device = -1
        self.requests: Counter[int] = Counter()

    def __enter__(self) -> Self:
        need_mounts()
        try:
            device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            pytest.skip(f"needs /dev/fuse: {error.strerror}")
        options = f"fd={device},rootmode=40755,user_id=0,group_id=0,allow_other"
        if libc.mount(b"silent", os.fsencode(self._directory), b"fuse", 0, options.encode()) != 0:
            os.close(device)
            why = os.strerror(ctypes.get_errno())
            pytest.skip(f"needs a FUSE mount on {self._directory}: {why}")
        self._device = device
        self._server = threading.Thread(target=self._serve, name="filesystem", daemon=True)
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.abort()

    def abort(self) -> None:
        """End the filesystem: every call that hangs fails with ENOTCONN. May be called twice."""
        self._over.set()
        if self._device >= 0:
            self._server.join()
            os.close(self._device)
            self._device = -1
            unmount(self._directory)

    def _serve(self) -> None:
        while not self._over.is_set():
            if not select.select([self._device], [], [], _TURN_SECONDS)[0]:
                continue
            if self.stopped and self.requests[_INIT] > 0:
                self._over.wait(_TURN_SECONDS)
                continue
            try:
                self._serve_one(os.read(self._device, 64 * 1024))
            except OSError as error:
                # ENOENT: its caller has left
                if error.errno not in (errno.EAGAIN, errno.EINTR, errno.ENOENT):
                    return  # ENODEV: it was unmounted

    def _serve_one(self, request: bytes) -> None:
        _, operation, unique, node, *_ = _IN_HEADER.unpack_from(request)
        self.requests[operation] += 1
        if operation in _WITHOUT_ANSWER or (self.swallows and self._hangs(operation)):
            return
        if self.delay_seconds and operation != _INIT:
            self._over.wait(self.delay_seconds)
        try:
            body, failed = self._answer(operation, node, request[_IN_HEADER.size :]), 0
        except OSError as error:
            body, failed = b"", error.errno or errno.EIO
        header = _OUT_HEADER.pack(_OUT_HEADER.size + len(body), -failed, unique)
        os.write(self._device, header + body)

    def _hangs(self, operation: int) -> bool:
        return True

    def _answer(self, operation: int, node: int, asked: bytes) -> bytes:
        """The answer's body. Raises OSError with the errno of an error."""
        match operation:
            case _ if operation == _INIT:
                return _INIT_OUT.pack(*_PROTOCOL, 0, 0, 1, 1, _BLOCK)
            case _ if operation == _GETATTR:
                return self._attributes(node, stat.S_IFDIR | 0o755)
            case _ if operation == STATFS:
                return self._numbers()
            case _ if operation in (_ACCESS, _RELEASEDIR, _READDIR, _DESTROY):
                return b""
            case _ if operation == _OPENDIR:
                return struct.pack("=QII", 0, 0, 0)
            case _:
                raise OSError(errno.ENOENT if operation == _LOOKUP else errno.ENOSYS, "")

    def _attributes(self, node: int, mode: int, size: int = 0) -> bytes:
        blocks = -(-size // 512)
        times = (0,) * 6
        return _ATTR_OUT.pack(0, 0, node, size, blocks, *times, mode, 1, 0, 0, 0, _BLOCK, 0)

    def _numbers(self) -> bytes:
        if self.error:
            raise OSError(self.error, "")
        if self.nonsense:
            return _STATFS_OUT.pack(0, 0, 0, 0, 0, 0, 255, 0)
        if not self._mirrored:
            free = self._blocks // 2
            return _STATFS_OUT.pack(self._blocks, free, free, 1000, 500, _BLOCK, 255, _BLOCK)
        seen = os.statvfs(self._mirrored)
        counts = (seen.f_blocks, seen.f_bfree, seen.f_bavail, seen.f_files, seen.f_ffree)
        return _STATFS_OUT.pack(*counts, seen.f_bsize, seen.f_namemax, seen.f_frsize)


class SilentFile(SilentFilesystem):
    """Has one file, `program`, a script; an `execve` of it hangs once `open` is swallowed.

    Everything else is answered as before then, as by a scanner that looks at what is started.
    """

    CONTENT = b"#!/bin/sh\nexit 0\n"
    NODE = 2

    def __init__(self, directory: Path) -> None:
        super().__init__(str(directory))
        self.path = str(directory / "program")

    def _hangs(self, operation: int) -> bool:
        return operation == OPEN

    def _answer(self, operation: int, node: int, asked: bytes) -> bytes:
        file = self._attributes(self.NODE, stat.S_IFREG | 0o755, len(self.CONTENT))
        match operation:
            case _ if operation == _LOOKUP and asked.rstrip(b"\0") == b"program":
                return _ENTRY_OUT.pack(self.NODE, 0, 0, 0, 0, 0) + file[16:]
            case _ if operation == _GETATTR and node == self.NODE:
                return file
            case _ if operation == OPEN:
                return struct.pack("=QII", 0, 0, 0)
            case _ if operation == _READ:
                _, offset, size = _READ_IN.unpack_from(asked)
                return self.CONTENT[offset : offset + size]
            case _ if operation in (_RELEASE, _FLUSH):
                return b""
            case _:
                return super()._answer(operation, node, asked)
