"""The result of a drill: its measurements and the verdict on each expectation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from eviction.drill.judgement.judge import Check
from eviction.drill.measurement.measurements import Measurements
from signals.types import FsLayout


class Response(StrEnum):
    """What relieves the node: the daemon in this process, or another component that the drill only observes."""

    OURS = "reclaimd"
    OBSERVED = "observed"


@dataclass(frozen=True, slots=True)
class DrillResult:
    """A run and its verdict.

    `history`: the daemon's own last observations, if an expectation did not hold. `lists_apart_seconds`: the longest
    time between two polls of the runtime's lists; None if removals are known from the embedded runtime's own record.
    """

    name: str
    why: str
    layout: FsLayout | None
    filesystem: str
    simulated: bool
    measurements: Measurements
    checks: tuple[Check, ...]
    history: Mapping[str, Any] = field(default_factory=dict)
    response: Response = Response.OURS
    lists_apart_seconds: float | None = None

    @property
    def held(self) -> bool:
        """True if every expectation held that could be judged."""
        return all(check.held is not False for check in self.checks)
