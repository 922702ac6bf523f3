"""Which pods exist on the node, by the kubelet's pod directories.

The kubelet makes `<root-dir>/pods/<UID>` before it makes a log directory or a sandbox, and removes it only when the pod
is gone for good and no container of it runs (`pkg/kubelet/kubelet_volumes.go`, cleanupOrphanedPodDirs). So while the
directory exists nothing of that pod is an orphan, and once it is missing the pod is gone. Without the directories no
pod counts as gone.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress

from reclaim.pods.states import PodStates, is_pod_uid


class KubeletDirectories:
    """A PodStateProvider that reads `<root_directory>/pods`. Creates nothing, follows no symlink."""

    def __init__(self, root_directory: str):
        self._pods = os.path.join(root_directory, "pods")

    def pod_states(self) -> PodStates:
        """The pods that have a directory; unknown when `pods` is missing or cannot be read."""
        try:
            return PodStates(frozenset(os.listdir(self._pods)))
        except OSError:
            return PodStates(None)

    def start_times(self) -> Mapping[str, float]:
        """The last change of each pod's directory itself: the kubelet fills it when it makes the pod."""
        changed: dict[str, float] = {}
        with suppress(OSError), os.scandir(self._pods) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # removed meanwhile
                    changed[entry.name] = entry.stat(follow_symlinks=False).st_mtime
        return changed

    def gone(self, uid: str) -> bool:
        """Whether `pods` is readable and contains no such entry. An invalid UID never counts as gone."""
        if not is_pod_uid(uid):
            return False
        try:
            descriptor = os.open(self._pods, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            os.lstat(uid, dir_fd=descriptor)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        else:
            return False
        finally:
            os.close(descriptor)
