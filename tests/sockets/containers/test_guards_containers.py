"""Which containers and sandboxes never go: the runtime protects nothing, so every
guard here is the agent's own.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from reclaim.cri import cri_pb2 as pb
from signals.types import Signal
from tests.nodes.faults import Hang
from tests.nodes.small_node import (
    APP,
    CONTAINERS,
    EVERYTHING,
    MIB,
    GivenIds,
    SmallNode,
    outcome_of,
    reason_of,
    relieve,
    result_of,
)
from tests.sockets.conftest import SmallNodeFactory
from tests.sockets.dialect import Dialect


@pytest.mark.parametrize("state", ["RUNNING", "CREATED", "UNKNOWN"])
def test_only_an_exited_container_is_removed(small_node: SmallNode, state: str) -> None:
    """Nothing that runs, may start or is lost is removed, not even in a dead
    sandbox of a pod that is gone.
    """
    pod = small_node.run_pod("web")
    container = small_node.create(pod)
    if state != "CREATED":
        small_node.start(container)
    if state == "UNKNOWN":
        small_node.runtime.lose_container(container)
    small_node.runtime.age(container, 600)
    small_node.vanish(pod)
    record = relieve(small_node.node(), EVERYTHING)
    assert small_node.removed() == []
    assert reason_of(record, container) == {"UNKNOWN": "unknown_state"}.get(state, state.lower())
    assert reason_of(record, pod.sandbox_id) == "has_containers"
    assert reason_of(record, small_node.app_id) == "in_use"


def test_a_dead_container_is_kept_while_another_of_its_pod_runs(small_node: SmallNode) -> None:
    """A RUNNING container can sit in a NOTREADY sandbox: its pod is not
    gone, whatever else says so.
    """
    pod = small_node.run_pod("web")
    dead, living = small_node.exited(pod), small_node.run(pod, name="side")
    small_node.vanish(pod)
    record = relieve(small_node.node(), CONTAINERS)
    assert small_node.removed() == []
    assert small_node.containers() == {dead, living}
    assert reason_of(record, dead) == "pod_unknown"


def test_a_list_that_lags_does_not_kill_a_running_container(
    small_node: SmallNode, tmp_path: Path
) -> None:
    """RemoveContainer kills what runs: a list that still calls it EXITED is not
    believed, its status is asked.
    """
    pod = small_node.run_pod("web")
    running = small_node.run(pod)
    small_node.runtime.age(running, 600)
    small_node.vanish(pod)

    def lag(answer: Any) -> None:
        for item in answer.containers:
            item.state = pb.CONTAINER_EXITED

    with Dialect(
        small_node.server.target, str(tmp_path / "d.sock"), {"ListContainers": lag}
    ) as dialect:
        record = relieve(small_node.node(containerRuntimeEndpoint=dialect.endpoint), CONTAINERS)
    assert small_node.state(running) == pb.CONTAINER_RUNNING
    assert reason_of(record, running) == "running"


def test_an_id_that_runs_again_by_the_time_of_its_removal_is_not_killed(
    make_small_node: SmallNodeFactory,
) -> None:
    """What was EXITED in the list and is RUNNING when its turn comes stays."""
    small = make_small_node(runtime=GivenIds, ids=["c0ffee", "c0ffee"])
    pod = small.run_pod("web")
    container = small.exited(pod)
    small.vanish(pod)
    node = small.node()
    small.failpoints["ContainerStatus"] = Hang(times=1)
    with small.relieving(node, CONTAINERS) as going:
        small.wait_for("ContainerStatus")
        small.runtime.remove_container(pb.RemoveContainerRequest(container_id=container))
        again = small.run(small.run_pod("other"))
        small.failpoints.clear()
        record = going.result()
    assert again == container
    assert small.state(container) == pb.CONTAINER_RUNNING
    assert reason_of(record, container) == "running"


def test_an_id_that_is_the_prefix_of_another_removes_only_itself(
    make_small_node: SmallNodeFactory,
) -> None:
    """The runtime takes a prefix for the id: the dead `c0ffee` goes, and the running
    `c0ffee1` is not taken for it.
    """
    small = make_small_node(runtime=GivenIds, ids=["c0ffee1", "c0ffee"])
    running = small.run(small.run_pod("web"))
    dead = small.gone_pod("old")
    record = relieve(small.node(), CONTAINERS)
    assert small.removed("container") == [dead]
    assert result_of(record, dead) == "removed", (
        "that ContainerStatus now answers with the longer id is no presence"
    )
    assert small.state(running) == pb.CONTAINER_RUNNING


def test_a_prefix_whose_own_object_has_gone_is_not_sent(make_small_node: SmallNodeFactory) -> None:
    """When the dead `c0ffee` vanishes after the list, its id means the running
    `c0ffee1`, and no removal is sent.
    """
    small = make_small_node(runtime=GivenIds, ids=["c0ffee1", "c0ffee"])
    running = small.exited(small.run_pod("web"))  # dead as well, so that only its id differs
    dead = small.gone_pod("old")
    small.failpoints["ContainerStatus"] = Hang(times=1)
    with small.relieving(small.node(), CONTAINERS) as going:
        small.wait_for("ContainerStatus")
        small.runtime.remove_container(pb.RemoveContainerRequest(container_id=dead))
        small.failpoints.clear()
        record = going.result()
    assert small.containers() == {running}
    assert result_of(record, dead) == "already_gone"
    assert small.failpoints.calls["RemoveContainer"] == 0


def test_the_newest_dead_copy_of_a_live_pod_is_kept_and_older_ones_are_removed(
    small_node: SmallNode,
) -> None:
    """The newest copy is how the kubelet knows that a container has run: without it an
    init container runs again.
    """
    pod = small_node.run_pod("web")
    copies = [small_node.exited(pod, attempt=attempt) for attempt in range(3)]
    init = small_node.exited(pod, name="init")
    running = small_node.run(pod, name="side")
    record = relieve(small_node.node(), EVERYTHING)
    assert small_node.removed() == copies[:2]
    assert small_node.containers() == {copies[2], init, running}
    assert reason_of(record, copies[2]) == reason_of(record, init) == "newest_of_live_pod"


def test_dead_copies_of_a_pod_in_a_dead_sandbox_stay_while_its_directory_is_there(
    small_node: SmallNode,
) -> None:
    """After a reboot every sandbox is NOTREADY and every container EXITED, and all
    of it belongs to live pods.
    """
    containers = [small_node.exited(small_node.run_pod(name)) for name in ("web", "db")]
    small_node.runtime.reboot()
    relieve(small_node.node(), EVERYTHING)
    assert small_node.removed() == []
    assert small_node.containers() == set(containers)


def test_an_older_copy_is_kept_when_the_newer_one_vanishes_before_its_removal(
    small_node: SmallNode,
) -> None:
    """With the newer copy gone the older one is the newest, and the kubelet's only memory."""
    pod = small_node.run_pod("web")
    older, newer = small_node.exited(pod), small_node.exited(pod, attempt=1)
    small_node.failpoints["ContainerStatus"] = Hang(times=1)
    with small_node.relieving(small_node.node(), CONTAINERS) as going:
        small_node.wait_for("ContainerStatus")
        small_node.runtime.remove_container(pb.RemoveContainerRequest(container_id=newer))
        small_node.failpoints.clear()
        record = going.result()
    assert small_node.containers() == {older}
    assert reason_of(record, older) == "newest_of_live_pod"


