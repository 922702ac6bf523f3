"""What the daemon has done since its start, and what became of the objects that a
dry run would have removed.

`Totals` keeps the last passes, and sums for each reclaim function. Its size is bounded.

`Shadow` logs when something else, such as the kubelet, has removed objects that a dry run would
have removed. It shows an operator what reclaimd would have done, and how much earlier, before it is
allowed to do anything. It does so only during a dry run: otherwise the daemon may have removed them
itself. It looks after each refresh.
"""

from __future__ import annotations

import threading
from typing import Any

from eviction.engine.node import Node
from eviction.records.json_shapes import to_json
from eviction.records.listener import Listener
from eviction.records.observations_json import timestamp
from eviction.records.pass_json import PassJson, function_json, pass_summary
from eviction.records.passes import Pass
from eviction.types import Decision
from eviction.wording.explain import names_of_removed
from eviction.wording.log import Log
from eviction.wording.status import LastCallJson
from reclaim.types import Kind, Outcome, Result, RuntimeUnavailable
from signals.quantity import format_duration
from signals.types import SignalObservations

KEPT_PASSES = 20
SUMMED = ("removed", "measured", "nominal", "seconds")
MOST_REMEMBERED = 10_000
ASK_EVERY_SECONDS = 10.0
OF_THE_RUNTIME = (Kind.CONTAINER, Kind.SANDBOX, Kind.IMAGE)


class Totals(Listener):
    """Any thread may read: what it has is replaced, never changed."""

    def __init__(self) -> None:
        self._passes: dict[str, PassJson] = {}
        self.functions: dict[str, Any] = {}
        """By name, as `FunctionTotalJson`: the sums, and the last call as
        in the record of its pass.
        """

    def passed(self, record: Pass) -> None:
        """Keeps the summary of the pass, and adds up what its functions have done."""
        self.attributed(record)
        for function in record.functions:
            last = to_json(
                LastCallJson.of(function_json(function), started=timestamp(record.started_wall))
            )
            sums = {"calls": int(not function.skipped), **{name: last[name] for name in SUMMED}}
            if before := self.functions.get(function.operation):
                sums = _sum(before, sums)
            self.functions = {**self.functions, function.operation: {**sums, "last": last}}

    def attributed(self, record: Pass) -> None:
        """Keeps the summary of a pass, or replaces the one with the same id."""
        passes = {**self._passes, record.id: pass_summary(record)}
        self._passes = dict([*passes.items()][-KEPT_PASSES:])

    def passes(self) -> list[PassJson]:
        """The summaries, the oldest first."""
        return list(self._passes.values())


def _sum(total: Any, more: Any) -> Any:
    """The sum of two numbers, or of each number in two records; what is not known stays so."""
    if isinstance(more, dict):
        return {name: _sum(total[name], value) for name, value in more.items()}
    return None if total is None else round(total + more, 6)


class Shadow(Listener):
    """The objects that dry runs would have removed and that still exist.

    May be used from several threads.
    """

    def __init__(self, node: Node, log: Log) -> None:
        self._node = node
        self._log = log
        self._lock = threading.Lock()  # over `_planned`
        self._planned: dict[str, tuple[Outcome, float]] = {}  # by id; when it would have gone first
        self._asked_at = float("-inf")

    def observed(self, _: SignalObservations, __: Decision) -> None:
        """Forgets everything once the daemon removes things itself."""
        if self._planned and not self._node.dry_run:
            with self._lock:
                self._planned = {}

    def passed(self, record: Pass) -> None:
        """Remembers what a dry run would have removed."""
        if not self._node.dry_run:
            return
        now = self._node.clock.monotonic()
        with self._lock:
            for outcome in record.removals:
                verdict = outcome.verdict
                left_out = (
                    len(self._planned) >= MOST_REMEMBERED or verdict.kind not in OF_THE_RUNTIME
                )
                if outcome.result is Result.PLANNED and not left_out:
                    self._planned.setdefault(verdict.id, (outcome, now))

    def look(self) -> None:
        """Logs which of the objects are gone by now, and forgets them.

        Asks the runtime every 10 s at most.
        """
        now = self._node.clock.monotonic()
        if not self._node.dry_run or not self._planned or now - self._asked_at < ASK_EVERY_SECONDS:
            return
        self._asked_at = now
        inventory = self._node.inventory
        try:
            listed = (inventory.images(now), inventory.containers(now), inventory.sandboxes(now))
        except RuntimeUnavailable:
            return
        there = {each.id for objects in listed for each in objects}
        with self._lock:
            gone = [self._planned.pop(object_id) for object_id in self._planned.keys() - there]
        if gone:
            shown = names_of_removed((outcome for outcome, _ in gone), Result.PLANNED)
            earliest = format_duration(round(now - min(at for _, at in gone), 1))
            self._log.info(
                f"something else has removed {shown}; reclaimd would have begun {earliest} earlier"
            )
