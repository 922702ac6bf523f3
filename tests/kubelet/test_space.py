"""Beside a real kubelet, on one, two and split filesystems: it and reclaimd read the same, the same
goes, and with reclaimd it has nothing to do.

Two nodes, one after the other, with the same images and pods, are compared by name. On the first
only the kubelet has pressure to answer; on the second reclaimd answers above the kubelet's mark.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.kubelet import manifests
from tests.kubelet.api import Api
from tests.kubelet.control_plane import ControlPlane
from tests.kubelet.kubelet import CONTAINER_LOG_LINKS, KubeletSettings
from tests.kubelet.manifests import APP
from tests.kubelet.node import (
    DEFAULTS,
    GIB,
    MIB,
    PODS,
    KubeletNode,
    kubelet_fields,
    kubelet_node,
    pod_of,
    unused,
)
from tests.lab.duel import duel
from tests.real_node.crio import crio_program
from tests.real_node.fill import fill_bytes
from tests.real_node.oci import BASE, Image, random_layer
from tests.reclaimd_process import answer, reclaimd
from tests.rows import rows

NODEFS, IMAGEFS = "nodefs.available", "imagefs.available"
WRITTEN_MEANWHILE = MIB  # at most, by the logs of the kubelet's node and by the runtime's database
ABOVE, BELOW = 100 * MIB, 40 * MIB  # our mark above the kubelet's; each fill ends below a mark
ENOUGH = "able to reduce resource pressure without evicting pods"
FAILS_ONCE = "[ -e /c/1 ] && sleep 1000000000; echo >/c/1; exit 1"
FINISHED = ("done-0", "done-1", "failed")
# the log of the pod that is done: what its container frees of the kubelet's filesystem
LINE = "a line that says nothing, but is as long as a line of a log may well be"
TALKS = f"yes {LINE} | head -c {60 * MIB}"
OF_TWINS = [
    Image("reclaimd.test/first:1", (BASE, random_layer(1, MIB))),
    *(
        Image(f"reclaimd.test/{name}:1", (BASE, random_layer(10 + at, 8 * MIB)))
        for at, name in enumerate(FINISHED)
    ),
    *unused(5, 30 * MIB),
]
FEW = unused(4, 20 * MIB)  # containerd holds each twice: as a blob, and as a snapshot


def need_a_runtime_for(layout: str) -> None:
    """Skips the test where the runtime cannot have this layout."""
    if layout == "split" and crio_program() is None:
        pytest.skip("only CRI-O keeps images apart from writable layers (CRIO=)")


# ---- what both read


def filesystem_of(node: KubeletNode, signal: str) -> Path:
    """Where the filesystem behind a signal is mounted."""
    apart = node.image_filesystem if signal.startswith("imagefs") else None
    return (apart or node.filesystem).mountpoint


def fill(node: KubeletNode, signal: str, until: int) -> None:
    """Until so many bytes are available."""
    fill_bytes(filesystem_of(node, signal) / "fill", until, fast=True).wait(60.0)


def by_reclaimd(file: str) -> tuple[dict[str, tuple[int, int]], str]:
    """Available and capacity of each signal, and the layout."""
    check = answer(reclaimd("check", "--config", file, "-o", "json"))
    seen = check["observations"]
    return {each["signal"]: (each["available"], each["capacity"]) for each in seen}, check["layout"]


def by_the_kubelet(kubelet: Api) -> dict[str, tuple[int, int]]:
    """The same of its summary."""
    summary, found = kubelet.get("/stats/summary")["node"], {}
    for name, block in (
        ("nodefs", summary["fs"]),
        ("imagefs", summary["runtime"]["imageFs"]),
        ("containerfs", summary["runtime"]["containerFs"]),
    ):
        found[f"{name}.available"] = (block["availableBytes"], block["capacityBytes"])
        found[f"{name}.inodesFree"] = (block["inodesFree"], block["inodes"])
    return found


@pytest.mark.parametrize("layout", ["dedicated-imagefs", "split"])
def test_the_kubelets_summary_and_our_observations_are_the_same(
    plane: ControlPlane, tmp_path: Path, layout: str
) -> None:
    """Bytes and inodes, also after each filesystem was filled by an amount of its own. All
    capacities are equal, and what is available is but for what was written meanwhile."""
    need_a_runtime_for(layout)
    filled = {NODEFS: 300 * MIB, IMAGEFS: 100 * MIB}
    with two_filesystems(tmp_path / "node", plane, DEFAULTS, split=layout == "split") as node:
        file, kubelet = node.configured(), node.asking("nodes/stats")
        first, ours = by_reclaimd(file), dict[str, tuple[int, int]]()
        assert first[1] == layout

        def agree() -> bool:
            ours.update(by_reclaimd(file)[0])
            theirs = by_the_kubelet(kubelet)
            assert {signal: theirs[signal][1] for signal in ours} == {
                signal: capacity for signal, (_, capacity) in ours.items()
            }
            apart = (abs(available - theirs[signal][0]) for signal, (available, _) in ours.items())
            return max(apart) <= WRITTEN_MEANWHILE

        node.api.wait("they agree", agree, 60.0)
        for signal, amount in filled.items():
            fill(node, signal, ours[signal][0] - amount)
        node.api.wait("they agree after the fill", agree, 60.0)
        for signal, amount in filled.items():
            assert abs(first[0][signal][0] - amount - ours[signal][0]) <= WRITTEN_MEANWHILE


@contextmanager
def two_filesystems(
    directory: Path,
    plane: ControlPlane,
    thresholds: dict[str, str],
    *,
    split: bool,
) -> Iterator[KubeletNode]:
    """A node with a filesystem for images, of which nobody uses four, one pod that runs, and, where
    layers are on the other filesystem, one that is done and has a long log."""
    settings = KubeletSettings(thresholds, {"containerLogMaxSize": "1Gi"})
    size, images = GIB if split else 2 * GIB, [Image(APP, (BASE,)), *FEW]
    with kubelet_node(
        directory, plane, settings, size, images=images, image_size_bytes=GIB, split=split
    ) as node:
        node.create(manifests.running("serves", APP), "Running")
        if split:
            talks = manifests.container("works", APP, (*manifests.SHELL, TALKS))
            node.create(manifests.pod("done", talks, restart="Never"), "Succeeded")
        yield node


# ---- what is left


Left = dict[str, set[Any]]
"""What a node holds, by name: `containers`, `sandboxes`, `images`, and `logs`, the files below the
pods' log directories, without the pods' UIDs.

