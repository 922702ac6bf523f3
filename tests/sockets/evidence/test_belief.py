"""Directories that are not the kubelet's make no pod gone: empty ones, another root, one exchanged
meanwhile; and that is told in plan, status, doctor, log and metrics, in one sentence.
"""

from __future__ import annotations

import shutil

import pytest

from eviction.drill.private_mounts import unmount
from tests.nodes.small_node import (
    AN_HOUR,
    CONTAINERS,
    EVERYTHING,
    MIB,
    Pod,
    SmallNode,
    reason_of,
    relieve,
)
from tests.sockets.kubelet_server import KubeletServer, pod_list
from tests.sockets.kubelet_server import answer as served
from tests.sockets.mounts import mounted_tmpfs
from tests.sockets.passes import interrupted
from tests.sockets.stage import Stage

FOREIGN = "uid-of-another-node"
DISGUISES = {
    "pods empty": "pods directory",
    "pods missing": "pods nothing",
    "pods foreign": f"pods directory {FOREIGN}",
    "pods mounted over": "pods mount",
    "root missing": ". nothing",
    "root empty": ". directory",
    "root with pods empty": ". directory pods",
    "root foreign": f". directory pods pods/{FOREIGN}",
    "root mounted over": ". mount",
    "root mounted over, with pods empty": ". mount pods",
}
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


@pytest.mark.regression
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


@pytest.mark.regression
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


@pytest.mark.regression
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


@pytest.mark.regression
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


@pytest.mark.regression
def test_a_daemon_tells_it_everywhere_and_takes_it_back(stage: Stage) -> None:
    """After a pass on request. Whether the directories were others before only the daemon knows: a
    command by itself has seen no others."""
    stage.plays()
