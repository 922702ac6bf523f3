"""`--room AMOUNT --on FILESYSTEM`: its options, and what is said of the room."""

from __future__ import annotations

from typing import Any

import pytest

from eviction.decision.synchronize import EvictionConfig
from eviction.engine.effects import Request
from eviction.records.pass_json import Room, room_of
from eviction.surface.answer import OptionRefused
from eviction.surface.requests import read_options, request_of
from eviction.types import Decision, Extent
from signals.types import KUBELET_SIGNALS, FilesystemRole, FsLayout, Signal
from tests.pure.values import GIB, observation, observations_of

CACHE = (Signal("cache.available"), Signal("cache.inodesFree"))
IMAGEFS = FilesystemRole.IMAGEFS
NEEDS = (
    "--room AMOUNT goes with --on, which is one of nodefs, imagefs, containerfs, cache; but they"
    " were "
)
ON, ABOVE = "on imagefs,", "of it above the marks;"
ALONE = "--room says what to reach, so --signal, --until and --all do not go with it"


@pytest.mark.parametrize(
    ("on", "room", "mark"),
    [
        ("imagefs", "12Gi", 12 * GIB),
        ("nodefs", "10%", 10 * GIB + 160),
        ("cache", "1073741824", GIB),
    ],
)
def test_it_is_a_mark_on_the_bytes_of_that_filesystem(on: str, room: str, mark: int) -> None:
    """Which is reached and not passed: the row of the signal, until so much is
    available, whatever extent is set.
    """
    options = read_options({"room": room, "on": on}, (*KUBELET_SIGNALS, *CACHE))
    assert options.room
    assert options.until is not None
    assert (options.signal, options.until.mark(100 * GIB)) == (f"{on}.available", mark)
    assert options.signal is not None
    seen = observations_of(observation(options.signal, GIB))
    decision = Decision(frozenset(), (), None, (), FsLayout.SINGLE)
    request = request_of(options, seen, decision, config=EvictionConfig())
    row = EvictionConfig().row(options.signal, seen)
    assert request == Request(row, (options.until,), Extent.ENOUGH)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"room": "1Gi"}, NEEDS + "'1Gi' and None"),
        ({"on": "imagefs"}, NEEDS + "None and 'imagefs'"),
        ({"room": "1Gi", "on": "imagefs.available"}, NEEDS + "'1Gi' and 'imagefs.available'"),
        ({"room": "1Gi", "on": ["imagefs"]}, NEEDS + "'1Gi' and ['imagefs']"),
        ({"room": "1Gi", "on": "imagefs", "signal": "nodefs.available"}, ALONE),
        ({"room": "1Gi", "on": "imagefs", "until": "1Gi"}, ALONE),
        ({"room": "1Gi", "on": "imagefs", "all": True}, ALONE),
        (
            {"room": "12", "on": "imagefs"},
            "--room: must be a percentage or at least 1Mi, but it was '12'",
        ),
        (
            {"room": "1000Ki", "on": "imagefs"},
            "--room: must be a percentage or at least 1Mi, but it was '1000Ki'",
        ),
        ({"room": "lots", "on": "imagefs"}, "--room: 'lots' is neither"),
        ({"room": "120%", "on": "imagefs"}, "--room: must be between 0% and 100%"),
        ({"room": "-1Gi", "on": "imagefs"}, "--room: must be above 0"),
    ],
)
def test_what_cannot_be_asked_for_is_refused(given: dict[str, Any], sentence: str) -> None:
    """With what is allowed."""
    with pytest.raises(OptionRefused) as refusal:
        read_options(given, (*KUBELET_SIGNALS, *CACHE))
    assert sentence in str(refusal.value)


@pytest.mark.parametrize(
    ("room", "missing", "sentence"),
    [
        (
            room_of(IMAGEFS, 12 * GIB, 14 * GIB, kept_free=9 * GIB, dry_run=False),
            0,
            f"14.0GiB is available {ON} 5.0GiB {ABOVE} 12.0GiB was asked for: the room is there",
        ),
        (
            room_of(IMAGEFS, 12 * GIB, 8 * GIB, kept_free=9 * GIB, dry_run=False),
            4 * GIB,
            f"8.0GiB is available {ON} 0B {ABOVE} 12.0GiB was asked for: 4.0GiB is missing",
        ),
        (
            room_of(IMAGEFS, 12 * GIB, 12 * GIB, kept_free=0, dry_run=True),
            0,
            (
                f"12.0GiB would be available {ON} 12.0GiB {ABOVE} 12.0GiB was asked for: the room"
                " would be there"
            ),
        ),
        (
            room_of(IMAGEFS, 12 * GIB, 11 * GIB, kept_free=0, dry_run=True),
            GIB,
            (
                f"11.0GiB would be available {ON} 11.0GiB {ABOVE} 12.0GiB was asked for: 1.0GiB"
                " would be missing"
            ),
        ),
    ],
)
def test_what_is_there_and_what_is_missing_is_said(room: Room, missing: int, sentence: str) -> None:
    """And how much of it is above the marks, as using the rest makes reclaimd remove more."""
    assert (room.missing, room.sentence) == (missing, sentence)
