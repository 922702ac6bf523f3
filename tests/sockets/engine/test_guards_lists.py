"""Only complete answers permit a removal: after an answer that fails or makes no
sense nothing is removed.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import grpc
import pytest

from eviction.engine.node import Node
from reclaim.cri import cri_pb2 as pb
from signals.types import Signal
from tests.nodes.faults import Fail, Hang
from tests.nodes.small_node import APP, CONTAINERS, IMAGES, MIB, SmallNode, reason_of, relieve
from tests.sockets.dialect import Dialect

CODES = (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.NOT_FOUND)
LISTS = ("ListImages", "ListContainers", "ListPodSandbox", "Status", "Version")
STATUSES = [  # not found: gone
    ("ContainerStatus", grpc.StatusCode.INTERNAL),
    ("ContainerStatus", grpc.StatusCode.UNAVAILABLE),
    ("PodSandboxStatus", grpc.StatusCode.UNAVAILABLE),
]
# for so long at most one list of containers serves several removals
LONGEST_SHARED_LIST_SECONDS = 0.5


def pressured(small_node: SmallNode, dialect: Dialect) -> Node:
    """The product, asking the dialect, under pressure that everything together
    would not relieve.
    """
    return small_node.node(
        Signal.NODEFS_AVAILABLE, above=40 * MIB, containerRuntimeEndpoint=dialect.endpoint
    )


def crowd(small_node: SmallNode) -> None:
    """Two old images, a running pod, a crashed one with two dead copies, and one that is gone."""
    small_node.add_images(2)
    small_node.run(small_node.run_pod("web"))
    crashed = small_node.run_pod("crashed")
    for attempt in range(2):
        small_node.exited(crashed, attempt=attempt)
    small_node.gone_pod("gone")


@pytest.mark.parametrize(
    ("method", "code"), [(method, code) for method in LISTS for code in CODES] + STATUSES
)
def test_no_image_is_removed_when_any_answer_about_images_in_use_fails(
    small_node: SmallNode, method: str, code: grpc.StatusCode
) -> None:
    """What a failed answer would have said may be the one use of an image, so nothing
    goes and the error is said.
    """
    crowd(small_node)
    node = small_node.node(Signal.NODEFS_AVAILABLE, above=40 * MIB)
    small_node.failpoints[method] = Fail(code, "cut in the middle")
    record = relieve(node, IMAGES)
    assert small_node.removed() == []
    assert str(record.result) == "failed"
    assert method in record.reason


@pytest.mark.parametrize("method", ["ListContainers", "ListPodSandbox"])
def test_no_container_is_removed_when_a_list_fails(small_node: SmallNode, method: str) -> None:
    """A pod of which only half is listed seems gone: without both lists neither
    container nor sandbox is removed.
    """
    crowd(small_node)
    node = small_node.node(Signal.NODEFS_AVAILABLE, above=40 * MIB)
    small_node.failpoints[method] = Fail(
        grpc.StatusCode.RESOURCE_EXHAUSTED, "message larger than max"
    )
    record = relieve(node, CONTAINERS)
    assert small_node.removed() == []
    assert str(record.result) == "failed"
    assert "message larger than max" in record.reason


def test_a_container_whose_status_cannot_be_read_is_kept(small_node: SmallNode) -> None:
    """No status, no removal: each is asked about, stays, and says why."""
    crowd(small_node)
    node = small_node.node(Signal.NODEFS_AVAILABLE, above=40 * MIB)
    small_node.failpoints["ContainerStatus"] = Fail(grpc.StatusCode.INTERNAL, "no task")
    record = relieve(node, CONTAINERS)
    assert small_node.removed() == []
    assert {str(outcome.result) for outcome in record.removals} == {"failed"}
    assert "2 removals failed: " in record.reason
    assert "no task" in record.reason


@pytest.mark.parametrize(
    ("code", "ends"),
    [
        (grpc.StatusCode.INTERNAL, ["failed", "failed"]),
        (grpc.StatusCode.UNAVAILABLE, ["unanswered"]),
    ],
)
def test_no_image_goes_after_a_list_that_fails_between_two_removals(
    small_node: SmallNode, code: grpc.StatusCode, ends: list[str]
) -> None:
    """The first image has gone; when the containers cannot be listed again, the others stay and the
    error is said. If the runtime is silent, the third is not even tried."""
    first, second, third = small_node.add_images(3)
    small_node.run(small_node.run_pod("web"))
    node = small_node.node(Signal.NODEFS_AVAILABLE, above=40 * MIB)
    small_node.failpoints["RemoveImage"] = Hang(times=1)
    with small_node.relieving(node, IMAGES) as going:
        small_node.wait_for("RemoveImage")
        small_node.failpoints["ListContainers"] = Fail(code, "stream cut")
        time.sleep(LONGEST_SHARED_LIST_SECONDS + 0.1)
        del small_node.failpoints["RemoveImage"]
        record = going.result()
    assert small_node.removed("image") == [first]
    assert [str(outcome.result) for outcome in record.removals] == ["removed", *ends]
    assert all(
        reason_of(record, each) == "incomplete_listing" for each in (second, third)[len(ends) :]
    )
    assert "stream cut" in record.reason


def test_an_image_that_cannot_be_looked_up_stops_the_removal_of_images(
    small_node: SmallNode, tmp_path: Path
) -> None:
    """A reference that no listed image carries is asked of the runtime;
    without an answer nothing goes.
    """
    small_node.add_images(2)
    small_node.run(small_node.run_pod("web"))

    def reword(answer: Any) -> None:
        for item in answer.containers:
            item.image_id, item.image_ref = "", "mirror.example/unlisted:1"
            item.image.image = ""

    small_node.failpoints["ImageStatus"] = Fail(grpc.StatusCode.INTERNAL, "no lease")
    with Dialect(
        small_node.server.target, str(tmp_path / "d.sock"), {"ListContainers": reword}
    ) as dialect:
        record = relieve(pressured(small_node, dialect), IMAGES)
    assert small_node.removed() == []
    assert "no lease" in record.reason


@pytest.mark.parametrize("method", ["ListImages", "ListContainers", "ListPodSandbox"])
def test_a_list_with_an_entry_without_an_id_is_not_trusted(
    small_node: SmallNode, tmp_path: Path, method: str
) -> None:
    """An entry that lost its id is an answer that lost something else as well."""
    crowd(small_node)

    def spoil(answer: Any) -> None:
        for field in ("images", "containers", "items"):
            if hasattr(answer, field):
                getattr(answer, field)[0].id = ""

    with Dialect(small_node.server.target, str(tmp_path / "d.sock"), {method: spoil}) as dialect:
        record = relieve(pressured(small_node, dialect), IMAGES)
    assert small_node.removed() == []
    assert "without an id" in record.reason


def test_a_list_of_more_than_four_mebibytes_is_complete(small_node: SmallNode) -> None:
    """gRPC's own limit ends at about 4 000 containers:

    3 000 with long annotations are read to the end.
    """
    small_node.run(small_node.run_pod("web"))
    pod = small_node.run_pod("crowd")
    request = pb.CreateContainerRequest(
        pod_sandbox_id=pod.sandbox_id,
        config=pb.ContainerConfig(image=pb.ImageSpec(image=APP), annotations={"text": "x" * 2048}),
    )
    for _ in range(3000):
        small_node.runtime.create_container(request)
    assert len(small_node.node().client.list_containers()) == 3001
