"""One node, assembled: the client, the summary, the image records, the collector, the responder.

Daemon, `reclaimd reclaim`, dry run, drill and tests all use this class, so that all of them run the same code.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from weakref import WeakKeyDictionary

from eviction.configuration.effective import USUAL_ENDPOINTS, Configuration
from eviction.decision.headroom import PollPolicy
from eviction.decision.reclaim_table import RECLAIM_TABLE, ReclaimTable
from eviction.decision.synchronize import EvictionConfig
from eviction.node.hold_off import Pause
from eviction.node.kubelet_watch import KubeletWatch
from eviction.node.pod_source import believed_pods
from eviction.node.policies import policies_of
from eviction.node.responder import BeginPass, Responder
from eviction.node.view import NodeView, eviction_config
from eviction.reporting.disk_survey import ASK_SECONDS, DiskSurvey, Places
from eviction.types import EvictionError, Threshold
from reclaim.cri.calls import READ_DEADLINE_SECONDS, CallObserver
from reclaim.cri.client import CriClient
from reclaim.cri.image_store import brought_at, clocks_at_start
from reclaim.disk_need import most_in_flight
from reclaim.execution.executor import Executor
from reclaim.execution.readings import ReadingsInTime, call_was_answered
from reclaim.execution.removals import Removals
from reclaim.execution.workers import NoThread, Workers
from reclaim.functions import FUNCTIONS, Collector, FunctionTable, Policies, ReclaimContext
from reclaim.images.lister import Lister
from reclaim.images.pod_startup import PodStarts
from reclaim.images.records import ImageRecords
from reclaim.images.records_file import RecordFile, load_in_time
from reclaim.pod_logs.names import LogPaths
from reclaim.pods.believed_pods import BelievedPods
from reclaim.pods.kubelet_directories import KubeletDirectories
from reclaim.pods.states import Doubt
from reclaim.types import Outcome, Result, RuntimeUnavailable
from reclaim.xfs.client import DEADLINE_SECONDS, XfsHelper
from reclaim.xfs.release import PreallocationRelease
from signals.clock import Clock
from signals.filesystems import FilesystemPaths, FilesystemReader
from signals.probe import Probes
from signals.summary import NodeSummary
from signals.types import KUBELET_ROLES, FsLayout

# Imported where they are used, for the sake of commands that do not need them; the daemon imports them at its start.
IMPORTED_LATER = ("tenacity", "ipaddress", "json", "eviction.reporting.hidden_space")

# Used once, at the start: attribute of the configuration -> field of the file.
NEEDS_RESTART = {
    "root_directory": "rootDirectory",
    "lock_directory": "lockDirectory",
    "runtime_endpoint": "containerRuntimeEndpoint",
    "image_endpoint": "imageServiceEndpoint",
    "control_socket": "controlSocket",
    "hold_off_seconds": "holdOffAfterStart",
    "kubelet_healthz": "kubeletHealthzEndpoint",
    "metrics_address": "metricsAddress",
    "xfs_helper_socket": "xfsHelperSocket",
    "kubernetes_events": "kubernetesEvents",
    "kubeconfig": "kubeconfig",
    "node_name": "nodeName",
    "pod_logs_dir": "podLogsDir",
    "container_logs_dir": "containerLogsDir",
    "state_file": "stateFile",
    "history_file": "historyFile",
    "history_size_bytes": "historySize",
    "kubelet_endpoint": "kubeletEndpoint",
    "kubelet_place": "kubeletEndpoint",
    "terminated_by_evidence": "terminatedPods",
    "terminated_pod_age_seconds": "terminatedPodAge",
    "periodic_gc": "periodicGC",
    "filesystems": "filesystems",
    "functions": "reclaimFunctions",
}

DIRECTORY_SECONDS = 2.0  # how long one question to the kubelet's directories may take, as for statvfs
MOST_DIRECTORY_THREADS = 80  # one for each removal of a container side by side, and a pass
BESIDE_REMOVALS = 4  # that may wait for an answer: a pass, a refresh, a dry run, a reading ahead
DRAIN_SECONDS = 30.0  # the longest wait for removals that were sent, at the end


class CannotPrepare(EvictionError):
    """What a pass needs cannot be made. The message is one sentence."""


def import_what_is_used_later() -> None:
    """Imports the modules that are else imported when they are first used: then a descriptor or memory may be short."""
    for name in IMPORTED_LATER:
        import_module(name)


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
        removals: Removals | None = None,
        pods: BelievedPods | None = None,
        xfs_helper_seconds: float = DEADLINE_SECONDS,
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
        self.on_program_line: Callable[[str, str], None] = lambda *_: None
        self.begin_pass: BeginPass = lambda *_: None
        self._given_functions = functions
        self._functions = self._configured_functions() if functions is None else functions
        self._reclaim_table = reclaim_table
        self._dry_run_asked = dry_run
        self._executors: WeakKeyDictionary[Executor, int | None] = WeakKeyDictionary()
        self.pause = Pause(self.clock.monotonic, self.clock.wall)
        self.on_call: CallObserver = lambda *_: None
        self.client.on_call = self._called
        self._own_removals = removals is None
        self.removals = removals or Removals(self.clock, self.stopping, configuration.parallel_removals)
        self.on_parked_ended: Callable[[Outcome], None] = lambda _: None
        if self._own_removals:
            self.removals.on_parked_ended = self._parked_ended
        self.executor = self.make_executor()
        earlier = lambda: clocks_at_start(self.client.runtime_path)  # noqa: E731 # of the runtime that answers then
        self.records = records or ImageRecords(partial(brought_at, self.client), earlier=earlier)
        self.record_file = RecordFile(configuration.state_file, self.clock) if configuration.state_file else None
        self.directory_threads = Workers("the kubelet's directories", MOST_DIRECTORY_THREADS)
        in_time = ReadingsInTime(self.directory_threads, DIRECTORY_SECONDS)
        directories = KubeletDirectories(configuration.root_directory, in_time)
        self.kubelet_watch = KubeletWatch(configuration.kubelet_healthz)
        self.pods = pods or believed_pods(configuration, directories, self.clock, self.kubelet_watch.healthy_since)
        self.log_paths = LogPaths(configuration.pod_logs_dir, configuration.container_logs_dir)
        self.collector = self.make_collector(self.executor)
        self.xfs_helper = XfsHelper(configuration.xfs_helper_socket, self.clock, xfs_helper_seconds)
        self.preallocation = PreallocationRelease(self.xfs_helper.release, self.clock)
        self.disk_survey = DiskSurvey(
            self.summary.observe,
            self._places,
            lambda: self.pods.marked(directories.pod_states()),
            self._survey_client,
            self.clock,
        )
        self.responder = Responder(
            self.summary,
            self.collector,
            self._eviction_config(),
            self.clock,
            configuration.extent,
            self.preallocation if configuration.xfs_helper_socket else None,
            self.begin_pass,
        )

    def _configured_functions(self) -> FunctionTable:
        """The built-in functions, and those of the configuration. Raises FunctionUnusable."""
        if not self.configuration.functions:
            return FUNCTIONS
        from eviction.node.own_functions import PressureOfPass, functions_of  # only where there are any

        pressure = PressureOfPass(self.summary.observe, lambda: self.responder.fill_rates)
        self.begin_pass = pressure.begin
        return functions_of(self.configuration, pressure, self._program_line)

    def _survey_client(self) -> CriClient | None:
        runtime, image = self.endpoint.runtime, self.endpoint.image
        return CriClient(runtime, image, ASK_SECONDS) if self.configuration.has_runtime else None

    def _program_line(self, name: str, line: str) -> None:
        self.on_program_line(name, line)

    def function_problems(self) -> tuple[tuple[str, str], ...]:
        """Functions of the configuration that cannot be called as things are: name, and one sentence why."""
        if not self.configuration.functions:
            return ()
        from eviction.node.own_functions import problems_of  # only where there are any

        return problems_of(self.configuration, self.client)

    def watch_kubelet(self) -> None:
        """Begins to watch whether the kubelet is healthy, if pods are to count as terminated by what is seen of them.

        Without it none does, as in a command that lives for a moment. Raises CannotPrepare.
        """
        if self.configuration.terminated_by_evidence and not self.kubelet_watch.start():
            raise CannotPrepare("no thread can be started to watch the kubelet's /healthz")

    def prepare(self) -> None:
        """Makes now what a pass needs: threads, descriptors, modules. So nothing of it can fail under pressure.

        Raises CannotPrepare with one sentence.
        """
        import_what_is_used_later()
        try:
            self.removals.prepare()
            self.probe_threads.prepare(len(KUBELET_ROLES) + len(self.configuration.filesystems))
            self.directory_threads.prepare(self.configuration.parallel_removals + 1)
        except NoThread as error:
            raise CannotPrepare(f"{error}; is the limit on processes (pids.max, TasksMax=) reached?") from None
        try:
            self.client.prepare(most_in_flight(self.configuration.parallel_removals) + BESIDE_REMOVALS)
        except OSError as error:
            raise CannotPrepare(f"no sockets can be made for the runtime: {error.strerror or error}") from None
        if self.configuration.xfs_helper_socket:
            self.xfs_helper.connect()

    @property
    def dry_run(self) -> bool:
        """Whether nothing is removed, and what would be is only told."""
        return self._dry_run_asked or self.configuration.dry_run

    def make_executor(self, *, parallel: int | None = None) -> Executor:
        """An executor over the same threads and removals; each caller needs one of its own. `parallel`: removals side
        by side; None: as configured."""
        executor = Executor(
            self.clock,
            self.stopping,
            parallel=parallel or self.configuration.parallel_removals,
            dry_run=self.dry_run,
            removals=self.removals,
            patience_seconds=self.configuration.removal_patience_seconds,
        )
        self._executors[executor] = parallel
        return executor

    @property
    def threads_not_started(self) -> int:
        """How many starts of a thread have failed."""
        pools = (self.removals.workers, self.probe_threads, self.directory_threads)
        return sum(pool.not_started for pool in pools) + self.disk_survey.threads_not_started

    def _parked_ended(self, outcome: Outcome) -> None:
        """What is gone has no age any more, although a list has named it since it was parked."""
        if outcome.result in (Result.REMOVED, Result.ALREADY_GONE) or outcome.may_have_gone:
            self.records.forget((outcome.verdict.id,))
        self.on_parked_ended(outcome)

    def _called(self, call: str, seconds: float, failed: bool) -> None:  # the form of a CallObserver
        call_was_answered()
        self.on_call(call, seconds, failed)

    def make_collector(self, executor: Executor) -> Collector:
        """A collector over the same runtime, pods and records; each caller needs one of its own."""
        context = ReclaimContext(
            self.client,
            self.client,
            self.pods,
            self.records,
            executor,
            self.clock,
            self.policies(),
            self.log_paths,
        )
        return Collector(context, self._functions)

    def policies(self) -> Policies:
        """The policies of garbage collection, as configured now."""
        return policies_of(self.configuration)

    def pod_starts(self, hold_off_seconds: float) -> PodStarts:
        """Which pods are being created right now, for one pass."""
        return PodStarts(self.client, self.pods, self.clock, hold_off_seconds)

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
        return getattr(self.pods.source, "problem", None)

    @property
    def pods_doubt(self) -> Doubt | None:
        """Why no pod counts as gone: the kubelet's directories are not believed. None if they are, or nobody asks."""
        return self.pods.doubt if self.configuration.has_runtime else None

    def compare_pods(self) -> Doubt | None:
        """Compares the kubelet's directories with what the runtime holds now. Raises RuntimeUnavailable."""
        before = self.pods.read()
        listing = Lister(self.client, self.client, self.clock).containers()
        return self.pods.compared(before.merge(self.pods.read()), listing).doubt

    def reconfigure(self, configuration: Configuration) -> tuple[str, ...]:
        """Applies another configuration, except for the fields that need a restart; returns those that differ.

        Must not be called during a pass.
        """
        old = {attribute: getattr(self.configuration, attribute) for attribute in NEEDS_RESTART}
        changed = self.needs_restart(configuration)
        self.configuration = replace(configuration, **old)
        self.removals.set_parallel(configuration.parallel_removals)
        for executor, parallel in self._executors.items():
            executor.set_mode(dry_run=self.dry_run, parallel=parallel or configuration.parallel_removals)
        self.executor.patience_seconds = configuration.removal_patience_seconds
        self.collector.set_policies(policies_of(configuration))
        self.responder.set_config(self._eviction_config(), configuration.extent)
        return changed

    def needs_restart(self, configuration: Configuration) -> tuple[str, ...]:
        """The fields of this configuration that differ from the node's and only a restart can change."""
        ours = self.configuration
        changed = (n for a, n in NEEDS_RESTART.items() if getattr(configuration, a) != getattr(ours, a))
        return tuple(dict.fromkeys(changed))

    def poll_policy(self) -> PollPolicy:
        """How often filesystems are read, as configured now."""
        configuration = self.configuration
        assumed = float(configuration.assumed_fill_rate)
        return PollPolicy(configuration.poll_floor_seconds, configuration.poll_ceiling_seconds, assumed)

    def thresholds(self, layout: FsLayout | None) -> tuple[Threshold, ...]:
        """The thresholds in force in a layout, as the responder uses them."""
        return self.responder.state.config.in_layout(layout)

    def dry_run_copy(self) -> Node:
        """A second node for a dry run beside this one, with the same state and image records, functions of its own, as
        a plugin plans on one thread at a time, and an executor that cannot remove. Raises FunctionUnusable."""
        copy = Node(
            self.configuration,
            dry_run=True,
            stopping=self.stopping,
            reader=self._reader,
            clock=self.clock,
            records=self.records,
            functions=self._given_functions,
            reclaim_table=self._reclaim_table,
            removals=self.removals,
            pods=self.pods,
        )
        copy.summary.locate(self.summary.paths)
        copy.responder.state, copy.responder.fill_rates = self.responder.state, self.responder.fill_rates
        return copy

    def close(self) -> None:
        """Waits for removals that were sent, 30 s at most, and then ends threads and connections.

        While a removal is not answered they stay: closing its connection would cancel it.
        """
        self.directory_threads.close()
        self.kubelet_watch.close()
        self.xfs_helper.close()
        if not self._own_removals:
            super().close()
        elif self.removals.wait(DRAIN_SECONDS):
            self.removals.workers.close()
            super().close()

    def _eviction_config(self) -> EvictionConfig:
        return replace(eviction_config(self.configuration), reclaim_table=self._reclaim_table)

    def _places(self) -> Places:
        configuration = self.configuration
        return Places(configuration.root_directory, configuration.pod_logs_dir, self.summary.paths.imagefs)
