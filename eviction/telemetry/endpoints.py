"""The daemon's endpoints: the HTTP pages for metrics and health, and the notifications to systemd.

Decides and delays nothing. An address that cannot be bound is a warning. prometheus-client is imported only where
metrics are switched on.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from eviction.configuration.effective import Configuration
from eviction.configuration.text_forms import parse_address
from eviction.decision.thresholds import thresholds_met
from eviction.listener import Listener
from eviction.node.hold_off import Holds
from eviction.node.node import Node
from eviction.record import Pass
from eviction.reporting.conditions import NOTHING_IS_REMOVED, conditions_in_words
from eviction.reporting.log import Log
from eviction.reporting.status import NodeStatus
from eviction.telemetry.http_server import CannotListen, HttpServer, Page, livez, readyz
from eviction.telemetry.systemd import Notifier
from eviction.types import Decision
from signals.types import SignalObservations

if TYPE_CHECKING:
    from eviction.telemetry.metrics import Metrics


class DaemonEndpoints(Listener):
    """Serves the pages, and tells systemd what is observed and done.

    `status` and `why_not_alive` are asked from any thread: for the metrics, and why the daemon should be started anew.
    `history_counts`: records of the history that were written, and that were dropped.
    """

    def __init__(
        self,
        node: Node,
        hold_off: Holds,
        log: Log,
        notifier: Notifier,
        status: Callable[[], NodeStatus],
        why_not_alive: Callable[[], str | None],
        history_counts: Callable[[], tuple[int, int]],
    ):
        self._node = node
        self._hold_off = hold_off
        self._log = log
        self._notifier = notifier
        self._status = status
        self._why_not_alive = why_not_alive
        self._history_counts = history_counts
        self._ready = False
        self._conditions, self._last = "", "watching"
        self._metrics: Metrics | None = None
        self._server: HttpServer | None = None

    def start(self, metrics_address: str, listening: socket.socket | None = None) -> None:
        """Serves the pages if an address is given; on the socket `listening` if systemd has opened it."""
        address = parse_address(metrics_address)
        if address is None:
            return
        from eviction.telemetry.metrics import Metrics

        node, held_off = self._node, self._hold_off.why
        metrics = Metrics(self._status, held_off, node.functions, lambda: self._log.dropped, self._history_counts)
        pages: dict[str, Callable[[], Page]] = {
            "/metrics": metrics.page,
            "/livez": lambda: livez(self._why_not_alive()),
            "/readyz": lambda: readyz(located=node.summary.paths.imagefs is not None, held_off=held_off()),
        }
        server = HttpServer(address, pages)
        try:
            server.start(listening)
        except CannotListen as error:
            self._log.warning(f"no metrics: {error}")
            return
        self._log.info(f"metrics and health are served on {server.address}", address=server.address)
        self._server, self._metrics = server, metrics
        node.listeners.add(metrics)

    def observed(self, observations: SignalObservations, decision: Decision) -> None:
        """Feeds systemd's watchdog, unless a pass is stuck, and tells it the conditions; after the first observation
        the service is ready."""
        known = self._node.responder.state.config.kubelets is not None
        below = thresholds_met(decision.thresholds_met, observations.signals, enforce_min_reclaim=False)
        self._conditions = conditions_in_words(decision.conditions, known, below=bool(below))
        if not self._ready:
            self._ready = True
            self._notifier.ready(self._line())
        self._notifier.status(self._line())
        if self._why_not_alive() is None:
            self._notifier.keep_alive(self._node.clock.monotonic())

    def on_watch_event(self) -> None:
        """Counts an observation that inotify asked for."""
        if self._metrics is not None:
            self._metrics.count_watch_event()

    def passed(self, record: Pass) -> None:
        """Shows the pass as the status of the service."""
        self._last = f"last pass {record.result}: {record.reason}"
        self._notifier.status(self._line())

    def _line(self) -> str:
        """What `systemctl status` shows. No amounts and times: each change of it is sent."""
        return "; ".join([self._conditions, *[NOTHING_IS_REMOVED] * self._node.dry_run, self._last])

    def stop(self) -> None:
        """Stops serving the pages."""
        if self._server is not None:
            self._server.stop()


def within_watchdog(configuration: Configuration, notifier: Notifier) -> Configuration:
    """The configuration with the polling interval limited so that systemd's watchdog is fed in time."""
    ceiling = notifier.longest_sleep(configuration.poll_ceiling_seconds)
    floor = min(configuration.poll_floor_seconds, ceiling)
    return configuration.model_copy(update={"poll_ceiling_seconds": ceiling, "poll_floor_seconds": floor})
