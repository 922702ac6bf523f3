"""What is wrong or risky on a node: each function `check_…` yields its findings, and `examine` runs them all.

A check yields nothing about what is unknown, unless that itself is the problem. Everything here is read-only.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from glob import iglob
from typing import Any, Literal, TypeVar

from eviction.configuration.effective import Configuration
from eviction.configuration.kubelet import KubeletConfiguration
from eviction.control.socket import ControlUnavailable, ask
from eviction.decision.thresholds import thresholds_met, update_container_fs_thresholds
from eviction.history_file.store import why_unusable
from eviction.node.node import Node
from eviction.reporting.configuration_warnings import (
    Finding,
    Severity,
    has_no_threshold,
    kubelet_findings,
    note,
    problem,
    risk,
    row_problems,
)
from eviction.reporting.explain import later_than_kubelet, unreachable_sentences
from eviction.reporting.filesystem_facts import FilesystemFacts, filesystem_facts, paths_that_answer, roles_by_device
from eviction.reporting.json_shapes import Versioned
from eviction.reporting.observations_json import timestamp
from eviction.reporting.pass_record import shortened
from eviction.reporting.space import CONTENT, SNAPSHOTTER, names_in, number_of
from eviction.reporting.tables import against_its_mark
from eviction.types import Threshold
from reclaim.cri.client import socket_path
from reclaim.evidence.references import ImageIndex, images_in_use
from reclaim.evidence.states import NO_TROUBLE, is_pod_uid
from reclaim.images.keep_list import parse_keep_list
from reclaim.images.pull_records import NOT_READ, PullRecords, record_names
from reclaim.images.storage import IMAGES
from reclaim.services import RuntimeVersion
from reclaim.types import ContainerState, ImageRecord, Listing, PodSandboxState, RuntimeUnavailable
from reclaim.workers import in_time
from signals.clock import LATE_SECONDS
from signals.mounts import filesystem_id, mounts_of
from signals.quantity import format_bytes
from signals.types import FilesystemRole, FsLayout, SignalObservations

SHARE_RESERVED = 0.01
# Snapshotters that keep their data outside their directory, so that statvfs does not show their free space.
DATA_ELSEWHERE = frozenset({"devmapper", "zfs", "blockfile"})
LARGEST_SKEW_SECONDS = 60.0
EARLIEST_WALL = 1_735_689_600.0  # 2025-01-01: before this program was written
FEW_INOTIFY_INSTANCES = 128  # the kernel's default; a node with many pods uses them up
SHARE_IN_USE = 0.9
MOST_SHOWN = 5
PIN = "ctr -n k8s.io images label IMAGE io.cri-containerd.pinned=pinned; containerd 1.6.36, 1.7.13 and 2 pin it"

NO_ANSWER = f"its filesystem did not answer within {LATE_SECONDS:g} s"
MAX_USER_INSTANCES = "/proc/sys/fs/inotify/max_user_instances"
INOTIFY = ("anon_inode:inotify", "anon_inode:[inotify]")
MANY_SANDBOXES = 3  # that are asked which image they have
UNITS = [f"/{directory}/systemd/system/reclaimd.service" for directory in ("etc", "usr/lib", "lib")]

Answer = TypeVar("Answer")
Unknown = TypeVar("Unknown")
Findings = Iterator[Finding]
Marks = tuple[Threshold, ...]


class DoctorJson(Versioned):
    """What is wrong or risky on this node: the answer of `reclaimd doctor`."""

    kind: Literal["Doctor"] = "Doctor"
    healthy: bool
    """Whether all findings are notes, or there are none."""
    findings: tuple[Finding, ...]
    """The worst first."""
    filesystems: tuple[FilesystemFacts, ...]
    """The filesystems of the signals."""


@dataclass(frozen=True, slots=True)
class Runtime:
    """The answers of the runtime. `sandbox_image`: the image that pods need to start, None if nothing names it."""

    version: RuntimeVersion
    listing: Listing
    sandbox_image: str | None = None

    def is_version(self, name: str, pattern: str = ".*") -> bool:
        """Whether it is this runtime, in a version that matches the pattern."""
        return self.version.name == name and re.fullmatch(pattern, self.version.version.lstrip("v")) is not None


def check_pressure(
    thresholds: Marks, kubelet: KubeletConfiguration | None, observations: SignalObservations
) -> Findings:
    """Thresholds that are met now, and whether the kubelet's own are met too, if they are known."""
    signals = observations.signals
    kubelets = update_container_fs_thresholds(marks_of(kubelet), observations.layout)
    crossed = {one.signal for one in thresholds_met(kubelets, signals, enforce_min_reclaim=False)}
    for threshold in thresholds_met(thresholds, signals, enforce_min_reclaim=False):
        beside = f"; {'below' if threshold.signal in crossed else 'not below'} the kubelet's own mark"
        seen = f"{against_its_mark(threshold, observations)}{beside * (kubelet is not None)}"
        remedy = "reclaimd plan shows what may be removed and what uses the space"
        yield problem("pressure", f"{threshold.signal} is below its mark", seen, remedy)


