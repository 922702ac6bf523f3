"""Pressure that never ends: as soon as the disk is relieved, an image is pulled and the
disk is below its mark again.

What may go beside images is replaced, too, so that there is always a
container and a sandbox to remove.
"""

from __future__ import annotations

import os
import time
from typing import NamedTuple, Self

from tests.background import Background
from tests.faults.matrix.node import MatrixNode
from tests.faults.matrix.rows import Kind
from tests.nodes.small_node import MIB

TURN_SECONDS = 0.02
PAUSE_SECONDS = 0.25  # between a relief and the next pull: a row is not about speed
STOCK = 5  # unused images: one that cannot go leaves others
BELOW_BYTES = MIB  # how far the pull goes below the mark: half an image


class Cycle(NamedTuple):
    """One crossing of the mark and its relief, wall seconds."""

    crossed: float
    relieved: float


class Pressure(Background):
    """Runs on a thread of the test while the `with` block lasts.

    `unknown_containers`: the containers that may go are such whose state the runtime has lost.
    `extra_bytes`: how much further below the mark the disk is filled.
    """

    def __init__(self, node: MatrixNode, mark_bytes: int) -> None:
        super().__init__("pressure")
        self._node = node
        self._mark = mark_bytes
        self._crossed: float | None = None
        self._pull_at = float("-inf")
        self._cycles: list[Cycle] = []
        self.unknown_containers = False
        self.extra_bytes = 0

    def __enter__(self) -> Self:
        self._supply()
        self._press()
        return super().__enter__()

    @property
    def cycles(self) -> list[Cycle]:
        """The reliefs so far."""
        return list(self._cycles)

    def _run(self) -> None:
        supply_at = time.monotonic()
        while not self._over.wait(TURN_SECONDS):
            now = time.monotonic()
            if now >= supply_at:
                supply_at = now + PAUSE_SECONDS
                self._supply()
            if self._crossed is not None and self._node.available() >= self._mark:
                self._cycles.append(Cycle(self._crossed, time.time()))
                self._crossed, self._pull_at = None, now + PAUSE_SECONDS
            elif self._crossed is None and now >= self._pull_at:
                self._press()

    def _supply(self) -> None:
        for kind in (Kind.CONTAINER, Kind.SANDBOX):
            if self._node.left(kind) == 0:
                if kind is Kind.CONTAINER and self.unknown_containers:
                    self._node.add_unknown_container()
                else:
                    self._node.add(kind)

    def _press(self) -> None:
        for _ in range(max(STOCK - self._node.left(Kind.IMAGE), 1)):
            self._node.add(Kind.IMAGE)
        descriptor = os.open(
            self._node.disk / "grown", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
        )
        try:
            size = os.fstat(descriptor).st_size
            more = self._node.available() - self._mark + BELOW_BYTES + self.extra_bytes
            if more > 0:
                os.posix_fallocate(descriptor, 0, size + more)
            else:
                os.ftruncate(descriptor, max(size + more, 0))
        finally:
            os.close(descriptor)
        self._crossed = time.time()
