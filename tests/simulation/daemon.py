"""The product in a simulation: its fold and step, its stages, its inventory and records; its
effects take virtual time.

What `eviction.engine.owner` and `eviction.engine.node` do with threads and sockets is done here
with a scheduler. Nothing else of the product is replaced.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from eviction.configuration.effective import Configuration, load
from eviction.engine.effects import (
    Check,
    Effect,
    Event,
    Forget,
    Locate,
    Located,
    Looked,
    LookWanted,
    Plan,
    Read,
    Refresh,
    Refreshed,
    Resolve,
    Send,
    Tell,
    Tick,
    Watch,
    WriteBack,
    WrittenBack,
)
from eviction.engine.fold import fold
from eviction.engine.node import Detection, most_at_work, policies_of
from eviction.engine.owner import not_begun
from eviction.engine.periodic import loops
from eviction.engine.stages import Stages
from eviction.engine.step import next_deadline, step
from eviction.engine.world import Pause, first_world
from eviction.types import Extent
from reclaim.cri.inventory import Inventory
from reclaim.evidence.starts import PartAges
from reclaim.function import PassFacts, ReclaimContext
from reclaim.functions.table import FUNCTIONS, PERIODIC_CONTAINERS
from reclaim.functions.unused_images import PeriodicImages
from reclaim.images.records import ImageRecords, Loaded
from reclaim.kubelet.pods import KubeletPods
from reclaim.kubelet.pull_records import PullRecords, record_names
from reclaim.types import ImageRecord, RuntimeUnavailable
from signals.filesystems import FilesystemPaths, Reading
from signals.interval import ThresholdNotifier, WatchedLevels
from signals.samplers import MOST_POLLS, Sample
from signals.types import FilesystemIdentity, FsStats
from tests.simulation.services import Directories, Runtime

if TYPE_CHECKING:
    from tests.simulation.run import Run

LOOK_WITH_PASSES_SECONDS = 0.25
LONGEST_WAIT_SECONDS = 60.0
MOST_TURNS_A_SECOND = 5000


@lru_cache(maxsize=64)
def configured(fields: str, kubelet_file: str) -> Configuration:
    """The configuration with these fields, a JSON object."""
    base = {
        "kubeletConfig": kubelet_file,
        "rootDirectory": "/node",
        "stateFile": "",
        "historyFile": "",
        "kubeletEndpoint": "",
    }
    return load(None, {}, {**base, **json.loads(fields)})


class Spins(Exception):
    """The owner of the state turns and turns, and nothing happens."""


class Sampler:
    """The sampler of one path: reads when asked, polls while it watches."""

    def __init__(self, path: str, daemon: Daemon):
        self._path = path
        self._daemon = daemon
        self._polls: deque[FsStats] = deque(maxlen=MOST_POLLS)
        self._notifier: ThresholdNotifier | None = None
        self._reads = 0  # that are asked for and not answered: the same thread polls

    def ask(self) -> None:
        """Answers with a reading that begins now, as soon as the filesystem does."""
        daemon, clock = self._daemon, self._daemon.clock
        began, disk = clock.now, daemon.machine.disks[self._path]
        ends = max(began + 0.0002, disk.hangs_until)
        self._reads += 1

        def read() -> None:
            if clock.now < disk.hangs_until:
                clock.at(disk.hangs_until, read)
                return
            self._reads -= 1
            there = daemon.machine.disks[self._path]
            reading = Reading(there.stats(began), there.device, tuple(self._polls))
            identity = FilesystemIdentity(self._path, there.device)
            daemon.post(Sample(self._path, began, reading, identity))

        clock.at(ends, read)

    def watch(self, levels: WatchedLevels) -> None:
        if self._notifier is None or self._notifier.levels != levels:
            self._notifier = ThresholdNotifier(
                levels, lambda: self._daemon.post(LookWanted(urgent=True))
            )
            self._poll_at(self._notifier, self._daemon.clock.now)

    def _poll_at(self, notifier: ThresholdNotifier, time: float) -> None:
        self._daemon.clock.at(time, lambda: self._poll(notifier))

    def _poll(self, notifier: ThresholdNotifier) -> None:
        now = self._daemon.clock.now
        if self._notifier is not notifier or self._daemon.ended:
            return
        disk = self._daemon.machine.disks[self._path]
        if now < disk.hangs_until or self._reads:
            self._poll_at(notifier, max(disk.hangs_until, now + 0.0003))
            return
        poll: FsStats = disk.stats(now)
        self._polls.append(poll)
        if notifier.update(poll):
            self._notifier = None
            notifier.notify()
        else:
            self._poll_at(notifier, max(notifier.due_at, now + 1e-3))


Saved = tuple[dict[str, ImageRecord], dict[str, ImageRecord], tuple[float, float]]


class Daemon:
    """One process of the daemon, from its start until it is killed or has stopped.

    `saved`: what the last one left.
    """

    def __init__(self, run: Run, saved: Saved | None):
        machine, configuration = run.machine, run.configuration
        self.machine = machine
        self.clock = clock = run.clock
        self.ended = False
        self.jobs: dict[object, object] = {}  # by the task that carries it out
        self._run = run
        self.runtime = Runtime(machine, run.mood, clock, run.rng, run.judge)
        self.runtime.called = self._called
        self.pods = KubeletPods(Directories(machine, run.mood, clock, run.judge), clock)  # type: ignore[arg-type] # as it is used
        self.inventory = Inventory(self.runtime, self.pods, clock=clock, sleep=clock.sleep)
        self.records = ImageRecords(
            lambda: {image_id: held.wall for image_id, held in machine.images.items()},
            pulls=self._pulls,
        )
        if saved is not None:
            records, gone, (monotonic, wall) = saved
            self.records.restore(
                Loaded(dict(records), dict(gone), saved=(monotonic, wall), at=wall)
            )
        self.saved = saved
        self._part_ages = PartAges(clock)
        self._detection = Detection(
            self.inventory, self.pods, self.records, part_ages=self._part_ages, clock=clock
        )
        self._stopping = threading.Event()
        self._paths = FilesystemPaths("/node")
        self._samplers: dict[str, Sampler] = {}
        self._waiting: deque[Any] = deque()
        self._at_work = 0
        self._most_at_work = most_at_work(configuration.parallel_removals)
        self._ticks = 0
        self._inbox: list[Event] = []
        self._turns: tuple[float, int] = (clock.now, 0)
        now, paused_until = clock.now, run.judge.paused_until
        periodic = PeriodicImages(
            now, self._image_fs_space, lambda: self.world.configuration.extent is Extent.ALL
        )
        both = {function.name: function for function in (PERIODIC_CONTAINERS, periodic.function())}
        images = policies_of(configuration).images.has_periodic_work
        self.world = first_world(
            configuration, {**FUNCTIONS, **both}, self._paths, now=now, wall=clock.wall()
        )._replace(
            imagefs_problem="the container runtime has not said where its images are",
            on_its_own=True,
            look_due=now,
            hold_off_until=now + configuration.hold_off_seconds,
            pause=Pause(paused_until, count=1) if paused_until > now else Pause(),
            periodic=loops(now, images=images) if configuration.periodic_gc else {},
            ids_begin="5eed00",
        )
        self.stages = Stages(lambda: self.world, self._context, clock)
        self.post(Tick())

    # ---- the owner of the state

    def post(self, event: Event) -> None:
        """Something has happened; it is taken in now, with everything else
        that happens at this moment.
        """
        if not self._inbox and not self.ended:
            self.clock.at(self.clock.now, self._turn)
        self._inbox.append(event)

    def _turn(self) -> None:
        events, self._inbox = self._inbox, []
        if self.ended:
            return
        clock = self.clock
        since, count = self._turns
        self._turns = (since, count + 1) if clock.now - since < 1.0 else (clock.now, 0)
        if count > MOST_TURNS_A_SECOND:
            due = next_deadline(self.world) - clock.now
            raise Spins(
                f"{count} turns in a second, the last one for {type(events[-1]).__name__}; the next"
                f" is due in {due:g} s"
            )
        before = self.world
        world = before._replace(now=clock.now, wall=clock.wall())
        for event in events:
            world = fold(world, event)
        world, effects = step(world)
        self.world = world
        self._run.turned(events, before, world, effects)
        for effect in effects:
            self._hand_out(effect)
        self._begin_waiting()
        due = min(next_deadline(world), clock.now + LONGEST_WAIT_SECONDS)
        if world.passes and not world.stopping:
            due = min(due, clock.now + LOOK_WITH_PASSES_SECONDS)
        self._ticks += 1
        number = self._ticks
        clock.at(max(due, clock.now + 1e-4), lambda: self._tick(number))

    def _tick(self, number: int) -> None:
        if number == self._ticks and not self._inbox:
            self._inbox.append(Tick())
            self._turn()

    def _hand_out(self, effect: Effect) -> None:
        match effect:
            case Read(paths):
                for path in paths:
                    self._sampler(path).ask()
            case Watch(path, levels):
                self._sampler(path).watch(levels)
            case Resolve(waiting, answer):
                waiting.set_result(answer)
            case Forget(pass_id):
                self.stages.forget(pass_id)
            case Looked():
                pass
            case Tell(what):
                if what == "passed":
                    self._save()
            case _:
                self._waiting.append(effect)

    def _sampler(self, path: str) -> Sampler:
        if path not in self._samplers:
            self._samplers[path] = Sampler(path, self)
        return self._samplers[path]

    def _begin_waiting(self) -> None:
        while self._waiting and self._at_work < self._most_at_work:
            self._at_work += 1
            job = self._waiting.popleft()
            self.clock.spawn(lambda job=job: self._work(job), self)  # type: ignore[misc]

    def _work(self, job: Any) -> None:
        task = self.clock.task
        self.jobs[task] = job
        self._run.judge.begins(job)
        try:
            event = self._perform(job)
        except Exception as defect:  # noqa: BLE001 # as the product's owner
            event = not_begun(job, f"{type(defect).__name__}: {defect}")
        del self.jobs[task]
        self._run.judge.ends(job, event)
        draw = self._run.rng.random()  # on its way to the owner
        self.clock.sleep(0.0001 + 0.0005 * draw if draw < 0.97 else 0.06)
        if not self.ended:
            self.clock.at(self.clock.now, lambda: self._answered(event))

    def _answered(self, event: Event) -> None:
        self._at_work -= 1
        self.post(event)

    # ---- what is carried out

    def _perform(self, job: Any) -> Event:
        match job:
            case Plan() | Check() | Send():
                event: Event = getattr(self.stages, type(job).__name__.lower())(job)
                return event
            case Locate():
                return self._located()
            case Refresh():
                return self._refreshed()
            case WriteBack(device=device):
                self.clock.sleep(8.0 * self._run.rng.random() ** 4)  # seldom long
                return WrittenBack(device)
        raise AssertionError(job)

    def _located(self) -> Located:
        try:
            info = self.runtime.image_fs_info()
        except RuntimeUnavailable as error:
            return Located(self._paths, str(error))
        self._paths = FilesystemPaths(
            "/node", info.image_filesystems[0], info.container_filesystems[0]
        )
        return Located(self._paths)

    def _refreshed(self) -> Refreshed:
        refreshed = self._detection.refresh(lambda: self.world.asks_the_runtime())
        if refreshed == Refreshed():
            self._save()
        return refreshed

    def _context(self, facts: Callable[[], PassFacts]) -> ReclaimContext:
        return ReclaimContext(
            self.runtime,
            self.pods,
            self.inventory,
            self.records,
            self._part_ages,
            self.clock,
            policies_of(self.world.configuration),
            self._run.logs,
            self._stopping,
            facts,
        )

    def _pulls(self, _: Iterable[object]) -> PullRecords:
        """The kubelet's records of pulls: of those that it has made."""
        images = self.machine.images
        pulled = [images[each].listed for each in self.machine.pulled_by_kubelet if each in images]
        names = frozenset(name for image in pulled for name in record_names(image))
        return PullRecords(names, complete_since=0.0, as_of=self.clock.wall())

    def _image_fs_space(self) -> tuple[int | None, int | None]:
        disk = self.machine.disks["/images"]
        return disk.capacity, disk.available()

    def _called(self) -> None:
        progress = self.stages.progress()
        if progress is not None:
            self.post(progress)

    def _save(self) -> None:
        self.saved = (
            dict(self.records.records),
            dict(self.records.gone),
            (self.clock.now, self.clock.wall()),
        )

    # ---- its end

    def stop(self) -> None:
        """Nothing new begins."""
        self._stopping.set()
        self.world = self.world._replace(stopping=True)
        self.post(Tick())

    def kill(self) -> None:
        """It is gone, between any two things that happen."""
        self.ended = True
        self.clock.kill(self)
