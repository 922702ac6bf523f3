"""The embedded node of a drill: a small filesystem, an embedded CRI runtime on it, images, pods, and a fill.

Everything above the runtime's socket is the product's own code. The filesystem is a tmpfs in a mount namespace of this
process (as root, or in a user namespace), gone with the process; where neither is allowed it is a size-limited view of
a directory, and `simulated` says so.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from types import TracebackType
from typing import Self

from eviction.drill.scenario import ImageSpec, PodSpec, PodState, Pressure, Scenario, names_of
from eviction.drill.simulated import SizedDirectory
from reclaim.cri.maker import PodMaker
from reclaim.embedded.filesystem import PrivateMounts, mount_tmpfs
from reclaim.embedded.runtime import EmbeddedRuntime
from reclaim.embedded.server import EmbeddedServer
from reclaim.embedded.store import LayerSpec
from reclaim.types import ImageRecord
from signals.statvfs import FilesystemReader, read_statvfs

DEAD_AGE_SECONDS = 600.0
WRITABLE_BYTES = 2 * 1024 * 1024
CONTAINER = "app"


class EmbeddedDrillNode:
    """The node of a scenario, while its `with` block lasts.

    `mounts`: what `enter_private_mounts` answered, asked while the process had one thread. Raises EmbeddedNodeError
    when the node cannot be built.
    """

    def __init__(self, scenario: Scenario, mounts: PrivateMounts):
        self._scenario = scenario
        self._mounts = mounts
        self.simulated = not mounts.available
        self._base = tempfile.mkdtemp(prefix="reclaimd-drill-")
        self.disk = os.path.join(self._base, "disk")
        self.root_directory = os.path.join(self.disk, "kubelet")
        self.endpoint = f"unix://{self._base}/cri.sock"
        self.image_names: dict[str, str] = {}
        self.records: dict[str, ImageRecord] = {}
        self._fill: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        os.mkdir(self.disk)
        if not self.simulated:
            mount_tmpfs(self.disk, self._scenario.size_bytes, self._scenario.inodes)
        os.makedirs(os.path.join(self.root_directory, "pods"))
        sandbox_image = names_of(self._scenario.images[0])[0]
        self.runtime = EmbeddedRuntime(os.path.join(self.disk, "runtime"), sandbox_image=sandbox_image)
        self.server = EmbeddedServer(self.runtime, f"{self._base}/cri.sock")
        self.server.start()
        self.maker = PodMaker(self.endpoint)
        for image in self._scenario.images:
            self._add_images(image)
        for pod in self._scenario.pods:
            self._add_pod(pod)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop_fill()
        self.maker.close()
        self.server.close()
        # A tmpfs of our own ends with the process; the directory below it can only be removed where there is none.
        shutil.rmtree(self._base, ignore_errors=True)

    @property
    def reader(self) -> FilesystemReader:
        """How the node's filesystem is read."""
        if self.simulated:
            return SizedDirectory(self.disk, self._scenario.size_bytes, self._scenario.inodes)
        return read_statvfs

    def describe(self) -> str:
        """What the filesystem is, in a phrase."""
        if self.simulated:
            return f"simulated: a size-limited view of a directory, because {self._mounts.reason}"
        return f"a tmpfs of its own (mounted {'as root' if self._mounts.how == 'root' else 'in a user namespace'})"

    def start_fill(self, pressure: Pressure) -> None:
        """Starts the process that fills the disk."""
        program = os.path.join(os.path.dirname(__file__), "fill.py")
        self._fill = subprocess.Popen(
            [
                sys.executable,
                "-I",
                "-S",
                program,
                os.path.join(self.disk, "grown"),
                "inodes" if pressure.inodes else "bytes",
                str(pressure.rate),
                str(pressure.amount),
            ],
            stdout=subprocess.PIPE,
            text=True,
        )

    @property
    def filling(self) -> bool:
        """Whether the process that fills the disk still runs."""
        return self._fill is not None and self._fill.poll() is None

    def stop_fill(self) -> int:
        """Ends the fill; what it wrote, in bytes or files."""
        if self._fill is None:
            return 0
        self._fill.terminate()
        written, _ = self._fill.communicate()
        self._fill = None
        return int(written or 0)

    def start_new_pod(self) -> str:
        """Starts a pod that was not there before. Raises RuntimeUnavailable with the runtime's own words."""
        image = next((pod.image for pod in self._scenario.pods), names_of(self._scenario.images[0])[0])
        return self._run_pod("new-pod", image)[1]

    def _add_images(self, image: ImageSpec) -> None:
        now = time.monotonic()
        for place, name in enumerate(names_of(image)):
            layers = [LayerSpec(name, image.size_bytes, image.files)]
            if image.shared_bytes:
                layers.insert(0, LayerSpec(f"shared {image.name}", image.shared_bytes))
            image_id = self.runtime.add_image([name], layers, pinned=image.pinned)
            self.image_names[image_id] = name
            self.records[image_id] = ImageRecord(now - image.age_seconds + place)

    def _run_pod(self, name: str, image: str, attempt: int = 0) -> tuple[str, str]:
        uid = f"uid-{name}"
        os.makedirs(os.path.join(self.root_directory, "pods", uid), exist_ok=True)  # before the sandbox, as the kubelet
        sandbox = self.maker.run_pod(name, uid, f"/var/log/pods/default_{name}_{uid}")
        return sandbox, self.maker.run_container(sandbox, (name, uid), CONTAINER, image, attempt)

    def _add_pod(self, pod: PodSpec) -> None:
        sandbox, container = self._run_pod(pod.name, pod.image)
        self.runtime.write_to_container(container, WRITABLE_BYTES)
        containers = [container]
        if pod.state is PodState.CRASHED:
            self.runtime.exit_container(container, 1)
            self.runtime.age(container, DEAD_AGE_SECONDS)  # one crash after the other
            containers.append(
                self.maker.run_container(sandbox, (pod.name, f"uid-{pod.name}"), CONTAINER, pod.image, attempt=1)
            )
        if pod.state is not PodState.RUNNING:
            self.runtime.exit_container(containers[-1], 0 if pod.state is PodState.COMPLETED else 1)
            self.runtime.age(containers[-1], DEAD_AGE_SECONDS)
        if pod.state is PodState.GONE:
            self.runtime.kill_sandbox(sandbox)
            self.runtime.age(sandbox, DEAD_AGE_SECONDS)
            shutil.rmtree(os.path.join(self.root_directory, "pods", f"uid-{pod.name}"))
