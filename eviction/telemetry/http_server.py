"""HTTP server for `/metrics`, `/livez` and `/readyz`: for Prometheus and for probes.

All clients are served on one thread without waiting for any of them (`eviction.serving.clients`, which has the
limits); a request has at most 8 KiB, and there is one on a connection. It creates no file and looks up no name. If the
port cannot be bound, or the thread cannot be started, the daemon logs a warning and works without it.

Only GET and HEAD of known paths are answered. Each page is made by a function on that thread, which must not wait for
anything; once for all who ask for it at the same moment, so that many scrapes hold up no probe.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus

from eviction.serving.clients import BACKLOG, Client, Clients
from eviction.types import EvictionError

LARGEST_REQUEST_BYTES = 8192

PLAIN = "text/plain; charset=utf-8"


class CannotListen(EvictionError):
    """The address cannot be served. The message names it and says why."""


@dataclass(frozen=True, slots=True)
class Page:
    """A response: status, body, type of the body."""

    status: int
    body: bytes
    content_type: str = PLAIN


def livez(why_not: str | None) -> Page:
    """Whether the daemon works as it should. `why_not`: the sentence if it does not, None if it does."""
    return Page(200, b"ok\n") if why_not is None else Page(503, f"{why_not}\n".encode())


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
        self._server: socket.socket | None = None
        self._clients: Clients | None = None

    @property
    def address(self) -> str:
        """The address it listens on, with the port that the kernel assigned; before the start the configured one."""
        host, port = self._server.getsockname()[:2] if self._server is not None else self._address
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def start(self, listening: socket.socket | None = None) -> None:
        """Binds and serves, or serves on `listening`, a socket that listens already. Raises CannotListen."""
        server = listening
        try:
            if server is None:
                server = socket.socket(socket.AF_INET6 if ":" in self._address[0] else socket.AF_INET)
                server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                server.bind(self._address)
                server.listen(BACKLOG)
            too_late = _response(b"GET", Page(408, b"no whole request has come in time\n"))
            clients = Clients(server, _is_whole, LARGEST_REQUEST_BYTES, self._answer, too_late)
            clients.start("health")
        except OSError as error:
            if server is not None:
                server.close()
            raise CannotListen(f"{self.address}: {error.strerror or error}") from None
        self._server, self._clients = server, clients

    def stop(self) -> None:
        """Stops listening. May be called without `start`."""
        if self._clients is not None:
            self._clients.stop()
            self._clients = self._server = None

    def _answer(self, clients: Sequence[Client]) -> None:
        made: dict[str, Page] = {}
        responses: dict[tuple[bytes, Page], bytes] = {}
        for client in clients:
            if not client.request:  # it has hung up without a word
                continue
            method, page = asked = self._page(bytes(client.request), made)
            if asked not in responses:
                responses[asked] = _response(method, page)
            client.reply(responses[asked])

    def _page(self, head: bytes, made: dict[str, Page]) -> tuple[bytes, Page]:
        """The method, and the page that answers the request. `made`: the pages made for this moment, by path."""
        words = head.split(b"\r\n", 1)[0].split(b"\n", 1)[0].split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            return b"", Page(400, b"not a request of HTTP/1.1\n")
        method, target = words[0], words[1].split(b"?", 1)[0].decode("ascii", "replace")
        if method not in (b"GET", b"HEAD"):
            return method, Page(405, b"only GET and HEAD\n")
        if target not in self._pages:
            return method, Page(404, f"there are {', '.join(self._pages)}\n".encode())
        if target not in made:
            made[target] = _made(self._pages[target])
        return method, made[target]


def _made(make: Callable[[], Page]) -> Page:
    try:
        return make()
    except Exception as error:  # noqa: BLE001 # a defect in a page must not end the daemon
        return Page(500, f"{type(error).__name__}\n".encode())


def _response(method: bytes, page: Page) -> bytes:
    """The page as bytes; none of its body for HEAD."""
    lines = [
        f"HTTP/1.1 {page.status} {HTTPStatus(page.status).phrase}",
        f"Content-Type: {page.content_type}",
        f"Content-Length: {len(page.body)}",
        "Cache-Control: no-store",
        "Connection: close",
        *(["Allow: GET, HEAD"] if page.status == 405 else []),
    ]
    return "\r\n".join([*lines, "", ""]).encode() + (b"" if method == b"HEAD" else page.body)


def _is_whole(request: bytearray) -> bool:
    """Whether the head of a request has arrived."""
    return b"\r\n\r\n" in request or b"\n\n" in request