def check_readings(observations: SignalObservations, runtime_problem: str) -> Findings:
    for one in observations.unavailable:
        if one.reason not in runtime_problem:
            what = f"{one.role} cannot be read, so pressure on it goes unnoticed"
            yield problem("readings", what, one.reason, "check the disk and its mount")


def check_runtime(runtime_problem: str) -> Findings:
    if runtime_problem:
        what = "the container runtime does not answer, so nothing can be reclaimed"
        yield problem("runtime", what, runtime_problem, "start it, or set containerRuntimeEndpoint to its socket")


def check_socket(path: str, found: os.stat_result | None) -> Findings:
    """Any process that can connect to the CRI socket has root's power on this node."""
    if found is not None and (found.st_uid != 0 or found.st_mode & 0o002):
        what = "users other than root can connect to the runtime's socket, and whoever can is as powerful as root"
        seen = f"{path} belongs to user {found.st_uid} and has mode {found.st_mode & 0o777:04o}"
        yield risk("socket", what, seen, "let root own it, with mode 0660 (containerd: [grpc] uid and gid)")


def check_permissions(unwritable: Mapping[str, str]) -> Findings:
    """Directories of our files, and of the pods' logs, that cannot be written, each with the reason."""
    for path, why in unwritable.items():
        yield risk("permissions", f"{path} cannot be written", why, "run as root; the unit needs it in ReadWritePaths")


def check_pod_directories(doubt: str) -> Findings:
    """Pod directories that do not explain what the runtime holds are not the kubelet's."""
    if doubt:
        what = "the kubelet's pod directories are not believed, so no pod counts as gone and its remains are kept"
        remedy = "mount the kubelet's disk; set rootDirectory to its --root-dir; on a drained node set kubeletEndpoint"
        yield problem("pod-directories", what, doubt, remedy)


def check_log_directories(directories: Mapping[str, str]) -> Findings:
    """A symlink could lead anywhere, so it is not followed. `directories`: by the field that names them."""
    for field, path in directories.items():
        if answer_of(partial(os.path.islink, path), False):
            what = "a log directory is a symlink, which is not followed, so nothing in it is removed"
            yield risk("log-symlink", what, f"{field}: {path}", "name the directory that it points to")


def check_kubelet_list(kubelet_problem: str, held: str, expected: bool = True) -> Findings:
    """Only the kubelet knows which pods have terminated; until it says so, they keep their images in use. `held`: what
    pods hold that seem to have terminated; empty if nothing, or if another source says which have. `expected`: it is
    configured how the kubelet is asked."""
    allow = "grant an identity get on nodes/pods (nodes/proxy before Kubernetes 1.33), as the component kubelet does"
    if kubelet_problem:
        what = "the kubelet gives no list of its pods, so what terminated pods hold is kept"
        yield (risk if expected else note)("kubelet-list", what, kubelet_problem, allow)
    if held:
        what = "only pods that seem to have terminated use these images, and the kubelet has not said that they have"
        yield risk("terminated-pods", what, held, allow if kubelet_problem else "set kubeletEndpoint to auto")


