"""Which call a fault takes, what it does, and what is wrong in each distorted answer."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from eviction.drill.runtime import InjectedError
from reclaim.cri import cri_pb2 as pb
from tests.nodes.distortions import HUGE_NAME_CHARACTERS, Distort, Distortion, distorted
from tests.nodes.faults import Cut, Fail, Hang, Pretend
from tests.nodes.method_faults import MethodFault, SeveralFaults, When, arm
from tests.pure.values import SteppedClock

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


def letters(*faults: MethodFault, count: int, clock: SteppedClock | None = None) -> str:
    """How so many calls end, a second apart: Failed, Done, or with Half a list."""
    clock = clock or SteppedClock()
    failpoints = SeveralFaults(frozenset({"ListImages"}), clock.monotonic)
    for fault in faults:
        arm(failpoints, fault)
    found = []
    for _ in range(count):
        try:
            answer = failpoints.apply("ListImages", lambda: LIST, pb.ListContainersResponse())
            found.append({3: "D", 2: "H"}[len(answer.containers)])
        except InjectedError:
            found.append("F")
        clock.step(1.0)
    return "".join(found)


def images(action: Any, **when: Any) -> MethodFault:
    return MethodFault("ListImages", action, When(**when))


@pytest.mark.parametrize(
    ("faults", "ends"),
    [
        pytest.param([images(Fail(times=2), from_call=3)], "DDFFDDD", id="from a call on, twice"),
        pytest.param(
            [images(Fail(), after_seconds=5.0, for_seconds=2.0)],
            "DDDDDFFDD",
            id="for a span of time, whose end is exclusive",
        ),
        pytest.param(
            [
                images(Fail(times=1), from_call=2),
                images(Distort(Distortion.HALF_LIST, times=1), from_call=2),
            ],
            "DFHD",
            id="the first of several that applies; the others are not used up",
        ),
    ],
)
def test_a_fault_takes_its_calls(faults: list[MethodFault], ends: str) -> None:
    """By their number and by the time since it was set."""
    assert letters(*faults, count=len(ends)) == ends


def test_what_the_faults_do() -> None:
    """A pretended call does nothing; a cut sends half of the list before its error; the mapping
    shows the first fault, and has no method that there is not."""
    done: list[str] = []
    failpoints = SeveralFaults(frozenset({"RemoveImage"}))
    failpoints["RemoveImage"] = Pretend()
    assert failpoints.apply("RemoveImage", lambda: done.append("x"), None) is None
    assert done == []
    failpoints["RemoveImage"] = cut = Cut(grpc.StatusCode.INTERNAL, "gone")
    arm(failpoints, MethodFault("RemoveImage", Fail()))
    with pytest.raises(InjectedError) as caught:
        failpoints.apply("RemoveImage", lambda: LIST, pb.ListContainersResponse())
    assert caught.value.code is grpc.StatusCode.INTERNAL
    assert list(caught.value.partial.containers) == LIST.containers[:2]
    assert failpoints["RemoveImage"] == cut
    with pytest.raises(KeyError, match="ListImage"):
        arm(failpoints, MethodFault("ListImage", Hang()))


def test_a_distortion_changes_a_copy() -> None:
    """The answer itself stays as it was, for every distortion; each changes something of some
    answer, and never the label that decides. Names stay different."""
    before = LIST.SerializeToString(deterministic=True)
    status = pb.ContainerStatusResponse(status=pb.ContainerStatus(log_path="/x"))
    for how in Distortion:
        assert any(distorted(answer, how) != answer for answer in (LIST, IMAGES, status)), how
        entries = distorted(LIST, how).containers
        assert {each.labels["io.kubernetes.pod.uid"] for each in entries} == {"u"}
    assert LIST.SerializeToString(deterministic=True) == before
    huge = {each.metadata.name for each in distorted(LIST, Distortion.HUGE_NAMES).containers}
    assert len(huge) == 3
    assert all(len(name) > HUGE_NAME_CHARACTERS - 8 for name in huge)
