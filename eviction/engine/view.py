"""A read-only view of one node: its runtime endpoint, the CRI client and the
summary of its filesystems.

`node.Node` adds everything that removes. Commands that only read (`reclaimd check`, `reclaimd
config`) use the view alone, so they start without importing the rest.
"""

from collections.abc import Sequence

from eviction.configuration.effective import (
    USUAL_ENDPOINTS,
    Configuration,
    choose_endpoint,
    eviction_config,
)
from eviction.types import Thresholds
from reclaim.cri.client import READ_DEADLINE_SECONDS, CriClient
from reclaim.types import RuntimeUnavailable
from reclaim.workers import MOST_LOOKS, Workers
from signals.clock import Clock, SystemClock
from signals.filesystems import FilesystemPaths, FilesystemReader, KubeletsReader, paths_of_node
from signals.samplers import Samplers
from signals.summary import NodeSummary
from signals.types import FsLayout


class NodeView:
    """One node, read-only.

    The constructor does no I/O; `locate` asks the runtime where its images are.
    """

    def __init__(
        self,
        configuration: Configuration,
        *,
        reader: FilesystemReader | None = None,
        clock: Clock | None = None,
        read_deadline_seconds: float = READ_DEADLINE_SECONDS,
        usual_endpoints: Sequence[str] = USUAL_ENDPOINTS,
    ):
        self.first_configuration = configuration
        """The one that it was made with."""
        self.clock = clock or SystemClock()
        self._usual_endpoints = usual_endpoints
        self.endpoint = choose_endpoint(configuration, self._usual_endpoints)
        # never called without one
        runtime = self.endpoint.runtime if configuration.has_runtime else self._usual_endpoints[0]
        self.client = CriClient(runtime, self.endpoint.image, read_deadline_seconds)
        self._reader = reader or KubeletsReader(configuration.filesystems.values())
        self.sampler_threads = Workers("statvfs", MOST_LOOKS)
        self.samplers = Samplers(self.clock, self._reader, self.sampler_threads.run)
        self.summary = NodeSummary(
            FilesystemPaths(
                configuration.root_directory if configuration.has_runtime else None,
                own=configuration.filesystems,
            ),
            self.samplers,
            self.clock,
        )

    @property
    def configuration(self) -> Configuration:
        """The one in force."""
        return self.first_configuration

    def thresholds(self, layout: FsLayout | None) -> Thresholds:
        """The thresholds in force in a layout."""
        return eviction_config(self.configuration).in_layout(layout)

    def locate(self) -> str:
        """Asks the runtime where images and writable layers are. Returns why these are unknown, in
        a sentence, or an empty string.

        After a failure the paths of an earlier answer stay in use, because the filesystem is
        there without the runtime. If no endpoint is configured and no runtime has ever
        answered, the socket is chosen anew, as it may have appeared since. If there is no
        runtime, nobody is asked.
        """
        configuration = self.configuration
        if not configuration.has_runtime:
            return ""
        if self.endpoint.remark and self.summary.paths.imagefs is None:
            self.endpoint = choose_endpoint(configuration, self._usual_endpoints)
            self.client.use(self.endpoint.runtime, self.endpoint.image)
        try:
            info = self.client.image_fs_info()
        except RuntimeUnavailable as error:
            problem = str(error)
            if self.endpoint.remark and not self.endpoint.found:
                problem += f" ({self.endpoint.remark})"
        else:
            paths = paths_of_node(
                configuration.root_directory,
                info.image_filesystems,
                info.container_filesystems,
                own=configuration.filesystems,
            )
            if paths.imagefs is not None:
                self.summary.locate(paths)
                return ""
            problem = "the container runtime reports no image filesystem"
        self.summary.imagefs_problem = problem
        return problem

    def close(self) -> None:
        """Ends samplers and connections. Wait for removals in flight first."""
        self.samplers.close()
        self.sampler_threads.close()
        self.client.close()
