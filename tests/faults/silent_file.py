"""A filesystem with one file, whose `open` never ends once it has fallen silent: an
`execve` of the file hangs.

Everything else is answered as before if it is swallowed (`Silence.SWALLOWED`), as by a scanner that
looks at what is started; nothing is if it is left unread (`Silence.UNREAD`), as by a dead server.

Source: include/uapi/linux/fuse.h.
"""

from __future__ import annotations

import stat
import struct
from pathlib import Path

from tests.faults import silent_filesystem as fuse
from tests.faults.silent_filesystem import SilentFilesystem

OPEN, READ = 14, 15
_RELEASE, _FLUSH = 18, 25
_FILE_NODE = 2
# node, generation, name valid for, attributes valid for, and their nanoseconds
_ENTRY_OUT = struct.Struct("=QQQQII")
_READ_IN = struct.Struct("=QQI")  # handle, offset, size


class SilentFile(SilentFilesystem):
    """Mounted on `directory`, with the one file `program`, of this content and mode."""

    def __init__(
        self, directory: Path, content: bytes = b"#!/bin/sh\nexit 0\n", mode: int = 0o755
    ) -> None:
        super().__init__(str(directory))
        self.path = str(directory / "program")
        self._content = content
        self._mode = mode

    def _swallows(self, operation: int) -> bool:
        return self._silence is not None and operation == OPEN

    def _attributes(self) -> bytes:
        size, mode = len(self._content), stat.S_IFREG | self._mode
        blocks = -(-size // 512)
        return fuse._ATTR_OUT.pack(
            0, 0, _FILE_NODE, size, blocks, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, fuse._BLOCK, 0
        )

    def _answer(self, operation: int, unique: int, node: int) -> bytes:
        match operation:
            case fuse._LOOKUP if self._body.rstrip(b"\0") == b"program":
                body = _ENTRY_OUT.pack(_FILE_NODE, 0, 0, 0, 0, 0) + self._attributes()[16:]
            case fuse._GETATTR if node == _FILE_NODE:
                body = self._attributes()
            case _ if operation == OPEN:
                body = struct.pack("=QII", 0, 0, 0)
            case _ if operation == READ:
                _, offset, size = _READ_IN.unpack_from(self._body)
                body = self._content[offset : offset + size]
            case _ if operation in (_RELEASE, _FLUSH):
                body = b""
            case _:
                return super()._answer(operation, unique, node)
        return fuse._OUT_HEADER.pack(fuse._OUT_HEADER.size + len(body), 0, unique) + body
