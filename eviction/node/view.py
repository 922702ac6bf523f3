"""What looks at a node and changes nothing on it: the endpoint, the client, the summary of its filesystems.

A node that removes (`node`) is this and more. What only looks, `reclaimd check` say, is made of this alone: it starts
without the machinery that removes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from eviction.configuration.effective import USUAL_ENDPOINTS, Configuration
from eviction.decision.synchronize import EvictionConfig
from eviction.types import Threshold
from reclaim.cri.calls import READ_DEADLINE_SECONDS
from reclaim.cri.client import CriClient
from reclaim.types import RuntimeUnavailable
from signals.clock import Clock, SystemClock
from signals.filesystems import FilesystemPaths, paths_of_node
from signals.probe import Probes
from signals.statvfs import FilesystemReader, read_statvfs
from signals.summary import NodeSummary
from signals.types import FsLayout

GAP_INTERVALS = 3.0  # of the longest pause between two looks
SHORTEST_GAP_SECONDS = 30.0  # three filesystems that hang make one look take 6 s


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Which socket is spoken to; `found` says aloud that it was not configured but found."""

    runtime: str
    image: str
    found: bool


def choose_endpoint(configuration: Configuration) -> Endpoint:
    """The configured endpoint, else the first usual socket that exists, else containerd's."""
    if configuration.runtime_endpoint:
        return Endpoint(configuration.runtime_endpoint, configuration.image_endpoint, found=False)
    existing = (endpoint for endpoint in USUAL_ENDPOINTS if os.path.exists(endpoint.removeprefix("unix://")))
    return Endpoint(next(existing, USUAL_ENDPOINTS[0]), configuration.image_endpoint, found=True)


def eviction_config(configuration: Configuration) -> EvictionConfig:
    """What the decision goes by, as configured."""
    longest_gap_seconds = max(GAP_INTERVALS * configuration.poll_ceiling_seconds, SHORTEST_GAP_SECONDS)
    return EvictionConfig(configuration.thresholds, configuration.transition_period_seconds, longest_gap_seconds)


class NodeSight:
    """One node to look at. Making it touches nothing; `locate` asks the runtime where its images are."""

    def __init__(
        self,
        configuration: Configuration,
        *,
        reader: FilesystemReader = read_statvfs,
        clock: Clock | None = None,
        read_deadline_seconds: float = READ_DEADLINE_SECONDS,
        summarize: Callable[[FilesystemPaths, Probes, Clock], NodeSummary] = NodeSummary,
    ):
        self.configuration = configuration
        self.clock = clock or SystemClock()
        self.endpoint = choose_endpoint(configuration)
        self.client = CriClient(self.endpoint.runtime, self.endpoint.image, read_deadline_seconds)
        self._reader = reader
        self.probes = Probes(self.clock, reader)
        self.summary = summarize(FilesystemPaths(configuration.root_directory), self.probes, self.clock)

    def thresholds(self, layout: FsLayout | None) -> tuple[Threshold, ...]:
        """The thresholds in force in a layout."""
        return eviction_config(self.configuration).in_layout(layout)

    def locate(self) -> str | None:
        """Asks the runtime where images and writable layers are. None, or the sentence why it could not be told.

        What was known before stays known: a runtime that is away does not take its filesystem along.
        """
        try:
            info = self.client.image_fs_info()
        except RuntimeUnavailable as error:
            self.summary.imagefs_problem = str(error)
            return str(error)
        paths = paths_of_node(
            self.configuration.root_directory, list(info.image_filesystems), list(info.container_filesystems)
        )
        if paths.imagefs is None:
            self.summary.imagefs_problem = "the container runtime reports no image filesystem"
            return self.summary.imagefs_problem
        self.summary.locate(paths)
        return None

    def close(self) -> None:
        """Ends probes and connections. Removals in flight must have been drained."""
        self.probes.close()
        self.client.close()
