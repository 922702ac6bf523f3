"""A runtime whose images are on a filesystem of their own, apart from writable layers, as the kubelet sees one.

The kubelet takes only a CRI-O for such a runtime: the path of its socket ends in `run/crio/crio.sock`, CRI names two
mount points, and their places are asked for once more by HTTP at `/run/crio/crio.sock`
(https://github.com/google/cadvisor/blob/v0.56.2/container/crio/client.go), which no setting moves. This is that face
before a containerd: calls pass through byte by byte, and one answer gets a second mount point. All of
containerd's data is on the image filesystem; what is of containers on the other one are their logs.
"""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc

from reclaim.cri import cri_pb2
from tests.real_node.cri_client import OPTIONS
from tests.real_node.crio import Crio

INFO_SOCKET = Path("/run/crio/crio.sock")
IMAGE_FS_INFO = "/runtime.v1.ImageService/ImageFsInfo"
FOREVER_SECONDS = 1e9  # what a call without a deadline has left is more than a timeout may be
STREAMS = ("/runtime.v1.RuntimeService/GetContainerEvents",)


@contextmanager
def found_by_cadvisor(crio: Crio) -> Iterator[None]:
    """A CRI-O is there where the kubelet asks it for its places, while the `with` block lasts. FileExistsError if the
    machine has one of its own."""
    INFO_SOCKET.parent.mkdir()
    INFO_SOCKET.symlink_to(crio.socket)
    try:
        yield
    finally:
        INFO_SOCKET.unlink()
        INFO_SOCKET.parent.rmdir()


class SplitRuntime:
    """Answers at `socket` while the `with` block lasts. FileExistsError if the machine has a CRI-O of its own.

    `layers`: where writable layers are said to be, a new directory; `images`: where the images are.
    """

    def __init__(self, directory: Path, containerd: Path, layers: Path, images: Path) -> None:
        self.socket = directory / "run" / "crio" / "crio.sock"
        self.socket.parent.mkdir(parents=True)
        layers.mkdir()
        self._channel = grpc.insecure_channel(f"unix:{containerd}", options=OPTIONS)
        self._server = grpc.server(ThreadPoolExecutor(16), handlers=[_Passing(self._channel, layers)])
        self._server.add_insecure_port(f"unix:{self.socket}")
        self._info = {"storage_driver": "overlay", "storage_root": str(layers), "storage_image": str(images)}

    def __enter__(self) -> Self:
        INFO_SOCKET.parent.mkdir()
        self._http = _InfoServer(str(INFO_SOCKET), self._info)
        threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()
        self._server.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.stop(1.0).wait()
        self._channel.close()
        self._http.shutdown()
        self._http.server_close()
        INFO_SOCKET.unlink()
        INFO_SOCKET.parent.rmdir()


class _Passing(grpc.GenericRpcHandler):
    """Passes every call on; the answer to ImageFsInfo with a place of its own for writable layers."""

    def __init__(self, channel: grpc.Channel, layers: Path) -> None:
        self._channel = channel
        self._layers = str(layers)

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes]:
        """The handler of a call, whatever it is."""
        method = handler_call_details.method
        if method in STREAMS:
            stream: grpc.UnaryStreamMultiCallable[bytes, bytes] = self._channel.unary_stream(method)
            return grpc.unary_stream_rpc_method_handler(lambda request, _: stream(request))
        call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = self._channel.unary_unary(method)

        def answer(request: bytes, context: grpc.ServicerContext) -> bytes:
            try:
                left = context.time_remaining()
                body = call(request, timeout=left if left < FOREVER_SECONDS else None)
            except grpc.RpcError as error:
                context.abort(error.code(), error.details() or "")
            return self._with_layers(body) if method == IMAGE_FS_INFO else body

        return grpc.unary_unary_rpc_method_handler(answer)

    def _with_layers(self, body: bytes) -> bytes:
        info = cri_pb2.ImageFsInfoResponse.FromString(body)
        if not info.image_filesystems:
            return body
        layers = cri_pb2.FilesystemUsage()
        layers.CopyFrom(info.image_filesystems[0])
        layers.fs_id.mountpoint = self._layers
        del info.container_filesystems[:]
        info.container_filesystems.append(layers)
        return info.SerializeToString()


class _InfoServer(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True

    def __init__(self, path: str, info: dict[str, str]) -> None:
        super().__init__(path, _InfoHandler)
        self.body = json.dumps(info).encode()


class _InfoHandler(BaseHTTPRequestHandler):
    server: _InfoServer

    def do_GET(self) -> None:
        """`/info`; of no container anything is known."""
        known = self.path == "/info"
        body = self.server.body if known else b""
        self.send_response(200 if known else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Says nothing; a unix socket has no client address to log."""