def check_thresholds(
    thresholds: Marks, kubelet: KubeletConfiguration | None, observations: SignalObservations
) -> Findings:
    """Thresholds that act later than the kubelet's, can never be cleared, or are missing."""
    signals = observations.signals
    for sentence in later_than_kubelet(thresholds, marks_of(kubelet), signals):
        what = "the kubelet acts first, and may evict pods before reclaimd does anything"
        remedy = f"raise evictionHard {sentence.partition(':')[0]}, or leave it out and use margin"
        yield risk("thresholds-late", what, sentence, remedy)
    for sentence in unreachable_sentences(thresholds, observations):
        signal = sentence.partition(":")[0]
        what = f"{signal} has a threshold that its filesystem is too small for"
        remedy = f"lower evictionHard or evictionMinimumReclaim of {signal}, or margin"
        yield problem("thresholds-unreachable", what, sentence, remedy)
    active = {one.signal for one in thresholds if one.signal in signals and one.mark(signals[one.signal].capacity)}
    left = {signal.filesystem for signal in signals} - {signal.filesystem for signal in active}
    idle = [role for role in observations.filesystems if role in left - {FilesystemRole.CONTAINERFS}]
    none = has_no_threshold(thresholds)
    if none or idle:
        what = f"{', '.join(idle)} has no threshold, so nothing relieves it"
        what = "no disk signal has a threshold, so nothing is ever reclaimed" if none else what
        seen = f"evictionHard of {kubelet.name if kubelet else 'no kubelet'}, and of our own files"
        remedy = "set evictionHard; a kubelet's file that sets it ends its defaults, and 0% switches a signal off"
        yield problem("thresholds-none", what, seen, remedy)


def check_functions(problems: Iterable[tuple[str, str]]) -> Findings:
    """`problems`: the configured functions that cannot be called, each with the reason."""
    for name, why in problems:
        yield problem("function", f"{name} cannot do anything", why, "correct it, or remove it from reclaimFunctions")


def check_sandbox_image(runtime: Runtime | None) -> Findings:
    """Without the sandbox image no pod can start; while it is unknown, no image is removed at all."""
    if runtime is None:
        return
    images, name = runtime.listing.images, runtime.sandbox_image
    if name is None and not images_in_use(Listing(images=images)).sandbox_image_known:
        what = "the image that pods need to start is unknown, so no image is removed"
        seen = "no configured sandbox image, no ready sandbox that names one, no pinned image"
        yield problem("sandbox-image", what, seen, PIN)
    elif name is not None and not any(image.pinned for image in images if image.id in ImageIndex(images).find(name)):
        what = "the sandbox image is not pinned: reclaimd keeps it, but other tools and older kubelets may remove it"
        yield risk("sandbox-image", what, f"{name} is configured and not pinned", PIN)


def check_unresolved_images(runtime: Runtime | None) -> Findings:
    """A container whose image is unknown could use any image, so none is removed."""
    unresolved = () if runtime is None else images_in_use(runtime.listing).unresolved
    if unresolved:
        what, shown = "the image of a container is unknown, so no image is removed", unresolved[:MOST_SHOWN]
        seen = f"no image is known for {len(unresolved)}, such as {', '.join(map(shortened, shown))}"
        yield problem("image-unresolved", what, seen, "crictl ps -a shows the container; if it is dead, crictl rm it")


def check_containerd_frees_late(runtime: Runtime | None) -> Findings:
    """containerd 2.0.0 to 2.0.4 answers a removal before the space is free."""
    if runtime is not None and runtime.is_version("containerd", r"2\.0\.[0-4](?:[-+].*)?"):
        what = "this containerd answers a removal before the space is free, so more images are removed than needed"
        seen = f"containerd {runtime.version.version.lstrip('v')}"
        yield risk("containerd-frees-late", what, seen, "update to containerd 2.0.5 or later")


def check_store(
    imagefs: str | None, snapshotters: Mapping[str, int], content: int | None, observations: SignalObservations
) -> Findings:
    """Whether statvfs on the reported path shows the filesystem of the images. `snapshotters`: containerd's, each with
    the number of its snapshots. `content`: the device of its content store."""
    current = (imagefs or "").rpartition(".")[2]
    if current in DATA_ELSEWHERE:
        what = "the snapshotter keeps its data on block devices, which statvfs does not show"
        remedy = "thresholds on imagefs have no effect here; monitor the snapshotter's own pool"
        yield problem("store-elsewhere", what, f"images are in {imagefs}", remedy)
    images = observations.filesystems.get(FilesystemRole.IMAGEFS)
    for name, snapshots in snapshotters.items():
        if name != current and snapshots > 0:
            what = "another snapshotter holds content that CRI neither shows nor frees"
            seen = f"{snapshots} snapshots of {name} besides {imagefs}"
            remedy = "remove its snapshots if no pod or namespace uses them (ctr snapshots --snapshotter)"
            yield risk("store-second-snapshotter", what, seen, remedy)
    if content is not None and images is not None and content != images[0].device_id:
        what = "images are on two filesystems; that of compressed content (containerd) or layers (CRI-O) is not watched"
        seen = f"{imagefs} is on device {images[0].device_id}, the content store on {content}"
        yield risk("store-split", what, seen, "put the runtime's whole root on one filesystem")


