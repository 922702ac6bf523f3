"""The descriptors of the process of the tests.

Threads of gRPC and of earlier tests open and close theirs at any time in the same process. So
nothing is said of numbers, and what is open too many has time to be closed.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from tests.reclaimd_process import came_true


def open_descriptors() -> int:
    """How many descriptors this process has open, not counting the one that it takes to count."""
    return len(os.listdir("/proc/self/fd")) - 1


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    """After the block no more descriptors are open than before it."""
    before = open_descriptors()
    yield
    assert came_true(lambda: open_descriptors() <= before), (
        f"{open_descriptors()} descriptors, {before} before"
    )
