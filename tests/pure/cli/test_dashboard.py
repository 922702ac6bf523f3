"""What `reclaimd status` and `reclaimd top` show: on any terminal, for any answer of the daemon."""

from __future__ import annotations

from typing import Any

import pytest

from eviction.cli.status import lines
from eviction.cli.top import screen
from eviction.records.json_shapes import to_json
from eviction.wording.status import Status
from signals.types import FsLayout
from tests.pure.values import GIB

SIGNALS = [
    f"{role}.{unit}"
    for role in ("nodefs", "imagefs", "containerfs")
    for unit in ("available", "inodesFree")
]


def seen(signal: str, available: int, *, stale: bool = False) -> dict[str, Any]:
    return {"signal": signal, "available": available, "capacity": 10 * GIB, "stale": stale}


def threshold(signal: str, mark: int, headroom_seconds: float | None) -> dict[str, Any]:
    return {"signal": signal, "effective": mark, "headroom_seconds": headroom_seconds}


def a_pass(reason: str = "removed 1 object") -> dict[str, Any]:
    acted_on = {"signal": "nodefs.available"}
    return {
        "started": "2026-11-21T07:00:00.000Z",
        "acted_on": acted_on,
        "result": "not_enough",
        "reason": reason,
    }


def status(**fields: Any) -> dict[str, Any]:
    """The answer of a daemon on a node with one filesystem."""
    observations = [seen("nodefs.available", 6 * GIB), seen("nodefs.inodesFree", 900)]
    thresholds = [
        threshold("nodefs.available", 2 * GIB, 8.1),
        threshold("nodefs.inodesFree", 50, None),
    ]
    answer = to_json(Status(layout=FsLayout.SINGLE))
    return {
        **answer,
        "observations": observations,
        "thresholds": thresholds,
        "passes": [a_pass()],
        **fields,
    }


def test_it_shows_what_is_coming() -> None:
    """Promised by btrfs, and more needed than is available; without both, no line."""
    coming = [{**seen("nodefs.available", 3 * GIB), "promised": GIB}]
    near = [{**threshold("nodefs.available", 2 * GIB, 0.0), "needed": 4 * GIB}]
    pressed = status(observations=coming, thresholds=near, conditions=["ReclaimPressure"])
    shown = "\n".join(lines(pressed))
    assert "ReclaimPressure (is coming)" in shown
    assert "nodefs.available  3.0GiB     2.0GiB  is coming" in shown
    assert "1.0GiB of what is used are promised to files by btrfs" in shown
    assert "nodefs.available: 4.0GiB are needed for what is coming" in shown
    assert "coming" not in "\n".join(lines(status()))


def test_it_shows_state_marks_and_passes() -> None:
    """Amounts, the time to each mark, results with their reason."""
    shown = "\n".join(
        lines(status(next_look_seconds=2.1, next_look_why="halfway to the next mark"))
    )
    assert "\nnext look in 2.1s: halfway to the next mark\n" in shown
    assert "no ReclaimPressure; watching; layout single\nSIGNAL " in shown
    assert "nodefs.available   6.0GiB      2.0GiB     8.1s" in shown
    assert "nodefs.inodesFree  900 inodes  50 inodes  -" in shown
    assert "2026-11-21T07:00:00Z  nodefs.available  not_enough  removed 1 object" in shown


def test_pressure_and_a_pause_are_shown() -> None:
    """The condition, what is being done, the length of the pause, the signal below its mark."""
    low, marks = [seen("nodefs.available", GIB)], [threshold("nodefs.available", 2 * GIB, 0.0)]
    under = status(conditions=["ReclaimPressure"], observations=low, thresholds=marks)
    shown = lines({**under, "doing": "relieving nodefs.available", "paused_for_seconds": 5.0})
    assert shown[0] == "ReclaimPressure (below our mark); relieving nodefs.available; layout single"
    assert shown[2].endswith(" below")
    assert "a row that was not enough is tried again in 5s" in shown


def test_a_stale_reading_is_no_pressure() -> None:
    """It is shown as stale, and its amount is an old one."""
    stale, marks = (
        [seen("nodefs.available", GIB, stale=True)],
        [threshold("nodefs.available", 2 * GIB, 0.0)],
    )
    first, _, row, *_ = lines(
        status(conditions=["ReclaimPressure"], observations=stale, thresholds=marks)
    )
    assert first.startswith("ReclaimPressure (was below our mark); ")
    assert row.endswith(" stale")


def test_before_the_first_observation_it_says_so() -> None:
    """No signal, no pass."""
    shown = lines(to_json(Status()))
    assert shown[0] == "no ReclaimPressure; watching; layout not known yet"
    assert shown[-1] == "no passes yet"
    assert not any("next look" in line for line in shown)


def test_what_keeps_the_daemon_from_removing_is_said() -> None:
    """A hold-off with its reason and its end, a pause, a dry run; nothing of it otherwise."""
    plain = "\n".join(lines(status()))
    assert "held off" not in plain
    assert "dry run" not in plain
    shown = lines(status(held_off="paused until 2026-11-23T04:00:00Z", dry_run=True))
    assert shown[1] == "held off: paused until 2026-11-23T04:00:00Z"
    assert shown[2].startswith("dry run (dryRun): nothing is removed")


@pytest.mark.regression
@pytest.mark.parametrize(("width", "height"), [(80, 24), (60, 15), (120, 50), (20, 5)])
def test_the_screen_fits_the_terminal_and_keeps_state_and_signals(width: int, height: int) -> None:
    """However much there is to show: six signals, many passes with long reasons, two
    reasons to remove nothing.
    """
    crowded = status(
        held_off=(
            "the kubelet does not answer on /healthz; nothing is removed for another 280 s after"
            " the start"
        ),
        dry_run=True,
        warnings=["w" * 500],
        observations=[seen(name, GIB) for name in SIGNALS],
        thresholds=[threshold(name, 2 * GIB, 8.1) for name in SIGNALS],
        passes=[a_pass("because " * 100)] * 9,
    )
    shown = screen(lines(crowded, width), width, height)
    assert len(shown) < height
    assert max(map(len, shown)) <= width
    for name in SIGNALS if width >= 60 else ():
        assert any(line.startswith(f"{name} ") for line in shown)


def test_control_characters_are_escaped() -> None:
    """A name of the runtime's cannot send commands to the terminal."""
    hostile = status(
        held_off="a\x1b[2Jb\nc", warnings=["the defaults: \x1b[31m"], passes=[a_pass("x\x07y")]
    )
    shown = screen(lines(hostile), None, 24)
    assert r"warning: the defaults: \x1b[31m" in shown
    assert not any(character in "".join(shown) for character in "\x1b\x07\n")
