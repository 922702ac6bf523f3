"""What is wrong or risky on a node: the tuple `CHECKS`, each of which yields its
findings about the facts. Pure.

A check yields nothing about what is unknown, unless that itself is the problem.
"""

import re
from collections.abc import Callable, Iterator

from eviction.configuration.effective import eviction_config
from eviction.decision.thresholds import kubelets_met, thresholds_met
from eviction.doctor.facts import BUILDKITD_TOML, Facts
from eviction.records.json_shapes import Versioned, shortened, timestamp
from eviction.survey.filesystem_facts import FilesystemFacts, roles_by_device
from eviction.wording.configuration_warnings import (
    Finding,
    Severity,
    has_no_threshold,
    kubelet_findings,
    note,
    problem,
    risk,
    row_findings,
)
from eviction.wording.explain import against_its_mark, later_than_kubelet, unreachable_sentences
from reclaim.evidence.references import ImageIndex, images_in_use
from reclaim.evidence.states import NO_TROUBLE
from reclaim.kubelet.pull_records import record_names
from reclaim.types import Listing
from signals.quantity import format_bytes
from signals.types import FilesystemRole, FsLayout

SHARE_RESERVED = 0.01
# Snapshotters that keep their data outside their directory, so that statvfs does
# not show their free space.
DATA_ELSEWHERE = frozenset({"devmapper", "zfs", "blockfile"})
LARGEST_SKEW_SECONDS = 60.0
EARLIEST_WALL = 1_735_689_600.0  # 2025-01-01: before this program was written
FEW_INOTIFY_INSTANCES = 128  # the kernel's default; a node with many pods uses them up
SHARE_IN_USE = 0.9
MOST_SHOWN = 5
LIMITS_OF_BUILDKIT = ("maxUsedSpace", "minFreeSpace")
FLOORS_OF_BUILDKIT = ("reservedSpace", "keepBytes", "gckeepstorage")
PIN = (
    "ctr -n k8s.io images label IMAGE io.cri-containerd.pinned=pinned; containerd 1.6.36, 1.7.13"
    " and 2 pin it"
)
LIST_PODS = (
    "grant an identity get on nodes/pods (nodes/proxy before Kubernetes 1.33), as the component"
    " kubelet does"
)

Findings = Iterator[Finding]


class DoctorJson(Versioned):
    """What is wrong or risky on this node: the answer of `reclaimd doctor`."""

    healthy: bool
    """Whether all findings are notes, or there are none."""
    findings: tuple[Finding, ...]
    """The worst first."""
    filesystems: tuple[FilesystemFacts, ...]
    """The filesystems of the signals."""


def pressure(facts: Facts) -> Findings:
    """Thresholds that are met now, and whether the kubelet's own are met too, if they are known."""
    signals = facts.observations.signals
    config = eviction_config(facts.configuration)
    kubelets = config.kubelets_in_layout(facts.observations.layout)
    crossed = {threshold.signal for threshold in kubelets_met(kubelets, signals)}
    for threshold in thresholds_met(facts.thresholds, signals):
        seen = against_its_mark(threshold, facts.observations)
        if config.kubelets is not None:
            below = "below" if threshold.signal in crossed else "not below"
            seen += f"; {below} the kubelet's own mark"
        yield problem(
            "pressure",
            f"{threshold.signal} is below its mark",
            seen,
            remedy="reclaimd plan shows what may be removed and what uses the space",
        )


def readings(facts: Facts) -> Findings:
    """A runtime that is down has its own finding."""
    for unavailable in facts.observations.unavailable:
        if unavailable.reason not in facts.runtime_problem:
            yield problem(
                "readings",
                f"{unavailable.role} cannot be read, so pressure on it goes unnoticed",
                unavailable.reason,
                remedy="check the disk and its mount",
            )


