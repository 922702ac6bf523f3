"""The checks of `doctor`: every function `check_…` yields its findings from the facts about a node. Pure.

They run in the order of this module. A check yields nothing about an unknown fact, unless that itself is the problem.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Callable, Iterator

from eviction.decision.thresholds import thresholds_met, update_container_fs_thresholds
from eviction.doctor.facts import NodeFacts
from eviction.reporting.configuration_warnings import (
    Finding,
    Severity,
    has_no_threshold,
    note,
    problem,
    risk,
    row_problems,
    tiny_marks,
)
from eviction.reporting.explain import late_threshold_sentence, later_than_kubelet, unreachable_sentences
from eviction.reporting.filesystem_facts import roles_by_device
from eviction.reporting.pass_record import shortened
from eviction.reporting.tables import amount
from signals.quantity import format_bytes, format_duration
from signals.types import FilesystemRole, FsLayout, signals_about

SHARE_RESERVED = 0.01
# Snapshotters that keep their data outside their directory, so statvfs does not show their free space.
DATA_ELSEWHERE = frozenset({"devmapper", "zfs", "blockfile"})
LARGEST_SKEW_SECONDS = 60.0
EARLIEST_WALL = 1_735_689_600.0  # 2025-01-01: before this program was written
FEW_INOTIFY_INSTANCES = 128  # the kernel's default, which a node with many pods uses up
SHARE_IN_USE = 0.9
MOST_SHOWN = 5
PIN = "ctr -n k8s.io images label IMAGE io.cri-containerd.pinned=pinned; containerd 1.6.36, 1.7.13 and 2 pin it"


def check_pressure(facts: NodeFacts) -> Iterator[Finding]:
    """Thresholds that are met now; where the kubelet's own are known, whether they are, too."""
    signals, layout = facts.observations.signals, facts.observations.layout
    kubelets = update_container_fs_thresholds(facts.kubelets_marks, layout)
    crossed = {one.signal for one in thresholds_met(kubelets, signals, enforce_min_reclaim=False)}
    for threshold in thresholds_met(facts.thresholds, signals, enforce_min_reclaim=False):
        signal, observation = threshold.signal, signals[threshold.signal]
        too = signal in crossed
        beside = f"; {'not ' * (not too)}below the kubelet's own mark{', too' * too}" if facts.kubelet else ""
        yield problem(
            "pressure",
            f"{signal} is below its mark",
            f"{amount(signal, observation.available)} < {amount(signal, threshold.mark(observation.capacity))}{beside}",
            "reclaimd plan shows what may be removed and what uses the space",
        )


def check_readings(facts: NodeFacts) -> Iterator[Finding]:
    """Filesystems that do not answer."""
    for unavailable in facts.observations.unavailable:
        if unavailable.reason not in facts.runtime_problem:
            yield problem(
                "readings",
                f"{unavailable.role} cannot be read, so pressure on it is not noticed",
                unavailable.reason,
                "check the disk and its mount",
            )


def check_runtime(facts: NodeFacts) -> Iterator[Finding]:
    """Whether the runtime answers."""
    if facts.runtime_problem:
        yield problem(
            "runtime",
            "the container runtime does not answer, so nothing can be reclaimed",
            facts.runtime_problem,
            "start it, or name its socket with containerRuntimeEndpoint",
        )


def check_socket(facts: NodeFacts) -> Iterator[Finding]:
    """Any process that can connect to the CRI socket is as powerful as root on this node."""
    found = facts.socket
    if found is not None and not stat.S_ISSOCK(found.mode):
        evidence = f"{found.path} is not a socket"
        yield problem("socket", "the endpoint is no socket", evidence, "set containerRuntimeEndpoint")
    elif found is not None and (found.owner != 0 or found.mode & 0o002):
        yield risk(
            "socket",
            "the runtime's socket is open to others than root, and whoever reaches it is root",
            f"{found.path} belongs to user {found.owner} and has mode {found.mode & 0o777:04o}",
            "make it root's with mode 0660 (containerd: [grpc] uid and gid)",
        )


