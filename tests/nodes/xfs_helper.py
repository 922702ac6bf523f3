"""The XFS helper: the shipped program as a process, and another one that answers as a test wants.

The second is an implementation of its own of the same protocol, for what the program never does: answer wrongly, late,
or not at all, and give something back on a filesystem that is no XFS.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from tests.reclaimd_process import ENVIRONMENT, came_true

PROGRAM = str(Path(sys.executable).with_name("reclaimd-xfs-helper"))


def client_of(path: str, seconds: float = 30.0) -> socket.socket:
    """A connected client. Waits for room among those that wait to be accepted; `seconds`: of what it does later."""
    client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        client.connect(path)
    except OSError:
        client.close()
        raise
    client.settimeout(seconds)
    return client


def asked(path: str, request: bytes) -> bytes:
    """The answer to one request over a connection of its own."""
    with client_of(path) as client:
        client.send(request)
        return client.recv(256)


@contextmanager
def running_helper(path: str, *mount_points: str, before: Sequence[str] = ()) -> Iterator[subprocess.Popen[bytes]]:
    """The program with a socket that it makes itself. `before`: a program that starts it, with its arguments."""
    command = [*before, PROGRAM, f"--socket={path}", *mount_points]
    with subprocess.Popen(command, env=ENVIRONMENT) as process:
        try:
            assert came_true(lambda: _listens(path) or process.poll() is not None)
            assert process.poll() is None
            yield process
        finally:
            process.kill()


def _listens(path: str) -> bool:
    try:
        client_of(path).close()
    except OSError:
        return False
    return True


class OtherHelper:
    """Listens at a path and answers each packet with what `reply` returns; None: with nothing. `requests`: all that
    came. For a `with` block."""

    def __init__(self, path: str, reply: Callable[[bytes], bytes | None]):
        self.path = path
        self._reply = reply
        self._clients: list[socket.socket] = []
        self.requests: list[bytes] = []

    def __enter__(self) -> Self:
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(self.path)
        self._listener.listen(16)
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for each in (self._listener, *self._clients):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        os.unlink(self.path)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                self._clients.append(self._listener.accept()[0])
                threading.Thread(target=self._serve, args=(self._clients[-1],), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError):
            while packet := client.recv(65536):
                self.requests.append(packet)
                answer = self._reply(packet)
                if answer is not None:
                    client.send(answer)
