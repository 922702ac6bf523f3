"""When nothing may be removed after a start: until the kubelet is healthy, or a
configured time has passed.

After a reboot every sandbox is NOTREADY and every container EXITED, although all of them belong to
live pods. Once the kubelet's `/healthz` answers, it has started its pods again; the time limit is
for nodes where nothing answers there. `reclaimd reclaim --now` skips the hold-off.

The few lines of HTTP are written by hand, because importing an HTTP client (with
email and ssl) takes 15 ms.
"""

import re
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from eviction.engine.world import RETRY_SECONDS, held_off_sentence
from reclaim.workers import Workers
from signals.clock import LATE_SECONDS

Address = tuple[str, int] | str
"""Host and port, or the path of a unix socket that is forwarded there."""


def kubelet_is_healthy(address: Address | None) -> bool:
    """Whether the kubelet's `/healthz` answers 200 in time. For None, false without asking."""
    if address is None:
        return False
    family = socket.AF_UNIX
    if not isinstance(address, str):
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    # create_connection would load what encodes names
    with suppress(OSError), socket.socket(family) as kubelet:
        kubelet.settimeout(LATE_SECONDS)
        kubelet.connect(address)
        kubelet.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        # what comes first says it, in one read: more reads would be more waits
        return re.match(rb"HTTP/1\.[0-9]+ 200\s", kubelet.recv(64)) is not None
    return False


def held_off_since_boot(seconds: float, healthz: Address | None) -> str | None:
    """Why a command may not remove anything yet, in a sentence; None if it may. `seconds`:
    the hold-off, which begins with the boot and ends early once the kubelet is healthy.
    `healthz`: where to ask it."""
    left = seconds - time.clock_gettime(time.CLOCK_BOOTTIME)
    if left <= 0 or kubelet_is_healthy(healthz):
        return None
    return held_off_sentence(left, asked=healthz is not None)


def watch_kubelet(
    address: Address | None,
    seconds: float,
    healthy: Callable[[], None],
    *,
    stopping: threading.Event,
    tell: Callable[[str], object],
) -> None:
    """Asks `/healthz` again and again on a thread of its own, until it answers 200, the time is
    over or the process is to stop.

    `address`: None: nobody is asked. `healthy`: called once, when it has answered. `tell`: told
    what follows if it does not answer at once, or nobody is asked. Raises NoThread.
    """

    def watch() -> None:
        until = time.monotonic() + seconds
        if not (answers := kubelet_is_healthy(address)):
            tell(held_off_sentence(seconds, asked=True))
        while not answers and time.monotonic() < until and not stopping.is_set():
            stopping.wait(RETRY_SECONDS)
            answers = kubelet_is_healthy(address)
        if answers:
            healthy()

    if seconds > 0 and address is None:
        tell(held_off_sentence(seconds, asked=False))
    elif seconds > 0:
        Workers("the kubelet's /healthz", 1).run(watch)
