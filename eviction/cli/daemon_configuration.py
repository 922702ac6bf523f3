"""Says in one line that the daemon of this node runs with another configuration than a command."""

from __future__ import annotations

import argparse
import os
from typing import Any

from eviction.cli.options import configuration_flags, mention
from eviction.configuration.fingerprint import configuration_files, fingerprint_of
from reclaim.execution.readings import in_time


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
        files = configuration_files(arguments.config, arguments.config_dir, os.environ)
        own = in_time(lambda: fingerprint_of(*files, flags, os.environ))
    except (ControlUnavailable, OSError):
        return
    if told is not None and told != own:  # an older daemon does not say it
        mention("a daemon runs here with another configuration, or with an older state of the same files")
