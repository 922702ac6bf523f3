"""Reads the kernel's table of mounts, as this process sees it."""

from __future__ import annotations

import os
from collections.abc import Iterable

from signals.mounts import Mount, mount_holding, parse_mountinfo

MOUNTS = "/proc/self/mountinfo"


def read_mounts(table: str = MOUNTS) -> tuple[Mount, ...]:
    """The mounts that this process sees, in the order of the kernel; none if the table cannot be read."""
    try:
        with open(table, encoding="utf-8", errors="surrogateescape") as file:
            return parse_mountinfo(file)
    except OSError:
        return ()


def mounts_of(paths: Iterable[str], table: str = MOUNTS) -> dict[str, Mount]:
    """The mount that each path is on, as far as it is found. Follows symlinks, so it blocks where a path does."""
    mounts = read_mounts(table)
    found = {path: mount_holding(os.path.realpath(path), mounts) for path in paths}
    return {path: mount for path, mount in found.items() if mount is not None}