The sandbox image is left out: where the runtime does not pin it the kubelet removes it, and reclaimd
does not.
"""


def left_on(node: KubeletNode) -> Left:
    """What the runtime and the directories of logs hold now."""
    cri, root = node.runtime.cri, node.kubelet.pod_logs

    def without_uid(path: Path) -> str:
        pod, *rest = path.relative_to(root).parts
        return "/".join((pod.rpartition("_")[0], *rest))

    return {
        "containers": {
            (pod_of(each), each.metadata.name, each.metadata.attempt, each.state)
            for each in cri.list_containers()
        },
        "sandboxes": {
            (each.metadata.name, each.metadata.attempt, each.state) for each in cri.list_sandboxes()
        },
        "images": cri.image_tags() - {node.runtime.sandbox_image},
        "logs": set(map(without_uid, root.rglob("*"))),
    }


def make_pods(node: KubeletNode) -> None:
    """Running, restarted, with an init container, finished, deleted; and two static ones,
    one of which has finished.
    """
    for static in (manifests.running("static", APP), manifests.completed("once", APP)):
        name = static["metadata"]["name"]
        (node.kubelet.static_pods / f"{name}.json").write_text(json.dumps(static))
    fails = manifests.container("works", "reclaimd.test/failed:1", (*manifests.SHELL, "exit 3"))
    again = manifests.container(
        "serves",
        APP,
        (*manifests.SHELL, FAILS_ONCE),
        volumeMounts=[{"name": "c", "mountPath": "/c"}],
    )
    for pod, phase in (
        (manifests.running("serves", APP), "Running"),
        (manifests.running("deleted", APP), "Running"),
        (manifests.with_init("prepared", APP, "reclaimd.test/first:1"), "Running"),
        (manifests.completed("done-0", "reclaimd.test/done-0:1"), "Succeeded"),
        (manifests.completed("done-1", "reclaimd.test/done-1:1"), "Succeeded"),
        (manifests.pod("failed", fails, restart="Never"), "Failed"),
    ):
        node.create(pod, phase)
    node.create(manifests.pod("restarted", again, volumes=[{"name": "c", "emptyDir": {}}]))
    node.wait_for_phase("static-127.0.0.1", "Running")
    node.wait_for_phase("once-127.0.0.1", "Succeeded")

    def runs_again() -> bool:
        (status,) = node.api.get(f"{PODS}/restarted")["status"]["containerStatuses"]
        return status["restartCount"] == 1 and "running" in status["state"]

    node.api.wait("it runs for the second time", runs_again, 90.0)
    directory = node.kubelet.root / "pods" / node.api.pods()["deleted"]["metadata"]["uid"]
    node.api.delete(f"{PODS}/deleted")
    # until then it exists for reclaimd
    node.api.wait("its directory is gone", lambda: not directory.exists(), 60.0)


def dangling_links(node: KubeletNode) -> list[str]:
    """The links to logs of this node that are not there. (Of the others some may be
    missing: a kubelet removes those whose target it does not see, and all kubelets of a
    machine share the directory.)"""
    logs, links = str(node.kubelet.pod_logs), CONTAINER_LOG_LINKS.glob("*.log")
    return [link.name for link in links if logs in os.readlink(link) and not link.exists()]


def by_the_kubelet_alone(node: KubeletNode, signal: str, mark: int) -> None:
    """Waits until it has made room; it says so when that was enough."""
    fill(node, signal, mark - BELOW)
    node.api.wait("the kubelet makes room", lambda: ENOUGH in node.kubelet.log_text(), 90.0)


def by_reclaimd_before(node: KubeletNode, signal: str, mark: int) -> None:
    """One pass, above the kubelet's mark."""
    hard = {signal: str(mark + ABOVE)}
    file = node.configured(**kubelet_fields(node), extent="all", evictionHard=hard)
    fill(node, signal, mark + ABOVE - BELOW)
    done = reclaimd("reclaim", "--config", file, "--now")
    assert done.returncode == 0, done.stdout + done.stderr
    assert ENOUGH not in node.kubelet.log_text()
    assert not node.conditions()["DiskPressure"]


