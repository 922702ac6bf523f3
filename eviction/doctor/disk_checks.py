"""Checks of filesystems, thresholds and the image store."""

from __future__ import annotations

from collections.abc import Iterator

from eviction.decision.thresholds import thresholds_met, update_container_fs_thresholds
from eviction.doctor.findings import Finding, NodeFacts, Severity
from eviction.reporting.configuration_warnings import has_no_threshold, tiny_marks
from eviction.reporting.explain import late_threshold_sentence, later_than_kubelet, unreachable_sentences
from eviction.reporting.tables import amount
from eviction.types import Threshold
from signals.quantity import format_bytes
from signals.types import FilesystemRole, FsLayout, SignalObservations, signals_about

SHARE_RESERVED = 0.01
# Snapshotters that keep their data outside their directory, so statvfs does not show their free space.
DATA_ELSEWHERE = frozenset({"devmapper", "zfs", "blockfile"})


def check_pressure(facts: NodeFacts) -> Iterator[Finding]:
    """Thresholds that are met now; where the kubelet's own are known, whether they are, too."""
    kubelets = () if facts.kubelet is None else facts.kubelet.thresholds.thresholds
    own = update_container_fs_thresholds(kubelets, facts.observations.layout)
    crossed = {one.signal for one in thresholds_met(own, facts.observations.signals, enforce_min_reclaim=False)}
    for threshold in facts.thresholds:
        observation = facts.observations.signals.get(threshold.signal)
        mark = _mark(threshold, facts.observations)
        if observation is not None and mark is not None and observation.available < mark:
            kubelets_too = "; below the kubelet's own mark, too" if threshold.signal in crossed else ""
            if facts.kubelet is not None and not kubelets_too:
                kubelets_too = "; not below the kubelet's own mark"
            yield Finding(
                "pressure",
                Severity.PROBLEM,
                f"{threshold.signal} is below its mark",
                f"{amount(threshold.signal, observation.available)} < {amount(threshold.signal, mark)}{kubelets_too}",
                "reclaimd plan shows what may be removed and what uses the space",
            )


def check_readings(facts: NodeFacts) -> Iterator[Finding]:
    """Filesystems that do not answer."""
    for unavailable in facts.observations.unavailable:
        if unavailable.reason not in facts.runtime_problem:
            yield Finding(
                "readings",
                Severity.PROBLEM,
                f"{unavailable.role} cannot be read, so pressure on it is not noticed",
                unavailable.reason,
                "check the disk and its mount",
            )


def check_thresholds(facts: NodeFacts) -> Iterator[Finding]:
    """Thresholds later than the kubelet's, or none at all."""
    kubelets = facts.kubelet.thresholds.thresholds if facts.kubelet is not None else ()
    for later in later_than_kubelet(facts.thresholds, kubelets, facts.observations.signals):
        yield Finding(
            "thresholds-late",
            Severity.RISK,
            "the kubelet acts first and may evict pods before reclaimd does anything",
            late_threshold_sentence(later),
            f"raise evictionHard {later.ours.signal}, or leave it out and use margin",
        )
    for sentence in unreachable_sentences(facts.thresholds, facts.observations):
        signal = sentence.partition(":")[0]
        yield Finding(
            "thresholds-unreachable",
            Severity.PROBLEM,
            f"{signal} is under pressure whatever is removed",
            sentence,
            f"lower evictionHard or evictionMinimumReclaim of {signal}",
        )
    if has_no_threshold(facts.thresholds):
        yield Finding(
            "thresholds-none",
            Severity.PROBLEM,
            "no signal of a disk has a threshold, so nothing is ever relieved",
            f"evictionHard of {facts.kubelet.name} and of our own files" if facts.kubelet else "evictionHard",
            "set evictionHard; a kubelet whose file sets it has no default thresholds beside it",
        )
        return
    active = {t.signal for t in facts.thresholds if _mark(t, facts.observations) != 0}
    for role in facts.observations.filesystems:
        mine = [signal for signal in signals_about(role) if signal in facts.observations.signals]
        if mine and not active.intersection(mine) and role is not FilesystemRole.CONTAINERFS:
            yield Finding(
                "thresholds-none",
                Severity.PROBLEM,
                f"{role} has no threshold, so nothing relieves it",
                f"neither {' nor '.join(mine)} has a mark",
                f"set evictionHard {mine[0]}, or remove the 0% that switches it off",
            )


def check_kubelets_marks(facts: NodeFacts) -> Iterator[Finding]:
    """Whether the kubelet's own marks are known, and are no mistake."""
    if facts.defaults_taken or facts.kubelet_remark:
        yield Finding(
            "kubelet-config",
            Severity.RISK,
            "the kubelet's configuration was not found, so its defaults are taken, and it may act before reclaimd does"
            if facts.defaults_taken
            else "the usual file is taken for the kubelet's configuration, and it may be another",
            facts.defaults_taken or facts.kubelet_remark,
            'name its file with kubeletConfig; "" says that there is none',
        )
    for one in tiny_marks(() if facts.kubelet is None else facts.kubelet.thresholds.thresholds):
        yield Finding(
            "thresholds-tiny",
            Severity.RISK,
            f"the kubelet's mark of {one.signal} is less than 1MiB, so it acts when the disk is full",
            f"{one.signal}: {one.value} in {one.origin}",
            "give it a unit: 10% or 10Gi, not 10",
        )


