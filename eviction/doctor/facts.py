"""What `reclaimd doctor` knows of a node: gathered here, once, read-only.

`eviction.doctor.checks` judges it.
"""

import os
import tomllib
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from glob import iglob
from pathlib import Path
from typing import NamedTuple, TypeVar

from eviction.configuration.effective import Configuration, eviction_config
from eviction.engine.node import Node
from eviction.records.store import why_unusable
from eviction.surface.control_client import NotAskedError, ask
from eviction.surface.xfs_hints import usual_directories
from eviction.survey.filesystem_facts import FilesystemFacts, filesystem_facts, paths_that_answer
from eviction.survey.space import CONTENT, SNAPSHOTTER, USUAL_PLACES, Cache, TimeLimit, caches_below
from eviction.types import Fields, Thresholds
from reclaim.cri.client import socket_path
from reclaim.cri.containers_storage import IMAGES
from reclaim.evidence.references import images_in_use
from reclaim.evidence.states import Distrust, is_pod_uid
from reclaim.kubelet.pull_records import NOT_READ, PullRecords
from reclaim.types import (
    ContainerState,
    ImageRecord,
    Listing,
    PodSandboxState,
    RuntimeUnavailable,
    RuntimeVersion,
)
from reclaim.workers import in_time
from reclaim.xfs_hint import inherited_hint
from signals.clock import LATE_SECONDS
from signals.mounts import filesystem_id, mounts_of
from signals.quantity import format_bytes
from signals.types import SignalObservations

NO_ANSWER = f"its filesystem did not answer within {LATE_SECONDS:g} s"
BUILDKITD_TOML = "/etc/buildkit/buildkitd.toml"
CACHES_SECONDS = 2.0  # for finding caches, and for counting them
MANY_SANDBOXES = 3  # that are asked which image they have
UNITS = [f"/{directory}/systemd/system/reclaimd.service" for directory in ("etc", "usr/lib", "lib")]

Answer = TypeVar("Answer")
Unknown = TypeVar("Unknown")


class Runtime(NamedTuple):
    """What the runtime answers, and what can be known only with it; all of it is
    missing if it does not answer.
    """

    version: RuntimeVersion | None = None
    listing: Listing = Listing()
    sandbox_image: str | None = None
    """The image that pods need to start; None if nothing names it."""
    doubt: Distrust | None = None
    """Why the kubelet's pod directories are not believed."""
    records: Mapping[str, ImageRecord] = {}
    """What is remembered of images, by id."""
    pulls: PullRecords = NOT_READ
    pod_list_problem: str = ""
    """Why the kubelet gives no list of its pods; empty if it does."""
    held: str = ""
    """What pods hold that seem to have terminated; empty if nothing, or if
    the kubelet says which have.
    """


class Facts(NamedTuple):
    """One node at one moment. Problems are sentences, empty without one."""

    configuration: Configuration
    observations: SignalObservations
    wall: float
    """What the clock says, in seconds since the epoch."""
    filesystems: tuple[FilesystemFacts, ...]
    """Those of the signals."""
    xfs_hints: Mapping[str, tuple[str, int]]
    """The directories in which files grow: what is mounted there, and the hint in bytes, 0 without
    one."""
    caches: tuple[Cache, ...]
    """Those from which no function removes."""
    buildkitd: Fields
    """BuildKit's configuration; empty if there is none, or it cannot be read."""
    runtime: Runtime
    runtime_problem: str
    """Why the runtime does not answer."""
    endpoint: str
    """The path of the runtime's socket."""
    socket: os.stat_result | None
    """Of `endpoint`; None if it is not there."""
    imagefs: str | None
    """Where the runtime says that its images are."""
    snapshotters: Mapping[str, int]
    """containerd's, each with the number of its snapshots."""
    content_device: int | None
    """The device of containerd's content store; of the layers with CRI-O."""
    function_problems: tuple[tuple[str, str], ...]
    """The configured functions that cannot be called, each with the reason."""
    unwritable: Mapping[str, str]
    """Directories of our files, and of the pods' logs, that cannot be
    written, each with the reason.
    """
    symlinks: Mapping[str, str]
    """The log directories that are symlinks, by the field that names them."""
    inotify_limit: int | None
    inotify_used: int
    history_problem: str
    """Why there can be no history."""
    daemon_problem: str
    """Why no daemon answers."""
    daemon: Fields
    """Its answer to `status`; empty if there is none."""
    installed: bool
    """Whether systemd has a unit for the daemon."""

    @property
    def thresholds(self) -> Thresholds:
        """Those in force."""
        return eviction_config(self.configuration).in_layout(self.observations.layout)