def check_keeps(entries: Sequence[str], runtime: Runtime | None) -> Findings:
    """Entries of keepImages that match nothing protect nothing."""
    for entry in () if runtime is None else parse_keep_list(entries).unmatched(runtime.listing.images):
        what = "an entry of keepImages matches no image on this node"
        remedy = "correct it, or pull the image that it should protect"
        yield risk("keep-unmatched", what, f"keepImages: {entry!r}", remedy)


def check_pulls(
    keep: bool | str, runtime: Runtime | None, records: Mapping[str, ImageRecord], pulls: PullRecords
) -> Findings:
    """Images that may not come back, and records of pulls that nobody prunes. `keep`: keepImagesNotPulled."""
    images = {} if runtime is None else {image.id: image for image in runtime.listing.images}
    found = [image for image in images.values() if image.id in records and records[image.id].not_pulled]
    if found:
        shown = ", ".join(shortened(image.title) for image in found[:MOST_SHOWN]) + ", …" * (len(found) > MOST_SHOWN)
        what = "pods have used images that the kubelet did not pull: imported or built here, they may not come back"
        seen = f"{format_bytes(sum(image.size_bytes for image in found))}; images: {len(found)}: {shown}"
        remedy = "keepImagesNotPulled: true keeps them, auto removes them last; or name them in keepImages"
        yield (note if keep else risk)("images-not-pulled", what, seen, remedy)
    if keep is True and pulls.problem and images:
        what = "it is not known which images the kubelet did not pull, so keepImagesNotPulled protects no new one"
        yield risk("images-not-pulled", what, pulls.problem, "name the images in keepImages")
    if images and (gone := pulls.names.difference(*map(record_names, images.values()))):
        what = "the kubelet keeps records of pulls of images that are gone, until it collects images for space itself"
        seen = f"{len(gone)} of {len(pulls.names)} records, a small file each"
        yield note("pull-records", what, seen, "nothing: they do no harm, and their number says how many images went")


def check_clock(wall: float, runtime: Runtime | None) -> Findings:
    """The ages of containers depend on the wall clock."""
    created = [] if runtime is None else [container.created_at_ns for container in runtime.listing.containers]
    newest, wrong = max(created, default=0) / 1e9, wall < EARLIEST_WALL
    if wrong or newest - wall > LARGEST_SKEW_SECONDS:
        what = "the clock is wrong, or was set back, so objects count as too young for longer"
        seen = f"it says {timestamp(wall)}{f'; the newest container is of {timestamp(newest)}' * bool(created)}"
        remedy = "set it and keep it in step (chrony, systemd-timesyncd)"
        yield (problem if wrong else risk)("clock", what, seen, remedy)


def check_separate_disk_gc(
    kubelet: KubeletConfiguration | None, layout: FsLayout | None, runtime: Runtime | None
) -> Findings:
    """Without the gate KubeletSeparateDiskGC a kubelet gives up on split filesystems, which it detects only on
    CRI-O."""
    split = layout is FsLayout.SPLIT and runtime is not None and runtime.is_version("cri-o")
    if split and kubelet is not None and not kubelet.separate_disk_gc:
        what = "the kubelet neither reclaims nor evicts: images and writable layers are apart, and its gate is off"
        seen = f"KubeletSeparateDiskGC is false in {kubelet.name}, and the layout is {FsLayout.SPLIT}"
        remedy = "remove the gate from its featureGates (on by default since 1.31); reclaimd works with and without it"
        yield risk("separate-disk-gc-off", what, seen, remedy)


def check_image_gc_off(kubelet: KubeletConfiguration | None) -> Findings:
    """imageGCHighThresholdPercent 100 turns off the kubelet's periodic image garbage collection."""
    if kubelet is not None and kubelet.image_gc_high_threshold_percent == 100:
        what = "the kubelet's periodic image garbage collection is off; only pressure reclaims images"
        seen = f"imageGCHighThresholdPercent is 100 in {kubelet.name}"
        yield note("image-gc-off", what, seen, "this is fine while reclaimd runs; monitor that it does")


