"""When nothing may be removed: after a start until the kubelet is healthy or a configured time has passed, and while an
operator has paused removals.

After a reboot every sandbox is NOTREADY and every container EXITED, although all of them belong to live pods. Once the
kubelet's `/healthz` answers, it has started its pods again; the time limit is for nodes where nothing answers there.
`reclaimd reclaim --now` skips the hold-off.

The few lines of HTTP are written by hand, because importing an HTTP client (with email and ssl) takes 15 ms.
"""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from reclaim.execution.workers import NoThread

LONGEST_PAUSE_SECONDS = 86_400.0  # a forgotten pause must end by itself
ANSWER_SECONDS = 0.5  # for a command, which waits for the answer
PATIENCE_SECONDS = 2.0  # for the watch, which keeps nobody waiting
ASK_SECONDS = 1.0  # between two requests
LONGEST_ANSWER_BYTES = 16 * 1024

_REQUEST = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
_OK = re.compile(rb"HTTP/1\.[0-9]+ 200\s")

Where = tuple[str, int] | str
"""Host and port, or the path of a unix socket that is forwarded there."""


class HoldOff:
    """Holds off until `seconds` after `since`, or until `healthy` returns true. Times are in seconds of one clock."""

    def __init__(self, seconds: float, since: float, now: Callable[[], float], healthy: Callable[[], bool]):
        self._over_at = since + seconds
        self._now = now
        self._healthy = healthy

    def why(self) -> str | None:
        """Why nothing may be removed yet, in a sentence; None if it may. Once None, always None."""
        left = self._over_at - self._now()
        if left <= 0:
            return None
        if self._healthy():
            self._over_at = float("-inf")
            return None
        return f"the kubelet does not answer on /healthz; nothing is removed for another {left:.0f} s after the start"


class Pause:
    """Nothing is removed until a time that an operator has set, or while it is not known whether one was set. Any
    thread may call. Times are in seconds of one clock.

    `wall`: the time of day, for people.
    """

    def __init__(self, now: Callable[[], float], wall: Callable[[], float]):
        self._now = now
        self._wall = wall
        self._lock = threading.Lock()
        self._until = float("-inf")
        self._unknown = ""  # why it is not known whether a pause is in force; empty: it is
        self.count = 0
        """How many were begun."""

    def begin(self, seconds: float, *, unknown: str = "") -> None:
        """Pauses for this long from now, at most `LONGEST_PAUSE_SECONDS`; replaces an earlier pause. `unknown`: why it
        is not known whether one is in force, as a clause: then it lasts until `become_known`."""
        with self._lock:
            self._until, self._unknown = self._now() + min(seconds, LONGEST_PAUSE_SECONDS), unknown
            self.count += 1

    def end(self) -> None:
        with self._lock:
            self._until, self._unknown = float("-inf"), ""

    def become_known(self, seconds: float) -> bool:
        """The pause lasts so much longer, 0 if there is none. Returns False, without effect, if somebody has begun or
        ended one since it was unknown."""
        with self._lock:
            was_unknown = self.unknown
            if was_unknown:
                self._until, self._unknown = self._now() + seconds if seconds else float("-inf"), ""
            return was_unknown

    @property
    def unknown(self) -> bool:
        """Whether it lasts only because it is not known whether a pause is in force."""
        return bool(self._unknown) and self.left_seconds > 0

    @property
    def left_seconds(self) -> float:
        """How much longer the pause lasts; 0 without one."""
        return max(self._until - self._now(), 0.0)

    def until(self) -> str:
        """When the pause ends, as a time of day; empty without one."""
        left = self.left_seconds
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._wall() + left)) if left > 0 else ""

    def why(self) -> str | None:
        """Why nothing may be removed, in a sentence; None if it may."""
        until, unknown = self.until(), self._unknown
        because = f", as whether a pause is in force is not known: {unknown}" if unknown else ""
        return f"paused until {until}{because} (reclaimd resume ends it)" if until else None


def kubelet_is_healthy(where: Where | None, seconds: float = ANSWER_SECONDS) -> bool:
    """Whether the kubelet's `/healthz` answers 200 within so many seconds. For None, false without asking."""
    if where is None:
        return False
    with suppress(OSError), _connected(where, seconds) as kubelet:
        return _answers_200(kubelet, seconds)
    return False


def held_off_since_boot(seconds: float, healthz: Where | None) -> str | None:
    """Why a command may not remove anything yet, in a sentence; None if it may. `seconds`: the hold-off, which begins
    with the boot and ends early once the kubelet is healthy. `healthz`: where to ask it."""
    since_boot = partial(time.clock_gettime, time.CLOCK_BOOTTIME)
    return HoldOff(seconds, 0.0, since_boot, partial(kubelet_is_healthy, healthz)).why()


class KubeletWatch:
    """Asks `/healthz` on a thread of its own until it answers 200, for this many `seconds` after its start.

    `where`: None: nobody is asked. `was_healthy`: whether it has answered 200.
    """

    def __init__(self, where: Where | None, seconds: float):
        self.was_healthy = False
        self._where = where
        self._seconds = seconds
        self._over = threading.Event()

    def start(self) -> None:
        """Starts the thread if there is anything to ask. Raises NoThread."""
        if self._where is not None and self._seconds > 0:
            until = time.monotonic() + self._seconds
            thread = threading.Thread(target=self._run, args=(self._where, until), name="kubelet watch", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                raise NoThread("no thread can be started to watch the kubelet's /healthz") from None

    def close(self) -> None:
        """The thread ends before its next request."""
        self._over.set()

    def _run(self, where: Where, until: float) -> None:
        while not self.was_healthy and time.monotonic() < until and not self._over.is_set():
            self.was_healthy = kubelet_is_healthy(where, PATIENCE_SECONDS)
            self._over.wait(ASK_SECONDS)


def _connected(where: Where, seconds: float) -> socket.socket:
    family = socket.AF_UNIX if isinstance(where, str) else socket.AF_INET6 if ":" in where[0] else socket.AF_INET
    kubelet = socket.socket(family, socket.SOCK_STREAM)
    try:
        kubelet.settimeout(seconds)
        kubelet.connect(where)
    except OSError:
        kubelet.close()
        raise
    return kubelet


def _answers_200(kubelet: socket.socket, seconds: float) -> bool:
    """Whether a request is answered with 200. Raises OSError if there is no answer within `seconds`."""
    ends = time.monotonic() + seconds
    kubelet.sendall(_REQUEST)
    answer = b""
    while b"\r\n" not in answer and len(answer) <= LONGEST_ANSWER_BYTES:
        kubelet.settimeout(max(ends - time.monotonic(), 0.001))
        part = kubelet.recv(4096)
        if not part:
            break
        answer += part
    return _OK.match(answer) is not None
