"""Tables of tests as text: a row a line, its columns parted by `|`."""

import inspect
from collections.abc import Callable
from enum import Enum
from typing import Any, TypeVar, get_args, get_origin

import pytest
import yaml

Test = TypeVar("Test", bound=Callable[..., None])


def rows_of(table: str) -> list[dict[str, str]]:
    """The lines of a table, by the words of its first line."""
    head, *lines = (
        [cell.strip() for cell in line.split("|")] for line in table.strip().split("\n")
    )
    return [dict(zip(head, cells, strict=True)) for cells in lines]


def rows(table: str) -> Callable[[Test], Test]:
    """One test for each line. The column `what` says what it is about; the others are the test's
    arguments, of the types that it says: a number; an enumeration's name; YAML for a list, a map or
    Any; None, if that is allowed, and False are empty cells, True is any other."""
    lines = rows_of(table)
    ids = [line.pop("what", "") or None for line in lines]

    def each_row(test: Test) -> Test:
        kinds = inspect.get_annotations(test, eval_str=True)
        values = [[read(cell, kinds[name]) for name, cell in line.items()] for line in lines]
        names = [*lines[0]]
        marked: Test = pytest.mark.parametrize(names, values, ids=ids)(test)
        return marked

    return each_row


def read(cell: str, kind: Any) -> Any:
    """What a cell means as a value of this type."""
    if type(None) in get_args(kind):
        return read(cell, get_args(kind)[0]) if cell else None
    if kind is Any or get_origin(kind) in (list, dict):
        return yaml.load(cell, yaml.CSafeLoader)
    return kind[cell] if issubclass(kind, Enum) else kind(cell)
