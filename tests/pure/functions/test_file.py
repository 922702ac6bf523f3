"""What the ballast is called, and where there is room for it."""

from __future__ import annotations

from eviction.engine.ballast import room_problem
from reclaim.functions.ballast import BallastSettings
from tests.pure.values import MIB

SETTINGS = BallastSettings("/var/lib/kubelet/reclaimd.ballast", 8 * MIB)


def test_the_name_of_the_file_and_its_directory() -> None:
    """Also at the root."""
    assert (SETTINGS.directory, SETTINGS.name) == ("/var/lib/kubelet", "reclaimd.ballast")
    assert BallastSettings("/ballast", MIB).directory == "/"


def test_it_is_made_where_twice_its_size_is_available_above_the_mark() -> None:
    """A byte less is refused, with all the numbers."""
    assert room_problem(16 * MIB, SETTINGS) is None
    assert room_problem(26 * MIB, SETTINGS, 10 * MIB) is None
    problem = room_problem(26 * MIB - 1, SETTINGS, 10 * MIB)
    assert problem is not None
    assert "27262975 bytes are available" in problem
    assert "above the mark of 10485760 bytes, 27262976 bytes" in problem
