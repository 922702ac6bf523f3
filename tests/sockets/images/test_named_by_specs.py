"""Beside a kubelet that tells its pods, an image that a pod is about to need stays though
no container uses it yet.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.nodes.faults import Hang
from tests.nodes.later import Ahead
from tests.nodes.small_node import IMAGES, SmallNode, reason_of, relieve
from tests.sockets.kubelet_server import KubeletServer, answer, pod_list

pytestmark = pytest.mark.regression
MODEL, LATER, OLD = "registry.example/model:1", "registry.example/later:1", "registry.example/old:1"


def listed(uid: str, phase: str = "Pending") -> dict[str, Any]:
    """A pod whose init container runs: its image volume is pulled, its own
    container is not made.
    """
    return {
        "metadata": {"uid": uid, "annotations": {"kubernetes.io/config.source": "api"}},
        "spec": {
            "containers": [{"image": LATER}],
            "volumes": [{"name": "model", "image": {"reference": MODEL}}],
        },
        "status": {"phase": phase},
    }


@pytest.mark.parametrize(
    ("phase", "goes"), [("Pending", False), ("Running", False), ("Succeeded", True)]
)
def test_images_of_a_pod_that_has_not_terminated_stay(
    small_node: SmallNode, phase: str, goes: bool
) -> None:
    """Its image volume, and the image of a container that is still to start."""
    images = {name: small_node.add_image(name) for name in (MODEL, LATER, OLD)}
    init = small_node.run_pod("job")
    small_node.run(init)
    with KubeletServer(answer(pod_list(listed(init.uid, phase)))) as kubelet:
        record = relieve(small_node.node(kubeletEndpoint=kubelet.url), IMAGES)
    assert images[OLD] not in small_node.images()
    for name in (MODEL, LATER):
        assert (images[name] not in small_node.images()) is goes
        assert goes or reason_of(record, images[name]) == "in_use"


def test_the_kubelet_is_asked_again_before_a_removal(small_node: SmallNode) -> None:
    """The pod is listed while the first of two removals hangs for longer than a list
    is fresh: the second stays.
    """
    first, second = small_node.add_image(OLD), small_node.add_image(MODEL)
    small_node.run(small_node.run_pod("app"))
    with KubeletServer(answer(pod_list())) as kubelet:
        clock = Ahead()
        node = small_node.node(kubeletEndpoint=kubelet.url, clock=clock)
        small_node.failpoints["RemoveImage"] = Hang(times=1)
        with small_node.relieving(node, IMAGES) as going:
            small_node.wait_for("RemoveImage")
            kubelet.script = [answer(pod_list(listed("uid-new")))]
            asked = len(kubelet.requests)
            clock.step(5.0)
            small_node.failpoints.clear()
            record = going.result()
    assert first not in small_node.images()
    assert second in small_node.images()
    assert len(kubelet.requests) > asked
    assert reason_of(record, second) == "in_use"
