"""The entries of a list: the same as protobuf's own parser finds, and none from bytes that are no list."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclaim.cri import cri_pb2 as pb
from reclaim.cri.convert import entries
from reclaim.cri.status import CallError

names = st.text(max_size=20)


@given(st.lists(st.tuples(names, names, st.integers(-(1 << 63), (1 << 63) - 1)), max_size=20))
def test_the_entries_are_those_of_the_whole_message(listed: list[tuple[str, str, int]]) -> None:
    """Whatever is in the containers, each entry is parsed as the one at its place in the whole message."""
    answer = pb.ListContainersResponse(
        containers=[pb.Container(id=i, image_ref=ref, created_at=at) for i, ref, at in listed]
    )
    found = [pb.Container.FromString(piece) for piece in entries(answer.SerializeToString())]
    assert found == list(answer.containers)


def test_fields_that_are_not_known_are_skipped() -> None:
    """A newer runtime may add a number, a text or a fixed field to its answer, before and after the entries."""
    one = pb.ListImagesResponse(images=[pb.Image(id="a")]).SerializeToString()
    extra = b"\x10\x96\x01" + b"\x1a\x03abc" + b"\x21" + bytes(8) + b"\x2d" + bytes(4)
    assert [pb.Image.FromString(piece).id for piece in entries(extra + one + extra + one)] == ["a", "a"]


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
