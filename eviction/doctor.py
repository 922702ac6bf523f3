"""What is wrong or risky on a node, each with its evidence and what to do. Pure: checks over values.

A check is a function of the facts that yields findings; `CHECKS` is all of them, in the order in which they are shown.
A fact that could not be learnt is None, and a check says nothing about what it does not know, except where not knowing
is the finding.

Covers: judging. Does not cover: gathering (`node_facts`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from eviction.explain import amount, later_sentence
from eviction.kubelet_configuration import KubeletConfiguration
from eviction.ladder import later_than_kubelet
from eviction.types import Threshold
from reclaim.services import RuntimeVersion
from signals.quantity import format_bytes, format_duration
from signals.types import FilesystemRole, Signal, SignalObservations

LARGEST_SKEW_SECONDS = 60.0
EARLIEST_WALL = 1_735_689_600.0  # 2025-01-01: before this program was written
FEW_INOTIFY_INSTANCES = 128  # the kernel's default, which a node with many pods uses up
SHARE_IN_USE = 0.9
SHARE_RESERVED = 0.01
# Snapshotters whose data is not in their directory, so that statvfs on it tells nothing of their room.
DATA_ELSEWHERE = frozenset({"devmapper", "zfs", "blockfile"})


class Level(StrEnum):
    """How bad it is: `problem` keeps reclaim from working, `risk` may, `note` is good to know."""

    PROBLEM = "problem"
    RISK = "risk"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found. Each text is one sentence or phrase: what it is, what shows it, what to do."""

    check: str
    level: Level
    sentence: str
    evidence: str
    remedy: str


@dataclass(frozen=True, slots=True)
class SocketFacts:
    """The runtime's socket: whether it is a socket, whose, and its mode bits."""

    path: str
    exists: bool
    is_socket: bool = False
    owner: int = 0
    mode: int = 0


