"""HTTP server for `/metrics`, `/livez` and `/readyz`: for Prometheus and for probes.

Limits: 8 clients at a time (a further connection is closed), 8 KiB and 2 s for a request, 2 s for the response, one
request a connection. It creates no file and looks up no name. If the port cannot be bound, the daemon logs a warning
and works without it.

Only GET and HEAD of known paths are answered; each page is made by a function when it is requested.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from eviction.types import EvictionError

CLIENTS = 8
LARGEST_REQUEST_BYTES = 8192
TIMEOUT_SECONDS = 2.0
# Observing three filesystems that all hang takes 6 s; a loop that is 2 s later than that hangs itself.
LARGEST_DELAY_SECONDS = 8.0

PLAIN = "text/plain; charset=utf-8"
STATUS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


class CannotListen(EvictionError):
    """The address cannot be bound. The message names it and says why."""


@dataclass(frozen=True, slots=True)
class Page:
    """A response: status, body, type of the body."""

    status: int
    body: bytes
    content_type: str = PLAIN


def livez(late_seconds: float) -> Page:
    """Whether the loop observes the disks in time. `late_seconds`: how long the next observation is overdue."""
    if late_seconds <= LARGEST_DELAY_SECONDS:
        return Page(200, b"ok\n")
    return Page(503, f"the next observation is {late_seconds:.1f} s late\n".encode())


def readyz(*, located: bool, held_off: str | None) -> Page:
    """Whether pressure would be relieved now: the runtime has reported its image filesystem; nothing is held off."""
    if not located:
        return Page(503, b"the container runtime has not said where its images are\n")
    if held_off is not None:
        return Page(503, f"held off: {held_off}\n".encode())
    return Page(200, b"ok\n")


class HttpServer:
    """Serves the pages of a table: path -> function that makes the page."""

    def __init__(self, address: tuple[str, int], pages: Mapping[str, Callable[[], Page]]):
        self._address = address
        self._pages = pages
        self._socket: socket.socket | None = None
        self._slots = threading.BoundedSemaphore(CLIENTS)

    @property
    def address(self) -> str:
        """The address it listens on, with the port that the kernel assigned; before the start the configured one."""
        host, port = self._socket.getsockname()[:2] if self._socket is not None else self._address
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def start(self, listening: socket.socket | None = None) -> None:
        """Binds and serves, or serves on `listening`, a socket that listens already. Raises CannotListen."""
        self._socket = listening or self._bound()
        threading.Thread(target=self._serve, args=(self._socket,), name="health", daemon=True).start()

    def _bound(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self._address[0] else socket.AF_INET
        server = socket.socket(family, socket.SOCK_STREAM)
        try:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind(self._address)
            server.listen(CLIENTS)
        except OSError as error:
            server.close()
            raise CannotListen(f"{self.address}: {error.strerror or error}") from None
        return server

    def stop(self) -> None:
        """Stops listening. May be called without `start`."""
        if self._socket is not None:
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the accept
            self._socket.close()
            self._socket = None

    def _serve(self, server: socket.socket) -> None:
        while True:
            try:
                client, _ = server.accept()
            except OSError:
                if server.fileno() < 0 or self._socket is None:
                    return
                time.sleep(0.05)  # for example no descriptor is left: that passes, so wait a moment
                continue
            if not self._slots.acquire(blocking=False):
                client.close()
                continue
            threading.Thread(target=self._serve_client, args=(client,), name="health client", daemon=True).start()

    def _serve_client(self, client: socket.socket) -> None:
        try:
            with client:
                head = _head(client, time.monotonic() + TIMEOUT_SECONDS)
                if head:
                    client.settimeout(TIMEOUT_SECONDS)
                    client.sendall(self._answer(head))
                    client.shutdown(socket.SHUT_WR)
        except OSError:  # the client is slow, or gone
            pass
        finally:
            self._slots.release()

    def _answer(self, head: bytes) -> bytes:
        method, page = self._page(head)
        lines = [
            f"HTTP/1.1 {page.status} {STATUS[page.status]}",
            f"Content-Type: {page.content_type}",
            f"Content-Length: {len(page.body)}",
            "Cache-Control: no-store",
            "Connection: close",
            *(["Allow: GET, HEAD"] if page.status == 405 else []),
        ]
        return "\r\n".join([*lines, "", ""]).encode() + (b"" if method == b"HEAD" else page.body)

    def _page(self, head: bytes) -> tuple[bytes, Page]:
        words = head.split(b"\r\n", 1)[0].split(b"\n", 1)[0].split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            return b"", Page(400, b"not a request of HTTP/1.1\n")
        method, target = words[0], words[1].split(b"?", 1)[0].decode("ascii", "replace")
        if method not in (b"GET", b"HEAD"):
            return method, Page(405, b"only GET and HEAD\n")
        make = self._pages.get(target)
        if make is None:
            return method, Page(404, f"there are {', '.join(self._pages)}\n".encode())
        try:
            return method, make()
        except Exception as error:  # noqa: BLE001 # a defect in a page must not end the daemon
            return method, Page(500, f"{type(error).__name__}\n".encode())


def _head(client: socket.socket, deadline: float) -> bytes:
    """The head of a request, at most 8 KiB; empty for none. Raises OSError if it has not arrived by the deadline."""
    data = bytearray()
    while b"\r\n\r\n" not in data and b"\n\n" not in data and len(data) < LARGEST_REQUEST_BYTES:
        client.settimeout(max(deadline - time.monotonic(), 0.001))
        part = client.recv(LARGEST_REQUEST_BYTES - len(data))
        if not part:
            break
        data += part
    return bytes(data)