def check_inodes(observations: SignalObservations) -> Findings:
    """A filesystem that does not count inodes has no inode signal."""
    for role, (identity, stats) in observations.filesystems.items():
        if stats.inodes_total == 0:
            what = f"{role} counts no inodes, so thresholds for {role}.inodesFree have no effect"
            seen = f"{identity.type or 'the filesystem'} on {identity.path} reports 0 inodes in all"
            yield note("no-inode-signal", what, seen, "nothing, if the filesystem creates inodes as needed (btrfs)")


def check_reserve(observations: SignalObservations) -> Findings:
    """Space that ext4 reserves for root: freed space refills the reserve before any of it becomes available."""
    for role, *_ in roles_by_device(observations).values():
        identity, stats = observations.filesystems[role]
        reserved, into_it = stats.free_bytes - stats.available_bytes, not stats.available_bytes and stats.free_bytes > 0
        if into_it or reserved > stats.capacity_bytes * SHARE_RESERVED:
            what = f"{role} reserves space for root, which counts as capacity, but never as available"
            filled = ", and is filled into it: freed space does not become available at first" * into_it
            place = f"{identity.path} ({identity.type or '?'})"
            seen = f"{format_bytes(reserved)} of {format_bytes(stats.capacity_bytes)} on {place}"
            remedy = "tune2fs -m 1 on a data disk gives most of it back"
            yield (risk if into_it else note)("reserve", what + filled, seen, remedy)


def check_xfs(filesystems: Iterable[FilesystemFacts]) -> Findings:
    """XFS preallocates as much again as a growing file already has; `allocsize` limits that."""
    for filesystem in filesystems:
        if filesystem.type != "xfs" or filesystem.options is None:
            continue
        if not any(option.startswith("allocsize=") for option in filesystem.options):
            what = f"XFS on {filesystem.path} counts up to 8GiB beyond the end of each growing file as used, so images "
            what += "are removed and pods evicted for space that nobody uses"
            yield risk("xfs-preallocation", what, "it is mounted without allocsize", "mount it with allocsize=64k")


def check_filesystem_numbers(filesystems: Iterable[FilesystemFacts]) -> Findings:
    """Which of a filesystem's numbers can jump, and the mount options that affect them."""
    for filesystem in filesystems:
        if filesystem.jumps is None or not (filesystem.jumps or filesystem.options):
            continue
        options = ",".join(filesystem.options or ()) or "no option that affects them"
        what = f"of the numbers of {', '.join(filesystem.filesystems)} this can jump: {filesystem.phrase}"
        seen = f"{filesystem.type} on {filesystem.path}, mounted with {options}"
        yield note("filesystem-numbers", what, seen, "nothing; bear it in mind when you read its numbers")


def check_inotify(limit: int | None, used: int) -> Findings:
    """Without an inotify instance, reclaimd only polls at intervals, which is enough for all its promises."""
    if limit is not None and (used >= limit * SHARE_IN_USE or limit <= FEW_INOTIFY_INSTANCES):
        what = "this user may have few more inotify instances, or few at all; the kubelet and pods need them too"
        seen, remedy = f"{used} of {limit}", "raise fs.inotify.max_user_instances in /etc/sysctl.d, to 1024 for example"
        yield (risk if used >= limit * SHARE_IN_USE else note)("inotify", what, seen, remedy)


def check_history(history_problem: str) -> Findings:
    """A file of somebody else's at the path of the history is left alone."""
    if history_problem:
        yield risk("history", "no history is kept", history_problem, "move that file away, or set another historyFile")


def check_daemon(
    daemon_problem: str, held_off: str, dry_run: bool, installed: bool, reload_problem: str = ""
) -> Findings:
    """Whether a daemon watches this node, may remove anything, and has accepted its configuration. `installed`: systemd
    has a unit for it."""
    if daemon_problem:
        what = "no daemon answers: nothing watches this node, unless one runs without a control socket"
        remedy = f"{'' if installed else 'reclaimd install --systemd, then '}systemctl enable --now reclaimd"
        yield note("daemon", what, daemon_problem, remedy)
    if held_off:
        wait = "wait, or reclaimd resume for a pause; reclaimd reclaim --now does not wait"
        yield risk("held-off", "the daemon removes nothing now", held_off, wait)
    if reload_problem:
        remedy = "correct what it names, then systemctl reload reclaimd; until then a restart may fail"
        yield risk("reload", "the daemon works by an older configuration than its files hold", reload_problem, remedy)
    if dry_run:
        remedy = "set dryRun: false and run systemctl reload reclaimd, once it reports what it should remove"
        yield risk("dry-run", "the daemon removes nothing, and only reports", "dryRun is true", remedy)


