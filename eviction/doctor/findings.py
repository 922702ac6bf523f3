"""What doctor judges and what it finds: the facts of a node, and findings. Values only.

A fact that could not be learnt is None, and a check says nothing about what it does not know, except where not knowing
is the finding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from eviction.configuration.kubelet import KubeletConfiguration
from eviction.types import Threshold
from reclaim.services import RuntimeVersion
from signals.types import SignalObservations


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

    `thresholds`: ours, in force in the layout of the `observations`. `runtime_problem`: why the runtime does not
    answer, empty when it does. `sandbox_image`: what pods need to start, as far as any source names it;
    `sandbox_image_pinned`: whether the runtime pins it. `newest_created_seconds_ahead`: how far the newest
    container was created in the future. `unmatched_keeps`: entries of keepImages that match no image.
    `unresolved_images`: what containers say of their images that nobody can tell an image from; a container that
    says nothing is there by its id. `inotify_*`: of this user. `pods_readable`: whether the kubelet's pod
    directories can be listed. `unwritable`: what should be writable and is not, with the reason.
    """

    observations: SignalObservations
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
    unresolved_images: tuple[str, ...] = ()
    inotify_limit: int | None = None
    inotify_used: int | None = None
    pods_readable: bool | None = None
    unwritable: tuple[tuple[str, str], ...] = ()
    daemon_problem: str = ""


Check = Callable[[NodeFacts], Iterator[Finding]]
