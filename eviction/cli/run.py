"""`reclaimd run`: the daemon."""

from __future__ import annotations

import argparse
import fcntl
import gc
import os
from collections.abc import Callable
from functools import partial

from eviction.cli import EXIT_HELD, EXIT_NO_RESOURCES, EXIT_OK, EXIT_USAGE
from eviction.cli.options import (
    add_configuration,
    add_logging,
    configuration_flags,
    configuration_of,
    exit_with,
    log_of,
    read_configuration,
)
from eviction.cli.termination import block_reload, block_termination, on_signals
from eviction.configuration.effective import Configuration, ConfigurationError
from eviction.configuration.fingerprint import Fingerprint, fingerprint_of
from eviction.control.check import check_for_client
from eviction.control.socket import ControlServer, ControlUnavailable, Conversation
from eviction.daemon.endpoints import DaemonEndpoints, within_watchdog
from eviction.daemon.image_records_saver import ImageRecordsSaver
from eviction.daemon.manager import Manager
from eviction.daemon.periodic_gc import PeriodicGC
from eviction.node.hold_off import HoldOff, kubelet_is_healthy
from eviction.node.node import CannotPrepare, Node
from eviction.reporting.explain import no_effect_sentences
from eviction.reporting.log import Log
from eviction.telemetry.events import EventSink, FanOutSink, LogSink
from eviction.telemetry.systemd import Notifier, listening_socket
from eviction.types import Decision
from reclaim.cri.calls import EndpointError
from reclaim.execution.workers import NoThread
from signals.types import SignalObservations
from signals.watcher import FsWatcher

LAST_EVENT_SECONDS = 0.2  # for events sent right before the end


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add_configuration(parser)
    add_logging(parser)
    parser.add_argument("--no-watch", action="store_true", help="observe at intervals only, without inotify")


def run(arguments: argparse.Namespace) -> int:
    """Exit 0 on SIGTERM, 2 configuration, 71 no threads or descriptors, 75 another instance holds the node."""
    notifier = Notifier(os.environ, os.getpid())
    loaded = LoadedConfiguration(arguments)
    configuration = within_watchdog(configuration_of(arguments), notifier)
    log = log_of(arguments)
    lock = hold_node(configuration.root_directory)
    block_termination()
    block_reload()
    node = Node(configuration)
    if node.endpoint.found:
        log.info(f"no endpoint configured; using {node.endpoint.runtime}")
    saver = ImageRecordsSaver(node.records, node.record_file, log)
    saver.load()
    healthy = partial(kubelet_is_healthy, configuration.kubelet_healthz)
    hold_off = HoldOff(configuration.hold_off_seconds, node.clock.monotonic(), node.clock.monotonic, healthy)
    events, finish_events = start_events(configuration, log, node)
    endpoints = DaemonEndpoints(node, hold_off, log, notifier)

    def on_observation(observations: SignalObservations, _: Decision) -> None:
        watches.follow(observations)
        endpoints.on_observation()

    manager = Manager(
        node,
        log,
        may_act=hold_off.why,
        on_pass=endpoints.on_pass,
        on_observation=on_observation,
        on_detected=saver.save,
        events=events,
    )
    prepare(node, manager)
    periodic = PeriodicGC(node, log, events, hold_off.why) if configuration.periodic_gc else None

    def observe_now() -> None:
        manager.observe_now()
        endpoints.on_watch_event()

    watches = _Watches(FsWatcher((), observe_now), configuration.root_directory, enabled=not arguments.no_watch)
    gc.freeze()  # imported objects are never freed, so a garbage collection during a pass need not go through them
    log.info(
        f"started on {configuration.root_directory}; thresholds: "
        + ", ".join(f"{t.signal} {t.text()}" for t in configuration.thresholds),
        endpoint=node.endpoint.runtime,
    )
    for sentence in no_effect_sentences(configuration.thresholds):
        log.warning(sentence)
    watches.start(log)
    control = start_control(configuration.control_socket, node, manager, loaded, log)
    endpoints.start(configuration.metrics_address, manager, listening_socket(os.environ, os.getpid(), "metrics"))

    def stop() -> None:
        endpoints.stopping()
        manager.stop()

    on_signals(stop, lambda: reload(arguments, manager, loaded, log, endpoints, notifier))
    if periodic is not None:
        periodic.start()
    manager.run()
    saver.finish()
    finish_events()
    watches.stop()
    endpoints.stop()
    if control is not None:
        control.stop()
    if not node.removals.begun:
        node.close()
    log.info("stopped")
    os.close(lock)
    return EXIT_OK