def check_image_gc_off(facts: NodeFacts) -> Iterator[Finding]:
    """imageGCHighThresholdPercent 100 switches the kubelet's periodic image collection off."""
    if facts.kubelet is not None and facts.kubelet.image_gc_high_threshold_percent == 100:
        yield Finding(
            "image-gc-off",
            Severity.NOTE,
            "the kubelet's periodic image garbage collection is off; only pressure reclaims images",
            f"imageGCHighThresholdPercent is 100 in {facts.kubelet.name}",
            "this is fine while reclaimd runs; watch that it does",
        )


def check_separate_disk_gc(facts: NodeFacts) -> Iterator[Finding]:
    """Without its gate a kubelet gives up on split filesystems, which it sees beside CRI-O only."""
    split = facts.observations.layout is FsLayout.SPLIT and facts.runtime is not None and facts.runtime.name == "cri-o"
    if split and facts.kubelet is not None and not facts.kubelet.separate_disk_gc:
        yield Finding(
            "separate-disk-gc-off",
            Severity.RISK,
            "the kubelet neither reclaims nor evicts: images and writable layers are apart, and its gate is off",
            f"KubeletSeparateDiskGC is false in {facts.kubelet.name}, and the layout is {FsLayout.SPLIT}",
            "take the gate out of its featureGates (it is on by default from 1.31); reclaimd works with it and without",
        )


def check_inodes(facts: NodeFacts) -> Iterator[Finding]:
    """Filesystems that count no inodes have no inode signal."""
    for role, (identity, stats) in facts.observations.filesystems.items():
        if stats.inodes_total == 0:
            yield Finding(
                "no-inode-signal",
                Severity.NOTE,
                f"{role} counts no inodes, so thresholds for {role}.inodesFree do nothing",
                f"{identity.type or 'the filesystem'} on {identity.path} reports 0 inodes in all",
                "nothing, if the filesystem makes inodes as needed (btrfs)",
            )


def check_reserve(facts: NodeFacts) -> Iterator[Finding]:
    """Space that ext4 reserves for root: freed space first refills it, before any shows as available."""
    for device, (role, path, kind) in _distinct(facts.observations).items():
        stats = facts.observations.filesystems[role][1]
        reserved = stats.free_bytes - stats.available_bytes
        if stats.available_bytes == 0 and stats.free_bytes > 0:
            yield Finding(
                "reserve",
                Severity.RISK,
                f"{role} is filled into the reserve for root, so freed space does not show as available at first",
                f"0B available and {format_bytes(stats.free_bytes)} free on {path} (device {device})",
                "reclaimd still measures it; free some space by hand if nothing may be removed",
            )
        elif reserved > stats.capacity_bytes * SHARE_RESERVED:
            yield Finding(
                "reserve",
                Severity.NOTE,
                f"{role} reserves space for root, which counts as capacity and never as available",
                f"{format_bytes(reserved)} of {format_bytes(stats.capacity_bytes)} on {path} ({kind or '?'})",
                "tune2fs -m 1 on a data disk gives most of it back",
            )


def check_xfs(facts: NodeFacts) -> Iterator[Finding]:
    """XFS allocates behind files that grow, as much again as they have; `allocsize` bounds it."""
    for filesystem in facts.filesystems:
        if filesystem.type != "xfs" or filesystem.options is None:
            continue
        if not any(option.startswith("allocsize=") for option in filesystem.options):
            yield Finding(
                "xfs-preallocation",
                Severity.RISK,
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
        yield Finding(
            "filesystem-numbers",
            Severity.NOTE,
            f"of the numbers of {', '.join(filesystem.roles)} this can jump: {filesystem.phrase}",
            f"{filesystem.type} on {filesystem.path}, mounted with {options}",
            "nothing; know it when you read its numbers",
        )


def check_store(facts: NodeFacts) -> Iterator[Finding]:
    """Whether statvfs on the reported path shows the filesystem of the images."""
    current = (facts.imagefs or "").rpartition(".")[2]
    if current in DATA_ELSEWHERE:
        yield Finding(
            "store-elsewhere",
            Severity.PROBLEM,
            "the snapshotter keeps its data on block devices that no filesystem reading shows",
            f"images are in {facts.imagefs}",
            "thresholds on imagefs have no effect here; monitor the pool of the snapshotter itself",
        )
    images = facts.observations.filesystems.get(FilesystemRole.IMAGEFS)
    for other in facts.snapshotters:
        if other.name != current and other.snapshots > 0:
            yield Finding(
                "store-second-snapshotter",
                Severity.RISK,
                "another snapshotter holds content that CRI neither shows nor frees",
                f"{other.snapshots} snapshots of {other.name} beside {facts.imagefs}",
                "remove what is left of it when no pod or namespace uses it (ctr snapshots --snapshotter)",
            )
    if facts.content_device is not None and images is not None and facts.content_device != images[0].device_id:
        yield Finding(
            "store-split",
            Severity.RISK,
            "images are unpacked on one filesystem, and their compressed content is on another that is not watched",
            f"{facts.imagefs} is on device {images[0].device_id}, the content store on {facts.content_device}",
            "put containerd's whole root on one filesystem",
        )


def _mark(threshold: Threshold, observations: SignalObservations) -> int | None:
    observation = observations.signals.get(threshold.signal)
    return None if observation is None else threshold.mark(observation.capacity)


def _distinct(observations: SignalObservations) -> dict[int, tuple[FilesystemRole, str, str]]:
    """Each device once: its first role, path and type."""
    found: dict[int, tuple[FilesystemRole, str, str]] = {}
    for role, (identity, _) in observations.filesystems.items():
        found.setdefault(identity.device_id, (role, identity.path, identity.type))
    return found
