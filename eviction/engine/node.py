"""One node: everything that observes it, decides for it and reclaims on it, put together.

The daemon, `reclaimd reclaim`, dry runs, the drill and the tests all use `Node`, so all of them run
the same code. Its state is in `engine.world`, and `engine.owner` alone changes that; here is what
may block, which workers call.

Below it is what a node is made of: its reclaim functions, what shows which objects are used, what
measures where its bytes are, and how many threads it has. Making it does no I/O.
"""

import os
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple, assert_never, cast

from eviction.configuration.effective import Configuration
from eviction.configuration.file import FunctionEntry, FunctionKind
from eviction.configuration.kubelet_ways import asking_for_pods
from eviction.decision.synchronize import synchronize
from eviction.engine.effects import (
    Check,
    Event,
    Locate,
    Located,
    LookWanted,
    PassWanted,
    PauseSet,
    Plan,
    Reconfigured,
    Refresh,
    Refreshed,
    Request,
    Send,
    Withdrawn,
    WriteBack,
    WrittenBack,
)
from eviction.engine.owner import Job, Owner
from eviction.engine.periodic import loops
from eviction.engine.stages import Stages
from eviction.engine.view import NodeView
from eviction.engine.world import SELDOM_SECONDS, Loops, World, first_world
from eviction.records.listener import Listeners
from eviction.records.passes import Pass, Trigger
from eviction.records.state_file import RecordFile
from eviction.survey.space import ASK_SECONDS, DiskSurvey, Places
from eviction.types import Decision, EvictionError, Extent
from reclaim.containers.plan import ContainerGCPolicy
from reclaim.cri.client import CriClient
from reclaim.cri.containers_storage import store_of, stored_at, stored_layers
from reclaim.cri.inventory import GivenUp, Inventory
from reclaim.evidence.directories import KubeletDirectories
from reclaim.evidence.starts import PartAges, parts_of_pods
from reclaim.evidence.states import Distrust
from reclaim.function import PassFacts, Policies, ReclaimContext, ReclaimFunction
from reclaim.functions.containerd_garbage import HeldLayers, brought_at, clocks_at_start
from reclaim.functions.table import FUNCTIONS, PERIODIC_CONTAINERS, FunctionTable, table_of
from reclaim.functions.unused_images import PeriodicImages
from reclaim.images.plan import ImageGCPolicy
from reclaim.images.records import ImageRecords
from reclaim.kubelet.pods import KubeletPods
from reclaim.kubelet.pull_records import PullRecords, pull_records
from reclaim.kubelet.versions import RECORDS_PULLS, RECORDS_PULLS_GATE, SAYS_USAGE
from reclaim.pod_logs.names import LogPaths
from reclaim.removals import limit_in_flight, write_back
from reclaim.types import Container, Layers, ReclaimError, RuntimeUnavailable
from reclaim.workers import NoThread, ReadingsInTime, Workers
from signals.clock import LATE_SECONDS, Clock
from signals.quantity import reason_of
from signals.types import Signal, SignalObservations

# Imported where they are used, so that commands without them start faster; the daemon
# imports them at its start.
IMPORTED_LATER = ("tenacity", "ipaddress", "json")

DRAIN_SECONDS = 30.0  # the longest wait at the end for removals that were sent


class CannotPrepare(EvictionError):
    """Something that a pass needs cannot be made. The message is one sentence."""


