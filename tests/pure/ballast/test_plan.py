"""What ballast may be, which extents are its own, and when it is made again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclaim.ballast.plan import (
    BALLAST,
    BallastSettings,
    Extent,
    Restoration,
    extents_problem,
    own_bytes,
    plan_ballast,
    restoration,
    room_problem,
    settings_problem,
)
from reclaim.types import Action
from tests.pure.values import MIB

SETTINGS = BallastSettings("/var/lib/kubelet/reclaimd.ballast", 8 * MIB)


def test_the_plan_is_the_one_file_with_what_is_allocated() -> None:
    """One object of its own kind, with its reason."""
    (verdict,) = plan_ballast(SETTINGS, 8 * MIB).remove
    assert (verdict.kind, verdict.id, verdict.action, verdict.reason) == (
        BALLAST,
        SETTINGS.path,
        Action.REMOVE,
        "set_aside",
    )
    assert verdict.size_bytes == 8 * MIB


def test_the_temporary_file_is_beside_the_file() -> None:
    """Another name in the same directory, so that a rename is enough."""
    assert (SETTINGS.directory, SETTINGS.name) == ("/var/lib/kubelet", "reclaimd.ballast")
    assert SETTINGS.temporary_name == ".reclaimd.ballast.new"
    assert BallastSettings("/ballast", MIB).directory == "/"


@pytest.mark.parametrize(
    ("path", "size_bytes", "words"),
    [
        ("relative", MIB, "absolute path"),
        ("", MIB, "absolute path"),
        ("/", MIB, "absolute path"),
        ("/a/", MIB, "absolute path"),
        ("/a//b", MIB, "absolute path"),
        ("/a/../b", MIB, "absolute path"),
        ("/a/./b", MIB, "absolute path"),
        ("/a\0b", MIB, "absolute path"),
        ("/" + "n" * 241, MIB, "too long"),
        ("/a", MIB - 1, "allowed are 1048576 to"),
        ("/a", 0, "allowed are 1048576 to"),
        ("/a", 1 << 63, "allowed are 1048576 to"),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(path: str, size_bytes: int, words: str) -> None:
    """One sentence that has what was given."""
    problem = settings_problem(path, size_bytes)
    assert problem is not None
    assert words in problem
    assert repr(path) in problem or path in problem


def test_settings_at_the_bounds_are_allowed() -> None:
    """The smallest size and the longest name."""
    assert settings_problem("/" + "n" * 240, MIB) is None


@pytest.mark.parametrize(
    ("extents", "words"),
    [
        ((), "sparse: 0 of its 8388608 bytes"),
        ((Extent(0, 4 * MIB),), "sparse: 4194304 of its 8388608 bytes"),
        ((Extent(0, 4 * MIB), Extent(4 * MIB, 4 * MIB, shared=True)), "shares extents"),
        ((Extent(0, 8 * MIB, inline=True),), "in the metadata"),
        ((Extent(0, 8 * MIB, compressed=True),), "compressed"),
        ((Extent(0, 8 * MIB, placed=False),), "sparse: 0 of"),
        ((Extent(MIB, 16 * MIB),), "sparse: 7340032 of"),
    ],
)
def test_extents_that_hold_less_than_the_size_are_refused(extents: tuple[Extent, ...], words: str) -> None:
    """A hole, what another file has too, what is compressed or has no place; what lies behind the end is no help."""
    problem = extents_problem(extents, 8 * MIB)
    assert problem is not None
    assert words in problem


@given(st.lists(st.integers(1, 64), min_size=1), st.integers(0, 64))
def test_pieces_without_a_gap_are_whole_however_many(lengths: list[int], behind: int) -> None:
    """Also with some allocation behind the end of the file."""
    size, extents, at = sum(lengths), [], 0
    for length in lengths:
        extents.append(Extent(at, length))
        at += length
    extents[-1] = extents[-1]._replace(length=extents[-1].length + behind)
    assert own_bytes(extents, size) == size
    assert extents_problem(extents, size) is None
    assert extents_problem(extents[:-1], size) is not None


def test_it_is_made_where_twice_its_size_is_available_above_the_mark() -> None:
    """A byte less is refused, with all the numbers."""
    assert room_problem(16 * MIB, SETTINGS) is None
    assert room_problem(26 * MIB, SETTINGS, 10 * MIB) is None
    problem = room_problem(26 * MIB - 1, SETTINGS, 10 * MIB)
    assert problem is not None
    assert "27262975 bytes are available" in problem
    assert "above the mark of 10485760 bytes, 27262976 bytes" in problem


@pytest.mark.parametrize(
    ("given_now", "expected"),
    [
        ({}, Restoration.BEGUN),
        ({"under_pressure": True}, Restoration.UNDER_PRESSURE),
        ({"being_made": True}, Restoration.BEING_MADE),
        ({"seconds_since_last": 299.9}, Restoration.TOO_SOON),
        ({"seconds_since_last": 300.0}, Restoration.BEGUN),
        ({"available_bytes": 17 * MIB - 1}, Restoration.NO_ROOM),
        ({"under_pressure": True, "being_made": True, "available_bytes": 0}, Restoration.UNDER_PRESSURE),
    ],
)
def test_when_it_is_made_again(given_now: dict[str, object], expected: Restoration) -> None:
    """Not under pressure, one at a time, each 5 minutes, with room for it twice over above the mark of 1 MiB."""
    usual: dict[str, object] = {
        "available_bytes": 17 * MIB,
        "mark_bytes": MIB,
        "under_pressure": False,
        "being_made": False,
        "seconds_since_last": None,
    }
    assert restoration(SETTINGS, **{**usual, **given_now}) is expected  # type: ignore[arg-type] # one row of the table
