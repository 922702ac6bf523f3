"""`reclaimd run`: the daemon."""

import gc
import os
import socket
import threading
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial

from eviction.cli.options import LOGGING, configuration_of, fingerprint_of_command, log_of
from eviction.cli.output import exit_on
from eviction.cli.parser import Parser
from eviction.cli.process import hold_node, on_signals
from eviction.cli.progress import STDERR
from eviction.configuration.effective import Configuration
from eviction.configuration.fingerprint import Fingerprint
from eviction.engine.effects import KubeletHealthy, LookWanted
from eviction.engine.hold_off import watch_kubelet
from eviction.engine.node import CannotPrepare, Node
from eviction.exit_codes import EXIT_NO_RESOURCES, EXIT_OK
from eviction.records.history import HistoryRecorder
from eviction.records.json_shapes import to_json
from eviction.surface.check import check_for_client
from eviction.surface.control_socket import ControlServer, ControlUnavailable
from eviction.surface.daemon import Daemon
from eviction.surface.endpoints import DaemonEndpoints
from eviction.surface.kept_files import BallastKeeper, ImageRecordsSaver
from eviction.surface.pause import PauseFile, pause_for_client
from eviction.surface.reload import LoadedConfiguration
from eviction.surface.systemd import Notifier, listening_socket
from eviction.surface.watches import Watches
from eviction.surface.xfs_hints import HintsAtStart
from eviction.wording.configuration_warnings import configuration_warnings
from eviction.wording.explain import NOTHING_IS_REMOVED
from eviction.wording.log import Log
from reclaim.workers import NoThread, Workers
from signals.watcher import FsWatcher

LAST_EVENT_SECONDS = 0.2  # for events sent right before the end


OPTIONS = {"--no-watch": "observe at intervals only, without inotify"}


def add_arguments(parser: Parser) -> None:
    parser.add_rows(*LOGGING)
    parser.add_argument(
        "--dry-run",
        dest="shadow",
        action="store_true",
        help="do everything except remove, and report it; the same as dryRun: true",
    )


def run(arguments: Namespace) -> int:
    """Exit 0 on SIGTERM; 2 usage or configuration, or the runtime refuses this user; 71 no threads
    or descriptors; 75 another instance holds the node.

    Example: reclaimd run --dry-run
    """
    notifier = Notifier(os.environ, os.getpid())
    log = log_of(arguments)
    stopping = threading.Event()
    asked_to_reload = threading.Event()
    at_end = ExitStack()
    held = ExitStack()
    at_end.callback(stopping.set)

    def leave() -> None:
        log.error("leaving: something hangs and did not end in time")
        log.finish()
        held.close()  # even if the kernel keeps the process
        os._exit(EXIT_OK)

    # first, as reading a file may hang
    signals_problem = on_signals(at_end.close, asked_to_reload.set, leave)
    loaded = LoadedConfiguration(partial(read_configuration, arguments), log, notifier)
    configuration = loaded.first()
    held.enter_context(hold_node(configuration, log))
    # a thread or a descriptor that a pass needs cannot be created
    with exit_on(EXIT_NO_RESOURCES, (CannotPrepare, NoThread, OSError), "cannot start: "):
        log.write_on_a_thread(STDERR)
        node = Node(configuration, stopping=stopping)
        if node.endpoint.remark:
            log.info(node.endpoint.remark)
        saver = ImageRecordsSaver(node.records, node.record_file, log)
        records_problem = node.restore_image_records()
        pause_file = PauseFile(configuration.state_file, node.clock)
        pause_file.restore(node, log.info)
        finish_events = start_events(configuration, log, node)
        history = HistoryRecorder(
            configuration.history_file,
            configuration.history_size_bytes,
            node.clock,
            warn=log.warning,
        )
        ballast = BallastKeeper(node, log, Workers("ballast", 1))
        hold_off_seconds = configuration.hold_off_seconds
        daemon = Daemon(node, log, hold_off_seconds)
        endpoints = DaemonEndpoints(daemon, log, notifier, history=history)
        for made in (node, daemon, ballast):
            made.prepare()
        watch_kubelet(
            configuration.kubelet_healthz,
            hold_off_seconds,
            healthy=lambda: node.owner.post(KubeletHealthy()),
            stopping=stopping,
            tell=log.info,
        )
        loaded.reload_when(asked_to_reload, daemon)

    def observe_now() -> None:
        node.owner.post(LookWanted())
        node.listeners.tell("watched")

    watcher = FsWatcher((), observe_now, configuration.poll_ceiling_seconds)
    if not arguments.no_watch:
        watcher.start()
        node.listeners.add(Watches(watcher, node))
    node.on_look = endpoints.keep_alive
    node.listeners.add(ballast, endpoints, history, saver, HintsAtStart(node, log))
    # imported objects are never freed, so a garbage collection during a pass need not visit them
    gc.freeze()
    # once it says that it has started, it can be asked
    control = start_control(node, daemon, loaded, pause_file=pause_file, log=log)
    log.info(started(configuration), endpoint=node.endpoint.runtime)
    for sentence in (*warnings_at_start(node), records_problem, signals_problem, watcher.problem):
        if sentence:
            log.warning(sentence)
    history.daemon("started")
    endpoints.start(
        configuration.metrics_address, listening_socket(os.environ, os.getpid(), "metrics")
    )
    at_end.callback(notifier.stopping)
    at_end.callback(daemon.stop)
    daemon.run()
    ballast.close()
    history.daemon("stopped")
    history.finish()
    saver.finish()
    pause_file.finish(node.pause_left_seconds)
    finish_events()
    watcher.stop()
    endpoints.stop()
    control.stop()
    if not node.world.removals:
        node.close()
    log.info("stopped")
    log.finish()
    held.close()
    return EXIT_OK


