"""A small real filesystem in a file, mounted by loop; and what is mounted where.

Covers: ext4, xfs and btrfs of a chosen size and inode count, created and removed
again, also after a failure.

Does not cover: quota, encryption, device-mapper.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

MIB = 1 << 20
RELEASE_SECONDS = 30.0
SYSTEM_PATH = (
    # a service's PATH often lacks the sbin half
    "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin"
)
MAKE = {
    "ext4": ("mkfs.ext4", "-q", "-F", "-m", "0"),
    "xfs": ("mkfs.xfs", "-q", "-f"),
    "btrfs": ("mkfs.btrfs", "-q", "-f"),
}
SMALL_BYTES = {"ext4": 128 * MIB, "xfs": 320 * MIB, "btrfs": 256 * MIB}


class ToolError(RuntimeError):
    """A tool of the node ended with an error; the message quotes it."""


def search_path() -> str:
    """PATH as given, with the system's directories after it. Where `CONTAINERD` names another
    containerd than the machine's, its directory is before it: its shim and ctr are beside it."""
    named = os.environ.get("CONTAINERD")
    beside = [str(Path(named).resolve().parent)] if named else []
    return ":".join((*beside, os.environ.get("PATH", ""), SYSTEM_PATH))


def find_tool(name: str) -> str | None:
    """Where `name` is installed, the sbin directories included, or None."""
    return shutil.which(name, path=search_path())


def run_tool(
    name: str, *arguments: str | Path, given: bytes | None = None, timeout_seconds: float = 60.0
) -> str:
    """Run a tool to its end and return its output. `given`: on its standard input.

    ToolError when it is missing, fails, or takes too long.
    """
    found = find_tool(name)
    if found is None:
        raise ToolError(f"{name} is not installed")
    command = [found, *map(str, arguments)]
    try:
        done = subprocess.run(
            command, capture_output=True, input=given, timeout=timeout_seconds, check=False
        )
    except subprocess.TimeoutExpired as late:
        raise ToolError(f"{name} was not done after {timeout_seconds} s") from late
    said = (done.stderr or done.stdout).decode(errors="replace").strip()
    if done.returncode:
        raise ToolError(f"{' '.join(command)}: exit code {done.returncode}: {said}")
    return done.stdout.decode()


def mounts_below(path: Path) -> list[Path]:
    """Every mount point at or below `path`, the deepest and latest first: the
    order to unmount in.
    """
    found = []
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as table:
        for line in table:
            point = Path(
                re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), line.split(" ", 5)[4])
            )
            if point == path or path in point.parents:
                found.append(point)
    return found[::-1]


def unmount(point: Path) -> None:
    """Unmount `point`, trying again while it is busy; detach it lazily after 5 s.

    ToolError when even that is refused.
    """
    deadline = time.monotonic() + 5.0
    while point in mounts_below(point):
        try:
            run_tool("umount", point)
        except ToolError:
            if time.monotonic() >= deadline:
                run_tool("umount", "-l", point)
            time.sleep(0.1)
        else:
            return


def loop_devices_of(file: Path) -> list[str]:
    """The loop devices attached to `file`."""
    return run_tool("losetup", "--noheadings", "--output", "NAME", "--associated", file).split()


def available_bytes(disk: Path | int) -> int:
    """Bytes free for unprivileged users on the filesystem of a path or descriptor, by statvfs: the
    figure that the kubelet compares."""
    found = os.statvfs(disk)
    return found.f_bavail * found.f_frsize


def capacity_bytes(disk: Path) -> int:
    """All bytes of the filesystem of a path."""
    found = os.statvfs(disk)
    return found.f_blocks * found.f_frsize


@dataclass
class LoopFilesystem:
    """A filesystem of `size_bytes` in the sparse file `<directory>/disk.img`,
    mounted at `<directory>/disk`.

    `inodes` (ext4 only) fixes the inode count; mkfs rounds it up to whole groups. ext4 gets no
    reserve for root unless `mkfs_options` say otherwise (`-m`). xfs needs 300 MiB, btrfs 110 MiB.
    ToolError when mkfs or mount fails.
    """

    directory: Path
    size_bytes: int
    fstype: str = "ext4"
    inodes: int | None = None
    mkfs_options: tuple[str, ...] = ()
    mount_options: tuple[str, ...] = ()
    image: Path = field(init=False)
    mountpoint: Path = field(init=False)

    def __post_init__(self) -> None:
        self.image = self.directory / "disk.img"
        self.mountpoint = self.directory / "disk"

    def __enter__(self) -> Self:
        try:
            self._make()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def available_bytes(self) -> int:
        """Bytes free for unprivileged users."""
        return available_bytes(self.mountpoint)

    def inodes_free(self) -> int:
        """Inodes free, by statvfs."""
        return os.statvfs(self.mountpoint).f_ffree

    def close(self) -> None:
        """Unmount everything below, detach the loop device, delete the file. Safe to
        call twice, and half made.

        A killed process may still be writing back and so hold the filesystem for a while on a busy
        machine; ToolError after half a minute.
        """
        for point in mounts_below(self.mountpoint):
            unmount(point)
        deadline = time.monotonic() + RELEASE_SECONDS
        while self.image.exists() and (devices := loop_devices_of(self.image)):
            if time.monotonic() > deadline:
                raise ToolError(f"{self.image} is still attached to {', '.join(devices)}")
            for device in devices:
                # it may just have detached itself; the loop condition checks
                with suppress(ToolError):
                    run_tool("losetup", "--detach", device)
            time.sleep(0.05)
        self.image.unlink(missing_ok=True)
        if self.mountpoint.is_dir():
            self.mountpoint.rmdir()

    def _make(self) -> None:
        self.mountpoint.mkdir(parents=True)
        with open(self.image, "xb") as file:
            file.truncate(self.size_bytes)
        count = () if self.inodes is None else ("-N", str(self.inodes))
        run_tool(*MAKE[self.fstype], *count, *self.mkfs_options, self.image)
        # mount's own loop device detaches by itself at the last unmount, also
        # when this process is killed
        mount_options = ",".join(("loop", *self.mount_options))
        run_tool("mount", "-t", self.fstype, "-o", mount_options, self.image, self.mountpoint)


@contextmanager
def mounted(
    directory: Path, fstype: str, *mkfs_options: str, options: tuple[str, ...] = ()
) -> Iterator[Path]:
    """A small filesystem of a type, tmpfs among them, while the `with` block lasts.

    `options`: of the mount.
    """
    if fstype != "tmpfs":
        size = SMALL_BYTES[fstype]
        with LoopFilesystem(directory, size, fstype, None, mkfs_options, options) as filesystem:
            yield filesystem.mountpoint
        return
    point = directory / "disk"
    point.mkdir()
    run_tool("mount", "-t", "tmpfs", "-o", f"size={64 * MIB},nr_inodes=4000", "tmpfs", point)
    try:
        yield point
    finally:
        unmount(point)


@contextmanager
def overlay_on(disk: Path) -> Iterator[Path]:
    """What a container sees while the `with` block lasts: an overlay whose layers are on a disk."""
    layers = {name: disk / name for name in ("lower", "upper", "work", "merged")}
    for layer in layers.values():
        layer.mkdir()
    merged = layers.pop("merged")
    options = ",".join(f"{name}dir={layer}" for name, layer in layers.items())
    run_tool("mount", "-t", "overlay", "-o", options, "overlay", merged)
    try:
        yield merged
    finally:
        unmount(merged)
