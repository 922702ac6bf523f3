"""Hold-off: after a start nothing is removed until the kubelet is healthy, or a configured time has passed; and nothing
while an operator has paused it.

After a reboot every sandbox is NOTREADY and every container EXITED, although all of them belong to live pods. Once the
kubelet's `/healthz` answers, it has started its pods again; the time limit is for nodes where nothing answers there.
`reclaimd reclaim --now` skips the hold-off.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

ANSWER_SECONDS = 0.5
ASK_AGAIN_SECONDS = 1.0
LONGEST_STATUS_LINE_BYTES = 512
LONGEST_PAUSE_SECONDS = 86_400.0  # a pause that is forgotten must end by itself


def kubelet_is_healthy(where: tuple[str, int] | str | None) -> bool:
    """True if the kubelet's `/healthz` answers 200 within half a second. `where`: host and port, or the path of a unix
    socket that is forwarded to it; None: false without asking.

    The one line of HTTP is written by hand, because importing an HTTP client (with email and ssl) takes 15 ms.
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


class KubeletHealth:
    """Asks for the kubelet's health on a thread of its own, once a second, so that nobody else waits for the answer.

    It ends with the first healthy answer, or `seconds` after its start.
    """

    def __init__(self, ask: Callable[[], bool], seconds: float):
        self._ask = ask
        self._seconds = seconds
        self._healthy = False

    def start(self) -> bool:
        """Starts the thread. False if it cannot be started: then nothing is known of the kubelet."""
        try:
            threading.Thread(target=self._run, name="kubelet health", daemon=True).start()
        except RuntimeError:
            return False
        return True

    def healthy(self) -> bool:
        """The last answer; does not wait."""
        return self._healthy

    def _run(self) -> None:
        until = time.monotonic() + self._seconds
        while not self._healthy and time.monotonic() < until:
            self._healthy = self._ask()
            if not self._healthy:
                time.sleep(ASK_AGAIN_SECONDS)


class HoldOff:
    """Holds off until `seconds` after `since`, or until `healthy` returns true. Times: seconds of one clock."""

    def __init__(self, seconds: float, since: float, now: Callable[[], float], healthy: Callable[[], bool]):
        self._over_at = since + seconds
        self._now = now
        self._healthy = healthy

    def why(self) -> str | None:
        """One sentence why nothing may be removed yet, or None. Once None, always None."""
        left = self._over_at - self._now()
        if left <= 0:
            return None
        if self._healthy():
            self._over_at = float("-inf")
            return None
        return f"the kubelet does not answer on /healthz; nothing is removed for another {left:.0f} s after the start"


class Pause:
    """Nothing is removed until a moment that an operator has named. Any thread may call. Times: seconds of one clock.

    `wall`: the time of day, for people.
    """

    def __init__(self, now: Callable[[], float], wall: Callable[[], float]):
        self._now = now
        self._wall = wall
        self._until = float("-inf")

    def begin(self, seconds: float) -> None:
        """From now on for so long, at most `LONGEST_PAUSE_SECONDS`; an earlier pause is replaced."""
        self._until = self._now() + min(seconds, LONGEST_PAUSE_SECONDS)

    def end(self) -> None:
        """Removals may go on."""
        self._until = float("-inf")

    @property
    def left_seconds(self) -> float:
        """How long it lasts; 0 without one."""
        return max(self._until - self._now(), 0.0)

    def until(self) -> str:
        """Its end by the time of day; empty without one."""
        left = self.left_seconds
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._wall() + left)) if left > 0 else ""

    def why(self) -> str | None:
        """One sentence why nothing may be removed, or None."""
        until = self.until()
        return f"paused until {until} (reclaimd resume ends it)" if until else None


class Holds:
    """What holds removals off: the start, or a pause."""

    def __init__(self, hold_off: HoldOff, pause: Pause):
        self._hold_off = hold_off
        self._pause = pause

    def why(self) -> str | None:
        """One sentence why nothing may be removed now, or None."""
        return self._pause.why() or self._hold_off.why()
