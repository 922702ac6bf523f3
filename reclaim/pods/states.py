"""Which pods exist on the node, as far as it can be known.

The kubelet makes `<root-dir>/pods/<UID>` before it makes a log directory or a sandbox, and takes it away only when
the pod is gone for good and nothing of it runs (`pkg/kubelet/kubelet_volumes.go`, cleanupOrphanedPodDirs). So while
the directory exists nothing of that pod is an orphan; that it is missing says that the pod is gone.

Covers: the kubelet's directories. Without them no pod counts as gone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

_UID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}", re.ASCII)


def is_pod_uid(uid: str) -> bool:
    """Whether a text can be the UID of a kubelet's pod, and so the name of its directory. It comes from the runtime."""
    return _UID.fullmatch(uid) is not None


@dataclass(frozen=True, slots=True)
class PodState:
    """A pod that the kubelet knows (`pkg/kubelet/pod_workers.go`).

    `terminated`: all its containers are stopped for good; a pod that ran to completion is terminated without being
    deleted. `deleted`: its deletion was requested. `evicted`: the kubelet evicted it. All three are final.
    """

    terminated: bool = False
    deleted: bool = False
    evicted: bool = False


@dataclass(frozen=True, slots=True)
class PodStates:
    """What is known about the pods of the node, from two sources.

    `present`: the UIDs that have a directory of the kubelet's; None when it cannot be known.
    `kubelet`: the kubelet's own pods by UID; None when it was not asked or gave no complete answer.
    `synced`: whether the kubelet has synced its pods once; until then what it does not know may still come.
    `sources_ready`: whether every source of pods has delivered at least once.

    With `kubelet` the questions are answered as the kubelet answers them; without it only a pod that certainly does
    not exist any more may lose anything.
    """

    present: frozenset[str] | None = None
    kubelet: Mapping[str, PodState] | None = None
    synced: bool = True
    sources_ready: bool = True

    @property
    def known(self) -> bool:
        """Whether the kubelet's own state is known."""
        return self.kubelet is not None

    def gone(self, uid: str) -> bool:
        """Whether the pod does not exist. Without the kubelet's state what cannot be a UID is no pod's and never
        counts as gone; with it, an unknown UID is that of a removed pod, the empty one included."""
        if self.kubelet is None:
            return is_pod_uid(uid) and self.present is not None and uid not in self.present
        return self.synced and uid not in self.kubelet and uid not in (self.present or ())

    def content_should_be_removed(self, uid: str) -> bool:
        """Whether everything of the pod may go, its logs included: evicted, deleted and terminated, or gone."""
        state = (self.kubelet or {}).get(uid)
        return self.gone(uid) if state is None else state.evicted or (state.deleted and state.terminated)

    def runtime_should_be_removed(self, uid: str) -> bool:
        """Whether its containers and sandboxes may go under pressure: terminated, or gone."""
        state = (self.kubelet or {}).get(uid)
        return self.gone(uid) if state is None else state.terminated

    def united(self, other: PodStates) -> PodStates:
        """The careful sum of two looks, `other` the later one: a pod exists if either saw it, unknown if either could
        not see; what both know is as the later one says."""
        present = None if self.present is None or other.present is None else self.present | other.present
        kubelet = None if self.kubelet is None or other.kubelet is None else {**self.kubelet, **other.kubelet}
        return PodStates(present, kubelet, self.synced and other.synced, self.sources_ready and other.sources_ready)


class PodStateProvider(Protocol):
    """Where the knowledge about pods comes from."""

    def look(self) -> PodStates:
        """Which pods exist now. Never raises: what cannot be known is None."""

    def gone(self, uid: str) -> bool:
        """Asked right before a removal: is this one pod known not to exist?"""

    def began(self) -> Mapping[str, float]:
        """When each pod began, wall seconds by UID; nothing where it cannot be known."""


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

    def began(self) -> Mapping[str, float]:
        """The last change of each pod's directory itself: the kubelet fills it when it makes the pod."""
        changed: dict[str, float] = {}
        with suppress(OSError), os.scandir(self._pods) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # the pod has gone meanwhile
                    changed[entry.name] = entry.stat(follow_symlinks=False).st_mtime
        return changed

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
