"""The node of the fault matrix: what must stay on it, what may go, and pressure that never ends.

Everything is made in the runtime itself, not over its socket, which may be the part that fails.
"""

from __future__ import annotations

import itertools
import os
import time
from pathlib import Path
from typing import Any, NamedTuple, Self

from google.protobuf.message import Message

from reclaim.cri import cri_pb2 as pb
from tests.background import Background
from tests.faults.matrix.table import Kind
from tests.nodes.full_runtime import FullRuntime
from tests.nodes.small_node import APP, DEAD_SECONDS, MIB, Pod, SmallNode

SMALL_BYTES = 64 << 10
# never used: no image that is pulled fills the disk within a minute, so nothing is in a hurry
SPARE_BYTES = 16 << 30
SIZE_BYTES = SPARE_BYTES + 64 * MIB
MARK_BYTES = SPARE_BYTES + 40 * MIB
LIVE_PODS = ("web", "crashed", "rebooted")
TURN_SECONDS = 0.02
PAUSE_SECONDS = 0.25  # between a relief and the next pull: a row is not about speed
STOCK = 5  # unused images: one that cannot go leaves others


class _Runtime(FullRuntime):
    """Reports `image_mountpoint` as the place of its images, if that is set."""

    image_mountpoint = ""

    def answer(self, request: Message) -> Any:
        """Of ImageFsInfo too."""
        answer = super().answer(request)
        if self.image_mountpoint and isinstance(request, pb.ImageFsInfoRequest):
            for usage in (*answer.image_filesystems, *answer.container_filesystems):
                usage.fs_id.mountpoint = self.image_mountpoint
        return answer


class MatrixNode(SmallNode):
    """A node with everything that must stay: a running container, done and crashed containers
    of live pods, their images, a pinned and a kept image, the image of sandboxes, logs, and a
    file of somebody else."""

    runtime: _Runtime

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, size_bytes=SIZE_BYTES, runtime=_Runtime)
        self._numbers = itertools.count()
        self._removable: dict[Kind, set[str]] = {kind: set() for kind in Kind}
        init = "registry.example/init:1"
        for name in (init, "registry.example/kept/base:1"):
            self.add_image(name, SMALL_BYTES)
        self.add_image("registry.example/pinned:1", SMALL_BYTES, pinned=True)
        pods = {name: self.run_pod(name) for name in LIVE_PODS}
        self._crashed = pods["crashed"]
        self.exited(pods["web"], init, name="init")
        rebooted = self.exited(pods["rebooted"])
        self.runtime.kill_sandbox(pods["rebooted"].sandbox_id)
        self.runtime.age(pods["rebooted"].sandbox_id, DEAD_SECONDS)
        foreign = self.disk / "foreign" / "data"
        foreign.parent.mkdir()
        foreign.write_text("of somebody else\n")
        self._files = {
            foreign,
            self.log("web", self.run(pods["web"])),
            self.log("crashed", self.exited(self._crashed, attempt=3), 3),
            self.log("rebooted", rebooted),
        }

    def begins(self, pod: Pod, name: str) -> None:
        """No directory is made: those of pods may be what fails."""

    def lost(self) -> list[str]:
        """What is gone and had to stay: objects by the runtime's own record,
        files by their names.
        """
        removable = set().union(*self._removable.values())
        gone = [each for each in self.runtime.removals if each.id not in removable]
        missing = sorted(str(file) for file in self._files if not file.exists())
        return [f"{each.kind} {each.id}" for each in gone] + [f"file {path}" for path in missing]

    def removed_at(self, kind: Kind) -> list[float]:
        """When objects of this kind were really removed, wall seconds, in order."""
        return [each.wall_seconds for each in self.runtime.removals if each.kind == kind]

    def left(self, kind: Kind) -> int:
        """How many objects of this kind may go and are still there."""
        return len(self._removable[kind] - set(self.removed()))

    def add(self, kind: Kind, *, unknown: bool = False) -> None:
        """One more object of this kind that may go: an unused image, an older dead copy,
        the sandbox of a gone pod. `unknown`: the runtime has lost the copy's state, so it is
        stopped before it is removed.
        """
        number = next(self._numbers)
        match kind:
            case Kind.IMAGE:
                made = self.add_image(f"registry.example/old/{number}:1", 2 * MIB)
            case Kind.CONTAINER if unknown:
                made = self.run(self._crashed, APP, attempt=0)
                self.runtime.age(made, 2 * DEAD_SECONDS)
                self.runtime.lose_container(made)
            case Kind.CONTAINER:
                made = self.exited(self._crashed, APP, attempt=0)
                self.runtime.age(made, DEAD_SECONDS)  # older than the newest copy
            case _:
                made = self.run_sandbox(f"gone-{number}")
                self.runtime.kill_sandbox(made)
                self.runtime.age(made, DEAD_SECONDS)
        self._removable[kind].add(made)

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


class Cycle(NamedTuple):
    """One crossing of the mark and its relief, wall seconds."""

    crossed: float
    relieved: float


class Pressure(Background):
    """While its `with` block lasts an image is pulled as soon as the disk is relieved, and the disk
    is below its mark again. What may go beside images is replaced, too.

    `unknown_containers`: the containers that may go are such whose state the runtime has lost.
    `extra_bytes`: how much further below the mark the disk is filled.
    """

    def __init__(self, node: MatrixNode) -> None:
        super().__init__("pressure")
        self._node = node
        self._crossed: float | None = None
        self._pull_at = float("-inf")
        self.cycles: list[Cycle] = []
        self.unknown_containers = False
        self.extra_bytes = 0

    def __enter__(self) -> Self:
        self._supply()
        self._press()
        return super().__enter__()

    def _run(self) -> None:
        supply_at = time.monotonic()
        while not self._over.wait(TURN_SECONDS):
            now = time.monotonic()
            if now >= supply_at:
                supply_at = now + PAUSE_SECONDS
                self._supply()
            if self._crossed is not None and self._node.available() >= MARK_BYTES:
                self.cycles.append(Cycle(self._crossed, time.time()))
                self._crossed, self._pull_at = None, now + PAUSE_SECONDS
            elif self._crossed is None and now >= self._pull_at:
                self._press()

    def _supply(self) -> None:
        for kind in (Kind.CONTAINER, Kind.SANDBOX):
            if self._node.left(kind) == 0:
                self._node.add(kind, unknown=self.unknown_containers)

    def _press(self) -> None:
        for _ in range(max(STOCK - self._node.left(Kind.IMAGE), 1)):
            self._node.add(Kind.IMAGE)
        descriptor = os.open(
            self._node.disk / "grown", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
        )
        try:
            size = os.fstat(descriptor).st_size
            # half an image below the mark
            more = self._node.available() - MARK_BYTES + MIB + self.extra_bytes
            if more > 0:
                os.posix_fallocate(descriptor, 0, size + more)
            else:
                os.ftruncate(descriptor, max(size + more, 0))
        finally:
            os.close(descriptor)
        self._crossed = time.time()
