"""Bugs found in the removal of images: each has the test that found it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import pytest

from reclaim.cri import cri_pb2 as pb
from signals.types import Signal
from tests.nodes.distortions import Distort, Distortion
from tests.nodes.faults import Fail, Failpoint, Hang, Pretend
from tests.nodes.method_faults import MethodFault, When, arm
from tests.nodes.small_node import EVERYTHING, IMAGES, MIB, SmallNode, reason_of, relieve, result_of
from tests.reclaimd_process import answer, reclaimd
from tests.sockets.conftest import SmallNodeFactory
from tests.sockets.dialect import Dialect

pytestmark = pytest.mark.regression


def test_a_pin_on_another_image_does_not_name_the_sandbox_image(
    make_small_node: SmallNodeFactory,
) -> None:
    """With nothing that names the sandbox image none goes, whatever else is
    pinned; and a new pod starts.
    """
    small = make_small_node(pins_sandbox_image=False, reports_sandbox_image=False)
    small.add_image("registry.example/preloaded:1", pinned=True)
    small.run(small.run_pod("web"))
    relieve(small.node(), EVERYTHING)
    assert small.pause_id in small.images()
    small.run_pod("new")


def test_a_container_known_by_a_tag_that_means_nothing_stops_images(
    small_node: SmallNode, tmp_path: Path
) -> None:
    """A tag that the runtime no longer resolves says nothing of which image the container uses."""
    image = small_node.add_image("registry.example/old:1")
    small_node.run(small_node.run_pod("web"), image)

    def tag_only(answer: Any) -> None:
        for item in answer.containers:
            item.image_id, item.image_ref = "", "registry.example/renamed:1"
            item.image.image = "registry.example/renamed:1"

    with Dialect(
        small_node.server.target, str(tmp_path / "d.sock"), {"ListContainers": tag_only}
    ) as d:
        relieve(small_node.node(containerRuntimeEndpoint=d.endpoint), IMAGES)
    assert image in small_node.images()


def test_age_zero_without_a_witness(small_node: SmallNode) -> None:
    """With a minimum age of 0 s an image may go at first sight."""
    small_node.add_images(1)
    small_node.run(small_node.run_pod("app"))
    conf = small_node.configuration(Signal.NODEFS_AVAILABLE, above=2 * MIB)
    for image in small_node.images():
        small_node.runtime.age(image, -3600.0)  # in the future
    p = reclaimd("reclaim", "--config", conf, "-o", "json")
    assert p.returncode == 0, answer(p)["kept_by_reason"]


def test_a_name_of_the_keep_list_that_an_image_got_after_the_list(small_node: SmallNode) -> None:
    """The keep-list is asked right before the removal, with the names of that moment."""
    _, second = small_node.add_images(2)
    small_node.run(small_node.run_pod("app"))
    small_node.failpoints["RemoveImage"] = Hang(times=1)
    with small_node.relieving(
        small_node.node(keepImages=["registry.example/kept:*"]), IMAGES
    ) as going:
        small_node.wait_for("RemoveImage")
        small_node.runtime.tag_image(second, "registry.example/kept:1")
        small_node.failpoints.clear()
        record = going.result()
    assert second in small_node.images()
    assert reason_of(record, second) == "keep_list"


@pytest.mark.parametrize(
    "lie", [Pretend(times=1), Fail(grpc.StatusCode.NOT_FOUND, "gone", times=1)], ids=repr
)
def test_a_status_that_says_nothing_does_not_unmount_an_image(
    small_node: SmallNode, lie: Failpoint
) -> None:
    """What a container mounts was taken for nothing, and that was remembered for ever."""
    volume = small_node.add_image("registry.example/volume:1")
    small_node.create(
        small_node.run_pod("app"), mounts=[pb.Mount(image=pb.ImageSpec(image=volume))]
    )
    node = small_node.node()
    small_node.failpoints["ContainerStatus"] = lie
    relieve(node, IMAGES)
    relieve(node, IMAGES)
    assert volume in small_node.images()


def test_an_image_pulled_again_after_an_unanswered_question_is_new(small_node: SmallNode) -> None:
    """An image removed with an unknown result and pulled again at once kept
    its old age; now it is new.
    """
    (image,) = small_node.add_images(1)
    small_node.run(small_node.run_pod("app"))
    node = small_node.node()
    arm(
        small_node.failpoints,
        MethodFault("ImageStatus", Fail(grpc.StatusCode.INTERNAL, times=1), When(from_call=2)),
    )
    record = relieve(node, IMAGES)
    assert result_of(record, image) == "failed"
    assert small_node.removed("image") == [image]
    small_node.add_image("registry.example/old/0:1")
    record = relieve(node, IMAGES)
    assert reason_of(record, image) == "too_young"


def test_an_image_pulled_again_before_its_removal_is_verified_is_new(small_node: SmallNode) -> None:
    """It was removed, and is there when it is asked for: that is another pull, not a
    failure of which nothing came.
    """
    (image,) = small_node.add_images(1)
    small_node.run(small_node.run_pod("app"))
    node = small_node.node()
    arm(small_node.failpoints, MethodFault("ImageStatus", Hang(times=1), When(from_call=2)))
    with small_node.relieving(node, IMAGES) as going:
        small_node.wait_for("ImageStatus", 2)
        small_node.add_image("registry.example/old/0:1")
        small_node.failpoints.clear()
        going.result()
    record = relieve(node, IMAGES)
    assert reason_of(record, image) == "too_young"


def test_the_sandbox_image_is_kept_when_the_list_gives_its_name_to_another(
    small_node: SmallNode,
) -> None:
    """With the ids in the list rotated the pause image went, as its name was on another
    id; no pod could start then.

    The status of an image is asked by id right before its removal, and what it says protects it.
    """
    small_node.add_images(2)
    small_node.run(small_node.run_pod("web"))
    small_node.failpoints["ListImages"] = Distort(Distortion.ROTATED_IDS)
    relieve(small_node.node(), EVERYTHING)
    small_node.failpoints.clear()
    assert small_node.pause_id in small_node.images()
    small_node.run_pod("new")


def test_an_image_that_was_pinned_since_it_was_listed_is_kept(small_node: SmallNode) -> None:
    """The second image is pinned between the list and the removal: only the first is removed."""
    first, second = small_node.add_images(2)
    small_node.run(small_node.run_pod("web"))
    small_node.failpoints["RemoveImage"] = Hang(times=1)
    with small_node.relieving(small_node.node(), EVERYTHING) as going:
        small_node.wait_for("RemoveImage")
        small_node.add_image("registry.example/old/1:1", pinned=True)
        small_node.failpoints.clear()
        record = going.result()
    assert small_node.removed("image") == [first]
    assert reason_of(record, second) == "pinned"


def test_an_image_that_became_the_sandbox_image_since_it_was_listed_is_kept(
    make_small_node: SmallNodeFactory,
) -> None:
    """The tag of the sandbox image moves to another image after the list: that one
    stays, by what its status says.
    """
    small = make_small_node(pins_sandbox_image=False)
    first, second = small.add_images(2)
    small.run(small.run_pod("web"))
    small.failpoints["RemoveImage"] = Hang(times=1)
    with small.relieving(small.node(), EVERYTHING) as going:
        small.wait_for("RemoveImage")
        small.runtime.tag_image(second, small.runtime.sandbox_image)
        small.failpoints.clear()
        record = going.result()
    assert small.removed("image") == [first]
    assert reason_of(record, second) == "sandbox_image"
