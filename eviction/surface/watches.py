"""Which directories inotify watches for the daemon."""

import os
from dataclasses import dataclass

from eviction.engine.node import Node
from eviction.types import Decision
from signals.types import SignalObservations
from signals.watcher import FsWatcher

# directories in which new entries precede growth of a filesystem; missing ones are ignored
EARLY_SIGNS = (
    "",
    "pods",  # the kubelet's, an entry for each pod
    "snapshots",  # containerd's, an entry for each layer or container
    "../overlay",  # CRI-O's, the same
    "../io.containerd.content.v1.content/ingest",  # an entry for each blob being pulled
)


@dataclass(eq=False)
class Watches:
    """Watches directories of filesystems that are near their marks. For others an earlier reading
    would not matter."""

    watcher: FsWatcher
    node: Node
    _near: frozenset[int] = frozenset()
    _watched: frozenset[str] = frozenset()

    def observed(self, observations: SignalObservations, _: Decision) -> None:
        world = self.node.world
        marks = world.config.marks_to_watch(observations.layout)
        self._near = world.outlook.near_their_marks(marks, self._near)
        wanted = frozenset(
            os.path.normpath(os.path.join(identity.path, sign))
            for identity, _ in observations.filesystems.values()
            if identity.device_id in self._near
            for sign in EARLY_SIGNS
        )
        if wanted != self._watched:
            self._watched = wanted
            self.watcher.watch(wanted)
