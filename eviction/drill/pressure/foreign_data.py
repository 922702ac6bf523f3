"""Finds data on the filesystem to be filled that does not belong to the node: neither the kubelet's nor the
runtime's."""

from __future__ import annotations

import os
from collections.abc import Iterable

from eviction.drill.pressure.real_fill_program import PREFIX

LARGEST_FOUND = 3  # a message names no more


def mount_point(directory: str) -> str:
    """The highest directory above `directory` on the same filesystem."""
    path = os.path.realpath(directory)
    device = os.stat(path).st_dev
    while path != "/" and os.stat(os.path.dirname(path)).st_dev == device:
        path = os.path.dirname(path)
    return path


def foreign_entries(directory: str, own: Iterable[str]) -> list[str]:
    """Paths of the first few entries on the directory's filesystem that are neither in `own` nor on the way to them.

    Raises OSError if a directory cannot be read.
    """
    known = {os.path.realpath(path) for path in (*own, directory)}
    top = mount_point(directory)
    found: list[str] = []
    pending = [top]
    while pending and len(found) < LARGEST_FOUND:
        at = pending.pop()
        for name in sorted(os.listdir(at)):
            path = os.path.join(at, name)
            if path in known or (at == top and name == "lost+found") or name.startswith(PREFIX):
                continue
            if any(each.startswith(f"{path}/") for each in known) and not os.path.islink(path):
                pending.append(path)
            else:
                found.append(path)
    return found[:LARGEST_FOUND]
