"""Directories that are not the kubelet's make no pod gone: empty ones, another
root, one exchanged meanwhile.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from eviction.drill.runtime.private_mounts import unmount
from eviction.engine.node import Node
from tests.nodes.faults import Hang
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
from tests.sockets.kubelet_server import KubeletServer, answer, pod_list
from tests.sockets.mounts import mounted_tmpfs

FROM_API = {"kubernetes.io/config.source": "api"}


def empty(node: SmallNode) -> None:
    """The kubelet's disk is not mounted, and a CSI driver has made an empty
    `pods` below its mount point.
    """
    node.root_directory.rename(node.disk / "unmounted")
    (node.root_directory / "pods").mkdir(parents=True)


def foreign(node: SmallNode) -> None:
    """The kubelet runs with another `--root-dir`; here are directories of
    pods that are long forgotten.
    """
    empty(node)
    node.admit("uid-forgotten")


def missing(node: SmallNode) -> None:
    """The kubelet's disk is not mounted, and nobody has made anything below its mount point."""
    node.root_directory.rename(node.disk / "unmounted")
    node.root_directory.mkdir()


def mounted_again(node: SmallNode) -> None:
    """The kubelet's own directories are back."""
    shutil.rmtree(node.root_directory)
    (node.disk / "unmounted").rename(node.root_directory)


def copied(node: SmallNode) -> None:
    """The kubelet's directories are on another disk now: the same names, other inodes."""
    node.root_directory.rename(node.disk / "old")
    shutil.copytree(node.disk / "old", node.root_directory)


Damage = Callable[[SmallNode], None]
DAMAGES = pytest.mark.parametrize("damage", [empty, foreign, missing])


class Populated:
    """A pod that runs, one that has crashed, one that is over, one that is gone, each with logs."""

    def __init__(self, node: SmallNode):
        self.node = node
        self.web, self.job = node.run_pod("web"), node.run_pod("job")
        self.running = node.run(self.web)
        self.crashed, self.newer = (
            node.exited(self.web, name="side"),
            node.exited(self.web, name="side", attempt=1),
        )
        self.over = node.exited(self.job)
        self.gone = node.gone_pod("gone")
        for name, each in (("web", self.running), ("job", self.over), ("gone", self.gone)):
            node.log(name, each)
        (self.image,) = node.add_images(1)

    def dies(self) -> None:
        """The machine boots again: nothing runs."""
        self.node.runtime.reboot()

    def kept(self) -> set[str]:
        """What must stay while nothing is known: all but the older copy, which
        no directory decides about.
        """
        return {self.running, self.newer, self.over, self.gone}


@pytest.fixture
def populated(small_node: SmallNode) -> Populated:
    """A small node with pods in all states."""
    return Populated(small_node)


@pytest.mark.regression
@DAMAGES
@pytest.mark.parametrize("booted", [True, False])
def test_without_the_kubelets_directories_nothing_is_gone(
    populated: Populated, damage: Damage, booted: bool
) -> None:
    """No container, sandbox or log of a pod goes, after a boot or without one; an
    older copy and an image do.
    """
    node = populated.node
    if booted:
        populated.dies()
    damage(node)
    logs = sorted(path for path in node.pod_logs_dir.rglob("*") if path.is_file())
    relieve(node.node(), EVERYTHING)
    assert populated.kept() <= node.containers()
    assert populated.crashed not in node.containers()
    assert node.removed("sandbox") == []
    assert populated.image not in node.images()
    assert logs == sorted(path for path in node.pod_logs_dir.rglob("*") if path.is_file())


FOREIGN = "uid-of-another-node"

