"""What a command sees of the node, and does to it, without a daemon: `LocalNode`."""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import fields, replace
from signal import SIGTERM, default_int_handler
from signal import signal as catch
from types import SimpleNamespace
from typing import NamedTuple, TypeVar

from eviction.cli.local_files import READ_DEADLINE_SECONDS, LocalFiles
from eviction.cli.options import fields_of_flags
from eviction.cli.output import columns, exit_on, exit_unread, exit_with
from eviction.cli.process import on_signals
from eviction.cli.progress import Progress, mention
from eviction.configuration.effective import Configuration, ConfigurationError, load
from eviction.configuration.file import FunctionKind
from eviction.decision.thresholds import highest_mark
from eviction.engine.ballast import Ballast, create_ballast, read_ballast
from eviction.engine.effects import Request
from eviction.engine.node import DRAIN_SECONDS, Node
from eviction.exit_codes import EXIT_NOT_RELIEVED, EXIT_RUNTIME, EXIT_USAGE
from eviction.records.history import HistoryRecorder
from eviction.records.json_shapes import Document, PodDirectories, pod_directories
from eviction.records.passes import Pass, Trigger
from eviction.surface.answer import Answer, HeldRoom
from eviction.surface.pause import PauseFile
from eviction.surface.requests import ReclaimOptions, read_options, request_of, respond
from eviction.surface.xfs_hints import set_hints, usual_directories
from eviction.types import Extent, Thresholds
from reclaim.functions.ballast import BallastRefused, BallastSettings, remove_ballast
from reclaim.program.function import KINDS as OWN
from reclaim.types import Outcome, RuntimeUnavailable
from signals.clock import SystemClock
from signals.quantity import format_bytes, format_duration

Facts = TypeVar("Facts")

PATIENT_SECONDS = 10.0  # for an answer of the runtime to who goes by it
CREATE, STATUS, REMOVE = "create", "status", "remove"  # what is done with the ballast
LISTENERS_SECONDS = 1.0  # for removals that have ended at last


class Pods(Document):
    """The source of the pods' states."""

    told_by: str
    """kubelet, or directories: those of the kubelet."""
    problem: str | None
    """Why the kubelet gave no list of its pods; null if it did, or is not asked."""
    directories: PodDirectories
    """Whether its directories are trusted."""


class Planned(NamedTuple):
    """What a pass would do now."""

    record: Pass
    """The record of one that removed nothing."""
    thresholds: Thresholds
    enough: bool | None
    """Whether the planned removals clear the signal; None without a signal or a mark, and if that
    is not known."""
    lead_seconds: float
    """How long before the kubelet's mark a pass begins; 0: not before ours."""
    pods: Pods