def check_permissions(facts: NodeFacts) -> Iterator[Finding]:
    """Directories that must be readable or writable."""
    if facts.pods_readable is False:
        yield problem(
            "permissions",
            "the kubelet's pod directories cannot be read, so no pod counts as gone and its remains are kept",
            f"{facts.root_directory}/pods cannot be listed",
            "run as root, and set rootDirectory to the kubelet's --root-dir",
        )
    for path, reason in facts.unwritable:
        yield risk(
            "permissions",
            f"{path} cannot be written",
            reason,
            "run as root, and let the unit write there (ReadWritePaths)",
        )


def check_pod_directories(facts: NodeFacts) -> Iterator[Finding]:
    """Directories that do not explain what the runtime holds are not the kubelet's."""
    if facts.pods_doubt:
        yield problem(
            "pod-directories",
            "the kubelet's pod directories are not believed, so no pod counts as gone and its remains are kept",
            facts.pods_doubt,
            "mount the kubelet's disk, and set rootDirectory to its --root-dir; on a drained node set kubeletEndpoint",
        )


def check_log_directories(facts: NodeFacts) -> Iterator[Finding]:
    """A directory of logs that is a symlink could be anybody's, so it is not followed."""
    for name in facts.log_symlinks:
        yield risk(
            "log-symlink",
            "a directory of logs is a symlink, which is not followed, so nothing in it is removed",
            name,
            "name the directory that it leads to, or mount it there (mount --bind)",
        )


def check_kubelet_list(facts: NodeFacts) -> Iterator[Finding]:
    """Only the kubelet knows which pods have terminated; until it says so they hold their images."""
    allow = "let an identity get nodes/pods (nodes/proxy before Kubernetes 1.33), as the component kubelet does"
    if facts.kubelet_problem:
        yield risk(
            "kubelet-list",
            "the kubelet gives no list of its pods, so what terminated pods hold stays",
            facts.kubelet_problem,
            allow,
        )
    if facts.held is not None and facts.held.bytes:
        held = facts.held
        yield risk(
            "terminated-pods",
            "only pods that seem to have terminated hold these images, and the kubelet has not said that they have",
            f"{format_bytes(held.bytes)}; images: {held.images}; pods all of whose containers have exited: {held.pods}",
            allow if facts.kubelet_problem else "set kubeletEndpoint to auto",
        )


def check_thresholds(facts: NodeFacts) -> Iterator[Finding]:
    """Thresholds later than the kubelet's, or none at all."""
    for later in later_than_kubelet(facts.thresholds, facts.kubelets_marks, facts.observations.signals):
        yield risk(
            "thresholds-late",
            "the kubelet acts first and may evict pods before reclaimd does anything",
            late_threshold_sentence(later),
            f"raise evictionHard {later.ours.signal}, or leave it out and use margin",
        )
    for sentence in unreachable_sentences(facts.thresholds, facts.observations):
        signal = sentence.partition(":")[0]
        yield problem(
            "thresholds-unreachable",
            f"{signal} is under pressure whatever is removed",
            sentence,
            f"lower evictionHard or evictionMinimumReclaim of {signal}",
        )
    if has_no_threshold(facts.thresholds):
        yield problem(
            "thresholds-none",
            "no signal of a disk has a threshold, so nothing is ever relieved",
            f"evictionHard of {facts.kubelet.name} and of our own files" if facts.kubelet else "evictionHard",
            "set evictionHard; a kubelet whose file sets it has no default thresholds beside it",
        )
        return
    signals = facts.observations.signals
    active = {
        one.signal for one in facts.thresholds if one.signal in signals and one.mark(signals[one.signal].capacity)
    }
    for role in facts.observations.filesystems:
        mine = [signal for signal in signals_about(role) if signal in signals]
        if mine and not active.intersection(mine) and role is not FilesystemRole.CONTAINERFS:
            yield problem(
                "thresholds-none",
                f"{role} has no threshold, so nothing relieves it",
                f"neither {' nor '.join(mine)} has a mark",
                f"set evictionHard {mine[0]}, or remove the 0% that switches it off",
            )


