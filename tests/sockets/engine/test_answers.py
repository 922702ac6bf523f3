"""What the runtime answers, and what then goes: only complete answers permit a removal; an error
is no failure, a success no absence; nothing is cancelled, and what stops a pass stops it at once.

Every code of every method: `tests/faults/test_every_code.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from eviction.drill.private_mounts import EmbeddedNodeError, mount_tmpfs, unmount
from eviction.engine.effects import PauseSet, Reconfigured
from eviction.engine.node import Node
from eviction.records.passes import Pass
from reclaim.cri import cri_pb2 as pb
from signals.types import Signal
from tests.nodes.faults import ActThenFail, Delay, Fail, Failpoint
from tests.nodes.interrupting_server import InterruptingServer, Once
from tests.nodes.small_node import (
    EVERYTHING,
    IMAGES,
    MIB,
    SmallNode,
    outcome_of,
    reason_of,
    relieve,
)
from tests.sockets.conftest import SmallNodeFactory
from tests.sockets.dialect import Dialect

Code = grpc.StatusCode
# for so long at most one list of containers serves several removals


def crowd(small: SmallNode) -> tuple[list[str], str]:
    """Three old images, a running pod, and a dead container of a pod that is gone."""
    images = small.add_images(3)
    small.run(small.run_pod("web"))
    return images, small.gone_pod("gone", writes=MIB)


# ---- what is asked


@pytest.mark.parametrize(
    "method",
    [
        "ListImages",
        "ListContainers",
        "ListPodSandbox",
        "Status",
        "Version",
        "ContainerStatus",
        "PodSandboxStatus",
    ],
)
def test_no_image_is_removed_when_any_answer_about_images_in_use_fails(
    small_node: SmallNode, method: str
) -> None:
    """What a failed answer would have said may be the one use of an image, so nothing
    goes and the error is said.
    """
    crowd(small_node)
    node = small_node.node(Signal.NODEFS_AVAILABLE, above=40 * MIB)
    small_node.failpoints[method] = Fail(Code.UNAVAILABLE, "cut in the middle")
    record = relieve(node, IMAGES)
    assert small_node.removed() == []
    assert str(record.result) == "failed"
    assert method in record.reason


def lost(answer: Any) -> None:
    """The first entry has no id."""
    for field in ("images", "containers", "items"):
        if hasattr(answer, field):
            getattr(answer, field)[0].id = ""


def contradicts(answer: Any) -> None:
    """EXITED and RUNNING under one id."""
    for item in list(answer.containers):
        answer.containers.add().CopyFrom(item)
        answer.containers[-1].state = pb.CONTAINER_RUNNING


def unlisted(answer: Any) -> None:
    """A reference that no listed image carries is asked of the runtime, which does not answer."""
    for item in answer.containers:
        item.image_id, item.image.image = "", ""
        item.image_ref = "mirror.example/unlisted:1"


@pytest.mark.parametrize(
    ("method", "change", "words"),
    [
        ("ListImages", lost, "without an id"),
        ("ListContainers", lost, "without an id"),
        ("ListPodSandbox", lost, "without an id"),
        ("ListContainers", contradicts, "twice and differently"),
        ("ListContainers", unlisted, "no lease"),
    ],
)
def test_a_list_that_says_two_things_of_one_container_is_not_trusted(
    small_node: SmallNode, tmp_path: Path, method: str, change: Callable[[Any], None], words: str
) -> None:
    """Nor one with an entry that has lost something, or that nothing explains."""
    crowd(small_node)
    if change is unlisted:
        small_node.failpoints["ImageStatus"] = Fail(Code.INTERNAL, "no lease")
    with Dialect(small_node.server.target, str(tmp_path / "d.sock"), {method: change}) as dialect:
        record = relieve(small_node.node(containerRuntimeEndpoint=dialect.endpoint), IMAGES)
    assert small_node.removed() == []
    assert words in " ".join(record.errors)


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
    failed = outcome_of(record, refuses.refused)
    assert (str(failed.result), "its metadata cannot be told" in failed.error) == ("failed", True)
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


# ---- what is removed

KINDS = {"RemoveImage": "image", "RemoveContainer": "container", "RemovePodSandbox": "sandbox"}


@pytest.mark.parametrize("method", KINDS)
def test_a_removal_that_acts_and_then_fails_counts_as_removed(
    small_node: SmallNode, method: str
) -> None:
    """An error is not a failure: after any error the runtime is asked what is
    there, and only that counts. The error is still reported.
    """
    images, container = crowd(small_node)
    small_node.failpoints[method] = ActThenFail(Code.DEADLINE_EXCEEDED, "lost the answer")
    record = relieve(small_node.node(Signal.NODEFS_AVAILABLE, above=40 * MIB), EVERYTHING)
    assert small_node.removed("image") == images
    assert small_node.removed("container") == [container]
    assert len(small_node.removed("sandbox")) == 1
    assert {str(outcome.result) for outcome in record.removals} == {"removed"}
    assert record.nominal_bytes == 12 * MIB
    assert {o.verdict.kind for o in record.removals if o.error} == {KINDS[method]}


def test_an_image_that_cannot_be_removed_does_not_stop_the_next(small_node: SmallNode) -> None:
    """One error does not fail it all; it is told. The sandbox of a container that stays, stays."""
    images, container = crowd(small_node)
    for method in ("RemoveImage", "RemoveContainer"):
        small_node.failpoints[method] = Fail(Code.UNKNOWN, "the snapshot is busy", times=1)
    record = relieve(small_node.node(Signal.NODEFS_AVAILABLE, above=40 * MIB), EVERYTHING)
    assert small_node.removed() == images[1:]
    for each in (images[0], container):
        failed = outcome_of(record, each)
        assert (str(failed.result), failed.freed.bytes) == ("failed", 0)
        assert "the snapshot is busy" in failed.error
    assert record.nominal_bytes == 8 * MIB
    assert "2 removals failed" in record.reason


@pytest.mark.parametrize(
    ("method", "fault", "result"),
    [
        pytest.param("RemoveImage", Fail, "failed", id="not found, and still there"),
        ("RemoveImage", ActThenFail, "already_gone"),
        ("RemoveContainer", ActThenFail, "already_gone"),
    ],
)
def test_a_runtime_that_reports_success_and_removes_nothing_is_not_believed(
    small_node: SmallNode, method: str, fault: Callable[..., Failpoint], result: str
) -> None:
    """NOT_FOUND is success with 0 bytes of ours; but what is still there has not been removed."""
    images, dead = crowd(small_node)
    small_node.failpoints[method] = fault(Code.NOT_FOUND, "gone", times=1)
    record = relieve(small_node.node(), EVERYTHING)
    outcome = outcome_of(record, images[0] if method == "RemoveImage" else dead)
    assert (str(outcome.result), outcome.freed.bytes) == (result, 0)
    assert (images[0] in small_node.images()) is (result == "failed")


def test_a_slow_removal_has_no_deadline(small_node: SmallNode) -> None:
    """Reads give up after 0.3 s here; a removal that takes 1 s is not given
    up, as that would cancel it.
    """
    (image,) = small_node.add_images(1)
    small_node.run(small_node.run_pod("web"))
    node = small_node.node(read_deadline_seconds=0.3)
    node.locate()
    small_node.failpoints["RemoveImage"] = Delay(1.0)
    outcome = outcome_of(relieve(node, IMAGES), image)
    assert (str(outcome.result), outcome.error) == ("removed", "")
    assert outcome.duration_seconds >= 1.0


# ---- what must stop a pass that runs stops it before its next call


@pytest.fixture
def small(make_small_node: SmallNodeFactory) -> SmallNode:
    """With a runtime that can be interrupted, and a pod that runs."""
    made = make_small_node(server=InterruptingServer)
    made.run(made.run_pod("web"))
    return made


def interrupted(
    small: SmallNode, method: str, images: list[str], meanwhile: Callable[[], object]
) -> list[int]:
    """Has something happen in the next pass, while it removes the first image or checks the second;
    how often the status of images was asked by then."""
    asked: list[int] = []

    def now() -> None:
        asked.append(small.failpoints.calls["ImageStatus"])
        meanwhile()

    assert isinstance(small.server, InterruptingServer)
    image_id = images[0 if method == "RemoveImage" else 1]
    small.server.before = Once(method, image_id, now)
    return asked


def assert_nothing_more(
    small: SmallNode, record: Pass, images: list[str], reason: str, asked: list[int]
) -> None:
    """The removal that was sent ends, and is asked after; everything after it is kept without
    another question, and the record says why."""
    assert small.removed() == images[:1]
    assert {reason_of(record, image) for image in images[1:]} == {reason}
    more = small.failpoints.calls["ImageStatus"] - asked[0]
    assert more <= 1
    assert str(record.result) == "not_enough"


def paused(node: Node) -> None:
    """An operator pauses removals."""
    node.owner.post(PauseSet(600.0))


def reconfigured(node: Node) -> None:
    """Another configuration was read."""
    node.owner.post(Reconfigured(node.configuration.model_copy(update={"dry_run": True})))


def stopped(node: Node) -> None:
    """The daemon is told to stop."""
    node.owner.stop()


BRAKES: dict[Callable[[Node], None], str] = {
    paused: "paused",
    reconfigured: "reconfigured",
    stopped: "stopping",
}


@pytest.mark.parametrize("brake", BRAKES, ids=lambda brake: brake.__name__)
@pytest.mark.parametrize("method", ["RemoveImage", "ImageStatus"])
def test_a_pass_that_runs_sends_nothing_more(
    small: SmallNode, brake: Callable[[Node], None], method: str
) -> None:
    """Whichever of them comes while it runs."""
    images = small.add_images(4)
    node = small.node(Signal.NODEFS_AVAILABLE, above=40 * MIB)
    asked = interrupted(small, method, images, lambda: brake(node))
    assert_nothing_more(small, relieve(node), images, BRAKES[brake], asked)


@pytest.mark.parametrize("extent", ["enough", "all"])
@pytest.mark.parametrize("method", ["RemoveImage", "ImageStatus"])
def test_a_mount_that_appears_costs_no_image(small: SmallNode, method: str, extent: str) -> None:
    """Over the images: what would be removed now frees nothing where the pressure is."""
    images = small.add_images(8, MIB)
    node = small.node(Signal.NODEFS_AVAILABLE, above=40 * MIB, extent=extent)
    over = str(small.images_root)
    asked = interrupted(small, method, images, lambda: mount_tmpfs(over, 16 * MIB, 1000))
    try:
        record = relieve(node)
    finally:
        unmount(over)
    assert_nothing_more(small, record, images, "layout_changed", asked)
