"""Files below a root directory, for the installer: nobody who may write
there can lead root elsewhere.

* The root, the directories above it and each one on the way below it belong to root or to who runs
  this, and nobody else may write to them. Otherwise nothing is done.
* Below the root no symlink is followed: each directory is opened by its name
  in the opened one above it.
* A file is written under a name that nobody can know before, which must not exist, and then
  renamed.

The shell of the installer has it say whether a root is trusted (`check`) before it runs or writes
anything there, and has nothing but the modules of a wheel then: only the standard library and
`reclaim.trust` are imported.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from reclaim.trust import directory_refusal, owner_only_refusal

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class NotTrustedError(Exception):
    """Somebody else could change what is below the root. The message is one sentence."""


@contextmanager
def opened(root: str, path: str = "/", *, make: bool = False) -> Iterator[int]:
    """The directory `path` below the root, opened. `make`: also makes what is
    missing of it, and the root.

    Raises NotTrustedError, and OSError with the whole path.
    """
    place = end = os.path.abspath(root)
    while make and not os.path.lexists(place):
        place = os.path.dirname(place)
    names = f"{end[len(place) :]}/{os.path.normpath(f'/{path}')}".split("/")
    if (refusal := directory_refusal(place)) is not None:
        raise NotTrustedError(f"{place} is not trusted: {refusal}")
    descriptor = os.open(place, DIRECTORY)  # a symlink in its path is trusted by now
    try:
        if place == end:
            _refuse_others(place, descriptor)
        for name in filter(None, names):
            place = os.path.join(place, name)
            try:
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(name, 0o755, dir_fd=descriptor)
                below = os.open(name, DIRECTORY | os.O_NOFOLLOW, dir_fd=descriptor)
            except OSError as error:
                if error.errno == errno.ENOTDIR and os.path.islink(place):
                    raise NotTrustedError(
                        f"{place} is a symlink, which is not followed: put a directory there"
                    ) from None
                error.filename = place
                raise
            os.close(descriptor)
            descriptor = below
            _refuse_others(place, descriptor)
        yield descriptor
    finally:
        os.close(descriptor)


def _refuse_others(place: str, descriptor: int) -> None:
    refusal = owner_only_refusal("it", os.fstat(descriptor))
    if refusal is not None:
        raise NotTrustedError(f"{place} is not trusted: {refusal} (chown root, chmod go-w)")


def check(root: str, *paths: str) -> None:
    """Raises NotTrustedError unless the root and these directories below it are trusted, as far as
    they exist. Raises OSError."""
    for path in ("/", *paths):
        with suppress(FileNotFoundError), opened(root, path):
            pass


def exists(root: str, path: str) -> bool:
    """Whether there is anything of this path, also a symlink that leads nowhere.

    Raises as `opened`.
    """
    return read(root, path, 0) is not None


def read(root: str, path: str, most_bytes: int) -> bytes | None:
    """A file's content, at most one byte more than allowed; None if nothing is there, empty if it
    is no regular file or others may write it. Raises as `opened`. Never waits for a FIFO."""
    directory, name = os.path.split(path)
    with suppress(FileNotFoundError), opened(root, directory) as above:
        status = os.lstat(name, dir_fd=above)
        if not stat.S_ISREG(status.st_mode) or owner_only_refusal("it", status) is not None:
            return b""
        with open(os.open(name, READ, dir_fd=above), "rb") as file:
            return file.read(most_bytes + 1)
    return None


def write(root: str, path: str, content: bytes, *, mode: int) -> None:
    """Replaces whatever has this name, unless it is a directory, and makes the directories above
    it. Raises as `opened`."""
    directory, name = os.path.split(path)
    with opened(root, directory, make=True) as above:
        temporary = f".reclaimd-{os.urandom(8).hex()}"
        with open(os.open(temporary, NEW, mode, dir_fd=above), "wb") as file:
            try:
                file.write(content)
                file.flush()
                os.rename(temporary, name, src_dir_fd=above, dst_dir_fd=above)
            except OSError as error:
                os.unlink(temporary, dir_fd=above)
                error.filename = f"{root.rstrip('/')}{path}"
                error.filename2 = None
                raise


def remove(root: str, path: str) -> None:
    """Unlinks a file; its directory goes too if it has our name and nothing else is in it.

    Raises as `opened`.
    """
    directory, name = os.path.split(path)
    with opened(root, directory) as above:
        os.unlink(name, dir_fd=above)
    if "reclaimd" in directory:
        above_it, name = os.path.split(directory)
        with suppress(OSError), opened(root, above_it) as above:
            os.rmdir(name, dir_fd=above)


def remove_tree(root: str, path: str) -> None:
    """Removes a directory and all that is below it. Raises as `opened`."""
    from reclaim.pod_logs import directories  # not for the shell

    directory, name = os.path.split(path)
    with opened(root, directory) as above:
        removed = directories.remove_tree(above, name.encode())
    if removed.failed:
        raise OSError(f"{root.rstrip('/')}{directory}/{removed.sentence}")


def main(root: str, *paths: str) -> None:
    """Makes the root and checks it, for the shell.

    Exits with 2 or 1, and a sentence on stderr, if that raises.
    """
    try:
        with opened(root, make=True):
            check(root, *paths)
    except NotTrustedError as error:
        sys.stderr.write(f"refused: {error}\n")
        sys.exit(2)
    except OSError as error:
        sys.stderr.write(f"failed: {error}\n")
        sys.exit(1)
