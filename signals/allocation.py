"""What ext4 and btrfs say in sysfs about their space, beyond statvfs.

Sources: the kernel's `Documentation/ABI/testing/sysfs-fs-ext4` (delayed_allocation_blocks), and
https://btrfs.readthedocs.io/en/latest/ch-sysfs.html (`/sys/fs/btrfs/<UUID>/allocation`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from signals.sysfs import SYS, names_in, number_of

SECTOR = 512  # the unit of `size` of a block device, whatever its blocks are


@dataclass(frozen=True, slots=True)
class ChunkUse:
    """The chunks of one kind; bytes. `total` and `used` as files see them; `on_disk`: `total` with its copies."""

    total: int
    used: int
    on_disk: int


@dataclass(frozen=True, slots=True)
class BtrfsAllocation:
    """How a btrfs has given out its devices: by kind (`data`, `metadata`, `system`, `mixed`); bytes.

    `unallocated`: of the devices, not in any chunk yet; None if their size is not known. `delayed`: of data, written
    and without a place yet, or on their way to it (`bytes_may_use`, `bytes_reserved`): statvfs shows them as free.
    """

    chunks: Mapping[str, ChunkUse] = field(default_factory=dict)
    unallocated: int | None = None
    delayed: int = 0


def delayed_allocation_bytes(device: str, block_size: int, sys: str = SYS) -> int | None:
    """Bytes of an ext4 that are written but have no place on the disk yet; None where the kernel does not say."""
    blocks = number_of(os.path.join(sys, "fs", "ext4", device, "delayed_allocation_blocks"))
    return None if blocks is None else blocks * block_size


def btrfs_allocation(device: str, sys: str = SYS) -> BtrfsAllocation | None:
    """The allocation of the btrfs that has this device (kernel name); None where the kernel does not say."""
    root = os.path.join(sys, "fs", "btrfs")
    for uuid in names_in(root):
        directory = os.path.join(root, uuid)
        devices = names_in(os.path.join(directory, "devices"))
        if device in devices:
            sizes = [number_of(os.path.join(directory, "devices", each, "size")) for each in devices]
            return _allocation(os.path.join(directory, "allocation"), sizes)
    return None


def _allocation(directory: str, sectors: list[int | None]) -> BtrfsAllocation | None:
    chunks = {}
    for kind in names_in(directory):
        numbers = [
            number_of(os.path.join(directory, kind, name)) for name in ("total_bytes", "bytes_used", "disk_total")
        ]
        total, used, on_disk = numbers
        if total is not None and used is not None and on_disk is not None:
            chunks[kind] = ChunkUse(total, used, on_disk)
    if not chunks:
        return None
    known = [size * SECTOR for size in sectors if size is not None]
    given_out = sum(use.on_disk for use in chunks.values())
    unallocated = max(sum(known) - given_out, 0) if len(known) == len(sectors) else None
    of_data = os.path.join(directory, "data")
    delayed = sum(number_of(os.path.join(of_data, name)) or 0 for name in ("bytes_may_use", "bytes_reserved"))
    return BtrfsAllocation(chunks, unallocated, delayed)
