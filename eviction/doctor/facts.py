"""The facts about a node that `doctor` checks, gathered from its runtime, kernel and filesystems.

Gathering only reads; an unknown fact is None, not an error.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from glob import iglob
from typing import TypeVar

from eviction.configuration.kubelet import KubeletConfiguration
from eviction.control.socket import ControlUnavailable, ask
from eviction.history_file.store import why_unusable
from eviction.node.node import Node
from eviction.reporting.attribution import SNAPSHOTTER
from eviction.reporting.configuration_warnings import defaults_taken
from eviction.reporting.disk_survey import CONTENT
from eviction.reporting.filesystem_facts import FilesystemFacts, filesystem_facts, paths_that_answer
from eviction.reporting.space import names_in, number_of
from eviction.types import Threshold
from reclaim.cri.client import socket_path
from reclaim.execution.workers import LOOK_SECONDS, in_time
from reclaim.images.keep_list import parse_keep_list
from reclaim.images.references import ImageIndex, images_in_use
from reclaim.pods.evidence import stopped_pods
from reclaim.pods.states import NO_TROUBLE
from reclaim.services import RuntimeVersion
from reclaim.types import Listing, PodSandboxState, RuntimeUnavailable
from signals.mounts import filesystem_id, mounts_of
from signals.types import Signal, SignalObservations

NO_ANSWER = f"its filesystem did not answer within {LOOK_SECONDS:g} s"
MAX_USER_INSTANCES = "/proc/sys/fs/inotify/max_user_instances"
INOTIFY = ("anon_inode:inotify", "anon_inode:[inotify]")
MANY_SANDBOXES = 3  # the image of so many sandboxes is enough to know the sandbox image

Answer = TypeVar("Answer")
Unknown = TypeVar("Unknown")


@dataclass(frozen=True, slots=True)
class SocketFacts:
    """What is at the runtime's endpoint: its mode as in stat(2), and its owner's uid."""

    path: str
    mode: int
    owner: int


@dataclass(frozen=True, slots=True)
class HeldImages:
    """Images that are used only by pods all of whose containers have stopped: how many there are, their reported bytes,
    and the number of such pods."""

    images: int
    bytes: int
    pods: int


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """The facts of a node. None: unknown.

    `thresholds`: reclaimd's, as they apply in the observed layout. `runtime_problem`: why the runtime does not answer,
    empty when it does. `sandbox_image`: the image that pods need to start, if any source names it;
    `sandbox_image_pinned`: whether the runtime pins it. `newest_created_seconds_ahead`: how far the creation time of
    the newest container lies in the future. `unmatched_keeps`: entries of keepImages that match no image.
    `unresolved_images`: image references of containers that match no image; the id of a container without any.
    `inotify_*`: of this user. `pods_readable`: whether the kubelet's pod directories can be listed; `pods_doubt`: why
    they are not believed although they can be, empty if they are. `log_symlinks`: directories of logs that are
    symlinks: the field of the configuration and its value. `kubelet_problem`: why the kubelet gave no list although it
    is to be asked, empty if it did or is not. `held`: what pods that stand still hold, None where the kubelet, or what
    is seen (`terminatedPods: evidence`), says which have terminated. `unwritable`: directories that should be writable
    and are not, with the reason. `history_problem`: why what is at the place of the history is none that can be used,
    empty if it is one or nothing is there. `filesystems`: what those of the signals are. `rows`: of the signals that
    are observed; `configured_rows`: those of the configuration; `frees`: where each function frees, None: on any
    filesystem. `function_problems`: functions of the configuration that cannot be called, and why. `socket`: None where
    there is none, or no runtime. `snapshotters`: containerd's by name, each with the number of its snapshots.
    `held_off`: why the daemon removes nothing now, empty if it may; `dry_run`: whether it is to remove nothing at all.
    `defaults_taken`: why marks are the kubelet's defaults though its configuration was looked for; `kubelet_remark`:
    why a kubelet that runs was not asked for it.
    """

    observations: SignalObservations
    thresholds: tuple[Threshold, ...]
    kubelet: KubeletConfiguration | None
    root_directory: str
    socket: SocketFacts | None
    wall: float
    runtime: RuntimeVersion | None = None
    runtime_problem: str = ""
    sandbox_image: str | None = None
    sandbox_image_pinned: bool | None = None
    newest_created_seconds_ahead: float | None = None
    imagefs: str | None = None
    snapshotters: Mapping[str, int] = field(default_factory=dict)
    content_device: int | None = None
    unmatched_keeps: tuple[str, ...] = ()
    unresolved_images: tuple[str, ...] = ()
    inotify_limit: int | None = None
    inotify_used: int | None = None
    pods_readable: bool | None = None
    pods_doubt: str = ""
    kubelet_problem: str = ""
    held: HeldImages | None = None
    log_symlinks: tuple[str, ...] = ()
    unwritable: tuple[tuple[str, str], ...] = ()
    history_problem: str = ""
    daemon_problem: str = ""
    held_off: str = ""
    dry_run: bool = False
    filesystems: tuple[FilesystemFacts, ...] = ()
    rows: Mapping[Signal, tuple[str, ...]] = field(default_factory=dict)
    configured_rows: Collection[Signal] = ()
    frees: Mapping[str, str | None] = field(default_factory=dict)
    function_problems: tuple[tuple[str, str], ...] = ()
    defaults_taken: str = ""
    kubelet_remark: str = ""

    @property
    def kubelets_marks(self) -> tuple[Threshold, ...]:
        """The kubelet's own thresholds, as far as its configuration is known."""
        return () if self.kubelet is None else self.kubelet.thresholds.thresholds


