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
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

MIB = 1 << 20
RELEASE_SECONDS = 30.0
SYSTEM_PATH = (
    # a service's PATH often lacks the sbin half
    "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin"
)
MAKE = {
    "ext4": ("mkfs.ext4", "-q", "-F"),
    "xfs": ("mkfs.xfs", "-q", "-f"),
    "btrfs": ("mkfs.btrfs", "-q", "-f"),
}


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


def run_tool(name: str, *arguments: str | Path, timeout_seconds: float = 60.0) -> str:
    """Run a tool to its end and return its output.

    ToolError when it is missing, fails, or takes too long.
    """
    found = find_tool(name)
    if found is None:
        raise ToolError(f"{name} is not installed")
    command = [found, *map(str, arguments)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout_seconds, check=False
        )
    except subprocess.TimeoutExpired as late:
        raise ToolError(f"{name} was not done after {timeout_seconds} s") from late
    if done.returncode:
        raise ToolError(
            f"{' '.join(command)}: exit code {done.returncode}:"
            f" {(done.stderr or done.stdout).strip()}"
        )
    return done.stdout


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


def holders_of(device_id: int) -> list[str]:
    """The processes that keep the filesystem with this `st_dev` mounted: with an open
    file or their directory in it, or with a mount namespace in which it is still
    mounted. For an error message."""
    number, found = f"{os.major(device_id)}:{os.minor(device_id)}", []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        paths = [f"/proc/{pid}/cwd", f"/proc/{pid}/root", f"/proc/{pid}/exe"]
        try:
            paths += [f"/proc/{pid}/fd/{each}" for each in os.listdir(f"/proc/{pid}/fd")]
            mounts = Path(f"/proc/{pid}/mountinfo").read_text(errors="replace").splitlines()
            command = (
                Path(f"/proc/{pid}/cmdline")
                .read_bytes()
                .replace(b"\0", b" ")
                .decode(errors="replace")[:80]
            )
        except OSError:  # it has ended, or we may not read it
            continue
        ways = [
            os.path.relpath(path, f"/proc/{pid}") for path in paths if _device_of(path) == device_id
        ]
        ways += ["a mount"] * any(line.split(" ", 3)[2] == number for line in mounts)
        if ways:
            found.append(f"{pid} ({command.strip()}) by {', '.join(ways)}")
    return found


def _device_of(path: str) -> int | None:
    try:
        return os.stat(path).st_dev
    except OSError:
        return None


def unmount(point: Path, patience_seconds: float = 5.0) -> None:
    """Unmount `point`, trying again while it is busy; detach it lazily when
    `patience_seconds` have passed.

    ToolError when even that is refused.
    """
    deadline = time.monotonic() + patience_seconds
    while True:
        try:
            run_tool("umount", point)
        except ToolError:
            if point not in mounts_below(point):
                return
            if time.monotonic() >= deadline:
                run_tool("umount", "-l", point)
                return
            time.sleep(0.1)
        else:
            return


def loop_devices_of(file: Path) -> list[str]:
    """The loop devices attached to `file`."""
    return run_tool("losetup", "--noheadings", "--output", "NAME", "--associated", file).split()


@dataclass
class LoopFilesystem:
    """A filesystem of `size_bytes` in the sparse file `<directory>/disk.img`,
    mounted at `<directory>/disk`.

    `inodes` (ext4 only) fixes the inode count; mkfs rounds it up to whole groups. ext4 gets no
    reserve for root unless `mkfs_options` say otherwise (`-m`). xfs needs 300 MiB, btrfs 110 MiB.
    ValueError for an unknown type or inodes elsewhere; ToolError when mkfs or mount fails.
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
        if self.fstype not in MAKE:
            raise ValueError(f"filesystem type {self.fstype!r}: one of {', '.join(MAKE)}")
        if self.inodes is not None and self.fstype != "ext4":
            raise ValueError(f"{self.fstype} has no fixed inode count")
        self.image = self.directory / "disk.img"
        self.mountpoint = self.directory / "disk"

    def __enter__(self) -> Self:
        try:
            self._make()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def available_bytes(self) -> int:
        """Bytes free for unprivileged users, by statvfs: the figure that the kubelet compares."""
        figures = os.statvfs(self.mountpoint)
        return figures.f_bavail * figures.f_frsize

    def inodes_free(self) -> int:
        """Inodes free, by statvfs."""
        return os.statvfs(self.mountpoint).f_ffree

    def close(self) -> None:
        """Unmount everything below, detach the loop device, delete the file. Safe to
        call twice, and half made.

        A killed process may still be writing back and so hold the filesystem for a while on a busy
        machine; ToolError after half a minute, which names the processes that hold it.
        """
        mounted = self.mountpoint in mounts_below(self.mountpoint)
        device_id = _device_of(str(self.mountpoint)) if mounted else None
        for point in mounts_below(self.mountpoint):
            unmount(point)
        deadline = time.monotonic() + RELEASE_SECONDS
        while self.image.exists() and (devices := loop_devices_of(self.image)):
            if time.monotonic() > deadline:
                held = "; ".join(holders_of(device_id)) if device_id is not None else ""
                raise ToolError(
                    f"{self.image} is still attached to {', '.join(devices)}; held by:"
                    f" {held or 'no process'}"
                )
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
        options: list[str] = []
        if self.fstype == "ext4":
            options += ["-m", "0", *(("-N", str(self.inodes)) if self.inodes is not None else ())]
        make, *quiet = MAKE[self.fstype]
        run_tool(make, *quiet, *options, *self.mkfs_options, self.image)
        # mount's own loop device detaches by itself at the last unmount, also
        # when this process is killed
        mount_options = ",".join(("loop", *self.mount_options))
        run_tool("mount", "-t", self.fstype, "-o", mount_options, self.image, self.mountpoint)
