"""What the owner of the state has others do, and what comes back. Values only.

An effect is started on a worker, or on the sampler of a filesystem, and answered by one event; a worker that hangs is an
event that does not come. Everything else that happens to the node is an event, too.
"""

from __future__ import annotations

from dataclasses import dataclass

from reclaim import types
from reclaim.function import Ready
from reclaim.removals import Checked, Claim, StageId
from reclaim.types import Outcome
from signals.samplers import Sample


@dataclass(frozen=True, slots=True)
class Read:
    """Read these paths, each on its own sampler. Answered by a Sampled for each."""

    paths: frozenset[str]


@dataclass(frozen=True, slots=True)
class Plan:
    """Have a stage plan. Answered by Planned."""

    pass_id: str
    stage: StageId


@dataclass(frozen=True, slots=True)
class Check:
    """Check an object, and take the last look. Answered by CheckEnded."""

    claim: Claim


@dataclass(frozen=True, slots=True)
class Send:
    """The one call, and the question whether the object is gone. Answered by Ended. Only the gate makes one."""

    claim: Claim
    ready: Ready


@dataclass(frozen=True, slots=True)
class Locate:
    """Ask the runtime where its images are. Answered by Located."""


Effect = Read | Plan | Check | Send | Locate


# ---- what happens


@dataclass(frozen=True, slots=True)
class Sampled:
    """A filesystem was read, or could not be."""

    sample: Sample


@dataclass(frozen=True, slots=True)
class Planned:
    """A stage has planned, or failed to. `seconds`: how long that took."""

    pass_id: str
    stage: StageId
    plan: types.Plan | None
    error: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class CheckEnded:
    """An object was checked; or could not be, which is its `outcome`."""

    object_id: str
    checked: Checked
    outcome: Outcome | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """A removal that was sent has ended."""

    object_id: str
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Progressed:
    """The runtime has answered a call of a stage that plans."""

    pass_id: str
    stage: StageId


@dataclass(frozen=True, slots=True)
class Tick:
    """A deadline in the world has passed."""


Event = Sampled | Planned | CheckEnded | Ended | Progressed | Tick
