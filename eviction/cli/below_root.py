"""Files below a root directory, for the installer: nobody who may write there can lead root
elsewhere.

* The root, the directories above it and each one on the way below it belong to root or to who runs
  this, and nobody else may write to them. Otherwise nothing is done. Once that is proven, nobody
  else can exchange one, and plain paths are safe.
* A symlink above the root, or the root itself, is proven with what it leads to. One below the root
  is refused: with another root, an absolute one would lead out of it.
* What is missing is made one directory at a time, each in one that is proven.
* A file is written beside its place and then renamed.

The shell of the installer has it say whether a root is trusted (`check`) before it runs or writes
anything there, and has nothing but the modules of a wheel then: only the standard library and
`reclaim.trust` are imported.
"""

import os
import stat
import sys
from contextlib import suppress
from itertools import accumulate

from reclaim.trust import directory_refusal, owner_only_refusal


class NotTrustedError(Exception):
    """Somebody else could change what is below the root. The message is one sentence."""


def proven(root: str, path: str = "/", *, make: bool = False) -> str:
    """The whole path of the directory `path` below the root, in which nobody else can exchange
    anything. `make`: also makes what is missing of it, and the root.

    Raises NotTrustedError and OSError.
    """
    top = there = os.path.abspath(root)
    while make and not os.path.lexists(there):
        there = os.path.dirname(there)
    if (refusal := directory_refusal(there)) is not None:
        raise NotTrustedError(f"{there} is not trusted: {refusal}")
    below = f"{top[len(there) :]}/{os.path.normpath(f'/{path}')}"
    place = there
    for place in accumulate(filter(None, below.split("/")), os.path.join, initial=there):
        if place == there != top:
            continue  # above the root one like /tmp will do
        if make:
            os.makedirs(place, 0o755, exist_ok=True)
        if place != there and os.path.islink(place):
            raise NotTrustedError(
                f"{place} is a symlink, which is not followed: put a directory there"
            )
        refusal = owner_only_refusal("it", os.stat(place))
        if refusal is not None:
            raise NotTrustedError(f"{place} is not trusted: {refusal} (chown root, chmod go-w)")
    return place


def _file(root: str, path: str, *, make: bool = False) -> str:
    directory, name = os.path.split(path)
    return os.path.join(proven(root, directory, make=make), name)


def check(root: str, *paths: str) -> None:
    """Raises NotTrustedError unless the root and these directories below it are trusted, as far as
    they exist. Raises OSError."""
    for path in ("/", *paths):
        with suppress(FileNotFoundError):
            proven(root, path)


def exists(root: str, path: str) -> bool:
    """Whether there is anything of this path, also a symlink that leads nowhere.

    Raises as `proven`.
    """
    return read(root, path, 0) is not None


def read(root: str, path: str, most_bytes: int) -> bytes | None:
    """A file's content, at most one byte more than allowed; None if nothing is there, empty if it
    is no regular file or others may write it. Raises as `proven`."""
    with suppress(FileNotFoundError):
        file = _file(root, path)
        status = os.lstat(file)
        if not stat.S_ISREG(status.st_mode) or owner_only_refusal("it", status) is not None:
            return b""
        with open(file, "rb") as opened:
            return opened.read(most_bytes + 1)
    return None


def write(root: str, path: str, content: bytes, *, mode: int) -> None:
    """Replaces whatever has this name, unless it is a directory, and makes the directories above
    it. Raises as `proven`."""
    file = _file(root, path, make=True)
    temporary = os.path.join(os.path.dirname(file), f".reclaimd-{os.urandom(8).hex()}")
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as new:
            new.write(content)
        os.rename(temporary, file)
    except OSError as error:
        with suppress(OSError):
            os.unlink(temporary)
        raise OSError(error.errno, error.strerror, file) from None


def remove(root: str, path: str) -> None:
    """Unlinks a file; its directory goes too if it has our name and nothing else is in it.

    Raises as `proven`.
    """
    file = _file(root, path)
    os.unlink(file)
    if "reclaimd" in os.path.dirname(path):
        with suppress(OSError):
            os.rmdir(os.path.dirname(file))


def remove_tree(root: str, path: str) -> None:
    """Removes a directory and all that is below it, but nothing that is mounted there. Raises as
    `proven`."""
    from reclaim.pod_logs import directories  # not for the shell

    above, name = os.path.split(_file(root, path))
    with directories.opened(above) as directory:
        removed = directories.remove_tree(directory, name.encode())
    if removed.failed:
        raise OSError(f"{above}/{removed.sentence}")


def main(root: str, *paths: str) -> None:
    """Makes the root and checks it, for the shell.

    Exits with 2 or 1, and a sentence on stderr, if that raises.
    """
    try:
        proven(root, make=True)
        check(root, *paths)
    except NotTrustedError as error:
        sys.stderr.write(f"refused: {error}\n")
        sys.exit(2)
    except OSError as error:
        sys.stderr.write(f"failed: {error}\n")
        sys.exit(1)
