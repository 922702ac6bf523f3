"""Checks of the runtime, its socket, permissions, the clock, inotify and the daemon."""

from __future__ import annotations

from collections.abc import Iterator

from eviction.doctor.findings import Finding, NodeFacts, Severity
from eviction.reporting.pass_record import shortened
from signals.quantity import format_bytes, format_duration

LARGEST_SKEW_SECONDS = 60.0
EARLIEST_WALL = 1_735_689_600.0  # 2025-01-01: before this program was written
FEW_INOTIFY_INSTANCES = 128  # the kernel's default, which a node with many pods uses up
SHARE_IN_USE = 0.9
MOST_SHOWN = 5


def check_runtime(facts: NodeFacts) -> Iterator[Finding]:
    """Whether the runtime answers."""
    if facts.runtime_problem:
        yield Finding(
            "runtime",
            Severity.PROBLEM,
            "the container runtime does not answer, so nothing can be reclaimed",
            facts.runtime_problem,
            "start it, or name its socket with containerRuntimeEndpoint",
        )


def check_socket(facts: NodeFacts) -> Iterator[Finding]:
    """Any process that can connect to the CRI socket is as powerful as root on this node."""
    found = facts.socket
    if found is None or not found.exists:
        return
    if not found.is_socket:
        evidence = f"{found.path} is not a socket"
        yield Finding("socket", Severity.PROBLEM, "the endpoint is no socket", evidence, "set containerRuntimeEndpoint")
    elif found.owner != 0 or found.mode & 0o002:
        yield Finding(
            "socket",
            Severity.RISK,
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
            Severity.RISK,
            "this containerd answers a removal before the space is free, so more images are removed than needed",
            f"containerd {version}",
            "update to containerd 2.0.5 or later",
        )


def check_sandbox_image(facts: NodeFacts) -> Iterator[Finding]:
    """Without the sandbox image no pod starts; if it is unknown, no image is removed at all."""
    if facts.runtime_problem or facts.socket is None:
        return
    pin = "ctr -n k8s.io images label IMAGE io.cri-containerd.pinned=pinned; containerd 1.6.36, 1.7.13 and 2 pin it"
    if facts.sandbox_image is None and not facts.sandbox_image_pinned:
        yield Finding(
            "sandbox-image",
            Severity.PROBLEM,
            "the image that pods need to start is unknown, so no image is removed",
            "no configured sandbox image, no ready sandbox that names one, no pinned image",
            pin,
        )
    elif facts.sandbox_image is not None and not facts.sandbox_image_pinned:
        yield Finding(
            "sandbox-image",
            Severity.RISK,
            "the sandbox image is not pinned: reclaimd keeps it, but other tools and older kubelets may remove it",
            f"{facts.sandbox_image} is configured and not pinned",
            pin,
        )


def check_unresolved_images(facts: NodeFacts) -> Iterator[Finding]:
    """A container whose image is unknown may use any image, so none is removed."""
    if facts.unresolved_images:
        shown = ", ".join(map(shortened, facts.unresolved_images[:MOST_SHOWN]))
        more = len(facts.unresolved_images) - MOST_SHOWN
        yield Finding(
            "image-unresolved",
            Severity.PROBLEM,
            "the image of a container is unknown, so no image is removed",
            f"no image is known for {shown}{f' and {more} more' if more > 0 else ''}",
            "crictl ps -a shows the container; if it is dead, crictl rm it",
        )


def check_inotify(facts: NodeFacts) -> Iterator[Finding]:
    """Without an inotify instance reclaimd only polls at intervals, which suffices for all its promises."""
    limit, used = facts.inotify_limit, facts.inotify_used
    if limit is not None and used is not None and used >= limit * SHARE_IN_USE:
        yield Finding(
            "inotify",
            Severity.RISK,
            "this user's inotify instances are nearly used up; kubelet and pods need them too",
            f"{used} of {limit} (fs.inotify.max_user_instances)",
            "raise it in /etc/sysctl.d, to 1024 say",
        )
    elif limit is not None and limit <= FEW_INOTIFY_INSTANCES:
        yield Finding(
            "inotify",
            Severity.NOTE,
            "the limit of inotify instances is the kernel's small default",
            f"fs.inotify.max_user_instances is {limit}",
            "raise it in /etc/sysctl.d, to 1024 say",
        )


def check_keeps(facts: NodeFacts) -> Iterator[Finding]:
    """Entries of keepImages that match nothing protect nothing."""
    for entry in facts.unmatched_keeps:
        yield Finding(
            "keep-unmatched",
            Severity.RISK,
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
        yield Finding("clock", Severity.PROBLEM, "the clock is wrong, so ages are unknown", evidence, remedy)
    elif ahead is not None and ahead > LARGEST_SKEW_SECONDS:
        yield Finding(
            "clock",
            Severity.RISK,
            "the clock was set back, so objects made before that count as too young for longer",
            f"the newest container was created {format_duration(ahead)} in the future",
            "keep the clock in step (chrony, systemd-timesyncd)",
        )


def check_pod_directories(facts: NodeFacts) -> Iterator[Finding]:
    """Directories that do not explain what the runtime holds are not the kubelet's."""
    if facts.pods_doubt:
        yield Finding(
            "pod-directories",
            Severity.PROBLEM,
            "the kubelet's pod directories are not believed, so no pod counts as gone and its remains are kept",
            facts.pods_doubt,
            "mount the kubelet's disk, and set rootDirectory to its --root-dir; on a drained node set kubeletEndpoint",
        )


def check_kubelet_list(facts: NodeFacts) -> Iterator[Finding]:
    """Only the kubelet knows which pods have terminated; until it says so they hold their images."""
    allow = "let an identity get nodes/pods (nodes/proxy before Kubernetes 1.33), as the component kubelet does"
    if facts.kubelet_problem:
        yield Finding(
            "kubelet-list",
            Severity.RISK,
            "the kubelet gives no list of its pods, so what terminated pods hold stays",
            facts.kubelet_problem,
            allow,
        )
    if facts.held is not None and facts.held.bytes:
        held = facts.held
        yield Finding(
            "terminated-pods",
            Severity.RISK,
            "only pods that seem to have terminated hold these images, and the kubelet has not said that they have",
            f"{format_bytes(held.bytes)}; images: {held.images}; pods all of whose containers have exited: {held.pods}",
            allow if facts.kubelet_problem else "set kubeletEndpoint to auto",
        )


def check_log_directories(facts: NodeFacts) -> Iterator[Finding]:
    """A directory of logs that is a symlink could be anybody's, so it is not followed."""
    for name in facts.log_symlinks:
        yield Finding(
            "log-symlink",
            Severity.RISK,
            "a directory of logs is a symlink, which is not followed, so nothing in it is removed",
            name,
            "name the directory that it leads to, or mount it there (mount --bind)",
        )


def check_permissions(facts: NodeFacts) -> Iterator[Finding]:
    """Directories that must be readable or writable."""
    if facts.pods_readable is False:
        yield Finding(
            "permissions",
            Severity.PROBLEM,
            "the kubelet's pod directories cannot be read, so no pod counts as gone and its remains are kept",
            f"{facts.root_directory}/pods cannot be listed",
            "run as root, and set rootDirectory to the kubelet's --root-dir",
        )
    for path, reason in facts.unwritable:
        yield Finding(
            "permissions",
            Severity.RISK,
            f"{path} cannot be written",
            reason,
            "run as root, and let the unit write there (ReadWritePaths)",
        )


def check_history(facts: NodeFacts) -> Iterator[Finding]:
    """What is at the place of the history file and is not ours is left alone."""
    if facts.history_problem:
        yield Finding(
            "history",
            Severity.RISK,
            "no history is kept: what is at its place is not a history that can be used",
            facts.history_problem,
            "move it away, and the daemon makes one there; or name another historyFile",
        )


def check_daemon(facts: NodeFacts) -> Iterator[Finding]:
    """Whether a daemon watches this node."""
    if facts.daemon_problem:
        yield Finding(
            "daemon",
            Severity.NOTE,
            "no daemon answers: nobody watches this node unless one runs without a control socket",
            facts.daemon_problem,
            "systemctl enable --now reclaimd",
        )
    if facts.held_off:
        yield Finding(
            "held-off",
            Severity.RISK,
            "the daemon removes nothing now",
            facts.held_off,
            "wait, or reclaimd resume for a pause; reclaimd reclaim --now does not wait",
        )
    if facts.dry_run:
        yield Finding(
            "dry-run",
            Severity.RISK,
            "the daemon removes nothing, and only tells what it would",
            "dryRun is true",
            "dryRun: false and systemctl reload reclaimd, once what it tells is what it should do",
        )
