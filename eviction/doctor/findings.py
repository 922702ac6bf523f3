"""The values of `doctor`: facts of a node, and findings about them.

An unknown fact is None. A check makes no finding about an unknown fact, unless that itself is the problem.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from eviction.configuration.kubelet import KubeletConfiguration
from eviction.reporting.filesystem_facts import FilesystemFacts
from eviction.reporting.table_problems import RowFacts
from eviction.types import Threshold
from reclaim.services import RuntimeVersion
from signals.types import SignalObservations


class Severity(StrEnum):
    """A problem prevents reclaim, a risk may prevent it, a note needs no action. In JSON it is the field `level`."""

    PROBLEM = "problem"
    RISK = "risk"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding. `sentence`: what is wrong; `evidence`: what shows it; `remedy`: what to do. Each is one phrase."""

    check: str
    level: Severity
    sentence: str
    evidence: str
    remedy: str


@dataclass(frozen=True, slots=True)
class SocketFacts:
    """The runtime's endpoint: whether it exists and is a socket, its owner's uid, and its mode bits."""

    path: str
    exists: bool
    is_socket: bool = False
    owner: int = 0
    mode: int = 0


@dataclass(frozen=True, slots=True)
class Snapshotter:
    """A snapshotter of containerd: its name, and the number of its snapshots."""

    name: str
    snapshots: int


@dataclass(frozen=True, slots=True)
class HeldImages:
    """Images that only pods use which stand still: how many, their bytes as reported, and how many such pods hold
    them or others."""

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
    empty if it is one or nothing is there. `filesystems`: what
    those of the signals are. `rows`: of the signals that are observed. `function_problems`: functions of the
    configuration that cannot be called, and why. `socket`: None where there is no runtime. `held_off`: why the daemon
    removes nothing now, empty if it may; `dry_run`: whether it is to remove nothing at all. `defaults_taken`: why marks
    are the kubelet's defaults though its configuration was looked for; `kubelet_remark`: why a kubelet that runs was
    not asked for it.
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
    snapshotters: tuple[Snapshotter, ...] = ()
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
    rows: tuple[RowFacts, ...] = ()
    function_problems: tuple[tuple[str, str], ...] = ()
    defaults_taken: str = ""
    kubelet_remark: str = ""


Check = Callable[[NodeFacts], Iterator[Finding]]