def socket(facts: Facts) -> Findings:
    """Any process that can connect to the CRI socket has root's power on this node."""
    status = facts.socket
    if status is not None and (status.st_uid != 0 or status.st_mode & 0o002):
        yield risk(
            "socket",
            "users other than root can connect to the runtime's socket, and whoever can is as"
            " powerful as root",
            f"{facts.endpoint} belongs to user {status.st_uid} and has mode"
            f" {status.st_mode & 0o777:04o}",
            remedy="let root own it, with mode 0660 (containerd: [grpc] uid and gid)",
        )


def pod_directories(facts: Facts) -> Findings:
    """Pod directories that do not explain what the runtime holds are not the kubelet's. Only the
    daemon knows whether they were different before."""
    told = facts.daemon.get("pod_directories", {})
    for why, sentence in (
        (told.get("why"), told.get("sentence")),
        facts.runtime.doubt or (None, ""),
    ):
        if why not in (None, *NO_TROUBLE):
            yield problem(
                "pod-directories",
                "the kubelet's pod directories are not believed, so no pod counts as gone and its"
                " remains are kept",
                sentence,
                remedy=(
                    "mount the kubelet's disk; set rootDirectory to its --root-dir; on a drained"
                    " node set kubeletEndpoint"
                ),
            )
            return


def terminated_pods(facts: Facts) -> Findings:
    """Only the kubelet knows which pods have terminated; until it says so, they
    keep their images in use.
    """
    list_problem = facts.runtime.pod_list_problem
    held = facts.runtime.held
    if list_problem:
        yield (risk if facts.configuration.expects_kubelet else note)(
            "kubelet-list",
            "the kubelet gives no list of its pods, so what terminated pods hold is kept",
            list_problem,
            remedy=LIST_PODS,
        )
    if held:
        yield risk(
            "terminated-pods",
            "only pods that seem to have terminated use these images, and the kubelet has not said"
            " that they have",
            held,
            remedy=LIST_PODS if list_problem else "set kubeletEndpoint to auto",
        )


def thresholds(facts: Facts) -> Findings:
    """Thresholds that act later than the kubelet's, can never be cleared, or are missing."""
    kubelet = facts.configuration.kubelet
    observations = facts.observations
    signals = observations.signals
    in_force = facts.thresholds
    for sentence in later_than_kubelet(
        in_force, eviction_config(facts.configuration).kubelets or (), signals
    ):
        yield risk(
            "thresholds-late",
            "the kubelet acts first, and may evict pods before reclaimd does anything",
            sentence,
            remedy=(
                f"raise evictionHard {sentence.partition(':')[0]}, or leave it out and use margin"
            ),
        )
    for sentence in unreachable_sentences(in_force, observations):
        signal = sentence.partition(":")[0]
        yield problem(
            "thresholds-unreachable",
            f"{signal} has a threshold that its filesystem is too small for",
            sentence,
            remedy=f"lower evictionHard or evictionMinimumReclaim of {signal}, or margin",
        )
    marked = {
        threshold.signal.filesystem
        for threshold in in_force
        if threshold.signal in signals and threshold.mark(signals[threshold.signal].capacity)
    }
    observed = {signal.filesystem for signal in signals} - {FilesystemRole.CONTAINERFS}
    idle = [role for role in observations.filesystems if role in observed - marked]
    what = f"{', '.join(idle)} has no threshold, so nothing relieves it"
    if has_no_threshold(in_force):
        what = "no disk signal has a threshold, so nothing is ever reclaimed"
    elif not idle:
        return
    yield problem(
        "thresholds-none",
        what,
        f"evictionHard of {kubelet.name if kubelet else 'no kubelet'}, and of our own files",
        remedy=(
            "set evictionHard; a kubelet's file that sets it ends its defaults, and 0% switches a"
            " signal off"
        ),
    )