def facts_of(node: Node) -> Facts:
    """Asks the runtime, the kernel and the daemon."""
    runtime = Runtime()
    runtime_problem = node.locate()
    observations = node.summary.observe()
    configuration = node.configuration
    daemon_problem, daemon = _ask_daemon(configuration.control_socket)
    if configuration.has_runtime and not runtime_problem:
        try:
            runtime = _ask_runtime(node)
        except RuntimeUnavailable as error:
            runtime_problem = str(error)
    imagefs = node.summary.paths.imagefs
    snapshotters, content_device = _snapshotters(imagefs)
    endpoint = socket_path(node.endpoint.runtime) if configuration.has_runtime else ""
    log_directories = {
        "podLogsDir": configuration.pod_logs_dir,
        "containerLogsDir": configuration.container_logs_dir,
    }
    return Facts(
        configuration=configuration,
        observations=observations,
        wall=node.clock.wall(),
        filesystems=filesystem_facts(observations, mounts_of(paths_that_answer(observations))),
        caches=_caches(node),
        buildkitd=_buildkitd(),
        xfs_hints=_xfs_hints(
            *usual_directories(configuration, node.summary.paths.containerfs),
            *configuration.filesystems.values(),
        ),
        runtime=runtime,
        runtime_problem=runtime_problem,
        endpoint=endpoint,
        socket=answer_of(lambda: os.stat(endpoint), None),
        imagefs=imagefs,
        snapshotters=snapshotters,
        content_device=content_device,
        function_problems=node.function_problems(),
        unwritable=_unwritable(configuration),
        symlinks={
            name: path
            for name, path in log_directories.items()
            if answer_of(partial(os.path.islink, path), False)
        },
        inotify_limit=answer_of(
            lambda: int(Path("/proc/sys/fs/inotify/max_user_instances").read_text()), None
        ),
        inotify_used=inotify_instances(),
        history_problem=answer_of(lambda: why_unusable(configuration.history_file), NO_ANSWER),
        daemon_problem=daemon_problem,
        daemon=daemon,
        installed=any(map(os.path.exists, UNITS)),
    )


def _ask_runtime(node: Node) -> Runtime:
    """Raises RuntimeUnavailable."""
    listing = node.inventory.snapshot(node.clock.monotonic()).listing
    ready = [sandbox.id for sandbox in listing.sandboxes if sandbox.state is PodSandboxState.READY]
    used = filter(None, map(node.client.image_of_sandbox, ready[:MANY_SANDBOXES]))
    doubt = node.detection.compare_pods()
    node.restore_image_records()
    node.detection.images()
    held = ""
    if node.pod_state_source != "kubelet":
        held = held_by_stopped_pods(listing, f"{node.configuration.root_directory}/pods")
    return Runtime(
        version=node.client.version(),
        listing=listing,
        sandbox_image=node.client.sandbox_image() or next(used, None),
        doubt=doubt,
        records=node.records.records,
        pulls=node.pull_records(listing.containers),
        pod_list_problem=node.pods.list_problem or "",
        held=held,
    )


def _ask_daemon(control_socket: str) -> tuple[str, Fields]:
    """Why no daemon answers, or else its answer: only the daemon knows whether the pod directories
    were different before."""
    if not control_socket:
        return "", {}
    try:
        return "", ask(control_socket, "status")
    except NotAskedError as error:
        return str(error), {}


def _buildkitd() -> Fields:
    try:
        return tomllib.loads(in_time(Path(BUILDKITD_TOML).read_text))
    except (OSError, ValueError):
        return {}


def _caches(node: Node) -> tuple[Cache, ...]:
    configuration = node.configuration
    pods = os.path.join(configuration.root_directory, "pods")
    named = [path for entry in configuration.functions for path in entry.caches]
    return caches_below(
        (pods, *USUAL_PLACES),
        named,
        TimeLimit(node.disk_survey.workers, node.clock, CACHES_SECONDS),
    )