def examine(node: Node) -> DoctorJson:
    """All findings about a node, and the facts about its filesystems."""
    runtime, runtime_problem, pulls = None, node.locate() or "", NOT_READ
    observations = node.summary.observe()
    configuration, config = node.configuration, node.world.manager.config
    kubelet, thresholds = configuration.kubelet, node.thresholds(observations.layout)
    imagefs, pods = node.summary.paths.imagefs, f"{configuration.root_directory}/pods"
    log_directories = {"podLogsDir": configuration.pod_logs_dir, "containerLogsDir": configuration.container_logs_dir}
    filesystems = filesystem_facts(observations, mounts_of(paths_that_answer(observations)))
    endpoint = socket_path(node.endpoint.runtime) if configuration.has_runtime else ""
    daemon_problem, brief = _ask_daemon(configuration.control_socket)
    said = brief.get("pod_directories", {})
    doubts: list[tuple[str | None, str]] = [(said.get("why"), said.get("sentence"))]
    if configuration.has_runtime and not runtime_problem:
        try:
            runtime = _ask_runtime(node)
            doubts.append(node.detection.compare_pods() or (None, ""))
            node.restore_image_records()
            node.detection.images()
            pulls = node.pull_records(runtime.listing.containers)
        except RuntimeUnavailable as error:
            runtime, runtime_problem = None, str(error)
    doubted = [sentence for why, sentence in doubts if why not in (None, *NO_TROUBLE)]
    held = ""
    if runtime is not None and node.pod_state_source != "kubelet":
        held = held_by_stopped_pods(runtime.listing, pods)
    found = [
        *check_pressure(thresholds, kubelet, observations),
        *check_readings(observations, runtime_problem),
        *check_runtime(runtime_problem),
        *check_socket(endpoint, answer_of(lambda: os.stat(endpoint), None)),
        *check_permissions(_unwritable(configuration)),
        *check_pod_directories("".join(doubted[:1])),
        *check_log_directories(log_directories),
        *check_kubelet_list((runtime and node.pods.list_problem) or "", held, expected=configuration.expects_kubelet),
        *check_thresholds(thresholds, kubelet, observations),
        *kubelet_findings(configuration),
        *check_functions(node.function_problems()),
        *row_problems(
            {signal: config.row(signal, observations) for signal in observations.signals},
            config.rows.keys(),
            {name: function.frees for name, function in node.functions.items()},
            {threshold.signal for threshold in thresholds},
            observations,
        ),
        *check_sandbox_image(runtime),
        *check_unresolved_images(runtime),
        *check_containerd_frees_late(runtime),
        *check_store(imagefs, *_snapshotters(imagefs), observations),
        *check_keeps(configuration.keep_images.entries, runtime),
        *check_pulls(configuration.keep_images_not_pulled, runtime, node.records.records, pulls),
        *check_clock(node.clock.wall(), runtime),
        *check_separate_disk_gc(kubelet, observations.layout, runtime),
        *check_image_gc_off(kubelet),
        *check_inodes(observations),
        *check_reserve(observations),
        *check_xfs(filesystems),
        *check_filesystem_numbers(filesystems),
        *check_inotify(number_of(MAX_USER_INSTANCES), inotify_instances()),
        *check_history(answer_of(lambda: why_unusable(configuration.history_file), NO_ANSWER)),
        *check_daemon(
            daemon_problem,
            brief.get("held_off") or "",
            bool(brief.get("dry_run")),
            any(map(os.path.exists, UNITS)),
            brief.get("reload_problem") or "",
        ),
    ]
    findings = tuple(sorted(found, key=lambda finding: list(Severity).index(finding.level)))
    healthy = all(finding.level is Severity.NOTE for finding in findings)
    return DoctorJson(healthy=healthy, findings=findings, filesystems=filesystems)


def marks_of(kubelet: KubeletConfiguration | None) -> Marks:
    """The kubelet's own thresholds; none if its configuration is not known."""
    return () if kubelet is None else kubelet.thresholds.thresholds