class Node(NodeView):
    """One node. The constructor does no I/O.

    `functions`: those of the node; None: as configured. `options`: as of `NodeView`.
    """

    def __init__(
        self,
        configuration: Configuration,
        *,
        dry_run: bool = False,
        stopping: threading.Event | None = None,
        records: ImageRecords | None = None,
        functions: FunctionTable | None = None,
        **options: Any,
    ):
        super().__init__(configuration, **options)
        clock = self.clock
        self.stopping = stopping or threading.Event()
        self.listeners = Listeners()
        self.on_look: Callable[[], object] = lambda: None
        """Called on the owner's thread after each look; must return at once."""
        self.shadow: Callable[[], None] = lambda: None
        """Called in a dry run after the runtime has said where its images are, on a worker."""
        self.functions = functions or functions_of(
            configuration, partial(self.listeners.tell, "program_line")
        )
        self.record_file = (
            RecordFile(configuration.state_file, clock) if configuration.state_file else None
        )
        self.log_paths = LogPaths(configuration.pod_logs_dir, configuration.container_logs_dir)
        limit = most_at_work(configuration.parallel_removals)
        # one for each that may look
        self.directory_threads = Workers("the kubelet's directories", limit)
        self._directories_in_time = ReadingsInTime(self.directory_threads, LATE_SECONDS)
        directories = KubeletDirectories(configuration.root_directory, self._directories_in_time)
        workers = Workers("work", limit)
        self._held = HeldLayers(self.client)
        self.pods = KubeletPods(
            directories,
            clock,
            asking_for_pods(configuration.kubelet_access, clock, configuration.kubelet_version),
        )
        self.inventory = Inventory(
            self.client, self.pods, clock=clock, read_layers=self._layers, workers=workers
        )
        self.records = records or ImageRecords(
            lambda: brought_at(self.client) or stored_at(self._imagefs),
            earlier=lambda: clocks_at_start(self.client.runtime_path),
            on_return=partial(self.listeners.tell, "returned"),
            pulls=self.pull_records,
        )
        self.detection = Detection(
            self.inventory,
            self.pods,
            self.records,
            part_ages=PartAges(clock),
            clock=clock,
        )
        self.disk_survey = DiskSurvey(
            self.summary.observe,
            self._places,
            lambda: self.pods.marked(directories.pod_states()),
            service=self._service,
            clock=clock,
        )
        self._stages = Stages(lambda: self.world, self.context, clock)
        self.forget = self._stages.forget
        self.client.on_call = self._called
        self.owner = Owner(
            self._first_world(dry_run=dry_run),
            self,
            self.samplers,
            listeners=self.listeners,
            workers=workers,
            clock=clock,
            stopping=self.stopping,
        )

    def _layers(self, left: Callable[[], float]) -> Layers | None:
        """What each image holds on the disk; None if that is not known. containerd tells it over
        its own services, CRI-O by its files: whichever runtime answers at the time.

        `left`: how many seconds there are to ask.
        """
        return self._held.read(left) or stored_layers(self._imagefs)

    @property
    def _imagefs(self) -> str:
        return self.summary.paths.imagefs or ""

    def _places(self) -> Places:
        configuration = self.configuration
        paths = self.summary.paths
        return Places(
            configuration.root_directory,
            configuration.pod_logs_dir,
            stores=tuple(map(store_of, filter(None, (paths.imagefs, paths.containerfs)))),
            caches=tuple(path for entry in configuration.functions for path in entry.caches),
            frees={entry.name: entry.frees for entry in configuration.functions},
        )

    def _service(self) -> CriClient | None:
        if not self.configuration.has_runtime:
            return None
        return CriClient(self.endpoint.runtime, self.endpoint.image, ASK_SECONDS)

    def _first_world(self, *, dry_run: bool) -> World:
        now = self.clock.monotonic()
        images = PeriodicImages(
            now, self.image_fs_space, lambda: self.configuration.extent is Extent.ALL
        )
        world = first_world(
            self.first_configuration,
            table_of(*self.functions.values(), PERIODIC_CONTAINERS, images.function()),
            self.summary.paths,
            now=now,
            wall=self.clock.wall(),
        )
        return world._replace(
            imagefs_problem=self.summary.imagefs_problem,
            dry_run=dry_run,
            ids_begin=os.urandom(3).hex(),
        )

    @property
    def world(self) -> World:
        """Everything that is known and under way now."""
        return self.owner.world

    @property
    def present(self) -> World:
        """The same, by the clock as it is now and not as it was at the last turn."""
        return self.world._replace(now=self.clock.monotonic(), wall=self.clock.wall())

    @property
    def configuration(self) -> Configuration:
        """The one in force."""
        return self.world.configuration

    # ---- what is asked of it

    def begin_on_its_own(self, hold_off_seconds: float) -> None:
        """From now on it looks and relieves by itself, once this thread, or
        another one, is its owner.
        """
        self.owner.own()
        now = self.clock.monotonic()
        periodic: Loops = {}
        if self.configuration.periodic_gc:
            periodic = loops(now, images=policies_of(self.configuration).images.has_periodic_work)
        self.owner.world = self.world._replace(
            now=now,
            on_its_own=True,
            look_due=now,
            hold_off_until=now + hold_off_seconds,
            periodic=periodic,
        )

    def locate(self) -> str:
        """Asks the runtime where its images are; returns why that is unknown, in a sentence, or an
        empty string."""
        located = self._located()
        self.owner.post(located)
        return located.problem

    def _located(self) -> Located:
        problem = super().locate()  # which fills the summary
        return Located(self.summary.paths, problem)

    def look(self) -> tuple[SignalObservations, Decision]:
        """Observes the node by readings that begin now, or cannot be had, and decides; even if the
        daemon, whose looks do not wait so long, has decided about the same readings."""
        asked_at = self.clock.monotonic()
        while True:
            world = self.world
            # one that has begun already may not know what is known now
            before = world.looks + (world.look is not None)
            self.owner.post(LookWanted(urgent=True))
            self.owner.until(partial(self._has_looked, before))
            world = self.world
            if all(each.tried_since(asked_at, world.now) for each in world.readings.values()):
                manager = world.manager._replace(last_observations={})
                return world.observations, synchronize(world.config, manager, world.observations)[1]

    def _has_looked(self, before: int) -> bool:
        return self.world.looks > before

    def want(
        self,
        observations: SignalObservations,
        decision: Decision,
        trigger: Trigger,
        *,
        request: Request | None = None,
        signal: Signal | None = None,
    ) -> PassWanted:
        """Asks for a pass, whose record will be in `record`. `signal`: what it is about; None:
        what the decision acts on."""
        wanted = PassWanted(
            observations,
            decision,
            trigger,
            request=request or Request(),
            signal=signal,
            asked_at=self.clock.monotonic(),
        )
        self.owner.post(wanted)
        return wanted

    def withdraw(self, wanted: PassWanted) -> bool:
        """Nobody waits for this pass any more; returns whether that was before
        it began: then it does not.
        """
        event = Withdrawn(wanted)
        return self.owner.ask(event, event.done)

    def relieve(
        self,
        observations: SignalObservations,
        decision: Decision,
        trigger: Trigger,
        *,
        request: Request | None = None,
    ) -> Pass:
        """Runs the pass that follows. Never raises because of the runtime or a single object."""
        while True:
            wanted = self.want(observations, decision, trigger, request=request)
            self.owner.until(wanted.record.done)
            # None: another pass has ended there meanwhile
            if (record := wanted.record.result()) is not None:
                return record

    def reconfigure(self, configuration: Configuration) -> tuple[str, ...]:
        """Has another configuration come into force, except for the fields that need a restart;
        returns those that differ. From then on, passes that were made before send nothing more."""
        event = Reconfigured(configuration)
        changed = self.owner.ask(event, event.done)
        limit = most_at_work(self.configuration.parallel_removals)
        self.owner.workers.limit = self.directory_threads.limit = limit
        return changed

    def pause_left_seconds(self) -> float:
        """How much longer an operator's pause lasts; 0 without one."""
        return self.present.pause_left_seconds()

    def pause(self, seconds: float, unknown: str = "", *, if_unknown: bool = False) -> int:
        """Nothing is removed for so long, 0: removals go on. Once it returns, that is in force:
        nothing is sent any more but what it returns the number of, the removals that were sent
        before and have not ended."""
        event = PauseSet(seconds, unknown, if_unknown)
        return self.owner.ask(event, event.done)

    # ---- what is carried out for its owner

    def perform(self, job: Job) -> Event:
        """Carries out one effect, on a worker."""
        match job:
            case Plan():
                return self._stages.plan(job)
            case Check():
                return self._stages.check(job)
            case Send():
                return self._stages.send(job)
            case Locate():
                located = self._located()
                if not located.problem and self.dry_run:
                    with suppress(NoThread):  # the next answer comes soon
                        self.owner.workers.run(self.shadow)
                return located
            case Refresh():
                return self.detection.refresh(
                    lambda: self.world.asks_the_runtime() or self.stopping.is_set()
                )
            case WriteBack(path, device, coming_bytes):
                write_back(path, coming_bytes)
                return WrittenBack(device)

    def context(self, facts: Callable[[], PassFacts]) -> ReclaimContext:
        """What the stages of one pass may use."""
        return ReclaimContext(
            self.client,
            self.pods,
            self.inventory,
            records=self.records,
            part_ages=self.detection.part_ages,
            clock=self.clock,
            policies=policies_of(self.configuration),
            log_paths=self.log_paths,
            stopping=self.stopping,
            facts=facts,
        )

    def pull_records(self, containers: Iterable[Container]) -> PullRecords:
        """The kubelet's records of pulls, if it keeps them and its directories are trusted.

        `containers`: all.
        """
        configuration = self.configuration
        doubt = self.pods.doubt
        kept = configuration.kubelet_version.has(RECORDS_PULLS)
        if configuration.kubelet is not None:
            kept = configuration.kubelet.feature_gates.get(RECORDS_PULLS_GATE, kept)
        if not kept:
            return PullRecords(
                problem=f"the kubelet keeps no records of pulls ({RECORDS_PULLS_GATE} is off)"
            )
        if doubt is not None:
            return PullRecords(problem=doubt.sentence)
        return pull_records(configuration.root_directory, containers, self._directories_in_time)

    def function_problems(self) -> tuple[tuple[str, str], ...]:
        """Functions that cannot be called at present: the name, and the reason in a sentence.
        Asks the runtime only for functions that need a particular one, and leaves them out
        while it does not answer."""
        problems = []
        for function in self.functions.values():
            if function.examine is None:
                continue
            try:
                function.examine(self.client, self.log_paths)
            except RuntimeUnavailable:
                continue
            except ReclaimError as error:
                problems.append((function.name, str(error)))
        return tuple(problems)

    def prepare(self) -> None:
        """Makes what a pass needs now: threads, descriptors, modules. So none of
        it can fail under pressure.

        Raises CannotPrepare with one sentence.
        """
        for name in IMPORTED_LATER:
            import_module(name)
        parallel = self.configuration.parallel_removals
        try:
            self.owner.workers.prepare(at_work_at_once(parallel))
            self.samplers.prepare(self.world.paths.distinct())
            self.directory_threads.prepare(parallel + 1)
            self.client.prepare(limit_in_flight(parallel) + READERS)
        except NoThread as error:
            raise CannotPrepare(
                f"{error}; is the limit on processes (pids.max, TasksMax=) reached?"
            ) from None
        except OSError as error:
            raise CannotPrepare(
                f"no sockets can be made for the runtime: {reason_of(error)}"
            ) from None

    @property
    def dry_run(self) -> bool:
        """Whether nothing is removed, only reported."""
        return self.world.removes_nothing

    @property
    def threads_not_started(self) -> int:
        """How many times a thread could not be started."""
        return sum(
            pool.not_started
            for pool in (
                self.owner.workers,
                self.sampler_threads,
                self.directory_threads,
                self.disk_survey.workers,
            )
        )

    # the form of a CallObserver
    def _called(self, call: str, seconds: float, failed: bool) -> None:
        progress = self._stages.progress()
        if progress is not None:
            self.owner.post(progress)
        self.listeners.tell("called", call, seconds, failed)

    def image_fs_space(self) -> tuple[int, int]:
        """Capacity and available bytes of the image filesystem, for the periodic image GC.

        Asks the runtime for its path and reads the filesystem on the caller's thread.
        Raises ReclaimError or OSError.
        """
        problem = super().locate()
        path = self.summary.paths.imagefs
        if problem or path is None:
            raise RuntimeUnavailable(problem or "the image filesystem is not known")
        stats = self._reader(path, self.clock.monotonic()).stats
        return stats.capacity_bytes, stats.available_bytes

    def restore_image_records(self) -> str:
        """Loads the saved image records, if they can be read within a second. Returns why not, in a
        sentence, else an empty string; a missing file is not a failure."""
        if self.record_file is None:
            return ""
        loaded = self.record_file.load()
        self.records.restore(loaded)
        return loaded.problem

    @property
    def pod_state_source(self) -> str:
        """Where the last states of pods came from: `kubelet` or `directories`."""
        listed = self.pods.ask is not None and not self.pods.list_problem
        return "kubelet" if listed else "directories"

    @property
    def pods_problem(self) -> str | None:
        """Why the kubelet's list of pods was not available although it is configured;
        None if it was, or is not.
        """
        return self.pods.list_problem if self.configuration.expects_kubelet else None

    @property
    def pods_doubt(self) -> Distrust | None:
        """Why no pod counts as gone: the kubelet's directories are not believed. None if they are,
        or if there is no runtime to ask."""
        return self.pods.doubt if self.configuration.has_runtime else None

    def close(self) -> None:
        """Waits for removals that were sent, at most 30 s, and then ends threads and connections.

        While a removal is unanswered they are kept: closing its connection would cancel it.
        """
        self.directory_threads.close()
        self.stopping.set()
        if self.owner.drained(DRAIN_SECONDS):
            self.owner.workers.close()
            super().close()