DISGUISES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "pods empty": ("pods", "directory", ()),
    "pods missing": ("pods", "nothing", ()),
    "pods foreign": ("pods", "directory", (FOREIGN,)),
    "pods mounted over": ("pods", "mount", ()),
    "root missing": ("", "nothing", ()),
    "root empty": ("", "directory", ()),
    "root without pods": ("", "directory", ("pods",)),
    "root foreign": ("", "directory", ("pods", f"pods/{FOREIGN}")),
    "root mounted over": ("", "mount", ()),
    "root mounted over, without pods": ("", "mount", ("pods",)),
}
"""What is in the place of the kubelet's directories: at which path, how, and what it contains."""


@contextmanager
def disguised(node: SmallNode, disguise: str) -> Iterator[None]:
    """Meanwhile something else is in the place of the kubelet's directories, in
    which nothing is changed.
    """
    where, kind, content = DISGUISES[disguise]
    target, aside = node.root_directory / where, node.disk / "aside"
    if kind == "mount":
        mounted_tmpfs(str(target), MIB, 64)
    else:
        target.rename(aside)
    if kind == "directory":
        target.mkdir()
    for name in content:
        (target / name).mkdir()
    try:
        yield
        assert all((target / name).is_dir() for name in content)
    finally:
        if kind == "mount":
            unmount(str(target))
        else:
            shutil.rmtree(target, ignore_errors=True)
            aside.rename(target)


@pytest.mark.regression
@pytest.mark.parametrize("disguise", DISGUISES)
def test_nothing_of_a_pod_goes_while_something_else_is_in_the_place_of_its_directory(
    small_node: SmallNode, disguise: str
) -> None:
    """A pod whose container has ended and whose sandbox has died, beside one that runs: nor when
    the right ones are back. When it is deleted it goes."""
    pod = small_node.run_pod("ended")
    container = small_node.exited(pod)
    log = small_node.log("ended", container)
    small_node.runtime.kill_sandbox(pod.sandbox_id)
    running = small_node.run_pod("web")
    for each in (pod.sandbox_id, running.sandbox_id, small_node.run(running)):
        small_node.runtime.age(each, AN_HOUR)
    product = small_node.node()
    with disguised(small_node, disguise):
        relieve(product, EVERYTHING)
    relieve(product, EVERYTHING)
    assert small_node.removed("container") == small_node.removed("sandbox") == []
    assert log.exists()
    small_node.forget(pod.uid)
    relieve(product, EVERYTHING)
    assert small_node.removed("container") == [container]
    assert small_node.removed("sandbox") == [pod.sandbox_id]
    assert not log.exists()


def test_after_a_boot_the_kubelets_directories_are_believed(populated: Populated) -> None:
    """Nothing runs, and the pods have their directories: what is gone goes."""
    populated.dies()
    record = relieve(populated.node.node(), CONTAINERS)
    assert reason_of(record, populated.gone) == "pod_gone"
    assert populated.kept() - populated.node.containers() == {populated.gone}


@pytest.mark.regression
@pytest.mark.parametrize("damage", [empty, foreign, missing, copied])
def test_a_root_that_is_exchanged_after_the_plan_removes_nothing(
    populated: Populated, damage: Damage
) -> None:
    """Neither the container that is being checked, nor the next one, nor their sandboxes."""
    node, other = populated.node, populated.node.gone_pod("gone-too")
    node.failpoints["ContainerStatus"] = Hang(times=1)
    with node.relieving(node.node(), CONTAINERS) as going:
        node.wait_for("ContainerStatus")
        damage(node)
        node.failpoints.clear()
        record = going.result()
    assert {populated.gone, other} <= node.containers()
    assert node.removed("sandbox") == []
    assert reason_of(record, other) == "pod_unknown"


def test_directories_that_come_back_are_believed_again(populated: Populated) -> None:
    """They are the same as before: the next pass removes what is gone."""
    node, product = populated.node, populated.node.node()
    missing(node)
    relieve(product, CONTAINERS)
    assert populated.gone in node.containers()
    mounted_again(node)
    relieve(product, CONTAINERS)
    assert populated.gone not in node.containers()


def settled(populated: Populated) -> None:
    """What runs has done so for an hour."""
    for each in (populated.running, populated.web.sandbox_id):
        populated.node.runtime.age(each, AN_HOUR)


