"""Which containers and sandboxes never go: the runtime protects nothing, so every guard here is the
agent's own.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reclaim.cri import cri_pb2 as pb
from signals.types import Signal
from tests.nodes.distortions import Distort, Distortion
from tests.nodes.faults import Failpoint, Pretend
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
from tests.sockets.passes import interrupted, reworded


def remove(small: SmallNode, container_id: str) -> None:
    """Another program removes a container."""
    small.runtime.remove_container(pb.RemoveContainerRequest(container_id=container_id))


def dead_sandbox(small: SmallNode, name: str) -> str:
    """The only, dead sandbox of a live pod."""
    pod = small.run_pod(name)
    small.runtime.kill_sandbox(pod.sandbox_id)
    small.runtime.age(pod.sandbox_id, 600)
    return pod.sandbox_id


@pytest.mark.parametrize("state", ["RUNNING", "CREATED", "UNKNOWN"])
def test_only_an_exited_container_is_removed(small_node: SmallNode, state: str) -> None:
    """Nothing that runs, may start or is lost is removed, not even in a dead sandbox of a pod that
    is gone."""
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
    """A RUNNING container can sit in a NOTREADY sandbox: its pod is not gone, whatever else says
    so."""
    pod = small_node.run_pod("web")
    dead, living = small_node.exited(pod), small_node.run(pod, name="side")
    small_node.vanish(pod)
    record = relieve(small_node.node(), CONTAINERS)
    assert small_node.removed() == []
    assert small_node.containers() == {dead, living}
    assert reason_of(record, dead) == "pod_unknown"


def test_the_newest_dead_copy_of_a_live_pod_is_kept_and_older_ones_are_removed(
    small_node: SmallNode,
) -> None:
    """The newest copy is how the kubelet knows that a container has run: without it an init
    container runs again. After a reboot, when every sandbox is NOTREADY and every container EXITED,
    all of it belongs to live pods."""
    pod = small_node.run_pod("web")
    copies = [small_node.exited(pod, attempt=attempt) for attempt in range(3)]
    kept = {copies[2], small_node.exited(pod, name="init"), small_node.run(pod, name="side")}
    relieve(small_node.node(), EVERYTHING)
    assert small_node.removed() == copies[:2]
    small_node.runtime.reboot()
    record = relieve(small_node.node(), EVERYTHING)
    assert small_node.containers() == kept
    assert {reason_of(record, each) for each in kept} == {"newest_of_live_pod"}


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
    """Containers first, then their sandbox, and only those: the guards do not keep what may go. What
    is younger than 10 s may belong to a pod whose directory is only being made."""
    container = small_node.gone_pod("old", writes=2 * MIB)
    running = small_node.run(small_node.run_pod("web"), APP)
    just_now = small_node.run_pod("now")
    young = small_node.run(just_now)
    small_node.runtime.exit_container(young, 0)
    small_node.runtime.kill_sandbox(just_now.sandbox_id)
    small_node.forget(just_now.uid)
    record = relieve(small_node.node(Signal.NODEFS_AVAILABLE, above=MIB))
    assert small_node.removed("container") == [container]
    assert small_node.containers() == {running, young}
    assert str(record.result) == "satisfied"
    assert reason_of(record, young) == "too_young"
    assert 0 < (outcome_of(record, young).verdict.eligible_in_seconds or 0) <= 10


# ---- what happens beside a pass


def test_a_list_that_lags_does_not_kill_a_running_container(
    small_node: SmallNode, tmp_path: Path
) -> None:
    """RemoveContainer kills what runs: a list that still calls it EXITED is not believed, its
    status is asked."""
    pod = small_node.run_pod("web")
    running = small_node.run(pod)
    small_node.runtime.age(running, 600)
    small_node.vanish(pod)

    def lag(answer: Any) -> None:
        for item in answer.containers:
            item.state = pb.CONTAINER_EXITED

    record = reworded(small_node, tmp_path, CONTAINERS, ListContainers=lag)
    assert small_node.state(running) == pb.CONTAINER_RUNNING
    assert reason_of(record, running) == "running"


def test_an_id_that_runs_again_by_the_time_of_its_removal_is_not_killed(
    make_small_node: SmallNodeFactory,
) -> None:
    """What was EXITED in the list and is RUNNING when its turn comes stays."""
    small = make_small_node(runtime=GivenIds, ids=["c0ffee", "c0ffee"])
    container = small.gone_pod("web")

    def runs_again() -> None:
        remove(small, container)
        assert small.run(small.run_pod("other")) == container

    record = interrupted(small, small.node(), CONTAINERS, "ContainerStatus", runs_again)
    assert small.state(container) == pb.CONTAINER_RUNNING
    assert reason_of(record, container) == "running"


def test_an_id_that_is_the_prefix_of_another_removes_only_itself(
    make_small_node: SmallNodeFactory,
) -> None:
    """The runtime takes a prefix for the id: the dead `c0ffee` goes, and the running `c0ffee1` is
    not taken for it, nor for its presence."""
    small = make_small_node(runtime=GivenIds, ids=["c0ffee1", "c0ffee"])
    running = small.run(small.run_pod("web"))
    dead = small.gone_pod("old")
    record = relieve(small.node(), CONTAINERS)
    assert small.removed("container") == [dead]
    assert result_of(record, dead) == "removed"
    assert small.state(running) == pb.CONTAINER_RUNNING


def test_a_prefix_whose_own_object_has_gone_is_not_sent(make_small_node: SmallNodeFactory) -> None:
    """When the dead `c0ffee` vanishes after the list, its id means `c0ffee1`, and no removal is
    sent; the bytes that another program freed are not counted."""
    small = make_small_node(runtime=GivenIds, ids=["c0ffee1", "c0ffee"])
    longer = small.exited(small.run_pod("web"))  # dead as well, so that only its id differs
    dead = small.gone_pod("old", writes=4 * MIB)
    record = interrupted(
        small, small.node(), CONTAINERS, "ContainerStatus", lambda: remove(small, dead)
    )
    assert small.containers() == {longer}
    assert result_of(record, dead) == "already_gone"
    assert outcome_of(record, dead).freed.bytes == 0
    assert small.failpoints.calls["RemoveContainer"] == 0


def test_an_older_copy_is_kept_when_the_newer_one_vanishes_before_its_removal(
    small_node: SmallNode,
) -> None:
    """With the newer copy gone the older one is the newest, and the kubelet's only memory. That is
    looked for after the slow answer about the older one."""
    pod = small_node.run_pod("web")
    older, newer = small_node.exited(pod), small_node.exited(pod, attempt=1)
    record = interrupted(
        small_node,
        small_node.node(),
        CONTAINERS,
        "ContainerStatus",
        lambda: remove(small_node, newer),
    )
    assert small_node.containers() == {older}
    assert reason_of(record, older) == "newest_of_live_pod"


@pytest.mark.regression
@pytest.mark.parametrize("method", ["RemoveContainer", "ContainerStatus"])
def test_a_pod_whose_directory_appears_before_the_removal_keeps_its_parts(
    small_node: SmallNode, method: str
) -> None:
    """A pod's parts appear before the pod does: the directory is checked again right before each
    removal, after a slow answer about it."""
    first, second = small_node.gone_pod("first"), small_node.gone_pod("second")

    def appears() -> None:
        small_node.admit("uid-second")
        if method == "ContainerStatus":
            small_node.admit("uid-first")

    record = interrupted(small_node, small_node.node(), CONTAINERS, method, appears)
    removed = [first] if method == "RemoveContainer" else []
    assert small_node.removed("container") == removed
    assert reason_of(record, second) == "pod_alive"
    assert len(small_node.removed("sandbox")) == len(removed), "and its sandbox stays too"


def test_a_pod_whose_directory_appears_between_the_lists_keeps_its_parts(
    small_node: SmallNode,
) -> None:
    """The directories are read before and after the runtime's lists: a pod exists if either reading
    has it."""
    container = small_node.gone_pod("web")
    record = interrupted(
        small_node,
        small_node.node(),
        CONTAINERS,
        "ListPodSandbox",
        lambda: small_node.admit("uid-web"),
    )
    assert small_node.removed() == []
    assert reason_of(record, container) == "newest_of_live_pod"


def test_a_sandbox_whose_pod_comes_back_is_kept(small_node: SmallNode) -> None:
    """The directory is checked again before a sandbox is removed as well: the one in flight
    finishes, the next is not sent."""
    pods = [small_node.run_pod(name) for name in ("web", "other")]
    for each in pods:
        small_node.vanish(each)

    def come_back() -> None:
        for each in pods:
            small_node.admit(each.uid)

    record = interrupted(small_node, small_node.node(), CONTAINERS, "RemovePodSandbox", come_back)
    (gone,) = small_node.removed("sandbox")
    (kept,) = {each.sandbox_id for each in pods} - {gone}
    assert reason_of(record, kept) == "pod_alive"


# ---- lists and answers that are wrong

Kept = Callable[[SmallNode], list[str]]
WRONG: dict[str, tuple[str, Failpoint, Kept, str]] = {
    "a container has the id of another": (
        "ListContainers",
        Distort(Distortion.ROTATED_IDS),
        lambda small: [small.exited(small.run_pod("web"))],
        "",
    ),
    "a sandbox has the id of another": (
        "ListPodSandbox",
        Distort(Distortion.ROTATED_IDS),
        lambda small: [dead_sandbox(small, "rebooted")],
        "",
    ),
    "a container is listed twice": (
        "ListContainers",
        Distort(Distortion.DUPLICATE_ENTRIES),
        lambda small: [small.exited(small.run_pod("crashed"))],
        "newest_of_live_pod",
    ),
    "a sandbox is listed twice": (
        "ListPodSandbox",
        Distort(Distortion.DUPLICATE_ENTRIES),
        lambda small: [dead_sandbox(small, "rebooted")],
        "newest_sandbox",
    ),
    "containers have no names": (
        "ListContainers",
        Distort(Distortion.EMPTY_NAMES),
        lambda small: [
            small.exited(pod, name=name, attempt=attempt)
            for pod in [small.run_pod("web")]
            for attempt, name in enumerate(("init", "app"))
        ],
        "not_kubelets",
    ),
}


@pytest.mark.regression
@pytest.mark.parametrize("what", WRONG)
def test_a_list_that_gives_a_container_the_id_of_another(small_node: SmallNode, what: str) -> None:
    """The newest dead copy or sandbox of a live pod, listed as that of one that is gone, stays: its
    status says whose it is. Nor is one that is listed twice its own newer copy, nor are containers
    without names copies of each other."""
    method, lie, keeps, reason = WRONG[what]
    kept = keeps(small_node)
    small_node.gone_pod("gone")
    small_node.failpoints[method] = lie
    record = relieve(small_node.node(), EVERYTHING)
    assert set(kept).isdisjoint(small_node.removed())
    assert reason == "" or {reason_of(record, each) for each in kept} == {reason}


@pytest.mark.regression
@pytest.mark.parametrize(
    ("method", "lie", "result"),
    [
        pytest.param(
            "ListPodSandbox", Distort(Distortion.SHORT_IDS), "already_gone", id="short id"
        ),
        pytest.param("PodSandboxStatus", Distort(Distortion.EMPTY_IDS), "failed", id="no id"),
        pytest.param("PodSandboxStatus", Pretend(), "failed", id="no status"),
    ],
)
def test_a_sandbox_of_which_its_status_says_nothing_is_not_gone(
    small_node: SmallNode, method: str, lie: Failpoint, result: str
) -> None:
    """An answer without a status is neither there nor gone; and six characters in a list once
    removed the sandbox that began so: now its status must answer with the very id. Nothing is
    sent."""
    small_node.gone_pod("gone")
    small_node.failpoints[method] = lie
    record = relieve(small_node.node(), EVERYTHING)
    assert small_node.failpoints.calls["RemovePodSandbox"] == 0
    (outcome,) = [each for each in record.removals if each.verdict.kind == "sandbox"]
    assert str(outcome.result) == result
    assert ("without a status" in outcome.error) is (result == "failed")
