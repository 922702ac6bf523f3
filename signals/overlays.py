"""Overlay mounts and where they write: what is written into a container is in its upper directory.

Source: the kernel's `Documentation/filesystems/overlayfs.rst`. Covers: the mounts of this process's mount namespace.
Does not cover: which container a mount belongs to.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

from signals.mounts import Mount

OVERLAY = "overlay"


@dataclass(frozen=True, slots=True)
class WritableOverlay:
    """One overlay that can be written to: where it is mounted first, the `st_dev` of its files, its upper directory."""

    point: str
    device_id: int
    upper: str


def writable_overlays(mounts: Iterable[Mount]) -> tuple[WritableOverlay, ...]:
    """Each overlay with an upper directory once, however often it is mounted; one with a relative path is left out."""
    found: dict[str, WritableOverlay] = {}
    for mount in mounts:
        upper = mount.option("upperdir") if mount.type == OVERLAY else None
        major, _, minor = mount.device.partition(":")
        if upper is not None and upper.startswith("/") and upper not in found:
            found[upper] = WritableOverlay(mount.point, os.makedev(int(major), int(minor)), upper)
    return tuple(found.values())
