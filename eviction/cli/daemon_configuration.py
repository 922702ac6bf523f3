"""Which configuration a process has: its fingerprint, and whether the daemon of this node runs with another one."""

from __future__ import annotations

import argparse
import os
from typing import Any

from eviction.cli.options import configuration_flags, mention
from eviction.configuration.fingerprint import Fingerprint, configuration_files, fingerprint_of
from reclaim.execution.workers import in_time


def fingerprint_of_command(arguments: argparse.Namespace) -> Fingerprint:
    """The fingerprint of the files and flags as they are now. Raises OSError, also for a file that hangs."""
    files = configuration_files(arguments.config, arguments.config_dir, os.environ)
    return in_time(lambda: fingerprint_of(*files, configuration_flags(arguments), os.environ))


def mention_other_configuration(
    arguments: argparse.Namespace, control_socket: str, status: dict[str, Any] | None = None
) -> None:
    """Compares with what the daemon says it has loaded, and says so if it differs. Silent where no daemon answers, and
    for a command whose own flags make the difference.

    `status`: the daemon's answer, if the command has it; else the daemon is asked.
    """
    flags = configuration_flags(arguments)
    if not os.path.exists(control_socket) or any(value is not None for value in flags.values()):
        return
    from eviction.control.socket import ControlUnavailable, ask  # only where there may be a daemon

    try:
        told = (ask(control_socket, "brief") if status is None else status).get("configuration")
        own = fingerprint_of_command(arguments)
    except (ControlUnavailable, OSError):
        return
    if told is not None and told != own:  # an older daemon does not say it
        mention("a daemon runs here with another configuration, or with an older version of the same files")
