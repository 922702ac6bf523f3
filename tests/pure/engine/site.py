"""A node in memory for the engine: disks, objects that are removed from them, and
effects that take time or hang.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from eviction.decision.headroom import FillRates
from eviction.engine.effects import (
    Check,
    Effect,
    Event,
    Locate,
    Located,
    PassWanted,
    Plan,
    Read,
    Refresh,
    Refreshed,
    Request,
    Sampled,
    Send,
    Tick,
    WriteBack,
    WrittenBack,
)
from eviction.engine.step import next_deadline
from eviction.records.passes import Pass, Trigger
from eviction.types import Threshold, ThresholdValue
from reclaim import types
from reclaim.function import PassFacts, Ready, ReclaimContext, ReclaimFunction, Refused, Stage, Wait
from reclaim.types import (
    NEVER,
    Action,
    AnsweredWithError,
    Kind,
    Outcome,
    Reason,
    ReclaimError,
    ReclaimResult,
    RemovalFailed,
    Result,
    RuntimeUnavailable,
    Verdict,
)
from signals.filesystems import FilesystemPaths, Reading
from signals.interval import FillRate
from signals.types import FsStats, Signal
from tests.inline import FUNCTION, Inline, configured, function_of
from tests.pure.contexts import context_of
from tests.pure.memory_runtime import MemoryRuntime
from tests.pure.values import GIB, MIB, SteppedClock, filling, threshold

DEVICE = 7
AT_FIRST = 500 * MIB  # available on a disk when a story begins
HANGS = NEVER
CALL_SECONDS = 0.001  # of the runtime


class Disk:
    """A filesystem of 1 GiB: what is available on it, and space that is still to come."""

    def __init__(self, clock: SteppedClock, device: int = DEVICE, available: int = AT_FIRST):
        self.device = device
        self.clock = clock
        self.fills_by = 0.0  # bytes a second
        self._since = clock.monotonic()
        self._available = available
        self._coming: list[tuple[float, int]] = []

    def free(self, size_bytes: int, after_seconds: float = 0.0) -> None:
        """Space comes back, at once or late; negative: it is written."""
        self._coming.append((self.clock.monotonic() + after_seconds, size_bytes))

    @property
    def available(self) -> int:
        """What is available now."""
        now = self.clock.monotonic()
        self._available += sum(size for due, size in self._coming if due <= now)
        self._available -= int(self.fills_by * (now - self._since))
        self._coming, self._since = [(due, size) for due, size in self._coming if due > now], now
        return self._available

    def reading(self, now: float) -> Reading:
        """What `statvfs` says."""
        return Reading(FsStats(self.available, self.available, GIB, 1000, 2000, now), self.device)


class Store(Stage):
    """A stage over objects in memory; each way to go wrong is a set of ids."""

    def __init__(self, disk: Disk, sizes: Mapping[str, int], *, sized: bool = True):
        self.fresh_seconds = 1.0
        self.frees_late = False
        self.patience_seconds: float | None = None
        self.disk = disk
        self.clock = disk.clock
        self.sizes = dict(sizes)
        self.planned: types.Plan | ReclaimError = plan_of(sizes, sized=sized)
        self.plans = 0
        self.sent: list[str] = []
        self.checked: list[str] = []
        self.refused: dict[str, Refused] = {}
        self.waits: dict[str, list[float]] = {}  # what it asks to wait before its next checks
        # the call ends with this error, the object goes nevertheless
        self.errors: dict[str, str] = {}
        self.stuck: set[str] = set()  # the call does not take the object away
        self.silent_checks: set[str] = set()
        self.silent_presence: set[str] = set()
        self.check_errors: set[str] = set()  # the runtime answers with an error about this object
        self.late_seconds = 0.0
        self.check_seconds = 0.0
        self.look_seconds = 0.0  # how long the last look takes
        self.on_check: Callable[[str], object] = lambda _: None
        self.on_remove: Callable[[str], object] = lambda _: None

    def plan(self) -> types.Plan:
        """As given: everything, in order."""
        self.plans += 1
        if isinstance(self.planned, ReclaimError):
            raise self.planned
        return self.planned

    def check(self, verdict: Verdict) -> Ready | Refused | Wait:
        """Checks the object, then takes `check_seconds`."""
        self.checked.append(verdict.id)
        self.clock.step(CALL_SECONDS)
        self.on_check(verdict.id)
        if verdict.id in self.silent_checks:
            raise RuntimeUnavailable("the runtime does not answer")
        if verdict.id in self.check_errors:
            raise AnsweredWithError("the runtime does not like it")
        if self.waits.get(verdict.id):
            return Wait(self.waits[verdict.id].pop(0))
        answer = self.refused.get(verdict.id, Ready(self.clock.monotonic(), self._looked))
        self.clock.step(self.check_seconds)
        return answer

    def _looked(self) -> bool:
        self.clock.step(self.look_seconds)
        return True

    def remove(self, verdict: Verdict) -> bool:
        """The one call; whether there was such an object."""
        self.sent.append(verdict.id)
        self.on_remove(verdict.id)
        self.clock.step(CALL_SECONDS)
        was_there = verdict.id in self.sizes
        if was_there and verdict.id not in self.stuck:
            self.disk.free(self.sizes.pop(verdict.id), self.late_seconds)
        if verdict.id in self.errors:
            raise RemovalFailed(self.errors[verdict.id])
        return was_there

    def present(self, verdict: Verdict) -> bool:
        """Whether the object is still there."""
        if verdict.id in self.silent_presence:
            raise RuntimeUnavailable("the runtime has gone away")
        return verdict.id in self.sizes


def verdict_of(name: str, size_bytes: int | None = 10 * MIB, **fields: Any) -> Verdict:
    """An object that is to be removed; without a size it is a container."""
    kind = Kind.CONTAINER if size_bytes is None else Kind.IMAGE
    return Verdict(
        kind, name, f"name of {name}", Action.REMOVE, Reason.UNUSED, size_bytes
    )._replace(**fields)


def plan_of(sizes: Mapping[str, int], *, sized: bool = True) -> types.Plan:
    """A plan that removes these in order; without sizes it promises nothing, as for containers."""
    return types.Plan(
        tuple(verdict_of(name, size if sized else None) for name, size in sizes.items())
    )


def objects(count: int, size_mib: int = 10) -> dict[str, int]:
    """So many objects of one size: a, b, c …"""
    return {chr(ord("a") + number): size_mib * MIB for number in range(count)}


@dataclass(eq=False)
class Timed(Inline):
    """An engine whose effects take time: each is carried out when its time is over. `takes`: how
    long one takes, in seconds; HANGS: it is not answered before `let_go`. `disks`: by path."""

    disks: Mapping[str, Disk] = field(default_factory=dict)
    takes: Callable[[Effect], float] = lambda _: 0.0
    located: FilesystemPaths | None = None
    filesystem_type: str = ""
    handed_out: list[Effect] = field(default_factory=list)
    coming: list[tuple[float, Callable[[], Iterable[Event]]]] = field(default_factory=list)

    def done(self, effect: Effect) -> Iterable[Event]:
        """Carries it out, now or later."""
        self.handed_out.append(effect)
        match effect:
            case Read(paths):
                return [event for path in paths for event in self._read(path)]
            case Plan() | Check() | Send() | Locate() | Refresh() | WriteBack():
                return self._after(self.takes(effect), lambda: self._carried_out(effect))
            case _:
                return super().done(effect)

    def _carried_out(self, effect: Effect) -> Iterable[Event]:
        match effect:
            case Locate():
                return [Located(self.located)]
            case Refresh():
                return [Refreshed()]
            case WriteBack(device=device):
                return [WrittenBack(device)]
            case _:
                return super().done(effect)

    def _read(self, path: str) -> Iterable[Event]:
        sample = self._sample(path)
        assert sample.identity is not None
        sample = replace(sample, identity=replace(sample.identity, type=self.filesystem_type))
        return self._after(self.takes(Read((path,))), lambda: [Sampled(sample)])

    def _after(self, seconds: float, answer: Callable[[], Iterable[Event]]) -> Iterable[Event]:
        if seconds == 0.0:
            return answer()
        self.coming.append((self.clock.monotonic() + seconds, answer))
        return []

    def turn(self) -> None:
        """Sets the clock forward to the next answer, if that comes before what is due."""
        if not self.events:
            at, answer = min(self.coming, key=lambda each: each[0], default=(NEVER, tuple))
            assert min(at, next_deadline(self.world)) < NEVER, "nothing will ever happen"
            if at <= max(next_deadline(self.world), self.clock.monotonic()):
                self.coming.remove((at, answer))
                self.clock.step(max(at - self.clock.monotonic(), 0.0))
                self.events += answer()
        super().turn()

    def until_it(self, kind: type[Effect], name: str = "") -> None:
        """Turns until such an effect has been handed out, about this object if it is named."""

        def is_meant(effect: Effect) -> bool:
            about = effect.claim.verdict.id if isinstance(effect, Check | Send) else ""
            return isinstance(effect, kind) and (not name or about == name)

        self.until(lambda: any(map(is_meant, self.handed_out)))

    def let_go(self) -> None:
        """What hangs is answered now, and nothing hangs or takes time any more."""
        self.takes = lambda _: 0.0
        hanging = [answer for at, answer in self.coming if at == HANGS]
        self.coming = [(at, answer) for at, answer in self.coming if at != HANGS]
        for answer in hanging:
            self.events += answer()
        while self.events:
            self.turn()

    def passes_until(self, seconds: float) -> None:
        """Everything that happens within so many seconds from now."""
        ends = self.clock.monotonic() + seconds
        while (
            self.events or min([next_deadline(self.world), *(at for at, _ in self.coming)]) <= ends
        ):
            self.turn()
        self.clock.step(max(ends - self.clock.monotonic(), 0.0))
        self.events.append(Tick())
        self.turn()

    def said(self, what: str) -> list[Any]:
        """What the listeners were told by this method: its argument, or its arguments."""
        about = [each.about for each in self.told if each.what == what]
        return [each[0] if len(each) == 1 else each for each in about]


def timed(
    clock: SteppedClock,
    disk: Disk,
    *functions: ReclaimFunction,
    disks: Mapping[str, Disk] | None = None,
    **options: Any,
) -> Timed:
    """An engine of these functions, on one disk, but for what `disks` has by path."""
    runtime, of_paths = MemoryRuntime(clock), disks or {}

    def context(facts: Callable[[], PassFacts]) -> ReclaimContext:
        return context_of(runtime, clock, facts=facts)

    def read(path: str, now: float) -> Reading:
        return of_paths.get(path, disk).reading(now)

    return Timed(clock, {each.name: each for each in functions}, context, read, **options)


class Site:
    """One function over `count` objects of 10 MiB, and a disk of which `wanted_mib`
    more are to be available.
    """

    def __init__(
        self, count: int, wanted_mib: int, *, parallel: int = 1, sized: bool = True, **fields: Any
    ):
        self.clock = SteppedClock()
        self.disk = Disk(self.clock)
        self.store = Store(self.disk, objects(count), sized=sized)
        self.until = threshold(Signal.IMAGEFS_AVAILABLE, f"{AT_FIRST // MIB + wanted_mib}Mi")
        configuration = configured(parallelRemovals=parallel, **fields)
        self.engine = timed(
            self.clock, self.disk, function_of(self.store), configuration=configuration
        )

    def begin(
        self,
        *,
        seconds_left: float = NEVER,
        row: Sequence[str] = (FUNCTION,),
        signal: Signal | None = None,
        trigger: Trigger = Trigger.REQUEST,
        acted_on: Threshold | None = None,
        **request: Any,
    ) -> PassWanted:
        """Asks for a pass about this signal, on a disk that is full in so many seconds."""
        observations, decision = self.engine.look()
        rates = rates_of(self.disk, seconds_left) if seconds_left != NEVER else {}
        self.engine.world = self.engine.world._replace(
            fill_rates={**self.engine.world.fill_rates, **rates}
        )
        asked = Request(**{"row": tuple(row), "until": (self.until,), **request})
        decision = replace(decision, acted_on=acted_on or decision.acted_on)
        wanted = PassWanted(observations, decision, trigger, asked, signal, self.clock.monotonic())
        self.engine.events.append(wanted)
        return wanted

    def passed(self, **request: Any) -> Pass:
        """The record of a pass that ran to its end."""
        wanted = self.begin(**request)
        self.engine.until(wanted.record.done)
        return record_of(wanted)

    def relieve(self, **request: Any) -> ReclaimResult:
        """What its function has done in such a pass."""
        (result,) = self.passed(**request).functions
        return result

    def hang(self, names: str, kind: type[Effect] = Send) -> None:
        """The removals of these objects are not answered, or their checks."""

        def takes(effect: Effect) -> float:
            hangs = (
                isinstance(effect, kind)
                and isinstance(effect, Check | Send)
                and effect.claim.verdict.id in names
            )
            return HANGS if hangs else 0.0

        self.engine.takes = takes


def record_of(wanted: PassWanted) -> Pass:
    """Of a pass that has ended."""
    record = wanted.record.result(0.0)
    assert record is not None
    return record


def rates_of(disk: Disk, seconds_left: float) -> FillRates:
    """A fill that has the disk full in so many seconds."""
    available = disk.available
    return {
        (disk.device, False): filling(
            FillRate(available, disk.clock.monotonic()), available / seconds_left
        )
    }


@dataclass(frozen=True)
class Defective(ThresholdValue):
    """A value of a threshold that raises while `raising` has something in it."""

    raising: list[str] = field(default_factory=list, hash=False, compare=False)

    def amount(self, capacity: int) -> Fraction | int:
        """As usual."""
        if self.raising:
            raise ZeroDivisionError(*self.raising)
        return ThresholdValue.amount(self, capacity)


def results(result: ReclaimResult) -> dict[str, Result | None]:
    """What became of what was tried."""
    return {outcome.verdict.id: outcome.result for outcome in result.outcomes}


def reasons(result: ReclaimResult) -> dict[str, str]:
    """Why the rest was kept."""
    assert all(outcome.verdict.action is Action.KEEP for outcome in result.kept)
    return {outcome.verdict.id: outcome.verdict.reason for outcome in result.kept}


def outcome_of(name: str, result: Result | None, **fields: Any) -> Outcome:
    """How an object of 10 MiB ended."""
    return Outcome(verdict_of(name), result, **fields)
