"""How long a function of the configuration rests before it is called again.

* After each call it rests for its `cooldown`.
* One that freed nothing three times in succession rests longer from time to time, 30 s to 5 min: what frees nothing
  must not be called, or started as a program, in every pass. Anything freed ends that.

The kubelet's own functions never rest here: the row that calls them has a backoff (`eviction.daemon.row_backoff`).
"""

from __future__ import annotations

from dataclasses import dataclass

from reclaim.types import ReclaimResult

VAIN_CALLS = 3
VAIN_RESTS_SECONDS = (30.0, 300.0)


@dataclass(slots=True)
class _Called:
    """What is known of one function. `until`: the end of its rest, monotonic seconds."""

    until: float = float("-inf")
    in_vain: int = 0
    seconds: float = 0.0


class FunctionRests:
    """The rests of all functions of a node, by name. For one thread at a time."""

    def __init__(self) -> None:
        self._called: dict[str, _Called] = {}

    def why_not(self, name: str, now: float) -> str:
        """Why the function is not called, as the end of a sentence; empty: it may be. `now`: monotonic seconds."""
        known = self._called.get(name)
        if known is None or now >= known.until:
            return ""
        vain = known.in_vain >= VAIN_CALLS
        why = f"it freed nothing in {known.in_vain} calls" if vain else "its cooldown is not over"
        return f"{why}, so it rests for {known.until - now:.0f} s more"

    def record(self, name: str, cooldown_seconds: float, result: ReclaimResult, now: float) -> None:
        """Sets the rest after a call that ended `now`."""
        known = self._called.setdefault(name, _Called())
        if result.freed_bytes > 0 or result.freed_inodes > 0:
            known.in_vain, known.seconds = 0, 0.0
        else:
            known.in_vain += 1
            if known.in_vain >= VAIN_CALLS:
                shortest, longest = VAIN_RESTS_SECONDS
                known.seconds = min(max(known.seconds * 2, shortest), longest)
        known.until = now + max(cooldown_seconds, known.seconds)