def prepare(node: Node, manager: Manager) -> None:
    """Makes everything that a pass needs. Exits with 71 where it cannot be made."""
    try:
        node.prepare()
        manager.prepare()
    except (CannotPrepare, NoThread) as error:
        exit_with(EXIT_NO_RESOURCES, f"cannot start: {error}")


def start_events(configuration: Configuration, log: Log, node: Node) -> tuple[EventSink, Callable[[], object]]:
    """The sink for events: the log, and the API server where that is switched on; and a function that ends sending."""
    if not configuration.kubernetes_events:
        return LogSink(log), lambda: None
    from eviction.telemetry.kubernetes_events import event_recorder

    recorder = event_recorder(configuration, log, node.clock)
    recorder.start()
    return FanOutSink(LogSink(log), recorder), lambda: recorder.finish(LAST_EVENT_SECONDS)


class LoadedConfiguration:
    """The fingerprint of the configuration that the daemon has loaded: it works for clients with the same one.

    `update` comes before the files are read, so that a file that changes meanwhile counts as changed. The fingerprint
    is empty, which no client's is, while the daemon does not run with what the files contain.
    """

    def __init__(self, arguments: argparse.Namespace):
        self._arguments = arguments
        self.fingerprint: Fingerprint = {}
        self.update()

    def update(self) -> None:
        """Takes the fingerprint of the files and flags as they are now."""
        given = self._arguments
        try:
            self.fingerprint = fingerprint_of(given.config, given.config_dir, configuration_flags(given), os.environ)
        except OSError:
            self.clear()

    def clear(self) -> None:
        """The daemon does not run with what the files contain."""
        self.fingerprint = {}


def start_control(
    path: str, node: Node, manager: Manager, loaded: LoadedConfiguration, log: Log
) -> ControlServer | None:
    """Starts the control socket; None if it is switched off or, with a warning, cannot be created."""
    if not path:
        return None
    conversations: dict[str, Conversation] = {
        "reclaim": lambda request: manager.requests.converse(request, loaded.fingerprint),
        "check": lambda request: check_for_client(request, loaded.fingerprint, node),
    }
    server = ControlServer(path, {"status": manager.status, "brief": manager.brief}, conversations)
    try:
        server.start()
    except ControlUnavailable as error:
        log.warning(f"no control socket: {error}")
        return None
    return server


def reload(
    arguments: argparse.Namespace,
    manager: Manager,
    loaded: LoadedConfiguration,
    log: Log,
    endpoints: DaemonEndpoints,
    notifier: Notifier,
) -> None:
    """Reads the configuration again and applies it; an invalid one is logged and changes nothing."""
    endpoints.reloading()
    loaded.update()
    try:
        configuration = within_watchdog(read_configuration(arguments), notifier)
        for sentence in no_effect_sentences(configuration.thresholds):
            log.warning(sentence)
        if manager.reconfigure(configuration):
            loaded.clear()
    except (ConfigurationError, EndpointError) as error:
        loaded.clear()
        log.error(f"the configuration was not reloaded, the old one stays: {error}")
    finally:
        endpoints.reloaded()


def hold_node(root_directory: str) -> int:
    """Locks the kubelet's directory itself: no file is created, and the kernel releases the lock with the process.

    Exits with 2 when the directory cannot be opened, and with 75 when another instance holds the lock.
    """
    try:
        descriptor = os.open(root_directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        exit_with(EXIT_USAGE, f"rootDirectory: {root_directory}: {error.strerror}; it must be the kubelet's directory")
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        exit_with(EXIT_HELD, f"another instance holds the node ({root_directory} is locked)")
    return descriptor


class _Watches:
    """Watches the directories of the observed filesystems with inotify."""

    def __init__(self, watcher: FsWatcher, root_directory: str, *, enabled: bool):
        self._watcher = watcher
        self._root_directory = root_directory
        self._enabled = enabled
        self._watched: frozenset[str] = frozenset()

    def start(self, log: Log) -> None:
        if self._enabled:
            self._watcher.start()
            if self._watcher.problem is not None:
                log.warning(self._watcher.problem)

    def follow(self, observations: SignalObservations) -> None:
        """Watches the directories of these filesystems in which new entries appear before the disk fills."""
        paths = {identity.path for identity, _ in observations.filesystems.values()}
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
