"""One node, assembled: the client, the summary, the image records, the collector, the responder.

Daemon, `reclaimd reclaim`, dry run, drill and tests all use this class, so that all of them run the same code.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module

from eviction.configuration.effective import (
    USUAL_ENDPOINTS,
    Configuration,
    eviction_config,
    needing_restart,
    until_restart,
)
from eviction.configuration.kubelet_ways import asking_for_pods
from eviction.configuration.policies import policies_of
from eviction.decision.reclaim_table import RECLAIM_TABLE, ReclaimTable
from eviction.decision.synchronize import EvictionConfig
from eviction.listener import Listeners
from eviction.node.hold_off import Pause
from eviction.node.kubelet_watch import KubeletWatch
from eviction.node.one_pass import Cooldowns, Setting
from eviction.node.responder import Responder
from eviction.node.view import NodeView
from eviction.reporting.disk_survey import ASK_SECONDS, DiskSurvey, Places
from eviction.types import EvictionError
from reclaim.cri.client import READ_DEADLINE_SECONDS, CriClient
from reclaim.cri.containerd import brought_at, clocks_at_start
from reclaim.execution.executor import Executor, Experience
from reclaim.execution.readings import ReadingsInTime, call_was_answered
from reclaim.execution.removals import Removals, most_in_flight
from reclaim.execution.workers import NoThread, Workers
from reclaim.function import NO_PRESSURE, Policies, Pressure, ReclaimContext
from reclaim.functions import FUNCTIONS, FunctionTable
from reclaim.images.in_use import images_in_use
from reclaim.images.records import ImageRecords
from reclaim.images.records_file import RecordFile, load_in_time
from reclaim.inventory import GivenUp, Inventory
from reclaim.pod_logs.names import LogPaths
from reclaim.pods.believed_pods import BelievedPods
from reclaim.pods.kubelet_directories import KubeletDirectories
from reclaim.pods.starts import Sightings, parts_of_pods
from reclaim.pods.states import Doubt
from reclaim.types import NEVER, ReclaimError, RuntimeUnavailable
from signals.clock import Clock
from signals.filesystems import FilesystemPaths, FilesystemReader
from signals.probe import Probes
from signals.summary import NodeSummary
from signals.types import KUBELET_ROLES

# Imported where they are used, for the sake of commands that do not need them; the daemon imports them at its start.
IMPORTED_LATER = ("tenacity", "ipaddress", "json")

DIRECTORY_SECONDS = 2.0  # how long one question to the kubelet's directories may take, as for statvfs
MOST_DIRECTORY_THREADS = 80  # one for each removal of a container side by side, and a pass
BESIDE_REMOVALS = 4  # that may wait for an answer: a pass, a refresh, a dry run, a reading ahead
DRAIN_SECONDS = 30.0  # the longest wait for removals that were sent, at the end


class CannotPrepare(EvictionError):
    """What a pass needs cannot be made. The message is one sentence."""


class Node(NodeView):
    """One node, assembled. The constructor does no I/O, but for plugins of the configuration, which it imports.

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
        summarize: Callable[[FilesystemPaths, Probes, Clock], NodeSummary] = NodeSummary,
        usual_endpoints: Sequence[str] = USUAL_ENDPOINTS,
        functions: FunctionTable | None = None,
        reclaim_table: ReclaimTable = RECLAIM_TABLE,
    ):
        super().__init__(
            configuration,
            reader=reader,
            clock=clock,
            read_deadline_seconds=read_deadline_seconds,
            summarize=summarize,
            usual_endpoints=usual_endpoints,
        )
        self.stopping = stopping or threading.Event()
        self.listeners = Listeners()
        self._given_functions = functions
        self.functions = self._made_functions()
        self._reclaim_table = reclaim_table
        self._dry_run_asked = dry_run
        self.pause = Pause(self.clock.monotonic, self.clock.wall)
        self.client.on_call = self._called
        self.removals = Removals(self.clock, self.stopping, configuration.parallel_removals, self.listeners)
        earlier = lambda: clocks_at_start(self.client.runtime_path)  # noqa: E731 # of the runtime that answers then
        self.records = records or ImageRecords(partial(brought_at, self.client), earlier=earlier)
        self.record_file = RecordFile(configuration.state_file, self.clock) if configuration.state_file else None
        self.directory_threads = Workers("the kubelet's directories", MOST_DIRECTORY_THREADS)
        in_time = ReadingsInTime(self.directory_threads, DIRECTORY_SECONDS)
        directories = KubeletDirectories(configuration.root_directory, in_time)
        watched_seconds = NEVER if configuration.terminated_by_evidence else configuration.hold_off_seconds
        self.kubelet_watch = KubeletWatch(configuration.kubelet_healthz, watched_seconds)
        ask = asking_for_pods(configuration.kubelet_access, self.clock)
        seen = self.kubelet_watch.healthy_since if configuration.terminated_by_evidence else None
        self.pods = BelievedPods(directories, self.clock, ask, seen, configuration.terminated_pod_age_seconds)
        self.inventory = Inventory(self.client, self.client, self.pods, self.clock)
        self.experience = Experience()
        self.sightings = Sightings(self.clock)
        self.log_paths = LogPaths(configuration.pod_logs_dir, configuration.container_logs_dir)
        self.disk_survey = DiskSurvey(
            self.summary.observe,
            self._places,
            lambda: self.pods.marked(directories.pod_states()),
            self._survey_client,
            self.clock,
        )
        self._setting = Setting(
            self.summary.observe,
            self.functions,
            Cooldowns(),
            self.clock,
            self.context,
            self.make_executor,
            lambda: self.experience.seconds,
        )
        self.responder = Responder(
            self._setting, self._eviction_config(), configuration.extent, lead=configuration.lead
        )

    def _made_functions(self) -> FunctionTable:
        """The built-in functions, and those of the configuration. Raises FunctionUnusable."""
        if self._given_functions is not None:
            return self._given_functions
        if not self.configuration.functions:
            return FUNCTIONS
        from eviction.node.own_functions import functions_of  # only where there are any

        return functions_of(self.configuration, self.listeners.program_line)

    def setting_of_dry_runs(self) -> Setting:
        """For a dry run beside the passes: functions of its own, as a plugin plans on one thread at a time, and
        executors that cannot remove. Raises FunctionUnusable."""
        executor = partial(self.make_executor, dry_run=True)
        return replace(self._setting, functions=self._made_functions(), executor=executor)

    def make_executor(
        self,
        gives_way: Callable[[], bool] = lambda: False,
        most: Callable[[], int | None] = lambda: None,
        *,
        parallel: int | None = None,
        dry_run: bool = False,
    ) -> Executor:
        """An executor for one pass, over the threads and removals of the node. `parallel`: removals side by side; None:
        as configured. `dry_run`: it cannot remove, whatever is configured."""
        return Executor(
            self.clock,
            self.stopping,
            parallel=parallel or self.configuration.parallel_removals,
            dry_run=dry_run or self.dry_run,
            removals=self.removals,
            patience_seconds=self.configuration.removal_patience_seconds,
            most=most,
            gives_way=gives_way,
            experience=self.experience,
        )

    def context(self, executor: Executor, pressure: Callable[[], Pressure] = lambda: NO_PRESSURE) -> ReclaimContext:
        """What the stages of one pass may use."""
        return ReclaimContext(
            self.client,
            self.client,
            self.pods,
            self.inventory,
            self.records,
            self.sightings,
            self.clock,
            self.policies(),
            self.log_paths,
            executor,
            pressure,
        )

    def detect_images(self, goes_on: Callable[[], bool] = lambda: True) -> None:
        """Lists images and who uses them, for the records only, beside whatever else is done. `goes_on`: asked from
        time to time; where it says no, GivenUp is raised. Raises RuntimeUnavailable."""
        listing = self.inventory.snapshot(self.clock.monotonic(), goes_on)
        if not goes_on():  # an image that a pass has removed meanwhile must not be known again by an older list
            raise GivenUp("something more urgent has begun")
        usage = images_in_use(listing, self.inventory.index_of(listing.images))
        self.records.update(listing.images, usage.ids, self.clock.monotonic(), self.clock.wall())
        began = self.pods.start_times() or {}
        self.sightings.ages(parts_of_pods(listing.containers, listing.sandboxes, began))

    def _survey_client(self) -> CriClient | None:
        runtime, image = self.endpoint.runtime, self.endpoint.image
        return CriClient(runtime, image, ASK_SECONDS) if self.configuration.has_runtime else None

    def function_problems(self) -> tuple[tuple[str, str], ...]:
        """Functions that cannot be called as things are: name, and one sentence why. Asks the runtime only for those
        that need a certain one, and says nothing of them while it does not answer."""
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

    def watch_kubelet(self) -> None:
        """Begins to watch whether the kubelet is healthy: as long as that ends the hold-off after the start, and always
        if pods are to count as terminated by what is seen of them. Raises CannotPrepare."""
        try:
            self.kubelet_watch.start()
        except RuntimeError:
            raise CannotPrepare("no thread can be started to watch the kubelet's /healthz") from None

    def prepare(self) -> None:
        """Makes now what a pass needs: threads, descriptors, modules. So nothing of it can fail under pressure.

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
        """Whether nothing is removed, and what would be is only told."""
        return self._dry_run_asked or self.configuration.dry_run

    @property
    def threads_not_started(self) -> int:
        """How many starts of a thread have failed."""
        pools = (self.removals.workers, self.probe_threads, self.directory_threads)
        return sum(pool.not_started for pool in pools) + self.disk_survey.threads_not_started

    def _called(self, call: str, seconds: float, failed: bool) -> None:  # the form of a CallObserver
        call_was_answered()
        self.listeners.called(call, seconds, failed)

    def policies(self) -> Policies:
        """Those of garbage collection, as configured now."""
        return policies_of(self.configuration)

    def image_fs_space(self) -> tuple[int, int]:
        """Capacity and available bytes of the image filesystem, for the periodic image GC.

        Asks the runtime for its path, and reads the filesystem on the caller's thread. Raises ReclaimError or OSError.
        """
        problem = self.locate()
        path = self.summary.paths.imagefs
        if problem is not None or path is None:
            raise RuntimeUnavailable(problem or "the image filesystem is not known")
        stats = self._reader(path, self.clock.monotonic()).stats
        return stats.capacity_bytes, stats.available_bytes

    def restore_image_records(self) -> str:
        """Loads the saved image records, for a command that does not save them. Returns one sentence why they could not
        be loaded, else an empty text; a missing file is no failure."""
        if self.record_file is None:
            return ""
        loaded = load_in_time(self.record_file, Workers("records", 1))
        self.records.restore(loaded.records, loaded.saved)
        return "" if loaded.missing else loaded.problem

    @property
    def pod_state_source(self) -> str:
        """Where the last states of pods came from: `kubelet` or `directories`."""
        return "kubelet" if self.configuration.asks_kubelet and not self.pods_problem else "directories"

    @property
    def pods_problem(self) -> str | None:
        """Why the kubelet's list of pods was not available although it is configured; None if it was."""
        return self.pods.list_problem

    @property
    def pods_doubt(self) -> Doubt | None:
        """Why no pod counts as gone: the kubelet's directories are not believed. None if they are, or nobody asks."""
        return self.pods.doubt if self.configuration.has_runtime else None

    def compare_pods(self) -> Doubt | None:
        """Compares the kubelet's directories with what the runtime holds now. Raises RuntimeUnavailable."""
        return self.inventory.pods_and_containers(self.clock.monotonic()).pods.doubt

    def reconfigure(self, configuration: Configuration) -> tuple[str, ...]:
        """Applies another configuration, except for the fields that need a restart; returns those that differ.

        Must not be called during a pass.
        """
        changed = needing_restart(self.configuration, configuration)
        self.configuration = until_restart(self.configuration, configuration)
        self.removals.set_parallel(configuration.parallel_removals)
        self.responder.set_config(self._eviction_config(), configuration.extent, lead=configuration.lead)
        return changed

    def close(self) -> None:
        """Waits for removals that were sent, 30 s at most, and then ends threads and connections.

        While a removal is not answered they stay: closing its connection would cancel it.
        """
        self.directory_threads.close()
        self.kubelet_watch.close()
        if self.removals.wait(DRAIN_SECONDS):
            self.removals.workers.close()
            super().close()

    def _eviction_config(self) -> EvictionConfig:
        return replace(eviction_config(self.configuration), reclaim_table=self._reclaim_table)

    def _places(self) -> Places:
        configuration = self.configuration
        return Places(configuration.root_directory, configuration.pod_logs_dir, self.summary.paths.imagefs)