@dataclass(frozen=True, slots=True)
class Snapshotter:
    """A snapshotter's directory beside the image store: its name, and how many snapshots it holds."""

    name: str
    snapshots: int


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What was learnt of a node. None: it could not be.

    `thresholds`: ours, in force in the layout of the `look`. `runtime_problem`: why the runtime does not answer, empty
    when it does. `sandbox_image`: what pods need to start, as far as any source names it; `sandbox_image_pinned`:
    whether the runtime pins it. `newest_created_seconds_ahead`: how far the newest container was created in the future.
    `unmatched_keeps`: entries of keepImages that match no image. `inotify_*`: of this user. `pods_readable`: whether
    the kubelet's pod directories can be listed. `unwritable`: what should be writable and is not, with the reason.
    """

    look: SignalObservations
    thresholds: tuple[Threshold, ...]
    kubelet: KubeletConfiguration | None
    root_directory: str
    socket: SocketFacts
    wall: float
    runtime: RuntimeVersion | None = None
    runtime_problem: str = ""
    sandbox_image: str | None = None
    sandbox_image_pinned: bool | None = None
    newest_created_seconds_ahead: float | None = None
    imagefs: str | None = None
    snapshotters: tuple[Snapshotter, ...] = ()
    content_device: int | None = None
    unmatched_keeps: tuple[str, ...] = ()
    inotify_limit: int | None = None
    inotify_used: int | None = None
    pods_readable: bool | None = None
    unwritable: tuple[tuple[str, str], ...] = ()
    daemon_problem: str = ""


Check = Callable[[NodeFacts], Iterator[Finding]]


def check_runtime(facts: NodeFacts) -> Iterator[Finding]:
    """Whether the runtime answers, and who it is."""
    if facts.runtime_problem:
        yield Finding(
            "runtime",
            Level.PROBLEM,
            "the container runtime does not answer, so nothing can be reclaimed",
            facts.runtime_problem,
            "start it, or name its socket with containerRuntimeEndpoint",
        )


def check_socket(facts: NodeFacts) -> Iterator[Finding]:
    """Whoever can reach the CRI socket is root on this node."""
    found = facts.socket
    if not found.exists:
        return
    if not found.is_socket:
        evidence = f"{found.path} is not a socket"
        yield Finding("socket", Level.PROBLEM, "the endpoint is no socket", evidence, "set containerRuntimeEndpoint")
    elif found.owner != 0 or found.mode & 0o002:
        yield Finding(
            "socket",
            Level.RISK,
            "the runtime's socket is open to others than root, and whoever reaches it is root",
            f"{found.path} belongs to user {found.owner} and has mode {found.mode & 0o777:04o}",
            "make it root's with mode 0660 (containerd: [grpc] uid and gid)",
        )


def check_containerd_frees_late(facts: NodeFacts) -> Iterator[Finding]:
    """containerd 2.0.0 to 2.0.4 answered before an image was freed."""
    if facts.runtime is None or facts.runtime.name != "containerd":
        return
    version = facts.runtime.version.lstrip("v")
    if version.split("-")[0].split("+")[0] in {f"2.0.{patch}" for patch in range(5)}:
        yield Finding(
            "containerd-frees-late",
            Level.RISK,
            "this containerd answers a removal before the space is free, so more images go than are needed",
            f"containerd {version}",
            "update to containerd 2.0.5 or later",
        )


def check_sandbox_image(facts: NodeFacts) -> Iterator[Finding]:
    """Without the sandbox image no pod starts; where nothing names it no image is removed at all."""
    if facts.runtime_problem:
        return
    pin = "ctr -n k8s.io images label IMAGE io.cri-containerd.pinned=pinned; containerd 1.6.36, 1.7.13 and 2 pin it"
    if facts.sandbox_image is None and not facts.sandbox_image_pinned:
        yield Finding(
            "sandbox-image",
            Level.PROBLEM,
            "nothing says which image pods need to start, so no image is removed",
            "no configured sandbox image, no ready sandbox that names one, no pinned image",
            pin,
        )
    elif facts.sandbox_image is not None and not facts.sandbox_image_pinned:
        yield Finding(
            "sandbox-image",
            Level.RISK,
            "the sandbox image is not pinned: reclaimd keeps it, but other tools and older kubelets may remove it",
            f"{facts.sandbox_image} is configured and not pinned",
            pin,
        )


def check_thresholds(facts: NodeFacts) -> Iterator[Finding]:
    """Thresholds later than the kubelet's, or none at all."""
    kubelets = facts.kubelet.thresholds.thresholds if facts.kubelet is not None else ()
    for later in later_than_kubelet(facts.thresholds, kubelets, facts.look.signals):
        yield Finding(
            "thresholds-late",
            Level.RISK,
            "the kubelet acts first and may evict pods before reclaimd does anything",
            later_sentence(later),
            f"raise evictionHard {later.ours.signal}, or leave it out and use margin",
        )
    active = {t.signal for t in facts.thresholds if _mark(t, facts.look) != 0}
    for role in facts.look.filesystems:
        mine = [signal for signal in Signal if signal.filesystem is role and signal in facts.look.signals]
        if mine and not active.intersection(mine) and role is not FilesystemRole.CONTAINERFS:
            yield Finding(
                "thresholds-none",
                Level.PROBLEM,
                f"{role} has no threshold, so nothing relieves it",
                f"neither {' nor '.join(mine)} has a mark",
                f"set evictionHard {mine[0]}, or remove the 0% that switches it off",
            )


def check_image_gc_off(facts: NodeFacts) -> Iterator[Finding]:
    """imageGCHighThresholdPercent 100 switches the kubelet's periodic image collection off."""
    if facts.kubelet is not None and facts.kubelet.image_gc_high_threshold_percent == 100:
        yield Finding(
            "image-gc-off",
            Level.NOTE,
            "the kubelet's periodic image garbage collection is off; only pressure reclaims images",
            f"imageGCHighThresholdPercent is 100 in {facts.kubelet.name}",
            "this is fine while reclaimd runs; watch that it does",
        )


