"""A drill and its verdict: what was seen, what was expected of it, and what nobody could judge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from eviction.drill.judgement.judge import Check
from eviction.drill.measurement.measurements import Seen
from signals.types import FsLayout


class Response(StrEnum):
    """Who relieves the node: the daemon in this process, or somebody else who is only observed."""

    OURS = "reclaimd"
    OBSERVED = "observed"


@dataclass(frozen=True, slots=True)
class DrillResult:
    """A run and its verdict. `history`: the daemon's own last looks, where something did not hold.

    `lists_apart_seconds`: how far two looks at the runtime's lists were apart at most, where what went is known by
    them; None where the runtime itself wrote it down.
    """

    name: str
    why: str
    layout: FsLayout | None
    filesystem: str
    simulated: bool
    seen: Seen
    checks: tuple[Check, ...]
    history: Mapping[str, Any] = field(default_factory=dict)
    response: Response = Response.OURS
    lists_apart_seconds: float | None = None

    @property
    def held(self) -> bool:
        """Whether every expectation held that could be judged."""
        return all(check.held is not False for check in self.checks)
