"""Bugs found in carrying out a plan: each has the test that found it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import pytest

from reclaim.cri import cri_pb2 as pb
from signals.types import Signal
from tests.nodes.faults import ActThenFail, Fail, Hang
from tests.nodes.small_node import (
    EVERYTHING,
    IMAGES,
    MIB,
    SmallNode,
    outcome_of,
    relieve,
    result_of,
)
from tests.reclaimd_process import reclaimd
from tests.sockets.conftest import SmallNodeFactory
from tests.sockets.dialect import Dialect

pytestmark = pytest.mark.regression


def test_late_container_space_costs_no_image(make_small_node: SmallNodeFactory) -> None:
    """Space that comes 0.03 s late is waited for on a disk that stands still."""
    small = make_small_node(container_space_delay_seconds=0.03)
    small.add_images(2)
    small.run(small.run_pod("web"))
    dead = small.gone_pod("gone", writes=8 * MIB)
    record = relieve(small.node(Signal.NODEFS_AVAILABLE, above=6 * MIB))
    assert small.removed("container") == [dead]
    assert str(record.result) == "satisfied"
    assert small.removed("image") == []


def test_image_removed_by_another_program_is_already_gone(small_node: SmallNode) -> None:
    """An image that another program removed is not counted as ours, nor are its bytes."""
    _, second = small_node.add_images(2)
    small_node.run(small_node.run_pod("app"))
    small_node.failpoints["RemoveImage"] = Hang(times=1)
    with small_node.relieving(small_node.node(), IMAGES) as going:
        small_node.wait_for("RemoveImage")
        small_node.runtime.remove_image(pb.RemoveImageRequest(image=pb.ImageSpec(image=second)))
        small_node.failpoints.clear()
        record = going.result()
    assert result_of(record, second) == "already_gone"
    assert record.nominal_bytes == 4 * MIB


@pytest.mark.parametrize("method", ["RemoveImage", "RemoveContainer"])
def test_not_found_is_already_gone_with_0_bytes(small_node: SmallNode, method: str) -> None:
    """The answer NOT_FOUND is success with 0 bytes of ours."""
    images = small_node.add_images(1)
    small_node.run(small_node.run_pod("app"))
    dead = small_node.gone_pod("gone", writes=MIB)
    small_node.failpoints[method] = ActThenFail(grpc.StatusCode.NOT_FOUND, "gone", times=1)
    record = relieve(small_node.node(), EVERYTHING)
    it = images[0] if method == "RemoveImage" else dead
    assert result_of(record, it) == "already_gone"
    assert outcome_of(record, it).freed.bytes == 0


def test_an_asked_for_row_whose_lists_fail_is_no_success(small_node: SmallNode) -> None:
    """Nothing is met, but nothing was done either: that is a failure, and says why."""
    small_node.add_images(1)
    small_node.failpoints["ListImages"] = Fail(
        message="the metadata store is closed", code=grpc.StatusCode.INTERNAL
    )
    p = reclaimd("reclaim", "--config", small_node.configuration(), "--signal", "imagefs.available")
    assert "metadata store" in p.stdout + p.stderr
    assert p.returncode != 0


def test_deadline_sentence_of_a_removal(small_node: SmallNode) -> None:
    """A removal has no deadline of ours; the error is the runtime's own."""
    (image,) = small_node.add_images(1)
    small_node.run(small_node.run_pod("app"))
    small_node.failpoints["RemoveImage"] = Fail(
        grpc.StatusCode.DEADLINE_EXCEEDED, "context deadline exceeded", times=1
    )
    record = relieve(small_node.node(), IMAGES)
    assert "10 s" not in outcome_of(record, image).error


def test_a_list_that_says_two_things_of_one_container_is_not_trusted(
    small_node: SmallNode, tmp_path: Path
) -> None:
    """EXITED and RUNNING under one id: which is true is unknown, so nothing is removed."""
    small_node.add_images(2)
    small_node.gone_pod("gone")

    def contradict(answer: Any) -> None:
        for item in list(answer.containers):
            answer.containers.add().CopyFrom(item)
            answer.containers[-1].state = pb.CONTAINER_RUNNING

    with Dialect(
        small_node.server.target, str(tmp_path / "d.sock"), {"ListContainers": contradict}
    ) as dialect:
        record = relieve(small_node.node(containerRuntimeEndpoint=dialect.endpoint), EVERYTHING)
    assert small_node.removed() == []
    assert "twice and differently" in " ".join(record.errors)
