"""What the store of images says beside CRI: containerd over its own services,
CRI-O by its files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from reclaim.cri.client import CriClient
from reclaim.cri.containers_storage import stored_at, stored_layers
from reclaim.functions.containerd_garbage import HeldLayers, brought_at, clocks_at_start
from reclaim.types import Layers
from signals.summary import NodeSummary


class ImageStore:
    """The store of whichever runtime answers at the time, where `summary` has it."""

    def __init__(self, client: CriClient, summary: NodeSummary):
        self._client = client
        self._summary = summary
        self._held = HeldLayers(client)

    def layers(self, left: Callable[[], float]) -> Layers | None:
        """What each image holds on the disk; None if that is not known.

        `left`: how many seconds there are to ask.
        """
        return self._held.read(left) or stored_layers(self._imagefs)

    def pulled_at(self) -> Mapping[str, float]:
        """When each image was last pulled: wall seconds by image id. Empty if that is not known."""
        return brought_at(self._client) or stored_at(self._imagefs)

    def clocks_at_start(self) -> tuple[float, float] | None:
        """How many seconds ago the runtime started, and the wall time then;
        None if that is not known.
        """
        return clocks_at_start(self._client.runtime_path)

    @property
    def _imagefs(self) -> str:
        return self._summary.paths.imagefs or ""