class LocalNode(LocalFiles):
    """The node, for passes of this process, and its ballast.

    What ends the command exits with its code, and a sentence.
    """

    def facts(self, facts_of: Callable[[Node], Facts]) -> Facts:
        """What is known of the node. With a configuration that cannot be used: by what the
        environment, the flags and the kubelet say. Raises ConfigurationError."""
        if self.problem:
            self.configuration = self._without_files()
        node = Node(self.configuration, read_deadline_seconds=READ_DEADLINE_SECONDS)
        with closing(node), Progress("asking the runtime, the kernel and the daemon"):
            return facts_of(node)

    def _without_files(self) -> Configuration:
        """Without the kubelet's, too, if they are what cannot be used."""
        flags = {**fields_of_flags(self.arguments), "controlSocket": self.client.path}
        try:
            return load(None, os.environ, flags, root="/")
        except ConfigurationError:
            return load(None, os.environ, {**flags, "kubeletConfig": ""}, root="/")

    def plan(
        self, signal: str | None = None, until: str | None = None, *, surveyed: bool = False
    ) -> Planned:
        """A pass that removes nothing. With a signal, that pass is requested for it; without one
        all functions run to their end, so that every object gets a verdict: a real pass stops
        earlier. `surveyed`: with what uses the space.

        Exits with 4 if no filesystem can be read, with 3 if the runtime does not answer.
        """
        options = read_options({"signal": signal, "until": until}, self.configuration.signals)
        self.mention_other_configuration()
        with closing(Node(self.configuration, dry_run=True)) as node:
            problem = _locate(node)
            with Progress("reading the filesystems"):
                observations, decision = node.look()
            if not observations.signals:
                exit_unread(observations)
            if problem:
                exit_with(EXIT_RUNTIME, f"the container runtime cannot be reached: {problem}")
            world = node.world
            request: Request | None
            if options.signal is None:
                request = Request(world.functions_here(), extent=Extent.ALL, every_function=True)
            else:
                request = request_of(options, observations, decision, config=world.config)
            with Progress("listing containers and images, and planning"):
                record = node.relieve(observations, decision, Trigger.REQUEST, request=request)
            if record.errors:
                exit_with(EXIT_RUNTIME, "; ".join(record.errors))
            pods = Pods(
                told_by=node.pod_state_source,
                problem=node.pods_problem,
                directories=pod_directories(node.pods_doubt),
            )
            if surveyed:
                with Progress("measuring what uses the space"):
                    survey = node.disk_survey.survey(record.observations, record.functions)
                record = replace(record, attributions=survey)
            enough: bool | None = None
            if options.signal is not None and request is not None and request.extent != Extent.ALL:
                # a program may free more than it promised, and runtimes do not report inodes
                unknown = options.signal.counts_inodes or any(
                    removal.verdict.size_bytes is None
                    for removal in record.removals
                    if removal.verdict.kind in OWN
                )
                relieved = any(function.relieved for function in record.functions)
                enough = True if relieved else None if unknown else False
            return Planned(
                record,
                node.thresholds(record.observations.layout),
                enough=enough,
                lead_seconds=node.world.lead_seconds,
                pods=pods,
            )

    def reclaim(self, told_to_end: threading.Event) -> Answer:
        """The answer of `reclaim`, after its pass. SIGTERM and SIGINT end the pass before its next
        removal, and set `told_to_end`."""
        given = {
            option.name: getattr(self.arguments, option.name, None)
            for option in fields(ReclaimOptions)
        }
        options = read_options({**given, "width": columns()}, self.configuration.signals)
        stopping = threading.Event()  # the node sets it, too, when it is closed
        ended: list[Outcome] = []  # of parked removals, for the history

        def end() -> None:
            told_to_end.set()
            stopping.set()

        on_signals(end)
        with closing(Node(self.configuration, dry_run=options.dry_run, stopping=stopping)) as node:

            def removing() -> str:
                return ", ".join(
                    f"{removal.verdict.kind} {removal.verdict.name}"
                    for removal in node.world.removals.values()
                )

            node.listeners.add(SimpleNamespace(parked_ended=ended.append))
            if not (options.now or options.dry_run):
                PauseFile(self.configuration.state_file, node.clock).restore(node)
            if node.endpoint.found:
                mention(node.endpoint.remark)
            problem = _locate(node)
            with Progress("reclaiming", removing):
                answer = respond(options, node, problem)
            with Progress("waiting for removals that were not answered", removing):
                node.owner.drained(DRAIN_SECONDS)  # leaving would cancel them
            node.listeners.done(LISTENERS_SECONDS)
            if answer.record is not None and not node.dry_run:
                problems: list[str] = []
                history = HistoryRecorder(
                    self.configuration.history_file,
                    self.configuration.history_size_bytes,
                    SystemClock(),
                    warn=problems.append,
                )
                history.passed(answer.record)
                for outcome in ended:
                    history.parked_ended(outcome)
                if not history.finish() and not problems:
                    problems.append("the history is not written: its disk does not answer")
                mention("; ".join(problems))
        return answer

    @staticmethod
    def hold(room: HeldRoom, seconds: float, told_to_end: threading.Event) -> None:
        """Takes what is above the marks with a file without a name, which is gone when this process
        is. Ends it with 1 if others were faster."""
        path, spare, asked = room
        what = f"{format_bytes(spare)} on {path}"
        with exit_on(EXIT_NOT_RELIEVED, OSError, f"{what} cannot be held: "):
            descriptor = os.open(path, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
            if spare:
                os.posix_fallocate(descriptor, 0, spare)
        held = f"{what} are held by process {os.getpid()} until it ends"
        below = f"; {format_bytes(asked - spare)} are below the marks, and not held"
        mention(f"{held}, for {format_duration(seconds)} at most{below * (spare < asked)}")
        told_to_end.wait(seconds)
        os.close(descriptor)

    # ---- the ballast

    def ballast(
        self, action: str, file: str | None, size_bytes: int | None
    ) -> tuple[Ballast, bool]:
        """Creates, reads or removes the ballast; returns it, and false if it existed already.

        Without a file, the configured one. Exits with 2 if none is configured, with 1 if what is
        there is refused.
        """
        mark_bytes = 0
        if file is None or size_bytes is None:
            configured = self.configuration.ballast
            if configured is None:
                exit_with(
                    EXIT_USAGE,
                    f"reclaimFunctions has no {FunctionKind.BALLAST}; add it there, or give --file"
                    " and --size",
                )
            file = configured.path
            size_bytes = configured.size_bytes
            if action == CREATE:
                with self.view(PATIENT_SECONDS) as view:
                    observations = view.summary.observe()
                    mark_bytes = highest_mark(
                        view.thresholds(observations.layout), observations, configured.frees
                    )
        settings = BallastSettings(file, size_bytes)
        created = True
        ballast = Ballast(file=file, size_bytes=size_bytes, there=False, whole=False)
        # like Ctrl-C: a half-made file is removed
        catch(SIGTERM, default_int_handler)
        with exit_on(EXIT_NOT_RELIEVED, BallastRefused), Progress(f"{action} of {file}"):
            if action == CREATE:
                ballast, created = create_ballast(settings, mark_bytes)
            elif action == REMOVE:
                ballast = replace(ballast, removed_bytes=remove_ballast(settings))
            else:
                ballast = read_ballast(settings) or ballast
        return ballast, created

    def leave_ballast(self, *, purge: bool) -> str:
        """The path of the configured ballast if it is there, else an empty text. `purge`: it is
        removed."""
        found = self.configuration.ballast
        with suppress(BallastRefused):
            if found is not None:
                settings = BallastSettings(found.path, found.size_bytes)
                if read_ballast(settings) is not None:
                    if purge:
                        remove_ballast(settings)
                    return found.path
        return ""

    # ---- XFS

    def set_xfs_hints(
        self, directories: Sequence[str], size_bytes: int, *, dry_run: bool
    ) -> Iterator[tuple[bool, str]]:
        """As `set_hints`; without directories the usual ones, and last why the runtime's is not
        known."""
        if directories:
            yield from set_hints(directories, size_bytes, dry_run=dry_run)
            return
        with self.view(PATIENT_SECONDS) as view:
            usual = usual_directories(self.configuration, view.summary.paths.containerfs)
            problem = view.summary.imagefs_problem
        yield from set_hints(usual, size_bytes, dry_run=dry_run, skip_others=True)
        if problem:
            yield False, f"the runtime's directory is not known: {problem}"


def _locate(node: Node) -> str:
    """Why the runtime cannot be reached; empty if it can.

    For a dry run, what images hold on the disk is asked, too; relief does not wait for that. Shows
    progress, and mentions why records could not be restored.
    """
    mention(node.restore_image_records())
    with Progress("asking the runtime where the images are"):
        problem = node.locate()
    if node.dry_run and node.summary.paths.imagefs is not None:
        with Progress("asking the runtime what its images hold"), suppress(RuntimeUnavailable):
            node.inventory.learn_layers(node.inventory.images(node.clock.monotonic()))
    return problem
