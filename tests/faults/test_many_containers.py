"""50 000 dead containers are listed in one answer or as a stream, within 200
MiB of memory, and removed.

The soak lists and removes all of them, which takes minutes; the suite has fewer.
"""

from __future__ import annotations

import grpc
import pytest

from reclaim.cri.client import CriClient
from reclaim.types import RuntimeUnavailable
from signals.types import Signal
from tests.faults.meters import MIB, Meters, high_water_bytes
from tests.nodes.dead_containers import add_dead_containers
from tests.nodes.faults import Cut, Delay
from tests.nodes.small_node import SmallNode
from tests.nodes.streaming_server import StreamingServer
from tests.reclaimd_process import Daemon, came_true
from tests.sockets.conftest import SmallNodeFactory

MANY = 50_000
PODS = 50
LARGEST_MEMORY_BYTES = 200 * MIB
DEAD_SECONDS = 600.0


def crowd(small: SmallNode, count: int, pods: int = PODS) -> set[str]:
    """Adds `count` dead containers of deleted pods; returns their ids."""
    made: set[str] = set()
    for number in range(pods):
        pod = small.run_pod(f"batch-{number}")
        made.update(
            add_dead_containers(
                small.runtime, pod.sandbox_id, count // pods, small.app_id, DEAD_SECONDS
            )
        )
        small.vanish(pod)
    return made


def test_ten_thousand_containers_are_listed_and_planned_within_200_mib(
    make_small_node: SmallNodeFactory,
) -> None:
    """The list is one answer of 9 MiB; when removals begin, the daemon's peak is below 200 MiB.

    The soak has 50 000.
    """
    listed_and_planned(make_small_node(), 10_000)


@pytest.mark.soak
def test_fifty_thousand_containers_are_listed_and_planned_within_200_mib(
    make_small_node: SmallNodeFactory,
) -> None:
    """The list is one answer of 46 MiB, which a busy machine does not deliver
    within the deadline of 10 s.
    """
    listed_and_planned(make_small_node(), MANY)


def listed_and_planned(small: SmallNode, count: int) -> None:
    """Runs the daemon until removals have begun, and checks its peak."""
    crowd(small, count)
    configuration = small.configuration(Signal.NODEFS_AVAILABLE, above=20 * MIB)
    with Daemon("--config", configuration, cold=True) as daemon:
        assert came_true(lambda: len(small.removed("container")) > 10), daemon.events
        peak = high_water_bytes(daemon.process.pid)
        daemon.stop()
    assert peak < LARGEST_MEMORY_BYTES, f"{peak / MIB:.0f} MiB"


@pytest.mark.soak
@pytest.mark.timeout(2400)
def test_fifty_thousand_containers_are_cleared(make_small_node: SmallNodeFactory) -> None:
    """One run of the daemon removes all of them and their sandboxes within 200
    MiB and 40 threads.
    """
    small = make_small_node()
    made = crowd(small, MANY)
    configuration = small.configuration(Signal.NODEFS_AVAILABLE, above=20 * MIB)
    with (
        Daemon("--config", configuration, cold=True) as daemon,
        Meters(daemon.process.pid) as meters,
    ):
        assert came_true(lambda: made <= set(small.removed("container")), 1800.0)
        assert came_true(lambda: len(small.removed("sandbox")) == PODS, 120.0)
        assert came_true(lambda: bool(daemon.passes)), "the record is written, too"
        peak = high_water_bytes(daemon.process.pid)
    print(f"{MANY} containers cleared with a peak of {peak / MIB:.0f} MiB; {meters.report}")
    assert peak < LARGEST_MEMORY_BYTES, f"{peak / MIB:.0f} MiB"
    assert meters.report.peak.threads < 40, str(meters.report)
    assert meters.report.descriptors_more <= 2, str(meters.report)


def test_pressure_at_the_start_does_not_wait_for_the_status_of_each_container(
    make_small_node: SmallNodeFactory,
) -> None:
    """2 000 containers on a runtime that mounts images, with 20 ms for each ContainerStatus:
    asking all of them for their volumes first delayed the first removal by 40 s. Now fewer
    than 200 calls precede it."""
    small = make_small_node()
    crowd(small, 2000, pods=2)
    small.failpoints["ContainerStatus"] = Delay(0.02)
    configuration = small.configuration(Signal.NODEFS_AVAILABLE, above=20 * MIB)
    with Daemon("--config", configuration, cold=True) as daemon:
        assert came_true(lambda: bool(small.removed("container"))), daemon.events
        assert small.failpoints.calls["ContainerStatus"] < 200
        small.failpoints.clear()


def test_a_list_that_is_too_large_for_one_message_comes_as_a_stream(
    make_small_node: SmallNodeFactory,
) -> None:
    """A list larger than one message (here 1 MiB, containerd 16 MiB) is fetched by the
    streaming method, completely.
    """
    small = make_small_node(server=StreamingServer, largest_answer_bytes=1 << 20)
    made = crowd(small, 3000, pods=3)
    client = CriClient(small.endpoint)
    assert {each.id for each in client.list_containers()} == made
    assert len(client.list_pod_sandboxes()) == 3 + 1, "and that of a pod that runs"
    assert (
        small.failpoints.calls["ListContainers"],
        small.failpoints.calls["StreamContainers"],
    ) == (1, 1)
    assert small.failpoints.calls["StreamPodSandboxes"] == 0, "what fits is not streamed"
    client.close()


def test_a_stream_that_is_cut_is_no_list(make_small_node: SmallNodeFactory) -> None:
    """Half of the containers followed by an error raise RuntimeUnavailable."""
    small = make_small_node(server=StreamingServer, largest_answer_bytes=1 << 20)
    crowd(small, 3000, pods=3)
    small.failpoints["StreamContainers"] = Cut(grpc.StatusCode.INTERNAL, "cut in the middle")
    client = CriClient(small.endpoint)
    with pytest.raises(RuntimeUnavailable, match="cut in the middle"):
        client.list_containers()
    client.close()


def test_without_streaming_methods_the_error_is_that_of_the_large_list(
    make_small_node: SmallNodeFactory,
) -> None:
    """The error names RESOURCE_EXHAUSTED of the list, not UNIMPLEMENTED of the streaming method."""
    small = make_small_node(largest_answer_bytes=1 << 20)
    crowd(small, 3000, pods=3)
    client = CriClient(small.endpoint)
    with pytest.raises(RuntimeUnavailable, match="RESOURCE_EXHAUSTED"):
        client.list_containers()
    client.close()


def test_fifty_thousand_containers_take_no_inodes(make_small_node: SmallNodeFactory) -> None:
    """The embedded runtime keeps them as records, without an inode or a block."""
    small = make_small_node()
    small.stands()
    inodes = small.inodes_free()
    crowd(small, MANY)
    assert small.inodes_free() >= inodes - 2, "not even a directory each"
