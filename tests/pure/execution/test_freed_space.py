"""Space that comes late is waited for, but not for ever, and not twice."""

from __future__ import annotations

import threading
import time

import pytest

from reclaim.execution.freed_space import LATE_LIMIT_SECONDS, LATE_QUIET_SECONDS, STILL_SECONDS
from reclaim.types import Result
from tests.pure.store import Site, results
from tests.pure.values import MIB


@pytest.mark.parametrize("parallel", [2, 4, 8])
def test_what_was_freed_together_side_by_side_is_not_waited_for_again(parallel: int) -> None:
    """containerd frees what several calls removed in one pass: all of it is there with the first answer. That nothing
    comes with the others is no late space: twelve images of 20 MiB took 2.7 s by two and 0.3 s one after another."""
    site = Site(1 + parallel, wanted_mib=1000, parallel=parallel)
    together = list(site.sizes)[1:]  # the first goes alone
    freed = threading.Event()

    def remove(name: str) -> None:
        if name == together[0]:
            for other in together[1:]:
                site.disk.free(site.store.sizes[other])
                site.store.sizes[other] = 0
            freed.set()
        elif name in together:
            assert freed.wait(60.0)
            time.sleep(0.3)  # its answer comes after the first one

    site.store.on_remove = remove
    began = site.clock.monotonic()
    executed = site.execute()
    freed_mib = [outcome.freed_bytes // MIB for outcome in executed.outcomes]
    assert freed_mib == [10, 10 * parallel, *[0] * (parallel - 1)]
    assert site.clock.monotonic() == began, "not a moment was waited"


def test_late_space_is_waited_for() -> None:
    """10 MiB that come 15 ms after the answer are counted, and no second object goes."""
    site = Site(2, wanted_mib=10)
    site.store.late_seconds = 0.015
    executed = site.execute()
    assert results(executed) == {"a": Result.REMOVED}
    assert executed.outcomes[0].freed_bytes == 10 * MIB


def test_fruitless_waits_are_given_up() -> None:
    """Of 10 objects that free nothing the first two are waited for 0.25 s each, the others not at all."""
    site = Site(10, wanted_mib=100)
    site.store.late_seconds = 1e9
    began = site.clock.monotonic()
    executed = site.execute()
    assert len(executed.outcomes) == 10
    assert site.clock.monotonic() - began == pytest.approx(2 * STILL_SECONDS, abs=0.01)


def test_a_wait_ends_after_half_a_second_even_while_space_arrives() -> None:
    """A byte every 10 ms is no reason to wait for ever."""
    site = Site(1, wanted_mib=100)
    for drop in range(1000):
        site.disk.free(1, after_seconds=0.01 * drop)
    began = site.clock.monotonic()
    site.executor.settle(site.disk.measure, LATE_QUIET_SECONDS, LATE_LIMIT_SECONDS)
    assert site.clock.monotonic() - began == pytest.approx(LATE_LIMIT_SECONDS, abs=0.01)
