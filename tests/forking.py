"""Stands for the program in a shell: has it forked (`tests.forked`), passes signals on, and ends as
it does. If it is killed, so is the program.

    python -SI forking.py ADDRESS ARGUMENTS

Imports little: it is started for each command.
"""

import json
import os
import signal
import socket
import sys

STATUS_BYTES = 8

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def ordered(
    address: str,
    arguments: "Sequence[str]",
    environment: "Mapping[str, str]",
    streams: "Sequence[int]",
) -> tuple[int, socket.socket]:
    """The pid of the new process, and the connection that tells its exit code."""
    order = {
        "arguments": [*arguments],
        "environment": {**environment},
        "directory": os.getcwd(),
    }
    forker = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    forker.connect(address)
    socket.send_fds(forker, [json.dumps(order).encode()], streams)
    return int(forker.recv(STATUS_BYTES)), forker


def main(address: str, *arguments: str) -> int:
    """The exit code of the program."""
    pid, forker = ordered(address, arguments, os.environ, (0, 1, 2))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda passed, _: os.kill(pid, passed))
    code = int(forker.recv(STATUS_BYTES))
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
