"""`reclaimd run`: the daemon."""

from __future__ import annotations

import argparse
import gc
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

from eviction.cli import EXIT_HELD, EXIT_NO_RESOURCES, EXIT_OK, EXIT_USAGE
from eviction.cli.node_lock import LockRefused, NodeHeld, NodeLock
from eviction.cli.options import STDERR, add_configuration, add_logging, configuration_of, exit_with, log_of
from eviction.cli.reload import LoadedConfiguration, reload
from eviction.cli.termination import block_reload, block_termination, on_signals
from eviction.configuration.decision import poll_policy
from eviction.configuration.effective import Configuration
from eviction.configuration.functions import FunctionKind
from eviction.control.check import check_for_client
from eviction.control.pause import PauseFile, pause_for_client
from eviction.control.socket import ControlServer, ControlUnavailable, Conversation
from eviction.daemon.ballast import BallastKeeper
from eviction.daemon.image_records_saver import ImageRecordsSaver
from eviction.daemon.manager import Manager
from eviction.daemon.periodic_gc import PeriodicGC
from eviction.decision.headroom import near_their_marks
from eviction.history_file.recorder import HistoryRecorder
from eviction.listener import Listener
from eviction.node.hold_off import HoldOff, Holds
from eviction.node.node import CannotPrepare, Node
from eviction.reporting.conditions import NOTHING_IS_REMOVED
from eviction.reporting.configuration_warnings import configuration_warnings
from eviction.reporting.json_shapes import to_json
from eviction.reporting.log import Log
from eviction.reporting.status import Status
from eviction.telemetry.endpoints import DaemonEndpoints, within_watchdog
from eviction.telemetry.events import EventSink, FanOutSink, LogSink, SinkWhile
from eviction.telemetry.systemd import Notifier, listening_socket
from eviction.types import Decision
from reclaim.execution.readings import in_time
from reclaim.execution.workers import NoThread, Workers
from reclaim.programs import LAUNCHER
from signals.types import SignalObservations
from signals.watcher import FsWatcher

LAST_EVENT_SECONDS = 0.2  # for events sent right before the end


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add_configuration(parser)
    add_logging(parser)
    parser.add_argument(
        "--dry-run",
        dest="shadow",
        action="store_true",
        help="everything but removals: what would go is told (the same as dryRun: true)",
    )
    parser.add_argument("--no-watch", action="store_true", help="observe at intervals only, without inotify")


def run(arguments: argparse.Namespace) -> int:
    """Exit 0 on SIGTERM, 2 configuration, 71 no threads or descriptors, 75 another instance holds the node."""
    notifier = Notifier(os.environ, os.getpid())
    log = log_of(arguments)
    block_termination()
    block_reload()
    ending = Ending(log)
    problem = on_signals(ending.end, ending.reload, ending.leave)
    loaded = LoadedConfiguration(arguments)
    configuration = within_watchdog(configuration_of(arguments), notifier)
    lock = ending.lock = hold_node(configuration, log)
    log.write_on_a_thread(STDERR)
    node = Node(configuration, stopping=ending.stopping)
    if node.endpoint.remark:
        log.info(node.endpoint.remark)
    saver = ImageRecordsSaver(node.records, node.record_file, log)
    saver.load()
    started, now = node.clock.monotonic(), node.clock.monotonic
    kubelet_was_healthy = lambda: node.kubelet_watch.was_healthy  # noqa: E731 # whenever it is asked
    hold_off = Holds(HoldOff(configuration.hold_off_seconds, started, now, kubelet_was_healthy), node.pause)
    pause_file = PauseFile(configuration.state_file, node.clock)
    pause_problem = pause_file.restore(node.pause)
    events, finish_events = start_events(configuration, log, node)
    history = HistoryRecorder(configuration.history_file, configuration.history_size_bytes, node.clock, log.warning)
    endpoints = DaemonEndpoints(node, hold_off, log, notifier, lambda: history.counts)

    ballast = BallastKeeper(node, log, Workers("ballast", 1))
    manager = Manager(node, log, may_act=hold_off.why, events=events)
    prepare(node, manager, ballast)
    periodic = PeriodicGC(node, log, events, hold_off.why) if configuration.periodic_gc else None

    def observe_now() -> None:
        manager.observe_now()
        endpoints.on_watch_event()

    watches = _Watches(FsWatcher((), observe_now), node, enabled=not arguments.no_watch)
    for listener in (watches, ballast, endpoints, history, saver):
        node.listeners.add(listener)
    gc.freeze()  # imported objects are never freed, so a garbage collection during a pass need not go through them
    log.info(
        f"started on {started_on(configuration)}; thresholds: "
        + ", ".join(f"{t.signal} {t.text()}" for t in configuration.thresholds),
        endpoint=node.endpoint.runtime,
    )
    for sentence in filter(None, (*warnings_at_start(node), pause_problem)):
        log.warning(sentence)
    history.started()
    watches.start(log)
    control = start_control(configuration.control_socket, node, manager, pause_file, loaded, log)
    listening = listening_socket(os.environ, os.getpid(), "metrics")
    endpoints.start(configuration.metrics_address, manager.status, manager.why_not_alive, listening)

    def stop() -> None:
        manager.stop()
        notifier.stopping()

    ending.started(stop, lambda: reload(arguments, manager, loaded, log, notifier))
    if problem is not None:
        log.warning(problem)
    if periodic is not None:
        start_periodic_gc(periodic)
    manager.run()
    ballast.close()
    history.stopped()
    history.finish()
    saver.finish()
    pause_file.finish(node.pause)
    finish_events()
    watches.stop()
    endpoints.stop()
    if control is not None:
        control.stop()
    if not node.removals.begun:
        node.close()
    log.info("stopped")
    log.finish()
    lock.close()
    return EXIT_OK


