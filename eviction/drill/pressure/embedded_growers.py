"""Writes the pressures of the embedded node: bytes, files and logs by a process of its own, writable layers and pulls
through the runtime, by a thread of this process."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

from eviction.drill.node.embedded_node import EmbeddedNode
from eviction.drill.pressure.fill import Fill
from eviction.drill.pressure.fill_program import Order
from eviction.drill.pressure.schedule import Grower
from eviction.drill.runtime.private_mounts import EmbeddedNodeError
from eviction.drill.scenario import Grows, Pressure

WRITE_BYTES = 256 * 1024  # a container writes this much at a time
PULL_AGAIN_SECONDS = 0.05  # an image that does not fit is pulled again, as the kubelet does, but sooner


class EmbeddedGrowers:
    """Starts the pressures of one embedded node. What they hold open they hold until `close`."""

    def __init__(self, node: EmbeddedNode):
        self._node = node
        self._fills: list[Fill] = []

    def __call__(self, pressure: Pressure, number: int) -> Grower:
        """Starts the `number`th pressure."""
        population = self._node.population
        match pressure.grows:
            case Grows.BYTES | Grows.INODES:
                return self._fill(pressure, os.path.join(self._node.disk(pressure.where), "grown", str(number)))
            case Grows.LOG:
                return self._fill(pressure, population.log_files[pressure.pod])
            case Grows.WRITABLE:
                container = population.running[pressure.pod]
                return _Thread(pressure, lambda most: self._node.runtime.write_to_container(container, most))
            case Grows.PULL:
                return _Thread(pressure, self._pulls(pressure))

    def close(self) -> None:
        """Ends what still writes, and closes every file. May come more than once."""
        for fill in self._fills:
            fill.free()

    def _fill(self, pressure: Pressure, path: str) -> Fill:
        order = Order(
            path,
            pressure.grows,
            pressure.rate,
            pressure.amount,
            file_bytes=pressure.file_bytes,
            file=pressure.file,
            until_full=pressure.until_full,
            remains=pressure.remains,
        )
        self._fills.append(Fill(order))
        return self._fills[-1]

    def _pulls(self, pressure: Pressure) -> Callable[[int], int]:
        """A function that pulls one image a call. It returns the bytes pulled, 0 if the image did not fit, and -1 after
        the last image."""
        image = pressure.image
        assert image is not None
        names = list(image.names)

        def pull(_: int) -> int:
            if not names:
                return -1
            try:
                self._node.population.pull(image, names[0])
            except EmbeddedNodeError:
                return 0
            names.pop(0)
            return image.size_bytes

        return pull


class _Thread:
    """Writes through the runtime at a steady rate. `write` takes the most bytes that it may write and returns how many
    it wrote: 0 if there was no space, -1 at the end."""

    def __init__(self, pressure: Pressure, write: Callable[[int], int]):
        self._pressure = pressure
        self._write = write
        self._written = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="grower", daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> int:
        self._stopping.set()
        self._thread.join()
        return self._written

    def free(self) -> None:
        """Nothing: files of a runtime are not removed behind its back. The reader refuses `remains: false` here."""

    def _run(self) -> None:
        began = time.monotonic()
        while True:
            left = WRITE_BYTES if self._pressure.amount is None else self._pressure.amount - self._written
            if left <= 0 or self._stopping.is_set():
                return
            wrote = self._write(min(left, WRITE_BYTES))
            if wrote < 0 or (wrote == 0 and self._pressure.until_full):
                return
            self._written += wrote
            ahead = self._written / self._pressure.rate - (time.monotonic() - began)
            self._stopping.wait(PULL_AGAIN_SECONDS if wrote == 0 else max(ahead, 0.0))
