"""Counts of work, for limits that cannot be checked by a clock on a shared machine."""

import sys
import tracemalloc
from collections.abc import Callable
from types import FrameType
from typing import Any


def lines_run(action: Callable[[], object]) -> int:
    """How many lines of Python `action` runs on this thread.

    What a C function does inside one line is not counted.
    """
    count = 0

    def trace(_: FrameType, event: str, __: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(before)
    return count


def most_allocated(action: Callable[[], object]) -> int:
    """The most bytes that Python had allocated for `action` at one moment, beyond
    those that were there before.
    """
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
