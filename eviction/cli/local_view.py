"""What a command sees of the node without a daemon, as far as it only looks: `LocalView`.

What removes is not imported.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

from eviction.cli.local_files import LocalFiles
from eviction.cli.output import columns
from eviction.cli.progress import Progress
from eviction.configuration.effective import eviction_config
from eviction.engine.view import NodeView
from eviction.surface.answer import Answer
from eviction.surface.check import CheckOptions, check
from eviction.types import Threshold
from signals.types import SignalObservations

Thresholds = tuple[Threshold, ...]

READ_DEADLINE_SECONDS = 2.0  # for an answer of the runtime to who only looks


class LocalView(LocalFiles):
    """The node, read-only."""

    @contextmanager
    def _view(self, deadline_seconds: float = READ_DEADLINE_SECONDS) -> Iterator[NodeView]:
        """The node, as far as the runtime says where its images are. Shows progress meanwhile."""
        doing = "asking the runtime where the images are, and reading the filesystems"
        view = NodeView(self.configuration, read_deadline_seconds=deadline_seconds)
        with closing(view), Progress(doing):
            view.locate()
            yield view

    def check(self) -> Answer:
        """The answer of `check`."""
        options = CheckOptions(self.arguments.output, columns(), npd=self.arguments.npd)
        with self._view() as view:
            return check(view, options)

    def thresholds(self) -> tuple[Thresholds, Thresholds, SignalObservations]:
        """The thresholds in force, those of the kubelet, and what was observed."""
        with self._view() as view:
            observations = view.summary.observe()
        config = eviction_config(self.configuration)
        layout = observations.layout
        return config.in_layout(layout), config.kubelets_in_layout(layout), observations
