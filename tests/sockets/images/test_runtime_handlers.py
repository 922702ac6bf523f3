"""A runtime that lists an image once for each runtime handler that it was pulled for.

Source: kubelet, `pkg/kubelet/images/image_gc_manager.go` (getImageTuple) and
`pkg/kubelet/kuberuntime/ kuberuntime_image.go`: RemoveImage carries the id only, so
it takes every entry of it.
"""

from __future__ import annotations

import pytest

from reclaim.images.records import ImageRecords
from reclaim.types import ImageRecord
from signals.types import Signal
from tests.nodes.small_node import MIB, SmallNode, reason_of, relieve


def records_of(small: SmallNode, *handlers: str) -> ImageRecords:
    """Records in which all is as old as it is, and known for these runtime handlers."""
    return ImageRecords(
        seed={
            known: ImageRecord(first, handlers=handlers)
            for known, first in small.first_detected.items()
        }
    )


def test_an_image_in_use_does_not_go_under_its_other_runtime_handler(small_node: SmallNode) -> None:
    """A running pod uses the application's image; another that is listed twice is not
    used and goes, by one call.
    """
    unused = small_node.add_image("registry.example/old:1")
    small_node.run(small_node.run_pod("web"))
    for image_id in (small_node.app_id, unused):
        small_node.runtime.runtime_handlers[image_id] = ["kata"]
    node = small_node.node(
        Signal.NODEFS_AVAILABLE,
        above=40 * MIB,
        records=records_of(small_node, "", "kata"),
        extent="all",
    )
    record = relieve(node)
    assert small_node.removed("image") == [unused]
    assert small_node.failpoints.calls["RemoveImage"] == 1
    assert reason_of(record, small_node.app_id) == "in_use"
    assert small_node.app_id in small_node.images()
    assert record.nominal_bytes >= 8 * MIB, "the size of each entry counts"


@pytest.mark.regression
def test_what_was_just_pulled_for_another_runtime_handler_stays(small_node: SmallNode) -> None:
    """The image is an hour old, its entry for `kata` is new: the pod that it was pulled
    for may be about to start.
    """
    image_id = small_node.add_image("registry.example/old:1")
    small_node.runtime.runtime_handlers[image_id] = ["kata"]
    node = small_node.node(
        Signal.NODEFS_AVAILABLE, above=40 * MIB, records=records_of(small_node, ""), extent="all"
    )
    record = relieve(node)
    assert small_node.removed("image") == [small_node.app_id]
    assert reason_of(record, image_id) == "too_young"