def check_kubelets_marks(facts: NodeFacts) -> Iterator[Finding]:
    """Whether the kubelet's own marks are known, and are no mistake."""
    if facts.defaults_taken or facts.kubelet_remark:
        yield risk(
            "kubelet-config",
            "the kubelet's configuration was not found, so its defaults are taken, and it may act before reclaimd does"
            if facts.defaults_taken
            else "the usual file is taken for the kubelet's configuration, and it may be another",
            facts.defaults_taken or facts.kubelet_remark,
            'name its file with kubeletConfig; "" says that there is none',
        )
    for one in tiny_marks(facts.kubelets_marks):
        yield risk(
            "thresholds-tiny",
            f"the kubelet's mark of {one.signal} is less than 1MiB, so it acts when the disk is full",
            f"{one.signal}: {one.value} in {one.origin}",
            "give it a unit: 10% or 10Gi, not 10",
        )


def check_functions(facts: NodeFacts) -> Iterator[Finding]:
    """Functions of the configuration that cannot be called as things are."""
    for name, why in facts.function_problems:
        yield problem(
            "function",
            f"{name} cannot do anything",
            why,
            f"correct it, or take {name} out of reclaimFunctions and reclaimTable",
        )


def check_rows(facts: NodeFacts) -> Iterator[Finding]:
    """Rows that are empty, that nothing calls, or whose functions free space elsewhere."""
    marked = {threshold.signal for threshold in facts.thresholds}
    yield from row_problems(facts.rows, facts.configured_rows, facts.frees, marked, facts.observations)


def check_sandbox_image(facts: NodeFacts) -> Iterator[Finding]:
    """Without the sandbox image no pod starts; if it is unknown, no image is removed at all."""
    if facts.runtime is None or facts.runtime_problem or facts.sandbox_image_pinned:
        return
    if facts.sandbox_image is None:
        yield problem(
            "sandbox-image",
            "the image that pods need to start is unknown, so no image is removed",
            "no configured sandbox image, no ready sandbox that names one, no pinned image",
            PIN,
        )
    else:
        yield risk(
            "sandbox-image",
            "the sandbox image is not pinned: reclaimd keeps it, but other tools and older kubelets may remove it",
            f"{facts.sandbox_image} is configured and not pinned",
            PIN,
        )


def check_unresolved_images(facts: NodeFacts) -> Iterator[Finding]:
    """A container whose image is unknown may use any image, so none is removed."""
    if facts.unresolved_images:
        shown = ", ".join(map(shortened, facts.unresolved_images[:MOST_SHOWN]))
        more = len(facts.unresolved_images) - MOST_SHOWN
        yield problem(
            "image-unresolved",
            "the image of a container is unknown, so no image is removed",
            f"no image is known for {shown}{f' and {more} more' if more > 0 else ''}",
            "crictl ps -a shows the container; if it is dead, crictl rm it",
        )


def check_containerd_frees_late(facts: NodeFacts) -> Iterator[Finding]:
    """containerd 2.0.0 to 2.0.4 answered before an image was freed."""
    name, version = ("", "") if facts.runtime is None else (facts.runtime.name, facts.runtime.version.lstrip("v"))
    if name == "containerd" and re.fullmatch(r"2\.0\.[0-4](?:[-+].*)?", version):
        yield risk(
            "containerd-frees-late",
            "this containerd answers a removal before the space is free, so more images are removed than needed",
            f"containerd {version}",
            "update to containerd 2.0.5 or later",
        )


def check_store(facts: NodeFacts) -> Iterator[Finding]:
    """Whether statvfs on the reported path shows the filesystem of the images."""
    current = (facts.imagefs or "").rpartition(".")[2]
    if current in DATA_ELSEWHERE:
        yield problem(
            "store-elsewhere",
            "the snapshotter keeps its data on block devices that no filesystem reading shows",
            f"images are in {facts.imagefs}",
            "thresholds on imagefs have no effect here; monitor the pool of the snapshotter itself",
        )
    images = facts.observations.filesystems.get(FilesystemRole.IMAGEFS)
    for name, snapshots in facts.snapshotters.items():
        if name != current and snapshots > 0:
            yield risk(
                "store-second-snapshotter",
                "another snapshotter holds content that CRI neither shows nor frees",
                f"{snapshots} snapshots of {name} beside {facts.imagefs}",
                "remove what is left of it when no pod or namespace uses it (ctr snapshots --snapshotter)",
            )
    if facts.content_device is not None and images is not None and facts.content_device != images[0].device_id:
        yield risk(
            "store-split",
            "images are unpacked on one filesystem, and their compressed content is on another that is not watched",
            f"{facts.imagefs} is on device {images[0].device_id}, the content store on {facts.content_device}",
            "put containerd's whole root on one filesystem",
        )


