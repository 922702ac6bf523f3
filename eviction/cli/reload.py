"""Reading the configuration again on SIGHUP; whatever is wrong with it, the daemon goes on with the old one."""

from __future__ import annotations

import argparse

from eviction.cli.daemon_configuration import fingerprint_of_command
from eviction.cli.options import configuration_of
from eviction.configuration.effective import ConfigurationError
from eviction.configuration.fingerprint import Fingerprint
from eviction.daemon.manager import Manager
from eviction.reporting.configuration_warnings import configuration_warnings
from eviction.reporting.log import Log
from eviction.telemetry.endpoints import within_watchdog
from eviction.telemetry.systemd import Notifier


class LoadedConfiguration:
    """The fingerprint of the configuration that the daemon has loaded: it works for clients with the same one.

    `update` comes before the files are read, so that a file that changes meanwhile counts as changed. The fingerprint
    is empty, which no client's is, while the daemon does not run with what the files contain.
    """

    def __init__(self, arguments: argparse.Namespace):
        self._arguments = arguments
        self.fingerprint: Fingerprint = {}
        self.update()

    def update(self) -> None:
        """Takes the fingerprint of the files and flags as they are now."""
        try:
            self.fingerprint = fingerprint_of_command(self._arguments)
        except OSError:
            self.clear()

    def clear(self) -> None:
        """The daemon does not run with what the files contain."""
        self.fingerprint = {}


def reload(
    arguments: argparse.Namespace, manager: Manager, loaded: LoadedConfiguration, log: Log, notifier: Notifier
) -> None:
    """Reads the configuration again and applies it; an invalid one, or a defect, is logged and changes nothing."""
    notifier.reloading()
    try:
        loaded.update()
        configuration = within_watchdog(configuration_of(arguments), notifier)
        for sentence in configuration_warnings(configuration):
            log.warning(sentence)
        if manager.reconfigure(configuration):
            loaded.clear()
    except ConfigurationError as error:
        loaded.clear()
        log.error(f"the configuration was not reloaded, the old one stays: {error}")
    except Exception as error:  # noqa: BLE001 # a defect while reading must not end the daemon, nor this thread
        loaded.clear()
        log.error(f"the configuration was not reloaded, the old one stays: {type(error).__name__}: {error}")
    finally:
        notifier.ready()
