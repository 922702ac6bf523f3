"""The node of the fault matrix, pressure that never ends, the daemon on it, and a probe that asks for
`/livez`.

The daemon is `reclaimd run` as a process of its own. Its service manager is played here: where a row
allows it, a process that ended by itself is started again after the seconds that the unit has as
RestartSec.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Self

from google.protobuf.message import Message

from reclaim.cri import cri_pb2 as pb
from reclaim.types import Kind
from tests.background import Background
from tests.faults.populated import LIVE_PODS, SMALL_BYTES, PopulatedNode
from tests.nodes.full_runtime import FullRuntime
from tests.nodes.small_node import MIB
from tests.reclaimd_process import ENVIRONMENT, PROGRAM, Process, started

# never used: no image that is pulled fills the disk within a minute, so nothing is in a hurry
SPARE_BYTES = 16 << 30
SIZE_BYTES = SPARE_BYTES + 64 * MIB
MARK_BYTES = SPARE_BYTES + 40 * MIB
TURN_SECONDS = 0.02
PAUSE_SECONDS = 0.5  # between a relief and the next pull: a row is not about speed
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


# ---- the daemon

RESTART_SECONDS = 5.0
PROBE_EVERY_SECONDS = 0.25
WAITS_FOR_A_LINE = ("sh", "-c", 'read line; exec "$0" "$@"')


class Program(Background):
    """The process, from `start` to `kill`. `stderr`: a descriptor, None for the file `log`.

    `limit`: called with each process before it runs the program. `before`: a program that starts it.
    """

    def __init__(self, configuration: str, log: Path, *, restarts: bool = False) -> None:
        super().__init__("service manager")
        self._arguments = ("run", "--config", configuration, "--logging-format", "json")
        self._restarts = restarts
        self.log = log
        self.before: tuple[str, ...] = ()
        self.stderr: int | None = None
        self.limit: Callable[[int], None] | None = None
        self.process: Process | None = None
        self.ended_by_itself: list[int] = []

    def start(self) -> None:
        """Starts it."""
        self._start()
        self.__enter__()

    def _start(self) -> None:
        with self.log.open("ab") as log:
            stderr = log.fileno() if self.stderr is None else self.stderr
            before = WAITS_FOR_A_LINE if self.limit else self.before
            if not before:
                self.process = started(*self._arguments, streams=(0, 1, stderr))
                return
            command = [*before, PROGRAM, *self._arguments]
            self.process = process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stderr=stderr, env=ENVIRONMENT
            )
        if self.limit:
            self.limit(process.pid)
        assert process.stdin is not None
        with process.stdin as line:
            line.write(b"\n")

    @property
    def pid(self) -> int:
        """The daemon's."""
        assert self.process is not None
        return self.process.pid

    @property
    def code(self) -> int | None:
        """Its exit code; None while it runs."""
        return None if self.process is None else self.process.poll()

    def _run(self) -> None:
        while not self._over.wait(0.05):
            if self.code is None:
                continue
            self.ended_by_itself.append(self.code)
            if not self._restarts or self._over.wait(RESTART_SECONDS):
                return
            self._start()

    def terminate(self, wait_seconds: float) -> int | None:
        """SIGTERM; the exit code, None if it has not ended in time."""
        self.__exit__(None, None, None)
        assert self.process is not None
        if self.code is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(wait_seconds)
        except subprocess.TimeoutExpired:
            return None

    def kill(self) -> None:
        """Leaves no process behind."""
        if self._thread.is_alive():
            self.__exit__(None, None, None)
        if self.process is not None:
            self.process.kill()
            self.process.wait(60.0)

    def last_words(self) -> str:
        """The end of its log."""
        return self.log.read_bytes()[-3000:].decode(errors="replace") if self.log.exists() else ""


class Answer(NamedTuple):
    """One answer of `/livez`: when it was asked and answered (wall seconds), and
    the status; None: no answer.
    """

    asked: float
    answered: float
    status: int | None


class Probe(Background):
    """Asks for `/livez` four times a second while its `with` block lasts, as a kubelet does."""

    def __init__(self, port: int, patience_seconds: float) -> None:
        super().__init__("probe")
        self._port = port
        self._patience = patience_seconds
        self.answers: list[Answer] = []

    def _run(self) -> None:
        while not self._over.is_set():
            asked = time.time()
            status = livez(self._port, self._patience)
            if not self._over.is_set():
                self.answers.append(Answer(asked, time.time(), status))
            self._over.wait(PROBE_EVERY_SECONDS)


def livez(port: int, patience_seconds: float) -> int | None:
    """The status of `GET /livez`; None if nobody has answered in time."""
    try:
        with socket.create_connection(("127.0.0.1", port), patience_seconds) as client:
            client.settimeout(patience_seconds)
            client.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
            words = client.recv(64).split()
    except OSError:
        return None
    return int(words[1]) if len(words) > 1 and words[1].isdigit() else None
