"""What finished pods hold goes with the kubelet's own list, asked as each identity that
may; and stays without it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.kubelet import manifests
from tests.kubelet.access import (
    allow_group,
    certificate_fields,
    kubelet_fields,
    service_account,
    token_fields,
)
from tests.kubelet.conftest import NodeMaker
from tests.kubelet.every_kind import MIB, statuses
from tests.kubelet.manifests import APP
from tests.kubelet.node import PODS, KubeletNode
from tests.kubelet.programs import kubelet_version
from tests.real_node.oci import BASE, Image, random_layer
from tests.reclaimd_process import answer, reclaimd, write_configuration

FINISHED = [f"finished-{number}" for number in range(10)]
GROUP = "reclaimd.test:agents"

Access = Callable[[KubeletNode], dict[str, Any]]


def image_of(name: str) -> str:
    """The image that only this pod uses."""
    return f"reclaimd.test/{name}:1"


@pytest.fixture
def node(make_node: NodeMaker) -> KubeletNode:
    """A node with a running pod, ten finished ones, each with an image of its own, and
    an image that nobody uses.
    """
    made = make_node()
    names = [*FINISHED, "unused"]
    own = [
        Image(image_of(name), (BASE, random_layer(number, MIB)))
        for number, name in enumerate(names)
    ]
    made.import_images([Image(APP, (BASE,)), *own])
    made.create(manifests.running("serves", APP))
    for name in FINISHED:
        made.create(manifests.completed(name, image_of(name)))
    made.wait_for_phase("serves", "Running")
    for name in FINISHED:
        made.wait_for_phase(name, "Succeeded")
    return made


def configured(node: KubeletNode, fields: dict[str, Any]) -> Path:
    """A configuration with this access to the kubelet."""
    return write_configuration(
        node.disk.parent / "reclaimd.yaml", **node.reclaimd_fields(), **fields
    )


def purge(configuration: Path) -> Any:
    """The record of `reclaimd reclaim --all`, which has to succeed."""
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
    return answer(done)


def held(node: KubeletNode) -> tuple[set[str], set[str], set[str]]:
    """The names of the pods that have a container, of those that have a sandbox, and the images."""
    cri = node.runtime.cri
    return (
        {each.labels["io.kubernetes.pod.name"] for each in cri.list_containers()},
        {each.metadata.name for each in cri.list_sandboxes()},
        {tag for image in cri.list_images() for tag in image.repo_tags}
        - {node.runtime.sandbox_image},
    )


def with_token_for(resource: str) -> Access:
    """A service account that may get this resource."""
    return lambda node: token_fields(node, service_account(node, resource))


def with_certificate(node: KubeletNode) -> dict[str, Any]:
    """A client certificate whose group may get nodes/pods."""
    allow_group(node, GROUP, "nodes/pods")
    return certificate_fields(node, "reclaimd.test:agent", GROUP)


WITH_PROXY = with_token_for("nodes/proxy")


@pytest.mark.parametrize(
    "access",
    [with_token_for("nodes/pods"), WITH_PROXY, with_certificate],
    ids=["token for nodes/pods", "token for nodes/proxy", "certificate"],
)
def test_what_finished_pods_hold_goes_and_none_runs_again(
    node: KubeletNode, access: Access
) -> None:
    """Containers, sandboxes and images; a kubelet that restarts afterwards
    leaves the pods as they are.
    """
    if access is not WITH_PROXY and kubelet_version() < "1.33":
        pytest.skip(f"kubelet {kubelet_version()} knows no nodes/pods")
    before = statuses(node, "serves", *FINISHED)
    record = purge(configured(node, access(node)))
    assert {each["result"] for each in record["removals"]} == {"removed"}
    assert held(node) == ({"serves"}, {"serves"}, {APP})
    node.kubelet.stop()
    node.kubelet.start()
    node.create(manifests.running("later", APP))
    node.wait_for_phase("later", "Running")
    assert statuses(node, *before) == before
    assert held(node) == ({"serves", "later"}, {"serves", "later"}, {APP})


@pytest.mark.parametrize(
    ("token_of", "sentence"),
    [
        (lambda node: "x" * 40, "401 Unauthorized"),
        (service_account, "403 Forbidden: is the identity allowed to get nodes/proxy"),
    ],
    ids=["unknown token", "no role"],
)
def test_without_the_list_finished_pods_keep_what_they_hold(
    node: KubeletNode, token_of: Callable[[KubeletNode], str], sentence: str
) -> None:
    """`plan` says why the kubelet does not answer; only what nobody uses goes."""
    configuration = configured(node, token_fields(node, token_of(node)))
    pods = answer(reclaimd("plan", "--config", str(configuration), "-o", "json"))["pods"]
    assert pods["told_by"] == "directories"
    assert sentence in pods["problem"]
    before = held(node)
    assert [each["name"] for each in purge(configuration)["removals"]] == [image_of("unused")]
    assert held(node) == (before[0], before[1], before[2] - {image_of("unused")})


@pytest.mark.regression
def test_a_static_pod_that_has_finished_does_not_run_again(make_node: NodeMaker) -> None:
    """Its status is in the API server, but the kubelet does not read it there:
    it would begin anew.
    """
    node = make_node()
    node.import_images([Image(APP, (BASE,))])
    (node.kubelet.static_pods / "once.json").write_text(
        json.dumps(manifests.completed("once", APP))
    )
    node.create(manifests.completed("done", APP))
    node.create(manifests.running("serves", APP))
    once = "once-127.0.0.1"
    node.wait_for_phase(once, "Succeeded")
    node.wait_for_phase("done", "Succeeded")
    node.wait_for_phase("serves", "Running")
    before = statuses(node, once, "done")
    purge(configured(node, kubelet_fields(node)))
    assert held(node) == ({once, "serves"}, {once, "serves"}, {APP})
    node.kubelet.stop()
    node.kubelet.start()
    node.create(manifests.running("later", APP))
    node.wait_for_phase("later", "Running")
    assert statuses(node, *before) == before
    assert node.api.text(f"{PODS}/{once}/log") == "once is done\n"
