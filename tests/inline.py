"""The engine without a thread: what it has done is done at once, one after another, on a
clock that is set forward.

The product's own fold and step. A test gives the stages, and may stand between
an effect and its answer.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from eviction.configuration.effective import Configuration, load
from eviction.engine.effects import (
    Check,
    Effect,
    Event,
    LookWanted,
    PassWanted,
    Plan,
    Read,
    Request,
    Resolve,
    Send,
    Tell,
    Tick,
)
from eviction.engine.fold import fold
from eviction.engine.stages import Stages
from eviction.engine.step import next_deadline, step
from eviction.engine.world import first_world
from eviction.records.passes import Pass, Trigger
from eviction.types import Decision, Extent
from reclaim.function import PassFacts, ReclaimContext, ReclaimFunction, Stage
from reclaim.types import ReclaimResult
from signals.filesystems import FilesystemPaths, Reading
from signals.samplers import Sample
from signals.types import FilesystemIdentity, FilesystemRole, FsStats, SignalObservations
from tests.pure.values import SteppedClock

GIB = 1 << 30
FUNCTION = "Function"
NOTHING_DECIDED = Decision(frozenset(), (), None, (), None)
MOST_TURNS = 100_000
CALL_SECONDS = 1e-6  # of a removal: a reading of before it does not count

ReadDisk = Callable[[str, float], Reading]


def disk_with(
    available: Callable[[], int], inodes_free: Callable[[], int] = lambda: 1000
) -> ReadDisk:
    """One filesystem of 1 GiB for every path, with so much available now."""

    def read(path: str, now: float) -> Reading:
        return Reading(FsStats(available(), available(), GIB, inodes_free(), 2000, now), 7)

    return read


def configured(**fields: Any) -> Configuration:
    """A configuration that needs no file of the node."""
    return load(None, {}, {"kubeletConfig": "", "stateFile": "", "historyFile": "", **fields})


@dataclass(eq=False)
class Inline:
    """One node whose effects are carried out inline, in their order; what it was told is in `told`.

    `stages`: of the functions, by name. `before`: called before each effect
    that would be on a worker.
    """

    clock: SteppedClock
    functions: Mapping[str, ReclaimFunction]
    context: Callable[[Callable[[], PassFacts]], ReclaimContext]
    read: ReadDisk = field(default_factory=lambda: disk_with(lambda: GIB // 2))
    configuration: Configuration = field(default_factory=configured)
    before: Callable[[Effect], None] = lambda _: None
    told: list[Tell] = field(default_factory=list)
    events: deque[Event] = field(default_factory=deque)

    def __post_init__(self) -> None:
        now, wall = self.clock.monotonic(), self.clock.wall()
        paths = FilesystemPaths("/node", "/node/images", "/node/images")
        world = first_world(self.configuration, self.functions, paths, now=now, wall=wall)
        self.world = world._replace(ids_begin="abcdef")
        self.stages = Stages(lambda: self.world, self.context, self.clock)

    def relieve(self, request: Request, trigger: Trigger = Trigger.REQUEST) -> Pass:
        """One look, and one pass to its end."""
        observations, decision = self.look()
        wanted = PassWanted(observations, decision, trigger, request, None, self.clock.monotonic())
        self.events.append(wanted)
        self.until(wanted.record.done)
        record = wanted.record.result()
        assert record is not None
        return record

    def look(self) -> tuple[SignalObservations, Decision]:
        """Observes and decides."""
        before = self.world.looks
        self.events.append(LookWanted(urgent=True))
        self.until(lambda: self.world.looks > before)
        return self.world.observations, self.world.decision

    def until(self, holds: Callable[[], bool]) -> None:
        """Turns until it holds."""
        for _ in range(MOST_TURNS):
            if holds():
                return
            self.turn()
        raise AssertionError("it never holds")

    def turn(self) -> None:
        """Takes in what has happened, or sets the clock forward to what is due
        next; and does what follows.
        """
        if not self.events:
            self.clock.step(max(next_deadline(self.world) - self.clock.monotonic(), 0.0))
            self.events.append(Tick())
        world = self.world._replace(now=self.clock.monotonic(), wall=self.clock.wall())
        world = fold(world, self.events.popleft())
        self.world, effects = step(world)
        for effect in effects:
            self.events += self.done(effect)

    def done(self, effect: Effect) -> Iterable[Event]:
        """Carries out one effect; what has happened then."""
        match effect:
            case Read(paths):
                return list(map(self._sample, paths))
            case Tell():
                self.told.append(effect)
            case Resolve(waiting, answer):
                waiting.set_result(answer)
            case Plan() | Check() | Send():
                self.before(effect)
                if isinstance(effect, Send):
                    self.clock.step(CALL_SECONDS)
                return [getattr(self.stages, type(effect).__name__.lower())(effect)]
            case _:
                pass
        return []

    def _sample(self, path: str) -> Sample:
        reading = self.read(path, self.clock.monotonic())
        return Sample(
            path, self.clock.monotonic(), reading, FilesystemIdentity(path, reading.device_id)
        )


def function_of(*stages: Stage, name: str = FUNCTION, **fields: Any) -> ReclaimFunction:
    """A function with these stages, on the filesystem of images."""
    return ReclaimFunction(name, FilesystemRole.IMAGEFS, ("image",), lambda _: stages, **fields)


def run_stages(
    context: Callable[[Callable[[], PassFacts]], ReclaimContext],
    clock: SteppedClock,
    make: Callable[[ReclaimContext], tuple[Stage, ...]],
    *,
    dry_run: bool = False,
    **options: Any,
) -> ReclaimResult:
    """What these stages do if nothing stops them: the result of one call of them, to its end."""
    function = ReclaimFunction(FUNCTION, FilesystemRole.IMAGEFS, ("image",), make)
    engine = Inline(clock, {FUNCTION: function}, context, **options)
    record = engine.relieve(Request(row=(FUNCTION,), extent=Extent.ALL, dry_run=dry_run))
    (result,) = record.functions
    return result
