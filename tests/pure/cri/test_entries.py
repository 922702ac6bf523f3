"""What is read of the runtime's answers: the same entries as by protobuf's own parser, and none
from bytes that are no list; and how long a container has to stop."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclaim.cri import cri_pb2 as pb
from reclaim.cri.convert import GRACE_ANNOTATIONS, entries, stop_grace_seconds
from reclaim.cri.status import CallError

names = st.text(max_size=20)


@given(st.lists(st.tuples(names, names, st.integers(-(1 << 63), (1 << 63) - 1)), max_size=20))
def test_the_entries_are_those_of_the_whole_message(listed: list[tuple[str, str, int]]) -> None:
    """Whatever is in the containers, each entry is parsed as the one at its
    place in the whole message.
    """
    answer = pb.ListContainersResponse(
        containers=[pb.Container(id=i, image_ref=ref, created_at=at) for i, ref, at in listed]
    )
    found = [pb.Container.FromString(piece) for piece in entries(answer.SerializeToString())]
    assert found == list(answer.containers)


def test_fields_that_are_not_known_are_skipped() -> None:
    """A newer runtime may add a number, a text or a fixed field to its answer,
    before and after the entries.
    """
    one = pb.ListImagesResponse(images=[pb.Image(id="a")]).SerializeToString()
    extra = b"\x10\x96\x01" + b"\x1a\x03abc" + b"\x21" + bytes(8) + b"\x2d" + bytes(4)
    assert [pb.Image.FromString(piece).id for piece in entries(extra + one + extra + one)] == [
        "a",
        "a",
    ]


@pytest.mark.parametrize(
    "broken",
    [b"\x0a", b"\x0a\x05abc", b"\x0a" + b"\xff" * 11, b"\x0b", b"\x21\x00", b"\x80"],
    ids=["no length", "too short", "endless number", "a group", "half a fixed field", "half a tag"],
)
def test_bytes_that_end_early_or_make_no_sense_are_refused(broken: bytes) -> None:
    """A part of an entry is never returned as an entry."""
    whole = pb.ListImagesResponse(images=[pb.Image(id="a")]).SerializeToString()
    with pytest.raises(CallError):
        list(entries(whole + broken))


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(given_bytes: bytes) -> None:
    """No other error is raised, and all entries together are no longer than the bytes."""
    try:
        found = list(entries(given_bytes))
    except CallError:
        return
    assert sum(map(len, found)) <= len(given_bytes)


@pytest.mark.parametrize(
    ("deletion", "pod", "seconds"),
    [("", "", 2), ("40", "30", 40), ("", "30", 30), ("0", "30", 2), ("3601", "", 3600), ("999999999", "", 3600),
     ("9999999999", "", 2), ("-5", "x", 2)],
)  # fmt: skip
def test_a_container_has_the_kubelets_grace_to_stop_and_an_hour_at_most(
    deletion: str, pod: str, seconds: int
) -> None:
    """The deletion's, else the pod's, else 2 s, and never less; what is no number says nothing."""
    written = dict(zip(GRACE_ANNOTATIONS, (deletion, pod), strict=True))
    assert stop_grace_seconds({name: text for name, text in written.items() if text}) == seconds
