"""The node of the fault matrix, and pressure that never ends."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, NamedTuple, Self

from google.protobuf.message import Message

from reclaim.cri import cri_pb2 as pb
from reclaim.types import Kind
from tests.background import Background
from tests.faults.populated import LIVE_PODS, SMALL_BYTES, PopulatedNode
from tests.nodes.full_runtime import FullRuntime
from tests.nodes.small_node import MIB

# never used: no image that is pulled fills the disk within a minute, so nothing is in a hurry
SPARE_BYTES = 16 << 30
SIZE_BYTES = SPARE_BYTES + 64 * MIB
MARK_BYTES = SPARE_BYTES + 40 * MIB
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


class MatrixNode(PopulatedNode):
    """A large node; a kept image has to stay, too."""

    runtime: _Runtime

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, size_bytes=SIZE_BYTES, runtime=_Runtime)
        self.add_image("registry.example/kept/base:1", SMALL_BYTES)

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
            if not self._node.left(kind):
                self._node.add(kind, unknown=self.unknown_containers)

    def _press(self) -> None:
        for _ in range(max(STOCK - len(self._node.left(Kind.IMAGE)), 1)):
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