# ---- what a node is made of

# workers besides those that remove: plans of passes and dry runs, a refresh, and some that hang
READERS = 4

Log = Callable[[str, str], None]
"""Takes the name of a function, and a line that its program prints."""


def at_work_at_once(parallel: int) -> int:
    """How many workers there are before they are needed: for the removals of an urgent pass, and
    two that read. More are started when they are needed; what finds none waits if none can be."""
    return max(limit_in_flight(parallel) + 2, most_at_work(1))


def most_at_work(parallel: int) -> int:
    """How many workers there are at most: for urgent removals, late ones, and those that read."""
    return limit_in_flight(parallel) + parallel + 1 + READERS


# ---- the reclaim functions


def policies_of(configuration: Configuration) -> Policies:
    """With `extent: all`, as the kubelet does, our stricter guards are off."""
    return Policies(
        ContainerGCPolicy(
            min_age_seconds=configuration.minimum_container_ttl_seconds,
            max_per_pod_container=configuration.maximum_dead_containers_per_container,
            max_containers=configuration.maximum_dead_containers,
            cautious=configuration.extent is not Extent.ALL,
        ),
        ImageGCPolicy(
            min_age_seconds=configuration.image_minimum_gc_age_seconds,
            max_age_seconds=configuration.image_maximum_gc_age_seconds,
            high_threshold_percent=configuration.image_gc_high_threshold_percent,
            low_threshold_percent=configuration.image_gc_low_threshold_percent,
            keep=configuration.keep_images,
            keep_not_pulled=configuration.keep_images_not_pulled,
            pod_start_seconds=configuration.pod_start_seconds,
            keep_newest_per_repository=configuration.keep_newest_per_repository,
            says_usage=configuration.kubelet_version.has(SAYS_USAGE),
            order=configuration.image_order,
        ),
    )


