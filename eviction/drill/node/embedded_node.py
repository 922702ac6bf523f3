"""The embedded node of a drill: small filesystems, an embedded CRI runtime on them, images and pods.

Everything above the runtime's socket is the product's own code. Each filesystem is a tmpfs in a mount namespace of
this process (as root, or in a user namespace) and ends with the process, or as root one on a loop device. If no tmpfs
is allowed, or if the scenario asks for it, a filesystem is a size-limited view of a directory, and `simulated` is True.
"""

from __future__ import annotations

import glob
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Self, TypeVar

from eviction.ballast import create_ballast
from eviction.drill.node.loop_mounts import mount_loop
from eviction.drill.node.pod_maker import PodMaker
from eviction.drill.node.population import Population
from eviction.drill.runtime.dialects import DIALECTS
from eviction.drill.runtime.private_mounts import EmbeddedNodeError, PrivateMounts, mount_tmpfs, unmount
from eviction.drill.runtime.runtime import EmbeddedRuntime
from eviction.drill.runtime.server import EmbeddedServer
from eviction.drill.scenario import (
    BALLAST,
    ON_LOOP_DEVICES,
    FilesystemSpec,
    FilesystemType,
    FunctionSpec,
    ProgramKind,
    Scenario,
)
from reclaim.ballast import BallastRefused, BallastSettings
from reclaim.types import RuntimeUnavailable
from signals.filesystems import FilesystemReader, Reading, read_statvfs
from signals.types import FilesystemRole, FsLayout, FsStats

LEFT_BEHIND = "left-behind"  # content of an interrupted pull
CHANGES = (
    "container_space_delay_seconds",
    "pins_sandbox_image",
    "fills_image_id",
)  # that a scenario makes to a dialect
DEADLINE_SECONDS = 10.0
PAUSE_SECONDS = 0.05

SPACING_SECONDS = 60  # between the ages of two entries

FREES = """\
mode=$1
left=${RECLAIMD_MISSING_BYTES:-0}
for file in $(ls -tr "$entries"); do
    [ "$left" -gt 0 ] || [ "$mode" = plan ] || break
    size=$(stat -c %s "$entries/$file")
    if [ "$mode" = plan ]; then
        printf '{"name": "%s", "size": %s, "reason": "old"}\\n' "$file" "$size"
    else
        rm -- "$entries/$file"
    fi
    left=$((left - size))
done
"""
BODIES: Mapping[ProgramKind, str] = {
    ProgramKind.FREES: FREES,
    ProgramKind.HANGS: "trap '' TERM\nwhile :; do sleep 1; done\n",
    ProgramKind.LIES: "echo freed everything\n",
    ProgramKind.FAILS: "echo cannot >&2\nexit 3\n",
    ProgramKind.FLOODS: "while :; do echo too many words; done\n",
    ProgramKind.LEAVES: "sleep 600 &\nexit 0\n",
}

_Answer = TypeVar("_Answer")


