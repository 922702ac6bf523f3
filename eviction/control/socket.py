"""The control socket: a request is one line with a JSON object, the answer one JSON document, or one a line in a
conversation.

The unix socket has mode 0600, in a directory of mode 0700: only the daemon's user may connect. An existing directory
may have a wider mode, as long as nobody else may write to it; others then see the socket and still cannot connect. A
request has at most 4 KiB and must arrive within 2 s; at most 8 are answered at a time. A socket that cannot be bound
(for lack of inodes, for example) is a warning: the daemon runs without one.
"""

from __future__ import annotations

import json
import os
import socket
import stat
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from typing import Any

from eviction.types import EvictionError
from reclaim.trust import directory_refusal, socket_refusal

LARGEST_REQUEST_BYTES = 4096
LARGEST_ANSWER_BYTES = 64 * 1024 * 1024
TIMEOUT_SECONDS = 2.0
MOST_CLIENTS = 8

Answerer = Callable[[], Any]
Conversation = Callable[[Mapping[str, Any]], Iterator[Any]]


class ControlUnavailable(EvictionError):
    """No daemon answers on the control socket, or the socket cannot be created. The message is one sentence."""


class ControlServer:
    """Answers requests by the command in them.

    `commands`: name -> function without arguments that returns the JSON answer. `conversations`: name -> generator
    function of the whole request that yields JSON values; the generator is closed when the client disconnects, and
    counts as one client until it ends.
    """

    def __init__(
        self, path: str, commands: Mapping[str, Answerer], conversations: Mapping[str, Conversation] | None = None
    ):
        self._path = path
        self._commands = commands
        self._conversations = conversations or {}
        self._socket: socket.socket | None = None
        self._slots = threading.BoundedSemaphore(MOST_CLIENTS)

    def start(self) -> None:
        """Binds the socket and answers on a thread. Replaces the socket of a dead daemon. Raises ControlUnavailable."""
        server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            directory = os.path.dirname(self._path)
            os.makedirs(directory, mode=0o700, exist_ok=True)
            _remove_dead_socket(self._path, directory_refusal(directory))
            old = os.umask(0o177)  # so that the socket never has wider permissions
            try:
                server.bind(self._path)
            finally:
                os.umask(old)
            server.listen(MOST_CLIENTS)
        except OSError as error:
            server.close()
            raise ControlUnavailable(f"control socket {self._path}: {error.strerror or error}") from None
        except ControlUnavailable:
            server.close()
            raise
        self._socket = server
        threading.Thread(target=self._serve, args=(server,), name="control", daemon=True).start()

    def stop(self) -> None:
        """Stops listening and removes the socket. May be called without `start`."""
        if self._socket is None:
            return
        self._socket.shutdown(socket.SHUT_RDWR)  # wakes the accept
        self._socket.close()
        self._socket = None
        try:
            os.unlink(self._path)
        except OSError:  # removed by somebody else, or a read-only filesystem
            pass

    def _serve(self, server: socket.socket) -> None:
        while True:
            try:
                client, _ = server.accept()
            except OSError:
                return
            if not self._slots.acquire(blocking=False):
                client.close()
                continue
            threading.Thread(target=self._one, args=(client,), name="control client", daemon=True).start()

    def _one(self, client: socket.socket) -> None:
        try:
            with client:
                request = _line(client, LARGEST_REQUEST_BYTES, time.monotonic() + TIMEOUT_SECONDS)
                client.settimeout(TIMEOUT_SECONDS)
                with closing(self._answers(request)) as answers:
                    for answer in answers:
                        client.sendall(json.dumps(answer, default=str).encode() + b"\n")
        except OSError:  # the client is too slow or has disconnected
            pass
        finally:
            self._slots.release()

    def _answers(self, request: bytes) -> Generator[Any, None, None]:
        names = [*self._commands, *self._conversations]
        asked, command = _command(request)
        if command not in names:
            yield {"error": f"the request must be an object with a command, one of {', '.join(names)}"}
            return
        try:
            if command in self._commands:
                yield self._commands[command]()
            else:
                yield from self._conversations[command](asked)
        except Exception as error:  # noqa: BLE001 # a defect in an answer must not end the daemon
            yield {"error": f"{type(error).__name__}: {error}"}


def _command(request: bytes) -> tuple[Mapping[str, Any], str]:
    """The request and its command; an empty text for a request without one."""
    try:
        asked = json.loads(request)
        return asked, asked["command"] if isinstance(asked["command"], str) else ""
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}, ""


def ask(path: str, command: str) -> Any:
    """The daemon's answer to a command. Raises ControlUnavailable when no daemon answers, and when the socket may
    belong to another user."""
    if (refusal := socket_refusal(path)) is not None:
        raise ControlUnavailable(f"control socket {path}: not asked, as {refusal}")
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.settimeout(TIMEOUT_SECONDS)
            client.connect(path)
            client.sendall(json.dumps({"command": command}).encode() + b"\n")
            answer = json.loads(_line(client, LARGEST_ANSWER_BYTES))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ControlUnavailable(f"no daemon answers on {path}: {reason}") from None
    if isinstance(answer, dict) and set(answer) == {"error"}:
        raise ControlUnavailable(f"{path}: {answer['error']}")
    return answer


def _line(client: socket.socket, limit: int, deadline: float | None = None) -> bytes:
    """Reads to the end of the line, the end of the stream or the limit in bytes. Raises OSError.

    With a `deadline` (monotonic seconds) all of it must arrive by then, so that a client that sends a byte now and then
    does not occupy a place.
    """
    data = bytearray()
    while b"\n" not in data and len(data) < limit:
        if deadline is not None:
            client.settimeout(max(deadline - time.monotonic(), 0.001))
        part = client.recv(min(65536, limit - len(data)))
        if not part:
            break
        data += part
    return bytes(data)


def _remove_dead_socket(path: str, refusal: str | None) -> None:
    """Removes the socket of a dead daemon.

    Raises ControlUnavailable when a daemon answers on it, when the file is no socket, and when other users could
    replace it (`refusal`: why the directory is not safe, None if it is); OSError.
    """
    if refusal is not None:
        raise ControlUnavailable(f"control socket {path}: not made, as {refusal}")
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise ControlUnavailable(f"control socket {path}: something else is in its place")
    if _is_answered(path):
        raise ControlUnavailable(f"control socket {path}: another daemon answers there")
    os.unlink(path)


def _is_answered(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(TIMEOUT_SECONDS)
        try:
            client.connect(path)
        except OSError:
            return False
        return True
