"""A small node to be relieved: small real filesystems, a kubelet's directories, an embedded
runtime behind its socket.

Images and pods are put on it as a kubelet and a runtime would; `node` is the
product, assembled for it.
"""

import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eviction.configuration.effective import load
from eviction.configuration.threshold_config import KUBELET_EVICTION_HARD
from eviction.decision.reclaim_table import RowEntry, row
from eviction.drill.embedded_node import begin_container
from eviction.drill.private_mounts import EmbeddedNodeError, unmount
from eviction.drill.runtime import LayerSpec
from eviction.engine.effects import Request
from eviction.engine.node import Node
from eviction.records.passes import Pass, Trigger
from eviction.types import Extent
from reclaim.cri import cri_pb2 as pb
from reclaim.cri.convert import CONTAINER_NAME_LABEL, POD_NAME_LABEL, POD_NAMESPACE_LABEL, UID_LABEL
from reclaim.functions.table import FUNCTIONS
from reclaim.images.records import ImageRecords
from reclaim.pod_logs.names import symlink_name
from reclaim.types import (
    DELETE_ALL_UNUSED_CONTAINERS,
    DELETE_UNUSED_IMAGES,
    ImageRecord,
    Outcome,
    RuntimeUnavailable,
)
from signals.types import KUBELET_SIGNALS, FsLayout, Signal
from tests.nodes.full_runtime import FullRuntime
from tests.nodes.full_server import FullServer, images_created_at
from tests.reclaimd_process import exact, write_configuration
from tests.sockets.mounts import mounted_tmpfs

MIB = 1 << 20
PAUSE = "registry.k8s.io/pause:3.10"
APP = "registry.example/app:1"
STANDING = "standing"
AN_HOUR = 3600.0
DEAD_SECONDS = 600.0
LONGEST_SECONDS = 60.0
CONSTRUCTOR_OPTIONS = (
    "dry_run",
    "stopping",
    "reader",
    "clock",
    "read_deadline_seconds",
    "records",
    "usual_endpoints",
    "functions",
)

EVERYTHING = Request(row=tuple(FUNCTIONS), extent=Extent.ALL)
"""All functions of the table to their end."""

