"""The block devices below a filesystem, from sysfs: the kernel's name of the first, and a thin pool among them.

A thin pool has fewer blocks than its volumes promise together. When its data are full, writes fail or hang, whatever
`statvfs` says. How full it is cannot be read here: that is an ioctl of root (`dmsetup status`).
Sources: the kernel's `Documentation/admin-guide/device-mapper/thin-provisioning.rst`; LVM's `lib/misc/lvm-string.c` and
`lib/activate/dev_manager.c` for the suffix of the pool's UUID.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from signals.mounts import Mount
from signals.sysfs import SYS, names_in, text_of

MOST_DEVICES = 64
LVM, POOL_OF_LVM = "LVM-", "-tpool"


@dataclass(frozen=True, slots=True)
class ThinPool:
    """A device-mapper device that is a thin pool. `sure`: LVM's UUID says so; else its name does."""

    name: str
    sure: bool


def thin_pool(name: str, uuid: str) -> ThinPool | None:
    """The pool that a device-mapper device is, from its name and UUID; None for any other device.

    Where LVM has made it, the UUID ends in `-tpool`. Others (containerd's devmapper snapshotter, Docker's) set a UUID
    of their own or none, and the name is what an administrator or they chose: one that ends in `pool` counts.
    """
    if uuid.startswith(LVM):
        return ThinPool(name, sure=True) if uuid.endswith(POOL_OF_LVM) else None
    return ThinPool(name, sure=False) if name.endswith("pool") else None


def kernel_name(mount: Mount, sys: str = SYS) -> str | None:
    """The kernel's name (`sda2`, `dm-0`) of the block device that was mounted; None where there is none.

    By the number of the filesystem's device, else by what was mounted, which a btrfs needs, as its number is no
    device's.
    """
    by_number = os.path.join(sys, "dev", "block", mount.device)
    if os.path.exists(by_number):
        return os.path.basename(os.path.realpath(by_number))
    named = os.path.basename(os.path.realpath(mount.source))
    if os.path.exists(os.path.join(sys, "class", "block", named)):
        return named
    wanted = os.path.basename(mount.source)
    for device in names_in(os.path.join(sys, "block")):
        if device.startswith("dm-") and text_of(os.path.join(sys, "block", device, "dm", "name")) == wanted:
            return device
    return None


def thin_pool_below(device: str, sys: str = SYS) -> ThinPool | None:
    """The first thin pool among the devices that a device consists of (`slaves`), itself included."""
    pending, seen = [device], {device}
    while pending and len(seen) <= MOST_DEVICES:
        entry = os.path.realpath(os.path.join(sys, "class", "block", pending.pop(0)))
        name = text_of(os.path.join(entry, "dm", "name"))
        pool = thin_pool(name, text_of(os.path.join(entry, "dm", "uuid"))) if name else None
        if pool is not None:
            return pool
        below = [slave for slave in names_in(os.path.join(entry, "slaves")) if slave not in seen]
        seen.update(below)
        pending += below
    return None
