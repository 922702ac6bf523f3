"""The kubelet's own list of pods, by HTTP and at its socket."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.faults.matrix.injectors.injector import Injector
from tests.faults.matrix.rows import Fault
from tests.pods_wire import pods_answer
from tests.ports import free_port
from tests.sockets.kubelet_server import FOREVER_SECONDS, KubeletServer, answer, dripping, pod_list
from tests.sockets.pods_api_server import PodsAPIServer

if TYPE_CHECKING:
    from tests.faults.matrix.bench import Bench

SLOW_SECONDS = 0.3  # of an answer that comes in time
DRIP_SECONDS = 0.05


class KubeletAPI(Injector):
    """A kubelet that knows the live pods of the node; `kubeletEndpoint` names it."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        self._port = free_port()
        self._whole = answer(pod_list(*bench.node.pods()))
        self._server: KubeletServer | None = KubeletServer(self._whole, port=self._port)
        self.fields = {"kubeletEndpoint": f"http://127.0.0.1:{self._port}"}

    def begin(self) -> None:
        """Nobody listens; it says nothing, is late, or lists other pods;
        `dripping`: a byte now and then.
        """
        assert self._server is not None
        match self.fault:
            case Fault.ABSENT_AT_START | Fault.ABSENT:
                self.release()
            case Fault.HANGS | Fault.COMES_BACK:
                self._server.script = [FOREVER_SECONDS]
            case Fault.SLOW if self.row.variant == "dripping":
                self._server.script = list(dripping(self._whole, DRIP_SECONDS))
            case Fault.SLOW:
                self._server.script = [SLOW_SECONDS, self._whole]
            case Fault.WRONG if self.row.variant == "empty":
                self._server.script = [answer(pod_list())]
            case Fault.WRONG:
                self._server.script = [answer(b'{"kind": "PodList", "items": [' + b"[" * 5000)]

    def end(self) -> None:
        """It lists the pods."""
        if self._server is None:
            self._server = KubeletServer(self._whole, port=self._port)
        self._server.script = [self._whole]

    def release(self) -> None:
        """Nobody listens."""
        if self._server is not None:
            self._server.close()
            self._server = None


class KubeletSocket(Injector):
    """A kubelet that serves the live pods of the node at its own socket;
    `kubeletEndpoint` names it.
    """

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        self._root = bench.directory / "k"  # the path of a socket is short
        self._whole = pods_answer(*bench.node.pods())
        self._server: PodsAPIServer | None = None
        self.end()
        self.fields = {"kubeletEndpoint": f"unix://{self._root}/pods-api/pods-api.sock"}

    def begin(self) -> None:
        """Nobody listens; it says nothing, is late, or lists other pods."""
        assert self._server is not None
        match self.fault:
            case Fault.ABSENT_AT_START | Fault.ABSENT:
                self.release()
            case Fault.HANGS | Fault.COMES_BACK:
                self._server.answer = None
            case Fault.SLOW:
                self._server.delay_seconds = SLOW_SECONDS
            case Fault.WRONG if self.row.variant == "empty":
                self._server.answer = pods_answer()
            case Fault.WRONG:
                self._server.answer = self._whole[:-1]

    def end(self) -> None:
        """It lists the pods."""
        if self._server is None:
            self._server = PodsAPIServer(self._root, self._whole).__enter__()
        self._server.answer = self._whole

    def release(self) -> None:
        """Nobody listens."""
        if self._server is not None:
            self._server.__exit__(None, None, None)
            self._server = None