def sandbox_image(facts: Facts) -> Findings:
    """Without the sandbox image no pod can start; while it is unknown, no image
    is removed at all.
    """
    images = facts.runtime.listing.images
    name = facts.runtime.sandbox_image
    if facts.runtime.version is None:
        return
    if name is None and not images_in_use(Listing(images=images)).sandbox_image_known:
        yield problem(
            "sandbox-image",
            "the image that pods need to start is unknown, so no image is removed",
            "no configured sandbox image, no ready sandbox that names one, no pinned image",
            remedy=PIN,
        )
    elif name is not None and not any(
        image.pinned for image in images if image.id in ImageIndex(images).find(name)
    ):
        yield risk(
            "sandbox-image",
            "the sandbox image is not pinned: reclaimd keeps it, but other tools and older kubelets"
            " may remove it",
            f"{name} is configured and not pinned",
            remedy=PIN,
        )


def unresolved_images(facts: Facts) -> Findings:
    """A container whose image is unknown could use any image, so none is removed."""
    if unresolved := images_in_use(facts.runtime.listing).unresolved:
        yield problem(
            "image-unresolved",
            "the image of a container is unknown, so no image is removed",
            f"no image is known for {len(unresolved)}, such as"
            f" {', '.join(map(shortened, unresolved[:MOST_SHOWN]))}",
            remedy="crictl ps -a shows the container; if it is dead, crictl rm it",
        )


def containerd_frees_late(facts: Facts) -> Findings:
    """containerd 2.0.0 to 2.0.4 answers a removal before the space is free."""
    runtime = facts.runtime.version
    if runtime is None or runtime.name != "containerd":
        return
    version = runtime.version.lstrip("v")
    if re.fullmatch(r"2\.0\.[0-4](?:[-+].*)?", version):
        yield risk(
            "containerd-frees-late",
            "this containerd answers a removal before the space is free, so more images are removed"
            " than needed",
            f"containerd {version}",
            remedy="update to containerd 2.0.5 or later",
        )


def store(facts: Facts) -> Findings:
    """Whether statvfs on the reported path shows the filesystem of the images."""
    imagefs = facts.imagefs
    content = facts.content_device
    current = (imagefs or "").rpartition(".")[2]
    if current in DATA_ELSEWHERE:
        yield problem(
            "store-elsewhere",
            "the snapshotter keeps its data on block devices, which statvfs does not show",
            f"images are in {imagefs}",
            remedy="thresholds on imagefs have no effect here; monitor the snapshotter's own pool",
        )
    for name, snapshots in facts.snapshotters.items():
        if name != current and snapshots > 0:
            yield risk(
                "store-second-snapshotter",
                "another snapshotter holds content that CRI neither shows nor frees",
                f"{snapshots} snapshots of {name} besides {imagefs}",
                remedy=(
                    "remove its snapshots if no pod or namespace uses them (ctr snapshots"
                    " --snapshotter)"
                ),
            )
    images = facts.observations.filesystems.get(FilesystemRole.IMAGEFS)
    if content is not None and images is not None and content != images[0].device_id:
        yield risk(
            "store-split",
            "images are on two filesystems; that of compressed content (containerd) or layers"
            " (CRI-O) is not watched",
            f"{imagefs} is on device {images[0].device_id}, the content store on {content}",
            remedy="put the runtime's whole root on one filesystem",
        )


def keeps(facts: Facts) -> Findings:
    """Entries of keepImages that match nothing protect nothing."""
    if facts.runtime.version is None:
        return
    for entry in facts.configuration.keep_images.unmatched(facts.runtime.listing.images):
        yield risk(
            "keep-unmatched",
            "an entry of keepImages matches no image on this node",
            f"keepImages: {entry!r}",
            remedy="correct it, or pull the image that it should protect",
        )