Relieve = Callable[[KubeletNode, str, int], None]


def relieved(
    directory: Path, plane: ControlPlane, signal: str, relieve: Relieve, *, split: bool
) -> tuple[Left, Left]:
    """What is there on a new node before somebody makes room, and what is left."""
    mark = (300 if split else 600) * MIB
    with ExitStack() as stack:
        if split:
            made = two_filesystems(directory, plane, {signal: str(mark)}, split=True)
            node = stack.enter_context(made)
        else:
            settings, images = (
                KubeletSettings({signal: str(mark)}),
                [Image(APP, (BASE,)), *OF_TWINS],
            )
            node = stack.enter_context(kubelet_node(directory, plane, settings, images=images))
            make_pods(node)
        before = left_on(node)
        relieve(node, signal, mark)
        assert node.evicted() == []
        assert split or dangling_links(node) == []
        return before, left_on(node)


@pytest.mark.timeout(300)
@rows("""
    signal            | split | few | pods                                     | what
    imagefs.available |       |     | [done-0, done-1, failed, once-127.0.0.1] | one filesystem
    imagefs.available | yes   | yes | []                                       | split, images
    nodefs.available  | yes   |     | [done]                                   | split, layers
""")
def test_the_same_goes_as_when_the_kubelet_itself_makes_room(
    plane: ControlPlane, tmp_path: Path, signal: str, split: bool, few: bool, pods: list[str]
) -> None:
    """With `extent: all` and the kubelet's list: containers by pod, name and attempt; sandboxes,
    images and logs. Where images are on a filesystem of their own, and writable layers with the
    kubelet's data, each is relieved by what is on it: the few images that nobody uses, or the
    containers of these pods. No pod is evicted on either."""
    need_a_runtime_for("split" if split else "one")
    (before, left), ours = (
        relieved(tmp_path / name, plane, signal, relieve, split=split)
        for name, relieve in (("k", by_the_kubelet_alone), ("r", by_reclaimd_before))
    )
    assert ours[1] == left
    gone = {image.reference for image in FEW} if few else set()
    assert not split or (ours[0], left["images"]) == (before, before["images"] - gone)
    were, still = ({name for name, *_ in each["containers"]} for each in (before, left))
    assert "deleted" not in still
    assert were - still - {"deleted"} == {*pods}


# ---- a fill beside the kubelet


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("fstype", "rate_mib"), [("ext4", 50), ("xfs", 100)])
def test_with_reclaimd_beside_it_the_kubelet_has_nothing_to_do(
    plane: ControlPlane, tmp_path: Path, fstype: str, rate_mib: int
) -> None:
    """It never has pressure and no pod is evicted; what runs goes on running. On XFS, one file:
    with each doubling as much again as it has would be missing at once. On CRI-O, which keeps no
    content beside the layers, all unused images hold less than that: there, what runs still goes
    on. `make kubelet` has the table of both sides."""
    found = duel(tmp_path / "node", plane, rate_mib, fstype=fstype)
    assert found.restarted == ()
    assert found.first_freed_seconds is not None
    if fstype == "xfs" and crio_program() is not None:
        assert found.evicted in ((), ("fails-0",))  # its container crashes all the time
        return
    assert (found.pressure, found.evicted) == (False, ())
    assert fstype == "xfs" or found.lowest_bytes > found.mark_bytes
