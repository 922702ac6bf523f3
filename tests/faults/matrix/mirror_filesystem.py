"""A FUSE filesystem that reports the size of another one, and whose answers can fail, be
late, or stop and come again.

It is the `statvfs` of a node under pressure that a test has in its hand: the images are on the
mirrored filesystem, and the runtime names this one as their place. While answers are stopped,
requests are not read, so a process that waits for one can still be killed.

Covers: one empty directory. Does not cover: a filesystem that keeps killed
processes; see `silent_filesystem`.
"""

from __future__ import annotations

import errno
import os
import select
import struct
import threading

from tests.faults import silent_filesystem as fuse
from tests.faults.silent_filesystem import SilentFilesystem

_TURN_SECONDS = 0.02


class MirrorFilesystem(SilentFilesystem):
    """Mounted on `directory`. `mirrored`: a path on the filesystem whose numbers it
    reports, "" for fixed ones.

    `error`: the errno of every statfs, 0 for none. `delay_seconds`: before each answer.
    `nonsense`: it reports a filesystem of no size. `stopped`: it answers nothing but
    the kernel's first request.
    """

    def __init__(self, directory: str, mirrored: str = "", *, stopped: bool = False) -> None:
        super().__init__(directory)
        self._mirrored = mirrored
        self.stopped = stopped
        self.error = 0
        self.delay_seconds = 0.0
        self.nonsense = False
        self._over = threading.Event()

    def abort(self) -> None:
        """Ends the filesystem: every call that hangs fails with ENOTCONN. May be called twice."""
        self._over.set()
        super().abort()

    def _serve(self) -> None:
        while True:
            ready, _, _ = select.select([self._device, self._ending], [], [])
            if self._ending in ready:
                return
            if self.stopped and self.requests[fuse._INIT]:
                select.select([self._ending], [], [], _TURN_SECONDS)
                continue
            try:
                self._serve_one(os.read(self._device, fuse._LARGEST_REQUEST))
            except OSError as failed:
                # ENOENT: its caller has left
                if failed.errno not in (errno.EAGAIN, errno.EINTR, errno.ENOENT):
                    return

    def _serve_one(self, request: bytes) -> None:
        _, operation, unique, node, *_ = fuse._IN_HEADER.unpack_from(request)
        self.requests[operation] += 1
        if operation in fuse._WITHOUT_ANSWER:
            return
        if self.delay_seconds and operation != fuse._INIT:
            self._over.wait(self.delay_seconds)
        os.write(self._device, self._answer(operation, unique, node))

    def _answer(self, operation: int, unique: int, node: int) -> bytes:
        if operation != fuse._STATFS:
            return super()._answer(operation, unique, node)
        if self.error:
            return fuse._OUT_HEADER.pack(fuse._OUT_HEADER.size, -self.error, unique)
        if self.nonsense:
            body = fuse._STATFS_OUT.pack(0, 0, 0, 0, 0, 0, 255, 0)
        elif self._mirrored:
            seen = os.statvfs(self._mirrored)
            counts = (seen.f_blocks, seen.f_bfree, seen.f_bavail, seen.f_files, seen.f_ffree)
            body = fuse._STATFS_OUT.pack(*counts, seen.f_bsize, seen.f_namemax, seen.f_frsize)
        else:
            return super()._answer(operation, unique, node)
        return struct.pack("=IiQ", fuse._OUT_HEADER.size + len(body), 0, unique) + body
