"""What all nodes of the model share, as it takes long to make: a small filesystem, a socket, a kubelet's endpoint.

One node after the other uses it, each with directories of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import grpc

from eviction.drill.runtime.faults import ActThenFail, Cut, Failpoint
from eviction.drill.runtime.runtime import EmbeddedRuntime
from eviction.drill.runtime.server import METHODS, EmbeddedServer, Failpoints, Method
from tests.model.bounded import Bounded
from tests.model.truth import TrueRuntime
from tests.sockets.mounts import mounted_tmpfs, unmount
from tests.thread_limit import ThreadStarts

MIB = 1 << 20


class ModelServer(EmbeddedServer):
    """An embedded server whose threads are all there before the first call, so that only those of reclaimd can fail to
    start; and whose runtime sees each request."""

    def start(self) -> None:
        """Starts to listen, with every thread."""
        listens = self._serving is not None
        super().start()
        if self._serving is not None and not listens:
            executor = self._serving[1]
            threads = executor._max_workers
            all_there = threading.Barrier(threads + 1)
            for _ in range(threads):
                executor.submit(all_there.wait)
            all_there.wait()

    def _handler(self, method: Method) -> grpc.RpcMethodHandler[Any, Any]:
        def function(runtime: EmbeddedRuntime, request: Any) -> Any:
            if not isinstance(runtime, TrueRuntime):
                return method.function(runtime, request)
            return runtime.answer(method.name, request, lambda: method.function(runtime, request))

        handler = super()._handler(method._replace(function=function))

        def noting(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
            if isinstance(self.runtime, TrueRuntime):
                self.runtime.asked(request)
            assert handler.unary_stream is not None
            return handler.unary_stream(request, context)

        return grpc.unary_stream_rpc_method_handler(noting, handler.request_deserializer, handler.response_serializer)


class Interruptions(Failpoints):
    """Failpoints that count each call for the ledger, and first run a callback in the middle of a pass.

    `before_call`: called with the number of the call, 1 for the first of all. `triggered`: the faults that were
    applied to a call since the list was last cleared.
    """

    def __init__(self, runtime: TrueRuntime, now: Callable[[], float]) -> None:
        super().__init__(frozenset(method.name for method in METHODS))
        self._runtime = runtime
        self._now = now
        self._one = threading.Lock()
        self.before_call: Callable[[int], None] = lambda _: None
        self.triggered: list[tuple[str, Failpoint]] = []

    def apply(self, method: str, act: Callable[[], Any], empty: Any, distort: Callable[[Any, Any], Any]) -> Any:
        """Runs `before_call`, then the call under the fault that applies to it, if any."""
        runtime = self._runtime
        if runtime.is_about_an_ended_call:  # it belongs to no pass, and comes at no certain moment
            return act()
        with self._one:
            runtime.calls += 1
            number = runtime.calls
            runtime.arrived = self._now()
            with runtime.as_the_kubelet():
                self.before_call(number)

        def watched() -> Any:
            runtime.asking(method)
            try:
                return act()
            finally:
                runtime.asking("")
                if not runtime.is_failing:
                    runtime.answered_calls[method] = max(runtime.answered_calls.get(method, 0), number)
                    runtime.answered_at[method] = self._now()

        return super().apply(method, watched, empty, distort)

    def _arrive(self, method: str) -> Any:
        armed = super()._arrive(method)
        self._runtime.failing(failing=armed is not None and isinstance(armed.action, ActThenFail | Cut))
        if armed is not None:
            self.triggered.append((method, armed.action))
        return armed


class SharedParts:
    """A tmpfs, a CRI socket and an HTTP endpoint. `answer`: the status and the body of the kubelet's GET /pods."""

    def __init__(self, directory: Path) -> None:
        self.disk = directory / "disk"
        mounted_tmpfs(str(self.disk), 64 * MIB, 20_000)
        self.answer: Callable[[], tuple[int, bytes]] = lambda: (503, b"")
        idle = EmbeddedRuntime(str(self.disk / "idle"))
        self.server = ModelServer(idle, str(directory / "cri.sock"))
        self.server.start()
        parts = self

        class Handler(BaseHTTPRequestHandler):
            """GET /pods."""

            def do_GET(self) -> None:
                """Sends `answer`."""
                status, body = parts.answer()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Logs nothing."""

        self.thread_starts = ThreadStarts()
        self.bounded = Bounded()
        self._http = HTTPServer(("127.0.0.1", 0), Handler)
        self.kubelet_endpoint = f"http://127.0.0.1:{self._http.server_address[1]}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        self._nodes = 0

    def renew_bounded(self) -> None:
        """Another thread for passes, where one does not end."""
        self.bounded = Bounded()

    def next_directory(self) -> Path:
        """An empty directory on the filesystem, for the next node."""
        self._nodes += 1
        made = self.disk / f"n{self._nodes}"
        made.mkdir()
        return made

    def close(self) -> None:
        """Stops the servers and unmounts the filesystem."""
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()
        self.server.stop()
        unmount(str(self.disk))
