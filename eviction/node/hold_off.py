"""Hold-off after a start: why nothing is removed yet.

After a reboot every sandbox is NOTREADY and every container EXITED, and all of it belongs to live pods. Until the
kubelet has put its pods in order again nothing is removed: that is so when its `/healthz` answers, or when a set time
has passed, for nodes without one. A person who asks explicitly is not held off.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from contextlib import suppress

ANSWER_SECONDS = 0.5
LONGEST_STATUS_LINE_BYTES = 512


def kubelet_is_healthy(where: tuple[str, int] | str | None) -> bool:
    """Whether the kubelet's `/healthz` answers 200 within half a second. `where`: host and port, or the path of a unix
    socket that leads there; None: nobody is asked.

    By hand, as one line is all of it: an HTTP client brings email and ssl, 15 ms of a start.
    """
    if where is None:
        return False
    deadline = time.monotonic() + ANSWER_SECONDS
    family = socket.AF_UNIX if isinstance(where, str) else socket.AF_INET6 if ":" in where[0] else socket.AF_INET
    line = b""
    with suppress(OSError), socket.socket(family, socket.SOCK_STREAM) as kubelet:
        kubelet.settimeout(ANSWER_SECONDS)
        kubelet.connect(where)
        kubelet.sendall(b"GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n")
        while b"\n" not in line and len(line) < LONGEST_STATUS_LINE_BYTES:
            kubelet.settimeout(max(deadline - time.monotonic(), 0.001))
            part = kubelet.recv(LONGEST_STATUS_LINE_BYTES)
            if not part:
                break
            line += part
    words = line.partition(b"\n")[0].split()
    return len(words) >= 2 and words[0].startswith(b"HTTP/1.") and words[1] == b"200"


class HoldOff:
    """Holds off for `seconds` after `since`, unless the kubelet is healthy before. Times: seconds of one clock."""

    def __init__(self, seconds: float, since: float, now: Callable[[], float], healthy: Callable[[], bool]):
        self._over_at = since + seconds
        self._now = now
        self._healthy = healthy

    def why(self) -> str | None:
        """The sentence why nothing may be removed yet; None when it may. Once over, it stays over."""
        left = self._over_at - self._now()
        if left <= 0:
            return None
        if self._healthy():
            self._over_at = float("-inf")
            return None
        return f"the kubelet does not answer on /healthz; nothing is removed for another {left:.0f} s after the start"
