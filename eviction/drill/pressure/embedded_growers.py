"""Writes the pressures of the embedded node.

Bytes, files and logs are written by a process of its own (`fill_program`), so that this process does not slow it down.
Writable layers and pulls have to go through the runtime in this process, so they are written by a thread.
"""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable

from eviction.drill.node.embedded_node import EmbeddedNode
from eviction.drill.pressure.schedule import Grower
from eviction.drill.runtime.private_mounts import EmbeddedNodeError
from eviction.drill.scenario.types import Grows, Pressure

WRITE_BYTES = 256 * 1024  # a container writes this much at a time
PULL_AGAIN_SECONDS = 0.05  # an image that does not fit is pulled again, as the kubelet does, but sooner
END_SECONDS = 5.0


class EmbeddedGrowers:
    """Starts the pressures of one embedded node. What they hold open they hold until `close`."""

    def __init__(self, node: EmbeddedNode):
        self._node = node
        self._programs: list[_Program] = []

    def __call__(self, pressure: Pressure, number: int) -> Grower:
        """Starts the `number`th pressure."""
        population = self._node.population
        match pressure.grows:
            case Grows.BYTES | Grows.INODES:
                return self._program(pressure, os.path.join(self._node.disk(pressure.where), "grown", str(number)))
            case Grows.LOG:
                return self._program(pressure, population.log_files[pressure.pod])
            case Grows.WRITABLE:
                container = population.running[pressure.pod]
                return _Thread(pressure, lambda most: self._node.runtime.write_to_container(container, most))
            case Grows.PULL:
                return _Thread(pressure, self._pulls(pressure))

    def close(self) -> None:
        """Ends what still writes, and closes every file. May come more than once."""
        for program in self._programs:
            program.end()

    def _program(self, pressure: Pressure, path: str) -> _Program:
        program = _Program(pressure, path)
        self._programs.append(program)
        return program

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


class _Program:
    """Runs `fill_program.py` as a process of its own. What it holds open it holds until `end`."""

    def __init__(self, pressure: Pressure, path: str):
        self._path = path
        self._written: int | None = None
        kind = "inodes" if pressure.counts_inodes else "bytes"
        amount = str(sys.maxsize) if pressure.amount is None else str(pressure.amount)
        arguments = [
            path,
            kind,
            str(pressure.rate),
            "full" if pressure.until_full else amount,
            str(pressure.file_bytes) if kind == "inodes" else str(pressure.file),
        ]
        program = os.path.join(os.path.dirname(__file__), "fill_program.py")
        # A session of its own: Ctrl-C on the terminal reaches the drill only, which then ends it.
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", program, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )

    @property
    def running(self) -> bool:
        return self._written is None and not self._has_said(0.0)

    def stop(self) -> int:
        if self._written is None:
            self._process.terminate()
            if not self._has_said(END_SECONDS):
                self._process.kill()
            assert self._process.stdout is not None
            self._written = int(self._process.stdout.readline() or 0)
        return self._written

    def end(self) -> None:
        """Ends the process, which closes its file."""
        self.stop()
        try:
            self._process.communicate(timeout=END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()

    def free(self) -> None:
        self.end()
        if os.path.isdir(self._path):
            shutil.rmtree(self._path)
        elif os.path.exists(self._path):
            os.unlink(self._path)

    def _has_said(self, seconds: float) -> bool:
        """Whether it has said how much it wrote, or has ended, within this time."""
        assert self._process.stdout is not None
        return bool(select.select([self._process.stdout], [], [], seconds)[0])


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
