"""Tables of tests as text: a row a line, its columns parted by `|`."""

from __future__ import annotations

import pytest


def rows_of(table: str) -> list[dict[str, str]]:
    """The lines of a table, by the words of its first line."""
    head, *lines = (
        [cell.strip() for cell in line.split("|")] for line in table.strip().split("\n")
    )
    return [dict(zip(head, cells, strict=True)) for cells in lines]


def rows(table: str) -> pytest.MarkDecorator:
    """One test for each line. The column `what` says what it is about; the others are the test's
    arguments, as text."""
    lines = rows_of(table)
    ids = [line.pop("what", "") or None for line in lines]
    names = [*lines[0]]
    return pytest.mark.parametrize(names, [[*line.values()] for line in lines], ids=ids)
