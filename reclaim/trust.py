"""Whether an untrusted user could have put a file or socket there, by owners and modes.

A root process must not read its configuration from, or speak CRI to, something that another user
controls. Root, the user the process runs as, and the groups root and the process's own are trusted.

* A symlink is followed and its target checked: `/var/run` is one, and so is every
  file of a ConfigMap volume.
* Every directory on the way is checked too, from the root and through symlinks: a user who may
  write to one can replace what is found in it. Two kinds are allowed anyway: a sticky directory of
  a trusted user (`/tmp`), since only the owner of an entry may replace it there, and a directory on
  a read-only mount, such as the top of a ConfigMap volume, whose mode is 0777.
* In a user namespace, the owner of `/` may be a user unknown to the namespace; directories of
  such owners are accepted.
* The group of a socket may connect: docker gives its socket to a group (0660).
  That lets nobody replace it.

This is not a lock: a trusted user may change the file or socket after the check.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

ROOT = 0
ALL_USERS = ["0", "0", "4294967295"]  # of a uid_map: user_namespaces(7)


def trusts(uid: int) -> bool:
    """Whether it is root or the effective user, by which the kernel checks our permissions."""
    return uid in (ROOT, os.geteuid())


def socket_refusal(path: str) -> str | None:
    """Why the socket at `path` is not used, as the end of a sentence; None if it is
    trusted or does not exist.

    Also None if it cannot be examined for lack of permission: connecting will then fail by itself.
    """
    try:
        status = os.stat(os.path.realpath(path))
        if not stat.S_ISSOCK(status.st_mode):
            return "it is not a socket"
        return (
            _owner_refusal("it", status)
            or _writer_refusal("connect to it", status, "0770", status.st_gid)
            or _way_refusal(path)
        )
    except OSError:
        return None


def file_refusal(path: str, status: os.stat_result) -> str | None:
    """Why the file at `path` is not read as configuration, as the end of a
    sentence; None if it is trusted.

    `status`: from `fstat` on the opened file. Raises OSError if a directory on
    the way cannot be examined.
    """
    return (
        _owner_refusal("it", status)
        or _writer_refusal("write it", status, "0644", ROOT, os.getegid())
        or _way_refusal(path)
    )


def own_directory_refusal(path: str, status: os.stat_result) -> str | None:
    """Why others could change or replace the directory at `path`, as the end of a sentence; None if
    only trusted users could.

    `status`: from `fstat` on the opened directory. Raises OSError if a directory on
    the way cannot be examined.
    """
    return _owner_refusal("it", status) or _way_refusal(path)


def owner_only_refusal(what: str, status: os.stat_result) -> str | None:
    """Why someone other than its owner could change `what`, or why its owner is not trusted, as a
    sentence; None if neither.

    Stricter than the check of files that are only read: no group may write, as the group bits also
    stand for access control lists.
    """
    return _owner_refusal(what, status) or _writer_refusal(f"write {what}", status, "0755")


def directory_refusal(path: str) -> str | None:
    """Why the entries of a directory are not trusted; None if only trusted users may write to it
    and to the directories on the way.

    Raises OSError.
    """
    return _way_refusal(os.path.join(path, "."))


def identity_of(status: os.stat_result) -> tuple[int, int]:
    """The device and inode in a status."""
    return status.st_dev, status.st_ino


@contextmanager
def directory_at(path: str, flags: int = 0, above: int | None = None) -> Iterator[int]:
    """A descriptor of a directory, relative to `above` if given. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | flags, dir_fd=above)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _way_refusal(path: str) -> str | None:
    """Checks every directory in which a name of the path, or of a symlink on the way, is looked up.

    Raises OSError.
    """
    os.stat(path)  # raises ELOOP if symlinks form a loop
    place = "/"
    names = os.path.join(os.getcwd(), path).split("/")[::-1]
    while names:
        name = names.pop()
        if not name:
            continue
        which = f"the directory {place} above it" if any(names) else f"its directory {place}"
        status = os.stat(place)
        if not _holds(status.st_uid):
            return f"{which} belongs to uid {status.st_uid}; {_allowed()}"
        refusal = _writer_refusal(f"write {which}", status, "0755", ROOT, os.getegid())
        sticky = status.st_mode & stat.S_ISVTX
        if refusal and not (sticky or os.statvfs(place).f_flag & os.ST_RDONLY):
            return refusal
        if name in (".", ".."):
            place = os.path.dirname(place) if name == ".." else place
            continue
        entry = os.path.join(place, name)
        status = os.lstat(entry)
        if not stat.S_ISLNK(status.st_mode):
            place = entry
            continue
        if not _holds(status.st_uid):
            return f"the symlink {entry} belongs to uid {status.st_uid}; {_allowed()}"
        target = os.readlink(entry)
        place = "/" if target.startswith("/") else place
        names += target.split("/")[::-1]
    return None


def _owner_refusal(what: str, status: os.stat_result) -> str | None:
    if trusts(status.st_uid):
        return None
    return f"{what} belongs to uid {status.st_uid}; {_allowed()}"


def _writer_refusal(to_do: str, status: os.stat_result, largest: str, *groups: int) -> str | None:
    """Who else, apart from these groups, may write or connect.

    `largest`: the most permissive mode allowed.
    """
    if status.st_mode & stat.S_IWOTH:
        who = "every user"
    elif status.st_mode & stat.S_IWGRP and status.st_gid not in groups:
        who = f"group {status.st_gid}"
    else:
        return None
    return (
        f"{who} may {to_do} (mode {stat.S_IMODE(status.st_mode):04o}); allowed is at most {largest}"
    )


def _holds(uid: int) -> bool:
    """Whether a directory or symlink of this user may be on the way. Raises OSError."""
    if trusts(uid):
        return True
    with open("/proc/self/uid_map") as known, open("/proc/sys/kernel/overflowuid") as overflow:
        return known.read().split() != ALL_USERS and uid == int(overflow.read())


def _allowed() -> str:
    return (
        "allowed is root's"
        if os.geteuid() == ROOT
        else f"allowed is root's or that of uid {os.geteuid()}"
    )
