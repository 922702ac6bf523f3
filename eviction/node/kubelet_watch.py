"""Watches that the kubelet is healthy and is the same: one connection to its `/healthz` that is kept open.

A kubelet that restarts loses the connection, so it cannot restart unseen between two questions. The connection counts
as lost too when an answer is late, is not 200, or ends the connection.
"""

from __future__ import annotations

import re
import socket
import threading
import time
from contextlib import suppress

ASK_SECONDS = 2.0
ANSWER_SECONDS = 2.0
FRESH_SECONDS = 3 * ASK_SECONDS
LONGEST_ANSWER_BYTES = 16 * 1024

_REQUEST = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,5})[ \t]*\r\n", re.IGNORECASE)
_CLOSE = re.compile(rb"\r\nconnection:[ \t]*close[ \t]*\r\n", re.IGNORECASE)


class KubeletWatch:
    """`where`: host and port, or the path of a unix socket that is forwarded to it; None: nobody is asked."""

    def __init__(self, where: tuple[str, int] | str | None):
        self._where = where
        self._since: float | None = None
        self._last = float("-inf")
        self._over = threading.Event()

    def start(self) -> bool:
        """Starts its thread. False if it cannot be started: then the kubelet never counts as healthy."""
        if self._where is None:
            return False
        try:
            threading.Thread(target=self._run, name="kubelet watch", daemon=True).start()
        except RuntimeError:
            return False
        return True

    def close(self) -> None:
        """Ends its thread at the next question."""
        self._over.set()

    def healthy_since(self) -> float | None:
        """Since when (monotonic seconds) the kubelet has answered healthy over one connection; None if it does not."""
        since = self._since
        return None if since is None or time.monotonic() - self._last > FRESH_SECONDS else since

    def _run(self) -> None:
        while not self._over.is_set():
            with suppress(OSError), self._connected() as kubelet:
                while self._healthy(kubelet):
                    self._last = time.monotonic()
                    self._since = self._last if self._since is None else self._since
                    if self._over.wait(ASK_SECONDS):
                        return
            self._since = None
            self._over.wait(ASK_SECONDS)

    def _connected(self) -> socket.socket:
        where = self._where
        assert where is not None  # else there is no thread
        family = socket.AF_UNIX if isinstance(where, str) else socket.AF_INET6 if ":" in where[0] else socket.AF_INET
        kubelet = socket.socket(family, socket.SOCK_STREAM)
        try:
            kubelet.settimeout(ANSWER_SECONDS)
            kubelet.connect(where)
        except OSError:
            kubelet.close()
            raise
        return kubelet

    @staticmethod
    def _healthy(kubelet: socket.socket) -> bool:
        """Whether one more question is answered with 200, and the connection stays usable. Raises OSError."""
        kubelet.sendall(_REQUEST)
        answer = b""
        while True:
            head, ended, body = answer.partition(b"\r\n\r\n")
            length = _LENGTH.search(head + b"\r\n")
            if ended and (length is None or _CLOSE.search(head + b"\r\n")):
                return False
            if ended and length is not None and len(body) >= int(length[1]):
                words = head.split(None, 2)
                return len(words) >= 2 and words[:2] == [b"HTTP/1.1", b"200"] and len(body) == int(length[1])
            part = kubelet.recv(4096)
            answer += part
            if not part or len(answer) > LONGEST_ANSWER_BYTES:
                return False
