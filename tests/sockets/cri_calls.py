"""Calls of CRI v1 over a unix socket, directly by gRPC."""

from __future__ import annotations

from typing import Any, Self

import grpc

from reclaim.cri import cri_pb2

_IMAGE_METHODS = frozenset({"ListImages", "ImageStatus", "RemoveImage", "ImageFsInfo"})
_LARGE_BYTES = 256 << 20


class CriCalls:
    """A channel to one socket. `call` takes the method's name and the fields of its request."""

    def __init__(self, target: str) -> None:
        options = [
            ("grpc.default_authority", "localhost"),
            ("grpc.max_receive_message_length", _LARGE_BYTES),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 500),
            # else it takes over the connection to a server that was restarted
            ("grpc.use_local_subchannel_pool", 1),
        ]
        self._channel = grpc.insecure_channel(target, options=options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()

    def call(self, method: str, timeout_seconds: float = 60.0, **fields: Any) -> Any:
        """The answer of a method; its request message is made from `fields`.

        Raises grpc.RpcError.
        """
        request = getattr(cri_pb2, f"{method}Request")(**fields)
        return self._method(method)(request, timeout=timeout_seconds)

    def begin(self, method: str, timeout_seconds: float = 60.0, **fields: Any) -> Any:
        """As `call`, answered later: a grpc future."""
        request = getattr(cri_pb2, f"{method}Request")(**fields)
        return self._method(method).future(request, timeout=timeout_seconds)

    def error(
        self, method: str, timeout_seconds: float = 60.0, **fields: Any
    ) -> tuple[grpc.StatusCode, str]:
        """Status code and message of a call that must fail."""
        try:
            self.call(method, timeout_seconds, **fields)
        except grpc.RpcError as error:
            return error.code(), error.details() or ""
        raise AssertionError(f"{method} did not fail")

    def _method(self, method: str) -> Any:
        service = "ImageService" if method in _IMAGE_METHODS else "RuntimeService"
        return self._channel.unary_unary(
            f"/runtime.v1.{service}/{method}",
            request_serializer=lambda request: request.SerializeToString(),
            response_deserializer=getattr(cri_pb2, f"{method}Response").FromString,
        )


def run_container(calls: CriCalls, sandbox_id: str, name: str, image: str, **config: Any) -> str:
    """Create and start a container in a sandbox; its id."""
    container = {"metadata": {"name": name}, "image": {"image": image}, **config}
    container_id: str = calls.call(
        "CreateContainer", pod_sandbox_id=sandbox_id, config=container
    ).container_id
    calls.call("StartContainer", container_id=container_id)
    return container_id


def run_pod(calls: CriCalls, name: str, uid: str = "", **config: Any) -> str:
    """Run an empty pod sandbox; its id."""
    metadata = {"name": name, "uid": uid or f"uid-{name}", "namespace": "default"}
    sandbox_id: str = calls.call(
        "RunPodSandbox", config={"metadata": metadata, **config}
    ).pod_sandbox_id
    return sandbox_id
