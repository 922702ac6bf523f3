"""What ballast may be, which extents are its own, and where there is room for it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eviction.ballast import (
    ENCODED,
    ENCRYPTED,
    INLINE,
    SHARED,
    UNPLACED,
    Extent,
    extents_problem,
    own_bytes,
    room_problem,
)
from reclaim.ballast import BallastSettings
from tests.pure.values import MIB

SETTINGS = BallastSettings("/var/lib/kubelet/reclaimd.ballast", 8 * MIB)


def test_the_name_of_the_file_and_its_directory() -> None:
    """Also at the root."""
    assert (SETTINGS.directory, SETTINGS.name) == ("/var/lib/kubelet", "reclaimd.ballast")
    assert BallastSettings("/ballast", MIB).directory == "/"


@pytest.mark.parametrize(
    ("extents", "words"),
    [
        ((), "sparse: 0 of its 8388608 bytes"),
        ((Extent(0, 4 * MIB),), "sparse: 4194304 of its 8388608 bytes"),
        ((Extent(0, 4 * MIB), Extent(4 * MIB, 4 * MIB, SHARED)), "shares extents"),
        ((Extent(0, 8 * MIB, INLINE),), "in the metadata"),
        ((Extent(0, 8 * MIB, ENCODED),), "compressed"),
        ((Extent(0, 8 * MIB, UNPLACED),), "sparse: 0 of"),
        ((Extent(MIB, 16 * MIB),), "sparse: 7340032 of"),
    ],
)
def test_extents_that_hold_less_than_the_size_are_refused(extents: tuple[Extent, ...], words: str) -> None:
    """A hole, what another file has too, what is compressed or has no place; what lies behind the end is no help."""
    assert words in extents_problem(extents, 8 * MIB)


def test_what_is_encrypted_holds_its_bytes() -> None:
    """It is encoded, but takes as much as it is long."""
    assert extents_problem((Extent(0, 8 * MIB, ENCODED | ENCRYPTED),), 8 * MIB) == ""


@given(st.lists(st.integers(1, 64), min_size=1), st.integers(0, 64))
def test_pieces_without_a_gap_are_whole_however_many(lengths: list[int], behind: int) -> None:
    """Also with some allocation behind the end of the file."""
    size, extents, at = sum(lengths), [], 0
    for length in lengths:
        extents.append(Extent(at, length))
        at += length
    extents[-1] = extents[-1]._replace(length=extents[-1].length + behind)
    assert own_bytes(extents, size) == size
    assert extents_problem(extents, size) == ""
    assert extents_problem(extents[:-1], size)


def test_it_is_made_where_twice_its_size_is_available_above_the_mark() -> None:
    """A byte less is refused, with all the numbers."""
    assert room_problem(16 * MIB, SETTINGS) is None
    assert room_problem(26 * MIB, SETTINGS, 10 * MIB) is None
    problem = room_problem(26 * MIB - 1, SETTINGS, 10 * MIB)
    assert problem is not None
    assert "27262975 bytes are available" in problem
    assert "above the mark of 10485760 bytes, 27262976 bytes" in problem
