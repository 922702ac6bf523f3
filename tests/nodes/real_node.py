"""A node in miniature: one small filesystem, a container runtime on it, and a pretend
kubelet with its directories.

With everything on one filesystem, nodefs, imagefs and containerfs are the same: the
layout that most nodes have.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.real_node.containerd import Containerd
from tests.real_node.cri_client import CriClient
from tests.real_node.crio import Crio
from tests.real_node.loopfs import LoopFilesystem
from tests.real_node.oci import Image
from tests.real_node.pods import PretendKubelet
from tests.real_node.runtime import ContainerRuntime

GIB = 1 << 30


@dataclass(frozen=True)
class RealNode:
    """The parts of a running node. `containerd`: its runtime, or a CRI-O in its place.
    `sandbox_image_id`: the image that the runtime's configuration names."""

    filesystem: LoopFilesystem
    containerd: ContainerRuntime
    kubelet: PretendKubelet
    sandbox_image_id: str

    @property
    def cri(self) -> CriClient:
        """A client on the runtime's socket."""
        return self.containerd.cri

    @property
    def mountpoint(self) -> Path:
        """Where the filesystem under test is mounted."""
        return self.filesystem.mountpoint

    def import_image(self, image: Image) -> str:
        """Bring `image` in; its id."""
        return self.import_images([image])[0]

    def import_images(self, images: Sequence[Image]) -> list[str]:
        """The same for several in one import; their ids. The first given is the oldest."""
        return self.containerd.bring(*images)


@contextmanager
def running_node(
    directory: Path,
    size_bytes: int = 2 * GIB,
    inodes: int | None = None,
    fstype: str = "ext4",
    mkfs_options: tuple[str, ...] = (),
    crio: Path | None = None,
    image_store: Path | None = None,
) -> Iterator[RealNode]:
    """A node whose disk is a file in `directory`; all of it is gone on exit, also after a failure.

    On the disk: `containerd/` (the root of containerd, or of the CRI-O that is this program),
    `kubelet/` (--root-dir), `log/pods/` (podLogsDir). `image_store`: where a CRI-O keeps its images
    apart. ToolError or ContainerRuntimeError when it cannot be built.
    """
    with LoopFilesystem(directory, size_bytes, fstype, inodes, mkfs_options) as filesystem:
        disk = filesystem.mountpoint
        root = disk / "containerd"
        with Containerd(root) if crio is None else Crio(root, crio, image_store) as containerd:
            kubelet = PretendKubelet(
                containerd.cri, disk / "kubelet", disk / "log" / "pods", containerd.cgroup_parent
            )
            (kubelet.root_dir / "pods").mkdir(parents=True)
            kubelet.pod_logs_dir.mkdir(parents=True)
            yield RealNode(filesystem, containerd, kubelet, containerd.sandbox_image_id)
