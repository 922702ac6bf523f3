"""Which call a fault takes, and distortions of answers."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from eviction.drill.runtime.server import Failpoints, InjectedError
from reclaim.cri import cri_pb2 as pb
from tests.nodes.distortions import HUGE_NAME_CHARACTERS, Distort, Distortion, distorted
from tests.nodes.faults import Cut, Fail, Hang, Pretend
from tests.nodes.method_faults import MethodFault, SeveralFaults, When, arm

METHODS = frozenset({"ListImages", "RemoveImage"})


@pytest.mark.parametrize(
    "wrong",
    [{"from_call": 0}, {"after_seconds": -1.0}, {"for_seconds": -1.0}, {"probability": 2.0}],
    ids=str,
)
def test_conditions_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    """The message names the condition."""
    with pytest.raises(ValueError, match=next(iter(wrong)).split("_")[0]):
        When(**wrong)


# ---- which call a fault takes


class Stepped:
    """A clock that the test moves."""

    now = 100.0

    def __call__(self) -> float:
        """Seconds."""
        return self.now


def called(failpoints: Failpoints) -> str:
    """The answer of one call."""
    answer = failpoints.apply("ListImages", lambda: LIST, pb.ListContainersResponse())
    return {3: "done", 2: "done changed"}[len(answer.containers)]


def outcomes(failpoints: Failpoints, count: int) -> str:
    """One letter a call: F failed, D done."""
    letters = []
    for _ in range(count):
        try:
            letters.append(called(failpoints)[0].upper())
        except InjectedError:
            letters.append("F")
    return "".join(letters)


def test_a_fault_begins_with_its_call_and_lasts_its_times() -> None:
    """From the third call on, twice."""
    failpoints = SeveralFaults(METHODS)
    arm(failpoints, MethodFault("ListImages", Fail(times=2), When(from_call=3)))
    assert outcomes(failpoints, 7) == "DDFFDDD"


def test_a_fault_has_a_span_of_time() -> None:
    """From 5 s after it was set, for 2 s; the end is exclusive."""
    clock = Stepped()
    failpoints = SeveralFaults(METHODS, clock)
    arm(failpoints, MethodFault("ListImages", Fail(), When(after_seconds=5.0, for_seconds=2.0)))
    found = []
    for now in (104.9, 105.0, 106.9, 107.0):
        clock.now = now
        found.append(outcomes(failpoints, 1))
    assert found == ["D", "F", "F", "D"]


def test_a_probability_is_repeatable_with_its_seed() -> None:
    """About a third of 300 calls fail, the same ones each time, and others with another seed."""

    def drawn(seed: int) -> str:
        failpoints = SeveralFaults(METHODS)
        arm(failpoints, MethodFault("ListImages", Fail(), When(probability=1 / 3, seed=seed)))
        return outcomes(failpoints, 300)

    assert drawn(1) == drawn(1) != drawn(2)
    assert 70 < drawn(1).count("F") < 130


def test_of_several_faults_the_first_that_applies_is_used() -> None:
    """A burst at the second call, then one for all calls from the fourth on; a fault that is
    not used is not used up."""
    failpoints = SeveralFaults(METHODS)
    arm(failpoints, MethodFault("ListImages", Fail(message="burst", times=1), When(from_call=2)))
    arm(
        failpoints,
        MethodFault("ListImages", Distort(Distortion.HALF_LIST, times=1), When(from_call=2)),
    )
    assert outcomes(failpoints, 1) == "D"
    assert outcomes(failpoints, 1) == "F"
    assert called(failpoints) == "done changed"
    assert called(failpoints) == "done"
    assert failpoints["ListImages"] == Fail(message="burst", times=1), "the mapping shows the first"
    with pytest.raises(KeyError, match="ListImage"):
        arm(failpoints, MethodFault("ListImage", Hang()))


def test_a_pretended_call_does_nothing() -> None:
    """The answer is empty, and nothing was done."""
    done: list[str] = []
    failpoints = SeveralFaults(METHODS)
    failpoints["RemoveImage"] = Pretend()
    assert failpoints.apply("RemoveImage", lambda: done.append("x"), None) is None
    assert done == []


def test_a_cut_sends_half_a_list_and_then_fails() -> None:
    """Half of the list is sent before the error, and the error has its code."""
    failpoints = SeveralFaults(METHODS)
    failpoints["ListImages"] = Cut(grpc.StatusCode.INTERNAL, "gone")
    with pytest.raises(InjectedError) as caught:
        called(failpoints)
    assert caught.value.code is grpc.StatusCode.INTERNAL
    assert list(caught.value.partial.containers) == LIST.containers[:2]


# ---- wrong answers

LIST = pb.ListContainersResponse(
    containers=[
        pb.Container(
            id=letter * 64,
            created_at=5,
            metadata=pb.ContainerMetadata(name=f"app-{letter}"),
            labels={"io.kubernetes.pod.name": "web", "io.kubernetes.pod.uid": "u"},
        )
        for letter in "abc"
    ]
)
IMAGES = pb.ListImagesResponse(
    images=[pb.Image(id="sha256:" + "12" * 32, size=7, repo_tags=["app:1"])]
)


def test_a_distortion_changes_a_copy() -> None:
    """The answer itself stays as it was, for every distortion; each changes
    something of some answer.
    """
    before = LIST.SerializeToString(deterministic=True)
    status = pb.ContainerStatusResponse(status=pb.ContainerStatus(log_path="/x"))
    for how in Distortion:
        changed = [distorted(answer, how) != answer for answer in (LIST, IMAGES, status)]
        assert any(changed), how
    assert LIST.SerializeToString(deterministic=True) == before


def test_distortions_of_entries_and_ids() -> None:
    """Half is rounded up, doubled is in order twice, rotated moves each id by one;
    short ids have six characters.
    """

    def ids(how: Distortion) -> list[str]:
        return [each.id[:7] for each in distorted(LIST, how).containers]

    assert ids(Distortion.HALF_LIST) == ["a" * 7, "b" * 7]
    assert ids(Distortion.DUPLICATE_ENTRIES) == ["a" * 7, "b" * 7, "c" * 7] * 2
    assert ids(Distortion.ROTATED_IDS) == ["b" * 7, "c" * 7, "a" * 7]
    assert ids(Distortion.SHORT_IDS) == ["a" * 6, "b" * 6, "c" * 6]
    assert ids(Distortion.EMPTY_IDS) == ["", "", ""]
    assert distorted(IMAGES, Distortion.UNKNOWN_IDS).images[0].id == "sha256:" + "21" * 32
    assert distorted(IMAGES, Distortion.SHORT_IDS).images[0].id == "121212"


def test_distortions_of_numbers_and_names() -> None:
    """Sizes and times take the value that is named, names grow or go, and the
    label that decides stays true.
    """
    assert distorted(IMAGES, Distortion.LARGEST_SIZES).images[0].size == (1 << 63) - 1
    assert distorted(LIST, Distortion.NEGATIVE_TIMES).containers[0].created_at < 0
    assert distorted(LIST, Distortion.EMPTY_NAMES).containers[0].metadata.name == ""
    huge = distorted(LIST, Distortion.HUGE_NAMES).containers
    assert HUGE_NAME_CHARACTERS - 8 < len(huge[0].metadata.name) <= HUGE_NAME_CHARACTERS
    assert huge[0].metadata.name != huge[1].metadata.name, "two names stay two"
    assert (
        "\n"
        in distorted(LIST, Distortion.CONTROL_NAMES).containers[0].labels["io.kubernetes.pod.name"]
    )
    assert all(each.labels["io.kubernetes.pod.uid"] == "u" for each in huge)