def gather(node: Node) -> NodeFacts:
    """All facts that the checks need, as they are now."""
    problem = node.locate()
    observations = node.summary.observe()
    configuration, config = node.configuration, node.responder.state.config
    pods = os.path.join(configuration.root_directory, "pods")
    endpoint = socket_path(node.endpoint.runtime) if configuration.has_runtime else ""
    at_endpoint = _answer(lambda: os.stat(endpoint), None)
    looked_at = {"podLogsDir": configuration.pod_logs_dir, "containerLogsDir": configuration.container_logs_dir}
    facts = NodeFacts(
        observations=observations,
        thresholds=node.thresholds(observations.layout),
        kubelet=configuration.kubelet,
        root_directory=configuration.root_directory,
        socket=None if at_endpoint is None else SocketFacts(endpoint, at_endpoint.st_mode, at_endpoint.st_uid),
        wall=node.clock.wall(),
        runtime_problem=problem or "",
        imagefs=node.summary.paths.imagefs,
        inotify_limit=number_of(MAX_USER_INSTANCES),
        inotify_used=inotify_instances(),
        pods_readable=_answer(lambda: os.access(pods, os.R_OK | os.X_OK), None) if configuration.has_runtime else None,
        unwritable=_unwritable(configuration.state_file, configuration.history_file, configuration.pod_logs_dir),
        history_problem=_answer(lambda: why_unusable(configuration.history_file), NO_ANSWER),
        log_symlinks=tuple(
            f"{field}: {path}" for field, path in looked_at.items() if _answer(partial(os.path.islink, path), False)
        ),
        filesystems=filesystem_facts(observations, mounts_of(paths_that_answer(observations))),
        rows={signal: config.row(signal, observations) for signal in observations.signals},
        configured_rows=config.rows.keys(),
        frees={name: function.frees for name, function in node.functions.items()},
        function_problems=node.function_problems(),
        defaults_taken=defaults_taken(configuration),
        kubelet_remark=configuration.kubelet_remark if configuration.kubelet is not None else "",
    )
    facts = _with_daemon(_with_store(facts), configuration.control_socket)
    return facts if problem or not configuration.has_runtime else _with_runtime(facts, node)


def inotify_instances(proc: str = "/proc") -> int | None:
    """Inotify instances of this user's processes, as far as they are readable; None if no process is."""
    links = []
    for descriptor in iglob(f"{proc}/[0-9]*/fd/*"):
        try:
            if os.lstat(descriptor).st_uid == os.geteuid():
                links.append(os.readlink(descriptor))
        except OSError:  # it ended, or may not be read
            continue
    return sum(link in INOTIFY for link in links) if links else None


def _with_store(facts: NodeFacts) -> NodeFacts:
    """The facts with containerd's other snapshotters and the device of its content store."""
    if facts.imagefs is None or not os.path.basename(facts.imagefs).startswith(SNAPSHOTTER):
        return facts
    root = os.path.dirname(facts.imagefs)
    found = [name.removeprefix(SNAPSHOTTER) for name in _listed(root) if name.startswith(SNAPSHOTTER)]
    snapshotters = {name: len(_listed(os.path.join(root, SNAPSHOTTER + name, "snapshots"))) for name in found}
    device = _answer(lambda: filesystem_id(os.path.join(root, CONTENT)), None)
    return replace(facts, snapshotters=snapshotters, content_device=device)


