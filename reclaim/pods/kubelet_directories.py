"""Which pods exist on the node, according to the kubelet's pod directories.

The kubelet makes `<root-dir>/pods/<UID>` before it makes a log directory or a sandbox, and removes it only when the pod
is gone for good and none of its containers runs (`pkg/kubelet/kubelet_volumes.go`, cleanupOrphanedPodDirs). So while
the directory exists, nothing of that pod is an orphan, and once it is missing the pod is gone, provided that the
directories are the kubelet's (`states`). Without the directories, or while their filesystem does not answer, no pod
counts as gone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TypeVar

from reclaim.execution.workers import ReadingsInTime
from reclaim.pods.states import PodStates, RootIdentity, Why, doubt, is_pod_uid
from reclaim.types import ReclaimError

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
        except OSError as error:
            why = error.strerror or str(error)
        except ReclaimError as error:
            why = str(error)
        return PodStates(None, doubt=doubt(Why.UNREADABLE, f"{self.path} cannot be read ({why})"))

    def start_times(self) -> Mapping[str, float] | None:
        """When each pod's directory itself last changed: the kubelet fills it when it makes the pod. None if `pods` is
        missing or cannot be read."""
        return self._read(self._start_times, None)

    def torn_down(self, uids: Collection[str], on: RootIdentity) -> frozenset[str]:
        """Those of these pods whose volumes the kubelet has torn down: `volumes` contains a directory for each plugin
        of a volume that the pod had, and all of them are empty. A pod that never had a volume has none there and does
        not count; none does if the directories are not `on`."""
        return self._read(lambda: self._torn_down(uids, on), frozenset())

    def _read(self, read: Callable[[], Answer], unknown: Answer) -> Answer:
        with suppress(OSError, ReclaimError):
            return self._timed(read)
        return unknown

    def _timed(self, read: Callable[[], Answer]) -> Answer:
        return read() if self._in_time is None else self._in_time(read)

    def _pod_states(self) -> PodStates:
        with self._opened() as (descriptor, identity):
            return PodStates(frozenset(os.listdir(descriptor)), identity=identity)

    def _start_times(self) -> Mapping[str, float]:
        changed: dict[str, float] = {}
        with os.scandir(self.path) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # removed in the meantime
                    changed[entry.name] = entry.stat(follow_symlinks=False).st_mtime
        return changed

    def _torn_down(self, uids: Collection[str], on: RootIdentity) -> frozenset[str]:
        with self._opened() as (descriptor, identity):
            known = uids if identity == on else ()
            return frozenset(uid for uid in known if is_pod_uid(uid) and _has_torn_down(descriptor, uid))

    @contextmanager
    def _opened(self) -> Iterator[tuple[int, RootIdentity]]:
        """A descriptor of `pods`, and the identity of the directories it was reached through. Raises OSError."""
        with (
            _directory(self._root, os.O_PATH) as root,  # needs no more than the right to pass through
            _directory("pods", above=root) as pods,
        ):
            yield pods, RootIdentity(_identity(root), _identity(pods))


def _has_torn_down(pods: int, uid: str) -> bool:
    """Whether a pod's directory has volume plugins but no volume. Whatever cannot be read counts as a volume."""
    try:
        with _directory(uid, os.O_NOFOLLOW, pods) as pod, _directory("volumes", os.O_NOFOLLOW, pod) as volumes:
            plugins = os.listdir(volumes)
            return bool(plugins) and not any(_listed(plugin, volumes) for plugin in plugins)
    except OSError:
        return False


def _listed(name: str, above: int) -> list[str]:
    with _directory(name, os.O_NOFOLLOW, above) as descriptor:
        return os.listdir(descriptor)


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
