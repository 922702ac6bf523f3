"""What the runtime answers, and what then goes: only complete answers permit a removal; an error
is no failure, a success no absence; nothing is cancelled, and a mount stops a pass at once.

Every code of every method: `tests/faults/test_answers.py`; every end of a pass:
`tests/pure/engine/test_pass.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from eviction.drill.private_mounts import EmbeddedNodeError, mount_tmpfs, unmount
from reclaim.cri import cri_pb2 as pb
from signals.types import Signal
from tests.nodes.faults import ActThenFail, Delay, Fail
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
from tests.rows import rows
from tests.sockets.conftest import SmallNodeFactory
from tests.sockets.passes import reworded

Code = grpc.StatusCode
ASKED = [
    "ListImages",
    "ListContainers",
    "ListPodSandbox",
    "Status",
    "Version",
    "ContainerStatus",
    "PodSandboxStatus",
]


def crowd(small: SmallNode) -> tuple[list[str], str]:
    """Three old images, a running pod, and a dead container of a pod that is gone."""
    images = small.add_images(3)
    small.run(small.run_pod("web"))
    return images, small.gone_pod("gone", writes=MIB)


# ---- what is asked


@pytest.mark.parametrize("method", ASKED)
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
    record = reworded(small_node, tmp_path, IMAGES, **{method: change})
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


@rows("""
    method           | acts | code              | result       | what
    RemoveImage      | yes  | DEADLINE_EXCEEDED | removed      | an error is no failure
    RemoveContainer  | yes  | DEADLINE_EXCEEDED | removed      | nor of a container
    RemovePodSandbox | yes  | DEADLINE_EXCEEDED | removed      | nor of a sandbox
    RemoveImage      |      | UNKNOWN           | failed       | unless it is still there
    RemoveContainer  |      | UNKNOWN           | failed       | then its sandbox stays, too
    RemoveImage      |      | NOT_FOUND         | failed       | not found, and still there
    RemoveImage      | yes  | NOT_FOUND         | already_gone | somebody else has freed that
    RemoveContainer  | yes  | NOT_FOUND         | already_gone | also of a container
""")
def test_a_removal_that_acts_and_then_fails_counts_as_removed(
    small_node: SmallNode, method: str, acts: bool, code: str, result: str
) -> None:
    """After any error the runtime is asked what is there, and only that counts; the error is told,
    and the others go."""
    images, container = crowd(small_node)
    fault = ActThenFail if acts else Fail
    small_node.failpoints[method] = fault(grpc.StatusCode[code], "lost the answer", times=1)
    record = relieve(small_node.node(), EVERYTHING)
    failed = next(each for each in record.removals if each.verdict.kind == KINDS[method])
    assert (str(failed.result), failed.freed.bytes > 0) == (
        result,
        result == "removed" and method != "RemovePodSandbox",
    )
    assert ("lost the answer" in failed.error) is (code != "NOT_FOUND")
    gone = small_node.removed()
    assert {*images, container} - {failed.verdict.id} <= set(gone)
    assert (failed.verdict.id in gone) is (result != "failed")
    assert (small_node.removed("sandbox") == []) is (method == "RemoveContainer" and not acts)


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


@pytest.mark.parametrize("method", ["RemoveImage", "ImageStatus"])
def test_a_mount_that_appears_costs_no_image(
    make_small_node: SmallNodeFactory, method: str
) -> None:
    """Over the images, while the first is removed or the second checked: what would be removed now
    frees nothing where the pressure is. It is kept without another question, and the record says
    why."""
    small = make_small_node(server=InterruptingServer)
    small.run(small.run_pod("web"))
    images = small.add_images(8, MIB)
    node = small.node(Signal.NODEFS_AVAILABLE, above=40 * MIB)
    over, asked = str(small.images_root), list[int]()

    def mounted() -> None:
        asked.append(small.failpoints.calls["ImageStatus"])
        mount_tmpfs(over, 16 * MIB, 1000)

    assert isinstance(small.server, InterruptingServer)
    small.server.before = Once(method, images[method == "ImageStatus"], mounted)
    try:
        record = relieve(node)
    finally:
        unmount(over)
    assert small.removed() == images[:1]
    assert {reason_of(record, image) for image in images[1:]} == {"layout_changed"}
    assert small.failpoints.calls["ImageStatus"] - asked[0] <= 1
    assert str(record.result) == "not_enough"
