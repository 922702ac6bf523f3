"""Our files in the state directory: whether they are trusted, and how a small one is replaced.

* Neither the file nor its directory may be a symbolic link, and a file that others may write is
  not trusted. Reading creates nothing.
* The new text is written to a file beside the old one, synced and renamed, so that a full disk (no
  bytes, no inodes) or a kill at any point leaves the old file whole. A kill leaves at most one file
  of a fixed name behind, which the next save removes.
"""

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

from reclaim.trust import directory_at, trusts

MODE = 0o600
FLAGS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC  # never blocks, not on a FIFO
_NOT_REGULAR = "it is not a regular file"


def refusal(descriptor: int) -> str:
    """Why an open file is not trusted, as a clause; empty if it is. Raises OSError."""
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        return _NOT_REGULAR
    if not trusts(status.st_uid) or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return "others may write it (mode 0600 is ours)"
    return ""


class OwnFile:
    """One of our small files in the state directory.

    Constructing it touches nothing; no symbolic link is followed.
    """

    def __init__(self, path: str):
        self._directory, self._name = os.path.split(os.path.abspath(path))
        self._temporary = f".{self._name}.new"

    def read(self, largest_bytes: int) -> bytes:
        """The file, at most one byte more than allowed. Never blocks, not even on a FIFO. Raises
        OSError, and ValueError for a path with a NUL."""
        with (
            directory_at(self._directory, os.O_NOFOLLOW) as directory,
            open(os.open(self._name, os.O_RDONLY | FLAGS, dir_fd=directory), "rb") as file,
        ):
            if why := refusal(file.fileno()):
                raise OSError(why)
            return file.read(largest_bytes + 1)

    def replace(self, text: bytes) -> None:
        """Rewrites the whole file, or leaves the old one as it is. Raises OSError."""
        with self.replaced() as descriptor, open(descriptor, "wb", closefd=False) as file:
            file.write(text)

    @contextmanager
    def replaced(self) -> Iterator[int]:
        """A descriptor of a new file, which takes the place of the old one once the caller has
        written it; if that fails the old one stays. Only one process makes one in a directory at a
        time. Raises OSError."""
        os.makedirs(self._directory, mode=0o700, exist_ok=True)
        with directory_at(self._directory, os.O_NOFOLLOW) as directory, ExitStack() as undone:
            with suppress(OSError):  # NFS locks no directory
                fcntl.flock(directory, fcntl.LOCK_EX)
            with suppress(FileNotFoundError):
                status = os.stat(self._name, dir_fd=directory, follow_symlinks=False)
                if not stat.S_ISREG(status.st_mode):  # not ours to replace
                    raise OSError(_NOT_REGULAR)
            _remove(self._temporary, directory)
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | FLAGS
            descriptor = os.open(self._temporary, flags, MODE, dir_fd=directory)
            undone.callback(os.close, descriptor)
            undone.callback(_remove, self._temporary, directory)
            yield descriptor
            os.fsync(descriptor)
            os.rename(self._temporary, self._name, src_dir_fd=directory, dst_dir_fd=directory)
            os.fsync(directory)

    def remove(self) -> None:
        """Removes the file if it exists. Raises OSError."""
        with suppress(FileNotFoundError), directory_at(self._directory, os.O_NOFOLLOW) as directory:
            _remove(self._name, directory)
            os.fsync(directory)


def _remove(name: str, directory: int) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=directory)