def pulls(facts: Facts) -> Findings:
    """Images that may not come back, and records of pulls that nobody prunes."""
    keep = facts.configuration.keep_images_not_pulled
    recorded = facts.runtime.pulls
    known = facts.runtime.records
    images = {image.id: image for image in facts.runtime.listing.images}
    not_pulled = [
        image for image in images.values() if image.id in known and known[image.id].not_pulled
    ]
    if not_pulled:
        shown = [shortened(image.title) for image in not_pulled]
        if len(shown) > MOST_SHOWN:
            shown[MOST_SHOWN:] = ["…"]
        yield (note if keep else risk)(
            "images-not-pulled",
            "pods have used images that the kubelet did not pull: imported or built here, they may"
            " not come back",
            f"{format_bytes(sum(image.size_bytes for image in not_pulled))}; images:"
            f" {len(not_pulled)}: {', '.join(shown)}",
            remedy=(
                "keepImagesNotPulled: true keeps them, auto removes them last; or name them in"
                " keepImages"
            ),
        )
    if keep is True and recorded.problem and images:
        yield risk(
            "images-not-pulled",
            "it is not known which images the kubelet did not pull, so keepImagesNotPulled protects"
            " no new one",
            recorded.problem,
            remedy="name the images in keepImages",
        )
    if images and (gone := recorded.names.difference(*map(record_names, images.values()))):
        yield note(
            "pull-records",
            "the kubelet keeps records of pulls of images that are gone, until it collects images"
            " for space itself",
            f"{len(gone)} of {len(recorded.names)} records, a small file each",
            remedy="nothing: they do no harm, and their number says how many images went",
        )


def clock(facts: Facts) -> Findings:
    """The ages of containers depend on the wall clock."""
    wrong = facts.wall < EARLIEST_WALL
    seen = f"it says {timestamp(facts.wall)}"
    newest = facts.wall
    if containers := facts.runtime.listing.containers:
        newest = max(container.created_at_ns for container in containers) / 1e9
        seen += f"; the newest container is of {timestamp(newest)}"
    if wrong or newest - facts.wall > LARGEST_SKEW_SECONDS:
        yield (problem if wrong else risk)(
            "clock",
            "the clock is wrong, or was set back, so objects count as too young for longer",
            seen,
            remedy="set it and keep it in step (chrony, systemd-timesyncd)",
        )


def kubelets_gc(facts: Facts) -> Findings:
    """Without the gate KubeletSeparateDiskGC a kubelet gives up on split filesystems, which it
    detects only on CRI-O. imageGCHighThresholdPercent 100 turns off its periodic image garbage
    collection."""
    kubelet = facts.configuration.kubelet
    version = facts.runtime.version
    if kubelet is None:
        return
    split = facts.observations.layout is FsLayout.SPLIT
    gate = kubelet.feature_gates.get("KubeletSeparateDiskGC", True)  # by default since 1.31
    if split and not gate and version and version.name == "cri-o":
        yield risk(
            "separate-disk-gc-off",
            "the kubelet neither reclaims nor evicts: images and writable layers are apart, and its"
            " gate is off",
            f"KubeletSeparateDiskGC is false in {kubelet.name}, and the layout is {FsLayout.SPLIT}",
            remedy=(
                "remove the gate from its featureGates (on by default since 1.31); reclaimd works"
                " with and without it"
            ),
        )
    if kubelet.image_gc_high_threshold_percent == 100:
        yield note(
            "image-gc-off",
            "the kubelet's periodic image garbage collection is off; only pressure reclaims images",
            f"imageGCHighThresholdPercent is 100 in {kubelet.name}",
            remedy="this is fine while reclaimd runs; monitor that it does",
        )


def inodes(facts: Facts) -> Findings:
    """A filesystem that does not count inodes has no inode signal."""
    for role, (identity, stats) in facts.observations.filesystems.items():
        if stats.inodes_total == 0:
            yield note(
                "no-inode-signal",
                f"{role} counts no inodes, so thresholds for {role}.inodesFree have no effect",
                f"{identity.type or 'the filesystem'} on {identity.path} reports 0 inodes in all",
                remedy="nothing, if the filesystem creates inodes as needed (btrfs)",
            )