def test_a_pod_whose_directory_appears_before_the_removal_keeps_its_parts(
    small_node: SmallNode,
) -> None:
    """A pod's parts appear before the pod does: the directory is checked again
    right before each removal.
    """
    first, second = small_node.gone_pod("first"), small_node.gone_pod("second")
    small_node.failpoints["RemoveContainer"] = Hang(times=1)
    with small_node.relieving(small_node.node(), CONTAINERS) as going:
        small_node.wait_for("RemoveContainer")
        small_node.admit("uid-second")
        small_node.failpoints.clear()
        record = going.result()
    assert small_node.removed("container") == [first]
    assert small_node.containers() == {second}
    assert reason_of(record, second) == "pod_alive"
    assert len(small_node.removed("sandbox")) == 1, "and its sandbox stays too"


def test_a_pod_whose_directory_appears_between_the_lists_keeps_its_parts(
    small_node: SmallNode,
) -> None:
    """The directories are read before and after the runtime's lists: a pod exists
    if either reading has it.
    """
    container = small_node.gone_pod("web")
    small_node.failpoints["ListPodSandbox"] = Hang(times=1)
    with small_node.relieving(small_node.node(), CONTAINERS) as going:
        small_node.wait_for("ListPodSandbox")
        small_node.admit("uid-web")
        small_node.failpoints.clear()
        record = going.result()
    assert small_node.removed() == []
    assert reason_of(record, container) == "newest_of_live_pod"


