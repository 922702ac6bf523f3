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
from types import TracebackType
from typing import Any, Self

from eviction.ballast import create_ballast
from eviction.drill.node.loop_mounts import mount_loop
from eviction.drill.node.own_functions import entries_of, write_entries, write_programs
from eviction.drill.node.pod_maker import PodMaker
from eviction.drill.node.population import Population
from eviction.drill.node.sized_directory import SizedDirectory, reader_of
from eviction.drill.node.wait_for_runtime import until_answered
from eviction.drill.runtime.dialects import DIALECTS
from eviction.drill.runtime.private_mounts import EmbeddedNodeError, PrivateMounts, mount_tmpfs, unmount
from eviction.drill.runtime.runtime import EmbeddedRuntime
from eviction.drill.runtime.server import EmbeddedServer
from eviction.drill.scenario.amounts import amount_of
from eviction.drill.scenario.reader import BALLAST
from eviction.drill.scenario.types import ON_LOOP_DEVICES, FilesystemSpec, FilesystemType, RuntimeSpec, Scenario
from reclaim.ballast import BallastRefused, BallastSettings
from reclaim.types import RuntimeUnavailable
from signals.filesystems import FilesystemReader
from signals.types import FilesystemRole, FsLayout

_AN = (FilesystemType.EXT4, FilesystemType.XFS)
LEFT_BEHIND = "left-behind"  # content of an interrupted pull


class EmbeddedNode:
    """The node of a scenario, while its `with` block lasts.

    `mounts`: the result of `enter_private_mounts`, called while the process had one thread. Raises EmbeddedNodeError
    if the node cannot be built.
    """

    def __init__(self, scenario: Scenario, mounts: PrivateMounts):
        self._spec = scenario.node
        self._mounts = mounts
        self._base = tempfile.mkdtemp(prefix="reclaimd-drill-")
        self._disks = {role: os.path.join(self._base, str(role)) for role in self._spec.filesystems}
        self._simulated = {
            role: SizedDirectory(self._disks[role], spec.size_bytes, spec.inodes)
            for role, spec in self._spec.filesystems.items()
            if spec.type is FilesystemType.DIRECTORY or (spec.type is FilesystemType.TMPFS and not mounts.available)
        }
        self.root_directory = os.path.join(self._disks[FilesystemRole.NODEFS], "kubelet")
        self.pod_logs_directory = os.path.join(self._disks[FilesystemRole.NODEFS], "log", "pods")
        self.container_logs_directory = os.path.join(self._disks[FilesystemRole.NODEFS], "log", "containers")
        self.endpoint = f"unix://{self._base}/cri.sock"

    def __enter__(self) -> Self:
        try:
            self._build()
        except BaseException:
            self._clean()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.population.maker.close()
        self.server.close()
        self._clean()

    @property
    def simulated(self) -> bool:
        """True if any of the filesystems is only a view of a directory."""
        return bool(self._simulated)

    @property
    def reader(self) -> FilesystemReader:
        """Reads the node's filesystems."""
        return reader_of(tuple(self._simulated.values()))

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
        found = {f"{role}/{name}" for role in self._spec.own for name in entries_of(self._disks[role])}
        if any(pod.rotated_logs for pod in self._spec.pods):
            logs = glob.iglob("*/*/*.log.*", root_dir=self.pod_logs_directory)
            found |= set(logs)
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
            count = {1: "an" if each in _AN else "a", 2: "two", 3: "three"}.get(types.count(each), types.count(each))
            phrases.append(f"{count} {each}{' on a loop device' * (each in ON_LOOP_DEVICES)}")
        return f"{' and '.join(phrases)} of {'their' if many else 'its'} own (mounted {how})"

    def _build(self) -> None:
        self._make_filesystems()
        containers = self.disk(FilesystemRole.CONTAINERFS) if self._spec.layout is FsLayout.SPLIT else ""
        self.runtime = EmbeddedRuntime(
            os.path.join(self.disk(FilesystemRole.IMAGEFS), "runtime"),
            containers_root=containers and os.path.join(containers, "runtime"),
            sandbox_image=self._spec.images[0].names[0],
            dialect=DIALECTS[self._spec.runtime.dialect],
            **dialect_changes(self._spec.runtime),
        )
        self.server = EmbeddedServer(self.runtime, f"{self._base}/cri.sock")
        self.server.start()
        maker = PodMaker(self.endpoint)
        self.population = Population(self.runtime, maker, self.root_directory, self.pod_logs_directory)
        try:
            until_answered(maker.version)
            self._populate()
        except BaseException as error:
            maker.close()
            self.server.close()
            if isinstance(error, RuntimeUnavailable | OSError):
                raise EmbeddedNodeError(f"the node of the scenario cannot be built: {error}") from error
            raise

    def _make_filesystems(self) -> None:
        """The filesystems, the kubelet's directories, and what the configuration's own functions need."""
        for role, spec in self._spec.filesystems.items():
            os.mkdir(self._disks[role])
            if role not in self._simulated:
                self._mount(self._disks[role], spec)
        for directory in (
            os.path.join(self.root_directory, "pods"),
            self.pod_logs_directory,
            self.container_logs_directory,
        ):
            os.makedirs(directory)
        for role, own in self._spec.own.items():
            write_entries(self._disks[role], own.files, own.file_bytes)
        write_programs(os.path.join(self._base, "programs"), self._spec.functions, self._disks)
        for function in self._spec.functions:
            if function.name == BALLAST:
                self._make_ballast(amount_of("node.functions: size", function.fields["size"]))

    def _mount(self, disk: str, spec: FilesystemSpec) -> None:
        if spec.type is FilesystemType.TMPFS:
            mount_tmpfs(disk, spec.size_bytes, spec.inodes)
        elif self._mounts.how != "root":
            reason = self._mounts.reason or "this process is not root"
            raise EmbeddedNodeError(f"a filesystem of type {spec.type} needs root, for a loop device: {reason}")
        else:
            mount_loop(disk, spec.type, spec.size_bytes, spec.inodes)

    def _populate(self) -> None:
        """What is on the node. Raises EmbeddedNodeError, RuntimeUnavailable or OSError."""
        if self._spec.runtime.unreferenced_bytes:
            self.server.leases.add_content(LEFT_BEHIND, self._spec.runtime.unreferenced_bytes)
        for image in self._spec.images:
            self.population.add_images(image)
        for pod in self._spec.pods:
            self.population.add_pods(pod)
        if self._spec.rebooted:
            self.population.reboot()

    def _make_ballast(self, size_bytes: int) -> None:
        try:
            create_ballast(BallastSettings(self.path_of(BALLAST), size_bytes), 0)
        except BallastRefused as error:
            raise EmbeddedNodeError(f"the node of the scenario cannot be built: {error}") from error

    def _clean(self) -> None:
        for role, disk in self._disks.items():
            if role not in self._simulated:
                unmount(disk)
        shutil.rmtree(self._base, ignore_errors=True)


def dialect_changes(runtime: RuntimeSpec) -> dict[str, Any]:
    """The fields of the dialect that the scenario changes, by name."""
    named = {
        "container_space_delay_seconds": runtime.container_space_delay_seconds,
        "pins_sandbox_image": runtime.pins_sandbox_image,
        "fills_image_id": runtime.fills_image_id,
    }
    return {name: value for name, value in named.items() if value is not None}