def check_inodes(facts: NodeFacts) -> Iterator[Finding]:
    """Filesystems that count no inodes have no inode signal."""
    for role, (identity, stats) in facts.look.filesystems.items():
        if stats.inodes_total == 0:
            yield Finding(
                "no-inode-signal",
                Level.NOTE,
                f"{role} counts no inodes, so thresholds for {role}.inodesFree do nothing",
                f"{identity.type or 'the filesystem'} on {identity.path} reports 0 inodes in all",
                "nothing, where the filesystem makes inodes as needed (btrfs)",
            )


def check_reserve(facts: NodeFacts) -> Iterator[Finding]:
    """What ext4 reserves for root is used up before anything is seen to recover."""
    for device, (role, path, kind) in _distinct(facts.look).items():
        stats = facts.look.filesystems[role][1]
        reserved = stats.free_bytes - stats.available_bytes
        if stats.available_bytes == 0 and stats.free_bytes > 0:
            yield Finding(
                "reserve",
                Level.RISK,
                f"{role} is filled into the reserve for root: space that comes free is not seen at first",
                f"0B available and {format_bytes(stats.free_bytes)} free on {path} (device {device})",
                "reclaim still measures it; free some space by hand if nothing may go",
            )
        elif reserved > stats.capacity_bytes * SHARE_RESERVED:
            yield Finding(
                "reserve",
                Level.NOTE,
                f"{role} reserves room for root that counts as capacity and never as available",
                f"{format_bytes(reserved)} of {format_bytes(stats.capacity_bytes)} on {path} ({kind or '?'})",
                "tune2fs -m 1 on a data disk gives most of it back",
            )


def check_inotify(facts: NodeFacts) -> Iterator[Finding]:
    """Without an inotify instance looks come at intervals only, which every promise allows for."""
    limit, used = facts.inotify_limit, facts.inotify_used
    if limit is not None and used is not None and used >= limit * SHARE_IN_USE:
        yield Finding(
            "inotify",
            Level.RISK,
            "this user's inotify instances are nearly used up; kubelet and pods need them too",
            f"{used} of {limit} (fs.inotify.max_user_instances)",
            "raise it in /etc/sysctl.d, to 1024 say",
        )
    elif limit is not None and limit <= FEW_INOTIFY_INSTANCES:
        yield Finding(
            "inotify",
            Level.NOTE,
            "the limit of inotify instances is the kernel's small default",
            f"fs.inotify.max_user_instances is {limit}",
            "raise it in /etc/sysctl.d, to 1024 say",
        )


def check_store(facts: NodeFacts) -> Iterator[Finding]:
    """Whether statvfs on the reported path sees the room of the images."""
    current = (facts.imagefs or "").rpartition(".")[2]
    if current in DATA_ELSEWHERE:
        yield Finding(
            "store-elsewhere",
            Level.PROBLEM,
            "the snapshotter keeps its data on block devices that no filesystem reading shows",
            f"images are in {facts.imagefs}",
            "thresholds on imagefs tell nothing here; watch the pool of the snapshotter itself",
        )
    images = facts.look.filesystems.get(FilesystemRole.IMAGEFS)
    for other in facts.snapshotters:
        if other.name != current and other.snapshots > 0:
            yield Finding(
                "store-second-snapshotter",
                Level.RISK,
                "another snapshotter holds content that CRI neither shows nor frees",
                f"{other.snapshots} snapshots of {other.name} beside {facts.imagefs}",
                "remove what is left of it when no pod or namespace uses it (ctr snapshots --snapshotter)",
            )
    if facts.content_device is not None and images is not None and facts.content_device != images[0].device_id:
        yield Finding(
            "store-split",
            Level.RISK,
            "images are unpacked on one filesystem and their compressed content is on another that nobody watches",
            f"{facts.imagefs} is on device {images[0].device_id}, the content store on {facts.content_device}",
            "put containerd's whole root on one filesystem",
        )


