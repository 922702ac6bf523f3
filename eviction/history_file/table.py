"""The history as a table for people: a line for each removal and one for each pass, the newest last. Pure.

Where a line would be wider than the terminal, columns are left out until it fits, in the order of
`tables.LEFT_OUT_FIRST`;
then names are cut at their beginning, as the end of an image reference tells more, and sentences at their end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from eviction.history_file.entries import Document
from eviction.reporting.log import escaped
from eviction.reporting.pass_record import shortened
from eviction.reporting.tables import LEFT_OUT_FIRST
from signals.quantity import format_bytes

GAP = "  "
NARROWEST_NAME = 24
COLUMNS = ("TIME", "RESULT", "KIND", "NAME", "SIZE", "FREED", "REASON", "PASS")


class _Row(NamedTuple):
    """`sentence`: whether the cell below NAME is one, which is cut at its end."""

    cells: tuple[str, ...]
    sentence: bool = False


def history_lines(documents: Iterable[Document], width: int | None = None) -> list[str]:
    """The table. `width`: columns of the terminal; None: lines of any length."""
    rows = [_Row(COLUMNS), *(row for document in documents for row in _rows(document))]
    columns = list(range(len(COLUMNS)))
    name = COLUMNS.index("NAME")
    widths = [max(len(row.cells[column]) for row in rows) for column in columns]
    if width is not None:
        for title in LEFT_OUT_FIRST["history"]:
            if _room(widths, columns, name, width) >= min(widths[name], NARROWEST_NAME):
                break
            columns.remove(COLUMNS.index(title))
        widths[name] = max(min(widths[name], _room(widths, columns, name, width)), 1)
    lines = []
    for row in rows:
        cells = [_cut(row, widths[name]) if column == name else row.cells[column] for column in columns]
        padded = [cell.ljust(widths[column]) for cell, column in zip(cells, columns, strict=True)]
        lines.append(GAP.join(padded).rstrip())
    return lines


def _room(widths: list[int], columns: list[int], name: int, width: int) -> int:
    """How wide the names may be beside these columns."""
    return width - sum(widths[column] + len(GAP) for column in columns if column != name)


def _cut(row: _Row, width: int) -> str:
    text = row.cells[COLUMNS.index("NAME")]
    if len(text) <= width:
        return text
    return f"{text[: width - 1]}…" if row.sentence else f"…{text[len(text) - width + 1 :]}"


def _rows(document: Document) -> Iterator[_Row]:
    time = str(document.get("time", ""))[:19].replace("T", " ")
    kind = document["kind"]
    if kind in ("pass", "removals", "parked_ended"):
        identity = str(document.get("id") or document.get("pass") or "-")
        for removal in document.get("removals", ()):
            yield _removal(time, removal, identity)
        if kind == "pass":
            yield _pass(time, document, identity)
    elif kind == "dropped":
        yield _sentence(time, "dropped", f"{document.get('records')} records that could not be written")
    else:
        yield _sentence(time, kind, f"reclaimd {document.get('version', '')}".rstrip())


def _removal(time: str, removal: dict[str, Any], identity: str) -> _Row:
    freed = removal.get("freed") or {}
    removed = removal.get("result") == "removed"
    cells = (
        time,
        str(removal.get("result") or "-"),
        str(removal.get("kind", "-")),
        shortened(str(removal.get("name", ""))),
        _bytes(removal.get("size")),
        _bytes(freed.get("bytes")) if removed else "-",
        str(removal.get("reason", "-")),
        identity,
    )
    return _Row(tuple(map(escaped, cells)))


def _pass(time: str, document: Document, identity: str) -> _Row:
    acted_on = document.get("acted_on") or {}
    what = acted_on.get("signal") or ", ".join(map(str, document.get("row", ())))
    sentence = ": ".join(filter(None, (str(what), str(document.get("reason", "")))))
    nominal, measured = document.get("nominal") or {}, document.get("measured") or {}
    cells = (
        time,
        str(document.get("result", "-")),
        "pass",
        sentence,
        _bytes(nominal.get("bytes")),
        _bytes(measured.get("bytes")),
        str(document.get("trigger", "-")),
        identity,
    )
    return _Row(tuple(map(escaped, cells)), sentence=True)


def _sentence(time: str, result: str, text: str) -> _Row:
    return _Row(tuple(map(escaped, (time, result, "daemon", text, "-", "-", "-", "-"))), sentence=True)


def _bytes(value: object) -> str:
    return format_bytes(value) if isinstance(value, int) else "-"
