"""The configuration that the daemon has loaded, and how it is loaded again."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from eviction.configuration.effective import Configuration, ConfigurationError
from eviction.configuration.fingerprint import Fingerprint
from eviction.surface.daemon import Daemon
from eviction.surface.systemd import Notifier
from eviction.wording.configuration_warnings import configuration_warnings
from eviction.wording.log import Log
from reclaim.workers import Workers

NOT_RELOADED = "the configuration was not reloaded, the old one stays in force"


@dataclass(eq=False)
class LoadedConfiguration:
    """The configuration in force. If it cannot be read again, the old one stays."""

    read: Callable[[], tuple[Configuration, Fingerprint]]
    """The files and flags as they are now, and what tells whether they have changed since. Raises
    ConfigurationError."""
    log: Log
    notifier: Notifier
    fingerprint: Fingerprint = field(default_factory=dict)
    """The daemon works for clients with the same one. While what the files contain is not in force,
    it is empty, as no client's is."""

    def __post_init__(self) -> None:
        # SIGHUP and clients: what is read last must be in force last
        self._one_at_a_time = threading.Lock()

    def first(self) -> Configuration:
        """The configuration that the daemon starts with. Raises ConfigurationError."""
        configuration, self.fingerprint = self.read()
        return self._within_watchdog(configuration)

    def reload(self, daemon: Daemon) -> str:
        """Reads the configuration again and waits until it is in force. An invalid one, or a
        defect, is logged and changes nothing; returns that sentence, else an empty one. Any thread
        but the loop's may call."""
        with self._one_at_a_time:
            self.notifier.reloading()
            self.fingerprint = {}
            try:
                configuration, fingerprint = self.read()
                for sentence in configuration_warnings(configuration):
                    self.log.warning(sentence)
                need_restart = daemon.reconfigure(self._within_watchdog(configuration))
                if need_restart:
                    fields = " and ".join(need_restart)
                    kept = f"{fields} need a restart and keep their old values"
                    self.log.warning(f"reloaded, but {kept}")
                else:
                    self.fingerprint = fingerprint
                    self.log.info("the configuration was reloaded")
            except Exception as error:  # noqa: BLE001 # a defect while reading must not end the daemon, nor this thread
                problem = str(error)
                if not isinstance(error, ConfigurationError):
                    problem = f"{type(error).__name__}: {problem}"
                daemon.reload_problem = f"{NOT_RELOADED}: {problem}"
                self.log.error(daemon.reload_problem)
            finally:
                self.notifier.ready()
            return daemon.reload_problem or ""

    def reload_when(self, asked: threading.Event, daemon: Daemon) -> None:
        """Reloads whenever it is asked to, on its own thread: reading may hang. Raises NoThread."""

        def wait() -> None:
            while asked.wait():
                asked.clear()
                self.reload(daemon)

        Workers("reload", 1).run(wait)

    def _within_watchdog(self, configuration: Configuration) -> Configuration:
        """With the polling interval limited so that systemd's watchdog is fed in time."""
        ceiling = self.notifier.longest_sleep(configuration.poll_ceiling_seconds)
        return configuration.model_copy(
            update={
                "poll_ceiling_seconds": ceiling,
                "poll_floor_seconds": min(configuration.poll_floor_seconds, ceiling),
            }
        )