def until_answered(ask: Callable[[], _Answer]) -> _Answer:
    """The answer to a call that changes nothing: the runtime may have just started, on a busy machine. Repeats the call
    for up to 10 s, then raises RuntimeUnavailable."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        try:
            return ask()
        except RuntimeUnavailable:
            if time.monotonic() >= deadline:
                raise
            time.sleep(PAUSE_SECONDS)


@dataclass(frozen=True, slots=True)
class SizedDirectory:
    """Reads any path below `root` as if `root` were a filesystem of `size_bytes` and `inodes`.

    Files and deletions are real. Only the size is simulated: available is the limit minus what the tree takes.
    """

    root: str
    size_bytes: int
    inodes: int

    def __call__(self, path: str, now: float) -> Reading:
        """One reading of the whole tree; blocks are counted as the filesystem below counts them. Raises OSError."""
        os.stat(path)
        root = os.stat(self.root)
        used_bytes = used_inodes = 0
        for directory, directories, files in os.walk(self.root):
            for name in (*directories, *files):
                with suppress(FileNotFoundError):  # removed meanwhile
                    used_bytes += os.lstat(os.path.join(directory, name)).st_blocks * 512
                    used_inodes += 1
        free_bytes = max(self.size_bytes - used_bytes, 0)
        return Reading(
            FsStats(
                available_bytes=free_bytes,
                free_bytes=free_bytes,
                capacity_bytes=self.size_bytes,
                inodes_free=max(self.inodes - used_inodes, 0),
                inodes_total=self.inodes,
                time=now,
            ),
            root.st_dev << 64 | root.st_ino,  # a device of its own, so that two directories are two filesystems
        )


class EmbeddedNode:
    """The node of a scenario, while its `with` block lasts.

    `mounts`: the result of `enter_private_mounts`, called while the process had one thread. Raises EmbeddedNodeError
    if the node cannot be built.
    """

    def __init__(self, scenario: Scenario, mounts: PrivateMounts):
        self._spec = scenario.node
        self._mounts = mounts
        self._undo = ExitStack()
        self._base = tempfile.mkdtemp(prefix="reclaimd-drill-")
        self._disks = {role: os.path.join(self._base, str(role)) for role in self._spec.filesystems}
        self._simulated = {
            role: SizedDirectory(self._disks[role], spec.size_bytes, spec.inodes)
            for role, spec in self._spec.filesystems.items()
            if spec.type is FilesystemType.DIRECTORY or (spec.type is FilesystemType.TMPFS and not mounts.available)
        }
        nodefs = self._disks[FilesystemRole.NODEFS]
        self.root_directory = os.path.join(nodefs, "kubelet")
        self.pod_logs_directory = os.path.join(nodefs, "log", "pods")
        self.container_logs_directory = os.path.join(nodefs, "log", "containers")
        self.endpoint = f"unix://{self._base}/cri.sock"

    def __enter__(self) -> Self:
        with self._undo:
            self._undo.callback(shutil.rmtree, self._base, ignore_errors=True)
            try:
                self._make_filesystems()
                self._start_runtime()
                self._populate()
            except (BallastRefused, RuntimeUnavailable, OSError) as error:
                raise EmbeddedNodeError(f"the node of the scenario cannot be built: {error}") from error
            self._undo = self._undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    @property
    def simulated(self) -> bool:
        """True if any of the filesystems is only a view of a directory."""
        return bool(self._simulated)

    @property
    def reader(self) -> FilesystemReader:
        """Reads what is below a simulated filesystem as that filesystem, and everything else with statvfs."""

        def read(path: str, now: float) -> Reading:
            for directory in self._simulated.values():
                if os.path.commonpath([directory.root, path]) == directory.root:
                    return directory(path, now)
            return read_statvfs(path, now)

        return read

    def path_of(self, name: str) -> str:
        """Where a filesystem of the configuration's own is, the program of a function, or the ballast."""
        if name in self._spec.own:
            return self._disks[FilesystemRole(name)]
        if name == BALLAST:
            return os.path.join(self._disks[FilesystemRole.NODEFS], "ballast")
        return os.path.join(self._base, "programs", name)

    @property
    def files(self) -> set[str]:
        """What functions of the configuration may remove, by name: `buildcache/0001`, `ballast`, `content/left-behind`,
        and rotated logs by their paths below the directory of pods' logs."""
        found = {
            f"{role}/{name}"
            for role in self._spec.own
            for name in glob.iglob("*", root_dir=_entries(self._disks[role]))
        }
        if any(pod.rotated_logs for pod in self._spec.pods):
            found |= set(glob.iglob("*/*/*.log.*", root_dir=self.pod_logs_directory))
        content = os.path.join(self.disk(FilesystemRole.IMAGEFS), "runtime", "content", LEFT_BEHIND)
        others = {"ballast": self.path_of(BALLAST), f"content/{LEFT_BEHIND}": content}
        return found | {name for name, path in others.items() if os.path.exists(path)}

    def disk(self, role: FilesystemRole) -> str:
        """The root of the filesystem that a role is on."""
        return self._disks[self._spec.role(role)]

    def describe(self) -> str:
        """What the filesystems are, in one phrase."""
        many = len(self._disks) > 1
        if self._simulated:
            why = self._mounts.reason if not self._mounts.available else "the scenario asks for it"
            views = "size-limited views of directories" if many else "a size-limited view of a directory"
            return f"simulated: {views}, because {why}"
        how = "as root" if self._mounts.how == "root" else "in a user namespace"
        types = [spec.type for spec in self._spec.filesystems.values()]
        phrases = []
        for each in dict.fromkeys(types):
            one = "an" if each in (FilesystemType.EXT4, FilesystemType.XFS) else "a"
            count = {1: one, 2: "two", 3: "three"}.get(types.count(each), types.count(each))
            phrases.append(f"{count} {each}{' on a loop device' * (each in ON_LOOP_DEVICES)}")
        return f"{' and '.join(phrases)} of {'their' if many else 'its'} own (mounted {how})"

    def _make_filesystems(self) -> None:
        """The filesystems, the kubelet's directories, and what the configuration's own functions need."""
        for role, spec in self._spec.filesystems.items():
            os.mkdir(self._disks[role])
            if role not in self._simulated:
                self._undo.callback(unmount, self._disks[role])
                self._mount(self._disks[role], spec)
        pods = os.path.join(self.root_directory, "pods")
        for directory in (pods, self.pod_logs_directory, self.container_logs_directory):
            os.makedirs(directory)
        for role, own in self._spec.own.items():
            write_entries(self._disks[role], own.files, own.file_bytes)
        write_programs(os.path.join(self._base, "programs"), self._spec.functions, self._disks)
        for function in self._spec.functions:
            if function.name == BALLAST:
                create_ballast(BallastSettings(self.path_of(BALLAST), function.size or 0), 0)

    def _mount(self, disk: str, spec: FilesystemSpec) -> None:
        if spec.type is FilesystemType.TMPFS:
            mount_tmpfs(disk, spec.size_bytes, spec.inodes)
        elif self._mounts.how != "root":
            reason = self._mounts.reason or "this process is not root"
            raise EmbeddedNodeError(f"a filesystem of type {spec.type} needs root, for a loop device: {reason}")
        else:
            mount_loop(disk, spec.type, spec.size_bytes, spec.inodes)

    def _start_runtime(self) -> None:
        containers = self.disk(FilesystemRole.CONTAINERFS) if self._spec.layout is FsLayout.SPLIT else ""
        changes = {name: getattr(self._spec.runtime, name) for name in CHANGES}
        self.runtime = EmbeddedRuntime(
            os.path.join(self.disk(FilesystemRole.IMAGEFS), "runtime"),
            containers_root=containers and os.path.join(containers, "runtime"),
            sandbox_image=self._spec.images[0].names[0],
            dialect=DIALECTS[self._spec.runtime.dialect],
            **{name: value for name, value in changes.items() if value is not None},
        )
        self.server = EmbeddedServer(self.runtime, f"{self._base}/cri.sock")
        self._undo.enter_context(self.server)
        maker = PodMaker(self.endpoint)
        self._undo.callback(maker.close)
        self.population = Population(self.runtime, maker, self.root_directory, self.pod_logs_directory)
        until_answered(maker.version)

    def _populate(self) -> None:
        """What is on the node."""
        if self._spec.runtime.unreferenced_bytes:
            self.server.leases.add_content(LEFT_BEHIND, self._spec.runtime.unreferenced_bytes)
        for image in self._spec.images:
            self.population.add_images(image)
        for pod in self._spec.pods:
            for name in pod.names:
                self.population.add_pod(pod, name)
        if self._spec.rebooted:
            self.population.reboot()


