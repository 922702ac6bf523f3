"""A node with a real kubelet: one small filesystem, a container runtime and the
kubelet's directories on it.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.kubelet.api import Api
from tests.kubelet.control_plane import ControlPlane
from tests.kubelet.kubelet import (
    CONTAINER_LOG_LINKS,
    IMAGE_AGE_SECONDS,
    NODE,
    Kubelet,
    KubeletSettings,
)
from tests.kubelet.programs import new_runtime
from tests.real_node.crio import Crio
from tests.real_node.loopfs import LoopFilesystem
from tests.real_node.oci import BASE, Image, ImageTar, write_image, write_images
from tests.real_node.runtime import SANDBOX_IMAGE, ContainerRuntime

GIB = 1 << 30
INFO_SOCKET = Path("/run/crio/crio.sock")
PODS = "/api/v1/namespaces/default/pods"


@dataclass(frozen=True)
class KubeletNode:
    """The parts of a node that a real kubelet keeps. `kubelet` runs.

    `image_filesystem`: the runtime's own, or None.
    """

    filesystem: LoopFilesystem
    runtime: ContainerRuntime
    kubelet: Kubelet
    plane: ControlPlane
    sandbox_image_id: str
    image_filesystem: LoopFilesystem | None = None

    @property
    def api(self) -> Api:
        """A client of the API server that may do everything."""
        return self.plane.api

    @property
    def disk(self) -> Path:
        """Where the filesystem under test is mounted."""
        return self.filesystem.mountpoint

    def import_images(self, images: Sequence[Image | ImageTar]) -> list[str]:
        """Brings images in; their ids. The first given is the oldest.

        If a tar is given, it is kept.
        """
        if tars := [each for each in images if isinstance(each, ImageTar)]:
            return self.runtime.import_images(tars, keep=True)
        with tempfile.TemporaryDirectory(prefix="rn-image-") as outside:
            recipes = [each for each in images if isinstance(each, Image)]
            return self.runtime.import_images(write_images(recipes, Path(outside)))

    def import_removable(self, images: Sequence[Image]) -> None:
        """Brings images in that nobody uses, and waits until they are old enough to go."""
        self.import_images(images)
        time.sleep(1.1 * IMAGE_AGE_SECONDS)

    def create(self, pod: dict[str, Any]) -> None:
        """Makes a pod."""
        self.api.create(PODS, pod)

    def phase(self, name: str) -> str:
        """The phase of a pod."""
        return str(self.api.get(f"{PODS}/{name}")["status"].get("phase", ""))

    def wait_for_phase(self, name: str, *phases: str, seconds: float = 60.0) -> None:
        """Waits until a pod is in one of these phases. TimeoutError."""
        self.api.wait(
            f"pod {name} {' or '.join(phases)}", lambda: self.phase(name) in phases, seconds
        )

    def conditions(self) -> dict[str, bool]:
        """The conditions of the node.

        Without a network plug-in it is never Ready; pods on the host's network run.
        """
        conditions = self.api.get(f"/api/v1/nodes/{NODE}")["status"]["conditions"]
        return {each["type"]: each["status"] == "True" for each in conditions}

    def reclaimd_fields(self) -> dict[str, Any]:
        """The fields of a configuration of reclaimd for this node; no credentials."""
        return {
            "kubeletConfig": str(self.kubelet.configuration),
            "rootDirectory": str(self.kubelet.root),
            "podLogsDir": str(self.kubelet.pod_logs),
            "containerLogsDir": str(CONTAINER_LOG_LINKS),
        }


@contextmanager
def kubelet_node(
    directory: Path,
    plane: ControlPlane,
    settings: KubeletSettings,
    size_bytes: int = 2 * GIB,
    fstype: str = "ext4",
    images: Sequence[Image | ImageTar] = (),
    image_size_bytes: int = 0,
    *,
    split: bool = False,
) -> Iterator[KubeletNode]:
    """A node of this cluster, registered; all of it is gone on exit, and the node object too.

    `image_size_bytes`: of a second filesystem for all of the runtime, as with a dedicated imagefs;
    0: there is none. `split`: only the images are on the second one, the writable layers on the
    first: CRI-O can do that. `images`: there before the kubelet starts, which sees them then; later
    ones it sees after 5 minutes at the latest.
    """
    with ExitStack() as stack:
        filesystem = stack.enter_context(LoopFilesystem(directory, size_bytes, fstype))
        disk = filesystem.mountpoint
        image_filesystem = None
        if image_size_bytes:
            image_filesystem = LoopFilesystem(directory / "images", image_size_bytes, fstype)
            stack.enter_context(image_filesystem)
        store = disk if image_filesystem is None else image_filesystem.mountpoint
        images_alone = store / "images" if split else None
        runtime = stack.enter_context(
            new_runtime((disk if split else store) / "runtime", images_alone)
        )
        with tempfile.TemporaryDirectory(prefix="rn-image-") as outside:
            pause = runtime.import_image(write_image(Image(SANDBOX_IMAGE, (BASE,)), Path(outside)))
        if isinstance(runtime, Crio):
            stack.enter_context(found_by_cadvisor(runtime))
        kubelet = Kubelet(
            directory / "kubelet",
            disk / "kubelet",
            disk / "log" / "pods",
            runtime.socket,
            runtime.cgroup_parent,
            plane.authority,
            plane.api,
            settings,
        )
        stack.callback(kubelet.close)
        stack.callback(runtime.remove_pods, 20.0)
        stack.callback(kubelet.stop)
        node = KubeletNode(filesystem, runtime, kubelet, plane, pause, image_filesystem)
        stack.callback(_forget, plane.api)
        if images:
            node.import_images(images)
        kubelet.start()
        plane.api.wait("the node has registered", lambda: bool(node.conditions()), 60.0)
        yield node


@contextmanager
def found_by_cadvisor(crio: Crio) -> Iterator[None]:
    """A CRI-O is there where the kubelet asks it for its places by HTTP, which no setting moves,
    while the `with` block lasts
    (https://github.com/google/cadvisor/blob/v0.56.2/container/crio/client.go). FileExistsError if
    the machine has one of its own."""
    INFO_SOCKET.parent.mkdir()
    try:
        INFO_SOCKET.symlink_to(crio.socket)
        yield
    finally:
        INFO_SOCKET.unlink(missing_ok=True)
        INFO_SOCKET.parent.rmdir()


def _forget(api: Api) -> None:
    for name in api.pods():
        api.delete(f"{PODS}/{name}", grace_seconds=0)
    api.delete(f"/api/v1/nodes/{NODE}")
