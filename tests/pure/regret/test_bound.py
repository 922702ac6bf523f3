"""The bound on bytes that are pulled again."""

from __future__ import annotations

import pytest

from tests.bench.regret.bound import least_bytes_again
from tests.bench.regret.node import Node
from tests.bench.regret.policies import Offline, Reclaimd
from tests.bench.regret.workloads import GIB, WORKLOADS, Start, Trace, ci_fleet
from tests.pure.regret.test_node import at_intervals, singles, trace


def test_what_fits_beside_each_other_is_not_pulled_again() -> None:
    """Two images of 4 GiB have room in 8.5."""
    assert least_bytes_again(trace(singles(4, 4), *at_intervals(0, 1, 0, 1, 0, 1))) == 0


def test_of_two_that_do_not_fit_one_is_pulled_again_each_time() -> None:
    """6 GiB each, by turns: over time, no more than 8.5 GiB of the 12 can be kept."""
    of = trace(singles(6, 6), *at_intervals(*[0, 1] * 50))
    bound, offline = least_bytes_again(of), Node(of, Offline(of)).run().again_bytes
    assert 98 * 6 * (12 - 8.5 - 1) / 12 < bound / GIB < 98 * 6 * (12 - 8.5) / 6
    assert offline >= bound


def test_what_is_in_use_or_written_leaves_less_room() -> None:
    """The two that fit do not once a third runs all the time."""
    starts = at_intervals(*[0, 1] * 20)
    of = trace(singles(4, 4, 1), *starts)
    busy = trace(singles(4, 4, 1), *sorted([*starts, Start(0, 2, 40_000, 4 * GIB)]))
    assert least_bytes_again(of) == 0
    assert least_bytes_again(busy) > 10 * GIB


def test_a_window_does_not_lend_to_another_one() -> None:
    """A long quiet time does not pay for a busy one: the same need as above,
    then nothing for long.
    """
    starts = at_intervals(*[0, 1] * 50)
    short = least_bytes_again(trace(singles(6, 6), *starts))
    long = least_bytes_again(trace(singles(6, 6), *starts, Start(1e6, 0, 60)))
    assert long > short / 3


@pytest.mark.parametrize("seed", range(3))
def test_no_order_is_below_the_bound(seed: int) -> None:
    """A real trace, under the two that are best."""
    of = ci_fleet(seed, days=2)
    bound = least_bytes_again(of)
    for policy in (Offline(of), Reclaimd()):
        assert Node(of, policy).run().again_bytes >= bound


def test_an_empty_trace_has_a_bound() -> None:
    """0; and all workloads have one."""
    assert least_bytes_again(Trace("empty", GIB, 0, singles(1), [])) == 0
    assert WORKLOADS.keys() == {"ci", "service", "ml", "edge"}
