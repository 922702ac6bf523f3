"""Faults of single CRI methods, by the failpoints of the embedded runtime; and of the
runtime's socket as a whole.
"""

from __future__ import annotations

import os
import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import grpc

from tests.faults.matrix.injectors.injector import Injector
from tests.faults.matrix.rows import Fault
from tests.nodes.faults import Delay, Fail, Failpoint, Hang
from tests.sockets.kubelet_server import KubeletServer, answer, pod_list

if TYPE_CHECKING:
    from tests.faults.matrix.bench import Bench

SLOW_SECONDS = 0.3
ASKED_ONCE = ("Version", "Status")  # for each connection: what the runtime is and can do
BEYOND_RELIEF_BYTES = 14 << 20  # more than all unused images have

FAILPOINTS: dict[Fault, Failpoint] = {
    Fault.ABSENT_AT_START: Fail(grpc.StatusCode.UNIMPLEMENTED, "not there yet"),
    Fault.ABSENT: Fail(grpc.StatusCode.UNAVAILABLE, "not there"),
    Fault.HANGS: Hang(),
    Fault.SLOW: Delay(SLOW_SECONDS),
    Fault.COMES_BACK: Hang(),
}
"""Unless the row has another one."""


class Method(Injector):
    """One method of the runtime; the resource is its name."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        self._asked_before = 0

    def begin(self) -> None:
        """From now on calls of the method fail.

        One that is asked once for each connection: after a restart.
        """
        self._asked_before = self.bench.node.failpoints.calls[self.row.resource]
        self.bench.node.failpoints[self.row.resource] = self.row.how or FAILPOINTS[self.fault]
        if self.row.resource in ASKED_ONCE:
            self.bench.node.server.stop()
            self.bench.node.server.start()

    def end(self) -> None:
        """They are answered; those that hang, too."""
        del self.bench.node.failpoints[self.row.resource]

    def problems(self) -> list[str]:
        """The method was asked under the fault: else the row says nothing."""
        asked = self.bench.node.failpoints.calls[self.row.resource] > self._asked_before
        return [] if asked else [f"{self.row.resource} was never asked"]

    def release(self) -> None:
        """The same."""
        self.bench.node.failpoints.clear()


class SandboxMethod(Method):
    """Asked at the end of a row. In a hurry with images that are enough a pass does not come so
    far, unless `extent: all` is configured."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        self.fields = {"extent": "all"}


class StopContainer(Method):
    """Asked only for a container whose state is not known, and only with the
    kubelet's list and `extent: all`.
    """

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        self._kubelet = KubeletServer(answer(pod_list(*bench.node.pods())))
        self.fields = {"extent": "all", "kubeletEndpoint": self._kubelet.url}
        bench.pressure.unknown_containers = True

    def release(self) -> None:
        """The same, and the kubelet's server is closed."""
        super().release()
        if self._kubelet is not None:
            self._kubelet.close()
            self._kubelet = None  # type: ignore[assignment] # closed once


class ListContainerStats(Method):
    """Asked only after a pass that was not enough, to explain it: so at first
    no removal is enough.
    """

    from_the_start = True

    def begin(self) -> None:
        """The method fails, and for a moment no removal is enough."""
        super().begin()
        self.bench.pressure.extra_bytes = BEYOND_RELIEF_BYTES
        threading.Thread(target=self._be_modest, daemon=True).start()

    def _be_modest(self) -> None:
        self.bench.node.failpoints.wait_for_calls("ListContainerStats", 1, 60.0)
        self.bench.pressure.extra_bytes = 0
        with suppress(FileNotFoundError):
            os.truncate(self.bench.node.disk / "grown", 0)


class RuntimeSocket(Injector):
    """The socket of the runtime: gone with the runtime, not accepting, speaking
    something else, slow to accept.
    """

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        self._path = bench.node.server.socket_path
        self._impostor: _Impostor | None = None

    def begin(self) -> None:
        """The runtime stops; what is in its place depends on the fault."""
        self.bench.node.server.stop()
        if self.fault in (Fault.HANGS, Fault.COMES_BACK):
            self._impostor = _Impostor(self._path, b"", accepts=False)
        elif self.fault is Fault.WRONG:
            self._impostor = _Impostor(
                self._path, b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"
            )

    def end(self) -> None:
        """The runtime is back, with everything that it had."""
        self._leave()
        self.bench.node.server.start()

    def release(self) -> None:
        """Nobody is in its place."""
        self._leave()

    def _leave(self) -> None:
        if self._impostor is not None:
            self._impostor.close()
            self._impostor = None


class _Impostor:
    """Listens on a unix socket, and sends `words` to each client, or never accepts one."""

    def __init__(self, path: str, words: bytes, *, accepts: bool = True) -> None:
        self._path = path
        self._words = words
        with suppress(FileNotFoundError):
            os.unlink(path)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        os.chmod(path, 0o600)
        self._listener.listen(128)
        self._thread = threading.Thread(
            target=self._serve if accepts else lambda: None, daemon=True
        )
        self._thread.start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                with client, suppress(OSError):
                    client.sendall(self._words)

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        with suppress(FileNotFoundError):
            os.unlink(self._path)
