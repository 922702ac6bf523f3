"""Which containers and sandboxes never go: the runtime protects nothing, so every guard here is the
agent's own. Directories that are not the kubelet's make no pod gone: empty ones, another root, one
exchanged meanwhile; and that is told in plan, status, doctor, log and metrics, in one sentence.
"""

from __future__ import annotations

import re
import shutil
from typing import Any

import pytest
import yaml

from eviction.drill.private_mounts import unmount
from reclaim.cri import cri_pb2 as pb
from signals.types import Signal
from tests.nodes.small_node import (
    AN_HOUR,
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
from tests.sockets.kubelet_server import KubeletServer, pod_list
from tests.sockets.kubelet_server import answer as served
from tests.sockets.mounts import mounted_tmpfs
from tests.sockets.passes import fault, interrupted, reworded
from tests.sockets.stage import Stage

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
            small_node.failpoints[method] = fault(f"Distort {lie}")
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


def test_a_list_that_lags_does_not_kill_a_running_container(small_node: SmallNode) -> None:
    """RemoveContainer kills what runs: a list that still calls it EXITED is not believed, its
    status is asked."""
    pod = small_node.run_pod("web")
    running = small_node.run(pod)
    small_node.runtime.age(running, 600)
    small_node.vanish(pod)

    def lag(answer: Any) -> None:
        for item in answer.containers:
            item.state = pb.CONTAINER_EXITED

    record = reworded(small_node, CONTAINERS, ListContainers=lag)
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


@rows("""
    what      | method           | lie               | result
    short id  | ListPodSandbox   | Distort SHORT_IDS | already_gone
    no id     | PodSandboxStatus | Distort EMPTY_IDS | failed
    no status | PodSandboxStatus | Pretend           | failed
""")
def test_a_sandbox_of_which_its_status_says_nothing_is_not_gone(
    small_node: SmallNode, method: str, lie: str, result: str
) -> None:
    """An answer without a status is neither there nor gone; and six characters in a list once
    removed the sandbox that began so: now its status must answer with the very id. Nothing is
    sent."""
    small_node.gone_pod("gone")
    small_node.failpoints[method] = fault(lie)
    record = relieve(small_node.node(), EVERYTHING)
    assert small_node.failpoints.calls["RemovePodSandbox"] == 0
    (outcome,) = [each for each in record.removals if each.verdict.kind == "sandbox"]
    assert str(outcome.result) == result
    assert ("without a status" in outcome.error) is (result == "failed")


# ---- directories that are not the kubelet's


DISGUISES: dict[str, str] = yaml.safe_load("""
pods empty: pods directory
pods missing: pods nothing
pods foreign: pods directory uid-of-another-node
pods mounted over: pods mount
root missing: . nothing
root empty: . directory
root with pods empty: . directory pods
root foreign: . directory pods pods/uid-of-another-node
root mounted over: . mount
root mounted over, with pods empty: . mount pods
""")
"""What is in the place of the kubelet's directories: at which path, how, and what it contains. The
kubelet's disk is not mounted and nobody has made anything below its mount point, or a CSI driver
has; the kubelet runs with another `--root-dir`."""
OF_THE_ROOT = ["root with pods empty", "root foreign", "root empty"]


def disguise(node: SmallNode, how: str) -> None:
    """From now on something else is in the place of the kubelet's directories."""
    where, kind, *content = DISGUISES[how].split()
    target = node.root_directory / where
    if kind == "mount":
        mounted_tmpfs(str(target), MIB, 64)
    else:
        target.rename(node.disk / "aside")
    if kind == "directory":
        target.mkdir()
    for name in content:
        (target / name).mkdir()


def unveil(node: SmallNode, how: str) -> None:
    """They are back; nothing was changed in what was in their place."""
    where, kind, *content = DISGUISES[how].split()
    target = node.root_directory / where
    unchanged = all((target / name).is_dir() for name in content)
    if kind == "mount":
        unmount(str(target))
    else:
        shutil.rmtree(target, ignore_errors=True)
        (node.disk / "aside").rename(target)
    assert unchanged


class Populated:
    """A pod that runs, with a copy that has crashed twice, one that is over, and one that is gone."""

    def __init__(self, node: SmallNode):
        self.node = node
        self.web, self.job = node.run_pod("web"), node.run_pod("job")
        self.running, self.over = node.run(self.web), node.exited(self.job)
        self.newer = [node.exited(self.web, name="side", attempt=each) for each in range(2)][-1]
        self.gone = node.gone_pod("gone")
        node.log("gone", self.gone)


@pytest.fixture
def populated(small_node: SmallNode) -> Populated:
    """A small node with pods in all states."""
    return Populated(small_node)


@pytest.mark.parametrize("damage", [*OF_THE_ROOT, "copied"])
def test_a_root_that_is_exchanged_after_the_plan_removes_nothing(
    populated: Populated, damage: str
) -> None:
    """Neither the container that is being checked, nor the next one, nor their sandboxes; nor if the
    same names are on another disk now, with other inodes."""
    node, other = populated.node, populated.node.gone_pod("gone-too")

    def exchanged() -> None:
        if damage in DISGUISES:
            disguise(node, damage)
        else:
            node.root_directory.rename(node.disk / "old")
            shutil.copytree(node.disk / "old", node.root_directory)

    record = interrupted(node, node.node(), CONTAINERS, "ContainerStatus", exchanged)
    assert {populated.gone, other} <= node.containers()
    assert node.removed("sandbox") == []
    assert reason_of(record, other) == "pod_unknown"


@pytest.mark.parametrize("how", DISGUISES)
@pytest.mark.parametrize("booted", [True, False])
def test_nothing_of_a_pod_goes_while_something_else_is_in_the_place_of_its_directory(
    small_node: SmallNode, how: str, booted: bool
) -> None:
    """A pod whose container has ended and whose sandbox has died, beside one that runs, or after a
    boot: nor when the right ones are back; images go. When it is deleted it goes."""
    pod = small_node.run_pod("ended")
    container = small_node.exited(pod)
    log = small_node.log("ended", container)
    small_node.runtime.kill_sandbox(pod.sandbox_id)
    running = small_node.run_pod("web")
    for each in (pod.sandbox_id, running.sandbox_id, small_node.run(running)):
        small_node.runtime.age(each, AN_HOUR)
    (image,) = small_node.add_images(1)
    product = small_node.node()
    if booted:
        small_node.runtime.reboot()
    disguise(small_node, how)
    try:
        relieve(product, EVERYTHING)
    finally:
        unveil(small_node, how)
    relieve(product, EVERYTHING)
    assert small_node.removed("container") == small_node.removed("sandbox") == []
    assert (log.exists(), image in small_node.images()) == (True, False)
    small_node.forget(pod.uid)
    relieve(product, EVERYTHING)
    assert booted or small_node.removed("container") == [container]
    assert booted or small_node.removed("sandbox") == [pod.sandbox_id]
    assert booted or not log.exists()


# ---- beside the kubelet's list


def listed(pod: Pod, phase: str = "Running") -> dict[str, object]:
    """A pod as the kubelet lists it, from the API server."""
    annotations = {"kubernetes.io/config.source": "api"}
    return {"metadata": {"uid": pod.uid, "annotations": annotations}, "status": {"phase": phase}}


@pytest.mark.parametrize("told", [False, True])
def test_a_drained_node_keeps_its_remains(small_node: SmallNode, told: bool) -> None:
    """Nothing has a directory any more, which looks as if the directories were not the kubelet's;
    unless its list, which is complete as it has a pod of the API server, has none that would need
    one."""
    pod = small_node.run_pod("last")
    dead = small_node.exited(pod)
    small_node.runtime.kill_sandbox(pod.sandbox_id)
    small_node.forget(pod.uid)
    rejected = listed(Pod("rejected", "uid-rejected", ""), "Failed")
    with KubeletServer(served(pod_list(rejected))) as kubelet:
        node = small_node.node(kubeletEndpoint=kubelet.url if told else "")
        record = relieve(node, EVERYTHING)
    assert reason_of(record, dead) == ("pod_gone" if told else "pod_unknown")
    assert (dead in small_node.containers()) is not told


@pytest.mark.parametrize("damage", OF_THE_ROOT)
def test_the_kubelets_list_replaces_no_directories(populated: Populated, damage: str) -> None:
    """What it does not list is not gone; what it lists as terminated goes as ever, if directories
    can be read."""
    node = populated.node
    disguise(node, damage)
    pods = pod_list(listed(populated.web), listed(populated.job, "Succeeded"))
    with KubeletServer(served(pods)) as kubelet:
        relieve(node.node(kubeletEndpoint=kubelet.url), CONTAINERS)
    assert {populated.running, populated.newer, populated.gone} <= node.containers()
    assert (populated.over in node.containers()) is (damage == "root empty")
    assert node.logs_of("gone").exists()


# ---- where it is told


def test_a_daemon_tells_it_everywhere_and_takes_it_back(stage: Stage) -> None:
    """After a pass on request. Whether the directories were others before only the daemon knows: a
    command by itself has seen no others."""
    stage.plays()
