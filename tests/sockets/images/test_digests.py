"""A container that names its image by a digest: only that digest says which image it is,
on the list or asked for.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reclaim.cri import cri_pb2 as pb
from tests.nodes.dialects import CONTAINERD_1_6, CRI_O_1_28
from tests.nodes.dialects import Dialect as Rules
from tests.nodes.small_node import IMAGES, MIB, SmallNode, reason_of, relieve
from tests.sockets.conftest import SmallNodeFactory
from tests.sockets.dialect import Dialect

OLD = "registry.example/team/app@sha256:" + "e" * 64


def naming(small: SmallNode, socket_path: Path, reference: str, **changes: Any) -> Dialect:
    """The runtime of a node, whose list says no more of any container's image
    than this reference.
    """

    def reword(answer: Any) -> None:
        for item in answer.containers:
            item.image_id = item.image.image = item.image.user_specified_image = ""
            item.image_ref = reference

    return Dialect(small.server.target, str(socket_path), {"ListContainers": reword, **changes})


@pytest.mark.regression
@pytest.mark.parametrize("reference", [OLD, OLD.replace("@", ":1@")])
def test_an_image_without_a_name_stays_while_a_container_names_a_digest_that_nobody_knows(
    make_small_node: SmallNodeFactory, tmp_path: Path, reference: str
) -> None:
    """The tag has moved to a newer image, and the container's own has lost every name:
    it must not go by the tag.
    """
    small = make_small_node(dialect=CRI_O_1_28)
    own = small.add_image("stranded", MIB, tags=())
    newer = small.add_image(
        "registry.example/team/app:1",
        tags=("registry.example/team/app:1", "registry.example/team/app"),
    )
    small.run(small.run_pod("web"), own)
    with naming(small, tmp_path / "d.sock", reference) as dialect:
        record = relieve(small.node(containerRuntimeEndpoint=dialect.endpoint), IMAGES)
    assert own in small.images()
    assert reason_of(record, own) == "in_use"
    assert newer in small.removed("image"), "it has a digest of its own, which is another"
    assert small.failpoints.calls["RemoveImage"] == len(small.removed("image")), (
        "a runtime that refuses is no guard"
    )


@pytest.mark.regression
def test_an_answer_by_tag_to_a_question_for_a_digest_is_no_answer(
    small_node: SmallNode, tmp_path: Path
) -> None:
    """A runtime that strips the digest and finds the tag has not said which image the
    container uses: none goes.
    """
    newer = small_node.add_image("registry.example/team/app:1")
    own = small_node.add_image("registry.example/other:1")
    small_node.run(small_node.run_pod("web"), own)
    by_tag = next(
        each
        for each in small_node.runtime.list_images(pb.ListImagesRequest()).images
        if each.id == newer
    )

    def answer_by_tag(answer: Any) -> None:
        if not answer.HasField("image"):
            answer.image.CopyFrom(by_tag)

    reference = OLD.replace("@", ":1@")
    with naming(small_node, tmp_path / "d.sock", reference, ImageStatus=answer_by_tag) as dialect:
        record = relieve(small_node.node(containerRuntimeEndpoint=dialect.endpoint), IMAGES)
    assert small_node.removed("image") == []
    assert reason_of(record, own) == "unresolved_image"


def test_a_digest_that_the_runtime_finds_under_another_repository_is_resolved(
    small_node: SmallNode, tmp_path: Path
) -> None:
    """A mirror has another name and the same digest."""
    own = small_node.add_image("registry.example/team/app:1")
    image = next(
        each
        for each in small_node.runtime.list_images(pb.ListImagesRequest()).images
        if each.id == own
    )
    digest = image.repo_digests[0].partition("@")[2]
    small_node.run(small_node.run_pod("web"), own)
    with naming(small_node, tmp_path / "d.sock", f"mirror.example/app@{digest}") as dialect:
        record = relieve(small_node.node(containerRuntimeEndpoint=dialect.endpoint), IMAGES)
    assert reason_of(record, own) == "in_use"
    assert small_node.app_id in small_node.removed("image")


@pytest.mark.regression
@pytest.mark.parametrize("rules", [CONTAINERD_1_6, CRI_O_1_28], ids=["containerd", "cri-o"])
def test_an_image_of_which_only_the_list_lost_the_digest_is_asked_for(
    make_small_node: SmallNodeFactory, tmp_path: Path, rules: Rules
) -> None:
    """Its tag is on another image by now, and no list names it by a digest; asked for
    that, the runtime finds it.
    """
    small = make_small_node(dialect=rules)
    own = small.add_image("registry.example/team/app:1")
    newer = small.add_image("registry.example/team/newer:1")
    listed = {each.id: each for each in small.runtime.list_images(pb.ListImagesRequest()).images}
    (digest,) = next(
        each.repo_digests for image_id, each in listed.items() if own.endswith(image_id)
    )
    small.run(small.run_pod("web"), own)
    small.runtime.tag_image(newer, "registry.example/team/app:1")

    def unlist(answer: Any) -> None:
        for each in answer.images:
            if own.endswith(each.id):
                del each.repo_digests[:]

    with naming(small, tmp_path / "d.sock", digest, ListImages=unlist) as dialect:
        relieve(small.node(containerRuntimeEndpoint=dialect.endpoint), IMAGES)
    assert own in small.images()
    assert newer in small.removed("image")