def read_configuration(arguments: Namespace) -> tuple[Configuration, Fingerprint]:
    """As `LoadedConfiguration.read`."""
    fingerprint: Fingerprint = {}
    # before they are read, so that a file that changes meanwhile counts as changed
    with suppress(OSError):
        fingerprint = fingerprint_of_command(arguments)
    return configuration_of(arguments, asks_version=True), fingerprint


def warnings_at_start(node: Node) -> Iterator[str]:
    """What an operator should know before the first pass."""
    if node.dry_run:
        yield NOTHING_IS_REMOVED
    if paused := node.present.paused():
        yield f"still {paused}"
    yield from configuration_warnings(node.configuration)
    for name, why in node.function_problems():
        yield f"reclaimFunctions: {name} cannot do anything: {why}"


def started(configuration: Configuration) -> str:
    """The directories that are watched, the kubelet's and those of the configured filesystems; and
    the thresholds."""
    watched = [configuration.root_directory] if configuration.has_runtime else []
    watched += [f"{role} ({path})" for role, path in configuration.filesystems.items()]
    thresholds = [f"{each.signal} {each.text()}" for each in configuration.thresholds]
    return f"started on {', '.join(watched)}; thresholds: {', '.join(thresholds)}"


def start_events(configuration: Configuration, log: Log, node: Node) -> Callable[[], object]:
    """Sends events to the API server if that is switched on, until what it returns is called."""
    if not configuration.kubernetes_events:
        return lambda: None
    from eviction.surface.kubernetes_events import EventRecorder, write_event

    node_name = configuration.node_name or socket.gethostname().strip().lower()  # as in the kubelet
    write = partial(write_event, kubeconfig=configuration.kubeconfig)
    recorder = EventRecorder(write, node_name, log, clock=node.clock)
    recorder.start()
    node.listeners.add(recorder)
    return partial(recorder.finish, LAST_EVENT_SECONDS)


def start_control(
    node: Node, daemon: Daemon, loaded: LoadedConfiguration, *, pause_file: PauseFile, log: Log
) -> ControlServer:
    """The control socket, started if it is switched on. Logs a warning if it cannot be created."""
    commands = {
        "status": lambda _: iter(
            [to_json(replace(daemon.status().document, configuration=loaded.fingerprint))]
        ),
        "reclaim": lambda request: daemon.requests.converse(request, loaded.fingerprint),
        "check": lambda request: check_for_client(
            request, loaded.fingerprint, node, ahead=node.world.ahead
        ),
        "reload": lambda _: iter([{"problem": loaded.reload(daemon)}]),
        "pause": lambda request: pause_for_client(request, node, pause_file, log=log),
    }
    path = node.configuration.control_socket
    server = ControlServer(path, commands)
    try:
        if path:
            server.start()
    except ControlUnavailable as error:
        log.warning(f"no control socket: {error}")
    return server
