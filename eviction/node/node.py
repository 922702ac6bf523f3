"""One node: everything that observes it, decides for it and reclaims on it, put together.

The daemon, `reclaimd reclaim`, dry runs, the drill and the tests all use `Node`, so all of them run the same code. Its
`Responder` keeps the state between observations; what one pass does is in `one_pass`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from typing import assert_never

from eviction.configuration.effective import (
    USUAL_ENDPOINTS,
    Configuration,
    eviction_config,
    needing_restart,
    until_restart,
)
from eviction.configuration.file import FunctionEntry, FunctionKind
from eviction.configuration.kubelet_versions import RECORDS_PULLS, RECORDS_PULLS_GATE
from eviction.configuration.kubelet_ways import asking_for_pods
from eviction.configuration.policies import policies_of
from eviction.decision.headroom import FillRates, update_fill_rates
from eviction.decision.synchronize import ManagerState, synchronize
from eviction.listener import Listeners
from eviction.node.hold_off import KubeletWatch, Pause
from eviction.node.one_pass import OnePass, PassScope, Request
from eviction.node.state_file import RecordFile
from eviction.node.view import NodeView
from eviction.record import Pass, Trigger
from eviction.reporting.replay import History, HistoryEntry
from eviction.reporting.space import ASK_SECONDS, DiskSurvey, Places
from eviction.types import Decision, EvictionError, Extent, FunctionUnusable
from reclaim.containerd import HeldLayers, brought_at, clocks_at_start
from reclaim.cri.client import READ_DEADLINE_SECONDS, CriClient
from reclaim.execution.executor import Executor, Experience
from reclaim.execution.removals import Removals, most_in_flight
from reclaim.execution.workers import NoThread, ReadingsInTime, Workers, call_was_answered, in_time
from reclaim.function import Policies, ReclaimContext, ReclaimFunction
from reclaim.functions import FUNCTIONS, FunctionTable, table_of
from reclaim.images.pull_records import PullRecords, pull_records
from reclaim.images.records import ImageRecords
from reclaim.images.references import images_in_use
from reclaim.images.storage import store_of, stored_at, stored_layers
from reclaim.inventory import GivenUp, Inventory
from reclaim.pod_logs.names import LogPaths
from reclaim.pods.kubelet_pods import KubeletDirectories, KubeletPods
from reclaim.pods.starts import PartAges, parts_of_pods
from reclaim.pods.states import Doubt
from reclaim.types import NEVER, Container, Reason, ReclaimError, RuntimeUnavailable
from signals.clock import Clock
from signals.filesystems import FilesystemReader
from signals.types import KUBELET_ROLES, SignalObservations

# Imported where they are used, so that commands without them start faster; the daemon imports them at its start.
IMPORTED_LATER = ("tenacity", "ipaddress", "json")

DIRECTORY_SECONDS = 2.0  # the longest wait for one look at the kubelet's directories, as for statvfs
MOST_DIRECTORY_THREADS = 80  # one for each container that is removed side by side, and one for a pass
BESIDE_REMOVALS = 4  # other calls that may be waiting for an answer: of passes, a refresh, a dry run
PLUGIN_SECONDS = 30.0  # to import and construct one plugin
DRAIN_SECONDS = 30.0  # the longest wait at the end for removals that were sent


class CannotPrepare(EvictionError):
    """Something that a pass needs cannot be made. The message is one sentence."""


@dataclass(slots=True)
class Responder:
    """Observes the node and decides; what all its passes have in common. `synchronize` is for one thread at a time;
    passes on different filesystems may run side by side.

    `context`: makes what the stages of one pass may use. `removal_seconds`: how long removals have taken lately.
    `extent`, `lead`: as configured. `cooling_until`: until when a function is not called again (monotonic seconds).
    `fill_rates`: only `synchronize` writes them; a pass, which reads more often, continues from them on its own.
    """

    observe: Callable[[], SignalObservations]
    functions: FunctionTable
    clock: Clock
    context: Callable[[PassScope], ReclaimContext]
    removal_seconds: Callable[[], float]
    state: ManagerState
    extent: Extent = Extent.ENOUGH
    lead: bool = True
    cooling_until: dict[str, float] = field(default_factory=dict)
    fill_rates: FillRates = field(default_factory=dict)
    history: History = field(default_factory=History)

    def functions_here(self, observations: SignalObservations) -> tuple[str, ...]:
        """All functions that rows name and that free space on a filesystem of this node."""
        roles, named = observations.filesystems, self.state.config.functions
        return tuple(name for name, one in self.functions.items() if name in named and one.frees in roles)

    @property
    def lead_seconds(self) -> float:
        """How long before the kubelet's mark a pass begins at the latest: as long as removals have taken lately. 0 if
        the lead is switched off, or if it gains nothing because the pass goes to the end of its row."""
        return self.removal_seconds() if self.lead and self.extent is Extent.ENOUGH else 0.0

    def synchronize(self) -> tuple[SignalObservations, Decision]:
        """Observes the node and decides; records both in the history."""
        observations = self.observe()
        before = self.state
        self.state, decision = synchronize(before, observations, observations.time)
        self.fill_rates = update_fill_rates(self.fill_rates, observations)
        observations = replace(observations, polls={})  # the fill rates include them
        self.history.add(HistoryEntry(before, observations, decision))
        return observations, decision

    def reclaim(
        self,
        observations: SignalObservations,
        decision: Decision,
        trigger: Trigger,
        request: Request | None = None,
        begun: Callable[[OnePass], None] = lambda _: None,
    ) -> Pass:
        """Makes the pass that follows, tells `begun`, and runs it. Never raises because of the runtime or a single
        object."""
        running = OnePass(self, observations, decision, trigger, request)
        begun(running)
        return running.run()


class Node(NodeView):
    """One node. The constructor does no I/O, except that it imports the plugins of the configuration.

    `functions`: those of the node; None: as configured. Raises FunctionUnusable for a plugin that cannot be loaded.
    """

    def __init__(
        self,
        configuration: Configuration,
        *,
        dry_run: bool = False,
        stopping: threading.Event | None = None,
        reader: FilesystemReader | None = None,
        clock: Clock | None = None,
        read_deadline_seconds: float = READ_DEADLINE_SECONDS,
        records: ImageRecords | None = None,
        usual_endpoints: Sequence[str] = USUAL_ENDPOINTS,
        functions: FunctionTable | None = None,
    ):
        super().__init__(
            configuration,
            reader=reader,
            clock=clock,
            read_deadline_seconds=read_deadline_seconds,
            usual_endpoints=usual_endpoints,
        )
        self.stopping = stopping or threading.Event()
        self.listeners = Listeners()
        self._given_functions = functions
        self.functions = self._made_functions()
        self._dry_run_asked = dry_run
        self.next_configuration: Configuration | None = None
        """One that was loaded and is not in force yet. Until it is, nothing more is sent."""
        self.pause = Pause(self.clock.monotonic, self.clock.wall)
        self.client.on_call = self._called
        self.removals = Removals(self.clock, self.stopping, configuration.parallel_removals, self.listeners)
        earlier = lambda: clocks_at_start(self.client.runtime_path)  # noqa: E731 # of whichever runtime answers then
        self.records = records or ImageRecords(
            self._pulled_at, earlier=earlier, on_return=self.listeners.returned, pulls=self.pull_records
        )
        self.record_file = RecordFile(configuration.state_file, self.clock) if configuration.state_file else None
        self.directory_threads = Workers("the kubelet's directories", MOST_DIRECTORY_THREADS)
        self._directories_in_time = ReadingsInTime(self.directory_threads, DIRECTORY_SECONDS)
        directories = KubeletDirectories(configuration.root_directory, self._directories_in_time)
        watched_seconds = NEVER if configuration.terminated_by_evidence else configuration.hold_off_seconds
        self.kubelet_watch = KubeletWatch(configuration.kubelet_healthz, watched_seconds)
        ask = asking_for_pods(configuration.kubelet_access, self.clock, configuration.kubelet_version)
        seen = self.kubelet_watch.healthy_since if configuration.terminated_by_evidence else None
        self.pods = KubeletPods(directories, self.clock, ask, seen, configuration.terminated_pod_age_seconds)
        held = HeldLayers(self.client)
        self.inventory = Inventory(
            self.client,
            self.client,
            self.pods,
            self.clock,
            lambda left: held.read(left) or stored_layers(self.summary.paths.imagefs or ""),
        )
        self.experience = Experience()
        self.part_ages = PartAges(self.clock)
        self.log_paths = LogPaths(configuration.pod_logs_dir, configuration.container_logs_dir)
        self.disk_survey = DiskSurvey(
            self.summary.observe,
            self.places,
            lambda: self.pods.marked(directories.pod_states()),
            self._survey_client,
            self.clock,
        )
        self.responder = Responder(
            self.summary.observe,
            self.functions,
            self.clock,
            self.context,
            lambda: self.experience.seconds,
            ManagerState(eviction_config(configuration)),
            configuration.extent,
            configuration.lead,
        )

    def _made_functions(self) -> FunctionTable:
        """The built-in functions and those of the configuration. Raises FunctionUnusable."""
        if self._given_functions is not None:
            return self._given_functions
        if not self.configuration.functions:
            return FUNCTIONS
        return table_of(*FUNCTIONS.values(), *_own_functions(self.configuration, self.listeners.program_line))

    def responder_of_dry_runs(self) -> Responder:
        """For a dry run beside the passes: it has its own functions, because a plugin plans on one thread at a time,
        and its passes cannot remove anything. Raises FunctionUnusable."""
        context = lambda scope: self.context(replace(scope, dry_run=True))  # noqa: E731 # one expression
        return replace(self.responder, functions=self._made_functions(), context=context)

    def context(self, scope: PassScope) -> ReclaimContext:
        """What the stages of one pass may use, with an executor of its own."""
        configuration, config = self.configuration, scope.config or self.responder.state.config
        ignored = self.pause.count if scope.while_paused else None

        def brake() -> Reason | None:
            if self.next_configuration is not None or config is not self.responder.state.config:  # each load makes one
                return Reason.RECONFIGURED
            return None if self.pause.why() is None or self.pause.count == ignored else Reason.PAUSED

        executor = Executor(
            self.removals,
            parallel=scope.parallel or configuration.parallel_removals,
            dry_run=scope.dry_run or self.dry_run,
            patience_seconds=configuration.removal_patience_seconds,
            btrfs=scope.btrfs,
            most=scope.most,
            gives_way=scope.gives_way,
            brake=brake,
            moved=scope.moved,
            experience=self.experience,
        )
        return ReclaimContext(
            self.client,
            self.client,
            self.pods,
            self.inventory,
            self.records,
            self.part_ages,
            self.clock,
            self.policies(),
            self.log_paths,
            executor,
            scope.pressure,
        )

    def detect_images(self, goes_on: Callable[[], bool] = lambda: True) -> None:
        """Lists images and who uses them, for the image records only, alongside everything else. `goes_on`: checked
        from time to time; once it is false, GivenUp is raised. Raises RuntimeUnavailable."""
        detected_at, wall = self.clock.monotonic(), self.clock.wall()
        listing = self.inventory.snapshot(detected_at, goes_on)
        if not goes_on():  # an older list must not bring back the record of an image that a pass has removed meanwhile
            raise GivenUp("something more urgent has begun")
        usage = images_in_use(listing, self.inventory.index_of(listing.images))
        self.records.update(listing.images, usage.ids, detected_at, wall, listing.containers)
        directories = self.pods.pod_directories() or {}
        self.part_ages.ages(parts_of_pods(listing.containers, listing.sandboxes, directories))
        self.inventory.learn_layers(listing.images, goes_on)

    def pull_records(self, containers: Iterable[Container]) -> PullRecords:
        """The kubelet's records of pulls, if it keeps them and its directories are trusted. `containers`: all."""
        gates = {} if self.configuration.kubelet is None else self.configuration.kubelet.feature_gates
        if not gates.get(RECORDS_PULLS_GATE, self.configuration.kubelet_version.has(RECORDS_PULLS)):
            return PullRecords(problem=f"the kubelet keeps no records of pulls ({RECORDS_PULLS_GATE} is off)")
        if (doubt := self.pods.doubt) is not None:
            return PullRecords(problem=doubt.sentence)
        return pull_records(self.configuration.root_directory, containers, self._directories_in_time)

    def _survey_client(self) -> CriClient | None:
        runtime, image = self.endpoint.runtime, self.endpoint.image
        return CriClient(runtime, image, ASK_SECONDS) if self.configuration.has_runtime else None

    def function_problems(self) -> tuple[tuple[str, str], ...]:
        """Functions that cannot be called at present: the name, and the reason in a sentence. Asks the runtime only for
        functions that need a particular one, and leaves them out while it does not answer."""
        problems = []
        for function in self.functions.values():
            try:
                if function.examine is not None:
                    function.examine(self.client, self.log_paths)
            except RuntimeUnavailable:
                continue
            except ReclaimError as error:
                problems.append((function.name, str(error)))
        return tuple(problems)

    def prepare(self) -> None:
        """Makes what a pass needs now: threads, descriptors, modules. So none of it can fail under pressure.

        Raises CannotPrepare with one sentence.
        """
        for name in IMPORTED_LATER:
            import_module(name)
        try:
            self.removals.prepare()
            self.probe_threads.prepare(len(KUBELET_ROLES) + len(self.configuration.filesystems))
            self.directory_threads.prepare(self.configuration.parallel_removals + 1)
            self.client.prepare(most_in_flight(self.configuration.parallel_removals) + BESIDE_REMOVALS)
        except NoThread as error:
            raise CannotPrepare(f"{error}; is the limit on processes (pids.max, TasksMax=) reached?") from None
        except OSError as error:
            raise CannotPrepare(f"no sockets can be made for the runtime: {error.strerror or error}") from None

    @property
    def dry_run(self) -> bool:
        """Whether nothing is removed, only reported."""
        return self._dry_run_asked or self.configuration.dry_run

    @property
    def threads_not_started(self) -> int:
        """How many times a thread could not be started."""
        pools = (self.removals.workers, self.probe_threads, self.directory_threads)
        return sum(pool.not_started for pool in pools) + self.disk_survey.threads_not_started

    def _called(self, call: str, seconds: float, failed: bool) -> None:  # the form of a CallObserver
        call_was_answered()
        self.listeners.called(call, seconds, failed)

    def policies(self) -> Policies:
        """The garbage collection policies as configured now."""
        return policies_of(self.configuration)

    def image_fs_space(self) -> tuple[int, int]:
        """Capacity and available bytes of the image filesystem, for the periodic image GC.

        Asks the runtime for its path and reads the filesystem on the caller's thread. Raises ReclaimError or OSError.
        """
        problem = self.locate()
        path = self.summary.paths.imagefs
        if problem is not None or path is None:
            raise RuntimeUnavailable(problem or "the image filesystem is not known")
        stats = self._reader(path, self.clock.monotonic()).stats
        return stats.capacity_bytes, stats.available_bytes

    def restore_image_records(self) -> str:
        """Loads the saved image records, if they can be read within a second. Returns why not, in a sentence, else an
        empty string; a missing file is not a failure."""
        if self.record_file is None:
            return ""
        loaded = self.record_file.load()
        self.records.restore(loaded)
        return loaded.problem

    @property
    def pod_state_source(self) -> str:
        """Where the last states of pods came from: `kubelet` or `directories`."""
        return "kubelet" if self.pods.ask is not None and not self.pods.list_problem else "directories"

    @property
    def pods_problem(self) -> str | None:
        """Why the kubelet's list of pods was not available although it is configured; None if it was, or is not."""
        return self.pods.list_problem if self.configuration.expects_kubelet else None

    @property
    def pods_doubt(self) -> Doubt | None:
        """Why no pod counts as gone: the kubelet's directories are not believed. None if they are, or if there is no
        runtime to ask."""
        return self.pods.doubt if self.configuration.has_runtime else None

    def compare_pods(self) -> Doubt | None:
        """Compares the kubelet's directories with what the runtime holds now. Raises RuntimeUnavailable."""
        return self.inventory.pods_and_containers(self.clock.monotonic())[0].doubt

    def reconfigure(self, configuration: Configuration) -> tuple[str, ...]:
        """Applies another configuration, except for the fields that need a restart; returns those that differ.

        Passes that were made before send nothing more. For the thread of `Responder.synchronize`.
        """
        changed = needing_restart(self.configuration, configuration)
        self.configuration = until_restart(self.configuration, configuration)
        self.removals.set_parallel(configuration.parallel_removals)
        responder, config = self.responder, eviction_config(self.configuration)
        responder.state = replace(responder.state, config=config)  # thresholds that stay keep their state
        responder.extent, responder.lead = configuration.extent, configuration.lead
        return changed

    def close(self) -> None:
        """Waits for removals that were sent, at most 30 s, and then ends threads and connections.

        While a removal is unanswered they are kept: closing its connection would cancel it.
        """
        self.directory_threads.close()
        self.kubelet_watch.close()
        if self.removals.wait(DRAIN_SECONDS):
            self.removals.workers.close()
            super().close()

    def _pulled_at(self) -> Mapping[str, float]:
        return brought_at(self.client) or stored_at(self.summary.paths.imagefs or "")

    def places(self) -> Places:
        """The directories of the kubelet and of the runtime, as far as it has been located."""
        configuration, paths = self.configuration, self.summary.paths
        stores = tuple(store_of(path) for path in (paths.imagefs, paths.containerfs) if path is not None)
        return Places(configuration.root_directory, configuration.pod_logs_dir, stores)


