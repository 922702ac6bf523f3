"""Hold-off after a start: why nothing is removed yet.

After a reboot every sandbox is NOTREADY and every container EXITED, and all of it belongs to live pods. Until the
kubelet has put its pods in order again nothing is removed: that is so when its `/healthz` answers, or when a set time
has passed, for nodes without one. A person who asks explicitly is not held off.
"""

from __future__ import annotations

from collections.abc import Callable

KUBELET_HEALTHZ = ("127.0.0.1", 10248)  # kubelet: healthzBindAddress, healthzPort
ANSWER_SECONDS = 0.5


def kubelet_is_healthy(address: tuple[str, int] = KUBELET_HEALTHZ) -> bool:
    """Whether the kubelet's `/healthz` answers 200 within half a second."""
    import http.client  # when it is asked: it brings email and ssl, which a hook long after the boot does not need

    connection = http.client.HTTPConnection(*address, timeout=ANSWER_SECONDS)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


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
