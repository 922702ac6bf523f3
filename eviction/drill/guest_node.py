"""The embedded node as another project's tests see it: its paths, its objects, and its marks.

The tool under test gets the endpoint and the paths; the test looks at this object before and after.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

from eviction.decision.thresholds import thresholds_met, usable
from eviction.drill.node.embedded_node import EmbeddedNode
from eviction.drill.pressure.schedule import PressureSchedule, came_true
from eviction.drill.run.embedded import EmbeddedGrowers, configuration_of, objects_of, starts
from eviction.drill.runtime.private_mounts import EmbeddedNodeError, PrivateMounts
from eviction.drill.runtime.server import Failpoints
from eviction.drill.scenario import Pressure, Scenario, part_of
from eviction.engine.node import Node
from reclaim.types import Kind
from signals.types import FilesystemRole

LONGEST_SECONDS = 60.0


class GuestNode:
    """The node of a scenario, with real filesystems and a CRI runtime behind a unix socket.

    `endpoint`: the runtime's socket (`unix:///…`). `root_directory`, `pod_logs_directory`: the
    kubelet's directories. `path`: the root of nodefs; `disk` has the root of any role's filesystem.
    """

    def __init__(self, scenario: Scenario, embedded: EmbeddedNode, node: Node):
        self._scenario = scenario
        self._embedded = embedded
        self._node = node
        self._grow = EmbeddedGrowers(embedded)
        self._filled = 0
        self.endpoint = embedded.endpoint
        self.root_directory = embedded.root_directory
        self.pod_logs_directory = embedded.pod_logs_directory
        self.path = self.disk("nodefs")
        self._starts_before = starts(embedded)

    def disk(self, role: str) -> str:
        """The root of the filesystem of `nodefs`, `imagefs` or `containerfs`.

        Raises ValueError for anything else.
        """
        return self._embedded.disk(FilesystemRole(role))

    @property
    def failpoints(self) -> Failpoints:
        """The faults of the runtime by method: `failpoints["RemoveImage"] = Hang()`.

        The classes are in `eviction.drill.runtime.faults`.
        """
        return self._embedded.server.failpoints

    def close(self) -> None:
        """Ends every process that still writes or holds a file open. The fixture calls it."""
        self._grow.free()

    # ---- its objects

    @property
    def images(self) -> frozenset[str]:
        """The references of all images."""
        return self._names(Kind.IMAGE)

    @property
    def containers(self) -> frozenset[str]:
        """All containers in every state, as `namespace/pod/container#attempt`."""
        return self._names(Kind.CONTAINER)

    @property
    def sandboxes(self) -> frozenset[str]:
        """All pod sandboxes, as `namespace/pod#attempt`."""
        return self._names(Kind.SANDBOX)

    @property
    def would_restart(self) -> frozenset[str]:
        """The containers (`pod/container`) that a kubelet would now start again.

        It would not have started them at first: their last record was removed.
        """
        return starts(self._embedded) - self._starts_before

    def _names(self, kind: Kind) -> frozenset[str]:
        objects = objects_of(self._embedded)
        return frozenset(name for (of, _), name in objects.items() if of == kind)

    # ---- its marks

    @property
    def below_marks(self) -> tuple[str, ...]:
        return self._met(with_min_reclaim=False)

    def wait_relieved(self, seconds: float) -> bool:
        """Waits up to `seconds` until every signal is above its mark plus the minimum reclaim.

        False if that fails.
        """
        return came_true(lambda: not self._met(with_min_reclaim=True), seconds)

    def available(self, signal: str) -> int:
        """The bytes or inodes available of a signal (`nodefs.available`).

        Raises KeyError for an unknown signal.
        """
        signals = self._node.summary.observe().signals
        return {str(name): observation.available for name, observation in signals.items()}[signal]

    # ---- pressure

    def fill(
        self, amount: str, rate: str = "1Gi", grows: str = "bytes", *, where: str = "nodefs"
    ) -> int:
        """Writes `amount` bytes (`24Mi`), or files with `grows="inodes"`, at `rate` per second.

        They are kept. Waits until all is written, up to 60 s. Returns how much was written. Raises
        ValueError or ScenarioError for arguments that are not allowed.
        """
        pressure = part_of(
            Pressure, {"grows": grows, "rate": rate, "amount": amount, "where": where}, "fill"
        )
        if pressure.grows not in ("bytes", "inodes"):
            raise ValueError(f"grows must be bytes or inodes, but it was {grows!r}")
        self._filled += 1
        grower = self._grow(pressure, len(self._scenario.pressures) + self._filled)
        came_true(lambda: not grower.goes_on(), LONGEST_SECONDS)
        return grower.stop()

    def press(self) -> None:
        """Applies the pressures of the scenario and waits until they have ended, up to 60 s."""
        pressures = PressureSchedule(self._scenario.pressures, self._grow)
        pressures.start(time.monotonic())
        came_true(lambda: not pressures.running, LONGEST_SECONDS)
        pressures.stop()

    def _met(self, *, with_min_reclaim: bool) -> tuple[str, ...]:
        observations = self._node.summary.observe()
        thresholds = self._node.thresholds(observations.layout)
        met = thresholds_met(
            thresholds, usable(observations.signals), enforce_min_reclaim=with_min_reclaim
        )
        return tuple(dict.fromkeys(str(threshold.signal) for threshold in met))


@contextmanager
def guest_node(scenario: Scenario, mounts: PrivateMounts) -> Iterator[GuestNode]:
    """The node of a scenario while the block lasts.

    Raises EmbeddedNodeError if it cannot be built.
    """
    with (
        EmbeddedNode(scenario, mounts) as embedded,
        closing(Node(configuration_of(scenario, embedded))) as node,
    ):
        problem = node.locate()
        if problem is not None:
            raise EmbeddedNodeError(problem)
        with closing(GuestNode(scenario, embedded, node)) as guest:
            yield guest
