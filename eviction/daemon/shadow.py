"""What became of objects that a dry run would have removed: when somebody else, the kubelet say, removed them.

So an operator sees beside a kubelet what reclaimd would have done and how much earlier, before it may do anything.

Only while the daemon is in a dry run: afterwards what is gone may be its own work.

Covers: remembering and comparing. Does not cover: how often (`refresh`).
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from eviction.record import Pass
from reclaim.inventory import Inventory
from reclaim.types import Kind, Result, RuntimeUnavailable
from signals.quantity import format_duration

MOST_REMEMBERED = 10_000
MOST_NAMED = 8
ASK_EVERY_SECONDS = 10.0
OF_THE_RUNTIME = (Kind.CONTAINER, Kind.SANDBOX, Kind.IMAGE)


@dataclass(frozen=True, slots=True)
class _Planned:
    """An object, and when a dry run would first have removed it, monotonic seconds."""

    name: str
    kind: str
    at: float


class Shadow:
    """The objects that dry runs would have removed and that are still there. Any thread may call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # over `_planned`
        self._planned: dict[str, _Planned] = {}
        self._asked_at = float("-inf")

    def planned(self, record: Pass, now: float) -> None:
        """A dry run has ended: what it would have removed is remembered."""
        with self._lock:
            for outcome in record.removals:
                verdict = outcome.verdict
                left_out = len(self._planned) >= MOST_REMEMBERED or verdict.kind not in OF_THE_RUNTIME
                if outcome.result is Result.PLANNED and not left_out:
                    self._planned.setdefault(verdict.id, _Planned(verdict.name, verdict.kind, now))

    def forget(self) -> None:
        """The daemon removes things itself from now on."""
        with self._lock:
            self._planned = {}

    def gone(self, inventory: Inventory, now: float) -> str:
        """What of it is gone since, as one sentence; empty if nothing is, or the runtime does not say. Forgets it.
        It is asked every 10 s at most."""
        if not self._planned or now - self._asked_at < ASK_EVERY_SECONDS:
            return ""
        self._asked_at = now
        try:
            there = {image.id for image in inventory.images(now)}
            there |= {container.id for container in inventory.containers(now)}
            there |= {sandbox.id for sandbox in inventory.sandboxes(now)}
        except RuntimeUnavailable:
            return ""
        with self._lock:
            gone = [planned for object_id, planned in self._planned.items() if object_id not in there]
            self._planned = {known: planned for known, planned in self._planned.items() if known in there}
        if not gone:
            return ""
        shown = ", ".join(f"{each.kind} {each.name}" for each in gone[:MOST_NAMED])
        more = f" and {len(gone) - MOST_NAMED} more" if len(gone) > MOST_NAMED else ""
        earliest = format_duration(round(now - min(each.at for each in gone), 1))
        return f"somebody else has removed {shown}{more}; a dry run would have begun with them {earliest} before"
