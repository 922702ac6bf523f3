"""Checks owner and mode of configuration files and sockets: could an untrusted user have put them there?

A root process must not read its configuration from, or speak CRI to, something that another user controls. Trusted are
root and the user that the process runs as, and the groups root and the process's own.

* A symlink is followed and its target checked: `/var/run` is one, and so is every file of a ConfigMap volume.
* The directory of the target is checked too: a user who may write it can replace the file. A sticky directory (`/tmp`)
  is allowed, as there only the owner of an entry may replace it.
* The group of a socket may connect: docker gives its socket to a group (0660). That lets nobody replace it.

This is no lock: a trusted user may change the file or socket after the check.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass

ROOT = 0


@dataclass(frozen=True, slots=True)
class Credentials:
    """The user and the group of the process that reads the file or connects to the socket."""

    uid: int
    gid: int

    def trusts(self, uid: int) -> bool:
        """Whether it is root or that user."""
        return uid in (ROOT, self.uid)


def this_process() -> Credentials:
    """The effective ids of this process, which the kernel uses for permission checks."""
    return Credentials(os.geteuid(), os.getegid())


def socket_refusal(path: str, credentials: Credentials | None = None) -> str | None:
    """Why the socket at `path` is not used, as the end of a sentence; None: it is trusted, or does not exist.

    Also None when it cannot be examined for lack of permission: then connecting fails by itself.
    """
    credentials = credentials or this_process()
    try:
        target = os.path.realpath(path)
        status, directory = os.stat(target), os.stat(os.path.dirname(target))
    except OSError:
        return None
    if not stat.S_ISSOCK(status.st_mode):
        return "it is not a socket"
    if not credentials.trusts(status.st_uid):
        return f"it belongs to uid {status.st_uid}; {_allowed(credentials)}"
    if status.st_mode & stat.S_IWOTH:
        return f"every user may connect to it (mode {_mode(status)}); allowed is at most 0770"
    return _directory_refusal(os.path.dirname(target), directory, credentials)


def file_refusal(path: str, status: os.stat_result, credentials: Credentials | None = None) -> str | None:
    """Why the file at `path` is not read as configuration, as the end of a sentence; None: it is trusted.

    `status`: from `fstat` after it was opened. Raises OSError when its directory cannot be examined.
    """
    credentials = credentials or this_process()
    if not credentials.trusts(status.st_uid):
        return f"it belongs to uid {status.st_uid}; {_allowed(credentials)}"
    if status.st_mode & stat.S_IWOTH:
        return f"every user may write it (mode {_mode(status)}); allowed is at most 0644"
    if _group_may_write(status, credentials):
        return f"group {status.st_gid} may write it (mode {_mode(status)}); allowed is at most 0644"
    return directory_refusal(os.path.dirname(os.path.realpath(path)), credentials)


def own_directory_refusal(path: str, status: os.stat_result, credentials: Credentials | None = None) -> str | None:
    """Why others could change or replace the directory at `path`, as the end of a sentence; None: only trusted users.

    `status`: from `fstat` after it was opened. Raises OSError when its parent directory cannot be examined.
    """
    credentials = credentials or this_process()
    if not credentials.trusts(status.st_uid):
        return f"it belongs to uid {status.st_uid}; {_allowed(credentials)}"
    return directory_refusal(os.path.dirname(os.path.realpath(path)), credentials)


def owner_only_refusal(what: str, status: os.stat_result, credentials: Credentials | None = None) -> str | None:
    """Why others than its owner could change `what`, or its owner is not trusted, as a sentence; None: neither.

    Stricter than for what is read: no group may write it, as the bits of the group also stand for access control lists.
    """
    credentials = credentials or this_process()
    if not credentials.trusts(status.st_uid):
        return f"{what} belongs to uid {status.st_uid}; {_allowed(credentials)}"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        who = "every user" if status.st_mode & stat.S_IWOTH else f"group {status.st_gid}"
        return f"{who} may write {what} (mode {_mode(status)}); allowed is at most 0755"
    return None


def directory_refusal(path: str, credentials: Credentials | None = None) -> str | None:
    """Why the entries of a directory are not trusted; None: only trusted users may write it. Raises OSError."""
    return _directory_refusal(path, os.stat(path), credentials or this_process())


def _directory_refusal(path: str, status: os.stat_result, credentials: Credentials) -> str | None:
    if status.st_mode & stat.S_ISVTX:
        return None
    if not credentials.trusts(status.st_uid):
        return f"its directory {path} belongs to uid {status.st_uid}; {_allowed(credentials)}"
    if status.st_mode & stat.S_IWOTH:
        return f"every user may write its directory {path} (mode {_mode(status)}); allowed is at most 0755"
    if _group_may_write(status, credentials):
        return f"group {status.st_gid} may write its directory {path} (mode {_mode(status)}); allowed is at most 0755"
    return None


def _group_may_write(status: os.stat_result, credentials: Credentials) -> bool:
    return bool(status.st_mode & stat.S_IWGRP) and status.st_gid not in (ROOT, credentials.gid)


def _allowed(credentials: Credentials) -> str:
    return "allowed is root's" if credentials.uid == ROOT else f"allowed is root's or that of uid {credentials.uid}"


def _mode(status: os.stat_result) -> str:
    return f"{stat.S_IMODE(status.st_mode):04o}"
