"""Which pods exist on the node, as far as it can be known.

The kubelet makes `<root-dir>/pods/<UID>` before it makes a log directory or a sandbox, and takes it away only when
the pod is gone for good and nothing of it runs (`pkg/kubelet/kubelet_volumes.go`, cleanupOrphanedPodDirs). So while
the directory exists nothing of that pod is an orphan; that it is missing says that the pod is gone.

Covers: the kubelet's directories. Without them no pod counts as gone.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Protocol

_UID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}", re.ASCII)


def is_pod_uid(uid: str) -> bool:
    """Whether a text can be the UID of a kubelet's pod, and so the name of its directory. It comes from the runtime."""
    return _UID.fullmatch(uid) is not None


@dataclass(frozen=True, slots=True)
class PodStates:
    """`present`: the UIDs of pods that exist; None when it cannot be known, and then no pod counts as gone."""

    present: frozenset[str] | None = None

    def gone(self, uid: str) -> bool:
        """Whether the pod is known not to exist. What cannot be a UID is no pod's and never counts as gone."""
        return is_pod_uid(uid) and self.present is not None and uid not in self.present

    def united(self, other: PodStates) -> PodStates:
        """The careful sum of two looks: a pod exists if either saw it; unknown if either could not see."""
        if self.present is None or other.present is None:
            return PodStates(None)
        return PodStates(self.present | other.present)


class PodStateProvider(Protocol):
    """Where the knowledge about pods comes from."""

    def look(self) -> PodStates:
        """Which pods exist now. Never raises: what cannot be known is None."""

    def gone(self, uid: str) -> bool:
        """Asked right before a removal: is this one pod known not to exist?"""


class KubeletDirectories:
    """Reads `<root_directory>/pods`. Creates nothing, follows nothing."""

    def __init__(self, root_directory: str):
        self._pods = os.path.join(root_directory, "pods")

    def look(self) -> PodStates:
        """The names in the kubelet's pod directory; unknown when it is missing or cannot be read."""
        try:
            return PodStates(frozenset(os.listdir(self._pods)))
        except OSError:
            return PodStates(None)

    def gone(self, uid: str) -> bool:
        """Whether the pod directory is readable and holds no such entry.

        What cannot be a UID is no pod of a kubelet and never counts as gone.
        """
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