def _ask_runtime(node: Node) -> Runtime:
    """Raises RuntimeUnavailable."""
    version, listing = node.client.version(), node.inventory.snapshot(node.clock.monotonic()).listing
    ready = [one.id for one in listing.sandboxes if one.state is PodSandboxState.READY][:MANY_SANDBOXES]
    used = filter(None, map(node.client.image_of_sandbox, ready))
    return Runtime(version, listing, node.client.sandbox_image() or next(used, None))


def _ask_daemon(control_socket: str) -> tuple[str, Mapping[str, Any]]:
    """Why no daemon answers, or else its answer: only the daemon knows whether the pod directories were different
    before."""
    if not control_socket:
        return "", {}
    try:
        return "", ask(control_socket, "brief")
    except ControlUnavailable as error:
        return str(error), {}


def inotify_instances(proc: str = "/proc") -> int:
    """The number of inotify instances of this user's readable processes."""
    found = 0
    for descriptor in iglob(f"{proc}/[0-9]*/fd/*"):
        with suppress(OSError):  # it ended, or may not be read
            found += os.lstat(descriptor).st_uid == os.geteuid() and os.readlink(descriptor) in INOTIFY
    return found


def _snapshotters(imagefs: str | None) -> tuple[Mapping[str, int], int | None]:
    """containerd's snapshotters, each with the number of its snapshots, and the device of its content store, which for
    CRI-O is that of the layers."""
    layers = (imagefs or "").removesuffix(IMAGES)
    if not os.path.basename(layers).startswith(SNAPSHOTTER):
        return {}, None if layers == (imagefs or "") else answer_of(lambda: filesystem_id(layers), None)
    root = os.path.dirname(layers)
    found = [name for name in _listed(root) if name.startswith(SNAPSHOTTER)]
    snapshots = {name.removeprefix(SNAPSHOTTER): len(_listed(f"{root}/{name}/snapshots")) for name in found}
    return snapshots, answer_of(lambda: filesystem_id(os.path.join(root, CONTENT)), None)


def held_by_stopped_pods(listing: Listing, pods: str) -> str:
    """The images that only containers of stopped pods keep in use, in words; empty if they take nothing.

    In a stopped pod all containers have EXITED and all sandboxes are NOTREADY. Pods with volumes do not count, because
    they will run again; nor does any pod while no sandbox is ready, as after a reboot. `pods`: the kubelet's pod
    directory.
    """
    if not any(sandbox.state is PodSandboxState.READY for sandbox in listing.sandboxes):
        return ""
    sandboxes = {sandbox.pod_uid for sandbox in listing.sandboxes}
    live = {each.pod_uid for each in listing.containers if each.state is not ContainerState.EXITED}
    live |= {s.pod_uid for s in listing.sandboxes if s.state is not PodSandboxState.NOTREADY or not s.labelled}
    stopped = {
        uid
        for uid in {container.pod_uid for container in listing.containers} & sandboxes - live
        if is_pod_uid(uid) and not _has_volumes(f"{pods}/{uid}/volumes")
    }
    others = tuple(container for container in listing.containers if container.pod_uid not in stopped)
    without = images_in_use(replace(listing, containers=others))
    held = images_in_use(listing).by_containers - without.by_containers - without.by_sandboxes
    sizes = [image.size_bytes for image in listing.images if image.id in held and not image.pinned]
    exited = f"pods all of whose containers have exited: {len(stopped)}"
    return f"{format_bytes(sum(sizes))}; images: {len(sizes)}; {exited}" if sum(sizes) else ""


def _has_volumes(directory: str) -> bool:
    return any(_listed(os.path.join(directory, plugin)) for plugin in _listed(directory))


def _unwritable(configuration: Configuration) -> dict[str, str]:
    """The directories of our files and of the pods' logs that cannot be written, each with the reason."""
    files = configuration.state_file, configuration.history_file
    directories = filter(None, (*map(os.path.dirname, files), configuration.pod_logs_dir))
    found = {path: answer_of(partial(_why_unwritable, path), NO_ANSWER) for path in directories}
    return {path: why for path, why in found.items() if why}


def _why_unwritable(path: str) -> str:
    """In place of a missing directory, the nearest one above it counts; empty if it can be written."""
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
    return answer_of(lambda: names_in(directory), [])