def reserve(facts: Facts) -> Findings:
    """Space that ext4 reserves for root: freed space refills the reserve before
    any of it becomes available.
    """
    for role, *_ in roles_by_device(facts.observations).values():
        identity, stats = facts.observations.filesystems[role]
        reserved = stats.free_bytes - stats.available_bytes
        into_it = stats.available_bytes == 0 < stats.free_bytes
        if not into_it and reserved <= stats.capacity_bytes * SHARE_RESERVED:
            continue
        what = f"{role} reserves space for root, which counts as capacity, but never as available"
        if into_it:
            what += ", and is filled into it: freed space does not become available at first"
        yield (risk if into_it else note)(
            "reserve",
            what,
            f"{format_bytes(reserved)} of {format_bytes(stats.capacity_bytes)} on "
            f"{identity.path} ({identity.type or '?'})",
            remedy="tune2fs -m 1 on a data disk gives most of it back",
        )


def xfs(facts: Facts) -> Findings:
    """XFS preallocates as much again as a growing file already has, unless its directory has an
    extent size hint; `allocsize` limits that."""
    for filesystem in facts.filesystems:
        if filesystem.type != "xfs" or filesystem.options is None:
            continue
        hints = {
            directory: hint
            for directory, (device, hint) in facts.xfs_hints.items()
            if device == filesystem.device
        }
        bare = [directory for directory in hints if not hints[directory]]
        hinted = hints and not bare
        if not hinted and not any(option.startswith("allocsize=") for option in filesystem.options):
            yield risk(
                "xfs-preallocation",
                f"XFS on {filesystem.path} counts up to 8GiB beyond the end of each growing file as"
                " used, so images are removed and pods evicted for space that nobody uses",
                "it is mounted without allocsize, and not all directories in which files grow have"
                " an extent size hint",
                remedy=(
                    f"reclaimd xfs-hint {' '.join(bare or ['DIR'])}: a new file then takes whole"
                    " units of 1MiB while it is open, and where it has data if it is sparse; or"
                    " allocsize=64k, which needs a new mount: a remount changes nothing"
                ),
            )


def caches(facts: Facts) -> Findings:
    """What declares itself a cache, and nobody collects."""
    for cache in facts.caches:
        yield note(
            "cache-not-collected",
            cache.sentence,
            "no entry of reclaimFunctions has it below its caches",
            remedy=(
                f"reclaimFunctions: [{{name: DeleteFromCaches, caches: [{cache.path}]}}], and"
                " DeleteFromCaches in a row of reclaimTable: it removes what was not used for"
                " longest"
            ),
        )


def buildkit(facts: Facts) -> Findings:
    """BuildKit's collection frees down to `reservedSpace`, and only if something else sets a limit
    (moby/buildkit, `docs/buildkitd.toml.md`)."""
    workers = facts.buildkitd.get("worker", {})
    for name, worker in workers.items() if isinstance(workers, dict) else ():
        policies = [worker, *worker.get("gcpolicy", [])]
        if any(policy.get(limit) for policy in policies for limit in LIMITS_OF_BUILDKIT):
            continue
        if any(policy.get(floor) for policy in policies for floor in FLOORS_OF_BUILDKIT):
            yield risk(
                "buildkit-no-limit",
                f"nothing limits the cache of BuildKit's worker {name}: reservedSpace is what it"
                " never frees, not a limit",
                f"{BUILDKITD_TOML} sets it without maxUsedSpace or minFreeSpace",
                remedy="set maxUsedSpace, or minFreeSpace above reclaimd's mark",
            )


def filesystem_numbers(facts: Facts) -> Findings:
    """Which of a filesystem's numbers can jump, and the mount options that affect them."""
    for filesystem in facts.filesystems:
        if filesystem.jumps is None or not (filesystem.jumps or filesystem.options):
            continue
        options = ",".join(filesystem.options or ()) or "no option that affects them"
        yield note(
            "filesystem-numbers",
            f"of the numbers of {', '.join(filesystem.filesystems)} this can jump:"
            f" {filesystem.phrase}",
            f"{filesystem.type} on {filesystem.path}, mounted with {options}",
            remedy="nothing; bear it in mind when you read its numbers",
        )


