"""A sandbox that does not say which image it was made from: its shim hangs, and
the runtime waits for it.
"""

from __future__ import annotations

from dataclasses import replace

import grpc
import pytest

from tests.nodes.faults import Fail, Hang
from tests.nodes.small_node import IMAGES, SmallNode, relieve


@pytest.mark.regression
def test_a_sandbox_that_does_not_answer_does_not_keep_all_images(small_node: SmallNode) -> None:
    """The sandbox image is pinned: unused images go, the sandbox image and the one in use stay, and
    the silent sandbox is not asked again before each removal."""
    images = small_node.add_images(3)
    for number in range(3):
        small_node.run(small_node.run_pod(f"web-{number}"))
    small_node.failpoints["PodSandboxStatus"] = Hang()
    record = relieve(small_node.node(read_deadline_seconds=0.3), IMAGES)
    assert small_node.removed("image") == images
    assert small_node.images() == {small_node.pause_id, small_node.app_id}
    assert {outcome.result for outcome in record.removals} == {"removed"}
    assert small_node.failpoints.calls["PodSandboxStatus"] == 1


def test_a_sandbox_that_answers_with_an_error_does_not_keep_all_images(
    small_node: SmallNode,
) -> None:
    """Nor does it end the questions about the other sandboxes; it is asked again a minute later."""
    images = small_node.add_images(3)
    for number in range(3):
        small_node.run(small_node.run_pod(f"web-{number}"))
    small_node.failpoints["PodSandboxStatus"] = Fail(
        grpc.StatusCode.UNKNOWN, "no sandbox metadata", times=1
    )
    relieve(small_node.node(), IMAGES)
    assert small_node.removed("image") == images
    assert small_node.failpoints.calls["PodSandboxStatus"] == 3


def test_without_a_known_sandbox_image_every_sandbox_has_to_answer(small_node: SmallNode) -> None:
    """Nothing else says which image sandboxes need, so no image goes."""
    small_node.add_images(1)
    small_node.run(small_node.run_pod("web"))
    small_node.runtime.dialect = replace(small_node.runtime.dialect, pins_sandbox_image=False)
    small_node.failpoints["PodSandboxStatus"] = Hang()
    record = relieve(small_node.node(read_deadline_seconds=0.3), IMAGES)
    assert small_node.removed() == []
    assert "PodSandboxStatus failed with DEADLINE_EXCEEDED" in record.errors[0]
