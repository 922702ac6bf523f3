"""What the owner of the state has others do, and what happens to it. Values only.

An effect is carried out by a worker, or by the sampler of a filesystem, and answered by one
event; a worker that hangs is an event that does not come. Everything else that happens to
the node is an event, too.
"""

from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from eviction.configuration.effective import Configuration
from eviction.records.passes import Pass, Trigger
from eviction.types import Decision, Extent, Row, Thresholds
from reclaim import types
from reclaim.function import Ready
from reclaim.removals import Checked, Claim, ClaimId, StageId
from reclaim.types import Outcome
from signals.filesystems import FilesystemPaths
from signals.interval import WatchedLevels
from signals.samplers import Sample
from signals.types import Signal, SignalObservations

# ---- what is handed out


class Read(NamedTuple):
    """Read these paths, each on its own sampler. A `Sample` answers for each."""

    paths: tuple[str, ...]


class Watch(NamedTuple):
    """Poll a filesystem, and post a `LookWanted` once an observation is due."""

    path: str
    levels: WatchedLevels


class Plan(NamedTuple):
    """Have a stage plan. `Planned` answers."""

    pass_id: str
    stage: StageId


class Check(NamedTuple):
    """Check an object, and take the last look. `CheckEnded` answers."""

    claim: Claim


class Send(NamedTuple):
    """The one call, and the question whether the object is gone. `Ended` answers.

    Only the gate makes one.
    """

    claim: Claim
    ready: Ready
    btrfs: tuple[str, ...]


class Locate(NamedTuple):
    """Ask the runtime where its images are. `Located` answers."""


class Refresh(NamedTuple):
    """Ask the runtime who uses its images, for the image records. `Refreshed` answers."""


class WriteBack(NamedTuple):
    """What waits to be written to the filesystem of a path is written, if it is much."""

    path: str
    device: int
    coming_bytes: int
    """What is written until a mark is reached."""


class Resolve(NamedTuple):
    """Somebody waits for this answer: a pass, or that a command of his is in force."""

    waiting: Future[Any]
    answer: object


class Forget(NamedTuple):
    """A pass has ended: nothing of its stages is needed any more."""

    pass_id: str


class Looked(NamedTuple):
    """The node was observed, and it was decided about."""


class Tell(NamedTuple):
    """Tell the listeners: the name of their method, and what it takes."""

    what: str
    about: tuple[object, ...]


Effect = (
    Read
    | Watch
    | Plan
    | Check
    | Send
    | Locate
    | Refresh
    | WriteBack
    | Resolve
    | Forget
    | Looked
    | Tell
)


# ---- what happens


class Planned(NamedTuple):
    """A stage has planned, or failed to."""

    pass_id: str
    stage: StageId
    plan: types.Plan | None = None
    """None: there is nothing to plan, or it has failed."""
    error: str = ""
    seconds: float = 0.0
    """How long it took."""
    fresh_seconds: float = 0.0
    frees_late: bool = False
    patience_seconds: float | None = None
    last: bool = True
    """Whether no stage of its function follows."""


class Progressed(NamedTuple):
    """The runtime has answered a call of a stage that plans."""

    pass_id: str
    stage: StageId


class CheckEnded(NamedTuple):
    """An object was checked."""

    claim: ClaimId
    checked: Checked


class Ended(NamedTuple):
    """A removal that was sent has ended."""

    claim: ClaimId
    outcome: Outcome


class Located(NamedTuple):
    """The runtime has said where its images are; or why not, in a sentence."""

    paths: FilesystemPaths | None
    """None: as before."""
    problem: str = ""


class Refreshed(NamedTuple):
    """The image records were updated, or not."""

    problem: str = ""
    given_up: bool = False
    """Something more urgent came, or it took too long."""


class WrittenBack(NamedTuple):
    """An early writeback has ended, or could not be made."""

    device: int


class LookWanted(NamedTuple):
    """Somebody wants an observation before the next one is due: inotify, a poll, or a command."""

    urgent: bool = False
    """At once; otherwise not before the shortest interval has passed."""


class Request(NamedTuple):
    """What a command asks for in place of the configured behaviour; None: as configured."""

    row: Row | None = None
    """Call these functions whatever the pressure."""
    until: Thresholds | None = None
    """Thresholds to reach in place of the configured ones."""
    extent: Extent | None = None
    every_function: bool = False
    """Include those that wait for a lower mark, to show what they would remove."""
    now: bool = False
    """A pause that was begun before does not count."""
    dry_run: bool = False
    """It removes nothing, whatever is configured."""


@dataclass(frozen=True, eq=False)
class PassWanted:
    """A command asks for a pass. Answered with its record, or None: while it waited for its turn
    another pass has ended there, and what it was decided by is not so any more."""

    observations: SignalObservations
    decision: Decision
    trigger: Trigger
    request: Request
    signal: Signal | None
    """What it is about; None: what the decision acts on."""
    asked_at: float
    record: Future[Pass | None] = field(default_factory=Future)


@dataclass(frozen=True, eq=False)
class Withdrawn:
    """Who asked for a pass has gone. Answered with whether that was before it began."""

    wanted: PassWanted
    done: Future[bool] = field(default_factory=Future)


@dataclass(frozen=True, eq=False)
class Reconfigured:
    """Another configuration is to be in force.

    Answered, once it is, with the fields that need a restart.
    """

    configuration: Configuration
    done: Future[tuple[str, ...]] = field(default_factory=Future)


@dataclass(frozen=True, eq=False)
class PauseSet:
    """An operator pauses removals, or ends a pause. Answered, once that is in force, with the
    removals that were sent and have not ended."""

    seconds: float
    """0: there is none any more."""
    unknown: str = ""
    """Why it is not known whether one is in force, as a clause."""
    if_unknown: bool = False
    """Only if that is not known at present."""
    done: Future[int] = field(default_factory=Future)


class KubeletHealthy(NamedTuple):
    """The kubelet answers on /healthz: it has started its pods again."""


class Tick(NamedTuple):
    """A time that the world has named has come, or something else than events has changed."""


Event = (
    Sample
    | Planned
    | Progressed
    | CheckEnded
    | Ended
    | Located
    | Refreshed
    | WrittenBack
    | LookWanted
    | PassWanted
    | Withdrawn
    | Reconfigured
    | PauseSet
    | KubeletHealthy
    | Tick
)
