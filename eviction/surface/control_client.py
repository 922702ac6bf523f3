"""The other end of the control socket. Imports little: an emergency must not wait for imports."""

import json
import socket
from collections.abc import Iterator

from reclaim.trust import socket_refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TIMEOUT_SECONDS = 2.0
SILENCE_SECONDS = 10.0  # for each further line of an answer: ten heartbeats of the daemon
LARGEST_ANSWER_BYTES = 64 << 20


class NotAskedError(Exception):
    """The daemon gives no answer, or does not do the work. The message is a sentence; empty if
    there is no daemon to do the work."""


def converse(path: str, request: object, wait_seconds: float = TIMEOUT_SECONDS) -> "Iterator[Any]":
    """The lines of the daemon's answer, each as it comes. Raises NotAskedError if the socket may
    belong to another user, and OSError and ValueError; also if none comes within `wait_seconds`,
    which starts before the first."""
    if (refusal := socket_refusal(path)) is not None:
        raise NotAskedError(f"control socket {path}: not asked, as {refusal}")
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as daemon,
        daemon.makefile("rb") as lines,
    ):
        daemon.settimeout(wait_seconds)
        daemon.connect(path)
        try:
            daemon.sendall(json.dumps(request).encode() + b"\n")
        except BrokenPipeError:  # it has been turned away already, with a sentence
            pass
        while line := lines.readline(LARGEST_ANSWER_BYTES):
            yield json.loads(line)
            daemon.settimeout(SILENCE_SECONDS)
    raise ValueError("the daemon hung up")


def ask(path: str, command: str, wait_seconds: float = TIMEOUT_SECONDS, **fields: object) -> "Any":
    """The daemon's answer to a command with these fields. Raises NotAskedError if no daemon
    answers within `wait_seconds`."""
    if not path:
        raise NotAskedError("controlSocket is empty, so no daemon can be asked")
    try:
        answer = next(converse(path, {**fields, "command": command}, wait_seconds))
    except (OSError, ValueError) as error:
        raise NotAskedError(
            f"no daemon answers on {path}: {getattr(error, 'strerror', None) or error}"
        ) from None
    if isinstance(answer, dict) and "refused" in answer:
        raise NotAskedError(f"{path}: {answer['refused']}")
    return answer
