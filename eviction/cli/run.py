"""`reclaimd run`: the daemon."""

from __future__ import annotations

import argparse
import fcntl
import gc
import os
from collections.abc import Callable
from functools import partial

from eviction.cli import EXIT_HELD, EXIT_OK, EXIT_USAGE
from eviction.cli.options import (
    add_configuration,
    add_logging,
    configuration_flags,
    configuration_of,
    leave,
    log_of,
    read_configuration,
)
from eviction.cli.termination import block_reload, block_termination, on_signals
from eviction.configuration.effective import Configuration, ConfigurationError
from eviction.configuration.fingerprint import Fingerprint, fingerprint_of
from eviction.control.check import check_for_another
from eviction.control.socket import ControlServer, ControlUnavailable, Conversation
from eviction.daemon.endpoints import Faces, fed_in_time
from eviction.daemon.image_records_saver import RecordKeeper
from eviction.daemon.manager import DRAIN_SECONDS, Manager
from eviction.daemon.periodic_gc import PeriodicGC
from eviction.node.hold_off import HoldOff, kubelet_is_healthy
from eviction.node.node import Node
from eviction.reporting.explain import no_effect_sentences
from eviction.reporting.log import Log
from eviction.telemetry.events import EventSink, FanOutSink, LogEvents
from eviction.telemetry.systemd import Notifier, listening_socket
from eviction.types import Decision
from reclaim.cri.calls import EndpointError
from signals.types import SignalObservations
from signals.watcher import FsWatcher

LAST_EVENT_SECONDS = 0.2  # for what was said right before the end


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add_configuration(parser)
    add_logging(parser)
    parser.add_argument("--no-watch", action="store_true", help="look at intervals only, without inotify")


def run(arguments: argparse.Namespace) -> int:
    """Exit 0 on SIGTERM, 2 configuration, 75 another instance holds the node."""
    notifier = Notifier(os.environ, os.getpid())
    loaded = LoadedConfiguration(arguments)
    configuration = fed_in_time(configuration_of(arguments), notifier)
    log = log_of(arguments)
    lock = hold_node(configuration.root_directory)
    block_termination()
    block_reload()
    node = Node(configuration)
    if node.endpoint.found:
        log.info(f"no endpoint configured; using {node.endpoint.runtime}")
    keeper = RecordKeeper(node.records, node.record_file, log)
    keeper.load()
    healthy = partial(kubelet_is_healthy, configuration.kubelet_healthz)
    hold_off = HoldOff(configuration.hold_off_seconds, node.clock.monotonic(), node.clock.monotonic, healthy)
    events, finish_events = start_events(configuration, log, node)
    faces = Faces(node, hold_off, log, notifier)

    def looked(look: SignalObservations, _: Decision) -> None:
        watches.follow(look)
        faces.looked()

    manager = Manager(
        node,
        log,
        may_act=hold_off.why,
        on_pass=faces.passed,
        on_look=looked,
        on_detected=keeper.save,
        events=events,
    )
    periodic = PeriodicGC(node, log, events, hold_off.why) if configuration.periodic_gc else None

    def look_now() -> None:
        manager.look_now()
        faces.watched()

    watches = _Watches(FsWatcher((), look_now), configuration.root_directory, enabled=not arguments.no_watch)
    gc.freeze()  # what was imported stays for ever: a collection in the middle of a pass need not go through it
    log.info(
        f"started on {configuration.root_directory}; thresholds: "
        + ", ".join(f"{t.signal} {t.text()}" for t in configuration.thresholds),
        endpoint=node.endpoint.runtime,
    )
    for sentence in no_effect_sentences(configuration.thresholds):
        log.warning(sentence)
    watches.start(log)
    control = start_control(configuration.control_socket, node, manager, loaded, log)
    faces.start(configuration.metrics_address, manager, listening_socket(os.environ, os.getpid(), "metrics"))

    def stop() -> None:
        faces.stopping()
        manager.stop()

    on_signals(stop, lambda: reload(arguments, manager, loaded, log, faces, notifier))
    if periodic is not None:
        periodic.start()
    manager.run()
    if periodic is not None:
        periodic.drain(DRAIN_SECONDS)
    keeper.finish()
    finish_events()
    watches.stop()
    faces.stop()
    if control is not None:
        control.stop()
    if not node.executor.in_flight and (periodic is None or not periodic.in_flight):
        node.close()
    log.info("stopped")
    os.close(lock)
    return EXIT_OK


