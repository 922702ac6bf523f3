"""What the daemon has done since its start, for its status: the last passes, and sums for each reclaim function. Their
size is bounded."""

from __future__ import annotations

import threading

from eviction.listener import Listener
from eviction.record import Pass
from eviction.reporting.observations_json import timestamp
from eviction.reporting.pass_record import AmountsJson, BytesJson, PassJson, function_json, pass_summary
from eviction.reporting.status import FunctionTotalJson, LastCallJson

KEPT_PASSES = 20


class Done(Listener):
    """May be used from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._passes: dict[str, PassJson] = {}
        self._functions: dict[str, FunctionTotalJson] = {}

    def passed(self, record: Pass) -> None:
        """Keeps its summary, and adds what its functions have done; one that was skipped was not called."""
        self.attributed(record)
        with self._lock:
            for function in record.functions:
                last: LastCallJson = {"started": timestamp(record.started_wall), **function_json(function)}
                total = self._functions.get(function.operation)
                self._functions[function.operation] = _sum(total, last)

    def attributed(self, record: Pass) -> None:
        """Keeps the summary of a pass, or replaces the one with the same id."""
        with self._lock:
            self._passes[record.id] = pass_summary(record)
            while len(self._passes) > KEPT_PASSES:
                del self._passes[next(iter(self._passes))]

    def passes(self) -> list[PassJson]:
        """The summaries, the oldest first."""
        with self._lock:
            return list(self._passes.values())

    def functions(self) -> dict[str, FunctionTotalJson]:
        """By name: the sums, and the last call as in the record of its pass."""
        with self._lock:
            return dict(self._functions)


def _sum(total: FunctionTotalJson | None, last: LastCallJson) -> FunctionTotalJson:
    if total is None:
        nothing: AmountsJson = {"bytes": 0, "inodes": 0}
        no_size: BytesJson = {"bytes": 0, "inodes": None}
        total = {"calls": 0, "removed": 0, "measured": nothing, "nominal": no_size, "seconds": 0.0, "last": last}
    return {
        "calls": total["calls"] + (not last["skipped"]),
        "removed": total["removed"] + last["removed"],
        "measured": {
            "bytes": total["measured"]["bytes"] + last["measured"]["bytes"],
            "inodes": total["measured"]["inodes"] + last["measured"]["inodes"],
        },
        "nominal": {"bytes": total["nominal"]["bytes"] + last["nominal"]["bytes"], "inodes": None},
        "seconds": round(total["seconds"] + last["seconds"], 6),
        "last": last,
    }