def _xfs_hints(*directories: str) -> dict[str, tuple[str, int]]:
    mounts = answer_of(lambda: mounts_of(directories), {})
    return {
        directory: (mount.source, answer_of(partial(inherited_hint, directory), 0))
        for directory, mount in mounts.items()
    }


def inotify_instances(proc: str = "/proc") -> int:
    """The number of inotify instances of this user's readable processes."""
    instances = 0
    for descriptor in iglob(f"{proc}/[0-9]*/fd/*"):
        with suppress(OSError):  # it ended, or may not be read
            if os.lstat(descriptor).st_uid == os.geteuid():
                link = os.readlink(descriptor)
                instances += link in ("anon_inode:inotify", "anon_inode:[inotify]")
    return instances


def _snapshotters(imagefs: str | None) -> tuple[Mapping[str, int], int | None]:
    """containerd's snapshotters, each with the number of its snapshots, and the device of its
    content store, which for CRI-O is that of the layers."""
    layers = (imagefs or "").removesuffix(IMAGES)
    root, name = os.path.split(layers)
    if not name.startswith(SNAPSHOTTER):
        is_crio = layers != (imagefs or "")
        return {}, answer_of(lambda: filesystem_id(layers), None) if is_crio else None
    snapshots = {
        name.removeprefix(SNAPSHOTTER): len(_listed(f"{root}/{name}/snapshots"))
        for name in _listed(root)
        if name.startswith(SNAPSHOTTER)
    }
    return snapshots, answer_of(lambda: filesystem_id(os.path.join(root, CONTENT)), None)


def held_by_stopped_pods(listing: Listing, pods: str) -> str:
    """The images that only containers of stopped pods keep in use, in words;
    empty if they take nothing.

    In a stopped pod all containers have EXITED and all sandboxes are NOTREADY. Pods with volumes do
    not count, because they will run again; nor does any pod while no sandbox is ready, as after a
    reboot. `pods`: the kubelet's pod directory.
    """
    if not any(sandbox.state is PodSandboxState.READY for sandbox in listing.sandboxes):
        return ""
    live = {each.pod_uid for each in listing.containers if each.state is not ContainerState.EXITED}
    stopped = set()
    for sandbox in listing.sandboxes:
        uid = sandbox.pod_uid
        if sandbox.state is not PodSandboxState.NOTREADY or not sandbox.labelled:
            live.add(uid)
        elif is_pod_uid(uid) and not _has_volumes(f"{pods}/{uid}/volumes"):
            stopped.add(uid)
    stopped &= {container.pod_uid for container in listing.containers} - live
    without = images_in_use(
        listing._replace(
            containers=tuple(each for each in listing.containers if each.pod_uid not in stopped)
        )
    )
    held = images_in_use(listing).by_containers - without.by_containers - without.by_sandboxes
    sizes = [image.size_bytes for image in listing.images if image.id in held and not image.pinned]
    exited = f"pods all of whose containers have exited: {len(stopped)}"
    return f"{format_bytes(sum(sizes))}; images: {len(sizes)}; {exited}" if sum(sizes) else ""


def _has_volumes(directory: str) -> bool:
    return any(_listed(os.path.join(directory, plugin)) for plugin in _listed(directory))


def _unwritable(configuration: Configuration) -> dict[str, str]:
    files = configuration.state_file, configuration.history_file
    problems = {
        path: answer_of(partial(_why_unwritable, path), NO_ANSWER)
        for path in (*map(os.path.dirname, files), configuration.pod_logs_dir)
        if path
    }
    return {path: why for path, why in problems.items() if why}


def _why_unwritable(path: str) -> str:
    """In place of a missing directory, the nearest one above it counts; empty
    if it can be written.
    """
    while not os.path.exists(path):
        path = os.path.dirname(path)
    writable = os.access(path, os.W_OK | os.X_OK)
    return "" if writable else f"no permission to write {path}, or it is mounted read-only"


def answer_of(look: Callable[[], Answer], unknown: Unknown) -> Answer | Unknown:
    """What `look` returns, or `unknown` if it hangs or raises OSError."""
    try:
        return in_time(look)
    except OSError:
        return unknown


def _listed(directory: str) -> list[str]:
    """The names in a directory; none if it cannot be read or hangs."""
    return sorted(answer_of(lambda: os.listdir(directory), []))
