"""The control socket. A request is one line with a JSON object; the answer is one JSON document, or
one per line in a conversation.

The unix socket has mode 0600, in a directory of mode 0700: only the daemon's user may connect. An
existing directory may have a wider mode, as long as nobody else may write to it; others then see
the socket but still cannot connect.

One thread reads all requests (`eviction.surface.clients`), so a silent client occupies no other.
A complete request, of at most 4 KiB, is answered on one of 24 threads, because a conversation
lasts as long as a pass. While all are busy, further requests are turned away with a sentence.
Three are made at the start, the others when they are needed; if none can be started, all is said
by those. A socket that cannot be bound (for lack of inodes, for example) or served is a warning:
the daemon runs without one.
"""

import json
import os
import select
import socket
import stat
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from functools import partial
from typing import Any

from eviction.surface.clients import BACKLOG, Client, Clients
from eviction.surface.control_client import TIMEOUT_SECONDS
from eviction.types import EvictionError, Fields
from reclaim.trust import directory_refusal
from reclaim.workers import NoThread, Workers
from signals.quantity import reason_of

LARGEST_REQUEST_BYTES = 4096
MOST_ANSWERED = 24  # at a time
PREPARED = 3  # threads: a request that runs, and two others
OCCUPIED = (
    b'{"refused": "turned away, as it is occupied with other clients; try again in a moment"}\n'
)
TOO_LATE = b'{"refused": "turned away, as no whole request has come in time"}\n'

Conversation = Callable[[Fields], Iterator[Any]]


class ControlUnavailable(EvictionError):
    """The socket cannot be created. The message is one sentence."""


class ControlServer:
    """Answers requests by their command.

    `commands`: name -> function that takes the whole request and yields JSON values, a single one
    for a plain answer; to refuse, it raises an EvictionError with one sentence. A generator is
    closed when the client disconnects, and occupies one of the threads until it ends.
    """

    def __init__(self, path: str, commands: Mapping[str, Conversation]):
        self._path = path
        self._commands = commands
        self._clients: Clients | None = None
        self._threads = Workers("clients", 0)

    def start(self) -> None:
        """Binds the socket and answers on threads. Replaces the socket of a dead daemon.

        Raises ControlUnavailable.
        """
        try:
            with ExitStack() as undone:
                server = undone.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
                directory = os.path.dirname(self._path)
                os.makedirs(directory, mode=0o700, exist_ok=True)
                _remove_dead_socket(self._path, directory_refusal(directory))
                # before it is bound, so that it never has wider permissions
                os.fchmod(server.fileno(), 0o600)
                server.bind(self._path)
                undone.callback(self._unlink)
                server.listen(BACKLOG)
                self._threads = Workers("clients", MOST_ANSWERED)
                undone.callback(self._threads.close)
                self._threads.prepare(PREPARED)
                clients = Clients(
                    "control",
                    server,
                    ends=(b"\n",),
                    largest_request_bytes=LARGEST_REQUEST_BYTES,
                    answer=self._hand_over,
                    too_late=TOO_LATE,
                )
                undone.pop_all()
        except (OSError, NoThread) as error:
            raise ControlUnavailable(f"control socket {self._path}: {reason_of(error)}") from None
        self._clients = clients

    def stop(self) -> None:
        """Stops listening and removes the socket. May be called without `start`."""
        if self._clients is None:
            return
        self._clients.stop()
        self._clients = None
        self._threads.close()
        self._unlink()

    def _unlink(self) -> None:
        with suppress(OSError):  # removed by someone else, or the filesystem is read-only
            os.unlink(self._path)

    def _hand_over(self, clients: Sequence[Client]) -> None:
        """Gives each request to a thread, or turns it away."""
        for client in clients:
            connection = client.take()
            try:
                self._threads.run(partial(self._converse, connection, bytes(client.request)))
            except NoThread:
                with suppress(OSError), connection:
                    connection.send(OCCUPIED)  # short enough not to block

    def _converse(self, client: socket.socket, request: bytes) -> None:
        with client:  # exceptions are lost: usually the client is too slow, or has disconnected
            if has_hung_up(client):
                return
            client.settimeout(TIMEOUT_SECONDS)
            with closing(self._answers(request)) as answers:
                for answer in answers:
                    client.sendall(json.dumps(answer, default=str).encode() + b"\n")

    def _answers(self, request: bytes) -> Generator[Any, None, None]:
        try:
            asked = json.loads(request)
            converse = self._commands[asked["command"]]
        except (ValueError, KeyError, TypeError, RecursionError):
            yield {
                "refused": (
                    "the request must be an object with a command, one of"
                    f" {', '.join(self._commands)}"
                )
            }
            return
        try:
            yield from converse(asked)
        except EvictionError as refusal:
            yield {"refused": str(refusal)}
        except Exception as error:  # noqa: BLE001 # a defect in an answer must not end the daemon
            yield {"refused": f"{type(error).__name__}: {error}"}


def has_hung_up(client: socket.socket) -> bool:
    """Whether the client has closed its connection; false if it has only ended its request."""
    waiting = select.poll()
    waiting.register(client, 0)  # POLLHUP is always reported
    return bool(waiting.poll(0))


def _remove_dead_socket(path: str, refusal: str | None) -> None:
    """Removes the socket of a dead daemon.

    Raises ControlUnavailable if a daemon answers on it, if the file is not a socket,
    or if other users could replace it (`refusal`: why the directory is not safe, None
    if it is); raises OSError.
    """
    if refusal is not None:
        raise ControlUnavailable(f"control socket {path}: not made, as {refusal}")
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise ControlUnavailable(f"control socket {path}: something else is in its place")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(TIMEOUT_SECONDS)
        if client.connect_ex(path) == 0:
            raise ControlUnavailable(f"control socket {path}: another daemon answers there")
    os.unlink(path)
