"""Events about the Node on an API server that asks RBAC, with no more than
the role that is shipped.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kubelet.access import RBAC, service_account
from tests.kubelet.conftest import NodeMaker
from tests.kubelet.every_kind import MIB
from tests.kubelet.kubelet import NODE
from tests.kubelet.node import KubeletNode
from tests.real_node.fill import fill_bytes
from tests.real_node.oci import BASE, Image, random_layer
from tests.reclaimd_process import Daemon, came_true, write_configuration
from tests.repository import ROOT

ROLE = ROOT / "config" / "kubernetes" / "components" / "events" / "role.yaml"
SERVICE_ACCOUNTS = "/api/v1/namespaces/kube-system/serviceaccounts"
PATHS = {"Role": "roles", "RoleBinding": "rolebindings"}
BELOW = 100 * MIB  # the mark, below what is available at first
SHORT = 10 * MIB  # how far below the mark each fill ends
IMAGE_BYTES = 20 * MIB  # containerd holds it twice: as a blob, and as a snapshot
NOT_SENT = "an event did not reach the API server"


@pytest.fixture
def node(make_node: NodeMaker) -> KubeletNode:
    """A node with images that nobody uses, and without the events of earlier ones."""
    made = make_node()
    for event in made.api.events():
        made.api.delete(f"/api/v1/namespaces/default/events/{event['metadata']['name']}")
    made.import_removable(
        [
            Image(f"reclaimd.test/unused:{number}", (BASE, random_layer(number, IMAGE_BYTES)))
            for number in range(4)
        ]
    )
    return made


def shipped_identity(node: KubeletNode) -> str:
    """The token of the service account of the DaemonSet, with the role of the overlay."""
    node.api.create(SERVICE_ACCOUNTS, {"metadata": {"name": "reclaimd"}})
    for document in yaml.safe_load_all(ROLE.read_text()):
        namespace = document["metadata"]["namespace"]
        node.api.create(f"{RBAC}/namespaces/{namespace}/{PATHS[document['kind']]}", document)
    return node.plane.service_account_token("reclaimd", "kube-system")


def configured(node: KubeletNode, token: str, mark: int, **fields: object) -> Path:
    """A configuration that sends events with this token, and acts at this mark."""
    kubeconfig = node.disk.parent / "kubeconfig"
    kubeconfig.touch(mode=0o600)
    cluster = {"server": node.api.server, "certificate-authority": str(node.api.authority)}
    kubeconfig.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "it",
                "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
                "clusters": [{"name": "it", "cluster": cluster}],
                "users": [{"name": "it", "user": {"token": token}}],
            }
        )
    )
    return write_configuration(
        node.disk.parent / "reclaimd.yaml",
        **node.reclaimd_fields(),
        kubernetesEvents=True,
        kubeconfig=str(kubeconfig),
        nodeName=NODE,
        evictionHard={"imagefs.available": str(mark)},
        evictionMinimumReclaim={"imagefs.available": "0"},
        evictionPressureTransitionPeriod="1s",
        **fields,
    )


def events_of(node: KubeletNode, reason: str) -> list[dict[str, Any]]:
    """The events of reclaimd with this reason."""
    events = node.api.get("/api/v1/namespaces/default/events")["items"]
    return [
        each
        for each in events
        if each["reason"] == reason and each["source"]["component"] == "reclaimd"
    ]


def press(node: KubeletNode, daemon: Daemon, mark: int, number: int) -> None:
    """The disk fills, once more; until the daemon has relieved it, and the pressure is over."""
    passes = len(daemon.passes)
    fill_bytes(node.disk / f"fill-{number}", mark - SHORT, fast=True).wait(60.0)
    assert came_true(lambda: len(daemon.passes) > passes)
    assert daemon.passes[passes]["result"] == "satisfied", daemon.passes[passes]["reason"]
    assert came_true(
        lambda: sum("ReclaimPressure is over" in each["message"] for each in daemon.events) > number
    )


def test_events_arrive_at_the_node_and_equal_ones_are_counted(node: KubeletNode) -> None:
    """Two times of pressure are one event with a count of two; a periodic collection that cannot
    free what it has to is another."""
    mark = node.filesystem.available_bytes() - BELOW
    low = {"imageGCHighThresholdPercent": 2, "imageGCLowThresholdPercent": 1}
    token = shipped_identity(node)
    configuration = configured(
        node, token, mark, periodicGC=True, keepImages=["reclaimd.test/*"], **low
    )
    with Daemon("--config", str(configuration)):
        node.api.wait(
            "it could not free enough", lambda: bool(events_of(node, "FreeDiskSpaceFailed")), 60.0
        )
    with Daemon("--config", str(configured(node, token, mark))) as daemon:
        press(node, daemon, mark, 0)
        node.api.wait("the event", lambda: len(events_of(node, "EvictionThresholdMet")) == 1, 60.0)
        press(node, daemon, mark, 1)
        node.api.wait(
            "the count",
            lambda: [e["count"] for e in events_of(node, "EvictionThresholdMet")] == [2],
            90.0,
        )
        assert not daemon.logged(NOT_SENT)
    (event,) = events_of(node, "EvictionThresholdMet")
    (failed,) = events_of(node, "FreeDiskSpaceFailed")
    about = {"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": NODE}
    for each in (event, failed):
        assert (each["involvedObject"], each["type"], each["source"]["host"]) == (
            about,
            "Warning",
            NODE,
        )
    assert (
        event["message"]
        == "Attempting to reclaim ephemeral-storage (ReclaimPressure: below reclaimd's own mark)"
    )


def test_without_the_role_there_is_one_warning_and_relief_goes_on(node: KubeletNode) -> None:
    """It names what the identity may not do."""
    mark = node.filesystem.available_bytes() - BELOW
    with Daemon("--config", str(configured(node, service_account(node), mark))) as daemon:
        press(node, daemon, mark, 0)
        press(node, daemon, mark, 1)
        warning = daemon.wait_for(lambda event: event["message"].startswith(NOT_SENT))
        assert "answered 403: " in warning["message"]
        assert "may it create and patch events in the namespace default?" in warning["message"]
    assert sum(event["message"].startswith(NOT_SENT) for event in daemon.events) == 1
    assert events_of(node, "EvictionThresholdMet") == []
