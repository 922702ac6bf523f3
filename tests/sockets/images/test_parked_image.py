"""An image whose removal was parked, and ended later."""

from __future__ import annotations

import pytest

from reclaim.types import Reason, Result
from tests.nodes.faults import Hang
from tests.nodes.small_node import IMAGES, LONGEST_SECONDS, SmallNode, reason_of, relieve, result_of

OLD = "registry.example/old:1"


@pytest.mark.regression
def test_an_image_that_is_pulled_again_after_its_parked_removal_ended_is_new(
    small_node: SmallNode,
) -> None:
    """A list in between has seen it again, while its removal was not answered; that
    age is not the new image's.
    """
    small_node.run(small_node.run_pod("web"))
    old = small_node.add_image(OLD)
    node = small_node.node(removalPatience="500ms")
    small_node.failpoints["RemoveImage"] = Hang(times=1)
    assert result_of(relieve(node, IMAGES), old) == Result.PARKED
    relieve(node, IMAGES)
    del small_node.failpoints["RemoveImage"]
    assert node.owner.drained(LONGEST_SECONDS)
    assert old not in small_node.images()
    pulled_at = node.clock.monotonic()
    assert small_node.add_image(OLD) == old

    assert reason_of(relieve(node, IMAGES), old) == Reason.TOO_YOUNG
    assert node.records.records[old].first_detected >= pulled_at