def functions_of(configuration: Configuration, log: Log) -> FunctionTable:
    """The built-in ones, and those that the configuration names, by name."""
    if not configuration.functions:  # as on most nodes, which do not load what makes them
        return FUNCTIONS
    own = [
        made(entry, configuration.root_directory, log)._replace(
            cooldown_seconds=entry.cooldown_seconds
        )
        for entry in configuration.functions
    ]
    return table_of(*FUNCTIONS.values(), *own)


def made(entry: FunctionEntry, root_dir: str, log: Log) -> ReclaimFunction:
    """A function of the configuration. `root_dir`: the kubelet's."""
    from reclaim.functions.ballast import BallastSettings, release_ballast_function
    from reclaim.functions.caches import CacheSettings, delete_from_caches_function
    from reclaim.functions.checkpoints import CheckpointSettings, delete_checkpoints_function
    from reclaim.functions.containerd_garbage import collect_garbage_function
    from reclaim.functions.rotated_logs import delete_rotated_logs_function
    from reclaim.program.function import Program, ProgramUser, program_function

    name = entry.name
    frees = entry.frees
    match entry.kind:
        case FunctionKind.PROGRAM:
            program = Program(
                name,
                entry.argv,
                entry.timeout_seconds,
                log=partial(log, name),
                user=None if entry.user is None else ProgramUser(*entry.user),
                asks_plan=entry.asks_plan,
            )
            return program_function(program, frees)
        case FunctionKind.BALLAST:
            return release_ballast_function(
                name, BallastSettings(entry.path, entry.size_bytes), frees
            )
        case FunctionKind.ROTATED_LOGS:
            return delete_rotated_logs_function(name, cast(int, entry.keep), frees)
        case FunctionKind.CONTAINERD_GARBAGE:
            return collect_garbage_function(name, entry.timeout_seconds, frees)
        case FunctionKind.CACHES:
            caches = CacheSettings(
                entry.caches,
                entry.min_age_seconds,
                cast(tuple[str, ...], entry.keep),
                entry.max_size_bytes,
            )
            return delete_from_caches_function(name, caches, frees)
        case FunctionKind.CHECKPOINTS:
            checkpoints = CheckpointSettings(root_dir, entry.min_age_seconds, cast(int, entry.keep))
            return delete_checkpoints_function(name, checkpoints, frees)
        case _:
            assert_never(entry.kind)


