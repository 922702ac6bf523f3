"""Pods that are deleted by force while they run: what they leave goes once the kubelet has
let go of them, not before.

The API server forgets such a pod at once, so for a while only the kubelet's directory says that it
exists; while no kubelet runs nobody removes that.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.kubelet import manifests
from tests.kubelet.access import kubelet_fields
from tests.kubelet.conftest import NodeMaker
from tests.kubelet.every_kind import MIB, SETTLED, make_pods_of_every_kind, restarts_of, statuses
from tests.kubelet.manifests import APP
from tests.kubelet.node import PODS, KubeletNode
from tests.real_node.oci import BASE, Image, random_layer
from tests.reclaimd_process import answer, reclaimd, write_configuration

OWN = "reclaimd.test/own:1"
FORCED, FORCED_AND_DONE = "forced", "forced-and-done"


@pytest.fixture
def node(make_node: NodeMaker) -> KubeletNode:
    """A node with a pod of each kind, and two more, one of which has finished, with an
    image that only they use.
    """
    made = make_node()
    make_pods_of_every_kind(made)
    made.import_images([Image(OWN, (BASE, random_layer(1, MIB)))])
    made.create(manifests.running(FORCED, OWN))
    made.create(manifests.completed(FORCED_AND_DONE, OWN))
    made.wait_for_phase(FORCED, "Running")
    made.wait_for_phase(FORCED_AND_DONE, "Succeeded")
    return made


def configured(node: KubeletNode, *, asks_the_kubelet: bool) -> Path:
    """A configuration for this node."""
    fields = kubelet_fields(node) if asks_the_kubelet else {}
    return write_configuration(
        node.disk.parent / "reclaimd.yaml", **node.reclaimd_fields(), **fields
    )


def purge(configuration: Path) -> list[dict[str, str]]:
    """What one pass to the end of the row has removed; it has to succeed."""
    done = reclaimd(
        "reclaim",
        "--config",
        str(configuration),
        "--signal",
        "imagefs.available",
        "--all",
        "--now",
        "-o",
        "json",
    )
    assert done.returncode == 0, done.stderr
    removals: list[dict[str, str]] = answer(done)["removals"]
    assert {each["result"] for each in removals} <= {"removed", "already_gone"}, done.stdout
    return removals


@contextmanager
def passes(configuration: Path) -> Iterator[None]:
    """One pass after another while the `with` block runs; at the end each must have succeeded."""
    stop, failures = threading.Event(), list[BaseException]()

    def work() -> None:
        try:
            while not stop.is_set():
                purge(configuration)
        except BaseException as failure:  # noqa: BLE001 # told on the test's own thread
            failures.append(failure)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    assert failures == []


def force_delete(node: KubeletNode) -> None:
    """Deletes both pods as `kubectl delete --force --grace-period=0` does."""
    for name in (FORCED, FORCED_AND_DONE):
        node.api.delete(f"{PODS}/{name}", grace_seconds=0)


def traces(node: KubeletNode) -> set[str]:
    """What there is of the two pods and their image."""
    cri = node.runtime.cri
    found = {f"container {each.state}" for each in cri.list_containers() if _is_ours(each.labels)}
    found |= {f"sandbox {each.state}" for each in cri.list_sandboxes() if _is_ours(each.labels)}
    found |= {f"log {path.name}" for path in node.kubelet.pod_logs.glob(f"default_{FORCED}*")}
    return found | {tag for image in cri.list_images() for tag in image.repo_tags if tag == OWN}


def _is_ours(labels: Mapping[str, str]) -> bool:
    return labels["io.kubernetes.pod.name"] in (FORCED, FORCED_AND_DONE)


@pytest.mark.parametrize(
    "asks_the_kubelet", [False, True], ids=["by the directories", "by the kubelet's list"]
)
def test_beside_passes_nothing_else_suffers_and_all_of_it_goes(
    node: KubeletNode, asks_the_kubelet: bool
) -> None:
    """Passes go on from before the deletion until nothing is left of the two pods."""
    configuration = configured(node, asks_the_kubelet=asks_the_kubelet)
    before = statuses(node, *SETTLED)
    with passes(configuration):
        force_delete(node)
        node.api.wait("nothing is left of them", lambda: traces(node) == set(), 90.0)
    crashes = restarts_of(node, "crashing")
    node.api.wait("it crashes again", lambda: restarts_of(node, "crashing") > crashes, 120.0)
    assert statuses(node, *SETTLED) == before


@pytest.mark.parametrize(
    "asks_the_kubelet", [False, True], ids=["by the directories", "by the kubelet's list"]
)
def test_while_the_kubelet_is_stopped_they_keep_everything(
    node: KubeletNode, asks_the_kubelet: bool
) -> None:
    """The one that runs and the one that has finished.

    Once the kubelet is back all of it goes, and nothing else.
    """
    configuration = configured(node, asks_the_kubelet=asks_the_kubelet)
    before, held = statuses(node, *SETTLED), traces(node)
    node.kubelet.stop()
    force_delete(node)
    names = {each["name"] for each in purge(configuration)}
    assert not {name for name in names if FORCED in name or name in (OWN, APP)}
    assert traces(node) == held
    node.kubelet.start()
    with passes(configuration):
        node.api.wait("nothing is left of them", lambda: traces(node) == set(), 90.0)
    assert statuses(node, *SETTLED) == before
