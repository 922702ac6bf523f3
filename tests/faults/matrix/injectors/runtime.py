"""Faults of single CRI methods, by the failpoints of the embedded runtime; of the runtime's
socket as a whole; and of the kubelet's own list of pods, by HTTP and at its socket.
"""

from __future__ import annotations

import os
import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import grpc

from tests.faults.matrix.injectors.injector import Injector
from tests.faults.matrix.table import Fault
from tests.nodes.distortions import Distort, Distortion
from tests.nodes.faults import ActThenFail, Cut, Delay, Fail, Failpoint, Hang, Pretend
from tests.pods_wire import pods_answer
from tests.ports import free_port
from tests.sockets.kubelet_server import FOREVER_SECONDS, KubeletServer, answer, dripping, pod_list
from tests.sockets.pods_api_server import PodsAPIServer

if TYPE_CHECKING:
    from tests.faults.matrix.bench import Bench

SLOW_SECONDS = 0.3  # of an answer that comes in time
DRIP_SECONDS = 0.05
BEYOND_RELIEF_BYTES = 14 << 20  # more than all unused images have

FAILPOINTS: dict[str, Failpoint] = {
    Fault.ABSENT_AT_START: Fail(grpc.StatusCode.UNIMPLEMENTED, "not there yet"),
    Fault.ABSENT: Fail(grpc.StatusCode.UNAVAILABLE, "not there"),
    Fault.HANGS: Hang(),
    Fault.SLOW: Delay(SLOW_SECONDS),
    Fault.COMES_BACK: Hang(),
    "pretend": Pretend(),
    "cut": Cut(),
    "acts and fails": ActThenFail(grpc.StatusCode.DEADLINE_EXCEEDED),
    "hangs once": Hang(times=1),
}
"""By fault, or by how a row says that its method fails; another word is a distortion."""


class Method(Injector):
    """One method of the runtime; the resource is its name."""

    def begin(self) -> None:
        """From now on calls of the method fail. One that is asked once for each connection: after a
        restart."""
        failpoints, how = self.bench.node.failpoints, self.row.how or self.fault
        self._asked_before = failpoints.calls[self.row.resource]
        point = FAILPOINTS[how] if how in FAILPOINTS else Distort(Distortion(how))
        failpoints[self.row.resource] = point
        self.undo.callback(failpoints.clear)
        if self.row.resource in ("Version", "Status"):
            self.bench.node.server.stop()
            self.bench.node.server.start()

    def problems(self) -> list[str]:
        """The method was asked under the fault: else the row says nothing."""
        asked = self.bench.node.failpoints.calls[self.row.resource] > self._asked_before
        return [] if asked else [f"{self.row.resource} was never asked"]


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
        kubelet = KubeletServer(answer(pod_list(*bench.node.pods())))
        self.at_last.callback(kubelet.close)
        self.fields = {"extent": "all", "kubeletEndpoint": kubelet.url}
        bench.pressure.unknown_containers = True


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
    """The socket of the runtime: gone with the runtime, not accepting, or speaking something
    else."""

    def begin(self) -> None:
        """The runtime stops; what is in its place depends on the fault. It is back at the end, with
        everything that it had."""
        server = self.bench.node.server
        server.stop()
        self.undo.callback(server.start)
        if self.fault in (Fault.ABSENT, Fault.ABSENT_AT_START):
            return
        with suppress(FileNotFoundError):
            os.unlink(server.socket_path)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(server.socket_path)
        os.chmod(server.socket_path, 0o600)
        listener.listen(128)
        self.undo.callback(os.unlink, server.socket_path)
        self.undo.callback(listener.close)
        if self.fault is Fault.WRONG:
            impostor = threading.Thread(target=self._misspeak, args=(listener,), daemon=True)
            impostor.start()
            self.undo.callback(impostor.join)
            self.undo.callback(listener.shutdown, socket.SHUT_RDWR)

    def _misspeak(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                with client, suppress(OSError):
                    client.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")


class KubeletAPI(Injector):
    """A kubelet that knows the live pods of the node; `kubeletEndpoint` names it."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        self._port = free_port()
        self._whole = answer(pod_list(*bench.node.pods()))
        self._serve()
        self.fields = {"kubeletEndpoint": f"http://127.0.0.1:{self._port}"}

    def _serve(self) -> None:
        self._server = KubeletServer(self._whole, port=self._port)
        self.at_last.callback(self._server.close)

    def begin(self) -> None:
        """Nobody listens; it says nothing, is late, or lists other pods;
        `dripping`: a byte now and then.
        """
        match self.fault:
            case Fault.ABSENT_AT_START | Fault.ABSENT:
                self.at_last.close()
                self.undo.callback(self._serve)
                return
            case Fault.HANGS | Fault.COMES_BACK:
                script: list[bytes | float] = [FOREVER_SECONDS]
            case Fault.SLOW if self.row.variant == "dripping":
                script = list(dripping(self._whole, DRIP_SECONDS))
            case Fault.SLOW:
                script = [SLOW_SECONDS, self._whole]
            case _ if self.row.variant == "empty":
                script = [answer(pod_list())]
            case _:
                script = [answer(b'{"kind": "PodList", "items": [' + b"[" * 5000)]
        self._server.script = script
        self.undo.callback(setattr, self._server, "script", [self._whole])


class KubeletSocket(Injector):
    """A kubelet that serves the live pods of the node at its own socket;
    `kubeletEndpoint` names it.
    """

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        self._root = bench.directory / "k"  # the path of a socket is short
        self._whole = pods_answer(*bench.node.pods())
        self._serve()
        self.fields = {"kubeletEndpoint": f"unix://{self._root}/pods-api/pods-api.sock"}

    def _serve(self) -> None:
        self._server = self.at_last.enter_context(PodsAPIServer(self._root, self._whole))

    def begin(self) -> None:
        """Nobody listens; it says nothing, is late, or lists other pods."""
        server = self._server
        match self.fault:
            case Fault.ABSENT_AT_START | Fault.ABSENT:
                self.at_last.close()
                self.undo.callback(self._serve)
            case Fault.HANGS | Fault.COMES_BACK:
                server.answer = None
            case Fault.SLOW:
                server.delay_seconds = SLOW_SECONDS
            case _:
                empty = self.row.variant == "empty"
                server.answer = pods_answer() if empty else self._whole[:-1]
        self.undo.callback(setattr, server, "answer", self._whole)