def check_keeps(facts: NodeFacts) -> Iterator[Finding]:
    """Entries of keepImages that match nothing protect nothing."""
    for entry in facts.unmatched_keeps:
        yield risk(
            "keep-unmatched",
            "an entry of keepImages matches no image on this node",
            f"keepImages: {entry!r}",
            "correct it, or pull the image that it is to protect",
        )


def check_clock(facts: NodeFacts) -> Iterator[Finding]:
    """Ages of containers come from the wall clock."""
    ahead = facts.newest_created_seconds_ahead
    if facts.wall < EARLIEST_WALL:
        evidence = f"it is {facts.wall:.0f} s after 1970"
        remedy = "set it and keep it set (chrony, systemd-timesyncd)"
        yield problem("clock", "the clock is wrong, so ages are unknown", evidence, remedy)
    elif ahead is not None and ahead > LARGEST_SKEW_SECONDS:
        yield risk(
            "clock",
            "the clock was set back, so objects made before that count as too young for longer",
            f"the newest container was created {format_duration(ahead)} in the future",
            "keep the clock in step (chrony, systemd-timesyncd)",
        )


def check_separate_disk_gc(facts: NodeFacts) -> Iterator[Finding]:
    """Without its gate a kubelet gives up on split filesystems, which it sees beside CRI-O only."""
    split = facts.observations.layout is FsLayout.SPLIT and facts.runtime is not None and facts.runtime.name == "cri-o"
    if split and facts.kubelet is not None and not facts.kubelet.separate_disk_gc:
        yield risk(
            "separate-disk-gc-off",
            "the kubelet neither reclaims nor evicts: images and writable layers are apart, and its gate is off",
            f"KubeletSeparateDiskGC is false in {facts.kubelet.name}, and the layout is {FsLayout.SPLIT}",
            "take the gate out of its featureGates (it is on by default from 1.31); reclaimd works with it and without",
        )


def check_image_gc_off(facts: NodeFacts) -> Iterator[Finding]:
    """imageGCHighThresholdPercent 100 switches the kubelet's periodic image collection off."""
    if facts.kubelet is not None and facts.kubelet.image_gc_high_threshold_percent == 100:
        yield note(
            "image-gc-off",
            "the kubelet's periodic image garbage collection is off; only pressure reclaims images",
            f"imageGCHighThresholdPercent is 100 in {facts.kubelet.name}",
            "this is fine while reclaimd runs; watch that it does",
        )


def check_inodes(facts: NodeFacts) -> Iterator[Finding]:
    """Filesystems that count no inodes have no inode signal."""
    for role, (identity, stats) in facts.observations.filesystems.items():
        if stats.inodes_total == 0:
            yield note(
                "no-inode-signal",
                f"{role} counts no inodes, so thresholds for {role}.inodesFree do nothing",
                f"{identity.type or 'the filesystem'} on {identity.path} reports 0 inodes in all",
                "nothing, if the filesystem makes inodes as needed (btrfs)",
            )


def check_reserve(facts: NodeFacts) -> Iterator[Finding]:
    """Space that ext4 reserves for root: freed space first refills it, before any shows as available."""
    for device, (role, *_) in roles_by_device(facts.observations).items():
        identity, stats = facts.observations.filesystems[role]
        reserved = stats.free_bytes - stats.available_bytes
        if stats.available_bytes == 0 and stats.free_bytes > 0:
            yield risk(
                "reserve",
                f"{role} is filled into the reserve for root, so freed space does not show as available at first",
                f"0B available and {format_bytes(stats.free_bytes)} free on {identity.path} (device {device})",
                "reclaimd still measures it; free some space by hand if nothing may be removed",
            )
        elif reserved > stats.capacity_bytes * SHARE_RESERVED:
            yield note(
                "reserve",
                f"{role} reserves space for root, which counts as capacity and never as available",
                f"{format_bytes(reserved)} of {format_bytes(stats.capacity_bytes)} on {identity.path} "
                f"({identity.type or '?'})",
                "tune2fs -m 1 on a data disk gives most of it back",
            )


