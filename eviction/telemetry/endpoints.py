"""The daemon's endpoints: the HTTP pages for metrics and health, and the notifications to systemd.

Decides and delays nothing. An address that cannot be bound is a warning. prometheus-client is imported only where
metrics are switched on.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from eviction.configuration.effective import Configuration
from eviction.configuration.validation import parse_address
from eviction.decision.thresholds import thresholds_met
from eviction.listener import Listener
from eviction.node.hold_off import Holds
from eviction.node.node import Node
from eviction.record import Pass
from eviction.reporting.conditions import NOTHING_IS_REMOVED, conditions_in_words
from eviction.reporting.log import Log
from eviction.reporting.status import NodeStatus
from eviction.telemetry.http_server import CannotListen, HttpServer, livez, readyz
from eviction.telemetry.systemd import Notifier
from eviction.types import Decision
from signals.types import SignalObservations

if TYPE_CHECKING:
    from eviction.telemetry.metrics import Metrics


class DaemonEndpoints(Listener):
    """Passes observations, inotify events and reclaim passes on to metrics and systemd."""

    def __init__(
        self,
        node: Node,
        hold_off: Holds,
        log: Log,
        notifier: Notifier,
        history_counts: Callable[[], tuple[int, int]] = lambda: (0, 0),
    ):
        self._node = node
        self._hold_off = hold_off
        self._log = log
        self._notifier = notifier
        self._history_counts = history_counts
        self._ready = False
        self._conditions, self._last = "", "watching"
        self._metrics: Metrics | None = None
        self._server: HttpServer | None = None
        self._why_not_alive: Callable[[], str | None] = lambda: None

    def start(
        self,
        metrics_address: str,
        status: Callable[[], NodeStatus],
        why_not_alive: Callable[[], str | None],
        listening: socket.socket | None = None,
    ) -> None:
        """Serves the pages if an address is given; on the socket `listening` if systemd has opened it. Both functions
        are asked from any thread: for the metrics, and why the daemon should be started anew."""
        self._why_not_alive = why_not_alive
        address = parse_address(metrics_address)
        if address is None:
            return
        from eviction.telemetry.metrics import Metrics

        metrics = Metrics(
            status,
            self._hold_off.why,
            self._node.functions,
            lambda: self._log.dropped,
            self._history_counts,
        )
        server = HttpServer(
            address,
            {
                "/metrics": metrics.page,
                "/livez": lambda: livez(why_not_alive()),
                "/readyz": lambda: readyz(
                    located=self._node.summary.paths.imagefs is not None, held_off=self._hold_off.why()
                ),
            },
        )
        try:
            server.start(listening)
        except CannotListen as error:
            self._log.warning(f"no metrics: {error}")
            return
        self._log.info(f"metrics and health are served on {server.address}", address=server.address)
        self._server, self._metrics = server, metrics

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

    def called(self, call: str, seconds: float, failed: bool) -> None:
        """Counts a call of the runtime."""
        if self._metrics is not None:
            self._metrics.count_call(call, seconds, failed)

    def on_watch_event(self) -> None:
        """Counts an observation that inotify asked for."""
        if self._metrics is not None:
            self._metrics.count_watch_event()

    def passed(self, record: Pass) -> None:
        """Counts a pass, and shows it as the status of the service."""
        if self._metrics is not None:
            self._metrics.count_pass(record)
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
    return replace(
        configuration,
        poll_ceiling_seconds=ceiling,
        poll_floor_seconds=min(configuration.poll_floor_seconds, ceiling),
    )