def _entries(disk: str) -> str:
    """The directory of the entries on a filesystem of the configuration's own."""
    return os.path.join(disk, "entries")


def write_entries(disk: str, count: int, size_bytes: int) -> None:
    """Entries of so many bytes, numbered from 0001, the first one the oldest. Raises OSError."""
    directory = _entries(disk)
    os.mkdir(directory, 0o755)
    for number in range(1, count + 1):
        path = os.path.join(directory, f"{number:04}")
        with open(path, "wb") as file:
            file.write(os.urandom(size_bytes))
        modified = os.stat(path).st_mtime - SPACING_SECONDS * (count + 1 - number)
        os.utime(path, (modified, modified))


def write_programs(directory: str, functions: Iterable[FunctionSpec], disks: Mapping[FilesystemRole, str]) -> None:
    """The programs of these functions, each by the name of its function. Raises OSError."""
    os.mkdir(directory, 0o755)
    for function in functions:
        if function.does is None:
            continue
        disk = disks.get(FilesystemRole(function.frees or ""), disks[FilesystemRole.NODEFS])
        path = os.path.join(directory, function.name)
        text = f"#!/bin/sh\nentries={_entries(disk)}\n{BODIES[function.does]}"
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o700), "w", encoding="utf-8") as file:
            file.write(text)
