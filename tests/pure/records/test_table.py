"""The history for people: a line for each removal and each pass, which fits the terminal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eviction.cli.history import history_lines
from eviction.records.history import documents_of, pass_records
from reclaim.types import ReclaimResult, Result
from tests.pure.records.documents import (
    daemon_record,
    dropped_record,
    outcome,
    parked_ended_record,
    pass_of,
    periodic_pass,
    returned_record,
)

FIRST = ("PASS", "FREED", "SIZE", "KIND", "REASON")
WALL = 1_800_000_000.0
LONG = "registry.example/" + "team/" * 30 + "app:1.2"
DOCUMENTS = list(
    documents_of(
        [
            daemon_record(WALL),
            *pass_records(pass_of([outcome(1), outcome(2, LONG, Result.FAILED)]), WALL),
            *pass_records(periodic_pass(ReclaimResult("container GC", (outcome(3),))), WALL),
            parked_ended_record(outcome(4), WALL),
            dropped_record(3, WALL),
            returned_record(5, WALL + 60),
        ]
    )
)


def test_with_room_each_line_has_everything() -> None:
    """Removals before their pass, the newest last."""
    lines = [line.split() for line in history_lines(DOCUMENTS)]
    assert lines[0] == ["TIME", "RESULT", "KIND", "NAME", "SIZE", "FREED", "REASON", "PASS"]
    day = ["2027-01-15", "08:00:00"]
    assert lines[1][:5] == [*day, "started", "daemon", "reclaimd"]
    assert lines[2] == [
        *day,
        "removed",
        "image",
        "registry.example/app:1",
        "24.0MiB",
        "13.0MiB",
        "unused",
        "0123456789ab",
    ]
    assert lines[3] == [*day, "failed", "image", LONG, "24.0MiB", "-", "unused", "0123456789ab"]
    assert lines[4][2:5] == ["satisfied", "pass", "nodefs.available:"]
    assert lines[4][-4:] == ["24.0MiB", "13.0MiB", "interval", "0123456789ab"]
    assert lines[6][-2:] == ["periodic", "periodic-1"]
    assert lines[7][4] == "registry.example/app:4"
    assert lines[8][2:6] == ["dropped", "daemon", "3", "records"]
    assert lines[9][1:6] == ["08:01:00", "returned", "image", "registry.example/app:5", "20.0MiB"]


@pytest.mark.parametrize("width", [200, 120, 100, 80, 60])
def test_lines_fit_the_terminal_and_columns_go_in_the_stated_order(width: int) -> None:
    """What is left out is a beginning of the order; every column that is shown has a head."""
    lines = history_lines(DOCUMENTS, width)
    assert max(map(len, lines)) <= width
    head = lines[0].split()
    left_out = [title for title in FIRST if title not in head]
    assert left_out == list(FIRST[: len(left_out)])
    assert {"TIME", "RESULT", "NAME"} <= set(head)
    if width == 80:
        assert left_out == ["PASS", "FREED", "SIZE"]


def test_a_long_name_keeps_its_end_and_a_sentence_its_beginning() -> None:
    """The tag tells more than the registry."""
    lines = history_lines(DOCUMENTS, 80)
    assert any("…" in line and "app:1.2" in line for line in lines)
    assert any("nodefs.available: removed" in line for line in lines)


@given(st.text(max_size=200), st.integers(1, 300) | st.none())
def test_no_name_breaks_a_line(name: str, width: int | None) -> None:
    """Control characters are escaped; a line is one, at any width."""
    documents = list(documents_of(pass_records(pass_of([outcome(1, name)]), WALL)))
    lines = history_lines(documents, width)
    assert len(lines) == 3
    assert all(line.isprintable() for line in lines)
    if width is not None and width >= 60:
        assert max(map(len, lines)) <= width