class Ending:
    """What the signals do, from before the first look at a file on, which may hang.

    `stopping`: set by the first SIGTERM or SIGINT. `lock`: given back at the end, although the kernel may keep the
    process.
    """

    def __init__(self, log: Log):
        self._log = log
        self._stop: Callable[[], None] = lambda: None
        self._reload: Callable[[], None] = lambda: None
        self._started = threading.Event()
        self.stopping = threading.Event()
        self.lock: NodeLock | None = None

    def started(self, stop: Callable[[], None], reload: Callable[[], None]) -> None:
        """There is something to stop and to reload."""
        self._stop, self._reload = stop, reload
        self._started.set()

    def end(self) -> None:
        """SIGTERM or SIGINT."""
        self.stopping.set()
        self._stop()

    def reload(self) -> None:
        """SIGHUP: waits for the end of the start."""
        self._started.wait()
        self._reload()

    def leave(self) -> None:
        """The end takes too long."""
        self._log.error("leaving: something hangs and has not ended in its time")
        self._log.finish()
        if self.lock is not None:
            self.lock.close()
        os._exit(EXIT_OK)


def warnings_at_start(node: Node) -> Iterator[str]:
    """What an operator should know before the first pass."""
    if node.dry_run:
        yield NOTHING_IS_REMOVED
    if (paused := node.pause.why()) is not None:
        yield f"still {paused}"
    yield from configuration_warnings(node.configuration)
    for name, why in node.function_problems():
        yield f"reclaimFunctions: {name} cannot do anything: {why}"


def started_on(configuration: Configuration) -> str:
    """What is watched, in words: the kubelet's directory, and filesystems of the configuration's own."""
    own = [f"{role} ({path})" for role, path in configuration.filesystems.items()]
    return ", ".join([*([configuration.root_directory] if configuration.has_runtime else []), *own])


def prepare(node: Node, manager: Manager, ballast: BallastKeeper) -> None:
    """Makes everything that a pass needs. Exits with 71 where it cannot be made."""
    try:
        node.prepare()
        node.watch_kubelet()
        manager.prepare()
        ballast.prepare()
        if any(function.kind is FunctionKind.PROGRAM for function in node.configuration.functions):
            LAUNCHER.prepare()
    except (CannotPrepare, NoThread, OSError) as error:
        exit_with(EXIT_NO_RESOURCES, f"cannot start: {error}")


def start_periodic_gc(periodic: PeriodicGC) -> None:
    """Starts the periodic loops. Exits with 71 without threads for them."""
    try:
        periodic.start()
    except NoThread as error:
        exit_with(EXIT_NO_RESOURCES, f"cannot start: {error}")


