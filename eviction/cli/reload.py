"""`reclaimd reload`: the running daemon reads its configuration again, and the command ends
when it is in force or rejected. `ExecReload=` of the unit, so that `systemctl reload` waits for
the same, and fails with it.

The configuration is not read here, except for the address of the control socket: it may be
the one that is rejected.
"""

import os
import signal
from argparse import Namespace

from eviction.cli.client import Client, NotAskedError, files_seen, seen_in
from eviction.cli.output import exit_with
from eviction.exit_codes import EXIT_NOT_RELIEVED, EXIT_OK, EXIT_RUNTIME

ANSWER_SECONDS = 60.0  # systemd waits for 90 s


def run(arguments: Namespace) -> int:
    """Exit 0 the configuration is in force; 1 it is rejected, and the old one stays; 2 usage; 3
    no daemon answers: as ExecReload= of a unit, the command has then sent SIGHUP to it, but what
    came of it only its log says.

    Example: reclaimd reload
    """
    # a file that is not there, or cannot be read, is for the daemon to say
    _, texts = files_seen(arguments.config, arguments.config_dir)
    try:
        problem = Client(seen_in(texts)).ask("reload", ANSWER_SECONDS)["problem"]
    except NotAskedError as error:
        exit_with(EXIT_RUNTIME, f"{error}{_signalled()}")
    if problem:
        exit_with(EXIT_NOT_RELIEVED, problem)
    return EXIT_OK


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
