"""Pages over HTTP/1.1, for scrapes and probes.

All clients are served on one thread, without waiting for any of them (`eviction.surface.clients`
has the limits). A request has at most 8 KiB; there is one per connection.
"""

import re
import socket
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import NamedTuple

from eviction.surface.clients import BACKLOG, Client, Clients
from eviction.types import EvictionError
from signals.quantity import reason_of

LARGEST_REQUEST_BYTES = 8192

PLAIN = "text/plain; charset=utf-8"

_ASKED = re.compile(r"([^ \n]*) ([^ ?\n]*)[^ \n]* HTTP/1\.[^ \n]*$", re.MULTILINE)
_NEGOTIATED = re.compile(r"^(accept(?:-encoding)?):[ \t]*([^\r\n]*)", re.IGNORECASE | re.MULTILINE)


class CannotListen(EvictionError):
    """The address cannot be served. The message names it and says why."""


class Page(NamedTuple):
    """A response."""

    status: int
    body: bytes
    content_type: str = PLAIN
    header: str = ""
    """Another one, as a line."""


Headers = Mapping[str, str]  # `accept` and `accept-encoding`, as far as there are any
Pages = Mapping[str, Callable[[Headers], Page]]  # by path


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
            self._clients = Clients(
                "health",
                server,
                (b"\r\n\r\n", b"\n\n"),  # of the head of a request
                largest_request_bytes=LARGEST_REQUEST_BYTES,
                answer=self._answer,
                too_late=_response("GET", Page(408, b"the request did not arrive in time\n")),
            )
        except OSError as error:
            raise CannotListen(f"{_shown(*address)}: {reason_of(error)}") from None

    def stop(self) -> None:
        """Stops listening."""
        self._clients.stop()

    def _answer(self, clients: Sequence[Client]) -> None:
        # by method, path and headers: the pages of this moment
        responses: dict[tuple[object, ...], bytes] = {}
        for client in clients:
            if not client.request:  # it has hung up without a request
                continue
            text = bytes(client.request).decode("latin-1")
            asked = found.groups() if (found := _ASKED.match(text)) else ("", "")
            headers = {name.lower(): value for name, value in _NEGOTIATED.findall(text)}
            key = *asked, *sorted(headers.items())
            if key not in responses:
                responses[key] = _response(asked[0], self._page(asked[0], asked[1], headers))
            client.reply(responses[key])

    def _page(self, method: str, path: str, headers: Headers) -> Page:
        if not method:
            return Page(400, b"not an HTTP/1.1 request\n")
        if method not in ("GET", "HEAD"):
            return Page(405, b"only GET and HEAD\n", header="Allow: GET, HEAD")
        if path not in self._pages:
            return Page(404, f"the pages are {', '.join(self._pages)}\n".encode())
        try:
            return self._pages[path](headers)
        except Exception as error:  # noqa: BLE001 # a defect in a page must not end the daemon
            return Page(500, f"{type(error).__name__}\n".encode())


def _response(method: str, page: Page) -> bytes:
    """The page as bytes, without its body for HEAD."""
    lines = [
        f"HTTP/1.1 {page.status} {HTTPStatus(page.status).phrase}",
        f"Content-Type: {page.content_type}",
        f"Content-Length: {len(page.body)}",
        "Cache-Control: no-store",
        "Connection: close",
        *filter(None, [page.header]),
    ]
    return "\r\n".join([*lines, "", ""]).encode() + (b"" if method == "HEAD" else page.body)


def _shown(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