def test_a_sandbox_whose_pod_comes_back_is_kept(small_node: SmallNode) -> None:
    """The directory is checked again before a sandbox is removed as well."""
    pod = small_node.run_pod("web")
    other = small_node.run_pod("other")
    for each in (pod, other):
        small_node.vanish(each)
    small_node.failpoints["RemovePodSandbox"] = Hang(times=1)
    with small_node.relieving(small_node.node(), CONTAINERS) as going:
        small_node.wait_for("RemovePodSandbox")
        small_node.admit(other.uid)
        small_node.admit(pod.uid)
        small_node.failpoints.clear()
        record = going.result()
    assert len(small_node.removed("sandbox")) == 1, (
        "the one in flight finishes, the next is not sent"
    )
    (kept,) = {pod.sandbox_id, other.sandbox_id} - set(small_node.removed("sandbox"))
    assert reason_of(record, kept) == "pod_alive"


def test_parts_of_a_pod_that_vanished_just_now_stay(small_node: SmallNode) -> None:
    """What is younger than 10 s may belong to a pod whose directory is only being made."""
    pod = small_node.run_pod("web")
    container = small_node.run(pod)
    small_node.runtime.exit_container(container, 0)
    small_node.stands()
    small_node.runtime.kill_sandbox(pod.sandbox_id)
    small_node.forget(pod.uid)
    record = relieve(small_node.node(), CONTAINERS)
    assert small_node.removed() == []
    assert reason_of(record, container) == "too_young"
    wait = outcome_of(record, container).verdict.eligible_in_seconds
    assert wait is not None
    assert 0 < wait <= 10


@pytest.mark.parametrize("how", ["missing", "a file"])
def test_without_the_directory_of_pods_no_pod_counts_as_gone(
    small_node: SmallNode, how: str
) -> None:
    """A kubelet's root directory that is wrong or not mounted yet must not
    make every pod an orphan.
    """
    container = small_node.gone_pod("web")
    shutil.rmtree(small_node.root_directory / "pods")
    if how == "a file":
        (small_node.root_directory / "pods").touch()
    record = relieve(small_node.node(), CONTAINERS)
    assert small_node.removed() == []
    assert reason_of(record, container) == "pod_unknown"


def test_what_carries_no_pod_uid_is_left_alone(small_node: SmallNode) -> None:
    """Other users of the runtime make containers too; the kubelet's are known by their label."""
    pod = small_node.run_pod("web")
    stranger = small_node.create(pod, labels={})
    small_node.start(stranger)
    small_node.runtime.exit_container(stranger)
    small_node.runtime.age(stranger, 600)
    small_node.vanish(pod)
    record = relieve(small_node.node(), EVERYTHING)
    assert small_node.removed() == []
    assert reason_of(record, stranger) == "not_kubelets"
    assert reason_of(record, pod.sandbox_id) == "has_containers"


def test_a_deleted_pod_is_removed_with_everything(small_node: SmallNode) -> None:
    """Containers first, then their sandbox, and only those: the guards do not keep what may go."""
    container = small_node.gone_pod("old", writes=2 * MIB)
    pod = small_node.run_pod("web")
    running = small_node.run(pod, APP)
    node = small_node.node(Signal.NODEFS_AVAILABLE, above=MIB)
    record = relieve(node)
    assert small_node.removed("container") == [container]
    assert small_node.containers() == {running}
    assert str(record.result) == "satisfied"