CONTAINERS = Request(row=(DELETE_ALL_UNUSED_CONTAINERS,), extent=Extent.ALL)
IMAGES = Request(row=(DELETE_UNUSED_IMAGES,), extent=Extent.ALL)


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod on the node."""

    name: str
    uid: str
    sandbox_id: str


class SmallNode:
    """A node with a sandbox image and one application image; each filesystem of its layout
    has 64 MiB and 4000 inodes.

    `disk` holds the kubelet's root directory; images and writable layers are where
    `layout` says, or writable layers on a filesystem of their own (`containers_apart`).
    `options` are the runtime's.
    """

    def __init__(
        self,
        directory: Path,
        layout: FsLayout = FsLayout.SINGLE,
        size_bytes: int = 64 * MIB,
        runtime: type[FullRuntime] = FullRuntime,
        *,
        server: type[FullServer] = FullServer,
        containers_apart: bool = False,
        **options: Any,
    ) -> None:
        self._layout = layout
        self.disk = directory / "disk"
        self.image_disk = self.disk if layout is FsLayout.SINGLE else directory / "imagefs"
        self.container_disk = self.disk if layout is FsLayout.SPLIT else self.image_disk
        if containers_apart:
            self.container_disk = directory / "containerfs"
        disks = (self.disk, self.image_disk, self.container_disk)
        self._mounts = list(dict.fromkeys(map(str, disks)))
        for mountpoint in self._mounts:
            mounted_tmpfs(mountpoint, size_bytes, 4000)
        self.root_directory = self.disk / "kubelet"
        (self.root_directory / "pods").mkdir(parents=True)
        self.pod_logs_dir = self.disk / "log" / "pods"
        self.container_logs_dir = self.disk / "log" / "containers"
        self.pod_logs_dir.mkdir(parents=True)
        self.container_logs_dir.mkdir()
        self.images_root = self.image_disk / "images"
        containers_root = (
            ""
            if self.container_disk == self.image_disk
            else str(self.container_disk / "containers")
        )
        self.runtime = runtime(str(self.images_root), containers_root=containers_root, **options)
        self.server = server(self.runtime, str(directory / "cri.sock"))
        self.server.start()
        self.endpoint = f"unix://{self.server.socket_path}"
        self.failpoints = self.server.failpoints
        self._directory = directory
        self._nodes: list[Node] = []
        self._stands = False
        self.first_detected: dict[str, float] = {}
        self.pause_id = self.add_image(PAUSE, 64 << 10)
        self.app_id = self.add_image(APP, MIB)

    def close(self) -> None:
        """Closes the clients, stops the server, and unmounts the filesystems."""
        self.failpoints.clear()
        for node in self._nodes:
            node.close()
        self.server.stop()
        for mountpoint in reversed(self._mounts):
            unmount(mountpoint)

    # ---- what is on the node

    def add_image(
        self, name: str, size_bytes: int = 4 * MIB, shared_bytes: int = 0, **options: Any
    ) -> str:
        """An image known for an hour; later ones are a second younger. `shared_bytes`:
        of a layer common to all.

        `options`: `files` of its layer, all its `tags`, whether it is `pinned`.
        """
        layers = [LayerSpec("shared", shared_bytes)] if shared_bytes else []
        layers.append(LayerSpec(name, size_bytes, options.pop("files", 1)))
        image_id = self.runtime.add_image(options.pop("tags", [name]), layers, **options)
        self.first_detected[image_id] = time.monotonic() - AN_HOUR + len(self.first_detected)
        return image_id

    def add_images(self, count: int, size_bytes: int = 4 * MIB, shared_bytes: int = 0) -> list[str]:
        """Unused images, the oldest first."""
        return [
            self.add_image(
                f"registry.example/old/{number}:1", size_bytes, shared_bytes=shared_bytes
            )
            for number in range(count)
        ]

    def admit(self, uid: str) -> None:
        """The kubelet makes the directory of a pod, before anything else of it."""
        (self.root_directory / "pods" / uid).mkdir(exist_ok=True)

    def forget(self, uid: str) -> None:
        """The kubelet removes the directory of a pod, after everything else of it."""
        shutil.rmtree(self.root_directory / "pods" / uid)

    def run_pod(self, name: str, attempt: int = 0) -> Pod:
        """A pod with its directory and a ready sandbox."""
        uid = f"uid-{name}"
        self.admit(uid)
        return Pod(name, uid, self.run_sandbox(name, attempt))

    def run_sandbox(self, name: str, attempt: int = 0) -> str:
        """A ready sandbox of a pod, under the faults of that call; its id."""
        uid = f"uid-{name}"
        config = pb.PodSandboxConfig(
            metadata=pb.PodSandboxMetadata(
                name=name, uid=uid, namespace="default", attempt=attempt
            ),
            log_directory=str(self.logs_of(name)),
            labels=labels_of(name, uid),
        )
        made: pb.RunPodSandboxResponse = self.failpoints.apply(
            "RunPodSandbox",
            lambda: self.runtime.answer(pb.RunPodSandboxRequest(config=config)),
            pb.RunPodSandboxResponse(),
        )
        return made.pod_sandbox_id

    def logs_of(self, name: str) -> Path:
        """Where the logs of a pod are, or would be: the runtime here writes none."""
        return self.pod_logs_dir / f"default_{name}_uid-{name}"

    def log(self, name: str, container_id: str, attempt: int = 0, container: str = "app") -> Path:
        """Writes the log of a container, a rotated one beside it, and the symlink
        to it; the path of the log.
        """
        log = self.logs_of(name) / container / f"{attempt}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text("a line\n")
        log.with_name(f"{log.name}.20261121-120000").write_text("an older line\n")
        (
            self.container_logs_dir
            / symlink_name(name, "default", container, container_id=container_id)
        ).symlink_to(log)
        return log

    def run(
        self, pod: Pod, image: str = APP, name: str = "app", attempt: int = 0, writes: int = 0
    ) -> str:
        """A running container that has written so many bytes; its id. RuntimeUnavailable: its image,
        say, is not there."""
        self.begins(pod, name)
        try:
            container_id = self.create(
                pod,
                image,
                metadata=pb.ContainerMetadata(name=name, attempt=attempt),
                labels={**labels_of(pod.name, pod.uid), CONTAINER_NAME_LABEL: name},
                log_path=f"{name}/{attempt}.log",
            )
        except EmbeddedNodeError as error:
            raise RuntimeUnavailable(str(error)) from error
        self.start(container_id)
        if writes:
            assert self.runtime.write_to_container(container_id, writes) == writes
        return container_id

    def begins(self, pod: Pod, name: str) -> None:
        """The kubelet makes the directory of a container, before the container."""
        begin_container(str(self.root_directory / "pods" / pod.uid), name)

    def exited(
        self, pod: Pod, image: str = APP, name: str = "app", attempt: int = 0, writes: int = 0
    ) -> str:
        """A container that ran ten minutes ago and exited; a higher attempt a minute later."""
        container_id = self.run(pod, image, name, attempt, writes)
        self.runtime.exit_container(container_id, 1)
        self.runtime.age(container_id, DEAD_SECONDS - 60 * attempt)
        return container_id

    def stands(self) -> None:
        """Another pod runs on, as on every node; it has a ready sandbox and no containers. Without
        any pod that has its directory, the directories prove nothing."""
        if not self._stands:
            self._stands = True
            self.runtime.age(self.run_pod(STANDING).sandbox_id, AN_HOUR)

    def vanish(self, pod: Pod) -> None:
        """The pod's sandbox died ten minutes ago, and the kubelet has removed the pod's directory.

        Other pods run.
        """
        self.stands()
        self.runtime.kill_sandbox(pod.sandbox_id)
        self.runtime.age(pod.sandbox_id, DEAD_SECONDS)
        self.forget(pod.uid)

    def gone_pod(self, name: str, image: str = APP, writes: int = 0) -> str:
        """A dead container of a deleted pod; its id."""
        pod = self.run_pod(name)
        container_id = self.exited(pod, image, writes=writes)
        self.vanish(pod)
        return container_id

    def create(self, pod: Pod, image: str = APP, name: str = "app", **config: Any) -> str:
        """A container that is CREATED and does not run; `config` adds fields of ContainerConfig.

        Its id.
        """
        request = pb.CreateContainerRequest(
            pod_sandbox_id=pod.sandbox_id,
            config=pb.ContainerConfig(
                **{
                    "metadata": pb.ContainerMetadata(name=name),
                    "image": pb.ImageSpec(image=image),
                    "labels": {UID_LABEL: pod.uid},
                    **config,
                }
            ),
        )
        container_id: str = self.runtime.answer(request).container_id
        return container_id

    def start(self, container_id: str) -> None:
        """A CREATED container runs."""
        self.runtime.answer(pb.StartContainerRequest(container_id=container_id))

    def fill(self, size_bytes: int = 0, inodes: int = 0, directory: Path | None = None) -> None:
        """Writes `size_bytes` bytes and `inodes` empty files on the kubelet's
        filesystem or in another directory.
        """
        where = directory or self.disk
        if size_bytes:
            with open(where / "grown", "ab") as file:
                file.write(os.urandom(MIB) * (size_bytes // MIB) + b"x" * (size_bytes % MIB))
        for number in range(inodes):
            (where / f"grown-{number}").touch()

    # ---- what is there, without asking over the socket

    def images(self) -> set[str]:
        """Ids of the images."""
        return {image.id for image in self.runtime.answer(pb.ListImagesRequest()).images}

    def containers(self) -> set[str]:
        """Ids of the containers."""
        return {each.id for each in self.runtime.answer(pb.ListContainersRequest()).containers}

    def state(self, container_id: str) -> int:
        """State of a container, as on the wire."""
        request = pb.ContainerStatusRequest(container_id=container_id)
        state: int = self.runtime.answer(request).status.state
        return state

    def removed(self, kind: str = "") -> list[str]:
        """Ids of what the runtime really removed, in order."""
        return [each.id for each in self.runtime.removals if kind in ("", each.kind)]

    def available(self, directory: Path | None = None) -> int:
        """Bytes available on the kubelet's filesystem, or on that of another directory."""
        found = os.statvfs(directory or self.disk)
        return found.f_bavail * found.f_frsize

    def inodes_free(self) -> int:
        """Inodes free on the kubelet's filesystem."""
        return os.statvfs(self.disk).f_ffree

    # ---- the product on it

    def fields(self, signal: Signal | None = None, above: int = 0, **fields: Any) -> dict[str, Any]:
        """Fields of a configuration.

        `signal`: under pressure until `above` more bytes or inodes are free than now.
        """
        marks: dict[str, str] = dict.fromkeys(map(str, KUBELET_EVICTION_HARD), "0%")  # switched off
        if signal is not None:
            where = self.image_disk if signal.filesystem == "imagefs" else self.disk
            found = os.statvfs(where)
            marks[str(signal)] = str(
                (found.f_ffree if signal.counts_inodes else self.available(where)) + above
            )
        return exact(
            {
                "rootDirectory": str(self.root_directory),
                "podLogsDir": str(self.pod_logs_dir),
                "containerLogsDir": str(self.container_logs_dir),
                "stateFile": "",
                "historyFile": "",
                "kubeletConfig": "",
                "kubeletHealthzEndpoint": "",
                "containerRuntimeEndpoint": self.endpoint,
                "evictionMinimumReclaim": {"nodefs.available": "0", "imagefs.available": "0"},
                "holdOffAfterStart": "0s",
                "holdOffForNewPods": "0s",
                "parallelRemovals": 1,
                **fields,
                "evictionHard": {**marks, **fields.get("evictionHard", {})},
            }
        )

    def configuration(self, signal: Signal | None = None, above: int = 0, **fields: Any) -> str:
        """Path of a configuration file for the program, under which the images of now are
        old enough to be removed.
        """
        own = (self.app_id, self.pause_id)  # the youngest
        known, now = images_created_at(self.runtime), time.time()
        for rank, image_id in enumerate(
            sorted(known, key=lambda each: (each not in own, -self.first_detected[each]))
        ):
            # the program takes the age from there
            self.runtime.age(image_id, known[image_id] - (now - rank * 0.001))
        path = self._directory / f"reclaimd-{len(list(self._directory.glob('*.yaml')))}.yaml"
        given = self.fields(signal, above, **{"imageMinimumGCAge": "0s", **fields})
        return str(write_configuration(path, **given))

    def node(self, signal: Signal | None = None, above: int = 0, **options: Any) -> Node:
        """The product, assembled. Options are `first`, a function that comes first in every row,
        those of its constructor, and otherwise fields of the configuration."""
        first = options.pop("first", "")
        fields = {key: options.pop(key) for key in list(options) if key not in CONSTRUCTOR_OPTIONS}
        options.setdefault(
            "records",
            ImageRecords(
                seed={known: ImageRecord(first) for known, first in self.first_detected.items()}
            ),
        )
        configuration = load(None, {}, self.fields(signal, above, **fields))
        if first:
            rows = {
                each: tuple(map(RowEntry, (first, *row(each, self._layout))))
                for each in KUBELET_SIGNALS
            }
            configuration = configuration.model_copy(update={"rows": rows})
        node = Node(configuration, **options)
        self._nodes.append(node)
        return node

    def relieving(
        self, node: Node, request: Request | None = None
    ) -> AbstractContextManager[Future[Pass]]:
        """A pass on a thread of its own, so that a test can change the node while the
        pass hangs at a failpoint.
        """
        return self.meanwhile(lambda: relieve(node, request))

    @contextmanager
    def meanwhile(self, relieve: Callable[[], Pass]) -> Iterator[Future[Pass]]:
        """The same for a pass of any kind."""
        with ThreadPoolExecutor(1) as pool:
            try:
                yield pool.submit(relieve)
            finally:
                self.failpoints.clear()

    def wait_for(self, method: str, count: int = 1) -> None:
        """Waits until a method has been called `count` times."""
        assert self.failpoints.wait_for_calls(method, count, LONGEST_SECONDS), (
            f"{method} was not called"
        )


