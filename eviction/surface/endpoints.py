"""The daemon's endpoints, `/metrics`, `/livez` and `/readyz`, for Prometheus and for probes, and
its notifications to systemd.

All clients are served on one thread, without waiting for any of them (`eviction.surface.clients`
has the limits). A request has at most 8 KiB; there is one per connection. No file is created and no
name is looked up. If the port cannot be bound, or the thread cannot be started, the daemon logs a
warning and works without the endpoints.

Only GET and HEAD of known paths are answered. Each page is made by a function on that thread, which
must not wait for anything, and is made once for all clients that ask for it alike at the same
moment, so that many scrapes do not delay a probe. prometheus-client is imported only if metrics are
on.
"""

import socket
from dataclasses import dataclass

from eviction.decision.thresholds import thresholds_met
from eviction.records.history import HistoryRecorder
from eviction.records.passes import Pass
from eviction.surface.daemon import Daemon
from eviction.surface.http_server import CannotListen, HttpServer, Pages, health
from eviction.surface.systemd import Notifier
from eviction.types import Decision
from eviction.wording.explain import NOTHING_IS_REMOVED, conditions_in_words, why_met
from eviction.wording.log import Log
from signals.types import SignalObservations


@dataclass(eq=False)
class DaemonEndpoints:
    """Serves the pages, and notifies systemd of what is observed and done."""

    daemon: Daemon
    log: Log
    notifier: Notifier
    history: HistoryRecorder

    def __post_init__(self) -> None:
        self.node = self.daemon.node
        self._conditions = ""
        self._last = "watching"
        self._server: HttpServer | None = None

    def start(
        self, address: tuple[str, int] | None, listening: socket.socket | None = None
    ) -> None:
        """Serves the pages if an address is given, on the socket `listening`
        if systemd has opened one.
        """
        if address is None:
            return
        from eviction.surface.metrics import Metrics

        metrics = Metrics(
            self.daemon.status,
            self.node.functions,
            lambda: (self.log.dropped, self.history.records, self.history.dropped),
        )
        pages: Pages = {
            "/metrics": metrics.page,
            "/livez": lambda _: health(self.daemon.why_not_alive()),
            "/readyz": lambda _: health(self._why_not_ready()),
        }
        try:
            server = HttpServer(address, pages, listening)
        except CannotListen as error:
            self.log.warning(f"no metrics: {error}")
            return
        self.log.info(f"metrics and health are served on {server.address}", address=server.address)
        self._server = server
        self.node.listeners.add(metrics)

    def _why_not_ready(self) -> str | None:
        """Why pressure would not be relieved now."""
        if self.node.summary.paths.imagefs is None:
            return "the container runtime has not said where its images are"
        held_off = self.node.present.held_off()
        return f"held off: {held_off}" if held_off else None

    def observed(self, observations: SignalObservations, decision: Decision) -> None:
        """Reports the conditions to systemd. The service is ready after the first observation."""
        below = thresholds_met(decision.thresholds_met, observations.signals)
        if not self._conditions:
            self.notifier.ready()
        self._conditions = conditions_in_words(
            decision.conditions,
            self.node.world.config.kubelets is not None,
            why_met(below, observations.signals),
        )
        self._tell()

    def keep_alive(self) -> None:
        """Feeds systemd's watchdog after a look, unless a pass is stuck. No listener stands before
        it: one that hangs must not have the daemon killed."""
        if self.daemon.why_not_alive() is None:
            self.notifier.keep_alive(self.node.clock.monotonic())

    def passed(self, record: Pass) -> None:
        """Shows the pass as the status of the service."""
        self._last = f"last pass {record.result}: {record.reason}"
        self._tell()

    def _tell(self) -> None:
        """Shown by `systemctl status`; without amounts and times, as each change is sent."""
        dry_run = [NOTHING_IS_REMOVED] if self.node.dry_run else []
        self.notifier.status("; ".join([self._conditions, *dry_run, self._last]))

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop()
