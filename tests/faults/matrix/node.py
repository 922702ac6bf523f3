"""The node of the fault matrix: what must stay on it, what may go, and new things that may go.

Everything is made in the runtime itself, not over its socket, which may be the part that fails.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

from reclaim.cri import cri_pb2 as pb
from tests.faults.matrix.rows import Kind
from tests.nodes.full_runtime import FullRuntime
from tests.nodes.full_server import METHODS
from tests.nodes.pod_maker import Answer, PodMaker
from tests.nodes.small_node import APP, DEAD_SECONDS, MIB, SmallNode

IMAGE_BYTES = 2 * MIB
SMALL_BYTES = 64 << 10
# never used: no image that is pulled fills the disk within a minute, so nothing is in a hurry
SPARE_BYTES = 16 << 30
SIZE_BYTES = SPARE_BYTES + 64 * MIB
MARK_BYTES = SPARE_BYTES + 40 * MIB
KEPT = "registry.example/kept/base:1"
LIVE_PODS = ("web", "crashed", "rebooted")


class _Runtime(FullRuntime):
    """Reports `image_mountpoint` as the place of its images, if that is set."""

    image_mountpoint = ""

    def image_fs_info(self, request: pb.ImageFsInfoRequest) -> pb.ImageFsInfoResponse:
        """ImageFsInfo."""
        answer: pb.ImageFsInfoResponse = super().image_fs_info(request)
        if self.image_mountpoint:
            for usage in (*answer.image_filesystems, *answer.container_filesystems):
                usage.fs_id.mountpoint = self.image_mountpoint
        return answer


class _DirectPodMaker(PodMaker):
    """Calls the runtime's functions, without its socket, and makes no directories: those
    of pods may be what fails.
    """

    def __init__(self, node: SmallNode) -> None:
        super().__init__(node.endpoint, "/nowhere")
        self._runtime = node.runtime
        self._functions = {method.name: method.function for method in METHODS}

    def _make(self, method: str, request: Any, answer_type: type[Answer]) -> Answer:
        answer: Any = self._functions[method](self._runtime, request)
        return answer  # type: ignore[no-any-return] # an answer_type


class MatrixNode(SmallNode):
    """A node with everything that must stay: a running container, done and crashed containers
    of live pods, their images, a pinned and a kept image, the image of sandboxes, logs, and a
    file of somebody else."""

    runtime: _Runtime

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, size_bytes=SIZE_BYTES, runtime=_Runtime)
        self.maker = _DirectPodMaker(self)
        self.directory = directory
        self._numbers = itertools.count()
        self._removable: dict[Kind, set[str]] = {kind: set() for kind in Kind}
        init = self.add_image("registry.example/init:1", SMALL_BYTES)
        stay = [init, self.add_image(KEPT, SMALL_BYTES)]
        stay.append(self.add_image("registry.example/pinned:1", SMALL_BYTES, pinned=True))
        self.images_that_stay = {self.pause_id, self.app_id, *stay}
        pods = {name: self.run_pod(name) for name in LIVE_PODS}
        self._crashed = pods["crashed"]
        running = self.run(pods["web"])
        done = self.exited(pods["web"], "registry.example/init:1", name="init")
        newest = self.exited(self._crashed, attempt=3)
        rebooted = self.exited(pods["rebooted"])
        self.runtime.kill_sandbox(pods["rebooted"].sandbox_id)
        self.runtime.age(pods["rebooted"].sandbox_id, DEAD_SECONDS)
        self.must_stay = {
            running,
            done,
            newest,
            rebooted,
            *(pod.sandbox_id for pod in pods.values()),
        }
        self.must_stay |= self.images_that_stay
        logs = [("web", running, 0), ("crashed", newest, 3), ("rebooted", rebooted, 0)]
        self._files = {self.log(name, container, attempt) for name, container, attempt in logs}
        foreign = self.disk / "foreign" / "data"
        foreign.parent.mkdir()
        foreign.write_text("of somebody else\n")
        self._files.add(foreign)

    def lost(self) -> list[str]:
        """What is gone and had to stay: objects by the runtime's own record,
        files by their names.
        """
        removable = set().union(*self._removable.values())
        gone = [
            f"{each.kind} {each.id}" for each in self.runtime.removals if each.id not in removable
        ]
        return gone + [
            f"file {file.relative_to(self.disk)}"
            for file in sorted(self._files)
            if not file.exists()
        ]

    def removed_at(self, kind: Kind) -> list[float]:
        """When objects of this kind were really removed, wall seconds, in order."""
        return [each.wall_seconds for each in self.runtime.removals if each.kind == kind]

    def left(self, kind: Kind) -> int:
        """How many objects of this kind may go and are still there."""
        return len(self._removable[kind] - {each.id for each in self.runtime.removals})

    def add(self, kind: Kind) -> None:
        """One more object of this kind that may go: an unused image, an older dead copy,
        the sandbox of a gone pod.
        """
        number = next(self._numbers)
        match kind:
            case Kind.IMAGE:
                made = self.add_image(f"registry.example/old/{number}:1", IMAGE_BYTES)
            case Kind.CONTAINER:
                made = self.exited(self._crashed, APP, attempt=0)
                self.runtime.age(made, DEAD_SECONDS)  # older than the newest copy
            case _:
                name = f"gone-{number}"
                made = self.maker.run_pod(name, f"uid-{name}", str(self.logs_of(name)))
                self.runtime.kill_sandbox(made)
                self.runtime.age(made, DEAD_SECONDS)
        self._removable[kind].add(made)

    def add_unknown_container(self) -> None:
        """An older copy whose state the runtime has lost: it is stopped before it is removed."""
        made = self.run(self._crashed, APP, attempt=0)
        self.runtime.age(made, 2 * DEAD_SECONDS)
        self.runtime.lose_container(made)
        self._removable[Kind.CONTAINER].add(made)

    def pods(self) -> list[dict[str, Any]]:
        """The live pods as the kubelet lists them."""
        source = {"kubernetes.io/config.source": "api"}
        return [
            {
                "metadata": {"uid": f"uid-{name}", "annotations": source},
                "status": {"phase": "Running"},
            }
            for name in LIVE_PODS
        ]

    @property
    def pods_directory(self) -> Path:
        """The kubelet's directory of pods."""
        return self.root_directory / "pods"
