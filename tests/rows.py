"""Tables of tests as text: a row a line."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest


def rows(text: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Parametrizes a test. The first line names its arguments, which are texts; columns are two
    spaces or more apart, and one column more says what a row is about."""
    head, *lines = (re.split(" {2,}", line.strip()) for line in text.strip().splitlines())
    width = len(head)
    params = [pytest.param(*cells[:width], id="".join(cells[width:]) or None) for cells in lines]
    mark: Callable[[Callable[..., None]], Callable[..., None]]
    mark = pytest.mark.parametrize(head, params)
    return mark