def check_xfs(facts: NodeFacts) -> Iterator[Finding]:
    """XFS allocates behind files that grow, as much again as they have; `allocsize` bounds it."""
    for filesystem in facts.filesystems:
        if filesystem.type != "xfs" or filesystem.options is None:
            continue
        if not any(option.startswith("allocsize=") for option in filesystem.options):
            yield risk(
                "xfs-preallocation",
                f"XFS on {filesystem.path} counts up to 8GiB as used behind each file that grows, so images go and "
                "pods are evicted for space that nobody uses",
                "it is mounted without allocsize",
                "mount it with allocsize=64k",
            )


def check_filesystem_numbers(facts: NodeFacts) -> Iterator[Finding]:
    """What of a filesystem's numbers can jump, and the mount options that matter; facts only."""
    for filesystem in facts.filesystems:
        if filesystem.jumps is None or not (filesystem.jumps or filesystem.options):
            continue
        options = ",".join(filesystem.options or ()) or "no option that matters for them"
        yield note(
            "filesystem-numbers",
            f"of the numbers of {', '.join(filesystem.filesystems)} this can jump: {filesystem.phrase}",
            f"{filesystem.type} on {filesystem.path}, mounted with {options}",
            "nothing; know it when you read its numbers",
        )


def check_inotify(facts: NodeFacts) -> Iterator[Finding]:
    """Without an inotify instance reclaimd only polls at intervals, which suffices for all its promises."""
    limit, used = facts.inotify_limit, facts.inotify_used
    if limit is not None and used is not None and used >= limit * SHARE_IN_USE:
        yield risk(
            "inotify",
            "this user's inotify instances are nearly used up; kubelet and pods need them too",
            f"{used} of {limit} (fs.inotify.max_user_instances)",
            "raise it in /etc/sysctl.d, to 1024 say",
        )
    elif limit is not None and limit <= FEW_INOTIFY_INSTANCES:
        yield note(
            "inotify",
            "the limit of inotify instances is the kernel's small default",
            f"fs.inotify.max_user_instances is {limit}",
            "raise it in /etc/sysctl.d, to 1024 say",
        )


def check_history(facts: NodeFacts) -> Iterator[Finding]:
    """What is at the place of the history file and is not ours is left alone."""
    if facts.history_problem:
        yield risk(
            "history",
            "no history is kept: what is at its place is not a history that can be used",
            facts.history_problem,
            "move it away, and the daemon makes one there; or name another historyFile",
        )


def check_daemon(facts: NodeFacts) -> Iterator[Finding]:
    """Whether a daemon watches this node."""
    if facts.daemon_problem:
        yield note(
            "daemon",
            "no daemon answers: nobody watches this node unless one runs without a control socket",
            facts.daemon_problem,
            "systemctl enable --now reclaimd",
        )
    if facts.held_off:
        yield risk(
            "held-off",
            "the daemon removes nothing now",
            facts.held_off,
            "wait, or reclaimd resume for a pause; reclaimd reclaim --now does not wait",
        )
    if facts.dry_run:
        yield risk(
            "dry-run",
            "the daemon removes nothing, and only tells what it would",
            "dryRun is true",
            "dryRun: false and systemctl reload reclaimd, once what it tells is what it should do",
        )


CHECKS: tuple[Callable[[NodeFacts], Iterator[Finding]], ...] = tuple(
    check for name, check in list(vars().items()) if name.startswith("check_")
)
"""Every check above, in its order."""


def examine(facts: NodeFacts) -> tuple[Finding, ...]:
    """All findings, the worst first."""
    found = [finding for check in CHECKS for finding in check(facts)]
    return tuple(sorted(found, key=lambda finding: list(Severity).index(finding.level)))


def healthy(findings: tuple[Finding, ...]) -> bool:
    """Whether there is nothing to do: a note needs no action."""
    return all(finding.level is Severity.NOTE for finding in findings)