def labels_of(name: str, uid: str) -> dict[str, str]:
    """The labels that a kubelet gives to what it makes of a pod."""
    return {UID_LABEL: uid, POD_NAME_LABEL: name, POD_NAMESPACE_LABEL: "default"}


def relieve(node: Node, request: Request | None = None) -> Pass:
    """One pass of the product: observe, decide, reclaim, observe again."""
    node.locate()
    observations, decision = node.look()
    return node.relieve(observations, decision, Trigger.INTERVAL, request=request)


def outcome_of(record: Pass, object_id: str) -> Outcome:
    """The outcome of one object in a pass."""
    found = [
        outcome for outcome in (*record.removals, *record.kept) if outcome.verdict.id == object_id
    ]
    assert len(found) == 1, f"{object_id} has {len(found)} outcomes"
    return found[0]


def reason_of(record: Pass, object_id: str) -> str:
    """Why one object was removed or kept."""
    return str(outcome_of(record, object_id).verdict.reason)


def result_of(record: Pass, object_id: str) -> str:
    """How the removal of one object ended."""
    return str(outcome_of(record, object_id).result)


class GivenIds(FullRuntime):
    """A runtime that gives its containers the ids in `ids`, then ids of its own."""

    def __init__(self, images_root: str, *, ids: Sequence[str], **options: Any) -> None:
        super().__init__(images_root, **options)
        self._ids = list(ids)

    def _new_id(self, kind: str) -> str:
        return self._ids.pop(0) if kind == "container" and self._ids else super()._new_id(kind)
