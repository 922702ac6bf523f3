"""Which directories inotify watches for the daemon."""

import os

from eviction.configuration.effective import poll_policy
from eviction.decision.headroom import near_their_marks
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


class Watches:
    """Watches directories of filesystems that are near their marks. For others an earlier reading
    would not matter."""

    def __init__(self, watcher: FsWatcher, node: Node):
        self._watcher = watcher
        self._node = node
        self._near: frozenset[int] = frozenset()
        self._watched: frozenset[str] = frozenset()

    def observed(self, observations: SignalObservations, _: Decision) -> None:
        world = self._node.world
        self._near = near_their_marks(
            world.manager.config.marks_to_watch(observations.layout),
            observations,
            world.fill_rates,
            policy=poll_policy(self._node.configuration),
            before=self._near,
        )
        wanted = frozenset(
            os.path.normpath(os.path.join(identity.path, sign))
            for identity, _ in observations.filesystems.values()
            if identity.device_id in self._near
            for sign in EARLY_SIGNS
        )
        if wanted != self._watched:
            self._watched = wanted
            self._watcher.watch(wanted)
