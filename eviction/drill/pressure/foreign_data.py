"""What else lives on the filesystem that a drill would fill: everything that is not the node's own."""

from __future__ import annotations

import os
from collections.abc import Iterable

from eviction.drill.pressure.real_fill_program import PREFIX

NAMED = 3  # so many are told


def mount_point(directory: str) -> str:
    """The highest directory above that is on the same filesystem."""
    path = os.path.realpath(directory)
    device = os.stat(path).st_dev
    while path != "/" and os.stat(os.path.dirname(path)).st_dev == device:
        path = os.path.dirname(path)
    return path


def other_data(directory: str, own: Iterable[str]) -> list[str]:
    """The first few things on the directory's filesystem that belong neither to the paths in `own` nor lie on the way
    to them. Raises OSError where that cannot be looked at."""
    known = {os.path.realpath(path) for path in (*own, directory)}
    top = mount_point(directory)
    found: list[str] = []
    pending = [top]
    while pending and len(found) < NAMED:
        at = pending.pop()
        for name in sorted(os.listdir(at)):
            path = os.path.join(at, name)
            if path in known or (at == top and name == "lost+found") or name.startswith(PREFIX):
                continue
            if any(each.startswith(f"{path}/") for each in known) and not os.path.islink(path):
                pending.append(path)
            else:
                found.append(path)
    return found[:NAMED]
