"""Who else could have put a file or a socket in its place, and what is refused for it.

What a root process reads as its configuration, and whom it speaks CRI to, must be root's doing or its own. Trusted
are root and the user that the process runs as; of groups those that such a user is in anyway: root's, and its own.

* A symlink is followed and its target judged: `/var/run` is one, and so is every file of a ConfigMap volume.
* The directory of the target counts too: whoever may write it can put something else in that place. A sticky one
  (`/tmp`) is allowed: there only the owner of an entry may replace it.
* Who may *use* a socket is the operator's business: docker gives its own to a group (0660), and that is no one who
  can replace it.

Whoever has the trusted uid is not kept out, and nothing here is a lock: what is looked at may change afterwards, by
the hand of those who are trusted.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass

ROOT = 0


@dataclass(frozen=True, slots=True)
class Reader:
    """The user and the group that the judging process has."""

    uid: int
    gid: int

    def trusts(self, uid: int) -> bool:
        """Root, or the very user."""
        return uid in (ROOT, self.uid)


def this_process() -> Reader:
    """The effective ids: those that the kernel checks with."""
    return Reader(os.geteuid(), os.getegid())


def socket_refusal(path: str, reader: Reader | None = None) -> str | None:
    """Why the socket at `path` is not spoken to, as the end of a sentence; None: it is trusted, or nothing is there.

    What cannot be looked at for want of permission is left to the connection, which then fails by itself.
    """
    reader = reader or this_process()
    try:
        target = os.path.realpath(path)
        found, directory = os.stat(target), os.stat(os.path.dirname(target))
    except OSError:
        return None
    if not stat.S_ISSOCK(found.st_mode):
        return "it is not a socket"
    if not reader.trusts(found.st_uid):
        return f"it belongs to uid {found.st_uid}; {_allowed(reader)}"
    if found.st_mode & stat.S_IWOTH:
        return f"every user may connect to it (mode {_mode(found)}); allowed is at most 0770"
    return _directory_refusal(os.path.dirname(target), directory, reader)


def file_refusal(path: str, found: os.stat_result, reader: Reader | None = None) -> str | None:
    """Why the file at `path` is not read as configuration, as the end of a sentence; None: it is trusted.

    `found`: what `fstat` says of it once it is open. Raises OSError when its directory cannot be looked at.
    """
    reader = reader or this_process()
    if not reader.trusts(found.st_uid):
        return f"it belongs to uid {found.st_uid}; {_allowed(reader)}"
    if found.st_mode & stat.S_IWOTH:
        return f"every user may write it (mode {_mode(found)}); allowed is at most 0644"
    if _group_may_write(found, reader):
        return f"group {found.st_gid} may write it (mode {_mode(found)}); allowed is at most 0644"
    return directory_refusal(os.path.dirname(os.path.realpath(path)), reader)


def directory_refusal(path: str, reader: Reader | None = None) -> str | None:
    """Why what lies in a directory is not trusted; None: only the trusted may put something there. Raises OSError."""
    return _directory_refusal(path, os.stat(path), reader or this_process())


def _directory_refusal(path: str, found: os.stat_result, reader: Reader) -> str | None:
    if found.st_mode & stat.S_ISVTX:
        return None
    if not reader.trusts(found.st_uid):
        return f"its directory {path} belongs to uid {found.st_uid}; {_allowed(reader)}"
    if found.st_mode & stat.S_IWOTH:
        return f"every user may write its directory {path} (mode {_mode(found)}); allowed is at most 0755"
    if _group_may_write(found, reader):
        return f"group {found.st_gid} may write its directory {path} (mode {_mode(found)}); allowed is at most 0755"
    return None


def _group_may_write(found: os.stat_result, reader: Reader) -> bool:
    return bool(found.st_mode & stat.S_IWGRP) and found.st_gid not in (ROOT, reader.gid)


def _allowed(reader: Reader) -> str:
    return "allowed is root's" if reader.uid == ROOT else f"allowed is root's or that of uid {reader.uid}"


def _mode(found: os.stat_result) -> str:
    return f"{stat.S_IMODE(found.st_mode):04o}"
