"""50 000 dead containers: listed whole, within bounds of memory, by whichever way the runtime has, and cleared.

The clearing of all of them takes minutes and is for the soak.
"""

from __future__ import annotations

import grpc
import pytest

from eviction.drill.runtime.failpoints import Cut, Delay
from reclaim.cri.client import CriClient
from reclaim.types import RuntimeUnavailable
from signals.types import Signal
from tests.faults.meters import MIB, Meters, high_water_bytes
from tests.nodes.small_node import SmallNode
from tests.reclaimd_process import Daemon, came_true
from tests.sockets.conftest import SmallNodeFactory

MANY = 50_000
PODS = 50
LARGEST_MEMORY_BYTES = 200 * MIB
DEAD_SECONDS = 600.0


def crowd(small: SmallNode, count: int, pods: int = PODS) -> set[str]:
    """So many dead containers of pods that are gone; their ids."""
    made: set[str] = set()
    for number in range(pods):
        pod = small.run_pod(f"batch-{number}")
        made.update(small.runtime.add_dead_containers(pod.sandbox_id, count // pods, small.app_id, DEAD_SECONDS))
        small.vanish(pod)
    return made


def test_fifty_thousand_containers_are_listed_and_planned_within_200_mib(make_small_node: SmallNodeFactory) -> None:
    """46 MiB in one answer: the daemon begins to remove, and has never had 200 MiB."""
    small = make_small_node()
    crowd(small, MANY)
    configuration = small.configuration(Signal.NODEFS_AVAILABLE, above=20 * MIB)
    with Daemon("--config", configuration) as daemon:
        assert came_true(lambda: len(small.removed("container")) > 10), daemon.events
        peak = high_water_bytes(daemon.process.pid)
        daemon.stop()
    assert peak < LARGEST_MEMORY_BYTES, f"{peak / MIB:.0f} MiB"


@pytest.mark.soak
@pytest.mark.timeout(2400)
def test_fifty_thousand_containers_are_cleared(make_small_node: SmallNodeFactory) -> None:
    """All of them and their sandboxes go in one run of the daemon within 200 MiB; threads and descriptors stay few."""
    small = make_small_node()
    made = crowd(small, MANY)
    configuration = small.configuration(Signal.NODEFS_AVAILABLE, above=20 * MIB)
    with Daemon("--config", configuration) as daemon, Meters(daemon.process.pid) as meters:
        assert came_true(lambda: made <= set(small.removed("container")), 1800.0)
        assert came_true(lambda: len(small.removed("sandbox")) == PODS, 120.0)
        assert came_true(lambda: bool(daemon.passes)), "the record is written, too"
        peak = high_water_bytes(daemon.process.pid)
    print(f"{MANY} containers cleared with a peak of {peak / MIB:.0f} MiB; {meters.report}")
    assert peak < LARGEST_MEMORY_BYTES, f"{peak / MIB:.0f} MiB"
    assert meters.report.peak.threads < 40, str(meters.report)
    assert meters.report.descriptors_more <= 2, str(meters.report)


def test_pressure_at_the_start_does_not_wait_for_a_question_about_each_container(
    make_small_node: SmallNodeFactory,
) -> None:
    """2 000 containers on a runtime that mounts images, 20 ms each: asked about volumes first, the first removal came
    after 40 s; now it comes as soon as it is known where the images are."""
    small = make_small_node()
    crowd(small, 2000, pods=2)
    small.failpoints["ContainerStatus"] = Delay(0.02)
    configuration = small.configuration(Signal.NODEFS_AVAILABLE, above=20 * MIB)
    with Daemon("--config", configuration) as daemon:
        assert came_true(lambda: bool(small.removed("container"))), daemon.events
        assert small.failpoints.calls["ContainerStatus"] < 200
        small.failpoints.clear()


def test_a_list_that_is_too_large_for_one_message_comes_as_a_stream(make_small_node: SmallNodeFactory) -> None:
    """What the runtime cannot send in one message (here 1 MiB, containerd 16) is asked of its streaming twin, and is
    complete."""
    small = make_small_node(largest_answer_bytes=1 << 20, streams_lists=True)
    made = crowd(small, 3000, pods=3)
    client = CriClient(small.endpoint)
    assert {each.id for each in client.list_containers()} == made
    assert len(client.list_pod_sandboxes()) == 3
    assert (small.failpoints.calls["ListContainers"], small.failpoints.calls["StreamContainers"]) == (1, 1)
    assert small.failpoints.calls["StreamPodSandboxes"] == 0, "what fits is not streamed"
    client.close()


def test_a_stream_that_is_cut_is_no_list(make_small_node: SmallNodeFactory) -> None:
    """Half of the containers and then an error are none at all."""
    small = make_small_node(largest_answer_bytes=1 << 20, streams_lists=True)
    crowd(small, 3000, pods=3)
    small.failpoints["StreamContainers"] = Cut(grpc.StatusCode.INTERNAL, "cut in the middle")
    client = CriClient(small.endpoint)
    with pytest.raises(RuntimeUnavailable, match="cut in the middle"):
        client.list_containers()
    client.close()


def test_a_runtime_without_streams_says_what_was_too_large(make_small_node: SmallNodeFactory) -> None:
    """UNIMPLEMENTED of the twin is not what the operator needs to read: the first error is told."""
    small = make_small_node(largest_answer_bytes=1 << 20)
    crowd(small, 3000, pods=3)
    client = CriClient(small.endpoint)
    with pytest.raises(RuntimeUnavailable, match="RESOURCE_EXHAUSTED"):
        client.list_containers()
    client.close()


def test_fifty_thousand_containers_cost_the_bench_little(make_small_node: SmallNodeFactory) -> None:
    """They are records only: no inode and no block."""
    small = make_small_node()
    inodes = small.inodes_free()
    crowd(small, MANY)
    assert small.inodes_free() >= inodes - 2, "not even a directory each"