def inotify(facts: Facts) -> Findings:
    """Without an inotify instance, reclaimd only polls at intervals, which is
    enough for all its promises.
    """
    limit = facts.inotify_limit
    used = facts.inotify_used
    if limit is None:
        return
    short = used >= limit * SHARE_IN_USE
    if short or limit <= FEW_INOTIFY_INSTANCES:
        yield (risk if short else note)(
            "inotify",
            "this user may have few more inotify instances, or few at all; the kubelet and pods"
            " need them too",
            f"{used} of {limit}",
            remedy="raise fs.inotify.max_user_instances in /etc/sysctl.d, to 1024 for example",
        )


def stated(facts: Facts) -> Findings:
    """What the facts themselves say is wrong. A symlink could lead anywhere, so it is not followed;
    a file of somebody else's at the path of the history is left alone."""
    told = facts.daemon
    first = "" if facts.installed else "reclaimd install --systemd, then "
    for level, check, sentence, evidence, remedy in (
        (
            problem,
            "runtime",
            "the container runtime does not answer, so nothing can be reclaimed",
            facts.runtime_problem,
            "start it, or set containerRuntimeEndpoint to its socket",
        ),
        *(
            (
                risk,
                "permissions",
                f"{path} cannot be written",
                why,
                "run as root; the unit needs it in ReadWritePaths",
            )
            for path, why in facts.unwritable.items()
        ),
        *(
            (
                risk,
                "log-symlink",
                "a log directory is a symlink, which is not followed, so nothing in it is removed",
                f"{field}: {path}",
                "name the directory that it points to",
            )
            for field, path in facts.symlinks.items()
        ),
        *(
            (
                problem,
                "function",
                f"{name} cannot do anything",
                why,
                "correct it, or remove it from reclaimFunctions",
            )
            for name, why in facts.function_problems
        ),
        (
            risk,
            "history",
            "no history is kept",
            facts.history_problem,
            "move that file away, or set another historyFile",
        ),
        (
            note,
            "daemon",
            (
                "no daemon answers: nothing watches this node, unless one runs without a control"
                " socket"
            ),
            facts.daemon_problem,
            f"{first}systemctl enable --now reclaimd",
        ),
        (
            risk,
            "held-off",
            "the daemon removes nothing now",
            told.get("held_off"),
            "wait, or reclaimd resume for a pause; reclaimd reclaim --now does not wait",
        ),
        (
            risk,
            "reload",
            "the daemon works by an older configuration than its files hold",
            told.get("reload_problem"),
            "correct what it names, then systemctl reload reclaimd; until then a restart may fail",
        ),
        (
            risk,
            "dry-run",
            "the daemon removes nothing, and only reports",
            "dryRun is true" if told.get("dry_run") else "",
            (
                "set dryRun: false and run systemctl reload reclaimd, once it reports what it"
                " should remove"
            ),
        ),
    ):
        if evidence:
            yield level(check, sentence, evidence, remedy=remedy)


CHECKS: tuple[Callable[[Facts], Findings], ...] = (
    pressure,
    readings,
    stated,
    socket,
    pod_directories,
    terminated_pods,
    thresholds,
    lambda facts: kubelet_findings(facts.configuration),
    lambda facts: row_findings(facts.configuration, facts.observations, facts.observations.signals),
    sandbox_image,
    unresolved_images,
    containerd_frees_late,
    store,
    keeps,
    pulls,
    clock,
    kubelets_gc,
    inodes,
    reserve,
    xfs,
    caches,
    buildkit,
    filesystem_numbers,
    inotify,
)
"""Of findings of one level, those of an earlier check are shown first."""


def examine(facts: Facts) -> DoctorJson:
    """All findings about a node, and the facts about its filesystems."""
    findings = [finding for check in CHECKS for finding in check(facts)]
    findings.sort(key=lambda finding: list(Severity).index(finding.level))
    return DoctorJson(
        healthy=all(finding.level is Severity.NOTE for finding in findings),
        findings=tuple(findings),
        filesystems=facts.filesystems,
    )
