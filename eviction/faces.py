"""What the daemon shows while it runs: the pages for scrapers and probes.

Joined here so that the daemon has one thing to tell. Nothing here decides or delays anything: a face that cannot be
had is a warning. prometheus-client is imported only where the metrics are on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eviction.address import parse_address
from eviction.health import HealthServer, HealthUnavailable, livez, readyz
from eviction.hold_off import HoldOff
from eviction.log import Log
from eviction.manager import Manager
from eviction.node import Node
from eviction.record import Pass

if TYPE_CHECKING:
    from eviction.metrics import Metrics


class Faces:
    """Told of looks, watches and passes from the first on; shows them once started."""

    def __init__(self, node: Node, hold_off: HoldOff, log: Log):
        self._node = node
        self._hold_off = hold_off
        self._log = log
        self._metrics: Metrics | None = None
        self._server: HealthServer | None = None

    def start(self, metrics_address: str, manager: Manager) -> None:
        """Serves the pages, where an address is given."""
        address = parse_address(metrics_address)
        if address is None:
            return
        from eviction.metrics import Metrics

        metrics = Metrics(manager.standing, self._hold_off.why)
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
            server.start()
        except HealthUnavailable as error:
            self._log.warning(f"no metrics: {error}")
            return
        self._log.info(f"metrics and health are served on {server.address}", address=server.address)
        self._server, self._metrics = server, metrics
        self._node.client.on_call = metrics.called

    def watched(self) -> None:
        """A watcher asked for a look."""
        if self._metrics is not None:
            self._metrics.watched()

    def passed(self, record: Pass) -> None:
        """A pass did or tried something."""
        if self._metrics is not None:
            self._metrics.passed(record)

    def stop(self) -> None:
        """Stops serving."""
        if self._server is not None:
            self._server.stop()
