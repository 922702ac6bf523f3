"""The kubelet's root directory, which can vanish and come back while the kubelet goes on.

The kubelet keeps its own directory of pods open, as one does that runs in another mount namespace or with another
`--root-dir`. What reclaimd sees at the path may be something else for a time: nothing, an empty directory, that of
somebody else, or an empty mount.
"""

from __future__ import annotations

import os
import shutil
from enum import Enum
from pathlib import Path

from eviction.drill.node.pod_maker import begin_container
from tests.sockets.mounts import mounted_tmpfs, unmount

FOREIGN = "uid-of-another-node"
MOUNT_BYTES = 1 << 20
MOUNT_INODES = 64


class Disguise(Enum):
    """What is at the path in place of the kubelet's own directory: at which path, mounted or not, and what is in it."""

    PODS_EMPTY = ("pods", "directory", ())
    PODS_MISSING = ("pods", "nothing", ())
    PODS_FOREIGN = ("pods", "directory", (FOREIGN,))
    PODS_MOUNT = ("pods", "mount", ())
    ROOT_MISSING = ("", "nothing", ())
    ROOT_EMPTY = ("", "directory", ())
    ROOT_WITHOUT_PODS = ("", "directory", ("pods",))
    ROOT_FOREIGN = ("", "directory", ("pods", f"pods/{FOREIGN}"))
    ROOT_MOUNT = ("", "mount", ())
    ROOT_MOUNT_WITHOUT_PODS = ("", "mount", ("pods",))

    @property
    def of_root(self) -> bool:
        """Whether the whole root is another one, and so perhaps its filesystem."""
        return not self.value[0]


DISGUISES = tuple(Disguise)


class RootDirectory:
    """`<path>/pods`. `changes`: how often it has vanished or come back."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.changes = 0
        self.disguise: Disguise | None = None
        (path / "pods").mkdir(parents=True)
        self._pods = os.open(path / "pods", os.O_RDONLY | os.O_DIRECTORY)

    @property
    def is_another(self) -> bool:
        """Whether something else is at the path of the root itself, and so perhaps another filesystem."""
        return self.disguise is not None and self.disguise.of_root

    def add(self, uid: str) -> None:
        """The kubelet makes the directory of a pod."""
        os.mkdir(uid, dir_fd=self._pods)

    def begin_container(self, uid: str, name: str, wall: float) -> None:
        """The kubelet makes the directory of a container and a file in it for this attempt."""
        made = begin_container(f"/proc/self/fd/{self._pods}/{uid}", name)
        os.utime(made, (wall, wall))

    def remove(self, uid: str) -> None:
        """The kubelet removes the directory of a pod."""
        shutil.rmtree(uid, dir_fd=self._pods)

    def pods(self) -> set[str]:
        """The directories of pods that are really there."""
        return set(os.listdir(self._pods))

    def vanish(self, disguise: Disguise) -> None:
        """From now on something else is at the path."""
        where, kind, content = disguise.value
        target = self.path / where
        if kind == "mount":
            mounted_tmpfs(str(target), MOUNT_BYTES, MOUNT_INODES)
        else:
            target.rename(self._aside(target))
        if kind == "directory":
            target.mkdir()
        for name in content:
            (target / name).mkdir()
        self.disguise = disguise
        self.changes += 1

    def come_back(self) -> None:
        """The kubelet's own directory is at the path again."""
        if self.disguise is None:
            return
        where, kind, _ = self.disguise.value
        target = self.path / where
        if kind == "mount":
            unmount(str(target))
        else:
            if kind == "directory":
                shutil.rmtree(target)
            self._aside(target).rename(target)
        self.disguise = None
        self.changes += 1

    def touched(self) -> list[str]:
        """What is missing of the disguise: nothing in it is reclaimd's."""
        if self.disguise is None:
            return []
        where, _, content = self.disguise.value
        return [f"{name} in {self.disguise} is gone" for name in content if not (self.path / where / name).is_dir()]

    def close(self) -> None:
        """Everything is as it was, and nothing is mounted."""
        self.come_back()
        os.close(self._pods)

    @staticmethod
    def _aside(target: Path) -> Path:
        return target.with_name(f"{target.name}.aside")
