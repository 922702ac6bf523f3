"""Pages over HTTP/1.1, for scrapes and probes.

All clients are served on one thread, without waiting for any of them (`eviction.surface.clients`
has the limits). A request has at most 8 KiB; there is one per connection.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import NamedTuple

from eviction.surface.clients import BACKLOG, Client, Clients
from eviction.types import EvictionError

LARGEST_REQUEST_BYTES = 8192
ENDS = (b"\r\n\r\n", b"\n\n")  # of the head of a request

PLAIN = "text/plain; charset=utf-8"


class CannotListen(EvictionError):
    """The address cannot be served. The message names it and says why."""


class Page(NamedTuple):
    """A response."""

    status: int
    body: bytes
    content_type: str = PLAIN


Pages = Mapping[str, Callable[[], Page]]  # by path


def health(why_not: str | None) -> Page:
    """The page for a probe. `why_not`: why it fails, None if all is well."""
    return Page(200, b"ok\n") if why_not is None else Page(503, f"{why_not}\n".encode())


class HttpServer:
    """Serves pages on an address, or on `listening`, a socket that already
    listens. Raises CannotListen.

    `address`: what it listens on, with the port that the kernel assigned.
    """

    def __init__(
        self, address: tuple[str, int], pages: Pages, listening: socket.socket | None = None
    ):
        self._pages = pages
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        both = family is socket.AF_INET6 and socket.has_dualstack_ipv6()
        try:
            server = listening or socket.create_server(
                address, family=family, backlog=BACKLOG, dualstack_ipv6=both
            )
            self.address = _shown(*server.getsockname()[:2])
            too_late = _response(b"GET", Page(408, b"the request did not arrive in time\n"))
            self._clients = Clients(
                "health",
                server,
                ENDS,
                largest_request_bytes=LARGEST_REQUEST_BYTES,
                answer=self._answer,
                too_late=too_late,
            )
        except OSError as error:
            raise CannotListen(f"{_shown(*address)}: {error.strerror or error}") from None

    def stop(self) -> None:
        """Stops listening."""
        self._clients.stop()

    def _answer(self, clients: Sequence[Client]) -> None:
        # by method and path: the pages of this moment
        responses: dict[tuple[bytes, str], bytes] = {}
        for client in clients:
            if not client.request:  # it has hung up without a request
                continue
            words = bytes(client.request).split(b"\n", 1)[0].removesuffix(b"\r").split(b" ")
            asked = b"", ""
            if len(words) == 3 and words[2].startswith(b"HTTP/1."):
                asked = words[0], words[1].split(b"?", 1)[0].decode("ascii", "replace")
            if asked not in responses:
                responses[asked] = _response(asked[0], self._page(*asked))
            client.reply(responses[asked])

    def _page(self, method: bytes, path: str) -> Page:
        if not method:
            return Page(400, b"not an HTTP/1.1 request\n")
        if method not in (b"GET", b"HEAD"):
            return Page(405, b"only GET and HEAD\n")
        if path not in self._pages:
            return Page(404, f"the pages are {', '.join(self._pages)}\n".encode())
        try:
            return self._pages[path]()
        except Exception as error:  # noqa: BLE001 # a defect in a page must not end the daemon
            return Page(500, f"{type(error).__name__}\n".encode())


def _response(method: bytes, page: Page) -> bytes:
    """The page as bytes, without its body for HEAD."""
    lines = [
        f"HTTP/1.1 {page.status} {HTTPStatus(page.status).phrase}",
        f"Content-Type: {page.content_type}",
        f"Content-Length: {len(page.body)}",
        "Cache-Control: no-store",
        "Connection: close",
        *(["Allow: GET, HEAD"] if page.status == 405 else []),
    ]
    return "\r\n".join([*lines, "", ""]).encode() + (b"" if method == b"HEAD" else page.body)


def _shown(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