def start_events(configuration: Configuration, log: Log, node: Node) -> tuple[EventSink, Callable[[], object]]:
    """Events go to the log, and where it is switched on to the API server, on a thread that nobody waits for; and what
    ends that."""
    if not configuration.kubernetes_events:
        return LogEvents(log), lambda: None
    from eviction.telemetry.kubernetes_events import event_recorder

    recorder = event_recorder(configuration, log, node.clock)
    recorder.start()
    return FanOutSink(LogEvents(log), recorder), lambda: recorder.finish(LAST_EVENT_SECONDS)


class LoadedConfiguration:
    """Fingerprint of the configuration that the daemon runs with; only a command with the same one may let it work.

    Refreshed before each reading of the files, so that a file that changes during the reading counts as changed. Empty
    while the daemon runs with something other than what the files say.
    """

    def __init__(self, arguments: argparse.Namespace):
        self._arguments = arguments
        self.fingerprint: Fingerprint = {}
        self.refresh()

    def refresh(self) -> None:
        """Takes the fingerprint of the files, flags and environment as they are now."""
        given = self._arguments
        try:
            self.fingerprint = fingerprint_of(given.config, given.config_dir, configuration_flags(given), os.environ)
        except OSError:
            self.invalidate()

    def invalidate(self) -> None:
        """The daemon runs with something other than what the files say."""
        self.fingerprint = {}


def start_control(
    path: str, node: Node, manager: Manager, loaded: LoadedConfiguration, log: Log
) -> ControlServer | None:
    """The control socket; one that cannot be had is a warning."""
    if not path:
        return None
    conversations: dict[str, Conversation] = {
        "reclaim": lambda request: manager.requests.converse(request, loaded.fingerprint),
        "check": lambda request: check_for_another(request, loaded.fingerprint, node),
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
    faces: Faces,
    notifier: Notifier,
) -> None:
    """Reads the configuration again; one that is refused changes nothing, and is said."""
    faces.reloading()
    loaded.refresh()
    try:
        configuration = fed_in_time(read_configuration(arguments), notifier)
        for sentence in no_effect_sentences(configuration.thresholds):
            log.warning(sentence)
        if manager.reconfigure(configuration):
            loaded.invalidate()
    except (ConfigurationError, EndpointError) as error:
        loaded.invalidate()
        log.error(f"the configuration was not reloaded, the old one stays: {error}")
    finally:
        faces.reloaded()


def hold_node(root_directory: str) -> int:
    """A lock on the node's directory itself: no file is made, and the kernel lets go of it with the process.

    Leaves with exit 2 when the directory cannot be opened, and with 75 when another instance holds it.
    """
    try:
        descriptor = os.open(root_directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        leave(EXIT_USAGE, f"rootDirectory: {root_directory}: {error.strerror}; it must be the kubelet's directory")
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        leave(EXIT_HELD, f"another instance holds the node ({root_directory} is locked)")
    return descriptor


class _Watches:
    """Keeps the watched directories at where the filesystems are."""

    def __init__(self, watcher: FsWatcher, root_directory: str, *, enabled: bool):
        self._watcher = watcher
        self._root_directory = root_directory
        self._enabled = enabled
        self._followed: frozenset[str] = frozenset()

    def start(self, log: Log) -> None:
        if self._enabled:
            self._watcher.start()
            if self._watcher.problem is not None:
                log.warning(self._watcher.problem)

    def follow(self, look: SignalObservations) -> None:
        """A new ingest, snapshot or pod directory is the early sign of growth."""
        paths = {identity.path for identity, _ in look.filesystems.values()}
        wanted = frozenset(directory for path in paths for directory in early_signs(path))
        if self._enabled and wanted != self._followed:
            self._followed = wanted
            self._watcher.watch(wanted)

    def stop(self) -> None:
        self._watcher.stop()


def early_signs(path: str) -> tuple[str, ...]:
    """The directories in which growth of a filesystem shows first; those that do not exist are never armed."""
    store = os.path.dirname(path)
    return (
        path,
        os.path.join(path, "pods"),  # the kubelet's, one a pod
        os.path.join(path, "snapshots"),  # containerd's, one a layer or container
        os.path.join(store, "io.containerd.content.v1.content", "ingest"),  # one a blob being pulled
    )
