"""The embedded node as somebody else's tests see it: where it is, what is on it, and how far below its marks.

What is under test gets the endpoint and the paths, and does what it does; here is what a test asks before and after.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from eviction.decision.thresholds import thresholds_met, usable
from eviction.drill.judgement.restart_policy import would_start
from eviction.drill.node.embedded_node import EmbeddedDrillNode
from eviction.drill.node.wait_for_runtime import answered
from eviction.drill.pressure.embedded_growers import EmbeddedGrowers
from eviction.drill.pressure.schedule import Pressures
from eviction.drill.run.embedded import configuration_of
from eviction.drill.runtime.failpoints import Failpoints
from eviction.drill.runtime.private_mounts import EmbeddedNodeError, PrivateMounts
from eviction.drill.scenario.amounts import amount_of
from eviction.drill.scenario.types import Grows, Pressure, Scenario
from eviction.node.node import Node
from signals.types import FilesystemRole

LONGEST_SECONDS = 60.0
TICK_SECONDS = 0.01


class GuestNode:
    """The node of a scenario, with real filesystems and a CRI runtime behind a unix socket.

    `endpoint`: the runtime's socket (`unix:///…`). `root_directory`, `pod_logs_directory`: the kubelet's. `path`: the
    root of nodefs; `disk` names the root of any role's filesystem.
    """

    def __init__(self, scenario: Scenario, embedded: EmbeddedDrillNode, node: Node):
        self._scenario = scenario
        self._embedded = embedded
        self._node = node
        self._grow = EmbeddedGrowers(embedded)
        self._filled = 0
        self.endpoint = embedded.endpoint
        self.root_directory = embedded.root_directory
        self.pod_logs_directory = embedded.pod_logs_directory
        self.path = self.disk("nodefs")
        self._started_before = self._would_start()

    def disk(self, role: str) -> str:
        """The root of the filesystem of `nodefs`, `imagefs` or `containerfs`. ValueError for anything else."""
        return self._embedded.disk(FilesystemRole(role))

    @property
    def failpoints(self) -> Failpoints:
        """What the runtime does wrong on purpose, by method: `failpoints["RemoveImage"] = Hang()`, of
        `eviction.drill.runtime.faults`."""
        return self._embedded.server.failpoints

    # ---- what is on it

    @property
    def images(self) -> frozenset[str]:
        """The references of all images."""
        names = self._embedded.population.image_names
        return frozenset(names.get(image.id, image.title) for image in answered(self._node.client.list_images))

    @property
    def containers(self) -> frozenset[str]:
        """All containers in every state, as `namespace/pod/container#attempt`."""
        return frozenset(each.title for each in answered(self._node.client.list_containers))

    @property
    def sandboxes(self) -> frozenset[str]:
        """All pod sandboxes, as `namespace/pod#attempt`."""
        return frozenset(each.title for each in answered(self._node.client.list_pod_sandboxes))

    @property
    def would_restart(self) -> frozenset[str]:
        """The containers (`pod/container`) that a kubelet would start now and would not have started at the beginning:
        whose last trace is gone."""
        return self._would_start() - self._started_before

    # ---- its marks

    @property
    def below_marks(self) -> tuple[str, ...]:
        """The signals that are below the scenario's marks."""
        return self._met(with_min_reclaim=False)

    def wait_relieved(self, seconds: float) -> bool:
        """Whether every signal was back above its mark, with the minimum reclaim, within so many seconds."""
        deadline = time.monotonic() + seconds
        while self._met(with_min_reclaim=True):
            if time.monotonic() >= deadline:
                return False
            time.sleep(TICK_SECONDS)
        return True

    def available(self, signal: str) -> int:
        """Bytes or inodes of a signal (`nodefs.available`). KeyError where there is no such signal."""
        return {str(name): seen.available for name, seen in self._node.summary.observe().signals.items()}[signal]

    # ---- pressure

    def fill(self, amount: str, rate: str = "1Gi", grows: str = "bytes", where: str = "nodefs") -> int:
        """Writes so much (`24Mi`; with `grows="inodes"` files) at so much a second, and returns when it is there, or
        the disk is full; how much it was. It stays until the node is gone."""
        pressure = Pressure(
            Grows(grows), amount_of("rate", rate, at_least=1), amount_of("amount", amount), where=FilesystemRole(where)
        )
        if pressure.grows not in (Grows.BYTES, Grows.INODES):
            raise ValueError(f"grows is {grows!r}: bytes or inodes are allowed")
        self._filled += 1
        grower = self._grow(pressure, len(self._scenario.pressures) + self._filled)
        deadline = time.monotonic() + LONGEST_SECONDS
        while grower.running and time.monotonic() < deadline:
            time.sleep(TICK_SECONDS)
        return grower.stop()

    def press(self) -> None:
        """Puts on the scenario's own pressures, and returns when they have ended."""
        pressures = Pressures(self._scenario.pressures, self._grow)
        pressures.start(time.monotonic())
        deadline = time.monotonic() + LONGEST_SECONDS
        while pressures.running and time.monotonic() < deadline:
            time.sleep(TICK_SECONDS)
        pressures.stop()

    def _met(self, *, with_min_reclaim: bool) -> tuple[str, ...]:
        observations = self._node.summary.observe()
        thresholds = self._node.thresholds(observations.layout)
        met = thresholds_met(thresholds, usable(observations.signals), enforce_min_reclaim=with_min_reclaim)
        return tuple(dict.fromkeys(str(threshold.signal) for threshold in met))

    def _would_start(self) -> frozenset[str]:
        exit_codes = self._embedded.population.exit_codes
        return would_start(self._scenario.node.pods, answered(self._node.client.list_containers), exit_codes)


@contextmanager
def guest_node(scenario: Scenario, mounts: PrivateMounts) -> Iterator[GuestNode]:
    """The node of a scenario while the block lasts. Raises EmbeddedNodeError where it cannot be built."""
    with EmbeddedDrillNode(scenario, mounts) as embedded:
        node = Node(configuration_of(scenario, embedded), reader=embedded.reader)
        try:
            problem = node.locate()
            if problem is not None:
                raise EmbeddedNodeError(problem)
            yield GuestNode(scenario, embedded, node)
        finally:
            node.close()
