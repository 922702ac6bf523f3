"""What goes wrong during a removal: an error is no failure, a success no absence,
and nothing is cancelled.
"""

from __future__ import annotations

import grpc
import pytest

from eviction.drill.runtime.private_mounts import EmbeddedNodeError
from eviction.engine.effects import Request
from reclaim.cri import cri_pb2 as pb
from reclaim.types import DELETE_ALL_UNUSED_CONTAINERS
from signals.types import Signal
from tests.nodes.faults import ActThenFail, Delay, Fail, Hang
from tests.nodes.full_runtime import FullRuntime
from tests.nodes.interrupting_server import InterruptingServer
from tests.nodes.small_node import (
    EVERYTHING,
    IMAGES,
    MIB,
    SmallNode,
    outcome_of,
    reason_of,
    relieve,
    result_of,
)
from tests.sockets.conftest import SmallNodeFactory

CODES = [grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNKNOWN]


def crowd(small_node: SmallNode) -> tuple[list[str], str]:
    """Three old images, a running pod, and a dead container of a pod that is gone."""
    images = small_node.add_images(3)
    small_node.run(small_node.run_pod("web"))
    return images, small_node.gone_pod("gone", writes=MIB)


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("method", ["RemoveImage", "RemoveContainer", "RemovePodSandbox"])
def test_a_removal_that_acts_and_then_fails_counts_as_removed(
    small_node: SmallNode, method: str, code: grpc.StatusCode
) -> None:
    """An error is not a failure: after any error the runtime is asked what is
    there, and only that counts.
    """
    images, container = crowd(small_node)
    small_node.failpoints[method] = ActThenFail(code, "lost the answer")
    record = relieve(small_node.node(Signal.NODEFS_AVAILABLE, above=40 * MIB), EVERYTHING)
    assert small_node.removed("image") == images
    assert small_node.removed("container") == [container]
    assert len(small_node.removed("sandbox")) == 1
    assert {str(outcome.result) for outcome in record.removals} == {"removed"}
    assert record.nominal_bytes == 12 * MIB
    failed = {
        "RemoveImage": "image",
        "RemoveContainer": "container",
        "RemovePodSandbox": "sandbox",
    }[method]
    assert all(bool(o.error) == (o.verdict.kind == failed) for o in record.removals), (
        "the error is still reported"
    )


@pytest.mark.parametrize("code", CODES)
def test_an_image_that_cannot_be_removed_does_not_stop_the_next(
    small_node: SmallNode, code: grpc.StatusCode
) -> None:
    """One error does not fail it all: the first image is kept and reported as
    failed, the others are removed.
    """
    images, _ = crowd(small_node)
    small_node.failpoints["RemoveImage"] = Fail(code, "the snapshot is busy", times=1)
    record = relieve(small_node.node(Signal.NODEFS_AVAILABLE, above=40 * MIB), IMAGES)
    assert small_node.removed("image") == images[1:]
    first = outcome_of(record, images[0])
    assert str(first.result) == "failed"
    assert first.error
    assert first.freed.bytes == 0
    assert record.nominal_bytes == 8 * MIB
    assert "1 removal failed" in record.reason


@pytest.mark.parametrize("code", CODES)
def test_a_container_that_cannot_be_removed_does_not_stop_the_next(
    small_node: SmallNode, code: grpc.StatusCode
) -> None:
    """Its sandbox stays as well, as the runtime would remove both; the rest goes."""
    first, second = small_node.gone_pod("first"), small_node.gone_pod("second")
    small_node.failpoints["RemoveContainer"] = Fail(code, "device or resource busy", times=1)
    record = relieve(small_node.node(), EVERYTHING)
    assert small_node.removed("container") == [second]
    assert len(small_node.removed("sandbox")) == 1
    assert result_of(record, first) == "failed"
    assert small_node.containers() == {first}


def test_a_runtime_that_reports_success_and_removes_nothing_is_not_believed(
    small_node: SmallNode,
) -> None:
    """A success is not yet an absence: what is still there has not been removed."""
    images, _ = crowd(small_node)
    small_node.failpoints["RemoveImage"] = Fail(grpc.StatusCode.NOT_FOUND, "no such image", times=1)
    record = relieve(small_node.node(), IMAGES)
    assert result_of(record, images[0]) == "failed"
    assert images[0] in small_node.images()


def test_a_container_that_somebody_else_removed_counts_as_already_gone(
    small_node: SmallNode,
) -> None:
    """Gone before its turn is no failure, and none of its bytes are ours."""
    _, container = crowd(small_node)
    small_node.failpoints["ContainerStatus"] = Hang(times=1)
    row = (DELETE_ALL_UNUSED_CONTAINERS,)
    with small_node.relieving(small_node.node(), Request(row=row)) as going:
        small_node.wait_for("ContainerStatus")
        small_node.runtime.remove_container(pb.RemoveContainerRequest(container_id=container))
        small_node.failpoints.clear()
        record = going.result()
    assert result_of(record, container) == "already_gone"
    assert small_node.failpoints.calls["RemoveContainer"] == 0
    assert record.nominal_bytes == 0


def test_a_removal_in_flight_is_waited_for_when_the_pressure_is_gone(small_node: SmallNode) -> None:
    """An interrupted RemoveImage strands a record that pins its bytes: relief stops
    the next one, not this one.
    """
    images = small_node.add_images(3)
    small_node.run(small_node.run_pod("web"))
    small_node.fill(8 * MIB)
    node = small_node.node(Signal.NODEFS_AVAILABLE, above=6 * MIB)
    small_node.failpoints["RemoveImage"] = Hang(times=1)
    with small_node.relieving(node) as going:
        small_node.wait_for("RemoveImage")
        (small_node.disk / "grown").unlink()
        assert not going.done(), "it is still in flight"
        small_node.failpoints.clear()
        record = going.result()
    assert small_node.removed("image") == images[:1]
    assert outcome_of(record, images[0]).error == ""
    assert [reason_of(record, each) for each in images[1:]] == ["relieved", "relieved"]
    assert str(record.result) == "satisfied"


