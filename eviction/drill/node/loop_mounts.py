"""Filesystems of a type and size in a file, mounted by a loop device: XFS, ext4 and btrfs that only this process sees.

The file is unlinked as soon as it is mounted, and the loop device detaches itself at the unmount. So after `kill -9`
nothing is left but an empty directory, as with a tmpfs of `private_mounts`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence

from eviction.drill.runtime.private_mounts import EmbeddedNodeError, unmount
from eviction.drill.scenario import FilesystemType
from signals.filesystems import read_statvfs
from signals.quantity import format_bytes

SYSTEM_DIRECTORIES = "/usr/local/sbin:/usr/sbin:/sbin"  # where mkfs and mount are; the PATH of a user often lacks them
TOOL_SECONDS = 60.0
# No discard: it would write to a file that has nothing yet. ext4 as the kubelet's own tests make it, without a reserve.
MAKE: dict[FilesystemType, Sequence[str]] = {
    FilesystemType.EXT4: ("mkfs.ext4", "-q", "-F", "-m", "0", "-E", "nodiscard"),
    FilesystemType.XFS: ("mkfs.xfs", "-q", "-f", "-K"),
    FilesystemType.BTRFS: ("mkfs.btrfs", "-q", "-f", "-K", "--mixed"),  # mixed: as btrfs(5) has it for small devices
}
# btrfs tells what was written or freed when it commits, which is every 30 s unless something calls sync.
OPTIONS: dict[FilesystemType, Sequence[str]] = {FilesystemType.BTRFS: ("commit=1", "flushoncommit")}


def mount_loop(path: str, fstype: FilesystemType, size_bytes: int, inodes: int) -> None:
    """Mounts an empty filesystem over the directory `path`. Call `enter_private_mounts` as root first.

    Its capacity by statvfs is `size_bytes` or a little more: the device is larger by what the type keeps for itself,
    such as the log of XFS. `inodes` counts for ext4 alone; XFS and btrfs make inodes as they are needed. Raises
    EmbeddedNodeError if the program that makes it is missing, there is no loop device, or there is not twice the room
    for its file, which is beside `path` until it is mounted.
    """
    available = read_statvfs(os.path.dirname(path), 0.0).stats.available_bytes
    if available < 2 * size_bytes:
        raise EmbeddedNodeError(
            f"a filesystem of {format_bytes(size_bytes)} in a file needs twice that at {os.path.dirname(path)}, "
            f"where {format_bytes(available)} are available; TMPDIR names another place"
        )
    device_bytes = size_bytes
    for _ in range(3):
        _mount(path, fstype, device_bytes, inodes)
        missing = size_bytes - read_statvfs(path, 0.0).stats.capacity_bytes
        if missing <= 0:
            return
        unmount(path)
        device_bytes += missing + (1 << 20)
    raise EmbeddedNodeError(f"no {fstype} of {format_bytes(size_bytes)} could be made")


def _mount(path: str, fstype: FilesystemType, device_bytes: int, inodes: int) -> None:
    image = f"{path}.{fstype}"
    try:
        with open(image, "xb") as file:
            file.truncate(device_bytes)
        numbered = ("-N", str(inodes)) if fstype is FilesystemType.EXT4 else ()
        options = ("loop", "nosuid", "nodev", *OPTIONS.get(fstype, ()))
        _run(fstype, *MAKE[fstype], *numbered, image)
        _run(fstype, "mount", "-t", str(fstype), "-o", ",".join(options), image, path)
    except OSError as error:
        raise EmbeddedNodeError(f"the file of a filesystem of type {fstype} cannot be made: {error}") from error
    finally:
        if os.path.exists(image):
            os.unlink(image)


def _run(fstype: FilesystemType, name: str, *arguments: str) -> None:
    """Runs one tool to its end. Raises EmbeddedNodeError with its last line."""
    places = [each for each in os.environ.get("PATH", "").split(":") if each.startswith("/")]  # never where root stands
    program = shutil.which(name, path=":".join([*places, SYSTEM_DIRECTORIES]))
    if program is None:
        raise EmbeddedNodeError(f"a filesystem of type {fstype} cannot be made: {name} is not installed")
    try:
        done = subprocess.run(
            [program, *arguments], stdin=subprocess.DEVNULL, capture_output=True, timeout=TOOL_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise EmbeddedNodeError(f"a filesystem of type {fstype} cannot be made: {name} was not done in time") from None
    if done.returncode != 0:
        why = done.stderr.decode(errors="replace").strip().rpartition("\n")[2] or f"exit {done.returncode}"
        raise EmbeddedNodeError(f"a filesystem of type {fstype} cannot be made: {name}: {why}")
