"""Reads the directories that a kubelet makes for its pods:
`<root-dir>/pods/<UID>/containers/<name>`.

It makes that of a pod before anything else of the pod, and that of a container, with a file for
each attempt, right before the container (`states.PodDirectory`). So they show what is being made
before the runtime does. Nothing is made here, and no symlink below the root is followed.
"""

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

from reclaim.evidence.states import (
    PodDirectories,
    PodDirectory,
    PodStates,
    RootIdentity,
    Why,
    distrust,
)
from reclaim.trust import directory_at, identity_of
from reclaim.types import ReclaimError
from reclaim.workers import Answer, ReadingsInTime
from signals.quantity import reason_of


class KubeletDirectories:
    """Reads `<root_directory>/pods`.

    `in_time`: how to read; None: on the caller's thread, however long it takes. A reading that
    takes too long counts as failed. `path`: of `pods`.
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
            why = reason_of(error)
        return PodStates(doubt=distrust(Why.UNREADABLE, f"{self.path} cannot be read ({why})"))

    def pod_directories(self) -> PodDirectories | None:
        """When each pod's directory itself last changed, and those of its containers. None if
        `pods` is missing or anything in it cannot be read."""
        with suppress(OSError, ReclaimError):
            return self._timed(self._pod_directories)
        return None

    def _timed(self, read: Callable[[], Answer]) -> Answer:
        return read() if self._in_time is None else self._in_time(read)

    def _pod_states(self) -> PodStates:
        with self._opened() as (pods, identity):
            return PodStates(frozenset(os.listdir(pods)), identity=identity)

    def _pod_directories(self) -> PodDirectories:
        directories = {}
        with self._opened() as (pods, _):
            for uid, status in _entries(pods).items():
                with suppress(FileNotFoundError):  # removed in the meantime
                    containers = _containers(pods, uid) if stat.S_ISDIR(status.st_mode) else {}
                    directories[uid] = PodDirectory(status.st_mtime, containers)
        return directories

    @contextmanager
    def _opened(self) -> Iterator[tuple[int, RootIdentity]]:
        """A descriptor of `pods`, and the identity of the directories it was reached through.

        Raises OSError.
        """
        with (
            # needs no more than the right to pass through
            directory_at(self._root, os.O_PATH) as root,
            directory_at("pods", above=root) as pods,
        ):
            yield pods, RootIdentity(identity_of(os.fstat(root)), identity_of(os.fstat(pods)))


def _containers(pods: int, uid: str) -> Mapping[str, float]:
    """When each directory in `<uid>/containers` last changed; empty if that is not made yet.

    Raises OSError.
    """
    with (
        directory_at(uid, os.O_PATH | os.O_NOFOLLOW, pods) as pod,
        suppress(FileNotFoundError),
        directory_at("containers", os.O_NOFOLLOW, pod) as containers,
    ):
        return {
            name: status.st_mtime
            for name, status in _entries(containers).items()
            if stat.S_ISDIR(status.st_mode)
        }
    return {}


def _entries(directory: int) -> dict[str, os.stat_result]:
    """What is in an opened directory, without what is removed in the meantime. Raises OSError."""
    statuses = {}
    with os.scandir(directory) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):
                statuses[entry.name] = entry.stat(follow_symlinks=False)
    return statuses
