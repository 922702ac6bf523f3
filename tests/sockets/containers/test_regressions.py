"""Bugs found in the removal of containers and sandboxes: each has the test that found it."""

from __future__ import annotations

import time

import pytest

from reclaim.cri import cri_pb2 as pb
from tests.nodes.distortions import Distort, Distortion
from tests.nodes.faults import Delay, Failpoint, Hang, Pretend
from tests.nodes.small_node import (
    CONTAINERS,
    EVERYTHING,
    MIB,
    SmallNode,
    outcome_of,
    reason_of,
    relieve,
    result_of,
)

pytestmark = pytest.mark.regression


def test_pod_directory_appears_while_the_status_is_slow(small_node: SmallNode) -> None:
    """The directory is read after the slow answer, not before it."""
    small_node.gone_pod("web")
    small_node.failpoints["ContainerStatus"] = Hang(times=1)
    with small_node.relieving(small_node.node(), CONTAINERS) as going:
        small_node.wait_for("ContainerStatus")
        small_node.admit("uid-web")
        time.sleep(1)
        small_node.failpoints.clear()
        going.result()
    assert small_node.removed() == []


def test_newer_copy_vanishes_while_the_status_is_slow(small_node: SmallNode) -> None:
    """The newest copy is determined after the slow answer; the older one is then the newest."""
    pod = small_node.run_pod("web")
    older, newer = small_node.exited(pod), small_node.exited(pod, attempt=1)
    small_node.failpoints["ContainerStatus"] = Delay(0.5)
    with small_node.relieving(small_node.node(), CONTAINERS) as going:
        small_node.wait_for("ContainerStatus")
        small_node.runtime.remove_container(pb.RemoveContainerRequest(container_id=newer))
        going.result()
    assert older in small_node.containers()


def test_a_list_that_gives_a_container_the_id_of_another(small_node: SmallNode) -> None:
    """The newest dead copy of a live pod, listed as that of a pod that is gone, stays:
    its status says whose it is.
    """
    pod = small_node.run_pod("web")
    crashed = small_node.exited(pod)
    small_node.gone_pod("gone")
    small_node.failpoints["ListContainers"] = Distort(Distortion.ROTATED_IDS)
    relieve(small_node.node(), CONTAINERS)
    assert crashed in small_node.containers()


def test_a_list_that_gives_a_sandbox_the_id_of_another(small_node: SmallNode) -> None:
    """The only sandbox of a live pod, listed as that of a pod that is gone, stays:
    its status says whose it is.
    """
    rebooted = small_node.run_pod("rebooted")
    small_node.runtime.kill_sandbox(rebooted.sandbox_id)
    small_node.vanish(small_node.run_pod("gone"))
    small_node.failpoints["ListPodSandbox"] = Distort(Distortion.ROTATED_IDS)
    relieve(small_node.node(), CONTAINERS)
    assert rebooted.sandbox_id not in small_node.removed("sandbox")


def test_already_gone_container_bytes_are_not_ours(small_node: SmallNode) -> None:
    """Bytes that another program freed meanwhile are not counted."""
    small_node.run(small_node.run_pod("app"))
    dead = small_node.gone_pod("gone", writes=4 * MIB)
    small_node.failpoints["ContainerStatus"] = Hang(times=1)
    with small_node.relieving(small_node.node(), CONTAINERS) as going:
        small_node.wait_for("ContainerStatus")
        small_node.runtime.remove_container(pb.RemoveContainerRequest(container_id=dead))
        small_node.failpoints.clear()
        record = going.result()
    assert outcome_of(record, dead).freed.bytes == 0


def test_a_container_that_is_listed_twice_is_not_its_own_newer_copy(small_node: SmallNode) -> None:
    """The newest dead copy of a live pod went as the older copy of itself; now
    two equal entries are one.
    """
    newest = small_node.exited(small_node.run_pod("crashed"))
    small_node.failpoints["ListContainers"] = Distort(Distortion.DUPLICATE_ENTRIES)
    record = relieve(small_node.node(), EVERYTHING)
    assert newest in small_node.containers()
    assert reason_of(record, newest) == "newest_of_live_pod"


def test_a_sandbox_that_is_listed_twice_is_not_its_own_newer_copy(small_node: SmallNode) -> None:
    """The newest sandbox of a live pod without containers stays."""
    pod = small_node.run_pod("rebooted")
    small_node.runtime.kill_sandbox(pod.sandbox_id)
    small_node.runtime.age(pod.sandbox_id, 600)
    small_node.failpoints["ListPodSandbox"] = Distort(Distortion.DUPLICATE_ENTRIES)
    record = relieve(small_node.node(), EVERYTHING)
    assert small_node.removed("sandbox") == []
    assert reason_of(record, pod.sandbox_id) == "newest_sandbox"


def test_containers_without_names_are_not_copies_of_each_other(small_node: SmallNode) -> None:
    """The dead init container of a live pod went as the older copy of its app, as both
    were listed without a name.
    """
    pod = small_node.run_pod("web")
    init, app = small_node.exited(pod, name="init"), small_node.exited(pod, attempt=1)
    small_node.failpoints["ListContainers"] = Distort(Distortion.EMPTY_NAMES)
    record = relieve(small_node.node(), EVERYTHING)
    assert small_node.containers() == {init, app}
    assert {reason_of(record, each) for each in (init, app)} == {"not_kubelets"}


def test_a_shortened_id_of_a_sandbox_is_never_sent(small_node: SmallNode) -> None:
    """Six characters in the list removed the sandbox that began so; now its status
    must answer with the very id.
    """
    small_node.gone_pod("gone")
    small_node.failpoints["ListPodSandbox"] = Distort(Distortion.SHORT_IDS)
    record = relieve(small_node.node(), EVERYTHING)
    assert small_node.removed("sandbox") == []
    (outcome,) = [each for each in record.removals if each.verdict.kind == "sandbox"]
    assert result_of(record, outcome.verdict.id) == "already_gone"
    assert small_node.failpoints.calls["RemovePodSandbox"] == 0


@pytest.mark.parametrize(
    "lie", [Distort(Distortion.EMPTY_IDS), Pretend()], ids=["without an id", "without a status"]
)
def test_a_sandbox_of_which_its_status_says_nothing_is_not_gone(
    small_node: SmallNode, lie: Failpoint
) -> None:
    """An answer without a status is neither there nor gone: nothing is sent, and
    nothing is reported as gone.
    """
    small_node.gone_pod("gone")
    small_node.failpoints["PodSandboxStatus"] = lie
    record = relieve(small_node.node(), EVERYTHING)
    assert small_node.removed("sandbox") == []
    (outcome,) = [each for each in record.removals if each.verdict.kind == "sandbox"]
    assert str(outcome.result) == "failed"
    assert "without a status" in outcome.error
