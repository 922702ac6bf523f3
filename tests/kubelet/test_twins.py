"""With `extent: all` and the kubelet's list the same goes as when the
kubelet itself has to make room.

Two nodes, one after the other, with the same images and pods. On the first only the kubelet
has pressure to answer; on the second reclaimd answers above the kubelet's mark. What is
left is compared by name.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from reclaim.cri import cri_pb2
from tests.kubelet import manifests
from tests.kubelet.access import kubelet_fields
from tests.kubelet.control_plane import ControlPlane
from tests.kubelet.every_kind import MIB
from tests.kubelet.kubelet import CONTAINER_LOG_LINKS, KubeletSettings
from tests.kubelet.manifests import APP
from tests.kubelet.node import GIB, PODS, KubeletNode, kubelet_node
from tests.real_node.fill import fill_bytes
from tests.real_node.oci import BASE, Image, random_layer
from tests.reclaimd_process import reclaimd, write_configuration

KUBELETS_MARK = 600 * MIB
OWN_MARK = KUBELETS_MARK + 100 * MIB
FINISHED = ("done-0", "done-1", "failed")
IMAGES = [
    Image(APP, (BASE,)),
    Image("reclaimd.test/first:1", (BASE, random_layer(1, MIB))),
    *(
        Image(f"reclaimd.test/{name}:1", (BASE, random_layer(10 + at, 8 * MIB)))
        for at, name in enumerate(FINISHED)
    ),
    *(
        Image(f"reclaimd.test/unused:{number}", (BASE, random_layer(20 + number, 30 * MIB)))
        for number in range(5)
    ),
]
ENOUGH = "able to reduce resource pressure without evicting pods"
FAILS_ONCE = "[ -e /c/1 ] && sleep 1000000000; echo >/c/1; exit 1"


@dataclass(frozen=True)
class Left:
    """What a node holds, by name. `logs`: the files below the pods' log
    directories, without the pods' UIDs.

    The sandbox image is left out: where the runtime does not pin it the kubelet removes
    it, and reclaimd does not.
    """

    containers: frozenset[tuple[str, str, int, str]]
    sandboxes: frozenset[tuple[str, int, str]]
    images: frozenset[str]
    logs: frozenset[str]


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
    for pod in (
        manifests.running("serves", APP),
        manifests.running("deleted", APP),
        manifests.pod("restarted", again, volumes=[{"name": "c", "emptyDir": {}}]),
        manifests.with_init("prepared", APP, "reclaimd.test/first:1"),
        manifests.completed("done-0", "reclaimd.test/done-0:1"),
        manifests.completed("done-1", "reclaimd.test/done-1:1"),
        manifests.pod("failed", fails, restart="Never"),
    ):
        node.create(pod)
    for name in ("serves", "deleted", "prepared", "static-127.0.0.1"):
        node.wait_for_phase(name, "Running")
    for name in ("done-0", "done-1", "failed", "once-127.0.0.1"):
        node.wait_for_phase(name, "Succeeded", "Failed")

    def runs_again() -> bool:
        (status,) = node.api.get(f"{PODS}/restarted")["status"]["containerStatuses"]
        return status["restartCount"] == 1 and "running" in status["state"]

    node.api.wait("it runs for the second time", runs_again, 90.0)
    directory = node.kubelet.root / "pods" / node.api.pods()["deleted"]["metadata"]["uid"]
    node.api.delete(f"{PODS}/deleted")
    # until then it exists for reclaimd
    node.api.wait("its directory is gone", lambda: not directory.exists(), 60.0)


def left_on(node: KubeletNode) -> Left:
    """What the runtime and the directories of logs hold now."""
    cri = node.runtime.cri
    containers, sandboxes = cri_pb2.ContainerState.Name, cri_pb2.PodSandboxState.Name
    return Left(
        frozenset(
            (
                each.labels["io.kubernetes.pod.name"],
                each.metadata.name,
                each.metadata.attempt,
                containers(each.state),
            )
            for each in cri.list_containers()
        ),
        frozenset(
            (each.metadata.name, each.metadata.attempt, sandboxes(each.state))
            for each in cri.list_sandboxes()
        ),
        frozenset(tag for image in cri.list_images() for tag in image.repo_tags)
        - {node.runtime.sandbox_image},
        frozenset(
            _without_uid(path.relative_to(node.kubelet.pod_logs))
            for path in node.kubelet.pod_logs.rglob("*")
        ),
    )


def dangling_links(node: KubeletNode) -> list[str]:
    """The links to logs of this node that are not there. (Of the others some may be
    missing: a kubelet removes those whose target it does not see, and all kubelets of a
    machine share the directory.)"""
    links = [
        link
        for link in CONTAINER_LOG_LINKS.glob("*.log")
        if str(node.kubelet.pod_logs) in os.readlink(link)
    ]
    return [link.name for link in links if not link.exists()]


def _without_uid(path: Path) -> str:
    pod, *rest = path.parts
    return "/".join((pod.rpartition("_")[0], *rest))


def twin(
    directory: Path, plane: ControlPlane, available: int, purge: Callable[[KubeletNode], None]
) -> Left:
    """What is left on a new node on which so many bytes become available, and
    then somebody makes room.
    """
    settings = KubeletSettings({"imagefs.available": str(KUBELETS_MARK)})
    with kubelet_node(directory, plane, settings, 2 * GIB, images=IMAGES) as node:
        make_pods(node)
        before = left_on(node)
        assert {image.reference for image in IMAGES} <= before.images
        assert {name for name, *_ in before.containers} >= {*FINISHED, "once-127.0.0.1"}
        fill_bytes(node.disk / "ballast", available, fast=True).wait(60.0)
        purge(node)
        assert dangling_links(node) == []
        assert not [
            pod for pod in node.api.pods().values() if pod["status"].get("reason") == "Evicted"
        ]
        return left_on(node)


def by_the_kubelet(node: KubeletNode) -> None:
    """Waits until it has made room; it says so when that was enough."""
    node.api.wait("the kubelet makes room", lambda: ENOUGH in node.kubelet.log_text(), 90.0)


def by_reclaimd(node: KubeletNode) -> None:
    """One pass, above the kubelet's mark."""
    configuration = write_configuration(
        node.disk.parent / "reclaimd.yaml",
        **node.reclaimd_fields(),
        **kubelet_fields(node),
        extent="all",
        evictionHard={"imagefs.available": str(OWN_MARK)},
    )
    done = reclaimd("reclaim", "--config", str(configuration), "--now")
    assert done.returncode == 0, done.stdout + done.stderr
    assert ENOUGH not in node.kubelet.log_text()
    assert not node.conditions()["DiskPressure"]


def test_what_is_left_is_the_same(plane: ControlPlane, tmp_path: Path) -> None:
    """Containers by pod, name and attempt; sandboxes, images and logs.

    No pod is evicted on either.
    """
    kubelets = twin(tmp_path / "k", plane, KUBELETS_MARK - 40 * MIB, by_the_kubelet)
    assert twin(tmp_path / "r", plane, OWN_MARK - 40 * MIB, by_reclaimd) == kubelets
    assert not {name for name, *_ in kubelets.containers} & {*FINISHED, "once-127.0.0.1", "deleted"}