# ---- what shows which objects are used


class Detection(NamedTuple):
    """Keeps the image records, the layers of images and the ages of pods' parts up to date.

    May block.
    """

    inventory: Inventory
    pods: KubeletPods
    records: ImageRecords
    part_ages: PartAges
    clock: Clock

    def refresh(self, something_urgent: Callable[[], bool]) -> Refreshed:
        """Pods and images, until something more urgent comes, until the next is due at
        most. Who uses them takes a call for each container on some runtimes, minutes for
        thousands of them: the next one does not ask again about those already answered for,
        and a pass asks for itself."""
        began = self.clock.monotonic()

        def goes_on() -> bool:
            return self.clock.monotonic() - began < SELDOM_SECONDS and not something_urgent()

        try:
            self.compare_pods()
            self.images(goes_on)
        except GivenUp:
            return Refreshed(given_up=True)
        except RuntimeUnavailable as error:
            return Refreshed(str(error))
        return Refreshed()

    def images(self, goes_on: Callable[[], bool] = lambda: True) -> None:
        """Lists images and who uses them. `goes_on`: checked from time to time; once it is false,
        GivenUp is raised. Raises RuntimeUnavailable."""
        detected_at = self.clock.monotonic()
        wall = self.clock.wall()
        evidence = self.inventory.snapshot(detected_at, goes_on)
        listing = evidence.listing
        # an older list must not bring back the record of an image that a pass has removed meanwhile
        if not goes_on():
            raise GivenUp("something more urgent has begun")
        self.records.update(
            listing.images,
            evidence.usage.ids,
            detected_at,
            wall_now=wall,
            containers=listing.containers,
        )
        directories = self.pods.pod_directories() or {}
        self.part_ages.ages(parts_of_pods(listing.containers, listing.sandboxes, directories))
        self.inventory.learn_layers(listing.images, goes_on)

    def compare_pods(self) -> Distrust | None:
        """Compares the kubelet's directories with what the runtime holds now.

        Raises RuntimeUnavailable.
        """
        return self.inventory.pods_and_containers(self.clock.monotonic())[0].doubt