def _own_functions(configuration: Configuration, log: Callable[[str, str], None]) -> Iterator[ReclaimFunction]:
    """The reclaim functions of the configuration. Plugins are imported and constructed here.

    `log`: takes each line that a program prints. Raises FunctionUnusable.
    """
    from reclaim.ballast import BallastSettings, release_ballast_function  # most nodes have none of these functions
    from reclaim.containerd import collect_garbage_function
    from reclaim.plugins import PluginFailed, load, plugin_function
    from reclaim.programs import Program, ProgramUser, program_function
    from reclaim.rotated_logs import delete_rotated_logs_function

    def made(function: FunctionEntry) -> ReclaimFunction:
        name, frees, timeout_seconds = function.name, function.frees, function.timeout_seconds
        match function.kind:
            case FunctionKind.PROGRAM:
                user = None if function.user is None else ProgramUser(function.user.uid, function.user.gid)
                own_log, asks = partial(log, name), function.asks_plan
                return program_function(Program(name, function.argv, timeout_seconds, own_log, user, asks), frees)
            case FunctionKind.PLUGIN:
                try:
                    options = dict(function.options)
                    plugin = in_time(lambda: load(function.entry_point, function.distribution, options), PLUGIN_SECONDS)
                    return plugin_function(name, plugin, frees)
                except (OSError, PluginFailed) as error:
                    why = (error.strerror if isinstance(error, OSError) else None) or str(error)
                    raise FunctionUnusable(f"reclaimFunctions: {name}: {why}") from None
            case FunctionKind.BALLAST:
                return release_ballast_function(name, BallastSettings(function.path, function.size_bytes), frees)
            case FunctionKind.ROTATED_LOGS:
                return delete_rotated_logs_function(name, function.keep, frees)
            case FunctionKind.CONTAINERD_GARBAGE:
                return collect_garbage_function(name, timeout_seconds, frees)
            case _:
                assert_never(function.kind)

    for each in configuration.functions:
        yield replace(made(each), cooldown_seconds=each.cooldown_seconds)
