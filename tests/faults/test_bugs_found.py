"""Bugs that the bench found: each has the smallest story that shows it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from eviction.drill.runtime.distortions import Distortion
from eviction.drill.runtime.failpoints import Distort, Failpoint, Hang, Pretend
from eviction.reporting.pass_record import pass_json
from reclaim.cri import cri_pb2 as pb
from tests.faults.bench import EVERYTHING
from tests.nodes.small_node import SmallNode, reason_of, relieve, result_of
from tests.sockets.conftest import SmallNodeFactory
from tests.sockets.dialect import Dialect


def test_a_container_that_is_listed_twice_is_not_its_own_newer_copy(small_node: SmallNode) -> None:
    """The newest dead copy of a live pod went as the older copy of itself; now two equal entries are one."""
    newest = small_node.exited(small_node.run_pod("crashed"))
    small_node.failpoints["ListContainers"] = Distort(Distortion.DUPLICATE_ENTRIES)
    record = relieve(small_node.node(), EVERYTHING)
    assert newest in small_node.containers()
    assert reason_of(record, newest) == "newest_of_live_pod"


def test_a_sandbox_that_is_listed_twice_is_not_its_own_newer_copy(small_node: SmallNode) -> None:
    """The newest sandbox of a live pod without containers stays."""
    pod = small_node.run_pod("rebooted")
    small_node.runtime.kill_sandbox(pod.sandbox_id)
    small_node.runtime.age(pod.sandbox_id, 600)
    small_node.failpoints["ListPodSandbox"] = Distort(Distortion.DUPLICATE_ENTRIES)
    record = relieve(small_node.node(), EVERYTHING)
    assert small_node.removed("sandbox") == []
    assert reason_of(record, pod.sandbox_id) == "newest_sandbox"


def test_a_list_that_says_two_things_of_one_container_is_not_trusted(small_node: SmallNode, tmp_path: Path) -> None:
    """EXITED and RUNNING under one id: which is true nobody knows, so nothing goes."""
    small_node.add_images(2)
    small_node.gone_pod("gone")

    def contradict(answer: Any) -> None:
        for item in list(answer.containers):
            answer.containers.add().CopyFrom(item)
            answer.containers[-1].state = pb.CONTAINER_RUNNING

    with Dialect(small_node.server.target, str(tmp_path / "d.sock"), {"ListContainers": contradict}) as dialect:
        record = relieve(small_node.node(containerRuntimeEndpoint=dialect.endpoint), EVERYTHING)
    assert small_node.removed() == []
    assert "twice and differently" in " ".join(record.errors)


def test_the_sandbox_image_stays_when_the_list_gives_its_name_to_another(small_node: SmallNode) -> None:
    """With the ids in the list rotated the pause image went, as its name was on another id; no pod could start then.

    The status of an image is asked by id right before its removal, and what it says protects it.
    """
    small_node.add_images(2)
    small_node.run(small_node.run_pod("web"))
    small_node.failpoints["ListImages"] = Distort(Distortion.ROTATED_IDS)
    relieve(small_node.node(), EVERYTHING)
    small_node.failpoints.clear()
    assert small_node.pause_id in small_node.images()
    small_node.run_pod("new")


def test_an_image_that_was_pinned_since_it_was_listed_stays(small_node: SmallNode) -> None:
    """Between the list and the removal somebody pins the second image: only the first goes."""
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


def test_an_image_that_became_the_sandbox_image_since_it_was_listed_stays(make_small_node: SmallNodeFactory) -> None:
    """The tag of the sandbox image moves to another image after the list: that one stays, by what its status says."""
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


def test_containers_without_names_are_not_copies_of_each_other(small_node: SmallNode) -> None:
    """The dead init container of a live pod went as the older copy of its app, as both were listed without a name."""
    pod = small_node.run_pod("web")
    init, app = small_node.exited(pod, name="init"), small_node.exited(pod, attempt=1)
    small_node.failpoints["ListContainers"] = Distort(Distortion.EMPTY_NAMES)
    record = relieve(small_node.node(), EVERYTHING)
    assert small_node.containers() == {init, app}
    assert {reason_of(record, each) for each in (init, app)} == {"not_kubelets"}


def test_a_shortened_id_of_a_sandbox_is_never_sent(small_node: SmallNode) -> None:
    """Six characters in the list removed the sandbox that began so; now its status must answer with the very id."""
    small_node.gone_pod("gone")
    small_node.failpoints["ListPodSandbox"] = Distort(Distortion.SHORT_IDS)
    record = relieve(small_node.node(), EVERYTHING)
    assert small_node.removed("sandbox") == []
    (outcome,) = [each for each in record.removals if each.verdict.kind == "sandbox"]
    assert result_of(record, outcome.verdict.id) == "already_gone"
    assert small_node.failpoints.calls["RemovePodSandbox"] == 0


@pytest.mark.parametrize("lie", [Distort(Distortion.EMPTY_IDS), Pretend()], ids=["without an id", "without a status"])
def test_a_sandbox_of_which_its_status_says_nothing_is_not_gone(small_node: SmallNode, lie: Failpoint) -> None:
    """An answer without a status is neither there nor gone: nothing is sent, and nothing is told as gone."""
    small_node.gone_pod("gone")
    small_node.failpoints["PodSandboxStatus"] = lie
    record = relieve(small_node.node(), EVERYTHING)
    assert small_node.removed("sandbox") == []
    (outcome,) = [each for each in record.removals if each.verdict.kind == "sandbox"]
    assert str(outcome.result) == "unanswered"
    assert "without a status" in outcome.error


@pytest.mark.parametrize("how", [Distortion.HUGE_NAMES, Distortion.CONTROL_NAMES], ids=str)
def test_a_name_of_one_mebibyte_makes_no_line_of_megabytes(small_node: SmallNode, how: Distortion) -> None:
    """The line of a pass had 12 MiB: journald cuts at 48 KiB, and half an object is no JSON."""
    small_node.exited(small_node.run_pod("crashed"))
    small_node.gone_pod("gone")
    small_node.failpoints["ListContainers"] = Distort(how)
    small_node.failpoints["ListImages"] = Distort(how)
    line = json.dumps(pass_json(relieve(small_node.node(), EVERYTHING)))
    assert len(line) < 48 << 10