def test_a_removal_in_flight_is_waited_for_when_told_to_stop(small_node: SmallNode) -> None:
    """After a stop the one in flight finishes and nothing new is started."""
    images, _ = crowd(small_node)
    node = small_node.node(Signal.NODEFS_AVAILABLE, above=40 * MIB)
    small_node.failpoints["RemoveImage"] = Hang(times=1)
    with small_node.relieving(node, IMAGES) as going:
        small_node.wait_for("RemoveImage")
        node.stopping.set()
        assert not going.done()
        small_node.failpoints.clear()
        record = going.result()
    assert small_node.removed("image") == images[:1]
    assert result_of(record, images[0]) == "removed"
    assert {reason_of(record, each) for each in images[1:]} == {"stopping"}


def test_a_slow_removal_has_no_deadline(small_node: SmallNode) -> None:
    """Reads give up after 0.3 s here; a removal that takes 1 s is not given
    up, as that would cancel it.
    """
    (image,) = small_node.add_images(1)
    small_node.run(small_node.run_pod("web"))
    small_node.failpoints["RemoveImage"] = Delay(1.0)
    record = relieve(small_node.node(read_deadline_seconds=0.3), IMAGES)
    assert result_of(record, image) == "removed"
    assert outcome_of(record, image).error == ""
    assert outcome_of(record, image).duration_seconds >= 1.0


def test_removals_side_by_side_are_bounded(small_node: SmallNode) -> None:
    """Deletes must not starve the disk: with a bound of 2 a third removal
    waits until one has finished.
    """
    images = small_node.add_images(6)
    small_node.run(small_node.run_pod("web"))
    node = small_node.node(Signal.NODEFS_AVAILABLE, above=40 * MIB, parallelRemovals=2)
    with small_node.relieving(node, IMAGES) as going:
        small_node.failpoints["RemoveImage"] = Delay(0.2)
        small_node.wait_for("RemoveImage", 3)
        before = small_node.failpoints.calls["RemoveImage"] - len(small_node.removed("image"))
        assert before <= 2
        small_node.failpoints.clear()
        going.result()
    assert sorted(small_node.removed("image")) == sorted(images)


def test_the_runtime_that_protects_nothing_is_the_one_tested_against(small_node: SmallNode) -> None:
    """The counter-proof: asked directly, the runtime kills a running container
    and removes an image in use.
    """
    running = small_node.run(small_node.run_pod("web"))
    assert type(small_node.runtime) is FullRuntime
    small_node.runtime.remove_image(
        pb.RemoveImageRequest(image=pb.ImageSpec(image=small_node.app_id))
    )
    small_node.runtime.remove_container(pb.RemoveContainerRequest(container_id=running))
    assert small_node.containers() == set()
    assert small_node.app_id not in small_node.images()


class Refuses:
    """A `before` that refuses this method about the first object of which it
    was asked, for ever.
    """

    def __init__(self, method: str) -> None:
        self.method, self.refused = method, ""

    def __call__(self, method: str, object_id: str) -> None:
        if method == self.method:
            self.refused = self.refused or object_id
            if object_id == self.refused:
                raise EmbeddedNodeError("its metadata cannot be told")


def refusing(make: SmallNodeFactory, method: str) -> tuple[SmallNode, Refuses]:
    """A node whose runtime does so."""
    small = make(server=InterruptingServer)
    assert isinstance(small.server, InterruptingServer)
    small.server.before = refuses = Refuses(method)
    return small, refuses


@pytest.mark.parametrize("method", ["ImageStatus", "ContainerStatus", "PodSandboxStatus"])
def test_an_error_about_one_object_is_the_outcome_of_that_object(
    make_small_node: SmallNodeFactory, method: str
) -> None:
    """The first of its kind is never told. All others go, in the first pass."""
    small, refuses = refusing(make_small_node, method)
    images = small.add_images(4)
    containers = [small.gone_pod(f"gone-{number}") for number in range(4)]
    record = relieve(small.node(), EVERYTHING)
    failed = {
        outcome.verdict.id: outcome
        for outcome in record.removals
        if str(outcome.result) == "failed"
    }
    assert refuses.refused in failed
    assert "its metadata cannot be told" in failed[refuses.refused].error
    assert not record.errors
    assert set(images) | set(containers) <= {*small.removed(), refuses.refused}
    assert len(small.removed("sandbox")) == (4 if method == "ImageStatus" else 3)


def test_what_a_dead_container_mounts_is_not_waited_for_and_what_a_live_one_mounts_is(
    make_small_node: SmallNodeFactory,
) -> None:
    """If the runtime cannot tell what a container mounts, any image may be one of it; once it has
    exited, nothing runs with it."""
    small, refuses = refusing(make_small_node, "ContainerStatus")
    images = small.add_images(2)
    container = small.run(small.run_pod("web"))
    record = relieve(small.node(), IMAGES)
    assert (small.removed("image"), refuses.refused) == ([], container)
    assert "its metadata cannot be told" in record.errors[0]
    small.runtime.exit_container(container, 1)
    relieve(small.node(), IMAGES)
    assert small.removed("image") == images
