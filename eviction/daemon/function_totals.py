"""What each reclaim function has done since the start of the daemon, for the control socket. Its size is bounded by the
functions of the node."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from eviction.record import Pass
from eviction.reporting.observations_json import timestamp
from eviction.reporting.pass_record import function_json
from eviction.reporting.status import FunctionTotalJson, LastCallJson


@dataclass(slots=True)
class _Total:
    """Sums over all calls of one function; a call that was skipped is none."""

    last: LastCallJson
    calls: int = 0
    removed: int = 0
    measured_bytes: int = 0
    measured_inodes: int = 0
    nominal_bytes: int = 0
    seconds: float = 0.0


class FunctionTotals:
    """The sums, by the name of the function. May be used from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._totals: dict[str, _Total] = {}

    def add(self, record: Pass) -> None:
        """Adds what the functions of a pass have done; a dry run does nothing."""
        with self._lock:
            for function in record.functions:
                did: LastCallJson = {"started": timestamp(record.started_wall), **function_json(function)}
                total = self._totals.setdefault(function.operation, _Total(did))
                total.last = did
                if function.skipped:
                    continue
                total.calls += 1
                total.removed += did["removed"]
                total.measured_bytes += function.freed_bytes
                total.measured_inodes += function.freed_inodes
                total.nominal_bytes += function.nominal_bytes
                total.seconds += function.seconds

    def all(self) -> dict[str, FunctionTotalJson]:
        """By name: the sums, and `last`: the last call as in the record of its pass."""
        with self._lock:
            return {
                name: {
                    "calls": total.calls,
                    "removed": total.removed,
                    "measured": {"bytes": total.measured_bytes, "inodes": total.measured_inodes},
                    "nominal": {"bytes": total.nominal_bytes, "inodes": None},
                    "seconds": round(total.seconds, 6),
                    "last": total.last,
                }
                for name, total in self._totals.items()
            }
