"""The kubelet's pods: from its directories, from its own list of them if it can be asked, and from the last comparison
of the directories with the runtime.

The kubelet makes `<root-dir>/pods/<UID>` before it makes a log directory or a sandbox, and removes it only when the pod
is gone for good and none of its containers runs (`pkg/kubelet/kubelet_volumes.go`, cleanupOrphanedPodDirs). So while
the directory exists, nothing of that pod is an orphan, and once it is missing the pod is gone, provided that the
directories are the kubelet's (`states`). Without the directories, or while their filesystem does not answer, no pod
counts as gone.

A stage compares what it has read with the runtime's lists before it plans. Right before a removal, the directories are
read again and must be the ones that were trusted; if they are others, no pod is gone until the next comparison. Before
the first comparison, nothing is gone either.

The list adds which pods have terminated, were evicted or were deleted while their directory still exists. It cannot
prove that a pod does not exist: right after a kubelet starts, it contains only static pods, or nothing
(kubernetes/kubernetes#112119), and does not say so. Therefore:

* A pod counts as gone only if both sources lack it, so an incomplete list removes nothing: a live pod has a directory
  before it has a container, and keeps it until it is gone.
* Without readable directories nothing is known; the list does not replace them.
* Directories that are read but not trusted make no pod gone. What the list says about a pod it contains still holds:
  terminated and evicted pods give up what they hold, since the kubelet itself says so.
* The state of a listed pod is the one in the list, even if the list lacks other pods. So it does not matter whether the
  kubelet has synced its pods yet.
* `sources_ready` is true once the list contains a pod from the API server: the kubelet takes over all pods of a source
  at once. The only other proof is a list from the socket of a kubelet that gives none before (`pods_api`). The price:
  where there is neither, log directories, which require all sources, are not removed.

Every reading requests the list anew, with one exception that can only keep objects: after a late answer, no request is
sent for 10 s, and for 1 s after *not yet*. A disk under pressure slows kubelets down, and each request would delay
relief by the whole deadline.

The list also names the images of pods whose containers are not made yet. That only ever keeps an image, so while no
list is available, the images in the last complete list still count, for each pod as long as it has a directory.

Covers: reading, remembering, and the checks right before a removal. Does not cover: the decisions (`states`).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TypeVar

from reclaim.pods.pod_list import KubeletAnswerError, KubeletUnavailable, PodList, parse_pod_list
from reclaim.pods.states import (
    Doubt,
    PodDirectory,
    PodStates,
    RootIdentity,
    Why,
    doubt,
    doubt_about,
    exchanged,
    not_compared,
)
from reclaim.types import Listing, ReclaimError
from reclaim.workers import ReadingsInTime
from signals.clock import Clock

PAUSE_SECONDS = 10.0
NAMED_SECONDS = 1.0  # how old the list that names images may be, or four times what reading took


@dataclass(eq=False)
class KubeletPods:
    """A PodStateProvider. Thread-safe.

    `ask`: returns the body of `GET /pods` or raises KubeletUnavailable; None: the kubelet is not asked. `list_problem`:
    why the list was unavailable when it was last read, in a sentence with the remedy; None if it was available or is
    not requested.

    All callers share the last comparison: a doubt found by one keeps what another was about to remove.
    """

    directories: KubeletDirectories
    clock: Clock
    ask: Callable[[], bytes] | None = None
    list_problem: str | None = None

    def __post_init__(self) -> None:
        self._ask_from = float("-inf")
        self._late = ""  # the problem to report until the next request is allowed
        self._read_at = float("-inf")
        self._cost_seconds = 0.0
        self._images: Mapping[str, frozenset[str]] = {}  # from the last complete list
        self._listed = frozenset[str]()  # in the list that was read last
        self._looking = threading.Lock()  # guards the next two
        self._looked: Mapping[str, PodDirectory] | None = None
        self._looked_at = float("-inf")
        self._lock = threading.Lock()
        self._trusted: RootIdentity | None = None  # the directories trusted last, kept while there is a doubt
        self._doubt: Doubt | None = not_compared(self.directories.path)

    @property
    def doubt(self) -> Doubt | None:
        """Why no pod counts as gone, by the last comparison or check; None while the directories are trusted."""
        return self._doubt

    def pod_states(self) -> PodStates:
        """The pods that exist now, `marked`."""
        return self.marked(self.read())

    def marked(self, states: PodStates) -> PodStates:
        """These states with the doubt from the last comparison, or the doubt that they come from other directories."""
        with self._lock:
            return replace(states, doubt=states.doubt or self._doubt or self._other(states.identity))

    def read(self) -> PodStates:
        """The pods that exist now: the directories, then the list. If `kubelet` is None although it is asked,
        `list_problem` says why."""
        states = self.directories.pod_states()
        if self.ask is None:
            return states
        asked_at = self.clock.monotonic()
        pods = self._list(self.ask, states.present)
        self._read_at, self._cost_seconds = asked_at, self.clock.monotonic() - asked_at
        self._listed = frozenset(pods.states if pods is not None else ())
        return states if pods is None else replace(states, kubelet=pods.states, sources_ready=pods.from_api_server)

    def compared(self, states: PodStates, listing: Listing | None) -> PodStates:
        """Compares what was read. Without lists, the last comparison still applies to checks right before removals."""
        now_ns = int(self.clock.wall() * 1e9)
        with self._lock:
            found = doubt_about(states, listing, self._trusted, self.directories.path, now_ns)
            if listing is not None:
                self._doubt = found
                self._trusted = self._trusted if found else states.identity
        return replace(states, doubt=found)

    def gone(self, uid: str) -> bool:
        """Whether the pod is known not to exist, in the trusted directories. If they have changed, that becomes a
        doubt.

        No request is sent; the list that was read last is used. Only static pods reuse a UID, and every pod has its
        directory before it has anything that could be removed, so the directory is proof enough.
        """
        if self._doubt is not None:
            return False
        states = self.directories.pod_states()  # not under the lock, as it may take a while
        with self._lock:
            self._doubt = self._doubt or self._other(states.identity)
            return self._doubt is None and uid not in self._listed and states.gone(uid)

    def pod_directories(self, since: float | None = None) -> Mapping[str, PodDirectory] | None:
        """As they are now, or were at `since` (monotonic) or later; None if they cannot be read. One look serves all
        who ask while another is under way: sixteen removals are sent at a time."""
        asked_at = self.clock.monotonic() if since is None else since
        with self._looking:
            if self._looked_at <= asked_at:
                looked_at = self.clock.monotonic()
                self._looked, self._looked_at = self.directories.pod_directories(), looked_at
            return self._looked

    def named_images(self, since: float | None = None) -> Mapping[str, frozenset[str]]:
        """What specs name, by the last complete list, whether or not the directories are trusted. Everything is read
        again if the list was read before `since`; without `since`, if it was read more than 1 s ago and more than four
        times as long ago as reading took."""
        if since is None:
            since = self.clock.monotonic() - max(NAMED_SECONDS, 4 * self._cost_seconds)
        if self.ask is not None and self._read_at < since:
            self.read()
        return self._images

    def _list(self, ask: Callable[[], bytes], present: frozenset[str] | None) -> PodList | None:
        """The list; None if there is none, and `list_problem` says why."""
        if present is None:
            why = "the kubelet's directory of pods cannot be read, and its list alone does not say which pods are gone"
            self.list_problem = why
            return None
        self._images = {uid: named for uid, named in self._images.items() if uid in present}
        if self.clock.monotonic() < self._ask_from:
            self.list_problem = self._late
            return None
        try:
            pods = parse_pod_list(ask())
        except KubeletUnavailable as error:
            self.list_problem = str(error)
            if pause := PAUSE_SECONDS if error.late else error.again_seconds:
                self._late, self._ask_from = str(error), self.clock.monotonic() + pause
            return None
        except KubeletAnswerError as error:
            self.list_problem = f"the kubelet's list of pods is not used: {error}"
            return None
        self._images, self.list_problem = pods.images, None
        return pods

    def _other(self, identity: RootIdentity | None) -> Doubt | None:
        """The doubt about directories that are not the trusted ones."""
        if identity is None:
            return doubt(Why.UNREADABLE, f"{self.directories.path} cannot be opened any more")
        return None if identity == self._trusted else exchanged(self.directories.path)


# ---- the directories

Answer = TypeVar("Answer")


class KubeletDirectories:
    """Reads `<root_directory>/pods`. Creates nothing, and follows no symlink below it.

    `in_time`: how to read; None: on the caller's thread, however long it takes. A reading that takes too long counts as
    failed. `path`: of `pods`.
    """

    def __init__(self, root_directory: str, in_time: ReadingsInTime | None = None):
        self.path = os.path.join(root_directory, "pods")
        self._root = root_directory
        self._in_time = in_time

    def pod_states(self) -> PodStates:
        """The pods that have a directory; unknown if `pods` is missing or cannot be read."""
        try:
            return self._timed(self._pod_states)
        except (OSError, ReclaimError) as error:
            why = getattr(error, "strerror", None) or str(error)
        return PodStates(None, doubt=doubt(Why.UNREADABLE, f"{self.path} cannot be read ({why})"))

    def pod_directories(self) -> Mapping[str, PodDirectory] | None:
        """When each pod's directory itself last changed, and those of its containers. None if `pods` is missing or
        anything in it cannot be read."""
        with suppress(OSError, ReclaimError):
            return self._timed(self._pod_directories)
        return None

    def _timed(self, read: Callable[[], Answer]) -> Answer:
        return read() if self._in_time is None else self._in_time(read)

    def _pod_states(self) -> PodStates:
        with self._opened() as (descriptor, identity):
            return PodStates(frozenset(os.listdir(descriptor)), identity=identity)

    def _pod_directories(self) -> Mapping[str, PodDirectory]:
        found: dict[str, PodDirectory] = {}
        with self._opened() as (pods, _), os.scandir(pods) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # removed in the meantime
                    changed = entry.stat(follow_symlinks=False).st_mtime
                    is_pod = entry.is_dir(follow_symlinks=False)
                    found[entry.name] = PodDirectory(
                        changed, _container_directories(pods, entry.name) if is_pod else {}
                    )
        return found

    @contextmanager
    def _opened(self) -> Iterator[tuple[int, RootIdentity]]:
        """A descriptor of `pods`, and the identity of the directories it was reached through. Raises OSError."""
        with (
            _directory(self._root, os.O_PATH) as root,  # needs no more than the right to pass through
            _directory("pods", above=root) as pods,
        ):
            yield pods, RootIdentity(_identity(root), _identity(pods))


def _container_directories(pods: int, uid: str) -> Mapping[str, float]:
    """When each directory in `<uid>/containers` last changed; empty if that is not made yet. Raises OSError."""
    found: dict[str, float] = {}
    with (
        _directory(uid, os.O_PATH | os.O_NOFOLLOW, pods) as pod,
        suppress(FileNotFoundError),
        _directory("containers", os.O_NOFOLLOW, pod) as containers,
        os.scandir(containers) as entries,
    ):
        for entry in entries:
            with suppress(FileNotFoundError):  # removed in the meantime
                if entry.is_dir(follow_symlinks=False):
                    found[entry.name] = entry.stat(follow_symlinks=False).st_mtime
    return found


@contextmanager
def _directory(path: str, flags: int = 0, above: int | None = None) -> Iterator[int]:
    """A descriptor of a directory, relative to `above` if given. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | flags, dir_fd=above)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _identity(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino
