"""`reclaimd reload`: the running daemon reads its configuration again, and the command ends
when it is in force or rejected. `ExecReload=` of the unit, so that `systemctl reload` waits for
the same, and fails with it.

The configuration is not read here, except for the address of the control socket: it may be
the one that is rejected.
"""

from __future__ import annotations

import argparse
import os
import signal

from eviction.cli.ask_daemon import CONTROL_SOCKET, control_socket_of
from eviction.cli.options import exit_with
from eviction.configuration.fingerprint import configuration_files, fingerprint_of
from eviction.exit_codes import EXIT_NOT_RELIEVED, EXIT_OK, EXIT_RUNTIME
from eviction.surface.control_socket import ControlUnavailable, ask
from reclaim.workers import in_time

ANSWER_SECONDS = 60.0  # systemd waits for 90 s


def add_arguments(_: argparse.ArgumentParser) -> None:
    """It has no options of its own."""


def run(arguments: argparse.Namespace) -> int:
    """Exit 0 the configuration is in force; 1 it is rejected, and the old one stays; 2 usage; 3
    no daemon answers: as ExecReload= of a unit, the command has then sent SIGHUP to it, but what
    came of it only its log says.

    Example: reclaimd reload
    """
    try:
        problem = ask(_control_socket(arguments), "reload", ANSWER_SECONDS)["problem"]
    except ControlUnavailable as error:
        exit_with(EXIT_RUNTIME, f"{error}{_signalled()}")
    if problem:
        exit_with(EXIT_NOT_RELIEVED, problem)
    return EXIT_OK


def _control_socket(arguments: argparse.Namespace) -> str:
    files = configuration_files(arguments.config, arguments.config_dir, os.environ)
    try:
        found = in_time(lambda: fingerprint_of(*files, {}, environment=os.environ))
        return control_socket_of(found)
    except OSError:  # a file is not there, or cannot be read: that is for the daemon to say
        return CONTROL_SOCKET


def _signalled() -> str:
    """Sends SIGHUP to the daemon if systemd says which process it is; what was
    done, as a clause to append.
    """
    pid = os.environ.get("MAINPID", "")
    if not pid.isdecimal():
        return ""
    try:
        os.kill(int(pid), signal.SIGHUP)
    except OSError as error:
        return f"; SIGHUP cannot be sent to process {pid} either: {error.strerror}"
    return (
        f"; SIGHUP was sent to process {pid}, and its log says whether it accepts the configuration"
    )
