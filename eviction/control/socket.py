"""The control socket: one JSON object in a line, one JSON document back; or, in a conversation, one a line.

A unix socket, mode 0600 in a directory of mode 0700: whoever may connect is the user that the daemon runs as. A
directory that is there already may be wider, as long as nobody else may write it: others see the socket then, and still
cannot connect. A request is at most 4 KiB and has 2 s; at most 8 are answered at a time. A socket that cannot be bound
(no inode is left, say) is a warning, never the end: the daemon does its work without one.
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
PATIENCE_SECONDS = 2.0
CLIENTS = 8

Answerer = Callable[[], Any]
Conversation = Callable[[Mapping[str, Any]], Iterator[Any]]


class ControlUnavailable(EvictionError):
    """Nothing answers on the control socket, or the socket cannot be made. The message is one sentence."""


class ControlServer:
    """Answers commands from a table: name -> function without arguments, whose JSON value is the answer.

    `conversations`: name -> function of the whole request, which yields JSON values while the client stays. It is
    closed when the client leaves, and holds one of the places all the while.
    """

    def __init__(
        self, path: str, commands: Mapping[str, Answerer], conversations: Mapping[str, Conversation] | None = None
    ):
        self._path = path
        self._commands = commands
        self._conversations = conversations or {}
        self._socket: socket.socket | None = None
        self._slots = threading.BoundedSemaphore(CLIENTS)

    def start(self) -> None:
        """Binds and answers. Raises ControlUnavailable; a socket that a dead daemon left is replaced."""
        server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            directory = os.path.dirname(self._path)
            os.makedirs(directory, mode=0o700, exist_ok=True)
            _make_way(self._path, directory_refusal(directory))
            old = os.umask(0o177)  # the socket is never seen with wider permissions
            try:
                server.bind(self._path)
            finally:
                os.umask(old)
            server.listen(CLIENTS)
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
        except OSError:  # taken away by somebody else, or a filesystem gone read-only
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
                request = _line(client, LARGEST_REQUEST_BYTES, time.monotonic() + PATIENCE_SECONDS)
                client.settimeout(PATIENCE_SECONDS)
                with closing(self._answers(request)) as answers:
                    for answer in answers:
                        client.sendall(json.dumps(answer, default=str).encode() + b"\n")
        except OSError:  # slow, or gone: its loss
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
        except Exception as error:  # noqa: BLE001 # a defect in an answer must not take the daemon along
            yield {"error": f"{type(error).__name__}: {error}"}


def _command(request: bytes) -> tuple[Mapping[str, Any], str]:
    """The request and its command; an empty one where there is none."""
    try:
        asked = json.loads(request)
        return asked, asked["command"] if isinstance(asked["command"], str) else ""
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}, ""


def ask(path: str, command: str) -> Any:
    """What the daemon answers. Raises ControlUnavailable when none does, or what is there may be somebody else's."""
    if (refusal := socket_refusal(path)) is not None:
        raise ControlUnavailable(f"control socket {path}: not asked, as {refusal}")
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.settimeout(PATIENCE_SECONDS)
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
    """What is sent up to the end of the line, to the end of sending or to the limit. Raises OSError.

    With a `deadline` (monotonic seconds) all of it must be there by then: a byte now and then does not hold the place.
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


def _make_way(path: str, refusal: str | None) -> None:
    """Takes away the socket of a daemon that is dead.

    Raises ControlUnavailable when it lives, when what is there is no socket, and when others could put something in
    its place (`refusal` of the directory); OSError.
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
        client.settimeout(PATIENCE_SECONDS)
        try:
            client.connect(path)
        except OSError:
            return False
        return True
