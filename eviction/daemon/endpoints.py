"""What the daemon shows while it runs: the pages for scrapers and probes, and what systemd is told.

Joined here so that the daemon has one thing to tell. Nothing here decides or delays anything: a face that cannot be
had is a warning. prometheus-client is imported only where the metrics are on.
"""

from __future__ import annotations

import socket
from dataclasses import replace
from typing import TYPE_CHECKING

from eviction.configuration.effective import Configuration
from eviction.configuration.validation import parse_address
from eviction.daemon.manager import Manager
from eviction.node.hold_off import HoldOff
from eviction.node.node import Node
from eviction.reporting.log import Log
from eviction.reporting.pass_record import Pass
from eviction.telemetry.http_server import HealthServer, HealthUnavailable, livez, readyz
from eviction.telemetry.systemd import Notifier

if TYPE_CHECKING:
    from eviction.telemetry.metrics import Metrics


class Faces:
    """Told of looks, watches and passes from the first on; shows them once started."""

    def __init__(self, node: Node, hold_off: HoldOff, log: Log, notifier: Notifier):
        self._node = node
        self._hold_off = hold_off
        self._log = log
        self._notifier = notifier
        self._ready = False
        self._metrics: Metrics | None = None
        self._server: HealthServer | None = None

    def start(self, metrics_address: str, manager: Manager, listening: socket.socket | None = None) -> None:
        """Serves the pages, where an address is given; on `listening` if somebody has opened it for us."""
        address = parse_address(metrics_address)
        if address is None:
            return
        from eviction.telemetry.metrics import Metrics

        metrics = Metrics(manager.standing, self._hold_off.why, self._node.collector.functions)
        server = HealthServer(
            address,
            {
                "/metrics": metrics.page,
                "/livez": lambda: livez(manager.standing().late_seconds),
                "/readyz": lambda: readyz(
                    located=self._node.summary.paths.imagefs is not None, held_off=self._hold_off.why()
                ),
            },
        )
        try:
            server.start(listening)
        except HealthUnavailable as error:
            self._log.warning(f"no metrics: {error}")
            return
        self._log.info(f"metrics and health are served on {server.address}", address=server.address)
        self._server, self._metrics = server, metrics
        self._node.client.on_call = metrics.called

    def looked(self) -> None:
        """A look has finished. With the first one the daemon is up."""
        if not self._ready:
            self._ready = True
            self._notifier.ready("watching")
        self._notifier.alive(self._node.clock.monotonic())

    def watched(self) -> None:
        """A watcher asked for a look."""
        if self._metrics is not None:
            self._metrics.watched()

    def passed(self, record: Pass) -> None:
        """A pass did or tried something."""
        if self._metrics is not None:
            self._metrics.passed(record)
        self._notifier.status(f"last pass {record.result}: {record.reason}")

    def reloading(self) -> None:
        """The configuration is being read again."""
        self._notifier.reloading()

    def reloaded(self) -> None:
        """It was read, and taken or refused."""
        self._notifier.ready()

    def stopping(self) -> None:
        """The daemon was told to stop; what is in flight is waited for."""
        self._notifier.stopping()

    def stop(self) -> None:
        """Stops serving."""
        if self._server is not None:
            self._server.stop()


def fed_in_time(configuration: Configuration, notifier: Notifier) -> Configuration:
    """The configuration with a ceiling of the interval at which the watchdog of systemd is fed in time."""
    ceiling = notifier.longest_sleep(configuration.poll_ceiling_seconds)
    return replace(
        configuration,
        poll_ceiling_seconds=ceiling,
        poll_floor_seconds=min(configuration.poll_floor_seconds, ceiling),
    )
