"""The screen of `reclaimd top`: bars, sparklines, panels; at any width, for any answer of the daemon."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eviction.cli.status import BLOCKS, Panel, bar, panels, sparkline
from tests.pure.values import GIB, MIB


def status(**fields: Any) -> dict[str, Any]:
    """The answer of a daemon on a node with one filesystem."""
    return {
        "heartbeat_age_seconds": 0.2,
        "doing": None,
        "paused_for_seconds": 0.0,
        "conditions": [],
        "disk_pressure": None,
        "layout": "single",
        "observations": [
            {"signal": "nodefs.available", "available": 6 * GIB, "capacity": 10 * GIB, "stale": False},
            {"signal": "nodefs.inodesFree", "available": 900, "capacity": 1000, "stale": False},
        ],
        "thresholds": [
            {"signal": "nodefs.available", "effective": 2 * GIB, "headroom_seconds": 8.1},
            {"signal": "nodefs.inodesFree", "effective": 50, "headroom_seconds": None},
        ],
        "passes": [
            {
                "started": "2026-11-21T07:00:00.000Z",
                "acted_on": {"signal": "nodefs.available"},
                "result": "not_enough",
                "reason": "removed 1 object",
                "removals": [
                    {"kind": "image", "name": "old/app:1", "result": "removed", "freed": {"bytes": 40 * MIB}},
                    {"kind": "image", "name": "not/this:1", "result": "failed", "freed": {"bytes": 0}},
                ],
            }
        ],
        **fields,
    }


def plain(shown: list[Panel]) -> list[str]:
    """The panels as lines of text."""
    return [line.text for each in shown for line in each]


def screen(width: int = 100, past: dict[str, list[int]] | None = None, **fields: Any) -> str:
    return "\n".join(plain(panels(status(**fields), past or {}, width)))


def test_the_screen_shows_state_marks_passes_and_removals() -> None:
    """Amounts, time to the mark, results with their reason, and only real removals."""
    shown = screen()
    assert "no ReclaimPressure\nwatching  layout single  last observation 0.2 s ago\n" in shown
    assert "6.0GiB  60%" in shown
    assert "8s" in shown
    assert "> 1 day" in shown
    assert (
        "TIME      SIGNAL            RESULT      REASON\n07:00:00  nodefs.available  not_enough  removed 1 object"
    ) in shown
    assert "FREED    KIND   NAME\n40.0MiB  image  old/app:1" in shown
    assert "not/this:1" not in shown


def test_a_signal_without_a_mark_has_no_time_to_it() -> None:
    """It says "no mark" instead of a time."""
    assert screen(thresholds=[]).count(" no mark") == 2


def test_pressure_and_a_pause_are_shown() -> None:
    """The condition, what is being done, the length of the pause, the signal below its mark."""
    low = [{"signal": "nodefs.available", "available": GIB, "capacity": 10 * GIB, "stale": False}]
    shown = screen(
        conditions=["ReclaimPressure"], doing="relieving nodefs.available", paused_for_seconds=5.0, observations=low
    )
    assert "ReclaimPressure (below our mark)\nrelieving nodefs.available, next try in 5s  layout" in shown
    assert "below" in shown
    (_, _, line) = panels(status(conditions=["ReclaimPressure"], observations=low), {}, 80)[1]
    assert line.style == "bad"


def test_a_stale_reading_is_no_pressure() -> None:
    """It is shown as stale, in the style of a warning."""
    stale = [{"signal": "nodefs.available", "available": GIB, "capacity": 10 * GIB, "stale": True}]
    (_, _, line) = panels(status(observations=stale), {}, 80)[1]
    assert "stale" in line.text
    assert line.style == "warning"


def test_before_the_first_observation_the_screen_says_so() -> None:
    """No filesystem, no pass, no removal."""
    shown = screen(observations=[], thresholds=[], passes=[], layout=None)
    for words in ("no filesystem has been read yet", "none yet", "nothing yet", "layout not known yet"):
        assert words in shown


@pytest.mark.parametrize("width", [1, 40, 79, 80, 120, 300])
def test_no_line_is_wider_than_the_screen(width: int) -> None:
    """From 40 columns on; a long reason is cut, not wrapped. Every column has a head."""
    long = status(
        doing="relieving nodefs.available",
        conditions=["DiskPressure", "ReclaimPressure"],
        disk_pressure=True,
        held_off="paused until 2026-11-23T04:00:00Z (reclaimd resume ends it)",
        dry_run=True,
    )
    long["passes"][0]["reason"] = "because " * 100
    long["passes"][0]["removals"][0]["name"] = "registry.example/" + "very" * 100
    past = {"nodefs.available": list(range(0, 10 * GIB, GIB // 50))}
    shown = plain(panels(long, past, width))
    assert max(map(len, shown)) <= max(width, 40)
    for title, heads in HEADS.items():
        (number,) = (number for number, line in enumerate(shown) if line.startswith(f"-- {title} "))
        left_out = set(heads.split()) - set(shown[number + 1].split())
        assert left_out <= ({"USED", "PAST", "REASON"} if width < 60 else set())


HEADS = {"filesystems": "SIGNAL AVAILABLE FREE USED TO MARK PAST", "last passes": "TIME SIGNAL RESULT REASON"}
SIGNALS = [f"{role}.{unit}" for role in ("nodefs", "imagefs", "containerfs") for unit in ("available", "inodesFree")]


def crowded(signals: int) -> dict[str, Any]:
    """A node that has all there is to show: six signals, many passes and removals, two reasons to remove nothing."""
    names = [*SIGNALS, *(f"buildcache-{number}.available" for number in range(signals - len(SIGNALS)))]
    record = status()["passes"][0]
    return status(
        held_off="the kubelet does not answer on /healthz; nothing is removed for another 280 s after the start",
        dry_run=True,
        observations=[{"signal": name, "available": GIB, "capacity": 10 * GIB, "stale": False} for name in names],
        thresholds=[{"signal": name, "effective": 2 * GIB, "headroom_seconds": 8.1} for name in names],
        passes=[{**record, "removals": record["removals"] * 3} for _ in range(9)],
    )


@pytest.mark.regression
@pytest.mark.parametrize(("width", "height", "titles"), [(80, 23, 4), (60, 14, 2), (120, 50, 4)])
def test_the_screen_is_no_higher_than_the_terminal_and_keeps_state_and_gauges(
    width: int, height: int, titles: int
) -> None:
    """At 80x24 all four panels, at 60x15 the first two; the last row is for the cursor."""
    shown = plain(panels(crowded(len(SIGNALS)), {}, width, height))
    assert len(shown) <= height
    assert sum(line.startswith("-- ") for line in shown) == titles
    assert shown[1] == "ReclaimPressure (was below our mark)" or shown[1].startswith("no ReclaimPressure")
    for name in SIGNALS:
        assert any(line.startswith(f"{name} ") for line in shown)


@given(st.integers(1, 60), st.integers(1, 22), st.integers(0, 9), st.integers(0, 9))
def test_whatever_there_is_to_show_it_is_as_high_as_it_may_be(
    height: int, signals: int, passes: int, removals: int
) -> None:
    """From 9 rows on: the state, a gauge, and what else fits; each panel has its title and an entry."""
    full = crowded(signals)
    record = full["passes"][0]
    full["passes"] = [{**record, "removals": record["removals"][:removals]} for _ in range(passes)]
    shown = panels(full, {}, 80, height)
    assert sum(map(len, shown)) <= max(height, 9)
    assert all(len(panel) >= 2 for panel in shown)
    assert len(panels(full, {}, 80)) == 4


def test_what_keeps_the_daemon_from_removing_is_on_the_screen() -> None:
    """A hold-off with its reason and its end, a pause, a dry run; nothing of it otherwise."""
    assert "held off" not in screen()
    assert "dry run" not in screen()
    held = "the kubelet does not answer on /healthz; nothing is removed for another 280 s after the start"
    assert f"held off: {held}\n" in screen(held_off=held, width=120)
    assert "held off: paused until 2026-11-23T04:00:00Z" in screen(held_off="paused until 2026-11-23T04:00:00Z (x)")
    assert "dry run (dryRun): nothing is removed" in screen(dry_run=True)
    small = " ".join("\n".join(plain(panels(status(held_off=held), {}, 60, 14))).split())
    assert f"held off: {held}" in small, "its end too"


def test_control_characters_of_names_are_escaped() -> None:
    """The name of an image cannot send commands to the terminal."""
    hostile = status()
    hostile["passes"][0]["removals"][0]["name"] = "a\x1b[2Jb\nc"
    hostile["passes"][0]["reason"] = "x\x07y"
    shown = plain(panels(hostile, {}, 100))
    assert not any(character in "".join(shown) for character in "\x1b\x07\n")


@pytest.mark.parametrize(
    ("amounts", "capacity", "length", "line"),
    [
        ([0, 50, 100], 100, 10, BLOCKS[0] + BLOCKS[3] + BLOCKS[7]),
        ([0, 50, 100], 100, 2, BLOCKS[3] + BLOCKS[7]),
        ([200, -5], 100, 10, BLOCKS[7] + BLOCKS[0]),
        ([], 100, 10, ""),
        ([1], 0, 10, ""),
        ([1], 100, 0, ""),
    ],
)
def test_a_sparkline_is_the_latest_amounts(amounts: list[int], capacity: int, length: int, line: str) -> None:
    """The capacity is the full height; amounts beyond are cut."""
    assert sparkline(amounts, capacity, length) == line


@pytest.mark.parametrize(
    ("available", "mark", "cells"),
    [(100, None, ".........."), (0, None, "##########"), (40, 20, "######..|."), (10, 20, "########|."),
     (40, 500, "|#####....")],
)  # fmt: skip
def test_a_bar_shows_what_is_used_and_the_mark(available: int, mark: int | None, cells: str) -> None:
    """Ten cells of a capacity of 100."""
    assert bar(available, mark, 100, 10) == cells