def removed_after(node: SmallNode, product: Node, container_id: str) -> bool:
    """Whether a pass removes the container."""
    relieve(product, CONTAINERS)
    return container_id not in node.containers()


def test_another_root_is_believed_when_it_explains_what_runs(populated: Populated) -> None:
    """The kubelet's disk is mounted anew while the daemon runs: pods that run
    have their directories in it.
    """
    node, product = populated.node, populated.node.node()
    settled(populated)
    assert removed_after(node, product, populated.gone)
    copied(node)
    assert removed_after(node, product, node.gone_pod("gone-later"))


@pytest.mark.regression
def test_another_root_is_not_believed_while_nothing_runs(populated: Populated) -> None:
    """It may hold the directories of long ago.

    A pod that runs in it for a while proves it, and so does a restart.
    """
    node, product = populated.node, populated.node.node()
    assert removed_after(node, product, populated.gone)
    copied(node)
    later = node.gone_pod("gone-later")
    populated.dies()
    assert not removed_after(node, product, later)
    again = node.run_pod("again")
    assert not removed_after(node, product, later), "it has just begun"
    node.runtime.age(again.sandbox_id, AN_HOUR)
    assert removed_after(node, product, later)


def test_a_restart_believes_another_root_as_it_is(populated: Populated) -> None:
    """A new process has believed in none before: pods that the runtime
    holds have their directories.
    """
    node = populated.node
    copied(node)
    populated.dies()
    assert removed_after(node, node.node(), populated.gone)


@pytest.mark.regression
def test_a_drained_node_keeps_its_remains(small_node: SmallNode) -> None:
    """Nothing has a directory any more, which looks as if the directories were not
    the kubelet's: images go.
    """
    pod = small_node.run_pod("last")
    dead = small_node.exited(pod)
    small_node.runtime.kill_sandbox(pod.sandbox_id)
    small_node.forget(pod.uid)
    (image,) = small_node.add_images(1)
    record = relieve(small_node.node(), EVERYTHING)
    assert dead in small_node.containers()
    assert reason_of(record, dead) == "pod_unknown"
    assert image not in small_node.images()


def listed(pod: Pod, phase: str = "Running") -> dict[str, object]:
    """A pod as the kubelet lists it, from the API server."""
    return {"metadata": {"uid": pod.uid, "annotations": FROM_API}, "status": {"phase": phase}}


def test_on_a_drained_node_the_kubelets_list_explains_it(small_node: SmallNode) -> None:
    """It has a pod of the API server, so it is complete, and it lists none
    that would need a directory.
    """
    pod = small_node.run_pod("last")
    dead = small_node.exited(pod)
    small_node.runtime.kill_sandbox(pod.sandbox_id)
    small_node.runtime.age(pod.sandbox_id, AN_HOUR)
    small_node.forget(pod.uid)
    rejected = listed(Pod("rejected", "uid-rejected", ""), "Failed")
    with KubeletServer(answer(pod_list(rejected))) as kubelet:
        assert removed_after(small_node, small_node.node(kubeletEndpoint=kubelet.url), dead)


@pytest.mark.regression
@DAMAGES
@pytest.mark.parametrize("extent", ["all", "enough"])
def test_the_kubelets_list_replaces_no_directories(
    populated: Populated, damage: Damage, extent: str
) -> None:
    """What it does not list is not gone; what it lists as terminated goes as ever,
    if directories can be read.
    """
    node = populated.node
    damage(node)
    pods = pod_list(listed(populated.web), listed(populated.job, "Succeeded"))
    with KubeletServer(answer(pods)) as kubelet:
        relieve(node.node(kubeletEndpoint=kubelet.url, extent=extent), CONTAINERS)
    assert {populated.running, populated.newer, populated.gone} <= node.containers()
    assert (populated.over in node.containers()) is (damage is missing)
    assert (node.logs_of("gone")).exists()