def check_keeps(facts: NodeFacts) -> Iterator[Finding]:
    """Entries of keepImages that match nothing protect nothing."""
    for entry in facts.unmatched_keeps:
        yield Finding(
            "keep-unmatched",
            Level.RISK,
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
        yield Finding("clock", Level.PROBLEM, "the clock is wrong: ages cannot be told", evidence, remedy)
    elif ahead is not None and ahead > LARGEST_SKEW_SECONDS:
        yield Finding(
            "clock",
            Level.RISK,
            "the clock was set back: what was made since then counts as too young for longer",
            f"the newest container was made {format_duration(ahead)} in the future",
            "keep the clock in step (chrony, systemd-timesyncd)",
        )


def check_permissions(facts: NodeFacts) -> Iterator[Finding]:
    """What must be readable and writable."""
    if facts.pods_readable is False:
        yield Finding(
            "permissions",
            Level.PROBLEM,
            "the kubelet's pod directories cannot be read, so no pod counts as gone and its remains stay",
            f"{facts.root_directory}/pods cannot be listed",
            "run as root, and set rootDirectory to the kubelet's --root-dir",
        )
    for path, reason in facts.unwritable:
        yield Finding(
            "permissions",
            Level.RISK,
            f"{path} cannot be written",
            reason,
            "run as root, and let the unit write there (ReadWritePaths)",
        )


def check_readings(facts: NodeFacts) -> Iterator[Finding]:
    """Filesystems that do not answer."""
    for unavailable in facts.look.unavailable:
        if unavailable.reason not in facts.runtime_problem:
            yield Finding(
                "readings",
                Level.PROBLEM,
                f"{unavailable.role} cannot be read, so nobody notices that it fills",
                unavailable.reason,
                "look at the disk and its mount",
            )


def check_pressure(facts: NodeFacts) -> Iterator[Finding]:
    """Marks that are met right now."""
    for threshold in facts.thresholds:
        observation = facts.look.signals.get(threshold.signal)
        mark = _mark(threshold, facts.look)
        if observation is not None and mark is not None and observation.available < mark:
            yield Finding(
                "pressure",
                Level.PROBLEM,
                f"{threshold.signal} is below its mark",
                f"{amount(threshold.signal, observation.available)} < {amount(threshold.signal, mark)}",
                "reclaimd plan shows what may go and where the bytes are",
            )


def check_daemon(facts: NodeFacts) -> Iterator[Finding]:
    """Whether anybody watches."""
    if facts.daemon_problem:
        yield Finding(
            "daemon",
            Level.NOTE,
            "no daemon answers: nobody watches this node unless one runs without a control socket",
            facts.daemon_problem,
            "systemctl enable --now reclaimd",
        )


CHECKS: tuple[Check, ...] = (
    check_pressure,
    check_readings,
    check_runtime,
    check_socket,
    check_permissions,
    check_thresholds,
    check_sandbox_image,
    check_containerd_frees_late,
    check_store,
    check_keeps,
    check_clock,
    check_image_gc_off,
    check_inodes,
    check_reserve,
    check_inotify,
    check_daemon,
)


def examine(facts: NodeFacts) -> tuple[Finding, ...]:
    """Every finding, the worst first."""
    found = [finding for check in CHECKS for finding in check(facts)]
    order = list(Level)
    return tuple(sorted(found, key=lambda finding: order.index(finding.level)))


def healthy(findings: tuple[Finding, ...]) -> bool:
    """Whether there is nothing to do: notes are good to know, and no reason to act."""
    return all(finding.level is Level.NOTE for finding in findings)


def _mark(threshold: Threshold, look: SignalObservations) -> int | None:
    observation = look.signals.get(threshold.signal)
    return None if observation is None else int(threshold.effective(observation.capacity))


def _distinct(look: SignalObservations) -> dict[int, tuple[FilesystemRole, str, str]]:
    """Each device once: its first role, path and type."""
    found: dict[int, tuple[FilesystemRole, str, str]] = {}
    for role, (identity, _) in look.filesystems.items():
        found.setdefault(identity.device_id, (role, identity.path, identity.type))
    return found
