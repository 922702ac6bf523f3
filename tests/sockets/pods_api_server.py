"""A second implementation of the kubelet's Pods API: gRPC's own server on a unix
socket, with a test's answers.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

import grpc

SERVICE = "v1alpha1.Pods"
# pkg/kubelet/apis/pods/server.go
NOT_YET = (grpc.StatusCode.FAILED_PRECONDITION, "Kubelet is initializing")
# pkg/kubelet/apis/grpc/ratelimit.go
RATE_LIMIT = (grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")


class PodsAPIServer:
    """Listens below a kubelet's root directory, where the kubelet does. `answer`: the message, or a
    status with its details, or None for none before it is closed. It comes after `delay_seconds`;
    both may be changed while it runs. `calls`: how many it got."""

    def __init__(
        self, root: Path, answer: bytes | tuple[grpc.StatusCode, str] | None, service: str = SERVICE
    ) -> None:
        self.path = root / "pods-api" / "pods-api.sock"
        self.path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
        self.answer = answer
        self.delay_seconds = 0.0
        self.calls = 0
        self._over = threading.Event()
        self._workers = ThreadPoolExecutor(8)
        self._server = grpc.server(self._workers, options=[("grpc.max_send_message_length", -1)])
        handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
            "ListPods": grpc.unary_unary_rpc_method_handler(self._list)
        }
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(service, handlers),)
        )
        self._server.add_insecure_port(f"unix:{self.path}")

    def __enter__(self) -> Self:
        self._server.start()
        self.path.chmod(0o755)  # as a kubelet's has it
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._server.stop(grace=None).wait()
        self._workers.shutdown()

    def _list(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        self.calls += 1
        self._over.wait(self.delay_seconds)
        match self.answer:
            case bytes(answer):
                return answer
            case (code, details):
                context.abort(code, details)
        self._over.wait()
        return b""
