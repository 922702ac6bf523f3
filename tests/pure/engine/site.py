"""A node in memory for the engine: one disk, dead containers a, b … and unused images A, B … of 10
MiB each, and effects that take time or hang; what happens there is told in a few words
(`Site.happens`).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from typing import Any

from eviction.engine.effects import (
    Check,
    Effect,
    Event,
    KubeletHealthy,
    Locate,
    Located,
    LookWanted,
    PassWanted,
    PauseSet,
    Plan,
    Read,
    Reconfigured,
    Refresh,
    Refreshed,
    Request,
    Send,
    Tick,
    WriteBack,
    WrittenBack,
)
from eviction.engine.periodic import loops
from eviction.engine.step import next_deadline
from eviction.records.passes import Pass, Trigger
from eviction.types import Extent, ThresholdValue
from reclaim import types
from reclaim.function import Ready, Refused, Stage, Wait
from reclaim.functions.table import CONTAINER_GC
from reclaim.functions.unused_images import IMAGE_GC
from reclaim.types import (
    DELETE_ALL_UNUSED_CONTAINERS,
    DELETE_UNUSED_IMAGES,
    NEVER,
    Action,
    AnsweredWithError,
    EventReason,
    GCEvent,
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
from signals.samplers import Sample
from signals.types import FsStats, Signal
from tests.inline import Inline, configured, function_of
from tests.pure.contexts import context_of
from tests.pure.memory_runtime import MemoryRuntime
from tests.pure.values import GIB, MIB, SteppedClock, filling, threshold

CONTAINERS, IMAGES = DELETE_ALL_UNUSED_CONTAINERS, DELETE_UNUSED_IMAGES
DEVICE = 7
AT_FIRST_MIB = 500  # available on a disk when a story begins
HANGS = NEVER
CALL_SECONDS = 0.001  # of the runtime
NEVER_MET = dict.fromkeys(("nodefs.inodesFree", "imagefs.inodesFree", "imagefs.available"), "0%")
EFFECTS = ("Send", "Check", "Plan", "Read", "Locate", "Refresh", "WriteBack")
WRONG = ("silent", "unlike", "mute", "waits", "gone", "refused", "stuck", "fails")
EVENTS: Mapping[str, Event] = {
    "healthy": KubeletHealthy(),
    "crossed": LookWanted(urgent=True),
    "look-wanted": LookWanted(),
}


class Disk:
    """A filesystem of 1 GiB: what is available on it, and space that is still to come."""

    def __init__(self, clock: SteppedClock, device: int = DEVICE):
        self.device = device
        self.clock = clock
        self.fills_by = 0.0  # bytes a second
        self.preallocated, self.step = 0, 0  # of a file that grows on XFS
        self._since = clock.monotonic()
        self._available = AT_FIRST_MIB * MIB
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
        available, ahead = self.available, (0, self.preallocated, self.step)
        return Reading(FsStats(available, available, GIB, 1000, 2000, now, *ahead), self.device)


class Store(Stage):
    """A stage over objects in memory. Without sizes it promises nothing, as for containers."""

    def __init__(self, disk: Disk, names: Iterable[str] = "", *, sized: bool = True):
        self.fresh_seconds = 1.0
        self.frees_late = False
        self.patience_seconds: float | None = None
        self.disk = disk
        self.clock = disk.clock
        names = tuple(names)
        self.sizes = dict.fromkeys(names, 10 * MIB)
        self.planned: types.Plan | ReclaimError = types.Plan(
            tuple(verdict_of(name, 10 * MIB if sized else None) for name in names)
        )
        self.plans = 0
        self.wrong: dict[str, list[str]] = {}  # with which object what goes wrong
        self.late_seconds = self.check_seconds = self.look_seconds = 0.0
        self.on: Callable[[str], object] = lambda _: None  # `check A`, `send A`

    def plan(self) -> types.Plan:
        """As given, without what is gone."""
        self.plans += 1
        if isinstance(self.planned, ReclaimError):
            raise self.planned
        there = (
            each for each in self.planned.remove if getattr(each, "id", "") in {"", *self.sizes}
        )
        return replace(self.planned, remove=tuple(there))

    def check(self, verdict: Verdict) -> Ready | Refused | Wait:
        """Checks the object, then takes `check_seconds`."""
        self.clock.step(CALL_SECONDS)
        self.on(f"check {verdict.id}")
        match self.wrong.get(verdict.id, []):
            case ["silent"]:
                raise RuntimeUnavailable("the runtime does not answer")
            case ["unlike"]:
                raise AnsweredWithError("the runtime does not like it")
            case ["waits", seconds, times] if times != "0":
                self.wrong[verdict.id] = ["waits", seconds, str(int(times) - 1)]
                return Wait(float(seconds))
            case ["gone"]:
                return Refused(result=Result.ALREADY_GONE)
            case ["refused", reason]:
                result = Result.IN_USE if reason == Result.IN_USE else None
                return Refused(Reason(reason), result)
        answer = Ready(self.clock.monotonic(), self._looked)
        self.clock.step(self.check_seconds)
        return answer

    def _looked(self) -> bool:
        self.clock.step(self.look_seconds)
        return True

    def remove(self, verdict: Verdict) -> bool:
        """The one call; whether there was such an object."""
        self.on(f"send {verdict.id}")
        self.clock.step(CALL_SECONDS)
        was_there, wrong = verdict.id in self.sizes, self.wrong.get(verdict.id, [])
        if was_there and "stuck" not in wrong:
            self.disk.free(self.sizes.pop(verdict.id), self.late_seconds)
        if "fails" in wrong:
            raise RemovalFailed("busy")
        return was_there

    def present(self, verdict: Verdict) -> bool:
        """Whether the object is still there."""
        if "mute" in self.wrong.get(verdict.id, []):
            raise RuntimeUnavailable("the runtime has gone away")
        return verdict.id in self.sizes


def verdict_of(name: str, size_bytes: int | None = 10 * MIB, **fields: Any) -> Verdict:
    """An object that is to be removed; without a size it is a container."""
    kind = Kind.CONTAINER if size_bytes is None else Kind.IMAGE
    verdict = Verdict(kind, name, name, Action.REMOVE, Reason.UNUSED, size_bytes)
    return verdict._replace(**fields)


@dataclass(eq=False)
class Timed(Inline):
    """An engine whose effects take time: each is carried out when its time is over. `takes`: for
    how many seconds, by the name of an effect and what it is about (`Send A`, `Plan`); what HANGS
    is not answered before `let_go`."""

    takes: dict[str, float] = field(default_factory=dict)
    located: FilesystemPaths | None = None
    filesystem_type: str = ""
    problem: str = ""  # why the runtime does not say where its images are, or who uses them
    handed_out: list[Effect] = field(default_factory=list)
    coming: list[tuple[float, Callable[[], Iterable[Event]]]] = field(default_factory=list)

    def done(self, effect: Effect) -> Iterable[Event]:
        """Carries it out, now or later."""
        self.handed_out.append(effect)
        about = ""
        match effect:
            case Read(paths):
                return [event for path in paths for event in self._read(path)]
            case Check(claim) | Send(claim):
                about = claim.verdict.id
            case Plan(stage=stage):
                about = stage.function
            case Locate() | Refresh() | WriteBack():
                pass
            case _:
                return super().done(effect)
        return self._after(f"{type(effect).__name__} {about}", lambda: self._carried_out(effect))

    def _carried_out(self, effect: Effect) -> Iterable[Event]:
        match effect:
            case Locate():
                return [Located(self.located, self.problem)]
            case Refresh():
                return [Refreshed(self.problem)]
            case WriteBack(device=device):
                return [WrittenBack(device)]
            case _:
                return super().done(effect)

    def _read(self, path: str) -> Iterable[Event]:
        answer = [self._sample(path)]
        return self._after(f"Read {path}", lambda: answer)

    def _sample(self, path: str) -> Sample:
        sample = super()._sample(path)
        assert sample.identity is not None
        return sample._replace(identity=sample.identity._replace(type=self.filesystem_type))

    def _after(self, what: str, answer: Callable[[], Iterable[Event]]) -> Iterable[Event]:
        seconds = self.takes.get(what, self.takes.get(what.split()[0], 0.0))
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

    def until_it(self, kind: type[Effect]) -> None:
        """Turns until such an effect has been handed out."""
        self.until(lambda: any(isinstance(effect, kind) for effect in self.handed_out))

    def settle(self) -> None:
        """Everything that follows now."""
        while self.events:
            self.turn()

    def let_go(self) -> None:
        """What hangs is answered now, and nothing hangs or takes time any more."""
        self.takes.clear()
        hanging = [answer for at, answer in self.coming if at == HANGS]
        self.coming = [(at, answer) for at, answer in self.coming if at != HANGS]
        for answer in hanging:
            self.events += answer()
        self.settle()

    def after(self, seconds: float) -> None:
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


class Site:
    """A node with containers and images of these names. `daemon`: it looks and relieves by itself,
    as soon as less than 480 MiB are available, until 490 are; else it does what it is asked for.
    With `periodicGC` there are both loops, in which images go for space, and none for its age."""

    def __init__(
        self,
        names: str = "",
        *,
        daemon: bool = False,
        clock: SteppedClock | None = None,
        **fields: Any,
    ):
        self.clock = clock or SteppedClock()
        self.disk = Disk(self.clock)
        self.disks: dict[str, Disk] = {}  # at paths; else it is that of the images
        self.containers = Store(self.disk, filter(str.islower, names), sized=False)
        self.images = Store(self.disk, filter(str.isupper, names))
        self.containers.on = self.images.on = self._comes
        self.calls: list[str] = []  # of stages, as `check A`
        self.hooks: dict[str, str] = {}
        self.request: dict[str, Any] = {}
        self.seconds_left = NEVER
        self.row = (CONTAINERS,) * bool(self.containers.sizes) + (IMAGES,) * bool(self.images.sizes)
        if daemon:
            hard = {**NEVER_MET, "nodefs.available": "480Mi", **fields.pop("hard", {})}
            reclaim = {"nodefs.available": "10Mi"}
            fields = {"evictionHard": hard, "evictionMinimumReclaim": reclaim, **fields}
        self.settings = {"parallelRemovals": 1, "removalPatience": "30s", **fields}
        runtime = MemoryRuntime(self.clock)
        self.engine = Timed(
            self.clock,
            {},
            lambda facts: context_of(runtime, self.clock, facts=facts),
            lambda path, now: self.disks.get(path, self.disk).reading(now),
            configured(**self.settings),
        )
        self.serves(self.containers, name=CONTAINERS, side_by_side=True)
        self.serves(self.images, side_by_side=True)
        self.engine.located = self.engine.world.paths
        if daemon:
            self.change(on_its_own=True, look_due=self.clock.monotonic())
        if fields.get("periodicGC"):
            self.serves(self.containers, name=CONTAINER_GC)
            self.serves(Store(self.disk), self.images, name=IMAGE_GC)
            self.change(periodic=loops(self.clock.monotonic(), images=True))

    def change(self, **fields: Any) -> None:
        """The world is another one."""
        self.engine.world = self.engine.world._replace(**fields)

    def serves(self, *stages: Stage, name: str = IMAGES, **fields: Any) -> None:
        """There is a function with these stages."""
        function = function_of(*stages, name=name, **fields)
        self.change(functions={**self.engine.world.functions, name: function})

    def _comes(self, call: str) -> None:
        self.calls.append(call)
        if call in self.hooks:
            self.happen(self.hooks.pop(call))

    def happen(self, told: str) -> None:
        """What these words say, parted by commas: what goes wrong with an object (`A stuck`), how
        long an effect takes (`Send A 30`), what a call brings (`on check A: pause`), or an
        event."""
        for each in told.split(", ") if told else []:
            self._happens(*each.split())

    def _happens(self, *words: str) -> None:
        now, events, planned = self.clock.monotonic(), self.engine.events, self.images.planned
        plan = planned if isinstance(planned, types.Plan) else types.Plan()
        match words:
            case ["on", call, name, *what]:
                self.hooks[f"{call} {name.rstrip(':')}"] = " ".join(what)
            case [effect, *_, seconds] if effect in EFFECTS:
                self.engine.takes[" ".join(words[:-1])] = float(seconds)
            case ["answered"]:
                self.engine.let_go()
            case ["write", mib]:
                self.disk.free(-int(mib) * MIB)
            case ["free", mib]:
                self.disk.free(int(mib) * MIB)
            case ["take", seconds]:
                self.clock.step(float(seconds))
            case [setting, value] if setting in self.settings:
                self.settings[setting] = int(value) if value.isdigit() else value
                self.change(configuration=configured(**self.settings))
            case ["fill", mib]:
                self.disk.fills_by = float(mib) * MIB
            case ["file", preallocated, step]:
                self.disk.preallocated, self.disk.step = int(preallocated) * MIB, int(step) * MIB
            case ["mount"]:
                self.disk.device += 1
            case ["late" | "check" | "look" | "fresh" | "patience" as what, seconds]:
                for store in (self.containers, self.images):
                    setattr(store, f"{what}_seconds", float(seconds))
            case ["full-in", seconds]:
                self.seconds_left = float(seconds)
                if self.engine.world.passes:
                    self._fills()
            case ["all"]:
                self.request["extent"] = Extent.ALL
            case ["now"]:
                self.request["now"] = True
            case ["dry-run"]:
                self.request["dry_run"] = True
            case ["kubelet"]:  # its mark is known, 1 MiB below the daemon's
                kubelets = (threshold(Signal.NODEFS_AVAILABLE, "479Mi"),)
                self.change(config=self.engine.world.config._replace(kubelets=kubelets))
            case ["apart"]:  # the kubelet's directory is on a disk of its own
                self.disks["/node"] = Disk(self.clock, DEVICE + 1)
            case ["program"]:  # of ten minutes, for which a command has asked
                program = Store(self.disk, "P")
                program.patience_seconds = 600.0
                self.serves(program, name="Program")
                about = Signal.NODEFS_AVAILABLE
                self.begin(signal=about, extent=Extent.ALL, row=("Program",))
            case ["btrfs" | "ext4" | "xfs" as kind]:
                self.engine.filesystem_type = kind
            case ["problem", *what]:
                self.engine.problem = " ".join(what)
            case ["elsewhere"]:
                self.engine.located = FilesystemPaths("/node", "/elsewhere", "/elsewhere")
            case ["held-off", seconds]:
                self.change(hold_off_until=now + float(seconds))
            case ["pause", seconds]:
                events.append(PauseSet(float(seconds)))
            case ["reload"]:
                hard = {**NEVER_MET, "nodefs.available": "0%"}
                events.append(Reconfigured(configured(evictionHard=hard)))
            case ["stop"]:
                self.change(stopping=True)
                events.append(Tick())
            case [event] if event in EVENTS:
                events.append(EVENTS[event])
            case ["in", seconds, *what]:
                later = " ".join(what)
                self.engine.coming.append((now + float(seconds), lambda: self._later(later)))
            case ["containers" | "images" as which, "unlisted" | "listed" as how]:
                unlisted, none = ReclaimError("no list"), types.Plan()
                getattr(self, which).planned = unlisted if how == "unlisted" else none
            case ["wants", mib]:
                wanted = int(mib) * MIB
                event_of = partial(too_little, wanted)
                self.images.planned = replace(plan, target_bytes=wanted, event_of=event_of)
            case [name, "kept", reason]:
                kept = (*plan.keep, verdict_of(name).kept(Reason(reason)))
                self.images.planned = replace(plan, keep=kept)
            case ["young", seconds]:
                young = verdict_of("Y").kept(Reason.TOO_YOUNG)
                young = young._replace(eligible_in_seconds=float(seconds))
                self.images.planned = replace(plan, keep=(young,))
            case ["held-back"]:  # Z, which is the last resort of the function of images
                held = verdict_of("Z").kept(Reason.NOT_PULLED)._replace(last_resort=True)
                self.images.planned = replace(plan, keep=(*plan.keep, held))
                last = Store(self.disk, "Z")
                last.on = self._comes
                self.serves(self.images, last_resort=lambda _: (last,), side_by_side=True)
            case ["frees", "late"]:
                self.containers.frees_late = True
            case [name, "frees" | "size" as what, mib]:
                self.images.sizes[name] = size = int(mib) * MIB
                (verdict,) = (each for each in plan.remove if each.id == name)
                changed = verdict._replace(**{f"{what}_bytes": size})  # type: ignore[arg-type] # as named
                remove = tuple(changed if each is verdict else each for each in plan.remove)
                self.images.planned = replace(plan, remove=remove)
            case [name, "last"]:
                remove = tuple(each._replace(last_resort=each.id == name) for each in plan.remove)
                self.images.planned = replace(plan, remove=remove)
            case [name, "holds", mib]:
                self.images.sizes[name] = int(mib) * MIB
            case [name, "vanishes"]:
                del self.images.sizes[name]
            case [name, *wrong] if wrong[:1] and wrong[0] in WRONG:
                (self.images if name.isupper() else self.containers).wrong[name] = wrong
            case _:
                raise AssertionError(f"it is not known what {words} means")

    def _later(self, told: str) -> Iterable[Event]:
        self.happen(told)
        return ()

    def begin(
        self, wanted_mib: int = 0, *, signal: Signal | None = None, **request: Any
    ) -> PassWanted:
        """A command asks for a pass, until so much more is available."""
        until = threshold(Signal.IMAGEFS_AVAILABLE, f"{AT_FIRST_MIB + wanted_mib}Mi")
        observations, decision = self.engine.look()
        self._fills()
        asked = Request(**{"row": self.row, "until": (until,), **self.request, **request})
        wanted = PassWanted(
            observations, decision, Trigger.REQUEST, asked, signal, self.clock.monotonic()
        )
        self.engine.events.append(wanted)
        return wanted

    def _fills(self) -> None:
        if self.seconds_left != NEVER:
            available = self.disk.available
            rate = filling(
                FillRate(available, self.clock.monotonic()), available / self.seconds_left
            )
            rates = {**self.engine.world.fill_rates, (self.disk.device, False): rate}
            self.change(fill_rates=rates)

    def passed(self, wanted_mib: int = 0, **request: Any) -> Pass:
        """The record of a pass that ran to its end."""
        return self.ended(self.begin(wanted_mib, **request))

    def ended(self, wanted: PassWanted) -> Pass:
        """Its record, once it has one."""
        self.engine.until(wanted.record.done)
        return record_of(wanted)

    def called(self, what: str) -> str:
        """The objects of which this was called, `check` or `send`, in that order."""
        calls = [call.split() for call in self.calls]
        return " ".join(name for call, name in calls if call == what)


def too_little(wanted: int, freed: int) -> GCEvent | None:
    """The event of a periodic pass over images that has freed so many bytes."""
    event = GCEvent(EventReason.FREE_DISK_SPACE_FAILED, f"freed {freed}")
    return event if freed < wanted else None


def record_of(wanted: PassWanted) -> Pass:
    """Of a pass that has ended."""
    record = wanted.record.result(0.0)
    assert record is not None
    return record


@dataclass(frozen=True)
class Defective(ThresholdValue):
    """A value of a threshold that raises while `raising` has something in it."""

    raising: list[str] = field(default_factory=list, hash=False, compare=False)

    def amount(self, capacity: int) -> Fraction | int:
        """As usual."""
        if self.raising:
            raise ZeroDivisionError(*self.raising)
        return ThresholdValue.amount(self, capacity)


def told(record: Pass) -> str:
    """How a pass ended, and for each of its functions what became of each object, with the MiB that
    it freed, and what went wrong."""
    return f"{record.result}: {' / '.join(map(function_told, record.functions)) or '-'}"


def function_told(result: ReclaimResult) -> str:
    """Of one function."""
    said = [
        " ".join(filter(None, (each.verdict.id, each.result, freed_told(each), each.error)))
        for each in result.outcomes
    ]
    for each in result.kept:
        assert each.verdict.action is Action.KEEP
        said.append(f"{each.verdict.id} {each.result or 'kept'}: {each.verdict.reason}")
    return "; ".join(filter(None, (", ".join(said), result.error, result.skipped))) or "-"


def freed_told(outcome: Outcome) -> str:
    """In MiB, if it was removed."""
    return f"{outcome.freed.bytes // MIB}" if outcome.result is Result.REMOVED else ""
