"""Hold-off: after a start nothing is removed until the kubelet is healthy, or a configured time has passed; and nothing
while an operator has paused it.

After a reboot every sandbox is NOTREADY and every container EXITED, although all of them belong to live pods. Once the
kubelet's `/healthz` answers, it has started its pods again; the time limit is for nodes where nothing answers there.
`reclaimd reclaim --now` skips the hold-off.
"""

from __future__ import annotations

import time
from collections.abc import Callable

LONGEST_PAUSE_SECONDS = 86_400.0  # a pause that is forgotten must end by itself


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
