"""Which containers and sandboxes never go: the runtime protects nothing, so every guard here is the
agent's own.
"""

from __future__ import annotations

import re
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
    Pod,
    SmallNode,
    outcome_of,
    reason_of,
    relieve,
    result_of,
)
from tests.rows import rows
from tests.sockets.conftest import SmallNodeFactory
from tests.sockets.passes import interrupted, reworded

THING = re.compile(r"(!?)(\w+)(?::([a-z]+)(\d?)([+~?*]?))?")


def remove(small: SmallNode, container_id: str) -> None:
    """Another program removes a container."""
    small.runtime.answer(pb.RemoveContainerRequest(container_id=container_id))


class Story:
    """A node with these pods and containers, the ids of which are known by `pod` and
    `pod:container`. A pod without a container has a dead sandbox; `!` is a pod that has gone; and a
    container has exited, or `+` runs, `~` was created, `?` is lost, `*` is not a kubelet's."""

    def __init__(self, small: SmallNode, text: str) -> None:
        self.small = small
        self.ids: dict[str, str] = {}
        pods: dict[str, Pod] = {}
        going: dict[str, Pod] = {}
        for gone, pod_name, name, attempt, state in THING.findall(text):
            pod = pods[pod_name] = pods.get(pod_name) or small.run_pod(pod_name)
            self.ids[pod_name] = pod.sandbox_id
            if gone:
                going[pod_name] = pod
            if name:
                made = self._made(pod, name, int(attempt or 0), state)
                self.ids[f"{pod_name}:{name}{attempt}"] = made
            else:
                small.runtime.kill_sandbox(pod.sandbox_id)
                small.runtime.age(pod.sandbox_id, 600)
        for pod in going.values():
            small.vanish(pod)

    def _made(self, pod: Pod, name: str, attempt: int, state: str) -> str:
        if state == "":
            return self.small.exited(pod, name=name, attempt=attempt)
        labels: dict[str, Any] = {"labels": {}} if state == "*" else {}
        made = self.small.create(pod, name=name, **labels)
        if state != "~":
            self.small.start(made)
        if state == "?":
            self.small.runtime.lose_container(made)
        elif state == "*":
            self.small.runtime.exit_container(made)
        self.small.runtime.age(made, 600)
        return made

    def happens(self, actions: str) -> None:
        """What somebody else does."""
        for action in actions.split(", "):
            what, _, name = action.partition(" ")
            if what == "remove":
                remove(self.small, self.ids[name])
            elif what == "admit":
                self.small.admit(f"uid-{name}")
            elif what == "boot":
                self.small.runtime.reboot()


@pytest.mark.regression
@rows("""
    pods                                          | beside                           | happens          | removed           | kept                                                    | what
    !web:app+                                     | -                                | -                | -                 | web:app=running web=has_containers                      | it runs
    !web:app~                                     | -                                | -                | -                 | web:app=created web=has_containers                      | it may start
    !web:app?                                     | -                                | -                | -                 | web:app=unknown_state web=has_containers                | it is lost
    !web:app*                                     | -                                | -                | -                 | web:app=not_kubelets web=has_containers                 | not a kubelet's
    !web:app web:side+                            | -                                | -                | -                 | web:app=pod_unknown                                     | another of its pod runs in a dead sandbox
    web:app0 web:app1 web:app2 web:init web:side+ | -                                | -                | web:app0 web:app1 | web:app2=newest_of_live_pod web:init=newest_of_live_pod | the newest copies are how the kubelet knows
    web:app db:app                                | -                                | boot             | -                 | web:app=newest_of_live_pod db:app=newest_of_live_pod    | everything is dead after a reboot
    web:app0 web:app1                             | ContainerStatus                  | remove web:app1  | web:app1          | web:app0=newest_of_live_pod                             | the newer copy vanishes
    !a:app !b:app                                 | RemoveContainer                  | admit b          | a:app a           | b:app=pod_alive                                         | its directory appears before its removal
    !a:app                                        | ContainerStatus                  | admit a          | -                 | a:app=pod_alive                                         | while the answer about it is slow
    !a:app                                        | ListPodSandbox                   | admit a          | -                 | a:app=newest_of_live_pod                                | between the lists
    !a !b                                         | RemovePodSandbox                 | admit a, admit b | a                 | b=pod_alive                                             | the next sandbox is not sent
    web:app !gone:app                             | ListContainers=ROTATED_IDS       | -                | ?                 | web:app                                                 | a container has the id of another
    web !gone:app                                 | ListPodSandbox=ROTATED_IDS       | -                | ?                 | web                                                     | a sandbox has the id of another
    web:app                                       | ListContainers=DUPLICATE_ENTRIES | -                | -                 | web:app=newest_of_live_pod                              | listed twice it is not its own newer copy
    web                                           | ListPodSandbox=DUPLICATE_ENTRIES | -                | -                 | web=newest_sandbox                                      | nor is a sandbox
    web:init web:app1                             | ListContainers=EMPTY_NAMES       | -                | -                 | web:init=not_kubelets web:app1=not_kubelets             | without names they are no copies
""")
def test_what_goes_and_what_stays_of_pods(
    small_node: SmallNode, pods: str, beside: str, happens: str, removed: str, kept: str
) -> None:
    """A pass, beside which something happens while a call is answered, or a list is wrong: what is
    removed, in order, and why the rest stays."""
    story = Story(small_node, pods)
    method, _, lie = beside.partition("=")
    node = small_node.node()
    if method == "-" or lie:
        if lie:
            small_node.failpoints[method] = Distort(Distortion[lie])
        story.happens(happens)
        record = relieve(node, EVERYTHING)
    else:
        record = interrupted(small_node, node, CONTAINERS, method, lambda: story.happens(happens))
    names = {each: name for name, each in story.ids.items()}
    gone = [names[each] for each in small_node.removed() if each in names]
    assert removed == "?" or " ".join(gone) == removed.replace("-", "")
    for name, _, reason in (each.partition("=") for each in kept.split()):
        assert name not in gone
        assert reason in ("", reason_of(record, story.ids[name])), name


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


# ---- ids


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