def start_events(configuration: Configuration, log: Log, node: Node) -> tuple[EventSink, Callable[[], object]]:
    """The sink for events: the log, and the API server where that is switched on; and a function that ends sending."""
    if not configuration.kubernetes_events:
        return LogSink(log), lambda: None
    from eviction.telemetry.kubernetes_events import event_recorder

    recorder = event_recorder(configuration, log, node.clock)
    recorder.start()
    to_the_api_server = SinkWhile(recorder, lambda: not node.dry_run)
    return FanOutSink(LogSink(log), to_the_api_server), lambda: recorder.finish(LAST_EVENT_SECONDS)


def start_control(
    path: str, node: Node, manager: Manager, pause_file: PauseFile, loaded: LoadedConfiguration, log: Log
) -> ControlServer | None:
    """Starts the control socket; None if it is switched off or, with a warning, cannot be created."""
    if not path:
        return None

    def status() -> Status:
        return replace(manager.status().document, configuration=loaded.fingerprint)

    commands: dict[str, Conversation] = {
        "status": lambda _: iter([to_json(replace(status(), history=node.responder.history.dump()))]),
        "brief": lambda _: iter([to_json(status())]),
        "reclaim": lambda request: manager.requests.converse(request, loaded.fingerprint),
        "check": lambda request: check_for_client(request, loaded.fingerprint, node),
        "pause": lambda request: pause_for_client(request, node.pause, pause_file, log),
    }
    server = ControlServer(path, commands)
    try:
        server.start()
    except ControlUnavailable as error:
        log.warning(f"no control socket: {error}")
        return None
    return server


def hold_node(configuration: Configuration, log: Log) -> NodeLock:
    """Locks the node, or goes on without the lock, with a warning.

    Exits with 2 when the kubelet's directory cannot be opened or the lock is not trusted, and with 75 when another
    instance holds the lock.
    """
    root = configuration.root_directory
    if configuration.has_runtime:
        try:
            in_time(lambda: os.close(os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)))
        except TimeoutError as error:  # its readings will tell, and other filesystems are looked at
            log.warning(f"rootDirectory: {root}: {error.strerror}")
        except OSError as error:
            exit_with(EXIT_USAGE, f"rootDirectory: {root}: {error.strerror}; it must be the kubelet's directory")
    try:
        lock = NodeLock(configuration.lock_directory)
    except NodeHeld as held:
        exit_with(EXIT_HELD, str(held))
    except LockRefused as refused:
        exit_with(EXIT_USAGE, str(refused))
    if lock.problem is not None:
        log.warning(f"no lock of the node, so another instance is not kept away: {lock.problem}")
    return lock


class _Watches(Listener):
    """Watches directories with inotify, of those filesystems that are near their marks: elsewhere no event could bring
    a reading earlier that matters."""

    def __init__(self, watcher: FsWatcher, node: Node, *, enabled: bool):
        self._watcher = watcher
        self._node = node
        self._enabled = enabled
        self._near: frozenset[int] = frozenset()
        self._watched: frozenset[str] = frozenset()

    def start(self, log: Log) -> None:
        if self._enabled:
            self._watcher.start()
            if self._watcher.problem is not None:
                log.warning(self._watcher.problem)

    def observed(self, observations: SignalObservations, _: Decision) -> None:
        """Watches the directories of these filesystems in which new entries appear before the disk fills."""
        responder, policy = self._node.responder, poll_policy(self._node.configuration)
        marks = responder.state.config.marks_to_watch(observations.layout)
        self._near = near_their_marks(marks, observations, responder.fill_rates, policy, self._near)
        identities = [identity for identity, _ in observations.filesystems.values()]
        paths = {identity.path for identity in identities if identity.device_id in self._near}
        wanted = frozenset(directory for path in paths for directory in early_signs(path))
        if self._enabled and wanted != self._watched:
            self._watched = wanted
            self._watcher.watch(wanted)

    def stop(self) -> None:
        self._watcher.stop()


def early_signs(path: str) -> tuple[str, ...]:
    """The directories in which new entries announce growth of a filesystem; missing ones are ignored."""
    store = os.path.dirname(path)
    return (
        path,
        os.path.join(path, "pods"),  # the kubelet's, an entry for each pod
        os.path.join(path, "snapshots"),  # containerd's, an entry for each layer or container
        os.path.join(store, "io.containerd.content.v1.content", "ingest"),  # an entry for each blob being pulled
    )