def _with_runtime(facts: NodeFacts, node: Node) -> NodeFacts:
    try:
        version = node.client.version()
        listing = node.inventory.snapshot(node.clock.monotonic())
        doubt = node.compare_pods()
        told = facts.pods_readable and doubt is not None and doubt.why not in NO_TROUBLE
        ready = [one.id for one in listing.sandboxes if one.state is PodSandboxState.READY][:MANY_SANDBOXES]
        used = filter(None, map(node.client.image_of_sandbox, ready))
        name = node.client.sandbox_image() or next(used, None)
    except RuntimeUnavailable as error:
        return replace(facts, runtime_problem=str(error))
    if name is None:
        pinned = images_in_use(Listing(images=listing.images)).sandbox_image_known
    else:
        ids = ImageIndex(listing.images).find(name)
        pinned = any(image.pinned for image in listing.images if image.id in ids)
    told_which_terminated = node.pod_state_source == "kubelet" or node.configuration.terminated_by_evidence
    newest = max((container.created_at_ns for container in listing.containers), default=None)
    return replace(
        facts,
        runtime=version,
        sandbox_image=name,
        sandbox_image_pinned=pinned,
        newest_created_seconds_ahead=None if newest is None else newest / 1e9 - facts.wall,
        unmatched_keeps=parse_keep_list(node.configuration.keep_images).unmatched(listing.images),
        unresolved_images=images_in_use(listing).unresolved,
        pods_doubt=facts.pods_doubt or (doubt.sentence if told and doubt is not None else ""),
        kubelet_problem=node.pods_problem or "",
        held=None if told_which_terminated else held_by_stopped_pods(listing, facts.root_directory),
    )


def held_by_stopped_pods(listing: Listing, root_directory: str) -> HeldImages:
    """The images that only containers of stopped pods keep in use.

    Pods that have volumes are left out, as they are to run again; so are all pods while no sandbox is ready, as after a
    reboot.
    """
    if not any(sandbox.state is PodSandboxState.READY for sandbox in listing.sandboxes):
        return HeldImages(0, 0, 0)
    stopped = {
        uid
        for uid, pod in stopped_pods(listing).items()
        if pod.containers and not _has_volumes(os.path.join(root_directory, "pods", uid, "volumes"))
    }
    others = tuple(container for container in listing.containers if container.pod_uid not in stopped)
    without = images_in_use(replace(listing, containers=others))
    held = images_in_use(listing).by_containers - without.by_containers - without.by_sandboxes
    sizes = [image.size_bytes for image in listing.images if image.id in held and not image.pinned]
    return HeldImages(len(sizes), sum(sizes), len(stopped))


def _has_volumes(directory: str) -> bool:
    return any(_listed(os.path.join(directory, plugin)) for plugin in _listed(directory))


def _unwritable(state_file: str, history_file: str, pod_logs_dir: str) -> tuple[tuple[str, str], ...]:
    """Directories that exist and cannot be written, with the reason.

    For a missing directory, the nearest existing one above it counts.
    """

    def problem(path: str) -> str:
        nearest = path
        while not os.path.exists(nearest) and nearest != "/":
            nearest = os.path.dirname(nearest)
        missing_logs = path == pod_logs_dir and nearest != path
        if missing_logs or os.access(nearest, os.W_OK | os.X_OK):
            return ""
        return f"no permission to write {nearest}, or it is mounted read-only"

    paths = dict.fromkeys(filter(None, (*map(os.path.dirname, (state_file, history_file)), pod_logs_dir)))
    found = ((path, _answer(partial(problem, path), NO_ANSWER)) for path in paths)
    return tuple((path, why) for path, why in found if why)


def _with_daemon(facts: NodeFacts, control_socket: str) -> NodeFacts:
    """The facts with what a running daemon says: only it knows whether the kubelet's directories were others before."""
    if not control_socket:
        return facts
    try:
        brief = ask(control_socket, "brief")
        told = brief.get("pod_directories", {})
        facts = replace(facts, held_off=brief.get("held_off") or "", dry_run=bool(brief.get("dry_run")))
    except ControlUnavailable as error:
        return replace(facts, daemon_problem=str(error))
    doubted = facts.pods_readable and told.get("why") not in {None, *NO_TROUBLE}
    return replace(facts, pods_doubt=str(told["sentence"])) if doubted else facts


def _answer(look: Callable[[], Answer], unknown: Unknown) -> Answer | Unknown:
    """What `look` returns, or `unknown` if it hangs or fails."""
    try:
        return in_time(look)
    except OSError:
        return unknown


def _listed(directory: str) -> list[str]:
    """The names in a directory; none where it cannot be read."""
    return _answer(lambda: names_in(directory), [])
