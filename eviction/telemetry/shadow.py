"""What became of objects that a dry run would have removed: when somebody else, the kubelet say, removed them.

So an operator sees beside a kubelet what reclaimd would have done and how much earlier, before it may do anything.

Only while the daemon is in a dry run: afterwards what is gone may be its own work.

Covers: remembering and comparing. Does not cover: how often (`daemon.manager`).
"""

from __future__ import annotations

import threading

from eviction.listener import Listener
from eviction.node.node import Node
from eviction.record import Pass
from eviction.reporting.log import Log
from eviction.types import Decision
from reclaim.types import Kind, Result, RuntimeUnavailable
from signals.quantity import format_duration
from signals.types import SignalObservations

MOST_REMEMBERED = 10_000
MOST_NAMED = 8
ASK_EVERY_SECONDS = 10.0
OF_THE_RUNTIME = (Kind.CONTAINER, Kind.SANDBOX, Kind.IMAGE)


class Shadow(Listener):
    """The objects that dry runs would have removed and that are still there. Any thread may call."""

    def __init__(self, node: Node, log: Log) -> None:
        self._node = node
        self._log = log
        self._lock = threading.Lock()  # over `_planned`
        self._planned: dict[str, tuple[str, float]] = {}  # id -> kind and name, when it would have gone first
        self._asked_at = float("-inf")

    def observed(self, _: SignalObservations, __: Decision) -> None:
        """Forgets everything once the daemon removes things itself."""
        if self._planned and not self._node.dry_run:
            with self._lock:
                self._planned = {}

    def passed(self, record: Pass) -> None:
        """What a dry run would have removed is remembered."""
        if not self._node.dry_run:
            return
        now = self._node.clock.monotonic()
        with self._lock:
            for outcome in record.removals:
                verdict = outcome.verdict
                left_out = len(self._planned) >= MOST_REMEMBERED or verdict.kind not in OF_THE_RUNTIME
                if outcome.result is Result.PLANNED and not left_out:
                    self._planned.setdefault(verdict.id, (f"{verdict.kind} {verdict.name}", now))

    def look(self) -> None:
        """Tells what of it is gone since, and forgets that. The runtime is asked every 10 s at most."""
        now = self._node.clock.monotonic()
        if not self._node.dry_run or not self._planned or now - self._asked_at < ASK_EVERY_SECONDS:
            return
        self._asked_at = now
        inventory = self._node.inventory
        try:
            there = {image.id for image in inventory.images(now)}
            there |= {container.id for container in inventory.containers(now)}
            there |= {sandbox.id for sandbox in inventory.sandboxes(now)}
        except RuntimeUnavailable:
            return
        with self._lock:
            gone = [planned for object_id, planned in self._planned.items() if object_id not in there]
            self._planned = {known: planned for known, planned in self._planned.items() if known in there}
        if gone:
            shown = ", ".join(name for name, _ in gone[:MOST_NAMED])
            more = f" and {len(gone) - MOST_NAMED} more" if len(gone) > MOST_NAMED else ""
            earliest = format_duration(round(now - min(at for _, at in gone), 1))
            began = f"a dry run would have begun with them {earliest} before"
            self._log.info(f"somebody else has removed {shown}{more}; {began}")
