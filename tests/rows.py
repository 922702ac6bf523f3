"""Tables of tests as text: a row a line."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest


def rows(text: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Parametrizes a test. The first line names its arguments, which are texts; columns are two
    spaces or more apart, and the last of each row says what it is about."""
    head, *lines = (re.split(" {2,}", line.strip()) for line in text.strip().splitlines())
    params = [pytest.param(*cells, id=about) for *cells, about in lines]
    mark: Callable[[Callable[..., None]], Callable[..., None]] = pytest.mark.parametrize(
        head, params
    )
    return mark
