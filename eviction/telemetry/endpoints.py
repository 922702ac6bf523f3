"""The daemon's endpoints, `/metrics`, `/livez` and `/readyz`, for Prometheus and for probes, and its notifications to
systemd.

All clients are served on one thread, without waiting for any of them (`eviction.serving.clients` has the limits). A
request has at most 8 KiB; there is one per connection. No file is created and no name is looked up. If the port cannot
be bound, or the thread cannot be started, the daemon logs a warning and works without the endpoints.

Only GET and HEAD of known paths are answered. Each page is made by a function on that thread, which must not wait for
anything, and is made once for all clients that ask for it at the same moment, so that many scrapes do not delay a
probe. prometheus-client is imported only if metrics are on.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING

from eviction.configuration.effective import Configuration
from eviction.decision.thresholds import thresholds_met
from eviction.listener import Listener
from eviction.node.node import Node
from eviction.record import Pass
from eviction.reporting.log import Log
from eviction.reporting.status import NodeStatus
from eviction.reporting.tables import NOTHING_IS_REMOVED, conditions_in_words
from eviction.serving.clients import BACKLOG, Client, Clients
from eviction.telemetry.systemd import Notifier
from eviction.types import Decision, EvictionError
from signals.types import SignalObservations

if TYPE_CHECKING:
    from eviction.telemetry.metrics import Metrics

LARGEST_REQUEST_BYTES = 8192

PLAIN = "text/plain; charset=utf-8"


class CannotListen(EvictionError):
    """The address cannot be served. The message names it and says why."""


@dataclass(frozen=True, slots=True)
class Page:
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

    def __init__(self, address: tuple[str, int], pages: Pages, listening: socket.socket | None = None):
        self._pages = pages
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        both = family is socket.AF_INET6 and socket.has_dualstack_ipv6()
        try:
            server = listening or socket.create_server(address, family=family, backlog=BACKLOG, dualstack_ipv6=both)
            self.address = _shown(*server.getsockname()[:2])
            too_late = _response(b"GET", Page(408, b"the request did not arrive in time\n"))
            self._clients = Clients("health", server, _is_whole, LARGEST_REQUEST_BYTES, self._answer, too_late)
        except OSError as error:
            raise CannotListen(f"{_shown(*address)}: {error.strerror or error}") from None

    def stop(self) -> None:
        """Stops listening."""
        self._clients.stop()

    def _answer(self, clients: Sequence[Client]) -> None:
        responses: dict[tuple[bytes, str], bytes] = {}  # by method and path: the pages of this moment
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


def _is_whole(request: bytearray) -> bool:
    """Whether the head of a request has arrived."""
    return b"\r\n\r\n" in request or b"\n\n" in request


@dataclass(eq=False)
class DaemonEndpoints(Listener):
    """Serves the pages, and notifies systemd of what is observed and done.

    `status`: for the metrics. `why_not_alive`: why the daemon should be restarted, or None. `history_counts`: how many
    records of the history were written, and how many were dropped. All three are called from any thread.
    """

    node: Node
    log: Log
    notifier: Notifier
    status: Callable[[], NodeStatus]
    why_not_alive: Callable[[], str | None]
    history_counts: Callable[[], tuple[int, int]]
    _conditions: str = field(default="", init=False)
    _last: str = field(default="watching", init=False)
    _metrics: Metrics | None = field(default=None, init=False)
    _server: HttpServer | None = field(default=None, init=False)

    def start(self, address: tuple[str, int] | None, listening: socket.socket | None = None) -> None:
        """Serves the pages if an address is given, on the socket `listening` if systemd has opened one."""
        if address is None:
            return
        from eviction.telemetry.metrics import Metrics

        metrics = Metrics(self.status, self.node.functions, lambda: self.log.dropped, self.history_counts)
        pages: Pages = {
            "/metrics": metrics.page,
            "/livez": lambda: health(self.why_not_alive()),
            "/readyz": lambda: health(self._why_not_ready()),
        }
        try:
            server = HttpServer(address, pages, listening)
        except CannotListen as error:
            self.log.warning(f"no metrics: {error}")
            return
        self.log.info(f"metrics and health are served on {server.address}", address=server.address)
        self._server, self._metrics = server, metrics
        self.node.listeners.add(metrics)

    def _why_not_ready(self) -> str | None:
        """Why pressure would not be relieved now."""
        if self.node.summary.paths.imagefs is None:
            return "the container runtime has not said where its images are"
        held_off = self.node.held_off()
        return None if held_off is None else f"held off: {held_off}"

    def observed(self, observations: SignalObservations, decision: Decision) -> None:
        """Reports the conditions to systemd. The service is ready after the first observation."""
        known = self.node.world.manager.config.kubelets is not None
        below = thresholds_met(decision.thresholds_met, observations.signals, enforce_min_reclaim=False)
        first = not self._conditions
        self._conditions = conditions_in_words(decision.conditions, known, below=bool(below))
        if first:
            self.notifier.ready()
        self.notifier.status(self._line())

    def keep_alive(self) -> None:
        """Feeds systemd's watchdog after a look, unless a pass is stuck. No listener stands before it: one that hangs
        must not have the daemon killed."""
        if self.why_not_alive() is None:
            self.notifier.keep_alive(self.node.clock.monotonic())

    def on_watch_event(self) -> None:
        """Counts an observation that inotify asked for."""
        if self._metrics is not None:
            self._metrics.count_watch_event()

    def passed(self, record: Pass) -> None:
        """Shows the pass as the status of the service."""
        self._last = f"last pass {record.result}: {record.reason}"
        self.notifier.status(self._line())

    def _line(self) -> str:
        """What `systemctl status` shows; without amounts and times, as each change is sent."""
        return "; ".join([self._conditions, *[NOTHING_IS_REMOVED] * self.node.dry_run, self._last])

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop()


def within_watchdog(configuration: Configuration, notifier: Notifier) -> Configuration:
    """The configuration with the polling interval limited so that systemd's watchdog is fed in time."""
    ceiling = notifier.longest_sleep(configuration.poll_ceiling_seconds)
    floor = min(configuration.poll_floor_seconds, ceiling)
    return configuration.model_copy(update={"poll_ceiling_seconds": ceiling, "poll_floor_seconds": floor})
