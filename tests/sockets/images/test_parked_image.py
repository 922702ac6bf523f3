"""An image whose removal was parked, and ended later."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from eviction.drill.runtime.faults import Hang
from reclaim.types import Reason, Result
from tests.nodes.small_node import IMAGES, LONGEST_SECONDS, SmallNode, reason_of, relieve, result_of
from tests.sockets.dialect import Dialect

OLD = "registry.example/old:1"


@pytest.mark.regression
@pytest.mark.parametrize("acts_first", [False, True])
def test_an_image_that_is_pulled_again_after_its_parked_removal_ended_is_new(
    small_node: SmallNode, tmp_path: Path, *, acts_first: bool
) -> None:
    """It hangs before it acts, and a list in between sees the image again; or after it has acted. The age of before is
    not the new image's."""
    small_node.run(small_node.run_pod("web"))
    old, let_go = small_node.add_image(OLD), threading.Event()
    if not acts_first:
        small_node.failpoints["RemoveImage"] = Hang(times=1)
        let_go.set()

    def hang(_: Any) -> None:
        let_go.wait(LONGEST_SECONDS)

    with Dialect(small_node.server.target, str(tmp_path / "d.sock"), {"RemoveImage": hang}) as dialect:
        node = small_node.node(removalPatience="500ms", containerRuntimeEndpoint=dialect.endpoint)
        assert result_of(relieve(node, IMAGES), old) == Result.PARKED
        assert (old in small_node.images()) is not acts_first
        relieve(node, IMAGES)
        small_node.failpoints.clear()
        let_go.set()
        assert node.owner.drained(LONGEST_SECONDS)
        assert old not in small_node.images()
        pulled_at = node.clock.monotonic()
        assert small_node.add_image(OLD) == old

        assert reason_of(relieve(node, IMAGES), old) == Reason.TOO_YOUNG
        assert node.records.records[old].first_detected >= pulled_at
